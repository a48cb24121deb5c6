"""Attacks on an AMQP port, drawn at random: what a hostile or broken client may send to a namespace or a gateway."""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from tests.stage.poison_kinds import damage, kinds

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
from servicebus_amqp.encoding.performatives import Source, Target
from servicebus_amqp.protocol.connection import Connection, Session
from servicebus_amqp.protocol.connection_settings import ConnectionRole, ConnectionSettings
from servicebus_amqp.protocol.links import Event, FlowReceived, SessionBegun
from servicebus_amqp.protocol_errors import AmqpError

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


class Client(asyncio.Protocol):
    """A client that speaks AMQP well until it is told otherwise."""

    def __init__(self) -> None:
        settings = ConnectionSettings(container_id="fuzz", hostname="127.0.0.1", max_message_size=None)
        self.amqp = Connection(role=ConnectionRole.CLIENT, settings=settings)
        self.session: Session
        self.seen: list[Event] = []
        self.changed = asyncio.Event()
        self.is_lost = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.amqp.open()
        self.session = self.amqp.begin()
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.seen += self.amqp.receive_data(data)
        self.flush()
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.changed.set()

    def flush(self) -> None:
        with suppress(AmqpError):  # whoever sends nonsense is answered with things that make none
            self.transport.write(self.amqp.data_to_send())

    async def until(self, kind: type) -> bool:
        """Wait for an event of this kind; False if the connection is lost first."""
        while not self.is_lost:
            found = [event for event in self.seen if isinstance(event, kind)]
            if found:
                self.seen.clear()
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
            self.poisoned_messages,
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
            link.send(_request(properties, token), tag=b"t")
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
