"""Many seeds on several processors, and a search for every planted bug.

Speed is in events per second of processor time, so that it does not depend on the machine's load.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, Self, TypeVar

from tests.simulation.checked_world import CheckedResult, run_seed
from tests.simulation.planted_bugs import BUGS, WITHIN
from tests.simulation.planted_bugs.bug import Bug

SEEDS_PER_CHUNK: Final = 40
"""Minimum number of seeds for another process."""
MAX_SHOWN: Final = 10
"""Maximum number of failing seeds in the output."""

NUMBERS: Final = ("seeds", "events", "seconds", "accepted", "delivered", "duplicates", "lost", "unexpected", "stuck")

Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
T = TypeVar("T", bound="Summed")
B = TypeVar("B", bound="Result")


@dataclass(slots=True)
class Totals:
    """The results of many seeds; two can be added."""

    seeds: int = 0
    events: int = 0
    seconds: float = 0.0
    accepted: int = 0
    delivered: int = 0
    duplicates: int = 0
    lost: int = 0
    unexpected: int = 0
    stuck: int = 0
    failing: list[tuple[int, str]] = field(default_factory=list)
    """Seeds that broke a rule, with the first broken rule."""
    reached: set[tuple[str, str]] = field(default_factory=set)

    def count(self, result: CheckedResult) -> None:
        ledger = result.ledger
        self.seeds += 1
        self.events += result.events
        self.accepted += ledger.accepted
        self.delivered += ledger.delivered
        self.duplicates += ledger.duplicates
        self.lost += ledger.lost
        self.unexpected += ledger.unexpected
        self.stuck += result.stuck
        self.reached |= result.reached
        if result.broken:
            self.failing.append((result.seed, str(result.broken[0])))

    def add(self, other: Totals) -> None:
        for name in NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failing += other.failing
        self.reached |= other.reached


class Summed(Protocol):
    """Totals as a campaign uses them."""

    seconds: float
    failing: list[tuple[int, str]]

    def count(self, result: Any) -> None: ...
    def add(self, other: Self) -> None: ...


class Result(Protocol):
    """A run as a campaign uses it."""

    @property
    def broken(self) -> Sequence[object]: ...


def count_seeds(totals: T, run: Callable[[int], object], seeds: Sequence[int]) -> T:
    """Run seeds in this process, and return the totals."""
    began = time.process_time()
    for seed in seeds:
        totals.count(run(seed))
    totals.seconds = time.process_time() - began
    return totals


def sum_seeds(totals: T, run: Callable[[Sequence[int]], T], seeds: int, *, per_chunk: int, processes: int) -> T:
    """Run the seeds 1 to `seeds` in chunks, and return the totals; the failing seeds are sorted."""
    every = range(1, seeds + 1)
    chunks = [every[start : start + per_chunk] for start in range(0, seeds, per_chunk)]
    with open_map(processes if seeds > per_chunk else 1) as run_all:
        for part in run_all(run, chunks):
            totals.add(part)
    totals.failing.sort()
    return totals


def first_broken(run: Callable[[int], B], *, rare: int, within: int) -> B | None:
    """Return the first run that breaks a rule, the seed `rare` tried first; None: no seed does."""
    for seed in (rare, *(seed for seed in range(1, within + 1) if seed != rare)):
        result = run(seed)
        if result.broken:
            return result
    return None


def run_seeds(seeds: Sequence[int]) -> Totals:
    return count_seeds(Totals(), run_seed, seeds)


def run_many(seeds: int, *, processes: int) -> Totals:
    return sum_seeds(Totals(), run_seeds, seeds, per_chunk=SEEDS_PER_CHUNK, processes=processes)


def catch(bug: Bug, *, within: int = WITHIN) -> CheckedResult | None:
    """Return the first run that catches a bug; None: no seed does."""
    with bug.planted() as parts:
        return first_broken(partial(run_seed, parts=parts), rare=bug.rare, within=within)


def catch_all(*, processes: int) -> list[bool]:
    """Return for each of BUGS whether it is caught."""
    with open_map(processes) as run:
        return list(run(_is_caught, range(len(BUGS))))


def _is_caught(index: int) -> bool:
    return catch(BUGS[index]) is not None


@contextmanager
def open_map(processes: int) -> Iterator[Map]:
    """Yield `map` for this process or for several."""
    if processes < 2:
        yield map
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield pool.imap_unordered
