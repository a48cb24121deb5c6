"""The control socket: who is heard, what is told, and that no console can hold the engine up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import stat
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from paired_servicebus.core.errors import ControlError, EngineNotRunningError
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.pairing_events import Commanded, Event, PingSent, Record, StateChanged, Warned
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.series.graphs import Graphs
from paired_servicebus.engine.control import control_client as client_module
from paired_servicebus.engine.control import control_server, protocol
from paired_servicebus.engine.control import protocol as peer_credentials
from paired_servicebus.engine.control.control_client import ControlClient, Update
from paired_servicebus.engine.control.protocol import Goodbye, Mailbox, Position, Skipped
from paired_servicebus.ui.shell.screenshot import picture

WAIT = 60.0
Engine = Callable[..., Any]


def ping(number: int) -> Event:
    return PingSent(at=time.time(), entity="orders", number=number)


async def take(client: ControlClient, enough: Callable[[list[Update]], bool]) -> list[Update]:
    """Updates until there are enough."""
    taken: list[Update] = []
    async with asyncio.timeout(WAIT):
        async for update in client.updates():
            taken.append(update)
            if enough(taken):
                break
    return taken


def pings(updates: list[Update]) -> list[int]:
    return [
        update.event.number for update in updates if isinstance(update, Record) and isinstance(update.event, PingSent)
    ]


def has_ping(number: int) -> Callable[[list[Update]], bool]:
    return lambda updates: bool(pings(updates)) and pings(updates)[-1] == number


@asynccontextmanager
async def raw(socket: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that says whatever a test likes."""
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def last_line(reader: asyncio.StreamReader) -> dict[str, Any]:
    """What the engine said before it ended the connection."""
    async with asyncio.timeout(WAIT):
        return json.loads((await reader.read()).splitlines()[-1])


HELLO = b'{"t":"hello","version":3}\n'


# -- the socket itself -------------------------------------------------------------------------------------------


async def test_the_socket_is_for_its_owner_alone_and_gone_in_the_end(engine: Engine) -> None:
    async with engine() as hosted:
        mode = hosted.socket.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
    assert not hosted.socket.exists()


async def test_a_dead_engines_socket_is_replaced(engine: Engine, short: Path) -> None:
    left = control_server._listen(short / "s")
    left.close()
    async with engine() as hosted, hosted.console() as client:
        assert client.welcome.pid == os.getpid()


async def test_the_kernel_knows_that_a_peer_is_ours(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine() as hosted, raw(hosted.socket) as (_, writer):
        assert peer_credentials.is_ours(writer.transport)
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
        assert not peer_credentials.is_ours(writer.transport)


async def test_no_engine_is_one_sentence_with_the_path(short: Path) -> None:
    with pytest.raises(EngineNotRunningError, match=f"no engine answers at {short}/nothing"):
        await ControlClient.connect(short / "nothing")


# -- what is told --------------------------------------------------------------------------------------------------


async def test_a_console_hears_who_answers_how_it_stands_and_what_happens(engine: Engine) -> None:
    async with engine() as hosted, hosted.console() as client:
        assert (client.welcome.pairing, client.welcome.environment) == ("orders", "test")
        hosted.host.record(ping(1))
        updates = await take(client, has_ping(1))
        snapshot = next(update for update in updates if isinstance(update, Snapshot))
        assert [view.path for view in snapshot.entities] == ["orders", "payments"]
        assert snapshot.boot == client.welcome.boot


async def test_a_console_that_comes_back_misses_nothing(engine: Engine) -> None:
    async with engine() as hosted:
        first = await hosted.connect()
        hosted.host.record(ping(1))
        await take(first, has_ping(1))
        await first.close()
        for number in range(2, 6):
            hosted.host.record(ping(number))
        second = await ControlClient.connect(hosted.socket, after=first.position)
        hosted.host.record(ping(6))
        assert pings(await take(second, has_ping(6))) == [2, 3, 4, 5, 6]
        await second.close()


async def test_a_console_that_was_away_too_long_is_told_how_much_is_gone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_server, "REMEMBERED_EVENTS", 10)
    async with engine() as hosted:
        hosted.host.record(ping(1))
        position = Position(boot=hosted.host._identity.boot, seq=2)
        for number in range(2, 32):
            hosted.host.record(ping(number))
        client = await ControlClient.connect(hosted.socket, after=position)
        updates = [update for update in await take(client, has_ping(31)) if not isinstance(update, Snapshot)]
        assert updates[0] == Skipped(20)
        assert pings(updates) == list(range(22, 32))
        await client.close()


async def test_after_a_new_boot_a_console_hears_all_of_it(engine: Engine) -> None:
    async with engine() as hosted:
        hosted.host.record(ping(1))
        client = await ControlClient.connect(hosted.socket, after=Position(boot="an earlier one", seq=900))
        assert pings(await take(client, has_ping(1))) == [1]
        await client.close()


async def test_a_new_console_hears_the_newest_events_only(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "REPLAYED_EVENTS", 3)
    async with engine() as hosted:
        for number in range(1, 8):
            hosted.host.record(ping(number))
        client = await hosted.connect()
        updates = await take(client, has_ping(7))
        assert pings(updates) == [5, 6, 7]
        assert not any(isinstance(update, Skipped) for update in updates)
        await client.close()


async def test_the_end_of_the_engine_is_said_after_the_last_event(engine: Engine) -> None:
    async with engine() as hosted:
        client = await hosted.connect()
        hosted.host.record(ping(1))
        hosted.host.stop("a test is over")
    updates = await take(client, lambda taken: isinstance(taken[-1], Goodbye))
    assert updates[-1] == Goodbye("the engine ended: a test is over")
    assert isinstance(updates[-2], Record)
    assert updates[-2].event.kind == "engine-stopped"
    await client.close()


async def test_a_kind_that_a_console_does_not_know_is_said_to_be_missing(engine: Engine) -> None:
    async with engine() as hosted, hosted.console() as client:
        hosted.host._control.publish_event(50, b'{"v":1,"engine":"e","boot":"b","seq":50,"ts":0,"kind":"brand-new"}')
        updates = await take(client, lambda taken: isinstance(taken[-1], Skipped))
        assert updates[-1] == Skipped(1)


# -- consoles that misbehave ---------------------------------------------------------------------------------------


async def test_a_console_that_does_not_read_holds_up_nobody(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "REMEMBERED_EVENTS", 2000)
    async with engine() as hosted, raw(hosted.socket) as (reader, writer):
        writer.transport.pause_reading()
        writer.write(HELLO)
        other = await hosted.connect()
        began = time.perf_counter()
        for burst in range(20):
            for number in range(1000):
                hosted.host.record(PingSent(at=1.0, entity="x" * 100, number=burst * 1000 + number))
            await asyncio.sleep(0)
        assert time.perf_counter() - began < WAIT
        await other.order(Command(action_id="force", targets=("orders",), by="test"), typed="orders")
        writer.transport.resume_reading()
        async with asyncio.timeout(WAIT):
            lines = [json.loads(line) async for line in _until_ping(reader, 19_999)]
        skipped = sum(line["count"] for line in lines if line["t"] == "skipped")
        seen = [line["record"]["number"] for line in lines if line["t"] == "event" and "number" in line["record"]]
        assert skipped > 10_000
        assert seen == sorted(seen)
        assert skipped + len(seen) >= 20_000
        await other.close()


async def _until_ping(reader: asyncio.StreamReader, number: int) -> AsyncIterator[bytes]:
    while True:
        line = await reader.readuntil(b"\n")
        yield line
        if f'"number":{number}}}'.encode() in line:
            return


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "no message of the control protocol"),
        (b"\x00\xff\xfe\n", "no message of the control protocol"),
        (b'{"t":"execute","id":1,"command":{"action_id":"force","by":"x"}}\n', "the first line is a hello"),
        (b'{"t":"hello","version":99}\n', "the console has format 99, and this release has "),
        (HELLO + HELLO, "after the hello come commands"),
        (HELLO + b"nonsense\n", "no message of the control protocol"),
        (HELLO + b'{"t":"execute","id":"one","command":{"action_id":"force","by":"x"}}\n', "Expected `int`"),
        (HELLO + b"x" * (protocol.MAX_CLIENT_LINE_BYTES + 1) + b"\n", "this one has more"),
    ],
)
async def test_nonsense_is_answered_and_dropped(engine: Engine, said: bytes, answer: str) -> None:
    async with engine() as hosted, raw(hosted.socket) as (reader, writer):
        writer.write(said)
        goodbye = await last_line(reader)
        assert goodbye["t"] == "goodbye"
        assert answer in goodbye["reason"]
        still_there = await hosted.connect()
        await still_there.close()


async def test_a_console_that_closes_its_half_is_told_and_dropped(engine: Engine) -> None:
    async with engine() as hosted, raw(hosted.socket) as (reader, writer):
        writer.write(HELLO)
        writer.write_eof()
        assert (await last_line(reader))["reason"] == "you closed your end of the connection"


async def test_consoles_that_come_and_go_are_no_news_for_the_log(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """The bug: a line or two for each status and each dashboard's look around, and none of them of use."""
    caplog.set_level(logging.INFO, logger="paired_servicebus.engine")
    async with engine() as hosted:
        for _ in range(3):
            await (await hosted.connect()).close()
        async with raw(hosted.socket) as (_, writer):
            writer.write(HELLO)
        hosted.host.record(ping(1))
        still_there = await hosted.connect()
        await take(still_there, has_ping(1))
        await still_there.close()
    assert caplog.messages == []


async def test_a_connection_that_says_nothing_is_dropped(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "HELLO_TIMEOUT", 0.05)
    async with engine() as hosted, raw(hosted.socket) as (reader, _):
        assert "no hello came" in (await last_line(reader))["reason"]


async def test_silent_connections_keep_no_console_out(engine: Engine) -> None:
    """The bug: 32 connections that said nothing kept every console out, until their time was over and longer."""
    async with engine() as hosted, contextlib.AsyncExitStack() as stack:
        silent = [
            await stack.enter_async_context(raw(hosted.socket))
            for _ in range(max(control_server.MAX_PENDING_CONNECTIONS, control_server.MAX_CONSOLES) + 10)
        ]
        client = await hosted.connect()
        await client.execute(Command(action_id="pause-syphon", by="ada"))
        await client.close()
        assert "too many connections have sent no hello" in (await last_line(silent[0][0]))["reason"]


async def test_a_hello_that_trickles_is_given_up(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "HELLO_TIMEOUT", 0.1)
    async with engine() as hosted, raw(hosted.socket) as (reader, writer):
        ended = asyncio.create_task(last_line(reader))
        while not ended.done():
            writer.write(b" ")
            await asyncio.sleep(0.02)
        with contextlib.suppress(ConnectionError):  # a byte was under way
            assert "no hello came" in (await ended)["reason"]


async def test_there_is_a_most_of_consoles(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "MAX_CONSOLES", 1)
    async with engine() as hosted:
        first = await hosted.connect()
        with pytest.raises(ControlError, match="1 consoles are connected already"):
            await hosted.connect()
        await first.close()


async def test_an_engine_ends_soon_though_consoles_stall(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "GOODBYE_TIMEOUT", 0.1)
    async with asyncio.timeout(WAIT):
        async with engine() as hosted, raw(hosted.socket) as (_, writer), raw(hosted.socket):
            writer.transport.pause_reading()
            writer.write(HELLO)
            for number in range(5000):
                hosted.host.record(PingSent(at=1.0, entity="x" * 200, number=number))
            await asyncio.sleep(0.05)
            hosted.host.stop("over")
    assert not hosted.socket.exists()


# -- commands -------------------------------------------------------------------------------------------------------


async def test_a_command_is_done_and_the_next_snapshot_shows_it(engine: Engine) -> None:
    async with engine() as hosted, hosted.console() as client:
        done = await client.order(
            Command(action_id="force", targets=("orders",), by="ada", why="drill"), typed="orders"
        )
        assert done.text == "orders is forced now"
        assert hosted.pairing.acts == [("force", "orders", client_module.user_name(), "drill")]

        def forced(taken: list[Update]) -> bool:
            newest = taken[-1]
            return isinstance(newest, Snapshot) and newest.entities[0].state == "forced"

        assert await take(client, forced)


async def test_a_command_to_an_engine_that_has_gone_says_so(engine: Engine) -> None:
    async with engine() as hosted:
        client = await hosted.connect()
    with pytest.raises(EngineNotRunningError, match="went away"):
        await client.order(Command(action_id="force", targets=("orders",), by="ada"), typed="orders")
    await client.close()


async def test_a_command_that_is_not_answered_is_given_up(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "COMMAND_TIMEOUT", 0.05)
    async with engine() as hosted:
        monkeypatch.setattr(hosted.host, "sync", lambda: asyncio.sleep(0.3, result=True))
        client = await hosted.connect()
        with pytest.raises(EngineNotRunningError, match="whether it did 'force' is not known"):
            await client.order(Command(action_id="force", targets=("orders",), by="ada"), typed="orders")
        await client.close()


async def test_a_slow_order_holds_up_no_other_of_the_same_console(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine() as hosted:
        moved = asyncio.Event()

        async def slowly(queue: int) -> str:
            await moved.wait()
            return "2 dead letters were put back to work"

        monkeypatch.setattr(hosted.pairing, "redrive", slowly)
        client = await hosted.connect()
        slow = asyncio.create_task(client.order(Command(action_id="redrive", targets=("0",), by="ada"), typed="0"))
        quick = await client.order(Command(action_id="force", targets=("orders",), by="ada"), typed="orders")
        assert quick.text == "orders is forced now"
        assert not slow.done()
        moved.set()
        assert (await slow).text == "2 dead letters were put back to work"
        await client.close()


async def test_an_order_is_carried_out_though_the_console_that_gave_it_goes(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine() as hosted:
        began, moved, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def slowly(queue: int) -> str:
            began.set()
            await moved.wait()
            done.set()
            return "done"

        monkeypatch.setattr(hosted.pairing, "redrive", slowly)
        client = await hosted.connect()
        slow = asyncio.create_task(client.order(Command(action_id="redrive", targets=("0",), by="ada"), typed="0"))
        await began.wait()
        await client.close()
        with pytest.raises(EngineNotRunningError):
            await slow
        moved.set()
        async with asyncio.timeout(WAIT):
            await done.wait()


async def test_the_answer_to_stop_comes_before_the_end(engine: Engine) -> None:
    async def live() -> str:
        async with engine() as hosted:
            ready.set_result(hosted.socket)
            return await hosted.host.ended()

    ready: asyncio.Future[Path] = asyncio.get_running_loop().create_future()
    living = asyncio.create_task(live())
    client = await ControlClient.connect(await ready)
    done = await client.order(Command(action_id="stop", by="ada", why="enough"), typed="orders")
    assert done.ok
    assert await living == f'stopped by {client_module.user_name()}: "enough"'
    await client.close()


def test_who_gives_orders_has_a_name_also_where_the_user_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run under any number, and an order is given there, too."""

    def nameless(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(peer_credentials.pwd, "getpwuid", nameless)
    assert client_module.user_name() == f"uid {os.getuid()}"


def test_the_environment_does_not_name_who_gives_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(variable, "mallory")
    assert client_module.user_name() == peer_credentials.name_of(os.getuid())


async def test_the_audit_names_the_peers_user_and_marks_what_it_claims(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bug: `by` was whatever the client sent."""
    monkeypatch.setenv("SUDO_USER", "ada\n\x1b[2J")
    async with engine() as hosted, hosted.console() as client:
        await client.order(Command(action_id="force", targets=("orders",), by="mallory", why="drill"), typed="orders")
        updates = await take(client, lambda taken: _commanded(taken[-1]) is not None)
    owner = f"{peer_credentials.name_of(os.geteuid())} (sudo by ada???2J, as claimed)"
    assert _commanded(updates[-1]) == owner
    assert hosted.pairing.acts == [("force", "orders", owner, "drill")]


def _commanded(update: Update) -> str | None:
    return update.event.by if isinstance(update, Record) and isinstance(update.event, Commanded) else None


async def test_where_the_kernel_cannot_tell_a_name_is_a_claim(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "peer_uid", lambda transport: None)
    async with engine() as hosted, hosted.console() as client:
        await client.order(Command(action_id="force", targets=("orders",), by="ada", why="drill"), typed="orders")
    assert hosted.pairing.acts == [("force", "orders", "ada (as claimed)", "drill")]


def test_the_kernel_of_macos_is_asked_in_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    class Connected:
        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            assert (level, option) == (0, 1)
            return struct.pack("=2IH2x16I", 0, 501, 1, *range(16))[:size]

    class Transport(asyncio.BaseTransport):
        def get_extra_info(self, name: str, default: object = None) -> object:
            return Connected()

    monkeypatch.delattr(peer_credentials.socket, "SO_PEERCRED")
    monkeypatch.setattr(peer_credentials.socket, "LOCAL_PEERCRED", 1, raising=False)
    assert peer_credentials.peer_uid(Transport()) == 501


async def test_an_engine_with_a_full_backlog_is_not_taken_for_another_users(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio takes EAGAIN of a full backlog for a connection under way: such a socket has no peer."""
    monkeypatch.setattr(client_module, "CONNECT_TIMEOUT", 0.3)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(short / "crowded.sock"))
        listener.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                one = stack.enter_context(socket.socket(socket.AF_UNIX))
                one.setblocking(False)
                one.connect(str(short / "crowded.sock"))
        with pytest.raises(EngineNotRunningError, match="did not answer within"):
            await ControlClient.connect(short / "crowded.sock")


# -- The bounded buffer: newest state, newest events, and an honest count of the rest.


async def drained(box: Mailbox[str, int]) -> list[object]:
    box.close()
    taken = []
    while (item := await box.take()) is not None:
        taken.append(item)
    return taken


MAILS: dict[str, tuple[list[str | int | Skipped], list[object]]] = {
    "a newer state replaces one that was not taken": (["old", "new"], ["new"]),
    "the state comes before the events": ([1, "now"], ["now", 1]),
    "the oldest events give way and are counted": ([*range(5)], [Skipped(3), 3, 4]),
    "a number of missing events that gives way is added": ([Skipped(10), *range(3)], [Skipped(11), 1, 2]),
}
"""What is put into a mailbox of two events, and what is taken out."""


@pytest.mark.parametrize("case", MAILS)
async def test_a_mailbox_is_bounded_and_counts(case: str) -> None:
    puts, taken = MAILS[case]
    box: Mailbox[str, int] = Mailbox(capacity=2)
    for one in puts:
        box.put_state(one) if isinstance(one, str) else box.put_event(one)
    assert await drained(box) == taken


@pytest.mark.parametrize("put", [7, None])
async def test_one_who_waits_is_woken_by_an_event_or_the_end(put: int | None) -> None:
    box: Mailbox[str, int] = Mailbox(capacity=2)
    waiting = asyncio.create_task(box.take())
    await asyncio.sleep(0)
    box.close() if put is None else box.put_event(put)
    assert await waiting == put


@given(capacity=some.integers(1, 5), moves=some.lists(some.sampled_from(["put", "take"]), max_size=60))
def test_nothing_is_lost_silently(capacity: int, moves: list[str]) -> None:
    async def play() -> None:
        box: Mailbox[str, int] = Mailbox(capacity=capacity)
        put = heard = 0
        taken: list[object] = []
        for move in moves:
            if move == "put":
                box.put_event(put)
                put += 1
                heard += 1
            elif heard:
                taken.append(await box.take())
                heard = max(0, min(heard, capacity) - (0 if isinstance(taken[-1], Skipped) else 1))
        taken += await drained(box)
        told = 0
        for item in taken:
            if isinstance(item, Skipped):
                told += item.count
            else:
                assert item == told
                told += 1
        assert told == put

    asyncio.run(play())


# -- The curves over time on the control socket: all at once, then step by step, and to nobody who did not ask.


def pass_five_seconds(hosted: Any, *, accepted: int) -> None:
    """As if the sampler's time had come."""
    control, orders = hosted.host._control, hosted.pairing.entities["orders"]
    orders = replace(orders, accepted=orders.accepted + accepted)
    hosted.pairing.entities["orders"] = orders
    snapshot = hosted.host._snapshot(hosted.pairing)
    control.publish_snapshot(replace(snapshot, at=hosted.host._series._ring._before.at + 5.0))
    hosted.host._series.sample({})


async def graphs(client: ControlClient, number: int) -> list[Graphs]:
    found: list[Graphs] = []
    async with asyncio.timeout(60):
        async for update in client.updates():
            if isinstance(update, Graphs):
                found.append(update)
                if len(found) == number:
                    break
    return found


async def test_a_console_gets_all_curves_and_then_each_step(engine: Engine, until: Any) -> None:
    async with engine() as hosted:
        await until(lambda: hosted.host._series._ring._before is not None)
        pass_five_seconds(hosted, accepted=50)
        pass_five_seconds(hosted, accepted=10)
        client = await ControlClient.connect(hosted.socket, graphs=True)
        pass_five_seconds(hosted, accepted=5)
        whole, step = await graphs(client, 2)
        await client.close()
    assert whole.whole
    assert whole.total.to_primary == (10.0, 2.0)
    assert not step.whole
    assert step.total.to_primary == (1.0,)


async def test_a_picture_of_a_running_engine_shows_its_curves(engine: Engine, until: Any) -> None:
    async with engine() as hosted:
        await until(lambda: hosted.host._series._ring._before is not None)
        pass_five_seconds(hosted, accepted=50)
        text = await picture(hosted.socket, size=(80, 24), as_text=True)
    assert "to primary" in text
    assert "last 2 min" in text


async def test_changes_and_orders_are_marked_and_nothing_else(engine: Engine, until: Any) -> None:
    async with engine() as hosted:
        await until(lambda: hosted.host._series._ring._before is not None)
        hosted.host.record(StateChanged(at=1.0, entity="orders", was="healthy", now="suspect", why=""))
        hosted.host.record(Commanded(at=2.0, command="force", target="orders", by="ada"))
        hosted.host.record(Warned(at=3.0, about="test", text="no mark"))
        pass_five_seconds(hosted, accepted=1)
        client = await ControlClient.connect(hosted.socket, graphs=True)
        (whole,) = await graphs(client, 1)
        await client.close()
    assert [(mark.what, mark.subject, mark.order) for mark in whole.marks] == [
        ("suspect", "orders", False),
        ("force", "orders", True),
    ]


async def test_a_client_that_does_not_ask_gets_none(engine: Engine, until: Any) -> None:
    async with engine() as hosted:
        await until(lambda: hosted.host._series._ring._before is not None)
        pass_five_seconds(hosted, accepted=50)
        reader, writer = await asyncio.open_unix_connection(hosted.socket)
        writer.write(b'{"t":"hello","version":3}\n')
        kinds = []
        async with asyncio.timeout(60):
            while kinds.count("change") < 2:
                kinds.append(json.loads(await reader.readline())["t"])
                if kinds[-1] in ("snapshot", "change"):
                    pass_five_seconds(hosted, accepted=5)
        writer.transport.abort()
    assert "graphs" not in kinds
