"""Loads of the sandbox: flood a queue, move messages from queue to queue, make round trips.

A load serves one client and runs once. It ends when every message is accepted, or moved and settled.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

from paired_servicebus.bench.sample_messages import SampleMessages
from paired_servicebus.bench.sandbox.loopback_client import LoopbackClient
from paired_servicebus.bench.sandbox_process import BenchError
from servicebus_amqp.encoding.messaging_types import ACCEPTED
from servicebus_amqp.protocol.link_receiver import ReceiverLink
from servicebus_amqp.protocol.link_sender import SenderLink
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived, FlowReceived

MOST_MESSAGES: Final = 1000
MOST_BYTES: Final = 8 * 1024 * 1024
"""Messages and bytes in flight of a mover, at most."""
AT_ONCE: Final = 1024 * 1024
"""Bytes that a flood writes between two looks at the transport's buffer."""
LONGEST: Final = 300.0
"""Seconds after which a load counts as stuck."""


class Flood:
    """Sends `count` messages as fast as the namespace grants credit, and awaits every answer."""

    def __init__(self, client: LoopbackClient, link: SenderLink, letters: SampleMessages, count: int) -> None:
        self._client = client
        self._link = link
        self._letters = letters
        self._to_send = self._unanswered = count
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        client.on_outcome = self._on_outcome
        client.on_flow = self._on_flow
        client.on_writable = self._fill

    async def run(self) -> None:
        """Send all messages. Raises BenchError."""
        self._fill()
        await self._client.until(self._done, LONGEST)

    def _on_flow(self, _: FlowReceived) -> None:
        self._fill()

    def _fill(self) -> None:
        """Send within the credit, in pieces: a longer buffer would only be copied."""
        send, letter, piece = self._link.send, self._letters.next, max(1, AT_ONCE // self._letters.size)
        while self._client.is_writable and (count := min(self._link.credit, self._to_send, piece)):
            for number in range(self._to_send, self._to_send - count, -1):
                send(letter(), tag=number.to_bytes(4, "big"))
            self._to_send -= count
            self._client.flush()

    def _on_outcome(self, event: DispositionReceived) -> None:
        self._unanswered -= 1
        _note(self._done, event, is_last=self._unanswered == 0)


class Move:
    """Moves `count` messages: receives them, sends them, and completes them after the other queue accepted.

    As in peek-lock clients, the outcome is sent unsettled, and its settled echo ends a message.
    """

    def __init__(
        self, client: LoopbackClient, source: ReceiverLink, target: SenderLink, *, count: int, size: int
    ) -> None:
        """size: approximate bytes of a message."""
        self._client = client
        self._window = min(MOST_MESSAGES, count, max(1, MOST_BYTES // size))
        self._source = source
        self._target = target
        self._unmoved = count
        self._under_way: dict[bytes, int] = {}
        self._to_grant = 0
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        client.on_delivery = self._on_delivery
        client.on_outcome = self._on_outcome

    async def run(self) -> None:
        """Move all messages. Raises BenchError."""
        self._source.flow(self._window)
        self._client.flush()
        await self._client.until(self._done, LONGEST)
        self._source.flow(0)
        self._client.flush()

    def _on_delivery(self, event: DeliveryReceived) -> None:
        self._under_way[event.tag] = event.delivery_id
        self._target.send(event.payload, tag=event.tag)

    def _on_outcome(self, event: DispositionReceived) -> None:
        if event.link is self._target:
            if event.state == ACCEPTED:
                self._source.settle(self._under_way.pop(event.tag), ACCEPTED, settled=False)
            else:
                _note(self._done, event, is_last=False)
            return
        self._unmoved -= 1
        self._to_grant += 1
        if 2 * self._to_grant >= self._window:
            self._source.flow(self._source.credit + self._to_grant)
            self._to_grant = 0
        _note(self._done, event, is_last=self._unmoved == 0)


class RoundTrips:
    """Sends messages one at a time, each after the answer to the one before, and times them."""

    def __init__(self, client: LoopbackClient, link: SenderLink, letters: SampleMessages) -> None:
        self._client = client
        self._link = link
        self._letters = letters
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        client.on_outcome = self._on_outcome

    async def run(self, seconds: float, *, least: int) -> list[float]:
        """Return the milliseconds of each round trip. least: of round trips. Raises BenchError."""
        loop = asyncio.get_running_loop()
        took: list[float] = []
        ends = perf_counter() + seconds
        while perf_counter() < ends or len(took) < least:
            self._answered = loop.create_future()
            began = perf_counter()
            self._link.send(self._letters.next(), tag=len(took).to_bytes(4, "big"))
            self._client.flush()
            await self._client.until(self._answered)
            took.append(1000 * (perf_counter() - began))
        return took

    def _on_outcome(self, event: DispositionReceived) -> None:
        _note(self._answered, event, is_last=True)


def _note(done: asyncio.Future[None], event: DispositionReceived, *, is_last: bool) -> None:
    """End a load after its last message, or with an error at the first message that is not accepted."""
    if done.done():
        return
    if event.state != ACCEPTED:
        done.set_exception(BenchError(f"a message was not accepted: {event.state}"))
    elif is_last:
        done.set_result(None)
