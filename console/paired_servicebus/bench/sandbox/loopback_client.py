"""A client on the project's own AMQP over asyncio: a connection, a session, links, a handler for each kind of event.

What is sent and received is `loads`'. A connection that ends, a link that is refused or detached, fails whoever waits:
a measurement never goes on with half of what it was to measure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from paired_servicebus.bench.sandbox_process import AnnouncedNamespace, BenchError
from servicebus_amqp.encoding.message_sections import (
    Properties,
    Sections,
    read_map,
    split,
    write_application_properties,
    write_properties,
    write_value,
)
from servicebus_amqp.encoding.termini import Source, Target
from servicebus_amqp.protocol.connection import Connection
from servicebus_amqp.protocol.connection_settings import ConnectionRole, ConnectionSettings
from servicebus_amqp.protocol.link_receiver import ReceiverLink
from servicebus_amqp.protocol.link_sender import SenderLink
from servicebus_amqp.protocol.protocol_events import (
    Attached,
    Closed,
    ConnectionFailed,
    DeliveryReceived,
    Detached,
    DispositionReceived,
    FlowReceived,
    LinkEnd,
    Opened,
    SessionEnded,
)
from servicebus_sandbox.access.sas import sign

HOST: Final = "127.0.0.1"
ANSWER: Final = 30.0
"""Seconds that the namespace has for one answer, on a machine that may be busy."""
_CBS: Final = "$cbs"
_TOKEN_SECONDS: Final = 3600
_ACCEPTED: Final = range(200, 300)

Value = TypeVar("Value")
Handler = Callable[[Any], None]


class LoopbackClient(asyncio.Protocol):
    """One connection. `on_outcome`, `on_delivery`, `on_flow` and `on_writable` are set by the load that uses it."""

    def __init__(self, name: str, *, idle_timeout: float | None = None) -> None:
        settings = ConnectionSettings(
            container_id=name,
            hostname=HOST,
            idle_timeout_ms=None if idle_timeout is None else round(1000 * idle_timeout),
        )
        self._amqp = Connection(role=ConnectionRole.CLIENT, settings=settings)
        self._transport: asyncio.Transport | None = None
        self._attaching: dict[LinkEnd, asyncio.Future[None]] = {}
        self._ticking: asyncio.TimerHandle | None = None
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_closing = False
        self.is_writable = True
        self.on_outcome: Handler = _ignored
        self.on_delivery: Handler = _ignored
        self.on_flow: Handler = _ignored
        self.on_writable: Callable[[], None] = _nothing
        self._handlers: dict[type, Handler] = {
            DispositionReceived: lambda event: self.on_outcome(event),
            DeliveryReceived: lambda event: self.on_delivery(event),
            FlowReceived: lambda event: self.on_flow(event),
            Attached: self._on_attached,
            Detached: lambda event: self._fail(f"{event.link!r} was detached: {event.error}"),
            Opened: lambda _: self._tick(),
            SessionEnded: lambda event: self._fail(f"the session was ended: {event.error}"),
            Closed: lambda event: self._fail(f"the connection was closed: {event.error}"),
            ConnectionFailed: lambda event: self._fail(f"the connection failed: {event.error}"),
        }

    @classmethod
    async def connect(
        cls, namespace: AnnouncedNamespace, name: str, *, idle_timeout: float | None = None
    ) -> LoopbackClient:
        """Connect and show a token for the whole namespace. Raises BenchError.

        idle_timeout: seconds within which the namespace has to be heard; it sends empty frames to that end.
        """
        client = await cls.connect_anonymously(namespace.amqp_port, name, idle_timeout=idle_timeout)
        await client._authorize(namespace)
        return client

    @classmethod
    async def connect_anonymously(cls, port: int, name: str, *, idle_timeout: float | None = None) -> LoopbackClient:
        """Connect, and show nothing. Raises BenchError."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER):
                _, client = await loop.create_connection(lambda: cls(name, idle_timeout=idle_timeout), HOST, port)
        except (OSError, TimeoutError) as error:
            raise BenchError(f"there is no connection to be had on port {port}: {error}") from error
        return client

    # ------------------------------------------------------------------ the transport's side

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

    # ------------------------------------------------------------------ what loads use

    async def sender(self, path: str) -> SenderLink:
        """A link into a queue. Raises BenchError."""
        link = self.session.attach_sender(f"to {path}", Source(address="bench"), Target(address=path))
        await self._attached(link)
        return link

    async def receiver(self, path: str) -> ReceiverLink:
        """A link out of a queue, peek-lock, without credit. Raises BenchError."""
        link = self.session.attach_receiver(
            f"from {path}", Source(address=path), Target(address="bench"), settle_modes=(0, 1)
        )
        await self._attached(link)
        return link

    async def until(self, done: asyncio.Future[Value], seconds: float = ANSWER) -> Value:
        """The result of `done`. Raises BenchError if the connection fails first, or it takes too long."""
        await asyncio.wait((done, self._lost), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if done.done():
            return done.result()
        done.cancel()
        self.check()
        raise BenchError(f"the sandbox did not do within {seconds:g} s what it was asked")

    def flush(self) -> None:
        """Write what there is to say."""
        data = self._amqp.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)

    def check(self) -> None:
        """Raise BenchError if the connection or a link of it has ended."""
        if self._lost.done():
            self._lost.result()

    def close(self) -> None:
        """Drop the connection, now."""
        self._is_closing = True
        self._lost.cancel()
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------------ inside

    async def _authorize(self, namespace: AnnouncedNamespace) -> None:
        sender, receiver = await self.sender(_CBS), await self.receiver(_CBS)
        receiver.flow(1)
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.on_delivery = lambda event: answered.set_result(event.payload)
        audience = f"sb://{HOST}"
        token = sign(audience, namespace.key_name, namespace.key, time.time() + _TOKEN_SECONDS)
        request = Sections(
            properties=write_properties(Properties(message_id="token")),
            application_properties=write_application_properties(
                {"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": audience}
            ),
            body=write_value(token),
        )
        sender.send(request.join(), tag=b"token", settled=True)
        self.flush()
        reply = read_map(split(await self.until(answered)).application_properties)
        if reply.get("status-code") not in _ACCEPTED:
            raise BenchError(f"the sandbox refused its own key: {reply}")
        self.on_delivery = _ignored

    async def _attached(self, link: LinkEnd) -> None:
        answered = self._attaching[link] = asyncio.get_running_loop().create_future()
        self.flush()
        await self.until(answered)

    def _on_attached(self, event: Attached) -> None:
        if event.attach.source is not None or event.attach.target is not None:  # null ones: the refusal follows
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
    """Of no interest to the load at hand."""


def _nothing() -> None:
    """Nobody waits to write."""
