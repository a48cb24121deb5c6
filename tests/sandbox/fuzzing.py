"""Attacks on an AMQP port, drawn at random: what a hostile or broken client may send to a namespace or a gateway."""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
from tests.amqp.plain_client import LiveClient
from tests.stage.poison_kinds import damage, kinds
from yarl import URL

from servicebus_amqp.access import sign
from servicebus_amqp.encoding.codec import Symbol
from servicebus_amqp.encoding.frames import AMQP_HEADER, SASL_HEADER, build_frame
from servicebus_amqp.encoding.message_sections import (
    Properties,
    Sections,
    write_application_properties,
    write_properties,
    write_value,
)
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    RELEASED,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Source,
    Target,
    TransactionalState,
    write_composite,
)
from servicebus_amqp.protocol.connection import Connection
from servicebus_amqp.protocol.connection_settings import ConnectionRole, ConnectionSettings
from servicebus_amqp.protocol.links import FlowReceived, SessionBegun
from servicebus_amqp.protocol_errors import AmqpError, StateError
from servicebus_sandbox import Sandbox

BATCH_FORMAT = 0x80013700
POISON = list(kinds().values())
ADDRESSES = (
    *("$", "$nothing", "$cbs/x", "$management", "$Resources/queues", "", "/", "//", "a" * 3000, "/" * 3000, "ünï"),
    *("nothing", "victim", "victim/$management", "victim/$DeadLetterQueue", "victim/$Transfer/$DeadLetterQueue"),
    *("sessions", "feed", "feed/Subscriptions/all", "feed/Subscriptions/none", "victim/Subscriptions/x", "$cbs"),
)
OPERATIONS = (
    *("peek-message", "renew-lock", "receive-by-sequence-number", "update-disposition", "schedule-message"),
    *("cancel-scheduled-message", "get-session-state", "set-session-state", "renew-session-lock", "nothing"),
    *("get-message-sessions", "add-rule", "remove-rule", "enumerate-rules"),
)
ARGUMENTS = (
    *("from-sequence-number", "message-count", "lock-tokens", "sequence-numbers", "receiver-settle-mode", "messages"),
    *("disposition-status", "session-id", "session-state", "skip", "top", "last-updated-time", "properties-to-modify"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**31 - 1, -(2**31), "", "x" * 5000, b"", b"\xff" * 50, [], [1, "a", None], {}, {"a": {}}),
    *(1e308, "completed", "suspended", [{"message": b"\x00"}], [{"message": b"Sp"}], [{}], Symbol("s")),
)
BOMBS = (
    b"\x00" * 5000,  # described types within each other
    b"\xf0" + struct.pack(">II", 0xFFFFFFFF, 0xFFFFFFFF) + b"\x40",  # an array of four thousand million nulls
    b"\xf0" + struct.pack(">II", 5, 0x7FFFFFFF) + b"\x45",  # and of empty lists, its size in order
    b"\xd0" + struct.pack(">II", 0xFFFFFFFF, 0xFFFFFFFF),
    b"\xc0\xff\xff" + b"\x45" * 100,
    b"\xd1" + struct.pack(">II", 4, 3) + b"\x40",  # a map with half a pair
    b"\xa1\x04\xff\xfe\xfd\xfc",  # not UTF-8
    b"\xb1\xff\xff\xff\xff",
)


PATIENCE = 60.0


class Client(LiveClient):
    """A client that speaks AMQP well until it is told otherwise."""

    def __init__(self) -> None:
        super().__init__("fuzz", "127.0.0.1")

    def flush(self) -> None:
        with suppress(AmqpError):  # whoever sends nonsense is answered with things that make none
            super().flush()

    async def until(self, kind: type) -> bool:
        """Wait for an event of this kind; False if the connection is lost first."""
        while not self.is_lost:
            found = [event for event in self.events if isinstance(event, kind)]
            if found:
                self.events.clear()
                return True
            self.changed.clear()
            await self.changed.wait()
        return False


class FrameAttacker:
    """Draws attacks on a port that serves AMQP; every connection it opens, it closes.

    audience, key_name, key: for good tokens. tls: half of the attacks are encrypted with it.
    """

    def __init__(
        self, port: int, seed: int, *, audience: str, key_name: str, key: str, tls: ssl.SSLContext | None = None
    ) -> None:
        self.port = port
        self.draw = random.Random(seed)
        self.tls = tls
        self._audience = audience
        self._key_name = key_name
        self._key = key
        self.attacks: tuple[Callable[[], Awaitable[None]], ...] = (
            *(self.random_bytes, self.cut_handshake, self.mutated_conversation, self.hostile_frames),
            *(self.flood_of_attaches, self.flood_of_sessions, self.bad_tokens, self.bad_requests, self.bad_messages),
            *(self.poisoned_messages, self.bad_transactions),
        )

    # ------------------------------------------------------------------ ways in

    @asynccontextmanager
    async def stream(
        self, *, encrypted: bool, port: int | None
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        tls = self.tls if encrypted else None
        reader, writer = await asyncio.open_connection("127.0.0.1", port or self.port, ssl=tls)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        loop, tls = asyncio.get_running_loop(), self.tls if self.draw.random() < 0.3 else None
        _, client = await loop.create_connection(Client, "127.0.0.1", self.port, ssl=tls)
        try:
            if await client.until(SessionBegun):
                yield client
        finally:
            client.transport.abort()

    async def authorized(self, client: Client) -> None:
        token = sign(self._audience, self._key_name, self._key, time.time() + 600)
        await self.put_token(client, self._audience, token)

    async def put_token(self, client: Client, audience: Any, token: Any) -> None:
        link = client.session.attach_sender(f"cbs {self.draw.random()}", Source(address="x"), Target(address="$cbs"))
        client.flush()
        if await client.until(FlowReceived):
            properties = {"operation": "put-token", "type": "jwt", "name": audience}
            with suppress(StateError):  # the session may have ended since
                link.send(_request(properties, token), tag=b"t")
                link.detach()  # a connection has one sender to $cbs
                client.flush()

    async def sent(self, what: bytes, *, encrypted: bool, port: int | None = None) -> None:
        """Send it, in pieces or at once, and read what comes for a moment; the other side may cut at any time."""
        async with self.stream(encrypted=encrypted, port=port) as (reader, writer):
            with suppress(ConnectionError):
                middle = self.draw.randrange(len(what) + 1)
                for piece in (what[:middle], what[middle:]):
                    writer.write(piece)
                    await writer.drain()
                if self.draw.random() < 0.3:
                    writer.write_eof() if writer.can_write_eof() else None
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await reader.read(65536)

    def flip(self) -> bool:
        return self.draw.random() < 0.5

    # ------------------------------------------------------------------ attacks on frames

    async def random_bytes(self) -> None:
        start = self.draw.choice(
            (b"", b"AMQP", AMQP_HEADER, SASL_HEADER, b"\x16\x03\x01", b"GET ", b"PUT / HTTP/1.1\r\n")
        )
        await self.sent(start + self.draw.randbytes(self.draw.randrange(1, 4000)), encrypted=self.flip())

    async def cut_handshake(self) -> None:
        whole = conversation()
        await self.sent(whole[: self.draw.randrange(len(whole))], encrypted=self.flip())

    async def mutated_conversation(self) -> None:
        whole = bytearray(conversation())
        for _ in range(self.draw.randrange(1, 6)):
            at = self.draw.randrange(8, len(whole))
            match self.draw.randrange(3):
                case 0:
                    whole[at] = self.draw.randrange(256)
                case 1:
                    del whole[at : at + self.draw.randrange(1, 20)]
                case 2:
                    whole[at:at] = self.draw.randbytes(self.draw.randrange(1, 20))
        await self.sent(bytes(whole), encrypted=self.flip())

    async def hostile_frames(self) -> None:
        async with self.client() as client:
            for _ in range(self.draw.randrange(1, 20)):
                body = self.draw.choice(BOMBS)
                descriptor = bytes([0x00, 0x53, self.draw.randrange(0x10, 0x1A)])
                channel = self.draw.choice((0, 0, 1, 65535))
                frame = self.draw.choice(
                    (
                        build_frame(channel, descriptor + body),
                        build_frame(channel, descriptor + b"\xc0\x00\x00" + body),
                        build_frame(channel, descriptor + b"\x45"),
                        build_frame(channel, body, self.draw.randrange(256)),
                        struct.pack(">IBBH", 0xFFFFFFFF, 2, 0, 0) + bytes(100_000),
                        struct.pack(">IBBH", self.draw.randrange(12), self.draw.randrange(256), 0, 0),
                        build_frame(0, descriptor + b"\x45" + bytes(70_000)),
                    )
                )
                client.transport.write(frame)
            await self.settle(client)

    async def settle(self, client: Client) -> None:
        """Until the server has had its say, or had the time for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                while not client.is_lost:
                    client.changed.clear()
                    await client.changed.wait()

    # ------------------------------------------------------------------ attacks on links and nodes

    async def flood_of_attaches(self) -> None:
        async with self.client() as client:
            if self.flip():
                await self.authorized(client)
            for number in range(self.draw.randrange(1, 800)):
                address = self.draw.choice(ADDRESSES)
                name = f"link {number if self.flip() else 0}"
                with suppress(AmqpError):
                    if self.flip():
                        client.session.attach_sender(name, Source(address="x"), Target(address=address))
                    else:
                        wanted = {Symbol("com.microsoft:session-filter"): self.draw.choice(VALUES)}
                        source = Source(address=address, filter=wanted if self.flip() else None)
                        client.session.attach_receiver(name, source, Target(address="x")).flow(self.draw.randrange(9))
            client.flush()
            await self.settle(client)

    async def flood_of_sessions(self) -> None:
        async with self.client() as client:
            for _ in range(self.draw.randrange(1, 300)):
                client.amqp.begin()
            client.flush()
            await self.settle(client)

    async def bad_tokens(self) -> None:
        async with self.client() as client:
            for _ in range(20):
                token = self.draw.choice(
                    (*VALUES, "SharedAccessSignature sr=a&sig=b&se=1&skn=c", "a.b.c", "e30.e30.e30")
                )
                await self.put_token(client, self.draw.choice((*VALUES, *ADDRESSES, "sb://[::1", "sb://a:b/c")), token)
            await self.settle(client)

    async def bad_requests(self) -> None:
        async with self.client() as client:
            await self.authorized(client)
            node = self.draw.choice(("victim", "sessions", "feed", "feed/Subscriptions/all", "victim/$DeadLetterQueue"))
            link = client.session.attach_sender("m", Source(address="x"), Target(address=f"{node}/$management"))
            client.session.attach_receiver("r", Source(address=f"{node}/$management"), Target(address="x")).flow(50)
            client.flush()
            for number in range(self.draw.randrange(1, 40)):
                properties = {"operation": f"com.microsoft:{self.draw.choice(OPERATIONS)}"}
                body = {name: self.draw.choice(VALUES) for name in self.draw.sample(ARGUMENTS, 3)}
                request = _request(properties, body if self.draw.random() < 0.8 else self.draw.choice(VALUES))
                if self.draw.random() < 0.2:
                    request = self.draw.choice(BOMBS)
                link.send(request, tag=b"%d" % number)
            client.flush()
            await self.settle(client)

    async def bad_messages(self) -> None:
        async with self.client() as client:
            await self.authorized(client)
            link = client.session.attach_sender("s", Source(address="x"), Target(address="victim"))
            client.flush()
            for number in range(self.draw.randrange(1, 60)):
                part = self.draw.choice((b"\x00Sp", b"\x00Ss", b"\x00Su", b"\x00St", b"\x00Sr", b"\x00Sw", b""))
                payload = part + self.draw.choice((*BOMBS, b"\xc1\x01\x00", b"\xa0\x01x", self.draw.randbytes(50), b""))
                shape = {"message_format": BATCH_FORMAT} if self.flip() else {}
                link.send(payload, tag=b"%d" % number, settled=self.flip(), **shape)
            client.flush()
            await self.settle(client)

    async def poisoned_messages(self) -> None:
        async with self.client() as client:
            await self.authorized(client)
            link = client.session.attach_sender("s", Source(address="x"), Target(address="victim"))
            client.flush()
            for number in range(self.draw.randrange(1, 20)):
                sections = self.draw.choice(POISON) if self.flip() else damage(self.draw, POISON)
                link.send(sections.join(), tag=b"%d" % number, settled=self.flip())
            client.flush()
            await self.settle(client)

    async def bad_transactions(self) -> None:
        async with self.client() as client:
            await self.authorized(client)
            nodes = ("victim", "sessions", "feed", "$cbs", "victim/$management")
            targets = [Coordinator(), *(Target(address=node) for node in nodes)]
            self.draw.shuffle(targets)
            session = client.session
            links = [session.attach_sender(f"{at}", Source(address="x"), to) for at, to in enumerate(targets)]
            client.flush()
            for number in range(self.draw.randrange(1, 60)):
                name = self.draw.choice((None, b"", b"txn", self.draw.randbytes(30)))
                outcome = self.draw.choice((None, ACCEPTED, RELEASED))
                state = self.draw.choice(
                    (None, TransactionalState(txn_id=name, outcome=outcome), Declared(txn_id=b"x"))
                )
                body = self.draw.choice((Declare(), Discharge(txn_id=name, fail=self.flip()), ACCEPTED))
                payload = self.draw.choice((b"\x00Sw" + write_composite(body), *BOMBS))
                self.draw.choice(links).send(payload, tag=b"%d" % number, settled=self.flip(), state=state)
            client.flush()
            await self.settle(client)


def _request(properties: dict[str, Any], body: Any) -> bytes:
    return Sections(
        properties=write_properties(Properties(message_id="m", reply_to="r")),
        application_properties=write_application_properties(properties),
        body=write_value(body),
    ).join()


def conversation() -> bytes:
    """All that a well-behaved client says from its first byte to its first message."""
    client = Connection(role=ConnectionRole.CLIENT, settings=ConnectionSettings(container_id="c", hostname="h"))
    server = Connection(role=ConnectionRole.SERVER, settings=ConnectionSettings(container_id="s"))
    client.open()
    session = client.begin()
    session.attach_sender("s", Source(address="x"), Target(address="victim"))
    session.attach_receiver("r", Source(address="$cbs"), Target(address="x")).flow(10)
    said = bytearray()
    for _ in range(6):
        said += (data := client.data_to_send())
        server.receive_data(data)
        client.receive_data(server.data_to_send())
    return bytes(said)


# Attacks on a sandbox's port, drawn at random: what a hostile or broken client may send, on every entry there is.


ENTITIES = ("<x/>", "", "<a>" * 20_000, '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "<a", "\x00", "<entry/>", "ä" * 999)
DESCRIPTIONS = (
    "<LockDuration>-PT1S</LockDuration>",
    "<DefaultMessageTimeToLive>-PT5M</DefaultMessageTimeToLive>",
    "<DefaultMessageTimeToLive>soon</DefaultMessageTimeToLive>",
    "<MaxDeliveryCount>99999999999999999999</MaxDeliveryCount>",
    "<MaxSizeInMegabytes>-1</MaxSizeInMegabytes>",
    "<RequiresSession>perhaps</RequiresSession>",
    "<Nonsense/>",
    "<ForwardTo>sb://nowhere/x</ForwardTo>",
)
FILTERS = (
    "",
    "a =",
    "(" * 900,
    "a LIKE 'x",
    "1 = 1 AND",
    "NOT " * 900 + "TRUE",
    "x IN (",
    "\x01",
    "a = 1 OR " * 900 + "b = 2",
)

NO_HTTP = (
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET " + b"/x" * 9000 + b" HTTP/1.1\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: \xff\r\nAuthorization: SharedAccessSignature sr=\xff\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 9000 + b"\r\n",
    b"PUT /q HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"PUT /q HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"PUT /q HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n",
    b"PUT /q HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n" + bytes(9000),
    b"GET /$namespaceinfo HTTP/1.1\r\nHost: x\r\n\r\n" * 200,
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /%00%ff%2e%2e/..%2f HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /$servicebus/websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n" + bytes(50),
)
NO_JSON = (
    "",
    "{",
    "[" * 100_000,
    "null",
    "[]",
    '{"properties": 7}',
    '{"sku": []}',
    '{"role": {}}',
    '"\\ud800"',
    "1e999",
    "{}",
)


class Attacker(FrameAttacker):
    """Draws attacks on the namespace `primary`."""

    def __init__(self, sandbox: Sandbox, seed: int, token_for_arm: str) -> None:
        self.sandbox = sandbox
        self.namespace = sandbox["primary"]
        self.token_for_arm = token_for_arm
        super().__init__(
            self.namespace.amqp_port,
            seed,
            audience=f"{self.namespace.endpoint}/",
            key_name=self.namespace.key_name,
            key=self.namespace.key,
            tls=ssl.create_default_context(cafile=sandbox.ca_file),
        )
        self.attacks += (self.bad_http, self.bad_json, self.bad_xml, self.bad_rules, self.bad_websocket)

    # ------------------------------------------------------------------ attacks on HTTP

    async def bad_http(self) -> None:
        """On the namespace's port, ARM's and the control URL's."""
        ports = self.namespace.amqp_port, URL(self.sandbox.arm_url).port, URL(self.sandbox.control_url).port
        port = self.draw.choice(ports)
        await self.sent(self.draw.choice(NO_HTTP), encrypted=port != ports[2] and self.flip(), port=port)

    async def bad_json(self) -> None:
        """To ARM, with a good token, and to the control URL."""
        body = self.draw.choice(NO_JSON)
        at = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/primary"
        path = self.draw.choice(("", "/queues/new", "/topics/a~b/subscriptions/c", "/authorizationRules/x", "/x/y"))
        headers = {"Authorization": f"Bearer {self.token_for_arm}", "Content-Type": "application/json"}
        version = self.draw.choice(("2026-01-01", "2021-11-01", "9999-01-01", "x", ""))
        await self.asked("PUT", f"{self.sandbox.arm_url}{at}{path}?api-version={version}", body, headers)
        await self.asked(
            "POST", f"{self.sandbox.control_url}/{self.draw.choice(('tokens', 'x', 'faults/x'))}", body, {}
        )

    async def asked(self, method: str, url: str, body: str, headers: dict[str, str]) -> int:
        """The status of a request that is answered, and not by a mistake of the server's."""
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, URL(url, encoded=True), data=body.encode(), headers=headers, ssl=self.tls
            ) as answer,
        ):
            await answer.read()
            assert answer.status < 500 or answer.status == 501, f"{method} {url} {body[:200]!r}: {answer.status}"
            return answer.status

    async def managed(self, method: str, path: str, body: str) -> int:
        """A request to the namespace with a good token; the status."""
        url = self.namespace.admin_url
        token = sign(url, self.namespace.key_name, self.namespace.key, time.time() + 600)
        return await self.asked(method, f"{url}{path}", body, {"Authorization": token})

    async def bad_xml(self) -> None:
        kind = self.draw.choice(("Queue", "Topic", "Subscription", "Rule", "Nonsense"))
        inside = "".join(self.draw.sample(DESCRIPTIONS, 2))
        body = self.draw.choice((*ENTITIES, _entry(kind, inside), _entry(kind, inside)))
        path = self.draw.choice(
            ("/new", "/feed/subscriptions/new", "/feed", "/$nothing", "//", "/a%2F%2Fb", "/" + "a" * 999)
        )
        await self.managed(
            "PUT", f"{path}?api-version={self.draw.choice(('2021-05', '2017-04', '9999-01', 'x'))}", body
        )
        await self.managed("GET", f"/$Resources/queues?$skip={self.draw.choice(('-1', 'x', '9' * 99))}", "")

    async def bad_rules(self) -> None:
        sql = self.draw.choice(FILTERS).replace("<", "&lt;").replace("\x01", "&#1;")
        kind = self.draw.choice(("SqlFilter", "CorrelationFilter", "TrueFilter", "NoFilter"))
        xsi = 'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'
        body = _entry("Rule", f'<Filter {xsi} i:type="{kind}"><SqlExpression>{sql}</SqlExpression></Filter>')
        await self.managed("PUT", "/feed/subscriptions/all/rules/new?api-version=2021-05", body)
        await self.managed("DELETE", "/feed/subscriptions/all/rules/new?api-version=2021-05", "")

    async def bad_websocket(self) -> None:
        url = f"{self.namespace.admin_url}/$servicebus/websocket"
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(url, protocols=("AMQPWSB10",), ssl=self.tls) as socket,
        ):
            with suppress(ConnectionError):
                for _ in range(self.draw.randrange(1, 5)):
                    await socket.send_bytes(
                        self.draw.choice((conversation(), self.draw.randbytes(2000), SASL_HEADER, b""))
                    )
                if self.flip():
                    await socket.send_str("text")
            with suppress(TimeoutError):
                await socket.receive(0.1)
            if self.flip() and socket._response.connection is not None:
                socket._response.connection.transport.abort()


def _entry(kind: str, inside: str) -> str:
    space = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
    content = f'<{kind}Description xmlns="{space}">{inside}</{kind}Description>'
    return f'<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">{content}</content></entry>'


async def attack(attacker: FrameAttacker, until: float, count: Counter[str]) -> None:
    """Attack until this time of the monotonic clock; count the attacks by name."""
    while time.monotonic() < until:
        act = attacker.draw.choice(attacker.attacks)
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionError, aiohttp.ClientConnectionError, asyncio.IncompleteReadError):
                await act()
        count[act.__name__] += 1


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
