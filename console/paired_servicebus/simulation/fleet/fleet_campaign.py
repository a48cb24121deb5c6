"""Many seeds of the fleet on several processors, and a search for each of its planted bugs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from paired_servicebus.simulation.campaign import open_map
from paired_servicebus.simulation.fleet.fleet_bugs import FLEET_BUGS, WITHIN, FleetBug
from paired_servicebus.simulation.fleet.fleet_world import FleetRunResult, run_fleet_seed

SEEDS_PER_CHUNK: Final = 20
NUMBERS: Final = ("seeds", "events", "seconds", "engines", "orders", "acts", "answers", "operations")


@dataclass(slots=True)
class FleetTotals:
    """The results of many seeds; two can be added."""

    seeds: int = 0
    events: int = 0
    seconds: float = 0.0
    """Processor time."""
    engines: int = 0
    orders: int = 0
    acts: int = 0
    answers: int = 0
    operations: int = 0
    most_engines: int = 0
    failing: list[tuple[int, str]] = field(default_factory=list)
    """Seeds that broke a rule, with the first broken rule."""

    def count(self, result: FleetRunResult) -> None:
        """Add one run."""
        self.seeds += 1
        for name in ("events", "engines", "orders", "acts", "answers", "operations"):
            setattr(self, name, getattr(self, name) + getattr(result, name))
        self.most_engines = max(self.most_engines, result.engines)
        if result.broken:
            self.failing.append((result.seed, str(result.broken[0])))

    def add(self, other: FleetTotals) -> None:
        """Add other totals."""
        for name in NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.most_engines = max(self.most_engines, other.most_engines)
        self.failing += other.failing


def run_fleet_seeds(seeds: Sequence[int]) -> FleetTotals:
    """Run seeds in this process."""
    totals, began = FleetTotals(), time.process_time()
    for seed in seeds:
        totals.count(run_fleet_seed(seed))
    totals.seconds = time.process_time() - began
    return totals


def run_many_fleets(seeds: int, *, processes: int) -> FleetTotals:
    """Run the seeds 1 to `seeds`."""
    every = range(1, seeds + 1)
    chunks = [every[start : start + SEEDS_PER_CHUNK] for start in range(0, seeds, SEEDS_PER_CHUNK)]
    totals = FleetTotals()
    with open_map(processes if seeds > SEEDS_PER_CHUNK else 1) as run:
        for part in run(run_fleet_seeds, chunks):
            totals.add(part)
    totals.failing.sort()
    return totals


def catch_fleet_bug(bug: FleetBug, *, within: int = WITHIN) -> FleetRunResult | None:
    """Return the first run that catches a bug; None: no seed does."""
    with bug.planted():
        for seed in sorted(range(1, within + 1), key=bug.rare.__ne__):
            result = run_fleet_seed(seed)
            if result.broken:
                return result
    return None


def catch_all_fleet_bugs(*, processes: int) -> list[bool]:
    """Return for each of FLEET_BUGS whether it is caught."""
    with open_map(processes) as run:
        return list(run(_is_caught, range(len(FLEET_BUGS))))


def _is_caught(index: int) -> bool:
    return catch_fleet_bug(FLEET_BUGS[index]) is not None
