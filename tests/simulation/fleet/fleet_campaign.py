"""Many seeds of the fleet on several processors, and a search for each of its planted bugs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.campaign import count_seeds, first_broken, open_map, sum_seeds
from tests.simulation.fleet.fleet_bugs import FLEET_BUGS, WITHIN, FleetBug
from tests.simulation.fleet.fleet_world import FleetRunResult, run_fleet_seed

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
    return count_seeds(FleetTotals(), run_fleet_seed, seeds)


def run_many_fleets(seeds: int, *, processes: int) -> FleetTotals:
    """Run the seeds 1 to `seeds`."""
    return sum_seeds(FleetTotals(), run_fleet_seeds, seeds, per_chunk=SEEDS_PER_CHUNK, processes=processes)


def catch_fleet_bug(bug: FleetBug, *, within: int = WITHIN) -> FleetRunResult | None:
    """Return the first run that catches a bug; None: no seed does."""
    with bug.planted():
        return first_broken(run_fleet_seed, rare=bug.rare, within=within)


def catch_all_fleet_bugs(*, processes: int) -> list[bool]:
    """Return for each of FLEET_BUGS whether it is caught."""
    with open_map(processes) as run:
        return list(run(_is_caught, range(len(FLEET_BUGS))))


def _is_caught(index: int) -> bool:
    return catch_fleet_bug(FLEET_BUGS[index]) is not None
