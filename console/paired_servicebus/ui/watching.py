"""`paired status`: what it prints, once or for as long as somebody watches."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence

from paired_servicebus.engine.here import closed_here, engines_here, look_at
from paired_servicebus.engine.places import Places
from paired_servicebus.printing import complain, print_lines, print_object
from paired_servicebus.ui.following import follow
from paired_servicebus.ui.status import as_json, as_lines, health


def run_status(chosen: Places | None, *, json_line: bool) -> int:
    """Prints how the engines of this machine stand, or the `chosen` one; the exit status."""
    standings = asyncio.run(look_at(_engines(chosen)(), watches=True))
    now = time.time()
    if json_line:
        print_object(as_json(standings, now))
    else:
        print_lines(as_lines(standings, now))
        closed = closed_here() if chosen is None else ""
        if closed:
            complain(closed)
    return int(health(standings, now))


def run_watch(chosen: Places | None) -> int:
    """Prints a line for each change until interrupted, or until nobody reads any more."""
    try:
        asyncio.run(follow(_engines(chosen), _print, named=chosen is None))
    except* BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to flush has no reader either
    return 0


def _engines(chosen: Places | None) -> Callable[[], Sequence[Places]]:
    return engines_here if chosen is None else lambda: (chosen,)


def _print(line: str) -> None:
    """At once: somebody watches."""
    print_lines([line])
    sys.stdout.flush()
