"""The fleet in the World: no seed breaks a rule, each planted bug is caught, and the command says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.simulation.__main__ import main
from tests.simulation.fleet import fleet_campaign, fleet_simulation
from tests.simulation.fleet.fleet_bugs import FLEET_BUGS, WITHIN, FleetBug
from tests.simulation.fleet.fleet_campaign import catch_fleet_bug, run_fleet_seeds
from tests.simulation.fleet.fleet_world import run_fleet_seed

FEW = 10
"""Seeds that every change runs; .ci/run adds the others."""
CHEAP = (FLEET_BUGS[0], FLEET_BUGS[2])
CHUNKS = [
    pytest.param(range(start, start + 5), marks=[pytest.mark.slow] if start > FEW else [], id=f"{start}-{start + 4}")
    for start in range(1, 201, 5)
]


@pytest.mark.parametrize("seeds", CHUNKS)
def test_no_seed_breaks_a_rule(seeds: range) -> None:
    totals = run_fleet_seeds(seeds)
    assert totals.failing == []
    assert totals.acts > 10 * totals.seeds
    assert totals.orders > 3 * totals.seeds


def test_there_are_bugs_enough_and_each_is_another() -> None:
    assert len(FLEET_BUGS) >= 30
    assert len({bug.what for bug in FLEET_BUGS}) == len(FLEET_BUGS)
    assert len({repr(bug.patches) for bug in FLEET_BUGS}) == len(FLEET_BUGS)
    assert all(patch.is_shipped for bug in FLEET_BUGS for patch in bug.patches)


@pytest.mark.slow
@pytest.mark.parametrize("bug", FLEET_BUGS, ids=lambda bug: bug.what)
def test_a_planted_bug_is_caught(bug: FleetBug) -> None:
    assert catch_fleet_bug(bug) is not None, f"not caught within {WITHIN} seeds"


def test_a_seed_replays_exactly_with_its_story() -> None:
    first = run_fleet_seed(3, traced=True)
    assert first == run_fleet_seed(3, traced=True)
    assert "starts" in first.trace[0]


@pytest.mark.slow
def test_a_seed_is_the_same_in_another_process_whatever_its_hashes() -> None:
    program = "from tests.simulation.fleet.fleet_world import run_fleet_seed as run; print(run(3, traced=True))"
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def one_process_and_few_bugs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_simulation, "PROCESSES", 1)
    monkeypatch.setattr(fleet_simulation, "FLEET_BUGS", CHEAP)
    monkeypatch.setattr(fleet_campaign, "FLEET_BUGS", CHEAP)


@pytest.mark.slow
def test_the_object_says_what_was_run_and_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--fleet", "--seeds", "2", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["seeds"], said["failing_seeds"]) == (2, [])
    assert said["planted_bugs"] == {"total": 2, "caught": 2}
    assert said["most_engines"] >= 3


@pytest.mark.slow
def test_sentences_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--fleet", "--seeds", "1"]) == 0
    assert "rules broken by 0 seeds" in capsys.readouterr().out


def test_a_failing_seed_is_replayed_with_its_story(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_simulation, "FLEET_BUGS", ())
    monkeypatch.setattr(fleet_campaign, "FLEET_BUGS", ())
    bug = next(bug for bug in FLEET_BUGS if bug.what == "a silent engine has done it")
    with bug.planted():
        assert main(["--fleet", "--seeds", "1"]) == 1
        assert "python -m tests.simulation --fleet --seed 1 replays the first" in capsys.readouterr().out
        assert main(["--fleet", "--seed", "1"]) == 1
    said = capsys.readouterr()
    assert "App-0.1 starts" in said.err
    assert "BROKEN" in said.err
    assert 'BROKEN "done" means done' in said.out


def test_no_seed_at_all_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--fleet", "--seeds", "0"]) == 2
    assert "--seeds is 0; it must be 1 at least" in capsys.readouterr().err
