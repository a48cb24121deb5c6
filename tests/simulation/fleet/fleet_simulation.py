"""The output of `python -m tests.simulation --fleet`: sentences, or one JSON object.

Exit status 1: a rule was broken, or a planted bug was not caught.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Final

from paired_servicebus.core.errors import ConfigurationError
from tests.simulation.campaign import MAX_SHOWN
from tests.simulation.fleet.fleet_bugs import FLEET_BUGS, WITHIN
from tests.simulation.fleet.fleet_campaign import FleetTotals, catch_all_fleet_bugs, run_many_fleets
from tests.simulation.fleet.fleet_world import run_fleet_seed

PROCESSES: Final = 2


def run_fleet_simulation(*, seeds: int, seed: int | None, json_line: bool) -> int:
    """Run the seeds 1 to `seeds` and all planted bugs; or only `seed`, with its trace if a rule is broken.

    Raises:
        ConfigurationError: fewer than one seed.
    """
    if seed is not None:
        return _run_one(seed, json_line=json_line)
    if seeds < 1:
        raise ConfigurationError(f"--seeds is {seeds}; it must be 1 at least")
    processes = min(PROCESSES, os.cpu_count() or 1)
    totals = run_many_fleets(seeds, processes=processes)
    caught = sum(catch_all_fleet_bugs(processes=processes))
    sys.stdout.write(json.dumps(_object(totals, caught)) + "\n" if json_line else _sentences(totals, caught))
    return 1 if totals.failing or caught < len(FLEET_BUGS) else 0


def _run_one(seed: int, *, json_line: bool) -> int:
    """Run one seed; its trace goes to standard error, so that standard output has only the object."""
    result = run_fleet_seed(seed, traced=True)
    broken = [str(one) for one in result.broken]
    if broken:
        sys.stderr.write("\n".join(result.trace) + "\n")
    found = {"seed": seed, "events": result.events, "engines": result.engines, "orders": result.orders}
    said = f"seed {seed}: {result.engines} engines, {result.orders} orders, {result.acts} acts, no rule broken"
    if json_line:
        said = json.dumps({**found, "acts": result.acts, "broken": broken})
    elif broken:
        said = "\n".join(broken)
    sys.stdout.write(f"{said}\n")
    return 1 if broken else 0


def _object(totals: FleetTotals, caught: int) -> dict[str, Any]:
    return {
        "seeds": totals.seeds,
        "seeds_per_s": round(totals.seeds / totals.seconds, 1) if totals.seconds else 0,
        "events": totals.events,
        "events_per_s": round(totals.events / totals.seconds) if totals.seconds else 0,
        "engines": totals.engines,
        "most_engines": totals.most_engines,
        "orders": totals.orders,
        "acts": totals.acts,
        "answers": totals.answers,
        "operations": totals.operations,
        "failing_seeds": [seed for seed, _ in totals.failing[:MAX_SHOWN]],
        "planted_bugs": {"total": len(FLEET_BUGS), "caught": caught},
    }


def _sentences(totals: FleetTotals, caught: int) -> str:
    found = _object(totals, caught)
    lines = [
        f"{totals.seeds:,} seeds, {totals.events:,} events",
        f"a second of processor time has {found['seeds_per_s']} seeds with {found['events_per_s']:,} events",
        f"{totals.engines:,} engines, at most {totals.most_engines} together; {totals.orders:,} orders, "
        f"{totals.acts:,} acts, {totals.answers:,} answers; rules broken by {len(totals.failing)} seeds",
        f"planted bugs caught within {WITHIN} seeds: {caught} of {len(FLEET_BUGS)}",
    ]
    lines += [f"seed {seed} {text}" for seed, text in totals.failing[:MAX_SHOWN]]
    if totals.failing:
        first = totals.failing[0][0]
        lines.append(f"python -m tests.simulation --fleet --seed {first} replays the first")
    return "\n".join(lines) + "\n"
