"""`paired status`: prints the engines' status, once or continuously."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence

from paired_servicebus.engine.control.discovery import explain_closed_services, local_engines, query_engines
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.printing import print_lines, print_object, report_error
from paired_servicebus.ui.engines.health import as_json, as_lines, health
from paired_servicebus.verbs.follow import follow


def run_status(chosen: EnginePaths | None, *, json_line: bool) -> int:
    """Print the status of this machine's engines, or of the `chosen` one; return the exit status."""
    standings = asyncio.run(query_engines(_engines(chosen)(), watches=True))
    now = time.time()
    if json_line:
        print_object(as_json(standings, now))
    else:
        print_lines(as_lines(standings, now))
        closed = explain_closed_services() if chosen is None else ""
        if closed:
            report_error(closed)
    return int(health(standings, now))


def run_watch(chosen: EnginePaths | None) -> int:
    """Print a line for each change until interrupted, or until standard output is closed."""
    try:
        asyncio.run(follow(_engines(chosen), _print, named=chosen is None))
    except* BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to flush has no reader either
    return 0


def _engines(chosen: EnginePaths | None) -> Callable[[], Sequence[EnginePaths]]:
    return local_engines if chosen is None else lambda: (chosen,)


def _print(line: str) -> None:
    """Print a line immediately."""
    print_lines([line])
    sys.stdout.flush()
