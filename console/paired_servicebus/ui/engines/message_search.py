"""Finds messages in every backlog queue and entity of a pairing, by peek: bounded; it names what it left out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from paired_servicebus.core.errors import ControlError
from paired_servicebus.core.model.message_view import MAX_ROWS, MAX_SEARCHED, MessageKind, MessageRow
from paired_servicebus.core.text.number_format import join_names, plural
from paired_servicebus.core.text.time_format import day_and_clock
from paired_servicebus.ui.engines.feed import MessageSource
from paired_servicebus.ui.state.message_choices import MessageTab

SEARCH_SECONDS: Final = 30.0
"""Seconds of one search."""
AT_ONCE: Final = 4
"""Parts of queues that are read at a time; the engine reads two and lets the others wait."""
NOT_REACHED: Final = f"the search ended before, after {SEARCH_SECONDS:g} s or by hand"
FULL: Final = f"the search ended before, at {MAX_ROWS} matches or {MAX_SEARCHED:,} messages"


class FoundMessage(NamedTuple):
    """A message, and the part of a queue that has it."""

    tab: MessageTab
    row: MessageRow

    def __str__(self) -> str:
        row = self.row
        at = f"since {day_and_clock(row.enqueued_at)}" if row.enqueued_at is not None else ""
        dead = "dead letter" if self.tab.kind is MessageKind.DEAD else row.state
        goes_to = f"for {row.destination}" if row.destination else ""
        return " · ".join(filter(None, (self.tab.name, dead, goes_to, at, row.reason)))


class MessageSearch:
    """One search, with what it found so far.

    Args:
        tabs: the parts of queues to read, in this order.
        wanted: a text or a JSON path (core.model.message_view).
    """

    def __init__(self, source: MessageSource, tabs: Sequence[MessageTab], *, wanted: str, by: str) -> None:
        self._source, self._by = source, by
        self.wanted = wanted
        self.found: list[FoundMessage] = []
        self.looked_at = 0
        """Messages that were peeked."""
        self.notes: set[str] = set()
        """What was not searched in the messages that were peeked."""
        self._parts = len(tabs)
        self._unread: dict[MessageTab, str] = dict.fromkeys(tabs, NOT_REACHED)
        """The parts that were not read to their end, and why."""

    @property
    def progress(self) -> str:
        """How much was read and found."""
        read = f"{self._parts - len(self._unread):,} of {plural(self._parts, 'part')} read"
        return f"{plural(len(self.found), 'message')} with “{self.wanted}”: {read}, {plural(self.looked_at, 'message')}"

    def unread(self) -> Iterator[tuple[str, str]]:
        """Yield the parts that were not read to their end, and why; and what was not searched in messages."""
        reasons: dict[str, list[str]] = {}
        for tab, reason in self._unread.items():
            name = f"dead letters of {tab.name}" if tab.kind is MessageKind.DEAD else tab.name
            reasons.setdefault(reason, []).append(name)
        yield from ((join_names(names), reason) for reason, names in reasons.items())
        yield from (("bodies", note) for note in sorted(self.notes))

    async def run(self) -> None:
        """Search, for SEARCH_SECONDS at most. A cancelled search keeps what it found."""
        turns = asyncio.Semaphore(AT_ONCE)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SEARCH_SECONDS), asyncio.TaskGroup() as tasks:
                for tab in tuple(self._unread):
                    tasks.create_task(self._read(tab, turns), name=f"search in {tab.name}")

    async def _read(self, tab: MessageTab, turns: asyncio.Semaphore) -> None:
        async with turns:
            number = 1
            while number:
                if self.looked_at >= MAX_SEARCHED or len(self.found) >= MAX_ROWS:
                    self._unread[tab] = FULL
                    return
                try:
                    page = await self._source.look_at_messages(
                        tab.path, tab.kind, from_number=number, wanted=self.wanted, by=self._by
                    )
                except ControlError as error:
                    self._unread[tab] = str(error)
                    return
                self.looked_at += page.looked_at
                self.found += (FoundMessage(tab, row) for row in page.rows)
                self.notes |= {page.note} - {""}
                number = page.next_number
            del self._unread[tab]
