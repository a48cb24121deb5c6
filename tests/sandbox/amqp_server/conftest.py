"""A namespace on a loopback port, in this process, and the SDK's clients on it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

import pytest
from azure.servicebus.aio import ServiceBusClient

from servicebus_amqp.access import sign
from servicebus_amqp.encoding.codec import Symbol
from servicebus_amqp.encoding.message_sections import (
    Properties,
    Sections,
    read_map,
    read_properties,
    read_value,
    split,
    write_application_properties,
    write_properties,
    write_value,
)
from servicebus_amqp.encoding.performatives import Accepted, Source, Target
from servicebus_amqp.protocol.connection import Connection
from servicebus_amqp.protocol.connection_settings import ConnectionRole, ConnectionSettings
from servicebus_amqp.protocol.links import (
    Attached,
    DeliveryReceived,
    Detached,
    DispositionReceived,
    Event,
    FlowReceived,
    SessionBegun,
)
from servicebus_sandbox.access.authorization import root_rule
from servicebus_sandbox.amqp_server.namespace_server import NamespaceServer
from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.specs import NamespaceSpec

KEY_NAME, KEY = "Root", "a key"


class Clock:
    """The time of day, set forward by `ahead` seconds."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


class Port:
    """A node that listens."""

    def __init__(self, node: NamespaceServer, clock: Clock, port: int) -> None:
        self.node = node
        self.clock = clock
        self.number = port

    def jump(self, duration: timedelta) -> None:
        """Set the namespace's clock forward; clients keep theirs."""
        self.clock.ahead += duration.total_seconds()
        self.node.clock_jumped()

    @property
    def namespace(self):
        return self.node.namespace

    @property
    def connection_string(self) -> str:
        return self.connection_string_for(KEY_NAME, KEY)

    def connection_string_for(self, name: str, key: str) -> str:
        return (
            f"Endpoint=sb://127.0.0.1:{self.number};SharedAccessKeyName={name};SharedAccessKey={key};"
            "UseDevelopmentEmulator=true"
        )

    def client(self, **options) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.connection_string, **{"retry_total": 0, **options})

    def counts(self, path: str):
        return self.namespace.entity(path).counts()

    async def until(self, condition, seconds: float = 60.0) -> None:
        """Wait until a condition holds; fails by name when it does not."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)


@asynccontextmanager
async def open_port(node: NamespaceServer, clock: Clock) -> AsyncIterator[Port]:
    server = await asyncio.get_running_loop().create_server(node.protocol, "127.0.0.1", 0)
    try:
        yield Port(node, clock, server.sockets[0].getsockname()[1])
    finally:
        server.close()
        node.close()


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    """A namespace with two queues, a session queue, and a topic with two subscriptions."""
    clock = Clock()
    node = NamespaceServer(NamespaceSpec("contoso", rules=[root_rule(KEY_NAME, KEY)]), clock=clock)
    namespace = node.namespace
    namespace.create_queue("orders")
    namespace.create_queue("copies")
    namespace.create_queue("payments", QueueSettings(requires_session=True))
    namespace.create_topic("audit")
    namespace.create_subscription("audit", "all")
    namespace.create_subscription("audit", "more")
    async with open_port(node, clock) as opened, asyncio.timeout(60):
        yield opened


@pytest.fixture
async def client(port):
    async with port.client() as opened:
        yield opened


class Peer(asyncio.Protocol):
    """A client that speaks AMQP itself, for what the SDK never does."""

    def __init__(self, **settings) -> None:
        named = {"properties": {Symbol("product"): "a client"}} | settings
        asked = ConnectionSettings(container_id="peer", hostname="127.0.0.1", **named)
        self.amqp = Connection(role=ConnectionRole.CLIENT, settings=asked)
        self.events: list[Event] = []
        self.history: list[Event] = []
        self.arrived = asyncio.Event()
        self.is_lost = False
        self.tokens = 0

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.amqp.open()
        self.session = self.amqp.begin()
        self.flush()

    def data_received(self, data: bytes) -> None:
        events = self.amqp.receive_data(data)
        self.events += events
        self.history += events
        self.flush()
        self.arrived.set()

    def connection_lost(self, exc) -> None:
        self.is_lost = True
        self.arrived.set()

    def flush(self) -> None:
        self.transport.write(self.amqp.data_to_send())

    async def next(self, kind, seconds: float = 60.0):
        """The next event of this kind; it and all before it are taken."""
        async with asyncio.timeout(seconds):
            while True:
                for index, event in enumerate(self.events):
                    if isinstance(event, kind):
                        del self.events[: index + 1]
                        return event
                assert not self.is_lost, f"the connection was lost while waiting for {kind.__name__}"
                self.arrived.clear()
                await self.arrived.wait()

    async def lost(self, seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not self.is_lost:
                self.arrived.clear()
                await self.arrived.wait()

    def sender(self, address: str, **attach):
        link = self.session.attach_sender(f"to {address}", Source(address="here"), Target(address=address), **attach)
        self.flush()
        return link

    def receiver(self, address: str, source: Source | None = None, **attach):
        source = source or Source(address=address)
        link = self.session.attach_receiver(f"from {address}", source, Target(address="here"), **attach)
        self.flush()
        return link

    async def attached(self, link):
        """The link, once the server has answered; raises Refused with its error if it refused."""
        answer = (await self.next(Attached)).attach
        assert answer.name == link.name
        if answer.source is None and answer.target is None:
            raise Refused((await self.next(Detached)).error)
        return link

    def send(self, link, data: bytes, **options) -> None:
        link.send(data, tag=b"t%d" % len(self.events), **options)
        self.flush()

    async def outcome(self, link, data: bytes, **options):
        """Send a message; the state it is settled with. A refusal is unsettled first."""
        self.send(link, data, **options)
        answer = await self.next(DispositionReceived)
        if not isinstance(answer.state, Accepted):
            assert not answer.settled
            assert (await self.next(DispositionReceived)) == answer._replace(settled=True)
        return answer.state

    async def request(self, address: str, properties: dict, body, *, reply_to: str | None = None, message_id=None):
        """One request on links of its own: the reply's application properties and value."""
        sender = await self.attached(self.sender(address))
        await self.next(FlowReceived)
        receiver = await self.attached(self.receiver(address))
        receiver.flow(10)
        self.tokens += 1
        asked = f"request {self.tokens}" if message_id is None else message_id
        message = Sections(
            properties=write_properties(Properties(message_id=asked, reply_to=reply_to)),
            application_properties=write_application_properties(properties),
            body=write_value(body),
        )
        self.send(sender, message.join())
        reply = split((await self.next(DeliveryReceived)).payload)
        answered = read_properties(reply.properties).correlation_id
        assert (type(answered), answered) == (type(asked), asked)
        sender.detach()
        receiver.detach()
        self.flush()
        return read_map(reply.application_properties), read_value(reply.body)

    async def put_token(self, audience: str, token: str) -> tuple[int, str]:
        properties = {"operation": "put-token", "type": "jwt", "name": audience}
        answer, _ = await self.request("$cbs", properties, token)
        return answer["status-code"], answer["status-description"]

    async def authorize(self, path: str, seconds: float = 3600.0) -> None:
        audience = f"sb://127.0.0.1/{path}"
        assert (await self.put_token(audience, sign(audience, KEY_NAME, KEY, time.time() + seconds)))[0] == 202


class Refused(Exception):
    """The server refused a link."""

    def __init__(self, error) -> None:
        super().__init__(error.condition, error.description)
        self.condition = error.condition
        self.description = error.description


@pytest.fixture
async def connect(port):
    """Opens connections of peers; they end with the test."""
    opened = []

    async def connect(to: Port = port, kind: type[Peer] = Peer, **settings) -> Peer:
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_connection(partial(kind, **settings), "127.0.0.1", to.number)
        opened.append(peer)
        await peer.next(SessionBegun)
        return peer

    yield connect
    for peer in opened:
        peer.transport.abort()


@pytest.fixture
async def peer(connect):
    return await connect()


@pytest.fixture
def refused():
    return Refused
