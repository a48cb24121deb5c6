"""A client of RabbitMQ on the project's own AMQP, without a token, and a flood into a queue.

A lost connection or a detached link fails the flood.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from paired_servicebus.bench.amqp_loads import SampleMessages
from paired_servicebus.bench.bench_plans import BenchError
from servicebus_amqp.encoding.performatives import ACCEPTED, Source, Target
from servicebus_amqp.protocol.connection import Connection
from servicebus_amqp.protocol.connection_settings import ConnectionRole, ConnectionSettings
from servicebus_amqp.protocol.links import (
    Attached,
    Closed,
    ConnectionFailed,
    Detached,
    DispositionReceived,
    FlowReceived,
    Link,
    Opened,
    SenderLink,
    SessionEnded,
)

HOST: Final = "127.0.0.1"
ANSWER: Final = 30.0
"""Seconds for one answer of the namespace on a busy machine."""
AT_ONCE: Final = 1024 * 1024
"""Bytes that a flood writes between two looks at the transport's buffer."""
LONGEST: Final = 300.0
"""Seconds after which a flood counts as stuck."""

Value = TypeVar("Value")
Handler = Callable[[Any], None]


class AnonymousClient(asyncio.Protocol):
    """One connection. A flood sets `on_outcome`, `on_flow` and `on_writable`."""

    def __init__(self, name: str) -> None:
        settings = ConnectionSettings(container_id=name, hostname=HOST)
        self._amqp = Connection(role=ConnectionRole.CLIENT, settings=settings)
        self._transport: asyncio.Transport | None = None
        self._attaching: dict[Link, asyncio.Future[None]] = {}
        self._ticking: asyncio.TimerHandle | None = None
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_closing = False
        self.is_writable = True
        self.on_outcome: Handler = _ignored
        self.on_flow: Handler = _ignored
        self.on_writable: Callable[[], None] = _nothing
        self._handlers: dict[type, Handler] = {
            DispositionReceived: lambda event: self.on_outcome(event),
            FlowReceived: lambda event: self.on_flow(event),
            Attached: self._on_attached,
            Detached: lambda event: self._fail(f"{event.link!r} was detached: {event.error}"),
            Opened: lambda _: self._tick(),
            SessionEnded: lambda event: self._fail(f"the session was ended: {event.error}"),
            Closed: lambda event: self._fail(f"the connection was closed: {event.error}"),
            ConnectionFailed: lambda event: self._fail(f"the connection failed: {event.error}"),
        }

    @classmethod
    async def connect(cls, port: int, name: str) -> AnonymousClient:
        """Connect without a token. Raises BenchError."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER):
                _, client = await loop.create_connection(lambda: cls(name), HOST, port)
        except (OSError, TimeoutError) as error:
            raise BenchError(f"port {port} does not accept a connection: {error}") from error
        return client

    # ------------------------------------------------------------------ callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._amqp.open()
        self.session = self._amqp.begin()
        self.flush()

    def data_received(self, data: bytes) -> None:
        handlers = self._handlers
        for event in self._amqp.receive_data(data):
            handler = handlers.get(type(event))
            if handler is not None:
                handler(event)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        self._fail(f"the connection was lost: {exc or 'the sandbox closed it'}")

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        self.on_writable()
        self.flush()

    # ------------------------------------------------------------------ used by loads

    async def sender(self, path: str) -> SenderLink:
        """Attach a sender. Raises BenchError."""
        link = self.session.attach_sender(f"to {path}", Source(address="bench"), Target(address=path))
        await self._attached(link)
        return link

    async def until(self, done: asyncio.Future[Value], seconds: float = ANSWER) -> Value:
        """Return the result of `done`. Raises BenchError after `seconds`, or if the connection fails first."""
        await asyncio.wait((done, self._lost), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if done.done():
            return done.result()
        done.cancel()
        if self._lost.done():
            self._lost.result()
        raise BenchError(f"the sandbox did not answer within {seconds:g} s")

    def flush(self) -> None:
        """Write pending output."""
        data = self._amqp.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """Abort the connection."""
        self._is_closing = True
        self._lost.cancel()
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------------ internals

    async def _attached(self, link: Link) -> None:
        answered = self._attaching[link] = asyncio.get_running_loop().create_future()
        self.flush()
        await self.until(answered)

    def _on_attached(self, event: Attached) -> None:
        if event.attach.source is not None or event.attach.target is not None:  # null termini: a refusal follows
            self._attaching.pop(event.link).set_result(None)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = self._amqp.tick(loop.time())
        self.flush()
        if self._amqp.failure is not None:
            self._fail(f"the sandbox was silent for too long: {self._amqp.failure.description}")
        elif deadline is not None:
            self._ticking = loop.call_at(deadline, self._tick)

    def _fail(self, why: str) -> None:
        if not self._lost.done() and not self._is_closing:
            self._lost.set_exception(BenchError(f"client {self._amqp.settings.container_id}: {why}"))


def _ignored(event: object) -> None:
    """Ignore an event that the load does not need."""


def _nothing() -> None:
    """Do nothing: no load waits to write."""


class Flood:
    """Sends `count` messages as fast as the node grants credit, and awaits every answer."""

    def __init__(self, client: AnonymousClient, link: SenderLink, letters: SampleMessages, count: int) -> None:
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
        if self._done.done():
            return
        if event.state != ACCEPTED:
            self._done.set_exception(BenchError(f"a message was not accepted: {event.state}"))
        elif self._unanswered == 0:
            self._done.set_result(None)
