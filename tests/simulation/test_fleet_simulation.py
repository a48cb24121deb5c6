"""The fleet in the World: no seed breaks a rule, and each planted bug is caught."""

from __future__ import annotations

import pytest

from tests.simulation.campaign import catch, run_seeds
from tests.simulation.fleet.fleet_bugs import FLEET_BUGS
from tests.simulation.fleet.fleet_campaign import FLEET
from tests.simulation.fleet.fleet_world import run_fleet_seed
from tests.simulation.planted_bugs.bug import WITHIN, Bug

FEW = 10
"""Seeds that every change runs; .ci/run adds the others."""
CHUNKS = [
    pytest.param(range(start, start + 5), marks=[pytest.mark.slow] if start > FEW else [], id=f"{start}-{start + 4}")
    for start in range(1, 201, 5)
]


@pytest.mark.parametrize("seeds", CHUNKS)
def test_no_seed_breaks_a_rule(seeds: range) -> None:
    totals = run_seeds(FLEET, seeds)
    assert totals.failing == []
    assert totals.counts["acts"] > 10 * totals.seeds
    assert totals.counts["orders"] > 3 * totals.seeds


def test_there_are_bugs_enough_and_each_is_another() -> None:
    assert len(FLEET_BUGS) >= 30
    assert len({bug.what for bug in FLEET_BUGS}) == len(FLEET_BUGS)
    assert len({repr(bug.patches) for bug in FLEET_BUGS}) == len(FLEET_BUGS)
    assert all(patch.is_shipped for bug in FLEET_BUGS for patch in bug.patches)


@pytest.mark.slow
@pytest.mark.parametrize("bug", FLEET_BUGS, ids=lambda bug: bug.what)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    assert catch(FLEET, bug) is not None, f"not caught within {WITHIN} seeds"


def test_a_seed_replays_exactly_with_its_story() -> None:
    first = run_fleet_seed(3, traced=True)
    assert first == run_fleet_seed(3, traced=True)
    assert "starts" in first.trace[0]
