"""The world of a pairing as a campaign runs it: its numbers, its bugs and its output."""

from __future__ import annotations

from typing import Any, Final

from paired_servicebus.core.model.entity_state import TABLE, State
from tests.simulation.campaign import SimulatedWorld, Totals
from tests.simulation.checked_world import CheckedResult, run_seed
from tests.simulation.planted_bugs import BUGS, SHIPPED_BUGS

OF_LEDGER: Final = ("accepted", "delivered", "duplicates", "lost", "unexpected")


def _counts(result: CheckedResult) -> dict[str, int]:
    ledger = {name: getattr(result.ledger, name) for name in OF_LEDGER}
    return {"events": result.events, **ledger, "stuck": result.stuck}


def _facts(totals: Totals) -> dict[str, Any]:
    return {
        "in_shipped_rules": SHIPPED_BUGS,
        "states_reached": _states(totals),
        "transitions_reached": len(totals.seen),
        "transitions_total": len(TABLE),
    }


def _states(totals: Totals) -> int:
    """Return how many states were left or entered by a reached line of the table."""
    lines = [(was, now) for (was, trigger), now in TABLE.items() if (str(was), trigger.name) in totals.seen]
    return len({state for line in lines for state in line})


def _lines(totals: Totals) -> list[str]:
    found = totals.counts
    return [
        f"{found['accepted']:,} messages accepted: {found['lost']} lost, {found['unexpected']} unexpected, "
        f"{found['stuck']} stuck; {found['duplicates']:,} duplicates, each in one of the three windows",
        f"states reached: {_states(totals)} of {len(State)}; lines of the table: {len(totals.seen)} of {len(TABLE)}",
        f"{SHIPPED_BUGS} planted bugs are in shipped rules",
    ]


PAIRING: Final = SimulatedWorld(
    options="",
    run=run_seed,
    bugs=BUGS,
    counts=_counts,
    seen=lambda result: result.reached,
    facts=_facts,
    lines=_lines,
)
