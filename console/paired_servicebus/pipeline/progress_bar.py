"""How far a process with Spark is, on standard error: a bar, or a line from time to time where that is no terminal."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pipeline import spark_processes
from paired_servicebus.pipeline.spark_processes import NOTE, PROGRESS

POLL_SECONDS: Final = 0.25
"""Seconds between two looks into a log."""
RATE_SECONDS: Final = 10.0
"""Seconds over which a rate is taken."""
FIRST_LINE: Final = 3.0
"""Seconds until the first line without a terminal: shorter work needs none."""
LINE_EVERY: Final = 10.0
"""Seconds between two lines without a terminal."""
MAX_READ_BYTES: Final = 1024 * 1024
"""Bytes of a log that are looked into at a time."""
_PROGRESS: Final = msgspec.json.Decoder(spark_processes.Progress)


class Bar:
    """quiet: show nothing."""

    def __init__(self, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = Console(stderr=True, quiet=quiet, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[count]}"),
            TimeRemainingColumn(compact=True),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._clock = clock
        self._task: TaskID | None = None
        self._what = ""
        self._next_line = 0.0
        self._seen: deque[tuple[float, int]] = deque()

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(harmless(text), markup=False, soft_wrap=True)

    @contextmanager
    def shown(self, what: str, total: int | None = None) -> Iterator[None]:
        """Show the bar until the block ends."""
        self._next_line = self._clock() + FIRST_LINE
        with self._progress:
            self._task = self._progress.add_task(harmless(what), total=total, count="")
            yield
        self._task = None

    def show(self, what: str, done: int, total: int | None = None) -> None:
        """How far it is now."""
        if self._task is None:
            return
        if what != self._what:
            self._what = what
            self._seen.clear()
        rate = self._rate(done)
        counted = f"{done:,}{'' if total is None else f' of {total:,}'} · {rate:,.0f}/s" if done or total else ""
        self._progress.update(self._task, completed=done, total=total, description=harmless(what), count=counted)
        if not self._console.is_terminal and self._clock() >= self._next_line:
            self._next_line = self._clock() + LINE_EVERY
            self.say(f"{what}: {counted}" if counted else what)

    def _rate(self, done: int) -> float:
        now = self._clock()
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[0][0] > RATE_SECONDS:
            self._seen.popleft()
        (began, before) = self._seen[0]
        return (done - before) / (now - began) if now > began else 0.0


class LogReader:
    """Shows the notes and the progress of a process by its log, each line once."""

    def __init__(self, log: Path, bar: Bar) -> None:
        self._log = log
        self._bar = bar
        self._place = 0
        self._shown: set[str] = set()
        self._latest = spark_processes.Progress(what="starting Spark")

    def look(self) -> None:
        """Show the lines that are new, and the latest progress."""
        for line in self._new():
            if line.startswith(NOTE) and line not in self._shown:
                self._shown.add(line)
                self._bar.say(masked(line.removeprefix(NOTE)))
            elif line.startswith(PROGRESS):
                self._take(line.removeprefix(PROGRESS))
        self._bar.show(self._latest.what, self._latest.done, self._latest.total)

    def _take(self, text: str) -> None:
        try:
            self._latest = read_json(_PROGRESS, text)
        except UnreadableError:  # two processes wrote at once: the next line follows
            return

    def _new(self) -> list[str]:
        try:
            with self._log.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self._place, end - MAX_READ_BYTES))
                data = file.read()
        except OSError:  # it is the process's business to complain
            return []
        whole, line_end, _ = data.rpartition(b"\n")
        self._place = max(self._place, end - MAX_READ_BYTES) + len(whole) + len(line_end)
        return whole.decode(errors="replace").splitlines() if line_end else []


def wait_shown(wait: Callable[[float], int | None], log: Path, bar: Bar) -> int:
    """Wait for a process with Spark and show how far it is; return its exit status.

    Args:
        wait: waits for some seconds; None: the process runs on.
        log: the process's.
        bar: where to show it.
    """
    reader = LogReader(log, bar)
    with bar.shown("starting Spark"):
        while (status := wait(POLL_SECONDS)) is None:
            reader.look()
        reader.look()
    return status
