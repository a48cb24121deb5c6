"""The command of the stage: its table, its mistakes, and short runs that leave nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.stage.director import running_processes
from tests.stage.table import PLAYS, chosen_plays

ROOT = Path(__file__).parents[2]


def command(*arguments: str, folder: Path, seconds: float = 400.0) -> subprocess.CompletedProcess[str]:
    short = Path("/tmp") if len(os.fsencode(folder)) > 60 else folder
    return subprocess.run(
        [sys.executable, "-m", "tests.stage", *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(short)},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def test_the_table_shows_actors_faults_and_promises_of_each_play(tmp_path: Path) -> None:
    listed = command("--list", folder=tmp_path)
    assert listed.returncode == 0
    for name, play in PLAYS.items():
        assert f"{name} (" in listed.stdout
        assert all(play.promises)
        for promise in play.promises:
            assert promise in listed.stdout


def test_a_first_word_names_all_its_plays_and_an_unknown_play_is_named() -> None:
    assert chosen_plays(["chaos"]) == ["chaos"]
    assert chosen_plays(["fleet"]) == [name for name in PLAYS if name.startswith("fleet-")]
    with pytest.raises(KeyError, match="there is no play 'chaso'"):
        chosen_plays(["chaso"])


@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.parametrize(("play", "seed"), [("chaos", 0), ("gateway-chaos", 3)])
def test_a_short_run_is_as_promised_and_leaves_nothing_behind(play: str, seed: int, tmp_path: Path) -> None:
    """Seed 0 of chaos begins with an order to force an entity, and kills engine and sender while both ping."""
    done = command(play, "--seed", str(seed), "--minutes", "0.01", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (result["balance"]["lost"], result["balance"]["unexpected"], result["problems"]) == (0, 0, [])
    assert result["episodes"] == 1
    assert result["balance"]["accepted"] > 50
    folder = Path(done.stderr.splitlines()[0].split()[-1])
    assert not folder.exists()
    assert running_processes(folder) == []


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_the_engine_counts_refused_calls_as_the_application_does_and_shows_them_everywhere(tmp_path: Path) -> None:
    """Nothing about a failover is silent: refused calls are counted, and shown."""
    done = command("refused", "--seed", "7", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    figures = json.loads(done.stdout.splitlines()[-1])["figures"]
    assert sum(figures["refused"].values()) > 0
    assert sum(figures["reasons"].values()) == sum(figures["refused"].values())


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_a_killed_drill_leaves_nothing_after_clean_and_touches_nothing_real(tmp_path: Path) -> None:
    done = command("drill-kills", "--seed", "7", "--minutes", "0.3", folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
