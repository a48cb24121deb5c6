"""A gateway over a pairing of one dictionary, and a client of bare AMQP that does what a test wants, right or wrong."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from paired_servicebus.core.errors import WireLinkError
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing, LocalKey, new_key
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from paired_servicebus.pairing.sending.encoded_sender import GivenIds, read_payload
from servicebus_amqp.access import sign
from servicebus_amqp.encoding.message_sections import (
    Properties,
    Sections,
    read_map,
    split,
    write_application_properties,
    write_data,
    write_properties,
    write_value,
)
from servicebus_amqp.encoding.performatives import Coordinator, DeliveryState, Error, Source, Target
from servicebus_amqp.protocol import links as e
from servicebus_amqp.protocol.links import ReceiverLink, SenderLink
from tests.amqp.plain_client import LiveClient

PATIENCE = 60.0
SEND, LISTEN = new_key("web", [GatewayRight.SEND]), new_key("reader", [GatewayRight.LISTEN])
T = TypeVar("T")


class FakeWire:
    """A connection to a primary without writes of its own."""

    def __init__(self) -> None:
        self.after_read: list[object] = []

    def hold(self) -> None:
        return None


@dataclass
class FakePairing:
    """A pairing whose primary has these entities. failure, hold: of sends. away, answer: of questions for an entity."""

    entities: dict[str, tuple[int, int]] = field(default_factory=lambda: {"orders": (262_144, 262_144)})
    failure: Exception | None = None
    diverting: dict[str, bool] = field(default_factory=dict)
    away: Exception | None = None
    asked: list[str] = field(default_factory=list)
    hold: asyncio.Event | None = None
    answer: asyncio.Event | None = None
    limits: tuple[int, int] | None = None

    async def find_entity(self, path: str, timeout: float) -> tuple[int, int]:
        assert timeout <= 5, "an unknown entity is asked for within 5 s"
        self.asked.append(path)
        if self.answer is not None:
            await self.answer.wait()
        if self.away is not None:
            raise self.away
        if path.lower() not in self.entities:
            raise WireLinkError(f"{path} refused a link", "amqp:not-found")
        return self.entities[path.lower()]

    def delivery_receipts(self, path: str) -> None:
        """Of no receiver here."""

    def is_diverting(self, path: str) -> bool | None:
        return self.diverting.get(path)

    def get_encoded_sender(self, path: str) -> Any:
        return self

    @property
    def wire(self) -> Any:
        return FakeWire()

    def go_straight(self, *_: object, **__: object) -> bool:
        return False

    async def send(
        self, data: bytes, message_format: int = 0, *, timeout: float | None = None, act: None = None
    ) -> None:
        if self.hold is not None:
            await self.hold.wait()
        if self.failure is not None:
            raise self.failure
        assert timeout == 25, "outcomes come within 25 s"
        read_payload(data, message_format, GivenIds())


@asynccontextmanager
async def gateway_of(
    pairing: FakePairing | None = None, *keys: LocalKey, clock: Callable[[], float] = time.time, **options: Any
) -> AsyncIterator[Gateway]:
    gateway = Gateway(cast(Any, pairing or FakePairing()), KeyRing(keys or [SEND, LISTEN]), clock=clock, **options)
    await gateway.listen(0)
    try:
        yield gateway
    finally:
        await gateway.close(0)


class RoughClient(LiveClient):
    """One connection. events: all that came, in order."""

    def __init__(self) -> None:
        super().__init__("rough", "any.example")

    async def wait(self, find: Callable[[], T | None]) -> T:
        """Return what `find` finds, as soon as it does. Raises ConnectionError if the connection ends first."""
        async with asyncio.timeout(PATIENCE):
            while (found := find()) is None:
                if self.is_lost:
                    raise ConnectionError("the gateway closed the connection")
                self.changed.clear()
                await self.changed.wait()
        return found

    async def until_lost(self) -> Error | None:
        """Wait for the end of the connection; return the error of its close, if there was one."""
        with suppress(ConnectionError):
            await self.wait(lambda: None)
        closed = [event.error for event in self.events if isinstance(event, e.Closed | e.ConnectionFailed)]
        return closed[-1] if closed else None

    # -- tokens -----------------------------------------------------------------------------------------------------

    def cbs_pair(self, name: str = "cbs") -> tuple[SenderLink, ReceiverLink]:
        replies = self.session.attach_receiver(f"{name} in", Source(address="$cbs"), Target(address=f"{name} in"))
        replies.flow(100)
        requests = self.session.attach_sender(f"{name} out", Source(address=f"{name} out"), Target(address="$cbs"))
        self.flush()
        return requests, replies

    async def put_token(
        self, audience: Any, token: Any, pair: tuple[SenderLink, ReceiverLink] | None = None
    ) -> dict[str, Any]:
        """Put a token; return the reply's application properties."""
        requests, replies = pair or self.cbs_pair(f"cbs {len(self.events)}")
        await self.wait(lambda: requests.credit or None)
        properties = {"operation": "put-token", "type": "jwt", "name": audience}
        requests.send(request(properties, token, reply_to=replies.name), tag=b"t")
        self.flush()
        return await self.wait(lambda: self.reply_on(replies))

    def reply_on(self, replies: ReceiverLink) -> dict[str, Any] | None:
        for event in self.events:
            if isinstance(event, e.DeliveryReceived) and event.link is replies:
                self.events.remove(event)
                return dict(read_map(split(event.payload).application_properties))
        return None

    async def prove(self, gateway: Gateway, key: LocalKey = SEND, path: str = "", seconds: float = 600.0) -> None:
        """Put a good token of this key."""
        audience = f"sb://127.0.0.1:{gateway.port}/{path}"
        reply = await self.put_token(audience, sign(audience, key.name, key.key, gateway.clock() + seconds))
        assert reply["status-code"] == 202, reply

    async def ask(self, address: str, operation: str, body: Any) -> dict[str, Any]:
        """Send one request to a management node; return the reply's application properties."""
        replies = self.session.attach_receiver(f"{operation} in", Source(address=address), Target(address="in"))
        replies.flow(10)
        requests = await self.attach(address)
        requests.send(request({"operation": operation}, body, reply_to=replies.name), tag=b"r")
        self.flush()
        return await self.wait(lambda: self.reply_on(replies))

    # -- senders ----------------------------------------------------------------------------------------------------

    async def attach(self, address: Any, **options: Any) -> SenderLink:
        """Attach a sender. Raises Refused."""
        target = address if isinstance(address, Coordinator) else Target(address=address)
        link = self.session.attach_sender(f"s {time.perf_counter_ns()}", Source(address="x"), target, **options)
        self.flush()
        await self.wait(lambda: self.detach_of(link) or (link.is_attached and link.credit) or None)
        detach = self.detach_of(link)
        if detach is not None:
            assert detach.closed, "SDKs take a detach without closed for a pause"
            raise Refused(detach.error)
        return link

    def detach_of(self, link: Any) -> e.Detached | None:
        return next((event for event in self.events if isinstance(event, e.Detached) and event.link is link), None)

    async def send(
        self, link: SenderLink, payload: bytes = b"", message_format: int = 0, **options: Any
    ) -> DeliveryState | None:
        """Send one message; return its outcome."""
        tag = time.perf_counter_ns().to_bytes(8, "big")
        link.send(payload or message(b"x"), tag=tag, message_format=message_format, **options)
        self.flush()

        def outcome() -> e.DispositionReceived | None:
            kind = e.DispositionReceived
            return next((event for event in self.events if isinstance(event, kind) and event.tag == tag), None)

        return (await self.wait(outcome)).state


class Refused(Exception):
    """A link that the gateway refused."""

    def __init__(self, error: Error | None) -> None:
        assert error is not None, "each refusal has a reason"
        super().__init__(f"{error.condition}: {error.description}")
        self.condition = error.condition
        self.description = error.description


@asynccontextmanager
async def client_of(gateway: Gateway) -> AsyncIterator[RoughClient]:
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(RoughClient, "127.0.0.1", gateway.port)
    try:
        yield client
    finally:
        client.transport.abort()


@asynccontextmanager
async def raw_socket(gateway: Gateway) -> AsyncIterator[socket.socket]:
    loop = asyncio.get_running_loop()
    with socket.socket() as plain:
        plain.setblocking(False)
        await loop.sock_connect(plain, ("127.0.0.1", gateway.port))
        yield plain


async def read_all(plain: socket.socket) -> bytes:
    """Return all bytes until the end of the connection; those before a reset as well."""
    loop, found = asyncio.get_running_loop(), b""
    async with asyncio.timeout(PATIENCE):
        with suppress(ConnectionError):
            while data := await loop.sock_recv(plain, 65536):
                found += data
    return found


def request(properties: dict[str, Any], body: Any, *, reply_to: str = "") -> bytes:
    return Sections(
        properties=write_properties(Properties(message_id="m", reply_to=reply_to or None)),
        application_properties=write_application_properties(properties),
        body=write_value(body),
    ).join()


def message(body: bytes, **properties: Any) -> bytes:
    return Sections(
        properties=write_properties(Properties(message_id="m")),
        application_properties=write_application_properties(properties) if properties else b"",
        body=write_data(body),
    ).join()
