"""How far a drain is, on the terminal: a bar on standard error, which goes away where that is no terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.pipeline.drain.drain_files import Told

SPAN: Final = 10.0
"""Seconds over which a rate is taken."""


class Bar:
    """quiet: show nothing."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[count]}"),
            TimeRemainingColumn(compact=True),
            console=self._console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._lying: int | None = None
        self._seen: deque[tuple[float, int]] = deque()

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(harmless(text), markup=False, soft_wrap=True)

    @contextmanager
    def shown(self, lying: int | None) -> Iterator[None]:
        """Show the bar until the block ends. lying: messages in the backlog; None: unknown."""
        self._lying = lying
        with self._progress:
            self._task = self._progress.add_task("draining", total=lying, count="")
            yield

    def show(self, told: Told, *, stopping: bool) -> None:
        """How far it is now."""
        if self._task is None:
            return
        done = told.progress.moved + told.progress.dead_lettered
        total = None if self._lying is None else max(self._lying, done)
        self._progress.update(
            self._task,
            completed=done,
            total=total,
            description="ending in order" if stopping else harmless(f"wave {told.wave}: {told.phase}"),
            count=f"{done:,}{'' if total is None else f' of {total:,}'} · {self._rate(done):,.0f}/s",
        )

    def _rate(self, done: int) -> float:
        now = time.monotonic()
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[0][0] > SPAN:
            self._seen.popleft()
        (began, before) = self._seen[0]
        return (done - before) / (now - began) if now > began else 0.0
