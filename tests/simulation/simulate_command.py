"""The output of `python -m tests.simulation`: sentences, or one JSON object.

Exit status 1: a rule was broken, or a planted bug was not caught.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.entity_state import TABLE, State
from tests.simulation.campaign import MAX_SHOWN, Totals, catch_all, run_many
from tests.simulation.checked_world import CheckedResult, run_seed
from tests.simulation.planted_bugs import BUGS, SHIPPED_BUGS, WITHIN

PROCESSES: Final = 2


def run_simulation(*, seeds: int, seed: int | None, json_line: bool) -> int:
    """Run the seeds 1 to `seeds` and all planted bugs; or only `seed`, with its trace if a rule is broken.

    Raises:
        ConfigurationError: fewer than one seed.
    """
    if seed is not None:
        return _run_one(seed, json_line=json_line)
    if seeds < 1:
        raise ConfigurationError(f"--seeds is {seeds}; it must be 1 at least")
    processes = min(PROCESSES, os.cpu_count() or 1)
    totals = run_many(seeds, processes=processes)
    caught = sum(catch_all(processes=processes))
    sys.stdout.write(json.dumps(_object(totals, caught)) + "\n" if json_line else _sentences(totals, caught))
    return 1 if totals.failing or caught < len(BUGS) else 0


def _run_one(seed: int, *, json_line: bool) -> int:
    """Run one seed; its trace goes to standard error, so that standard output has only the object."""
    result = run_seed(seed, traced=True)
    if result.broken:
        sys.stderr.write("\n".join(result.trace) + "\n")
    sys.stdout.write(json.dumps(_one_object(result)) + "\n" if json_line else _one_sentence(result))
    return 1 if result.broken else 0


def _object(totals: Totals, caught: int) -> dict[str, Any]:
    return {
        "seeds": totals.seeds,
        "events": totals.events,
        "events_per_s": round(totals.events / totals.seconds) if totals.seconds else 0,
        "accepted": totals.accepted,
        "delivered": totals.delivered,
        "duplicates": totals.duplicates,
        "lost": totals.lost,
        "unexpected": totals.unexpected,
        "stuck": totals.stuck,
        "failing_seeds": [seed for seed, _ in totals.failing[:MAX_SHOWN]],
        "planted_bugs": {"total": len(BUGS), "caught": caught, "in_shipped_rules": SHIPPED_BUGS},
        "states_reached": _states(totals.reached),
        "transitions_reached": len(totals.reached),
        "transitions_total": len(TABLE),
    }


def _states(reached: set[tuple[str, str]]) -> int:
    """Return whether every state was left or entered by a reached line of the table."""
    left = {state for state, _ in reached}
    entered = {str(now) for (was, trigger), now in TABLE.items() if (str(was), trigger.name) in reached}
    return len((left | entered) & {str(state) for state in State})


def _sentences(totals: Totals, caught: int) -> str:
    found = _object(totals, caught)
    lines = [
        f"{totals.seeds:,} seeds, {totals.events:,} events, {found['events_per_s']:,} a second of processor time",
        f"{totals.accepted:,} messages accepted: {totals.lost} lost, {totals.unexpected} unexpected, "
        f"{totals.stuck} stuck; {totals.duplicates:,} duplicates, each in one of the three windows",
        f"states reached: {found['states_reached']} of {len(State)}; lines of the table: "
        f"{len(totals.reached)} of {len(TABLE)}",
        f"planted bugs caught within {WITHIN} seeds: {caught} of {len(BUGS)}; {SHIPPED_BUGS} are in shipped rules",
    ]
    lines += [f"seed {seed} {text}" for seed, text in totals.failing[:MAX_SHOWN]]
    if totals.failing:
        first = totals.failing[0][0]
        lines.append(
            f"{len(totals.failing)} seeds broke a rule; python -m tests.simulation --seed {first} replays the first"
        )
    return "\n".join(lines) + "\n"


def _one_object(result: CheckedResult) -> dict[str, Any]:
    ledger = result.ledger
    return {
        "seed": result.seed,
        "events": result.events,
        "accepted": ledger.accepted,
        "delivered": ledger.delivered,
        "duplicates": ledger.duplicates,
        "lost": ledger.lost,
        "unexpected": ledger.unexpected,
        "stuck": result.stuck,
        "broken": [str(broken) for broken in result.broken],
    }


def _one_sentence(result: CheckedResult) -> str:
    if result.broken:
        return "".join(f"{broken}\n" for broken in result.broken)
    accepted = result.ledger.accepted
    return f"seed {result.seed}: {result.events:,} events, {accepted:,} messages accepted, no rule broken\n"
