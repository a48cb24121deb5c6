"""A server's connection above a backend that raises, hangs or answers twice: it costs the client of that link alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from servicebus_amqp.encoding.performatives import ACCEPTED, RELEASED, Error, Source, Target
from servicebus_amqp.nodes.request_ends import AmqpRefusal, StrangerLimits
from servicebus_amqp.protocol import links as e
from servicebus_amqp.protocol.connection_settings import SaslCode
from servicebus_amqp.server.server_connection import DEFAULT_LIMITS, KeyBudget, KeyBudgets, ServedLink, ServerConnection
from tests.amqp.plain_client import LiveClient

PATIENCE = 60.0
REFUSED = Error(condition="amqp:not-allowed", description="no")


class Inbox(ServedLink):
    """A link that answers each message by `act`."""

    resource = ""

    def __init__(self, act: Callable[[Any], None]) -> None:
        self._act = act

    def on_delivery(self, event: e.DeliveryReceived) -> None:
        self._act(event)


def fail(_: Any) -> None:
    raise RuntimeError("the backend failed")


def accept(event: e.DeliveryReceived) -> None:
    event.link.answer(event.delivery_id, ACCEPTED)


def accept_then_release(event: e.DeliveryReceived) -> None:
    accept(event)
    event.link.answer(event.delivery_id, RELEASED)


ATTACHES: dict[str, Callable[[Any], None]] = {
    "attach raises": fail,
    "attach hangs": lambda _: None,
    "accepted twice": lambda event: (event.link.accept_attach(), event.link.accept_attach()),
    "accepted and refused": lambda event: (event.link.accept_attach(), event.link.refuse(REFUSED)),
    "refused and accepted": lambda event: (event.link.refuse(REFUSED), event.link.accept_attach()),
}
DELIVERIES: dict[str, Callable[[Any], None]] = {
    "good": accept,
    "delivery raises": fail,
    "delivery hangs": lambda _: None,
    "delivery answered twice": accept_then_release,
}


class Served(ServerConnection[Inbox], asyncio.Protocol):
    """A connection whose links do what their address says."""

    def __init__(self, served: list[Served]) -> None:
        super().__init__("server", StrangerLimits(octets=2**20, sessions=10, links=10))
        served.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.process(data)
        self.touch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lose()

    def now(self) -> float:
        return 0.0

    def judge_key(self, name: str, key: str) -> SaslCode | None:
        return SaslCode.OK

    def attach(self, event: e.AttachRequested) -> None:
        address = str(event.target.address) if isinstance(event.target, Target) else ""
        if address in ATTACHES:
            ATTACHES[address](event)
            return
        event.link.accept_attach()
        self.links[event.link] = Inbox(DELIVERIES[address])
        cast(e.ReceiverLink, event.link).flow(10)

    def on_opened(self, event: e.Opened) -> None:
        """Nothing to note."""

    def on_admitted(self, key: str) -> KeyBudget:
        return KeyBudgets().budget_of(key, DEFAULT_LIMITS)

    def report(self, kind: str, refusal: AmqpRefusal) -> None:
        raise AssertionError(f"no refusal was expected: {refusal}")

    def touch(self) -> None:
        if self._transport is not None:
            self._transport.write(self._amqp.data_to_send())

    def finish(self) -> None:
        if self._transport is not None:
            self.touch()
            self._transport.close()


class Client(LiveClient):
    async def wait(self, find: Callable[[], Any]) -> Any:
        async with asyncio.timeout(PATIENCE):
            while not (found := find()):
                self.changed.clear()
                await self.changed.wait()
        return found

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def send(self, address: str) -> e.SenderLink:
        """Attach a link and pass a message to it, which leaves with the first credit."""
        link = self.session.attach_sender(f"to {address}", Source(address="here"), Target(address=address))
        link.send(b"\x00\x53\x75\xa0\x01x", tag=b"t")
        self.flush()
        return link


class Place:
    def __init__(self, port: int, served: list[Served], errors: list[dict[str, Any]]) -> None:
        self.port, self.served, self.errors = port, served, errors

    async def client(self, name: str) -> Client:
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(lambda: Client(name, "any.example"), "127.0.0.1", self.port)
        await client.wait(lambda: client.of(e.SessionBegun))
        return client


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    loop, served, errors = asyncio.get_running_loop(), list[Served](), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    server = await loop.create_server(lambda: Served(served), "127.0.0.1", 0)
    try:
        yield Place(server.sockets[0].getsockname()[1], served, errors)
    finally:
        server.close()
        for each in served:
            if each._transport is not None:
                each._transport.abort()


async def check_others_are_served(at: Place, other: Client) -> None:
    for client in (other, await at.client("late")):
        await client.send("good")
        await client.wait(lambda client=client: client.of(e.DispositionReceived))
        assert [event.state for event in client.of(e.DispositionReceived)] == [ACCEPTED]


@pytest.mark.parametrize("address", ["attach raises", "accepted twice", "accepted and refused", "delivery raises"])
async def test_an_error_of_the_backend_ends_its_clients_connection_alone(address: str) -> None:
    async with place() as at:
        other, client = await at.client("other"), await at.client("client")
        await client.send(address)
        await client.wait(lambda: client.is_lost)
        assert [type(context["exception"]).__name__ for context in at.errors] == [
            "RuntimeError" if address.endswith("raises") else "StateError"
        ]
        assert [bool(each.links) for each in at.served] == [False, False]
        await check_others_are_served(at, other)


@pytest.mark.parametrize("address", ["attach hangs", "delivery hangs"])
async def test_a_backend_that_hangs_holds_nobody_and_its_client_can_leave(address: str) -> None:
    async with place() as at:
        other, client = await at.client("other"), await at.client("client")
        await client.send(address)
        await check_others_are_served(at, other)
        assert not client.is_lost
        assert not client.of(e.DispositionReceived)
        client.amqp.close()
        client.flush()
        await client.wait(lambda: client.of(e.Closed) and client.is_lost)
        assert not at.served[1].links
        assert not at.errors


async def test_of_two_answers_to_a_message_the_first_counts() -> None:
    async with place() as at:
        other, client = await at.client("other"), await at.client("client")
        await client.send("delivery answered twice")
        await client.wait(lambda: client.of(e.DispositionReceived))
        await check_others_are_served(at, other)
        assert [event.state for event in client.of(e.DispositionReceived)] == [ACCEPTED]
        assert not at.errors


async def test_a_link_that_was_refused_cannot_be_accepted() -> None:
    async with place() as at:
        other, client = await at.client("other"), await at.client("client")
        await client.send("refused and accepted")
        (detached,) = await client.wait(lambda: client.of(e.Detached))
        assert detached.error == REFUSED
        await check_others_are_served(at, other)
        assert not at.errors
