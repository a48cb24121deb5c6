"""The fleet's world as a campaign runs it: its numbers, its bugs and its output."""

from __future__ import annotations

from typing import Final

from tests.simulation.campaign import SimulatedWorld, Totals
from tests.simulation.fleet.fleet_bugs import FLEET_BUGS
from tests.simulation.fleet.fleet_world import run_fleet_seed

NUMBERS: Final = ("events", "engines", "orders", "acts", "answers", "operations")


def _lines(totals: Totals) -> list[str]:
    found = totals.counts
    return [
        f"{found['engines']:,} engines, at most {max(totals.seen)} together; {found['orders']:,} orders, "  # type: ignore[type-var]
        f"{found['acts']:,} acts, {found['answers']:,} answers; rules broken by {len(totals.failing)} seeds",
    ]


FLEET: Final = SimulatedWorld(
    options="--fleet ",
    run=run_fleet_seed,
    bugs=FLEET_BUGS,
    counts=lambda result: {name: getattr(result, name) for name in NUMBERS},
    seen=lambda result: [result.engines],
    facts=lambda totals: {"most_engines": max(totals.seen)},  # type: ignore[type-var]
    lines=_lines,
)
