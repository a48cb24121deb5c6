"""Loads on the pump's own AMQP: a flood into a queue, and a plain copy from queue to queue or to nowhere.

A copy receives, sends the same bytes and completes accepted messages. It opens no envelope and writes no receipt, so
its rate is the machine's limit for a pump in the same run. A load opens its links before it is timed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import cycle
from typing import Final

from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.bench.rounds import Lap
from paired_servicebus.core.errors import WireError
from paired_servicebus.core.model.envelope import PATH, TICKS_A_SECOND, TIME_TO_LIVE, TIMESPAN
from paired_servicebus.pairing.amqp_client import (
    Endpoint,
    ReconnectingConnection,
    WireReceiver,
    WireSender,
    failure_of,
)
from paired_servicebus.pairing.amqp_client.client_connection import IDLE_TIMEOUT
from servicebus_amqp.encoding.codec import Described, Symbol, Timestamp
from servicebus_amqp.encoding.message_sections import (
    Header,
    Properties,
    Sections,
    write_application_properties,
    write_data,
    write_header,
    write_properties,
)
from servicebus_amqp.encoding.performatives import ACCEPTED
from servicebus_amqp.protocol.links import DeliveryReceived, DispositionReceived

# Encoded sample messages: a body of a given size, eight properties, and an id of its own each.

_PLACE: Final = "@@@@@@@@-@@@@-@@@@-@@@@-@@@@@@@@@@@@"
"""The place of the id; as long as usual ids of applications."""
_SENT_AT: Final = 1_767_225_600_000


class SampleMessages:
    """Encoded messages, all of one size; ids are numbers that never repeat in one source.

    Args:
        body: its bytes.
        destinations: the paths in the envelopes, in turn; none: no envelope.
        lives: the envelope's time to live.
    """

    def __init__(self, body: int, *destinations: str, lives: timedelta | None = None) -> None:
        envelopes: list[dict[str, object]] = [{PATH: path} for path in destinations] or [{}]
        if lives is not None:
            span = Described(Symbol(TIMESPAN), round(TICKS_A_SECOND * lives.total_seconds()))
            envelopes = [envelope | {TIME_TO_LIVE: span} for envelope in envelopes]
        encoded = [_encode(body, envelope) for envelope in envelopes]
        self.size = max(map(len, encoded))
        self._pieces = cycle([one.split(_PLACE.encode()) for one in encoded])
        self._written = 0

    def next(self) -> bytes:
        """Return the next message."""
        self._written += 1
        before, after = next(self._pieces)
        return b"%b%036d%b" % (before, self._written, after)


def _encode(body: int, envelope: dict[str, object]) -> bytes:
    properties: dict[str, object] = {
        "tenant": "contoso",
        "region": "westeurope",
        "schema": "orders/v3",
        "attempt": 1,
        "priority": 0.5,
        "express": True,
        "sent-at": str(_SENT_AT) if envelope else Timestamp(_SENT_AT),  # the SDK cannot send on a timestamp
        "trace": b"0123456789abcdef",
    }
    return Sections(
        header=write_header(Header(durable=True)),
        properties=write_properties(
            Properties(message_id=_PLACE, subject="order-placed", content_type="application/json")
        ),
        application_properties=write_application_properties(properties | envelope),
        body=write_data(bytes(body)),
    ).join()


WINDOW: Final = 2500
"""Messages in flight; with fewer, the window would be the limit at 10 ms of latency."""
LONGEST: Final = 600.0
"""Seconds after which a load counts as stuck."""
PIECE: Final = 1024 * 1024
"""Bytes that a flood writes between two looks at the transport's buffer."""


@asynccontextmanager
async def open_wire(
    client: ServiceBusClient, *, idle_timeout: float = IDLE_TIMEOUT
) -> AsyncIterator[ReconnectingConnection]:
    """Yield a connection to a client's namespace."""
    wire = ReconnectingConnection(Endpoint.of(client), name="bench", idle_timeout=idle_timeout)
    try:
        yield wire
    finally:
        await wire.close()


class Load:
    """Its links, its callback after each read of `wire`, and the end of its present run."""

    def __init__(self, wire: ReconnectingConnection, after_read: Callable[[], None]) -> None:
        self._wire = wire
        self._after_read = after_read
        self._links: list[WireReceiver | WireSender] = []
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """Detach the links."""
        for link in self._links:
            await link.detach()
        if self._after_read in self._wire.after_read:
            self._wire.after_read.remove(self._after_read)

    async def _until_done(self) -> None:
        async with asyncio.timeout(LONGEST):
            await self._done

    def _end(self, error: WireError | None = None) -> None:
        if self._done.done():
            return
        if error is not None:
            self._done.set_exception(error)
        else:
            self._done.set_result(None)


class Flood(Load):
    """Sends messages as fast as the namespace grants credit, and awaits every answer."""

    _link: WireSender

    def __init__(self, wire: ReconnectingConnection, letters: SampleMessages) -> None:
        super().__init__(wire, self._fill)
        self._letters = letters
        self._to_send = self._unanswered = 0

    async def open(self, queue: str) -> None:
        """Attach the link."""
        self._link = await self._wire.sender(queue, on_outcome=self._on_outcome, on_lost=self._end, on_room=self._fill)
        self._links.append(self._link)
        self._wire.after_read.append(self._fill)

    async def run(self, count: int) -> None:
        """Send `count` messages. Raises WireError, TimeoutError."""
        if self._link.failure is not None:
            raise self._link.failure
        self._done = asyncio.get_running_loop().create_future()
        self._to_send = self._unanswered = count
        self._fill()
        await self._until_done()

    def _fill(self) -> None:
        """Send within the credit, in pieces: a longer buffer would only be copied."""
        if not self._to_send:
            return
        send, letter, piece = self._link.send, self._letters.next, max(1, PIECE // self._letters.size)
        while count := min(self._link.room, self._to_send, piece):
            for number in range(self._to_send, self._to_send - count, -1):
                send(letter(), number.to_bytes(4, "big"))
            self._to_send -= count

    def _on_outcome(self, event: DispositionReceived) -> None:
        self._unanswered -= 1
        failure = None if event.state is ACCEPTED else failure_of(event.state, self._link.path)
        if failure is not None or not self._unanswered:
            self._end(failure)


@asynccontextmanager
async def flooding(wire: ReconnectingConnection, queue: str, letters: SampleMessages) -> AsyncIterator[Flood]:
    """Yield a flood whose link is open. Raises BenchError: the queue could not be filled."""
    flood = Flood(wire, letters)
    try:
        await flood.open(queue)
        yield flood
    except (WireError, TimeoutError) as error:
        raise BenchError(f"{queue} could not be filled: {error}") from error
    finally:
        await flood.close()


class Copy(Load):
    """Receives `count` messages, and completes after each read what its target has accepted, or else what came.

    At most a window of messages is in flight. A message counts when its namespace has confirmed it.
    """

    _receiver: WireReceiver
    _sender: WireSender

    def __init__(self, wire: ReconnectingConnection, count: int, window: int) -> None:
        super().__init__(wire, self._complete)
        self._window = window
        self._unsettled = self._ungranted = count
        self._to_grant = 0
        self._to_complete: list[int] = []
        self._deliveries: dict[bytes, int] = {}

    async def open(self, source: ReconnectingConnection, source_path: str, target_path: str | None) -> None:
        """Attach the links."""
        if target_path is not None:
            self._sender = await self._wire.sender(target_path, on_outcome=self._on_outcome, on_lost=self._end)
            self._links.append(self._sender)
        self._receiver = await source.receiver(
            source_path,
            on_delivery=self._take if target_path is None else self._send,
            on_settled=self._on_settled,
            on_lost=self._end,
        )
        self._links.append(self._receiver)
        self._wire.after_read.append(self._complete)

    async def run(self) -> None:
        """Copy all messages. Raises WireError, TimeoutError."""
        self._grant(self._window)
        await self._until_done()

    def _take(self, event: DeliveryReceived) -> None:
        self._to_complete.append(event.delivery_id)

    def _send(self, event: DeliveryReceived) -> None:
        self._deliveries[event.tag] = event.delivery_id
        self._sender.send(event.payload, event.tag)

    def _on_outcome(self, event: DispositionReceived) -> None:
        if event.state is not ACCEPTED and (failure := failure_of(event.state, self._sender.path)) is not None:
            self._end(failure)
            return
        self._to_complete.append(self._deliveries.pop(event.tag))

    def _complete(self) -> None:
        settle = self._receiver.settle
        for delivery_id in self._to_complete:
            settle(delivery_id, ACCEPTED, settled=False)
        self._to_complete.clear()

    def _on_settled(self, _: DispositionReceived) -> None:
        self._unsettled -= 1
        self._to_grant += 1
        if not self._unsettled:
            self._end()
        elif 4 * self._to_grant >= self._window:
            self._grant(self._to_grant)

    def _grant(self, more: int) -> None:
        more = min(more, self._ungranted)
        self._to_grant = 0
        if more:
            self._ungranted -= more
            self._receiver.grant(self._receiver.credit + more)


async def copy(
    source: ReconnectingConnection,
    source_path: str,
    target: ReconnectingConnection | None = None,
    target_path: str | None = None,
    *,
    count: int,
    window: int = WINDOW,
) -> Lap:
    """Copy `count` messages and complete them, confirmed by the source. Without a target, they are only completed.

    Raises BenchError: a message was not accepted, or a link was lost.
    """
    load = Copy(target or source, count, window)
    try:
        await load.open(source, source_path, target_path)
        wall, cpu = time.perf_counter(), time.process_time()
        await load.run()
        return Lap(messages=count, seconds=time.perf_counter() - wall, cpu_seconds=time.process_time() - cpu)
    except (WireError, TimeoutError) as error:
        to = "taken" if target_path is None else f"copied to {target_path}"
        raise BenchError(f"{source_path} was not {to}: {error}") from error
    finally:
        await load.close()
