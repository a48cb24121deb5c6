"""The arithmetic of the comparison of two trees, its turns, and what it reads of a bench. No speed is judged here."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from paired_servicebus.bench.bench_plans import BenchError
from tests.bench import trees
from tests.bench.__main__ import main

OLD, NEW = Path("old"), Path("new")


def compared(rates: Sequence[float], name: str = "paired.per_second") -> trees.Comparison:
    runs = [(turn, {name: rate, "load": 1.0}) for turn, rate in zip(trees.TURNS * 9, rates, strict=False)]
    (found,) = trees.compare_runs("added" if name == "added_us" else "send", (), runs).compared
    return found


def test_a_ratio_is_the_median_of_rounds_and_a_drift_cancels_out() -> None:
    found = compared([100, 200, 400, 800, 10, 30, 30, 10, 10, 20, 20, 10])
    assert (found.low, found.ratio, found.high) == (1, 2, 3)
    assert (found.old, found.new) == (10, 30)


def test_the_band_is_old_against_old_in_both_directions() -> None:
    found = compared([100, 100, 100, 80, 100, 100, 100, 100])
    assert (found.band.low, found.band.high) == (0.8, 1.25)


@pytest.mark.parametrize(
    ("name", "new", "verdict"),
    [
        ("paired.per_second", 100, "inside"),
        ("paired.per_second", 50, "worse"),
        ("paired.per_second", 200, "better"),
        ("paired.cpu_us", 50, "better"),
        ("paired.cpu_us", 200, "worse"),
        ("ratio_vs_sdk", 50, "worse"),
        ("added_us", 200, "worse"),
    ],
)
def test_a_rate_should_be_high_and_a_time_low(name: str, new: float, verdict: str) -> None:
    assert compared([100, new, new, 90], name).verdict == verdict


def test_trees_take_turns_and_neither_always_goes_first() -> None:
    asked: list[Path] = []

    def run(python: Path, bench: str, arguments: Sequence[str]) -> trees.Found:
        asked.append(python)
        return {"p99_ms": 5.0, "load": 0.5}

    figures = trees.measure_trees({"old": OLD, "new": NEW}, "failover", ["--messages", "2"], 2, run)
    assert asked == [OLD, NEW, NEW, OLD] * 2
    assert [one.name for one in figures.compared] == ["p99_ms"]
    table = trees.trees_table(figures)
    assert "failover --messages 2" in table
    assert "load 0.5 to 0.5" in table


def test_a_nested_figure_is_named_by_its_way_and_the_rest_is_left_out() -> None:
    line = {"bench": "send", "paired": {"cpu_us": 2.5}, "peer": None, "over_ms": [1.0], "reached": True, "rounds": 3}
    assert trees.flatten(line) == {"paired.cpu_us": 2.5, "rounds": 3}


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Return an interpreter of an environment whose command `paired` reports how it was called."""
    line = '{"bench": "send", "paired": {"per_second": 10.0}}'
    command = tmp_path / "paired"
    command.write_text(
        f"#!{sys.executable}\nimport sys\nprint('warming up')\n"
        "if sys.argv[1:] != ['bench', 'send', '--size', '1', '--json']:\n    sys.exit('no such option')\n"
        f"print('{line}')\n"
    )
    command.chmod(0o755)
    return tmp_path / "python"


def test_both_trees_are_run_by_their_command(python: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--old", str(python), "--new", str(python), "--bench", "send", "--rounds", "1", "--json"]
    assert main(["trees", *asked, "--", "--size", "1"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["compared"]
    assert (found["name"], found["ratio"], found["verdict"]) == ("paired.per_second", 1, "inside")


def test_a_bench_that_fails_is_reported_in_its_words(python: Path) -> None:
    with pytest.raises(BenchError, match="status 1: no such option"):
        trees.run_bench(python, "send", ["--sise", "1"])


def test_a_tree_that_is_not_installed_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="no command paired beside"):
        trees.find_command(tmp_path / "python", "send")
    with pytest.raises(BenchError, match="no tests/bench above"):
        trees.find_command(tmp_path / ".venv/bin/python", "failover")


def test_no_rounds_cannot_be_compared() -> None:
    with pytest.raises(BenchError, match="--rounds is 0"):
        trees.measure_trees({"old": OLD, "new": NEW}, "send", [], 0)
