"""Looks into the backlog queues for an operator: pages of messages, and one message, by peek only.

A peek locks nothing and changes nothing; it is billed as a receive and carries whole messages. So each look is bounded:
its seconds, its requests, its bytes, the looks at once. It has a connection of its own, so that large messages hold up
no pump; the connection closes when nobody looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.errors import IllegalEventError, MessagesUnknownError, WireError
from paired_servicebus.core.model.message_view import (
    MAX_PAGE_BYTES,
    MAX_ROWS,
    MessageContent,
    MessageKind,
    MessagePage,
    MessageRow,
)
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from paired_servicebus.pairing.amqp_client.entity_management import peek
from paired_servicebus.pairing.monitoring.message_contents import content_of, has_id, row_of
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.envelope_codec import broker_properties
from paired_servicebus.pairing.syphon.redrive import DEAD_LETTERS

PEEK_SECONDS: Final = 6.0
"""Seconds of one request."""
LOOK_SECONDS: Final = 8.0
"""Seconds of one look, its turn included."""
LOOKS_AT_ONCE: Final = 2
MAX_LOOKS: Final = 8
"""Looks under way or waiting; more are refused."""
MAX_REQUESTS: Final = 10
"""Peeks of one look."""
MESSAGES_PER_PEEK: Final = 250
MAX_LOOK_BYTES: Final = 32 * 1024 * 1024
"""Bytes of messages after which a look asks for no more; the last message may be larger."""
IDLE_SECONDS: Final = 60.0
"""Seconds after the last look until the connection is closed."""
_ROW_BYTES: Final = 160
"""Bytes of a row's numbers and names in JSON, about."""


class MessageLooks:
    """All looks of one pairing.

    Args:
        client: the secondary namespace's; needs Listen.
    """

    def __init__(self, steering: PairingRuntime, client: ServiceBusClient) -> None:
        self._steering = steering
        self._client = client
        self._wire: ReconnectingConnection | None = None
        self._turns = asyncio.Semaphore(LOOKS_AT_ONCE)
        self._looks = 0
        self._idle: asyncio.TimerHandle | None = None

    async def page(
        self, path: str, kind: MessageKind, *, from_number: int = 1, count: int = MAX_ROWS, wanted_id: str = ""
    ) -> MessagePage:
        """Return messages of a queue from a sequence number on.

        Args:
            wanted_id: only messages whose id contains it, without case; empty: all.

        Raises:
            MessagesUnknownError: the namespace did not show them; the text says why.
        """
        async with self._look(path) as wire:
            return await self._page(wire, path, kind, max(1, from_number), max(1, min(count, MAX_ROWS)), wanted_id)

    async def message(self, path: str, kind: MessageKind, number: int) -> MessageContent:
        """Return one message with the start of its body, peeked once.

        Raises:
            MessagesUnknownError: as `page`.
            IllegalEventError: it is not in the queue any more.
        """
        async with self._look(path) as wire:
            for data in await self._peek(wire, path, kind, number, 1):
                if broker_properties(data).sequence_number == number:
                    return content_of(data, read_at=self._steering.clock())
        raise IllegalEventError(f"message {number} is not in the queue any more: it was moved, or it expired")

    async def oldest(self, path: str) -> float | None:
        """Return when the first message of a queue arrived, whatever its state; None: there is none, or unknown.

        Raises:
            MessagesUnknownError: as `page`.
        """
        async with self._look(path) as wire:
            peeked = await self._peek(wire, path, MessageKind.ACTIVE, 1, 1)
        return row_of(peeked[0]).enqueued_at if peeked else None

    async def close(self) -> None:
        """Close the connection, within seconds."""
        if self._idle is not None:
            self._idle.cancel()
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    @asynccontextmanager
    async def _look(self, path: str) -> AsyncIterator[ReconnectingConnection]:
        """Take a turn, and translate every failure into a sentence."""
        if self._looks >= MAX_LOOKS:
            raise MessagesUnknownError(f"unknown: {MAX_LOOKS} looks at messages are under way; try again")
        self._looks += 1
        try:
            async with asyncio.timeout(LOOK_SECONDS), self._turns:
                yield self._connection()
        except (WireError, TimeoutError) as error:
            slow = isinstance(error, TimeoutError) and not isinstance(error, WireError)
            reason = f"no answer within {LOOK_SECONDS:g} s" if slow else self._steering.judge(error).reason
            raise MessagesUnknownError(f"unknown: {path} cannot be read: {reason}") from error
        finally:
            self._looks -= 1
            self._close_when_idle()

    def _connection(self) -> ReconnectingConnection:
        if self._wire is None:
            self._wire = ReconnectingConnection(Endpoint.of(self._client), name="messages", draw=self._steering.draw)
        return self._wire

    def _close_when_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if self._looks:
            self._close_when_idle()
        elif self._wire is not None:
            self._steering.tasks.start(self.close(), name="closing the connection for messages")

    async def _page(
        self, wire: ReconnectingConnection, path: str, kind: MessageKind, number: int, count: int, wanted_id: str
    ) -> MessagePage:
        rows: list[MessageRow] = []
        looked_at = read_bytes = page_bytes = 0
        is_filtered = bool(wanted_id) or kind is MessageKind.DEFERRED
        for _ in range(MAX_REQUESTS):
            peeked = await self._peek(wire, path, kind, number, MESSAGES_PER_PEEK if is_filtered else count - len(rows))
            before = number
            for data in peeked:
                found = broker_properties(data)
                if found.sequence_number < number:
                    continue
                number, looked_at = found.sequence_number + 1, looked_at + 1
                read_bytes += len(data)
                if not _belongs(found.state, kind) or (wanted_id and not has_id(data, wanted_id)):
                    continue
                rows.append(row_of(data))
                page_bytes += _bytes_of(rows[-1])
                if len(rows) >= count or page_bytes >= MAX_PAGE_BYTES:
                    break
            if number == before:  # nothing, or nothing with a number: the end
                number = 0
                break
            if len(rows) >= count or page_bytes >= MAX_PAGE_BYTES or read_bytes >= MAX_LOOK_BYTES:
                break
        return MessagePage(
            queue=path,
            kind=kind,
            rows=tuple(rows),
            looked_at=looked_at,
            next_number=number,
            read_at=self._steering.clock(),
        )

    async def _peek(
        self, wire: ReconnectingConnection, path: str, kind: MessageKind, number: int, count: int
    ) -> list[bytes]:
        self._steering.meter.receives += 1
        where = path + DEAD_LETTERS if kind is MessageKind.DEAD else path
        return await peek(wire, where, from_number=number, count=count, timeout=PEEK_SECONDS)


def _belongs(state: int, kind: MessageKind) -> bool:
    """Return whether a message of this state is of this kind; dead letters are in a queue of their own."""
    if kind is MessageKind.ACTIVE:
        return state != 1
    return kind is not MessageKind.DEFERRED or state == 1


def _bytes_of(row: MessageRow) -> int:
    texts = (row.destination, row.message_id, row.session, row.reason)
    return _ROW_BYTES + sum(len(text.encode("utf-8", "replace")) for text in texts)
