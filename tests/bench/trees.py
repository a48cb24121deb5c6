"""Run one bench of two installed trees in turn, and compare their figures: `python -m tests.bench trees`.

The trees share a machine and its noise, so they take turns: old, new, new, old in each round. The ratio of a round is
new to old. The A/A band is the range of the ratios of the two old runs of each round, in both directions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import sqrt
from pathlib import Path
from statistics import median
from typing import Final, Literal

from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.bench.rounds import Band
from tests.bench.figures import flatten

BenchName = Literal["send", "syphon", "added", "failover"]
INSTALLED: Final[frozenset[BenchName]] = frozenset({"send", "syphon"})
"""Benches that `paired bench` has; the others are in the tests of a clone."""
Found = Mapping[str, float]
Turn = Literal["old", "new"]
Verdict = Literal["inside", "better", "worse"]
TURNS: Final[tuple[Turn, ...]] = ("old", "new", "new", "old")
RATE: Final = ("per_second", "cpu_us")
COMPARED: Final[Mapping[BenchName, tuple[str, ...]]] = {
    "send": (
        *(f"{way}.{one}" for way in ("paired", "plain", "paired_callers", "plain_callers") for one in RATE),
        *("ratio_vs_sdk", "ratio_callers"),
    ),
    "syphon": (*(f"{way}.{one}" for way in ("ours", "mixed", "raw") for one in RATE), "ratio_vs_raw", "ratio_mixed"),
    "added": ("added_us",),
    "failover": ("p50_ms", "p99_ms", "back_p50_ms", "back_p99_ms"),
}
"""Figures of each bench. `plain` and `raw` are controls: no tree should change them, except by its sandbox."""
LESS_IS_BETTER: Final = ("_us", "_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One figure in the four runs of a round."""

    old: tuple[float, float]
    new: tuple[float, float]

    @property
    def ratio(self) -> float:
        """Return new to old; a steady drift of the machine cancels out."""
        return sqrt(self.new[0] * self.new[1] / (self.old[0] * self.old[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One figure of both trees: medians of all runs, and the median, lowest and highest ratio of the rounds."""

    name: str
    old: float
    new: float
    ratio: float
    low: float
    high: float
    band: Band
    verdict: Verdict

    @classmethod
    def of(cls, name: str, rounds: Sequence[Round]) -> Comparison:
        """Compare the values of one or more rounds."""
        ratios = [one.ratio for one in rounds]
        equals = [one.old[0] / one.old[1] for one in rounds]
        equals += [1 / one for one in equals]
        band = Band(low=round(min(equals), 3), high=round(max(equals), 3))
        found = round(median(ratios), 3)
        return cls(
            name=name,
            old=median(value for one in rounds for value in one.old),
            new=median(value for one in rounds for value in one.new),
            ratio=found,
            low=round(min(ratios), 3),
            high=round(max(ratios), 3),
            band=band,
            verdict=_judge(name, found, band),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFigures:
    """All comparisons. load: the machine's load average before each run; runs: the figures of each run, in order."""

    bench: str
    arguments: tuple[str, ...]
    rounds: int
    load: tuple[float, ...]
    compared: tuple[Comparison, ...]
    runs: tuple[tuple[Turn, Found], ...] = field(repr=False)


def compare_runs(bench: BenchName, arguments: Sequence[str], runs: Sequence[tuple[Turn, Found]]) -> TreeFigures:
    """Compare whole rounds of runs. Leave out figures that a run does not have."""
    rounds = [[found for _, found in runs[at : at + len(TURNS)]] for at in range(0, len(runs), len(TURNS))]
    names = [name for name in COMPARED[bench] if all(name in found for _, found in runs)]
    compared = [
        Comparison.of(name, [Round(old=(a[name], d[name]), new=(b[name], c[name])) for a, b, c, d in rounds])
        for name in names
    ]
    return TreeFigures(
        bench=bench,
        arguments=tuple(arguments),
        rounds=len(rounds),
        load=tuple(found["load"] for _, found in runs),
        compared=tuple(compared),
        runs=tuple(runs),
    )


def find_command(python: Path, bench: BenchName) -> list[str]:
    """Return the start of the command that runs a bench of a tree. Raises BenchError."""
    if bench not in INSTALLED:
        if not Path(_clone_of(python), "tests/bench/__main__.py").exists():
            raise BenchError(f"no tests/bench above {python}; {bench} needs a clone with its environment in .venv")
        return [str(python.absolute()), "-m", "tests.bench", bench]
    command = python.absolute().with_name("paired")
    if not command.exists():
        raise BenchError(f"no command paired beside {python}; install the tree into that environment")
    return [str(command), "bench", bench]


def _clone_of(python: Path) -> Path:
    """Return the folder that holds `.venv/bin/python`."""
    return python.absolute().parents[2]


def run_bench(python: Path, bench: BenchName, arguments: Sequence[str]) -> Found:
    """Run one bench of the tree that `python` has installed. Raises BenchError."""
    command = [*find_command(python, bench), *arguments, "--json"]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="paired-trees-") as folder:
        where = folder if bench in INSTALLED else _clone_of(python)
        done = subprocess.run(command, cwd=where, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{command[0]} failed with status {done.returncode}: {done.stderr.strip()}")
    return {**flatten(json.loads(done.stdout.splitlines()[-1])), "load": round(load, 2)}


def measure_trees(
    trees: Mapping[Turn, Path],
    bench: BenchName,
    arguments: Sequence[str],
    rounds: int,
    run: Callable[[Path, BenchName, Sequence[str]], Found] = run_bench,
) -> TreeFigures:
    """Run the bench of both trees in turn. Raises BenchError."""
    if rounds < 1:
        raise BenchError(f"--rounds is {rounds}; it must be 1 at least")
    runs: list[tuple[Turn, Found]] = []
    for turn in TURNS * rounds:
        runs.append((turn, run(trees[turn], bench, arguments)))
        sys.stderr.write(f"\r{len(runs)} of {rounds * len(TURNS)} runs")
    sys.stderr.write("\n")
    return compare_runs(bench, arguments, runs)


def trees_table(figures: TreeFigures) -> str:
    """Return the table of the comparison."""
    title = (
        f"{' '.join([figures.bench, *figures.arguments])}: old, new, new, old in {figures.rounds} rounds; "
        f"load {min(figures.load):g} to {max(figures.load):g}"
    )
    head = f"{'':26} {'old':>10} {'new':>10} {'new / old':>9}  {'of the rounds':14} {'old / old':14}"
    rows = [
        f"{one.name:26} {one.old:>10,.2f} {one.new:>10,.2f} {one.ratio:>9.3f}  {_between(one.low, one.high):14} "
        f"{_between(one.band.low, one.band.high):14} {one.verdict}"
        for one in figures.compared
    ]
    return "\n".join([title, head, *rows]) + "\n"


def run_bench_trees(
    trees: Mapping[Turn, Path], bench: BenchName, arguments: Sequence[str], *, rounds: int, json_line: bool
) -> int:
    """Compare two trees and write the figures; the exit status is 0 even if one is slower. Raises BenchError."""
    figures = measure_trees(trees, bench, arguments, rounds)
    sys.stdout.write(json.dumps(asdict(figures)) + "\n" if json_line else trees_table(figures))
    return 0


def _judge(name: str, ratio: float, band: Band) -> Verdict:
    if band.low <= ratio <= band.high:
        return "inside"
    return "better" if (ratio < 1) == name.endswith(LESS_IS_BETTER) else "worse"


def _between(low: float, high: float) -> str:
    return f"{low:.2f} to {high:.2f}"
