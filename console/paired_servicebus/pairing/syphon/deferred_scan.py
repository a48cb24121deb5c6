"""Searches a backlog queue for deferred messages by peeking: ours from before a crash, or another syphon's.

A search reads the whole queue, in portions: each adds its findings at its end, and a failure ends the portion, not the
search. A pump opens after the first part, as far as other pumps can have passed beyond messages that they held locked;
the rest follows while messages move.
"""

from __future__ import annotations

from typing import Final, Protocol

from paired_servicebus.core.errors import EnvelopeError, WireError
from paired_servicebus.core.pump.pump_events import DeferredFound, PumpEvent
from paired_servicebus.core.pump.pump_machine import PumpMachine
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.amqp_client.entity_management import peek
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.backlog_message import BacklogMessage
from paired_servicebus.pairing.syphon.envelope_codec import broker_properties, open_envelope
from paired_servicebus.pairing.syphon.pump_worker import MANAGED

MESSAGES_PER_PEEK: Final = 250
"""Messages of one request, at most."""
ENOUGH: Final = 20_000
"""Active messages in a row after which a pump may open: as many as four dead pumps can have held."""
PORTION_SECONDS: Final = 0.2
"""Seconds after which a portion ends."""
_ACTIVE, _DEFERRED = 0, 1


class SearchingPump(Protocol):
    """The pump of the searched queue."""

    machine: PumpMachine[BacklogMessage]

    def apply(self, event: PumpEvent[BacklogMessage]) -> None:
        """Step the machine and perform its effects."""

    def known(self) -> set[int]:
        """Return the numbers of messages in hand, requested, deferred, or about to be settled."""


class DeferredScan:
    """One pump's searches, one after the other; a search ignores the messages that the pump knows."""

    def __init__(self, steering: PairingRuntime, wire: ReconnectingConnection, path: str, pump: SearchingPump) -> None:
        self._steering = steering
        self._wire = wire
        self._path = path
        self._pump = pump
        self._schedule = pump.machine.search
        self.trouble = ""
        """The reason why the search failed, or ""."""
        self._next = 1
        self._in_a_row = 0
        self._took = 0.0
        self._stays_known = False

    @property
    def is_far_enough(self) -> bool:
        """Whether it is complete, or has passed the reach of other pumps."""
        return self._next == 1 or self._in_a_row >= ENOUGH

    async def begin(self) -> None:
        """Start again after an attach, since unknown messages may have been deferred."""
        if not self._stays_known:
            self._next, self._in_a_row, self._took = 1, 0, 0.0
            self._schedule.due_at = 0.0
        self._stays_known = False
        await self.look_if_due(self._steering.clock())

    def stays_known(self) -> None:
        """Skip the next search: the link ended only because it was idle."""
        self._stays_known = True

    async def look_if_due(self, now: float) -> None:
        """Continue the search if one is due."""
        if now >= self._schedule.due_at:
            await self.look()

    async def look(self) -> None:
        """Continue the search after the last portion; a failure only sets `trouble`."""
        try:
            await self._portion()
        except WireError as error:
            self.trouble = f"cannot search for deferred messages: {self._steering.judge(error).reason}"
            self._schedule.failed(self._steering.clock())
        else:
            self.trouble = ""

    async def _portion(self) -> None:
        began = self._steering.clock()
        if self._next == 1:
            self._schedule.began()
        before = self._pump.known()
        seen: list[tuple[str, int]] = []
        try:
            while await self._page(before, seen) and self._steering.clock() - began < PORTION_SECONDS:
                pass
        finally:
            after = self._pump.known()
            self._pump.apply(DeferredFound([one for one in seen if one[1] not in after]))
            self._took += self._steering.clock() - began
        if self._next == 1:
            self._schedule.ended(self._steering.clock(), took=self._took)
            self._took = 0.0

    async def _page(self, before: set[int], seen: list[tuple[str, int]]) -> bool:
        """Peek once; return False at the queue's end."""
        peeked = await peek(self._wire, self._path, from_number=self._next, count=MESSAGES_PER_PEEK, timeout=MANAGED)
        self._steering.meter.searched()
        last = self._next
        for data in peeked:
            held = broker_properties(data)
            self._next = max(self._next, held.sequence_number + 1)
            if held.state == _DEFERRED:
                self._in_a_row = 0
                if held.sequence_number not in before:
                    seen.append((_destination(data), held.sequence_number))
            elif held.state == _ACTIVE:
                self._in_a_row += 1
        if self._next == last:  # nothing, or nothing with a number
            self._next, self._in_a_row = 1, 0
        return self._next != 1


def _destination(data: bytes) -> str:
    """Return a deferred message's destination; "" if it is unreadable."""
    try:
        return open_envelope(data).enclosed.path
    except EnvelopeError:
        return ""
