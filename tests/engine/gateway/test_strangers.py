"""A stranger without a key gets nowhere and costs little; a client with one that misbehaves costs itself alone."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import pytest
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.bench.amqp_loads import SampleMessages
from paired_servicebus.core.errors import BacklogMessageSizeError, WireConnectionError, WireLinkError, WireTimeoutError
from paired_servicebus.core.model.envelope import RESERVED
from paired_servicebus.engine.gateway import admission, front_connection, front_links
from paired_servicebus.engine.gateway import front_socket as client_socket
from paired_servicebus.engine.gateway.admission import OperatorLines, admission_of
from paired_servicebus.engine.gateway.front_connection import FrontConnection
from paired_servicebus.engine.gateway.front_links import MAX_WAITING_REPLIES
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing, new_key
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection, WireSender
from paired_servicebus.pairing.amqp_client.client_connection import ClientConnection
from servicebus_amqp.encoding.codec import Symbol
from servicebus_amqp.encoding.frames import AMQP_HEADER, SASL_HEADER
from servicebus_amqp.encoding.performatives import Accepted, Rejected, Source, Target, TransactionalState
from servicebus_amqp.nodes.request_ends import AmqpRefusal
from servicebus_amqp.protocol.links import Attached
from servicebus_amqp.server import admission as admissions
from servicebus_amqp.server.admission import is_scarce
from servicebus_amqp.server.server_connection import BytesInHand
from servicebus_sandbox import Sandbox
from tests.pairing.conftest import World, until

from .rough_clients import (
    FakePairing,
    Refused,
    RoughClient,
    client_of,
    gateway_of,
    message,
    raw_socket,
    read_all,
    request,
)

HALF_FRAME = AMQP_HEADER + b"\x00\x00\x1f\x00\x02\x00\x00\x00" + bytes(100)
OPENINGS = {
    "silence": b"",
    "half a header": b"AMQ",
    "a header": AMQP_HEADER,
    "a SASL header": SASL_HEADER,
    "half a frame": HALF_FRAME,
    "half a TLS hello": b"\x16",
    "half a verb": b"GE",
}


class Guest:
    def __init__(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


class Seconds:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# -- the lobby --------------------------------------------------------------------------------------------------------


def test_a_full_port_closes_newcomers_until_its_oldest_stranger_had_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admissions, "MAX_STRANGERS", 2)
    clock = Seconds()
    port = admission_of(OperatorLines(clock), clock)
    oldest, younger = Guest(), Guest()
    for number, guest in enumerate((oldest, younger)):
        assert port.admits(10 + number, number)
        port.enter(guest.abort)
    clock.now += admission.PROMPT_SECONDS - 0.1
    assert not port.admits(12, 2), "clients that are prompt are not closed for others"
    clock.now += 0.2
    assert port.admits(12, 2)
    assert (oldest.is_aborted, younger.is_aborted, len(port)) == (True, False, 1)


def test_a_client_that_has_shown_a_token_makes_room_and_is_never_closed_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admissions, "MAX_STRANGERS", 1)
    clock = Seconds()
    port = admission_of(OperatorLines(clock), clock)
    proven, stranger = Guest(), Guest()
    port.enter(proven.abort).leave()
    assert port.admits(11, 1)
    port.enter(stranger.abort)
    clock.now += 3600
    assert port.admits(12, 2)
    assert (proven.is_aborted, stranger.is_aborted) == (False, True)


def test_connections_in_all_are_bounded_and_descriptors_are_left_for_the_engine(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    port = admission_of(OperatorLines())
    assert not port.admits(10, admission.MAX_CONNECTIONS)
    monkeypatch.setattr(admissions.resource, "getrlimit", lambda _: (1024, 4096))
    assert is_scarce(1024 - admissions.RESERVED_DESCRIPTORS)
    assert not port.admits(1024 - admissions.RESERVED_DESCRIPTORS, 10)
    assert port.admits(1023 - admissions.RESERVED_DESCRIPTORS, 10)
    assert "connections are open" in caplog.text


async def test_a_flood_of_strangers_stays_out_while_a_client_works(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(admissions, "MAX_STRANGERS", 10)
    async with gateway_of() as gateway, client_of(gateway) as client, AsyncExitStack() as stack:
        await client.prove(gateway)
        link = await client.attach("orders")
        sockets = [await stack.enter_async_context(raw_socket(gateway)) for _ in range(30)]
        await until(lambda: len(gateway.admission) == 10 and len(gateway.connections) == 1)
        assert isinstance(await client.send(link), Accepted)
        ended = [await read_all(plain) for plain in sockets[10:]]
        assert ended == [b""] * 20
    (line,) = caplog.messages
    assert "10 others have not shown a good token yet" in line


@pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS.keys())
async def test_a_stranger_that_waits_is_closed_after_its_time(monkeypatch: pytest.MonkeyPatch, opening: bytes) -> None:
    """A client that sends half a frame and waits; slow-loris."""
    monkeypatch.setattr(client_socket, "OPENING_SECONDS", 0.1)
    async with gateway_of() as gateway, raw_socket(gateway) as plain:
        await asyncio.get_running_loop().sock_sendall(plain, opening)
        await read_all(plain)
        await until(lambda: not gateway.connections and not len(gateway.admission))


async def test_one_byte_at_a_time_wins_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_socket, "OPENING_SECONDS", 0.2)
    async with gateway_of() as gateway, raw_socket(gateway) as plain:
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError):
            for byte in HALF_FRAME:
                await loop.sock_sendall(plain, bytes([byte]))
                await asyncio.sleep(0.02)
            pytest.fail("it had two seconds")


# -- before the first good token --------------------------------------------------------------------------------------


async def test_a_stranger_may_send_few_bytes_sessions_and_links(caplog: pytest.LogCaptureFixture) -> None:
    async def too_many_bytes(client: Any) -> None:
        requests, _ = client.cbs_pair()
        await client.wait(lambda: requests.credit or None)
        requests.send(request({"operation": "put-token"}, "x" * admission.STRANGER_BYTES), tag=b"t")

    async def too_many_sessions(client: Any) -> None:
        for _ in range(admission.STRANGER_SESSIONS):
            client.amqp.begin()

    async def too_many_links(client: Any) -> None:
        for number in range(admission.STRANGER_LINKS + 1):
            client.session.attach_sender(f"{number}", Source(address="x"), Target(address="orders"))

    async with gateway_of() as gateway:
        for act, unit in ((too_many_bytes, "bytes"), (too_many_sessions, "sessions"), (too_many_links, "links")):
            async with client_of(gateway) as client:
                await client.wait(lambda client=client: client.events or None)
                await act(client)
                client.flush()
                error = await client.until_lost()
                assert error is not None
                assert error.condition == "amqp:resource-limit-exceeded"
                assert f"{unit} came without a good token" in error.description
    assert len([line for line in caplog.messages if "without a token" in line]) == 1


async def test_strangers_cost_little_memory() -> None:
    """Each sends most of a message that is as large as $cbs takes, and waits."""
    count, payload = 20, bytes(1000 * 1024)
    async with gateway_of() as gateway, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client_of(gateway)) for _ in range(count)]
        linked = [client.cbs_pair()[0] for client in clients]
        for client, link in zip(clients, linked, strict=True):
            await client.wait(lambda link=link: link.credit or None)
        gc.collect()
        tracemalloc.start()
        try:
            for client, link in zip(clients, linked, strict=True):
                link.send(payload, tag=b"t")
                client.transport.write(client.amqp.data_to_send()[:-1])
            for client in clients:
                await client.until_lost()
            gc.collect()
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    assert held < count * 200 * 1024, f"{held / count:,.0f} bytes a stranger, with its own end here"


# -- with a key -------------------------------------------------------------------------------------------------------


async def test_links_of_one_connection_are_bounded_those_that_wait_for_the_primary_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front_connection, "MAX_LINKS", 5)
    pairing = FakePairing(answer=asyncio.Event())
    assert pairing.answer is not None
    async with gateway_of(pairing) as gateway, client_of(gateway) as client:
        await client.prove(gateway)  # two links
        waiting = [asyncio.ensure_future(client.attach("orders")) for _ in range(3)]
        await until(lambda: len(pairing.asked) == 3)
        client.session = client.amqp.begin()  # the limit of a session's handles is another
        with pytest.raises(Refused, match=r"^amqp:resource-limit-exceeded: this connection has too many links"):
            await client.attach("orders")
        pairing.answer.set()
        await asyncio.gather(*waiting)


async def test_messages_beyond_the_credit_end_the_link_and_nothing_else() -> None:
    """Unsettled per link."""
    pairing = FakePairing(hold=asyncio.Event())
    async with gateway_of(pairing) as gateway, client_of(gateway) as client:
        await client.prove(gateway)
        greedy, other = await client.attach("orders"), await client.attach("orders")
        greedy._credit = 10_000
        for number in range(600):
            greedy.send(message(b"x"), tag=b"%d" % number)
        client.flush()
        detach = await client.wait(lambda: client.detach_of(greedy))
        assert detach.error is not None
        assert detach.error.condition == "amqp:link:transfer-limit-exceeded"
        assert pairing.hold is not None
        pairing.hold.set()
        assert isinstance(await client.send(other), Accepted)


async def test_replies_that_no_credit_lets_go_are_bounded() -> None:
    async with gateway_of() as gateway, client_of(gateway) as client:
        await client.prove(gateway)
        replies = client.session.attach_receiver("r", Source(address="$cbs"), Target(address="r"))
        requests = client.session.attach_sender("q", Source(address="q"), Target(address="$cbs"))
        for number in range(MAX_WAITING_REPLIES + 2):
            requests.send(request({"operation": "nothing"}, "", reply_to=replies.name), tag=b"%d" % number)
        client.flush()
        detach = await client.wait(lambda: client.detach_of(requests))
        assert detach.error is not None
        assert detach.error.condition == "amqp:resource-limit-exceeded"


async def test_a_client_that_never_reads_is_not_read_and_is_reset_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_socket, "CLOSING_SECONDS", 0.1)
    async with gateway_of() as gateway, client_of(gateway) as client:
        await client.prove(gateway)
        await client.attach("orders")
        (connection,) = gateway.connections
        transport = connection._transport
        assert transport is not None
        client.transport.pause_reading()
        while not transport.get_write_buffer_size():  # until the kernel takes no more
            transport.write(bytes(1024 * 1024))
        await until(lambda: not transport.is_reading())
        connection.close()
        await until(lambda: not gateway.connections)


async def test_a_client_that_reads_again_is_not_read_while_too_much_is_in_hand() -> None:
    """One reason to pause ends; the other stays."""
    async with gateway_of() as gateway, client_of(gateway) as client:
        await client.prove(gateway)
        (connection,) = gateway.connections
        transport = connection._transport
        assert transport is not None
        gateway.in_hand.add(gateway.in_hand._most, connection)
        connection.pause_writing()
        connection.resume_writing()
        assert not transport.is_reading()
        gateway.in_hand.remove(gateway.in_hand._most)
        assert transport.is_reading()


async def test_messages_too_large_use_up_no_credit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(front_links, "SENDER_CREDIT", 4)
    async with gateway_of(FakePairing(entities={"orders": (1000, 1000)})) as gateway, client_of(gateway) as client:
        await client.prove(gateway)
        link = await client.attach("orders")
        for _ in range(5):  # more than the link's credit
            state = await client.send(link, message(bytes(1000)))
            assert not isinstance(state, Accepted)
        assert isinstance(await client.send(link), Accepted)
        view = gateway.view(())
        assert [(one.entity, one.count) for one in view.refusals] == [("orders", 5)]
        assert (view.accepted, view.refused) == (1, 5)
    (line,) = caplog.messages
    assert "a message for orders has 1" in line
    assert "the link takes 1000" in line


# -- the log ----------------------------------------------------------------------------------------------------------


def test_one_line_of_a_kind_a_minute_and_the_others_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = Seconds()
    lines = OperatorLines(clock)
    for number in range(1000):
        lines.warn("token", f"bad {number}")
    lines.warn("link", "bad\nlink\x1b[2J SharedAccessKey=c2VjcmV0c2VjcmV0")
    clock.now += admission.QUIET_SECONDS
    lines.warn("token", "bad again")
    first, second, third = caplog.messages
    assert first == "token: bad 0"
    assert second.startswith("link: bad link\\x1b[2J")
    assert "c2VjcmV0" not in second
    assert third == "token: bad again (999 more of this kind since the last line)"


async def test_many_attempts_log_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with gateway_of() as gateway:
        for _ in range(10):
            await asyncio.gather(*(_turned_away(gateway) for _ in range(4)))
    assert len(caplog.messages) == 4, caplog.messages  # one of each protocol, and the frame


async def _turned_away(gateway: Gateway) -> None:
    for first in (b"\x16\x03\x01\x02\x00\x01\x00\x00", b"GET / HTTP/1.1\r\n\r\n", bytes(16), AMQP_HEADER + b"\xff" * 8):
        async with raw_socket(gateway) as plain:
            await asyncio.get_running_loop().sock_sendall(plain, first)
            await read_all(plain)


async def test_small_answers_leave_at_once() -> None:
    """With Nagle's algorithm a relayed request took 44 ms: its second answer waited for the first's acknowledgement."""
    async with gateway_of() as gateway, client_of(gateway) as client:
        await client.prove(gateway)
        (connection,) = gateway.connections
        assert connection._transport is not None
        taken = connection._transport.get_extra_info("socket")
        assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# -- The bound of the gateway's memory: who is not read, and when again ----------------------------------------------


@dataclass(eq=False)
class Reader:
    calls: list[str] = field(default_factory=list)

    def pause(self, reason: str) -> None:
        self.calls.append("pause")

    def resume(self, reason: str) -> None:
        self.calls.append("resume")

    def end_beyond(self, refusal: AmqpRefusal) -> None:
        self.calls.append(refusal.description)


def test_a_reader_pauses_at_the_limit_once_and_resumes_below_its_half() -> None:
    in_hand, reader = BytesInHand(most=100), Reader()
    in_hand.add(99, reader)
    assert reader.calls == []
    in_hand.add(1, reader)
    in_hand.add(50, reader)
    assert reader.calls == ["pause"]
    in_hand.remove(100)
    assert reader.calls == ["pause"]
    in_hand.remove(1)
    assert reader.calls == ["pause", "resume"]
    assert in_hand.size == 49


def test_only_those_that_send_are_paused_and_one_that_left_is_not_resumed() -> None:
    in_hand, idle, sender, gone = BytesInHand(most=10), Reader(), Reader(), Reader()
    in_hand.add(1, idle)
    in_hand.add(9, sender)
    in_hand.add(9, gone)
    in_hand.forget(gone)
    in_hand.remove(19)
    assert (idle.calls, sender.calls, gone.calls) == ([], ["pause", "resume"], ["pause"])


class Socket:
    """What a connection asks of its transport when it pauses."""

    is_read = True

    def get_extra_info(self, name: str) -> Any:
        """Return the socket, which is asked for its descriptor."""
        return self if name == "socket" else None

    def fileno(self) -> int:
        return 3

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


@pytest.mark.parametrize("order", permutations(range(4)), ids=str)
async def test_a_reader_paused_for_two_reasons_resumes_when_both_are_gone(order: tuple[int, ...]) -> None:
    """A client that does not read its answers stays unread when there is room in hand, and vice versa."""
    pairing: Any = None
    gateway = Gateway(pairing, KeyRing([]), max_bytes=10)
    socket: Any = Socket()
    connection = FrontConnection(gateway)
    connection.connection_made(socket)
    pauses: dict[str, bool] = {"bytes": False, "socket": False}

    def fill() -> None:
        gateway.in_hand.add(10, connection)
        pauses["bytes"] = True

    def empty() -> None:
        gateway.in_hand.remove(gateway.in_hand.size)
        pauses["bytes"] = False

    def full() -> None:
        connection.pause_writing()
        pauses["socket"] = True

    def drained() -> None:
        connection.resume_writing()
        pauses["socket"] = False

    steps: tuple[Callable[[], None], ...] = (fill, empty, full, drained)
    for number in order:
        steps[number]()
        assert socket.is_read is not any(pauses.values())
    connection.connection_lost(None)


# -- When bytes leave: a lone send costs no turn of the loop, and many share one write -------------------------------

SEND = new_key("web", [GatewayRight.SEND])


class Setting:
    """A gateway with clients of our own AMQP, and the writes of both sides of the gateway in order."""

    def __init__(self, gateway: Gateway, paired: Any) -> None:
        self.gateway = gateway
        self.writes: list[str] = []
        self.answers: list[object] = []
        self._paired = paired

    async def client(self, stack: AsyncExitStack) -> WireSender:
        sdk = ServiceBusClient.from_connection_string(self.gateway.connection_string(SEND))
        wire = ReconnectingConnection(Endpoint.of(sdk))
        stack.push_async_callback(wire.close)
        return await wire.sender("orders", on_outcome=self.answers.append, on_lost=lambda _: None)

    @property
    def line(self) -> ClientConnection:
        """The gateway's connection to the primary."""
        found = self._paired.get_encoded_sender("orders").wire._line
        assert isinstance(found, ClientConnection)
        return found

    def spy(self) -> None:
        """Note each write from now on, and each turn of the loop between."""
        for owner, name in ((self.line, "primary"), *((front, "client") for front in self.gateway.connections)):
            transport: Any = owner._transport
            owner._transport = _Spied(transport, lambda name=name: self.writes.append(name))  # type: ignore[assignment]


class _Spied:
    def __init__(self, transport: Any, note: Any) -> None:
        self._transport = transport
        self._note = note

    def write(self, data: bytes) -> None:
        self._note()
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def setting(stack: AsyncExitStack) -> Setting:
    world = World(await stack.enter_async_context(Sandbox.start()), stack)
    paired = await world.pair(send_timeout=10.0)
    gateway = Gateway(paired, KeyRing([SEND]))
    await gateway.listen(0)
    stack.push_async_callback(gateway.close, 0.1)
    return Setting(gateway, paired)


async def test_a_lone_send_leaves_in_the_read_that_brought_it_and_its_answer_likewise(
    setting: Setting, stack: AsyncExitStack
) -> None:
    letters, link = SampleMessages(100), await setting.client(stack)
    link.send(letters.next(), b"first")
    await until(lambda: setting.answers)
    setting.spy()
    (front,), loop = setting.gateway.connections, asyncio.get_running_loop()
    for reader in (front, setting.line):
        read = reader._pieces._handle

        def noted(data: bytes, read: Any = read) -> None:
            setting.writes.append("read")
            loop.call_soon(setting.writes.append, "turn")
            read(data)

        reader._pieces._handle = noted
    link.send(letters.next(), b"second")
    await until(lambda: len(setting.answers) == 2)
    assert setting.writes == ["read", "primary", "turn", "read", "client", "turn"]


async def test_sends_that_are_not_alone_share_a_write(setting: Setting, stack: AsyncExitStack) -> None:
    letters, links = SampleMessages(100), [await setting.client(stack) for _ in range(3)]
    links[0].send(letters.next(), b"first")
    await until(lambda: setting.answers)
    setting.spy()
    for number in range(50):
        for link in links:
            link.send(letters.next(), number.to_bytes(2, "big"))
    await until(lambda: len(setting.answers) == 151)
    assert setting.writes.count("primary") < 10
    assert setting.writes.count("client") < 30
    assert setting.gateway.in_hand.sends == 0


async def test_a_closed_gateway_follows_no_reads(setting: Setting, stack: AsyncExitStack) -> None:
    link = await setting.client(stack)
    link.send(SampleMessages(100).next(), b"first")
    await until(lambda: setting.answers)
    wire = setting._paired.get_encoded_sender("orders").wire
    assert len(wire.after_read) == 1
    await setting.gateway.close(0.1)
    assert wire.after_read == []


# -- GATEWAY.md sections 1, 3 and 4: what does not work through it, the answer to each, and one line for the operator

SEND_VIA = {Symbol("com.microsoft:transfer-destination-address"): "other"}
GET = b"GET /$Resources/queues HTTP/1.1\r\nHost: x\r\n\r\n"
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01"
UPGRADE = b"GET /$servicebus/websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
PUT = b"PUT /new HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n" + bytes(8_000_000)


# -- other protocols --------------------------------------------------------------------------------------------------


OFF = b"set administration = true in [gateway]"


@pytest.mark.parametrize(
    ("first", "status", "part", "words"),
    [
        (
            GET,
            b"501",
            OFF,
            r"refused a request: GET .*: administration through the gateway is off",
        ),
        (PUT, b"501", OFF, "refused a request: PUT /new, "),
        (UPGRADE, b"400", b"with the subprotocol AMQPWSB10", "refused a request: .* subprotocol AMQPWSB10"),
    ],
    ids=["GET", "PUT with a body", "WebSocket without a subprotocol"],
)
async def test_http_that_is_not_served_has_an_answer_and_one_line(
    first: bytes, status: bytes, part: bytes, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What is refused says which client it met."""
    async with gateway_of() as gateway, raw_socket(gateway) as plain:
        await asyncio.get_running_loop().sock_sendall(plain, first)
        answer = await read_all(plain)
        await until(lambda: not len(gateway.admission))
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert part in answer
    assert_one_line(caplog, words)


@pytest.mark.parametrize(
    ("first", "answer", "words"),
    [
        (
            HELLO,
            b"",
            "turned a client away, TLS: the client speaks TLS: .*UseDevelopmentEmulator=true",
        ),
        (GET, b"HTTP/1.1 501 ", "refused a request: GET "),
        (bytes(16), b"", "first bytes are 00 00 00 00 00 00 00 00: this port serves AMQP 1.0, administration"),
    ],
    ids=["TLS", "HTTP", "garbage"],
)
async def test_first_bytes_that_come_one_by_one_are_recognized_too(
    first: bytes, answer: bytes, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway_of() as gateway, raw_socket(gateway) as plain:
        with suppress(ConnectionError):
            for byte in first:
                await asyncio.get_running_loop().sock_sendall(plain, bytes([byte]))
                await asyncio.sleep(0.005)
        assert (await read_all(plain)).startswith(answer)
    assert_one_line(caplog, words)


# -- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "options", "words"),
    [
        (
            "orders",
            {"properties": SEND_VIA},
            "^amqp:not-implemented: send-via is not served: let the client",
        ),
        (None, {}, "^amqp:not-implemented: a link needs an address"),
        ("a" * 3000, {}, "^com.microsoft:argument-error: the address of the link "),
        ("or\x00ders", {}, "^com.microsoft:argument-error: the address of the link "),
        ("nowhere", {}, "^amqp:not-found: The messaging entity 'nowhere' could not be found"),
    ],
    ids=["send-via", "no address", "long address", "strange address", "unknown entity"],
)
async def test_a_link_that_cannot_be_is_refused_with_a_null_target(
    address: Any, options: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway_of() as gateway, client_of(gateway) as client:
        await client.prove(gateway)
        for _ in range(2):
            client.events.clear()
            with pytest.raises(Refused, match=words):
                await client.attach(address, **options)
            (answer,) = [event for event in client.events if isinstance(event, Attached)]
            assert answer.attach.target is None
        await client.send(await client.attach("orders"))
    assert_one_line(caplog, f"refused a client's link, {words[1:]}")


async def test_a_link_without_a_token_is_refused() -> None:
    async with gateway_of() as gateway, client_of(gateway) as client:
        await client.wait(lambda: client.amqp.remote)
        with pytest.raises(Refused, match=r"^amqp:unauthorized-access: Unauthorized access. 'Send' claim"):
            await client.attach("orders")


@pytest.mark.parametrize(
    "away",
    [
        WireTimeoutError("silent"),
        WireConnectionError("refused"),
        WireLinkError("disabled", "com.microsoft:entity-disabled"),
        WireLinkError("ill", "amqp:internal-error"),
        WireConnectionError("forced", "amqp:connection:forced"),
    ],
    ids=["silent", "refused", "disabled", "internal error", "forced"],
)
async def test_primary_away_what_was_seen_is_accepted_and_the_unknown_is_to_be_tried_again(
    away: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Primary away: accepted if configured or seen before, else refused with `com.microsoft:timeout`."""
    pairing = FakePairing(away=away, diverting={"orders": False})
    async with gateway_of(pairing) as gateway, client_of(gateway) as client:
        await client.prove(gateway)
        seen = await client.attach("orders")
        assert seen.remote is not None
        assert seen.remote.max_message_size == 262_144  # until known
        with pytest.raises(Refused, match=r"^com.microsoft:timeout: "):
            await client.attach("unknown")
    assert_one_line(caplog, "refused a client's link, com.microsoft:timeout: ")


async def test_an_attach_tells_the_primarys_sizes_and_the_open_ours() -> None:
    """Any hostname; max-frame 65,536; idle-time-out 240 s. `max-message-size` and the batch's of the primary."""
    async with gateway_of(FakePairing(entities={"orders": (1_048_576, 500_000)})) as gateway, client_of(gateway) as one:
        await one.prove(gateway)
        link = await one.attach("orders")
        assert one.amqp.remote is not None
        assert (one.amqp.remote.max_frame_size, one.amqp.remote.idle_time_out) == (65_536, 240_000)
        assert link.remote is not None
        assert link.remote.max_message_size == 1_048_576
        assert (link.remote.properties or {})["com.microsoft:max-message-batch-size"] == 500_000
        assert link.credit > 0


# -- messages ---------------------------------------------------------------------------------------------------------


async def proven_sender(client: RoughClient, gateway: Any) -> Any:
    await client.prove(gateway)
    return await client.attach("orders")


@pytest.mark.parametrize("name", sorted(RESERVED))
async def test_reserved_names_are_rejected_and_named(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async with gateway_of() as gateway, client_of(gateway) as client:
        link = await proven_sender(client, gateway)
        state = await client.send(link, message(b"x", **{name: "x"}))
        assert_rejected(state, "com.microsoft:argument-error", repr(name))
        await client.send(link)
    assert_one_line(caplog, f"refused a client's message, com.microsoft:argument-error: .*{name}")


@pytest.mark.parametrize("payload", [b"\x00", b"Sp", b"\x00Sp\xa0\x05x"], ids=["cut", "no section", "short section"])
async def test_bytes_that_are_no_message_are_rejected_alone(payload: bytes) -> None:
    async with gateway_of() as gateway, client_of(gateway) as client:
        link = await proven_sender(client, gateway)
        assert_rejected(await client.send(link, payload), "com.microsoft:argument-error", "")
        await client.send(link)


@pytest.mark.parametrize(
    ("address", "refusal"), [("orders", "amqp:transaction:unknown-id"), ("$cbs", "amqp:not-implemented")]
)
async def test_a_message_in_no_transaction_of_its_own_is_not_sent_outside_of_it(address: str, refusal: str) -> None:
    async with gateway_of() as gateway, client_of(gateway) as client:
        await client.prove(gateway)
        link = await client.attach(address)
        state = await client.send(link, state=TransactionalState(txn_id=b"t"))
        assert_rejected(state, refusal, "")


async def test_a_message_above_the_primarys_size_is_rejected_with_both_sizes() -> None:
    async with gateway_of(FakePairing(entities={"orders": (1000, 1000)})) as gateway, client_of(gateway) as client:
        link = await proven_sender(client, gateway)
        large = message(bytes(2000))
        state = await client.send(link, large)
        assert_rejected(state, "amqp:link:message-size-exceeded", f"{len(large)} bytes, the link takes 1000")


async def test_a_message_above_the_backlogs_size_is_rejected_with_both_sizes(caplog: pytest.LogCaptureFixture) -> None:
    """Over 256 KB while failed over: rejected, named, with both sizes."""
    pairing = FakePairing(failure=BacklogMessageSizeError(size=300_000, limit=262_144, message_id="big"))
    async with gateway_of(pairing) as gateway, client_of(gateway) as client:
        link = await proven_sender(client, gateway)
        state = await client.send(link)
        assert_rejected(state, "amqp:link:message-size-exceeded", "'big' takes 300000 bytes")
        assert_rejected(state, "amqp:link:message-size-exceeded", "accept 262144")
    assert_one_line(caplog, "refused a client's message, amqp:link:message-size-exceeded: .*300000.*262144")


@pytest.mark.parametrize("body", [{}, {"sequence-numbers": 7}, {"sequence-numbers": [{}, "a"]}, "text", None])
async def test_a_cancel_of_what_is_no_number_is_a_bad_argument(body: Any) -> None:
    async with gateway_of() as gateway, client_of(gateway) as client:
        await client.prove(gateway)
        reply = await client.ask("orders/$management", "com.microsoft:cancel-scheduled-message", body)
    assert (reply["statusCode"], reply["errorCondition"]) == (400, "com.microsoft:argument-error")


def assert_rejected(state: Any, condition: str, words: str) -> None:
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == condition
    assert words in state.error.description


def assert_one_line(caplog: pytest.LogCaptureFixture, pattern: str) -> None:
    (line,) = caplog.messages
    assert re.search(pattern, line), line
