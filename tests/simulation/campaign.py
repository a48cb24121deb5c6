"""Many seeds of a simulated world, and a search for each of its planted bugs.

Speed is in events per second of processor time, so that it does not depend on the machine's load.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from paired_servicebus.simulation.world import AS_SHIPPED
from tests.simulation.planted_bugs.bug import WITHIN, Bug


@dataclass(slots=True)
class Totals:
    """The results of many seeds; two can be added."""

    seeds: int = 0
    seconds: float = 0.0
    """Processor time."""
    counts: Counter[str] = field(default_factory=Counter)
    """The numbers of the runs, by name."""
    seen: set[Hashable] = field(default_factory=set)
    """What occurred in a run: lines of a table, or numbers of engines."""
    failing: list[tuple[int, str]] = field(default_factory=list)
    """Seeds that broke a rule, with the first broken rule."""

    def add(self, other: Totals) -> None:
        """Add other totals."""
        self.seeds += other.seeds
        self.seconds += other.seconds
        self.counts.update(other.counts)
        self.seen |= other.seen
        self.failing = sorted([*self.failing, *other.failing])


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedWorld:
    """A simulated world as a campaign runs it.

    Args:
        options: of the command that runs it.
        run: runs one seed; its result has the seed, the broken rules and a trace.
        bugs: its deliberate mistakes.
        counts: returns the numbers of a run by name, "events" among them.
        seen: returns what occurred in a run.
        facts: returns what the output's object has beside the counts and the bugs.
        lines: returns the sentences about the totals.
    """

    options: str
    run: Callable[..., Any]
    bugs: tuple[Bug, ...]
    counts: Callable[[Any], Mapping[str, int]]
    seen: Callable[[Any], Iterable[Hashable]]
    facts: Callable[[Totals], Mapping[str, Any]]
    lines: Callable[[Totals], Sequence[str]]


def run_seeds(world: SimulatedWorld, seeds: Iterable[int]) -> Totals:
    """Run seeds in this process, and return the totals."""
    totals, began = Totals(), time.process_time()
    for seed in seeds:
        result = world.run(seed)
        totals.seeds += 1
        totals.counts.update(world.counts(result))
        totals.seen.update(world.seen(result))
        if result.broken:
            totals.failing.append((seed, str(result.broken[0])))
    totals.seconds = time.process_time() - began
    return totals


def catch(world: SimulatedWorld, bug: Bug, *, within: int = WITHIN) -> Any:
    """Return the first run that catches a bug, its rare seed tried first; None: no seed does."""
    with bug.planted() as parts:
        run = world.run if parts is AS_SHIPPED else partial(world.run, parts=parts)
        for seed in (bug.rare, *(seed for seed in range(1, within + 1) if seed != bug.rare)):
            if (result := run(seed)).broken:
                return result
    return None
