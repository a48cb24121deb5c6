"""A stranger without a key gets nowhere and costs little; a client with one that misbehaves costs itself alone."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import tracemalloc
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from paired_servicebus.engine.gateway import admission, front_connection, front_links
from paired_servicebus.engine.gateway import front_connection as client_socket
from paired_servicebus.engine.gateway.admission import Admission, OperatorLines, is_scarce
from paired_servicebus.engine.gateway.front_links import MAX_WAITING_REPLIES
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from servicebus_amqp.encoding.frames import AMQP_HEADER, SASL_HEADER
from servicebus_amqp.encoding.messaging_types import Accepted, Source, Target
from tests.engine.gateway.rough_clients import (
    FakePairing,
    Refused,
    client_of,
    gateway_of,
    message,
    raw_socket,
    read_all,
    request,
)
from tests.pairing.conftest import until

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


def test_a_full_lobby_closes_newcomers_until_its_oldest_stranger_had_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_STRANGERS", 2)
    clock = Seconds()
    lobby = Admission(OperatorLines(clock), clock)
    oldest, younger, newcomer = Guest(), Guest(), Guest()
    assert lobby.enter(oldest, 0, 10)
    assert lobby.enter(younger, 1, 11)
    clock.now += admission.PROMPT_SECONDS - 0.1
    assert not lobby.enter(newcomer, 2, 12), "clients that are prompt are not closed for others"
    clock.now += 0.2
    assert lobby.enter(newcomer, 2, 12)
    assert (oldest.is_aborted, younger.is_aborted, len(lobby._entered)) == (True, False, 2)


def test_a_client_that_has_shown_a_token_makes_room_and_is_never_closed_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "MAX_STRANGERS", 1)
    clock = Seconds()
    lobby = Admission(OperatorLines(clock), clock)
    proven, stranger = Guest(), Guest()
    lobby.enter(proven, 0, 10)
    lobby.leave(proven)
    assert lobby.enter(stranger, 1, 11)
    clock.now += 3600
    assert lobby.enter(Guest(), 2, 12)
    assert (proven.is_aborted, stranger.is_aborted) == (False, True)


def test_connections_in_all_are_bounded_and_descriptors_are_left_for_the_engine(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lobby = Admission(OperatorLines())
    assert not lobby.enter(Guest(), admission.MAX_CONNECTIONS, 10)
    monkeypatch.setattr(admission.resource, "getrlimit", lambda _: (1024, 4096))
    assert is_scarce(1024 - admission.RESERVED_DESCRIPTORS)
    assert not lobby.enter(Guest(), 10, 1024 - admission.RESERVED_DESCRIPTORS)
    assert lobby.enter(Guest(), 10, 1023 - admission.RESERVED_DESCRIPTORS)
    assert "connections are open" in caplog.text


async def test_a_flood_of_strangers_stays_out_while_a_client_works(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(admission, "MAX_STRANGERS", 10)
    async with gateway_of() as gateway, client_of(gateway) as client, AsyncExitStack() as stack:
        await client.prove(gateway)
        link = await client.attach("orders")
        sockets = [await stack.enter_async_context(raw_socket(gateway)) for _ in range(30)]
        await until(lambda: len(gateway.admission._entered) == 10 and len(gateway.connections) == 11)
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
        await until(lambda: not gateway.connections and not gateway.admission._entered)


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
    assert len(caplog.messages) == 3, caplog.messages


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
