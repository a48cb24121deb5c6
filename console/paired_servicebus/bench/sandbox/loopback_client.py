"""A client on the project's own AMQP over asyncio: a connection, a session, links, a handler for each kind of event.

The loads (`client_loads`) send and receive. A lost connection or a detached link fails every waiting load, so that no
measurement continues with a part of its links.
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
from servicebus_amqp.encoding.messaging_types import Source, Target
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
from servicebus_sandbox.access.authorization import sign

HOST: Final = "127.0.0.1"
ANSWER: Final = 30.0
"""Seconds for one answer of the namespace on a busy machine."""
_CBS: Final = "$cbs"
_TOKEN_SECONDS: Final = 3600
_ACCEPTED: Final = range(200, 300)

Value = TypeVar("Value")
Handler = Callable[[Any], None]


class LoopbackClient(asyncio.Protocol):
    """One connection. A load sets `on_outcome`, `on_delivery`, `on_flow` and `on_writable`."""

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
        """Connect and put a token for the whole namespace. Raises BenchError.

        idle_timeout: the AMQP idle timeout in seconds; the namespace sends empty frames within it.
        """
        client = await cls.connect_anonymously(namespace.amqp_port, name, idle_timeout=idle_timeout)
        await client._authorize(namespace)
        return client

    @classmethod
    async def connect_anonymously(cls, port: int, name: str, *, idle_timeout: float | None = None) -> LoopbackClient:
        """Connect without a token. Raises BenchError."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER):
                _, client = await loop.create_connection(lambda: cls(name, idle_timeout=idle_timeout), HOST, port)
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

    async def receiver(self, path: str) -> ReceiverLink:
        """Attach a peek-lock receiver without credit. Raises BenchError."""
        link = self.session.attach_receiver(
            f"from {path}", Source(address=path), Target(address="bench"), settle_modes=(0, 1)
        )
        await self._attached(link)
        return link

    async def until(self, done: asyncio.Future[Value], seconds: float = ANSWER) -> Value:
        """Return the result of `done`. Raises BenchError after `seconds`, or if the connection fails first."""
        await asyncio.wait((done, self._lost), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if done.done():
            return done.result()
        done.cancel()
        self.check()
        raise BenchError(f"the sandbox did not answer within {seconds:g} s")

    def flush(self) -> None:
        """Write pending output."""
        data = self._amqp.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)

    def check(self) -> None:
        """Raise BenchError if the connection or one of its links has ended."""
        if self._lost.done():
            self._lost.result()

    def close(self) -> None:
        """Abort the connection."""
        self._is_closing = True
        self._lost.cancel()
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------------ internals

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
