"""`paired status`: prints the engines' status; with `--watch` their changes, as lines for a log or a pipe.

A line is one change, in the screen's sentences, without colour codes. Following begins with the present. Events during
a disconnection are printed after the reconnection. Engines started meanwhile are followed too.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.engine.control.discovery import (
    explain_closed_services,
    find_socket,
    local_engines,
    query_engines,
)
from paired_servicebus.engine.control.protocol import Skipped
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.printing import print_lines, print_object, report_error
from paired_servicebus.ui.engines.feed import EngineFeed
from paired_servicebus.ui.state.log_entries import sentence
from paired_servicebus.ui.state.summary import summary
from paired_servicebus.ui.state.view import EngineLink, News, Records, Unreachable, View
from paired_servicebus.verbs.status_text import as_json, as_lines, health


def run_status(chosen: EnginePaths | None, *, json_line: bool, fleet: bool = False) -> int:
    """Print the status of this machine's engines, or of the `chosen` one; return the exit status.

    `fleet`: with the engines of their pairings on every host.
    """
    standings = asyncio.run(query_engines(local_engines() if chosen is None else (chosen,), watches=True, fleet=fleet))
    now = time.time()
    if json_line:
        print_object(as_json(standings, now, fleet=fleet))
    else:
        print_lines(as_lines(standings, now, fleet=fleet))
        closed = explain_closed_services() if chosen is None else ""
        if closed:
            report_error(closed)
    return int(health(standings, now, fleet=fleet))


LOOK_AROUND: Final = 2.0
"""Seconds between two looks for engines that are new."""

Say = Callable[[str], object]


class Follower:
    """One engine's news as lines. `pairing` names it until it reports its own name; `named`: in each line."""

    def __init__(self, pairing: str, say: Say, *, named: bool, now: Callable[[], float] = time.time) -> None:
        self._pairing = pairing
        self._engine = pairing
        self._say = say
        self._named = named
        self._now = now
        self._began: Snapshot | None = None
        self._lost = False

    def tell(self, news: News) -> None:
        """Print a line for a change."""
        match news:
            case Snapshot():
                self._report_snapshot(news)
            case Records(records):
                for record in records:
                    self._report_event(record)
            case Skipped(count):
                self._line(self._now(), f"engine {count} events are missing here")
            case Unreachable(since, reason) if not self._lost:
                self._lost = True
                self._line(since, f"engine unreachable: {reason}")

    def _report_snapshot(self, snapshot: Snapshot) -> None:
        if self._began is not None and not self._lost:
            return
        self._engine, self._lost = snapshot.engine, False
        self._began = self._began or snapshot
        view = View(pairing=snapshot.pairing, link=EngineLink.LIVE, snapshot=snapshot)
        self._line(snapshot.at, f"engine reached: {summary(view).text}")

    def _report_event(self, record: Record) -> None:
        began = self._began
        if began is None:
            is_news = True
        elif record.boot == began.boot:
            is_news = record.seq > began.seq
        else:  # a later boot's, or an earlier one's
            is_news = record.event.at >= began.at
        if is_news:
            self._line(record.event.at, str(sentence(record.event)))

    def _line(self, at: float, text: str) -> None:
        name = f"{self._engine} " if self._named else ""
        self._say(harmless(f"{clock(at)} {name}{text}"))


async def follow(engines: Callable[[], Sequence[EnginePaths]], say: Say, *, named: bool) -> None:
    """Follow the engines that `engines` returns, now and later, until cancelled."""
    followed: set[str] = set()
    async with asyncio.TaskGroup() as tasks:
        while True:
            for places in engines():
                socket = find_socket(places)
                if socket is not None and places.name not in followed:
                    followed.add(places.name)
                    tasks.create_task(EngineFeed(socket).run(Follower(places.name, say, named=named).tell))
            if not followed:
                say(f"{clock(time.time())} no engine runs here yet; it will be followed when it does")
                followed.add("")
            await asyncio.sleep(LOOK_AROUND)


def run_watch(chosen: EnginePaths | None) -> int:
    """Print a line for each change until interrupted, or until standard output is closed."""
    engines = local_engines if chosen is None else lambda: (chosen,)
    try:
        asyncio.run(follow(engines, _print, named=chosen is None))
    except* BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the rest of the buffer has no reader either
    return 0


def _print(line: str) -> None:
    """Print a line immediately."""
    print_lines([line])
    sys.stdout.flush()
