"""The public door: `pair_namespaces` by `Namespace`, awaitable and a context manager."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import mypy.api
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

import paired_servicebus
from paired_servicebus import ConfigurationError, Namespace, SendAvailabilityPairedNamespaceOptions, pair_namespaces
from paired_servicebus.engine.control import control_server
from paired_servicebus.engine.control.control_server import AcceptedConnection, ConnectionAcceptor
from paired_servicebus.pairing.options import PairingOptions
from servicebus_sandbox import Sandbox

ROOT = Path(__file__).parents[2]
USE = """
from azure.servicebus import ServiceBusMessage

from paired_servicebus import Namespace, pair_namespaces
from paired_servicebus import sync

here = Namespace.from_connection_string("x")


async def main() -> None:
    async with pair_namespaces(here, here, enable_syphon=True, control=True) as paired:
        async with paired.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("one"))
            await sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
            await sender.send_messages(42)  # wrong
        async with paired.get_queue_receiver("orders") as receiver:
            for message in await receiver.receive_messages():
                await receiver.complete_message(message)
                await receiver.complete_mesage(message)  # wrong
        paired.forse("orders")  # wrong
    awaited = await pair_namespaces(here, here, enable_sypon=True)  # wrong


def blocking() -> None:
    with sync.pair_namespaces(here, here, enable_sypon=True) as paired:  # wrong
        paired.force("orders", by="me").upper()
        paired.forse("orders")  # wrong
        with paired.get_queue_receiver("orders") as receiver:
            for message in receiver:
                receiver.complete_message(message)
                receiver.complete_mesage(message)  # wrong
        paired.get_queue_sender("orders").send_messages(42)  # wrong
"""


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox.start() as running:
        yield running


def namespaces(sandbox: Sandbox) -> tuple[Namespace, Namespace]:
    def one(name: str) -> Namespace:
        options = {"connection_verify": str(sandbox.ca_file)}
        return Namespace.from_connection_string(sandbox[name].connection_string, options=options)

    return one("primary"), one("secondary")


async def test_it_is_entered_and_closes_what_it_made(sandbox: Sandbox) -> None:
    async with pair_namespaces(*namespaces(sandbox), backlog_queue_count=1) as paired:
        assert paired.backlog_queue_indices == (0,)
        async with paired.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("one"))
    with pytest.raises(paired_servicebus.PairingClosedError):
        paired.get_queue_sender("orders")


@pytest.mark.parametrize("run", [asyncio.ensure_future, asyncio.create_task, lambda opener: opener])
async def test_it_is_awaited_as_a_coroutine_is(sandbox: Sandbox, run: Any) -> None:
    paired = await asyncio.wait_for(run(pair_namespaces(*namespaces(sandbox), backlog_queue_count=1)), 60)
    assert paired.backlog_queue_count == 1
    await paired.close()


async def test_the_clients_made_here_are_closed_when_pairing_fails(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []
    close = ServiceBusClient.close

    async def closes(self: ServiceBusClient) -> None:
        closed.append(self)
        await close(self)

    monkeypatch.setattr(ServiceBusClient, "close", closes)
    primary, _ = namespaces(sandbox)
    with pytest.raises(paired_servicebus.SameNamespaceError):
        await pair_namespaces(primary, primary)
    assert len(closed) == 3  # the primary's for senders, the primary's for receivers, the secondary's


async def test_a_misspelt_option_is_a_type_error(sandbox: Sandbox) -> None:
    with pytest.raises(TypeError, match=r"no option enable_sypon; it has .*enable_syphon"):
        await pair_namespaces(*namespaces(sandbox), enable_sypon=True)  # type: ignore[call-overload]


async def test_options_by_name_do_not_go_with_clients() -> None:
    with pytest.raises(TypeError, match="enable_syphon"):
        await pair_namespaces(object(), object(), enable_syphon=True)  # type: ignore[call-overload]


@pytest.mark.parametrize("other", ["Endpoint=sb://x/;SharedAccessKey=c4n4ry", None, object()])
async def test_one_namespace_alone_is_refused_and_no_text_repeated(other: Any) -> None:
    here = Namespace.from_connection_string("Endpoint=sb://y/")
    with pytest.raises(ConfigurationError, match=r"^secondary is a \w+; it has to be a Namespace") as raised:
        await pair_namespaces(here, other)
    assert "c4n4ry" not in str(raised.value)


def test_the_options_by_name_are_those_of_the_dataclass() -> None:
    values = {field.name for field in fields(SendAvailabilityPairedNamespaceOptions)}
    hints, theirs = get_type_hints(PairingOptions), get_type_hints(SendAvailabilityPairedNamespaceOptions)
    assert set(hints) == values - {"secondary_client", "secondary_admin"}
    assert {name: hints[name] for name in hints} == {name: theirs[name] for name in hints}


def test_dir_lists_the_public_names() -> None:
    assert set(paired_servicebus.__all__) <= set(dir(paired_servicebus))


@pytest.mark.slow
def test_a_type_checker_finds_each_mistake_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(USE)
    said, complaints, _ = mypy.api.run(["--strict", "--config-file=", "--no-error-summary", str(tmp_path / "use.py")])
    wrong = {number for number, line in enumerate(USE.splitlines(), 1) if line.endswith("# wrong")}
    found = {int(line.split(":")[1]) for line in said.splitlines() if "use.py" in line and ": error:" in line}
    assert found == wrong, said + complaints


# -- The door of the engine's servers: strangers are few, and a process that is short of descriptors stays calm.


WAIT = 60.0
REFUSAL = b"too many\n"


async def echo_a_line(caller: AcceptedConnection) -> None:
    line = await caller.reader.readuntil(b"\n")
    caller.known()
    caller.writer.write(line)
    await caller.reader.read()


@asynccontextmanager
async def opened() -> AsyncIterator[int]:
    """A door on a port."""
    made = ConnectionAcceptor("a server", echo_a_line, limit=1000, refusal=REFUSAL)
    listening = socket.create_server(("127.0.0.1", 0), backlog=control_server.BACKLOG)
    port = listening.getsockname()[1]
    made.open(listening)
    try:
        async with asyncio.timeout(WAIT):
            yield port
    finally:
        await made.close()


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def test_strangers_are_few_and_who_speaks_gets_in(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(control_server, "MAX_PENDING_CONNECTIONS", 5)
    async with opened() as port:
        silent = [await connected(port) for _ in range(12)]
        for reader, _ in silent[:7]:
            assert await reader.read() == REFUSAL
        reader, writer = await connected(port)
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        silent += [await connected(port) for _ in range(12)]
        await silent[-6][0].read()
        writer.write_eof()
        assert await reader.read() == b"", "who has spoken stays, however many more come"
        for _, other in (*silent, (reader, writer)):
            other.transport.abort()
    assert [record.message for record in caplog.records] == [
        "a server turns connections away: more than 5 have asked for nothing"
    ]


async def test_a_process_without_descriptors_neither_spins_nor_fills_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The bug: each attempt that failed was followed by the next at once, and by a line of the log."""
    monkeypatch.setattr(control_server, "NO_DESCRIPTOR_PAUSE", 0.05)
    loop, tried = asyncio.get_running_loop(), []
    accept = loop.sock_accept

    async def refused(listening: socket.socket) -> tuple[socket.socket, object]:
        tried.append(loop.time())
        if len(tried) <= 4:
            raise OSError(errno.EMFILE, "Too many open files")
        return await accept(listening)

    monkeypatch.setattr(loop, "sock_accept", refused)
    with caplog.at_level(logging.WARNING):
        async with opened() as port:
            reader, writer = await connected(port)
            writer.write(b"hello\n")
            assert await reader.readline() == b"hello\n"
            writer.transport.abort()
    assert tried[4] - tried[0] >= 4 * 0.05 * 0.9
    assert [record.message for record in caplog.records] == ["a server cannot accept a connection: Too many open files"]


async def test_without_descriptors_strangers_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "NO_DESCRIPTOR_PAUSE", 2 * WAIT)
    loop, failing = asyncio.get_running_loop(), asyncio.Event()
    accept = loop.sock_accept

    async def refused(listening: socket.socket) -> tuple[socket.socket, object]:
        if failing.is_set():
            failing.clear()
            raise OSError(errno.EMFILE, "Too many open files")
        return await accept(listening)

    monkeypatch.setattr(loop, "sock_accept", refused)
    async with opened() as port:
        silent, _ = await connected(port)
        failing.set()
        reader, writer = await connected(port)  # the accept under way takes this one, the next one fails
        assert await silent.read() == REFUSAL
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        writer.transport.abort()
