"""`paired status`: prints the engines' status."""

from __future__ import annotations

import asyncio
import time

from paired_servicebus.engine.control.discovery import explain_closed_services, local_engines, query_engines
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.printing import print_lines, print_object, report_error
from paired_servicebus.ui.engines.health import as_json, as_lines, health


def run_status(chosen: EnginePaths | None, *, json_line: bool) -> int:
    """Print the status of this machine's engines, or of the `chosen` one; return the exit status."""
    standings = asyncio.run(query_engines(local_engines() if chosen is None else (chosen,), watches=True))
    now = time.time()
    if json_line:
        print_object(as_json(standings, now))
    else:
        print_lines(as_lines(standings, now))
        closed = explain_closed_services() if chosen is None else ""
        if closed:
            report_error(closed)
    return int(health(standings, now))
