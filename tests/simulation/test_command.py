"""What `python -m tests.simulation` says of both simulated worlds, and its exit status."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.simulation import simulate_command
from tests.simulation.__main__ import main
from tests.simulation.fleet.fleet_bugs import FLEET_BUGS
from tests.simulation.planted_bugs import BUGS, SHIPPED_BUGS
from tests.simulation.planted_bugs.bug import Bug
from tests.simulation.simulate_command import WORLDS

ONE = "messages for a missing destination wait for ever", "engine 0.1 starts", "BROKEN stuck"
FLEET = "a silent engine has done it", "App-0.1 starts", 'BROKEN "done" means done'
EACH_WORLD = pytest.mark.parametrize(
    ("options", "bugs", "failure"), [([], BUGS, ONE), (["--fleet"], FLEET_BUGS, FLEET)], ids=["pairing", "fleet"]
)
"""The command's options, the world's bugs, and one that its first seed meets, the begin and a line of its story."""


@pytest.fixture(autouse=True)
def one_process_and_few_bugs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate_command, "PROCESSES", 1)
    keep(monkeypatch, pairing=BUGS[:2], fleet=(FLEET_BUGS[0], FLEET_BUGS[2]))


def keep(monkeypatch: pytest.MonkeyPatch, **bugs: tuple[Bug, ...]) -> None:
    """Leave these planted bugs alone."""
    for name, few in bugs.items():
        monkeypatch.setitem(WORLDS, name, replace(WORLDS[name], bugs=few))


def test_the_object_says_what_was_run_and_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["seeds"], said["lost"], said["unexpected"], said["stuck"]) == (3, 0, 0, 0)
    assert (said["planted_bugs"], said["in_shipped_rules"]) == ({"total": 2, "caught": 2}, SHIPPED_BUGS)
    assert said["events"] > 6000
    assert said["events_per_s"] > 0
    assert 0 < said["transitions_reached"] <= said["transitions_total"] == 39
    assert said["states_reached"] == 6
    assert said["failing_seeds"] == []


@pytest.mark.slow
def test_the_object_of_a_fleet(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--fleet", "--seeds", "2", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["seeds"], said["failing_seeds"]) == (2, [])
    assert said["planted_bugs"] == {"total": 2, "caught": 2}
    assert said["most_engines"] >= 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--seeds", "1"], "0 lost, 0 unexpected, 0 stuck"),
        (["--seed", "3"], "no rule broken"),
        pytest.param(["--fleet", "--seeds", "1"], "rules broken by 0 seeds", marks=pytest.mark.slow),
    ],
)
def test_sentences_for_people(options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(options) == 0
    said = capsys.readouterr()
    assert (sentence in said.out, said.err) == (True, "")


@EACH_WORLD
def test_a_failing_seed_is_named_and_replayed_with_its_story(
    options: list[str], bugs: Sequence[Bug], failure: tuple[str, str, str],
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    keep(monkeypatch, pairing=(), fleet=())
    what, begin, line = failure
    with next(bug for bug in bugs if bug.what == what).planted():
        assert main([*options, "--seeds", "1"]) == 1
        totals = capsys.readouterr().out
        assert "seed 1 " in totals
        assert f"python -m tests.simulation {' '.join([*options, '--seed 1'])} replays the first" in totals
        assert main([*options, "--seed", "1"]) == 1
        said = capsys.readouterr()
        assert begin in said.err
        assert "BROKEN" in said.err
        assert line in said.out
        assert main([*options, "--seed", "1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["broken"]


@pytest.mark.parametrize("options", [[], ["--fleet"]])
def test_no_seed_at_all_is_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*options, "--seeds", "0"]) == 2
    assert "--seeds is 0; it must be 1 at least" in capsys.readouterr().err
