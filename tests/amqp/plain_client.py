"""A client that authenticates by SASL PLAIN and puts no token, as Qpid JMS, go-amqp and rhea do with a password."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from servicebus_amqp.encoding.frames import SASL_FRAME, SASL_HEADER, build_frame
from servicebus_amqp.encoding.message_sections import Properties, Sections, write_data, write_properties
from servicebus_amqp.encoding.performatives import (
    DeliveryState,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    read_sasl,
    write_performative,
)
from servicebus_amqp.protocol import links as e
from servicebus_amqp.protocol.connection import Connection, Session
from servicebus_amqp.protocol.connection_settings import ConnectionRole, ConnectionSettings

PATIENCE = 60.0
MESSAGE = Sections(properties=write_properties(Properties(message_id="m")), body=write_data(b"x")).join()
T = TypeVar("T")


def init(response: bytes | None, mechanism: str = "PLAIN") -> bytes:
    performative = SaslInit(mechanism=mechanism, initial_response=response, hostname="any.example")
    return build_frame(0, write_performative(performative), SASL_FRAME)


def response(name: str, key: str) -> bytes:
    return f"\0{name}\0{key}".encode()


class LiveClient(asyncio.Protocol):
    """A client with one session, on a socket. events: all that came, in order. changed: is set when more has come."""

    def __init__(self, name: str, hostname: str) -> None:
        settings = ConnectionSettings(container_id=name, hostname=hostname, max_message_size=None)
        self.amqp = Connection(role=ConnectionRole.CLIENT, settings=settings)
        self.session: Session
        self.events: list[Any] = []
        self.changed = asyncio.Event()
        self.is_lost = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.amqp.open()
        self.session = self.amqp.begin()
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.events += self.amqp.receive_data(data)
        self.flush()
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.changed.set()

    def flush(self) -> None:
        self.transport.write(self.amqp.data_to_send())


class PlainClient:
    """One connection. offered, outcome: of its SASL layer; None: the server closed without one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.offered: SaslMechanisms | None = None
        self.outcome: SaslOutcome | None = None
        settings = ConnectionSettings(container_id="plain", hostname="any.example", sasl=False)
        self._amqp = Connection(role=ConnectionRole.CLIENT, settings=settings)
        self.events: list[Any] = []

    async def authenticate(self, frames: bytes) -> None:
        self._writer.write(SASL_HEADER + frames)
        async with asyncio.timeout(PATIENCE):
            try:
                assert await self._reader.readexactly(len(SASL_HEADER)) == SASL_HEADER
                self.offered = await self._sasl()
                self.outcome = await self._sasl()
            except (asyncio.IncompleteReadError, ConnectionError):
                return

    async def is_closed(self) -> bool:
        """Wait for the server's end of the connection."""
        async with asyncio.timeout(PATIENCE):
            try:
                await self._reader.read()
            except ConnectionError:
                pass
        return True

    async def _sasl(self) -> Any:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        rest = await self._reader.readexactly(size - 4)
        return read_sasl(rest[4:], 0)[0]

    def open(self) -> None:
        self._amqp.open()
        self.session = self._amqp.begin()
        self._flush()

    async def send(self, address: str) -> DeliveryState | None:
        """Send one message; return its outcome. Raises AssertionError with the reason of a refused link."""
        link = self.session.attach_sender(f"to {address}", Source(address="here"), Target(address=address))
        self._flush()
        detached = await self._until(lambda: self._detach(link) or (link.credit and "attached") or None)
        assert detached == "attached", str(detached.error)
        link.send(MESSAGE, tag=b"t")
        self._flush()
        event = await self._until(lambda: next((x for x in self.events if isinstance(x, e.DispositionReceived)), None))
        return event.state

    async def attach_receiver(self, address: str) -> e.Attached | e.Detached:
        """Attach a receiver; return the refusal, or the answer if there is none."""
        link = self.session.attach_receiver(f"from {address}", Source(address=address), Target(address="here"))
        self._flush()

        def answer() -> Any:
            found = [x for x in self.events if isinstance(x, e.Attached) and x.link is link]
            return self._detach(link) or (found[0] if found and found[0].attach.source is not None else None)

        return await self._until(answer)

    def _detach(self, link: Any) -> Any:
        return next((x for x in self.events if isinstance(x, e.Detached) and x.link is link), None)

    def _flush(self) -> None:
        self._writer.write(self._amqp.data_to_send())

    async def _until(self, find: Callable[[], T | None]) -> T:
        async with asyncio.timeout(PATIENCE):
            while (found := find()) is None:
                data = await self._reader.read(65536)
                assert data, "the server closed the connection"
                self.events += self._amqp.receive_data(data)
                self._flush()
        return found


@asynccontextmanager
async def plain_client(port: int, frames: bytes) -> AsyncIterator[PlainClient]:
    """Connect to a port of this machine and send frames of the SASL layer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = PlainClient(reader, writer)
    try:
        await client.authenticate(frames)
        yield client
    finally:
        writer.transport.abort()


WRONG = (
    ("another key's name", response("other", "right")),
    ("a wrong key", response("web", "wrong")),
    ("an empty key", response("web", "")),
    ("no response", None),
    ("an empty response", b""),
    ("no NUL", b"webright"),
    ("one NUL", b"web\0right"),
    ("NULs alone", b"\0\0"),
    ("many NULs", b"\0" * 100),
    ("a NUL in the key", b"\0web\0ri\0ght"),
    ("a NUL behind the key", b"\0web\0right\0"),
    ("another identity", b"other\0web\0right"),
    ("no UTF-8", b"\0web\0\xff\xfe"),
    ("a name of 400 characters", response("w" * 400, "right")),
)
"""Responses of PLAIN that a server with the key "right" of the name "web" refuses."""
