"""The steps of an engine's start, on the terminal of the person who waits for its dashboard.

A step that is over keeps its line. A step that is not over has the seconds that it takes already. A terminal that
cannot move its cursor gets the steps that are over only.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.engine.service.launcher import Step

NAME: Final = 16
"""Cells of a step's name at least."""
SHOWN_AFTER_SECONDS: Final = 1.0
"""A step is counted in seconds once it takes so long."""


class StartDisplay:
    """Shows the steps as they come; called with None about once a second.

    Args:
        is_live: whether the terminal can move its cursor.
        monotonic: seconds that never jump.
    """

    def __init__(
        self,
        pairing: str,
        out: TextIO,
        *,
        is_live: bool,
        width: int = 80,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pairing = one_line(pairing, most=60)
        self._out, self._is_live, self._width, self._monotonic = out, is_live, width, monotonic
        self._steps: dict[str, tuple[Step, float]] = {}
        self._written = 0
        """Lines that are on the terminal."""

    def __call__(self, step: Step | None) -> None:
        """Show a step, or the seconds of those that are not over."""
        if step is not None:
            begun = self._steps[step.name][1] if step.name in self._steps else self._monotonic()
            self._steps[step.name] = (step, begun)
        if self._is_live:
            self._redraw()
        elif step is not None and step.is_over:
            self._out.write(self._line(step, 0.0) + "\n")
        self._out.flush()

    def _redraw(self) -> None:
        up = f"\x1b[{self._written}A" if self._written else ""
        now = self._monotonic()
        lines = [f" {self._pairing} is starting; ctrl+c stops it"]
        lines += [self._line(step, now - begun) for step, begun in self._steps.values()]
        self._out.write(up + "".join(f"\r{line}\x1b[K\n" for line in lines))
        self._written = len(lines)

    def _line(self, step: Step, seconds: float) -> str:
        unicode = "utf" in (self._out.encoding or "").lower()
        waiting, good, bad = ("…", "✓", "✗") if unicode else ("-", "+", "x")
        glyph = waiting if not step.is_over else good if step.is_good else bad
        lasts = f", {seconds:.0f} s" if not step.is_over and seconds >= SHOWN_AFTER_SECONDS else ""
        text = f"{one_line(step.name, most=40):<{NAME}} {one_line(masked(step.text))}"
        return f"   {glyph} {text}"[: max(20, self._width - 1 - len(lasts))] + lasts


def start_display(pairing: str) -> StartDisplay:
    """Return the display for standard error."""
    is_live = sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")
    return StartDisplay(pairing, sys.stderr, is_live=is_live, width=shutil.get_terminal_size().columns)
