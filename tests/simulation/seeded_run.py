"""One seed's run: the plan that it draws, in the World."""

from __future__ import annotations

from random import Random

from paired_servicebus.simulation.world import AS_SHIPPED, RunResult, World, WorldParts
from tests.simulation.plan_generator import draw_plan


def run_seed(seed: int, *, parts: WorldParts = AS_SHIPPED, traced: bool = False) -> RunResult:
    """Draw a plan and run it; the same seed gives the same run."""
    return World(draw_plan(Random(f"plan {seed}")), seed, parts=parts, traced=traced).run()
