"""The output of `python -m tests.simulation`: sentences, or one JSON object.

Exit status 1: a rule was broken, or a planted bug was not caught.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from paired_servicebus.core.errors import ConfigurationError
from tests.simulation.campaign import Totals, catch, run_seeds
from tests.simulation.fleet.fleet_campaign import FLEET
from tests.simulation.pairing_campaign import PAIRING
from tests.simulation.planted_bugs.bug import WITHIN

WORLDS: Final = {"pairing": PAIRING, "fleet": FLEET}
PROCESSES: Final = 2
SEEDS_PER_CHUNK: Final = 20
"""Minimum number of seeds for another process."""
MAX_SHOWN: Final = 10
"""Maximum number of failing seeds in the output."""

Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


def run_simulation(name: str, *, seeds: int, seed: int | None, json_line: bool) -> int:
    """Run the seeds 1 to `seeds` of a world and all its bugs; or only `seed`, with its trace if a rule is broken.

    Raises:
        ConfigurationError: fewer than one seed.
    """
    if seed is not None:
        return _run_one(name, seed, json_line=json_line)
    if seeds < 1:
        raise ConfigurationError(f"--seeds is {seeds}; it must be 1 at least")
    processes, bugs = min(PROCESSES, os.cpu_count() or 1), len(WORLDS[name].bugs)
    totals = run_many(name, seeds, processes=processes)
    with _open_map(processes) as run:
        caught = sum(run(_is_caught, [(name, index) for index in range(bugs)]))
    found = _object(name, totals, caught)
    sys.stdout.write(json.dumps(found) + "\n" if json_line else _sentences(name, totals, found))
    return 1 if totals.failing or caught < bugs else 0


def run_many(name: str, seeds: int, *, processes: int) -> Totals:
    """Run the seeds 1 to `seeds` in chunks, and return the totals."""
    every, totals = range(1, seeds + 1), Totals()
    chunks = [(name, every[start : start + SEEDS_PER_CHUNK]) for start in range(0, seeds, SEEDS_PER_CHUNK)]
    with _open_map(processes if len(chunks) > 1 else 1) as run:
        for part in run(_run_chunk, chunks):
            totals.add(part)
    return totals


def _run_chunk(asked: tuple[str, range]) -> Totals:
    return run_seeds(WORLDS[asked[0]], asked[1])


def _is_caught(asked: tuple[str, int]) -> bool:
    world = WORLDS[asked[0]]
    return catch(world, world.bugs[asked[1]]) is not None


@contextmanager
def _open_map(processes: int) -> Iterator[Map]:
    """Yield `map` for this process or for several."""
    if processes < 2:
        yield map
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield pool.imap_unordered


def _run_one(name: str, seed: int, *, json_line: bool) -> int:
    """Run one seed; its trace goes to standard error, so that standard output has only the object."""
    result = WORLDS[name].run(seed, traced=True)
    counts, broken = WORLDS[name].counts(result), [str(one) for one in result.broken]
    if broken:
        sys.stderr.write("\n".join(result.trace) + "\n")
    said = "\n".join(broken) or f"seed {seed}: {_listed(counts)}; no rule broken"
    sys.stdout.write((json.dumps({"seed": seed, **counts, "broken": broken}) if json_line else said) + "\n")
    return 1 if broken else 0


def _listed(counts: Any) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items())


def _object(name: str, totals: Totals, caught: int) -> dict[str, Any]:
    world, seconds = WORLDS[name], totals.seconds
    return {
        "seeds": totals.seeds,
        "seeds_per_s": round(totals.seeds / seconds, 1) if seconds else 0,
        "events_per_s": round(totals.counts["events"] / seconds) if seconds else 0,
        **totals.counts,
        "failing_seeds": [seed for seed, _ in totals.failing[:MAX_SHOWN]],
        "planted_bugs": {"total": len(world.bugs), "caught": caught},
        **world.facts(totals),
    }


def _sentences(name: str, totals: Totals, found: dict[str, Any]) -> str:
    bugs, options = found["planted_bugs"], WORLDS[name].options
    lines = [
        f"{totals.seeds:,} seeds, {totals.counts['events']:,} events",
        f"a second of processor time has {found['seeds_per_s']} seeds with {found['events_per_s']:,} events",
        *WORLDS[name].lines(totals),
        f"planted bugs caught within {WITHIN} seeds: {bugs['caught']} of {bugs['total']}",
    ]
    lines += [f"seed {seed} {text}" for seed, text in totals.failing[:MAX_SHOWN]]
    if totals.failing:
        first = totals.failing[0][0]
        lines.append(
            f"{len(totals.failing)} seeds broke a rule; python -m tests.simulation {options}--seed {first} replays "
            "the first"
        )
    return "\n".join(lines) + "\n"
