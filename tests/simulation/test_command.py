"""What `python -m tests.simulation` says, and its exit status."""

from __future__ import annotations

import json

import pytest

from paired_servicebus.simulation.world import AS_SHIPPED, WorldParts
from tests.simulation import simulate_command
from tests.simulation.__main__ import main
from tests.simulation.checked_world import CheckedResult, run_seed
from tests.simulation.planted_bugs import BUGS, SHIPPED_BUGS

SEEDS_PER_CHUNK = BUGS[:2]


@pytest.fixture(autouse=True)
def one_process_and_few_bugs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate_command, "PROCESSES", 1)
    monkeypatch.setattr(simulate_command, "BUGS", SEEDS_PER_CHUNK)
    monkeypatch.setattr("tests.simulation.campaign.BUGS", SEEDS_PER_CHUNK)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command meets a bug instead of the rules as shipped."""

    def run(seed: int, *, parts: WorldParts = AS_SHIPPED, traced: bool = False) -> CheckedResult:
        return run_seed(seed, parts=BUGS[1].parts, traced=traced)

    monkeypatch.setattr(simulate_command, "run_seed", run)
    monkeypatch.setattr("tests.simulation.campaign.run_seed", run)


def test_the_object_says_what_was_run_and_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["seeds"], said["lost"], said["unexpected"], said["stuck"]) == (3, 0, 0, 0)
    assert said["planted_bugs"] == {"total": 2, "caught": 2, "in_shipped_rules": SHIPPED_BUGS}
    assert said["events"] > 6000
    assert said["events_per_s"] > 0
    assert 0 < said["transitions_reached"] <= said["transitions_total"] == 39
    assert said["states_reached"] == 6
    assert said["failing_seeds"] == []


def test_sentences_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1"]) == 0
    assert "0 lost, 0 unexpected, 0 stuck" in capsys.readouterr().out


def test_one_seed_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3"]) == 0
    said = capsys.readouterr()
    assert "no rule broken" in said.out
    assert said.err == ""


@pytest.mark.usefixtures("broken")
def test_a_failure_names_its_seed_and_how_to_replay_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1"]) == 1
    said = capsys.readouterr().out
    assert "seed 1 " in said
    assert "BROKEN" in said
    assert "python -m tests.simulation --seed 1 replays the first" in said


@pytest.mark.usefixtures("broken")
def test_a_failing_seed_is_replayed_with_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "1", "--json"]) == 1
    said = capsys.readouterr()
    assert "engine 0.1 starts" in said.err
    assert "BROKEN" in said.err
    assert json.loads(said.out)["broken"]


def test_no_seed_at_all_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "0"]) == 2
    assert "--seeds is 0; it must be 1 at least" in capsys.readouterr().err
