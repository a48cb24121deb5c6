"""`python -m tests.bench report`: how long `paired report` takes, and its memory, from the command to its end.

A quiet day, 2,500 episodes and 10 million events, each the report of the latest incident and of everything, in a
process of its own that writes HTML. It has one thread, so that its processor seconds are those of a free core. Targets
are for these: the clock's seconds are those of whatever else the machine does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from paired_servicebus.interpreter import python_command
from tests.bench.child_process import child_environment
from tests.bench.report_history import EPISODES, LARGE, QUIET, History, make_history

TARGETS: Final = {QUIET.name: (2.0, 1024), EPISODES.name: (5.0, 1024), LARGE.name: (15.0, 1024)}
"""Seconds and MB at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportLap:
    """One history's report: the medians of the rounds, and the most memory of one."""

    history: str
    whole: bool
    """Whether it is of everything, and not of the latest incident."""
    events: int
    cpu_seconds: float
    seconds: float
    """By the clock."""
    megabytes: float
    reached: bool


def run_bench_report(*, rounds: int, json_line: bool, only: str | None = None) -> int:
    """Measure all histories; 1 if one misses its target."""
    laps = [
        lap for history in (QUIET, EPISODES, LARGE) if only in (None, history.name) for lap in _laps(history, rounds)
    ]
    if json_line:
        sys.stdout.write(f"{msgspec.json.encode(laps).decode()}\n")
    for lap in laps if not json_line else ():
        seconds, megabytes = TARGETS[lap.history]
        what = "everything" if lap.whole else "the latest"
        sys.stdout.write(
            f"{lap.history:16} {lap.events:>12,} events  {what:12} "
            f"{lap.cpu_seconds:6.2f} s of a core, {lap.seconds:6.2f} s by the clock  "
            f"{lap.megabytes:6.0f} MB   at most {seconds:g} s and {megabytes:,} MB: "
            f"{'reached' if lap.reached else 'missed'}\n"
        )
    return 0 if all(lap.reached for lap in laps) else 1


def _laps(history: History, rounds: int) -> list[ReportLap]:
    with tempfile.TemporaryDirectory(prefix="paired-report-bench-") as place:
        folder = Path(place) / "tables"
        folder.mkdir()
        # A child's peak begins with that of the process that started it: the history is made in another one.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as maker:
            events = maker.submit(make_history, folder, history).result()
        return [_lap(history, folder, events, rounds, whole=whole) for whole in (False, True)]


def _lap(history: History, folder: Path, events: int, rounds: int, *, whole: bool) -> ReportLap:
    runs = [_run(folder, whole=whole) for _ in range(rounds)]
    seconds, megabytes = TARGETS[history.name]
    middle, most = median(cpu for cpu, _, _ in runs), max(size for _, _, size in runs)
    return ReportLap(
        history=history.name,
        whole=whole,
        events=events,
        cpu_seconds=middle,
        seconds=median(took for _, took, _ in runs),
        megabytes=most,
        reached=middle <= seconds and most <= megabytes,
    )


def _run(folder: Path, *, whole: bool) -> tuple[float, float, float]:
    """Return the seconds of a core, those of the clock, and the most resident MB of one `paired report`."""
    since = ["--since", "2025-11-01"] if whole else []
    out = str(folder.parent / "out")
    command = [*python_command("paired_servicebus"), "report", "--tables", str(folder), "--out", out,
               "--format", "html", *since]  # fmt: skip
    began = time.perf_counter()
    with subprocess.Popen(command, env=child_environment(), stdout=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - began, usage.ru_maxrss / 1024
