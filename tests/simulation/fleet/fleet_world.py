"""One run of the fleet: a plan in virtual time, recovery, orders on the sound fleet, and their end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from paired_servicebus.core.fleet.fleet_documents import Board
from tests.simulation.fleet.fleet_invariants import FleetChecker
from tests.simulation.fleet.fleet_plan import (
    BEGAN,
    FINAL_SECONDS,
    FleetPlan,
    PlannedOrder,
    StateChange,
    draw_fleet_plan,
)
from tests.simulation.fleet.fleet_run import FleetRun
from tests.simulation.fleet.sim_console import SimConsole
from tests.simulation.fleet.sim_enemy import SimEnemy
from tests.simulation.fleet.sim_fleet_engine import SimFleetEngine
from tests.simulation.invariants import BrokenInvariant

LOOK_SECONDS: Final = 5.0
"""Seconds between two checks of what holds in the engines."""
READING_SECONDS: Final = 40.0
"""Seconds that consoles read the answers to the last orders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRunResult:
    """The result of one run."""

    seed: int
    events: int
    engines: int
    orders: int
    """Orders that consoles posted."""
    acts: int
    answers: int
    operations: int
    broken: tuple[BrokenInvariant, ...]
    trace: tuple[str, ...] = ()


class FleetWorld(FleetRun):
    """One run, with its parts and its schedule.

    Args:
        plan: the events.
        seed: for what the plan leaves open: network times, shares of faults, the durations of acts.
    """

    def __init__(self, plan: FleetPlan, seed: int, *, traced: bool = False) -> None:
        super().__init__(plan, seed, traced=traced)
        self.engines = [SimFleetEngine(self, index, planned) for index, planned in enumerate(plan.engines)]
        self.checks: FleetChecker = FleetChecker(self, self.engines)
        self.consoles = [SimConsole(self, index, self.engines, self.checks) for index, _ in enumerate(plan.consoles)]

    # -- a run --------------------------------------------------------------------------------------------------------

    def run(self) -> FleetRunResult:
        """Run the plan."""
        self._lay_out()
        self.clock.run(BEGAN + self.plan.ends_at)
        self.checks.look(LOOK_SECONDS)
        self.checks.operations()
        return FleetRunResult(
            seed=self.seed,
            events=self.clock.events,
            engines=len(self.engines),
            orders=len(self.genuine),
            acts=self.checks.acts,
            answers=self.checks.answers,
            operations=sum(one.reads + one.writes for one in self.engines),
            broken=tuple(self.checks.broken),
            trace=tuple(self.trace or ()),
        )

    def _lay_out(self) -> None:
        plan, enemy = self.plan, SimEnemy(self, self.engines)
        for engine in self.engines:
            self._at(0.0, engine.start)
        for order in plan.orders:
            self._at(order.at, self.consoles[order.console].give, order)
        self._lay_out_faults(plan)
        for mischief in plan.mischief:
            self._at(mischief.at, enemy.act, mischief)
        for local in plan.local_acts:
            self._at(local.at, self._act_locally, self.engines[local.engine], local.verb, local.target)
        self._at(LOOK_SECONDS, self._look)
        self._at(plan.heals_at, self._heal)
        self._at(plan.healed_at, self.checks.equal)
        for last in plan.last_orders:
            self._at(plan.healed_at + last.at, self._give_last, last)
        for console in self.consoles[:2]:
            self._at(plan.healed_at + FINAL_SECONDS - READING_SECONDS, console.watch, 1)
        self._at(plan.healed_at + FINAL_SECONDS, self._check_answers)

    def _lay_out_faults(self, plan: FleetPlan) -> None:
        for crash in plan.crashes:
            engine = self.engines[crash.engine]
            self._at(crash.at, engine.end if crash.clean else engine.crash)
            if crash.loses_disk:
                self._at(crash.back, self._lose_disk, engine)
            self._at(crash.back, self._restart, engine)
        for change in plan.changes:
            self._at(change.at, self._change, change)
        for failure in plan.disk_failures:
            self._at(failure.at, self._fail_disk, self.engines[failure.engine], BEGAN + failure.ends)
        for signers in plan.signers_changes:
            self._at(signers.at, partial(self.engines[signers.engine].change_signers, is_whole=signers.is_whole))
        for at, index in plan.clock_sets:
            self._at(at, self._set_clock, self.engines[index])
        for at, index in plan.deaths:
            self._at(at, self.engines[index].die_at_next_act)
        for at, board in plan.remakes:
            self._at(at, self._remake, Board(board))

    def _at(self, seconds: float, action: Callable[..., object], *arguments: Any) -> None:
        self.clock.at(BEGAN + seconds, action, *arguments)

    def _restart(self, engine: SimFleetEngine) -> None:
        if engine.is_alive:
            return
        for console in self.consoles:
            if console.engine is engine:
                console.restarted()
        engine.start()

    @staticmethod
    def _lose_disk(engine: SimFleetEngine) -> None:
        if not engine.is_alive:
            engine.lose_disk()

    def _fail_disk(self, engine: SimFleetEngine, until: float) -> None:
        self.log(f"the disk of {engine.name} accepts nothing")
        engine.disk_fails_until = until

    @staticmethod
    def _act_locally(engine: SimFleetEngine, verb: str, target: str) -> None:
        if engine.is_alive and engine.has_joined:
            engine.act_locally(verb, target)

    def _change(self, change: StateChange) -> None:
        self.engines[change.engine].change(change.path, fails=change.fails)

    def _set_clock(self, engine: SimFleetEngine) -> None:
        self.log(f"the clock of {engine.name} is set right: it was {engine.clock.offset(self.clock.now):.1f} s ahead")
        engine.set_clock()

    def _remake(self, board: Board) -> None:
        self.log(f"the board {board} is deleted and created again")
        self.boards[board].remake(self.clock.now)

    def _look(self) -> None:
        self.checks.look(LOOK_SECONDS)
        self.clock.at(self.clock.now + LOOK_SECONDS, self._look)

    def _heal(self) -> None:
        self.log("everything has healed")
        for engine in self.engines:
            self._restart(engine)

    # -- the sound fleet ----------------------------------------------------------------------------------------------

    def _give_last(self, order: PlannedOrder) -> None:
        self.consoles[order.console].give(order)

    def _check_answers(self) -> None:
        self.checks.equal()
        for console in self.consoles[:2]:
            engine = console.engine
            view = engine.member.view()
            self.checks.viewed(engine, view)
            if engine.acts:
                self.checks.all_answered(engine, view, self.last_ids)
            console.watch(-1)


def run_fleet_seed(seed: int, *, traced: bool = False) -> FleetRunResult:
    """Draw a plan and run it; the same seed gives the same run."""
    plan = draw_fleet_plan(Random(f"fleet plan {seed}"))
    return FleetWorld(plan, seed, traced=traced).run()
