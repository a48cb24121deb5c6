"""A sandbox with engines as processes: started together, looked into, and ended without a trace."""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.fleet.fleet_documents import Board, Posted, board_path
from paired_servicebus.engine.fleet.board_codec import read_post
from paired_servicebus.engine.fleet.fleet_setup import set_up_boards
from paired_servicebus.engine.fleet.service_bus_board import ServiceBusBoard, open_board
from paired_servicebus.pairing import tls_context
from paired_servicebus.pairing.management.atom_admin import AtomAdmin
from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox
from servicebus_sandbox.amqp_server.message_codec import show_message
from servicebus_sandbox.broker.entity_settings import Expiry
from servicebus_sandbox.broker.message import StoredMessage
from tests.engine.fleet.conftest import POSTED_BY
from tests.fleet_processes.console import PEN, Console
from tests.fleet_processes.gate import Gate
from tests.fleet_processes.host import Host
from tests.fleet_processes.setting import BACKLOG, ENTITY, ROOT, SIDES, Broken

TOGETHER: Final = 4
"""Processes that start at the same time."""


@dataclass(eq=False)
class Stage:
    """The sandbox in this process, and the hosts by number. `draw` is seeded."""

    sandbox: Sandbox
    folder: Path
    draw: random.Random
    stack: AsyncExitStack
    operators: Path
    hosts: list[Host] = field(default_factory=list)

    async def add(self, count: int, *, has_fleet: bool = True, kind: type[Host] = Host) -> list[Host]:
        """Make hosts, none of them started."""
        made = []
        for _ in range(count):
            name = f"e{len(self.hosts) + 1}"
            gates = {side: await self.stack.enter_async_context(Gate(self.sandbox[side].amqp_port)) for side in SIDES}
            host = kind(name, self.folder / name, self.sandbox, gates, str(self.operators) if has_fleet else "")
            self.stack.push_async_callback(host.kill)
            self.hosts.append(host)
            made.append(host)
        return made

    async def start(self, hosts: Iterable[Host]) -> None:
        """Start hosts, a few at a time."""
        turns = asyncio.Semaphore(TOGETHER)

        async def one(host: Host) -> None:
            async with turns:
                await host.start()

        await asyncio.gather(*(one(host) for host in hosts))

    async def console(self, host: Host) -> Console:
        console = await Console.open(host.socket)
        self.stack.push_async_callback(console.close)
        return console

    async def watched(self, count: int) -> tuple[list[Host], Console]:
        """Start a host with a console, then the others, which find the watch; return when all report."""
        hosts = await self.add(count)
        await hosts[0].start()
        console = await self.console(hosts[0])
        await console.until(lambda view: view.watched, "it is watched")
        await self.start(hosts[1:])
        await console.reporting(count)
        return hosts, console

    async def paired(self, host: Host, *arguments: str) -> tuple[int, str]:
        """Run `paired` on a host; return its exit status and its output."""
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "paired_servicebus", *arguments, "--engine", host.name,
            cwd=ROOT, env=host.environ, stdin=DEVNULL, stdout=PIPE, stderr=PIPE,
        )  # fmt: skip
        out, err = await running.communicate()
        assert running.returncode is not None
        return running.returncode, out.decode() + err.decode()

    @asynccontextmanager
    async def board(self) -> AsyncIterator[ServiceBusBoard]:
        """Open the boards without an engine; they are made if they are missing."""
        string = self.sandbox["secondary"].connection_string
        async with (
            ServiceBusAdministrationClient.from_connection_string(
                string, connection_verify=str(self.sandbox.ca_file)
            ) as admin,
            ServiceBusClient.from_connection_string(string, ssl_context=tls_context()) as client,
        ):
            await set_up_boards(AtomAdmin(admin), "primary")
            board = open_board(client, primary="primary", posted_by=POSTED_BY)
            try:
                yield board
            finally:
                await board.close()

    # -- what the namespaces hold -----------------------------------------------------------------------------------

    def messages(self, side: str, path: str) -> list[StoredMessage]:
        return list(self.sandbox[side].node.namespace.queue(path).messages.peek(0, 1_000_000))

    def posts(self, board: Board) -> list[Posted]:
        return [read_post(_bytes(one), board) for one in self.on_board(board)]

    def on_board(self, board: Board) -> list[StoredMessage]:
        return self.messages("secondary", board_path("primary", board))

    def where(self, message_id: str) -> str:
        """Return the side on which a message was accepted, or ""."""
        for side, path in (("primary", ENTITY), ("secondary", BACKLOG)):
            if any(message_id.encode() in _bytes(one) for one in self.messages(side, path)):
                return side
        return ""

    def check_first_sends(self, hosts: Iterable[Host], side: str) -> None:
        """Raise Broken unless the first send of each host's present boot is on a side."""
        for host in hosts:
            if (found := self.where(host.greeting)) != side:
                raise Broken(f"the first send of {host.greeting} is on {found or 'no'} side, not the {side}")


def _bytes(message: StoredMessage) -> bytes:
    return show_message(message)


@asynccontextmanager
async def stage(seed: int, *, credits: int | None = None) -> AsyncIterator[Stage]:
    """Open a sandbox for a case. credits: those of the secondary namespace in a second; None: no limit."""
    specs = (
        NamespaceSpec("primary", queues=[QueueSpec(ENTITY)]),
        NamespaceSpec("secondary", expiry=Expiry.LAZY, credits_per_second=credits),
    )
    with tempfile.TemporaryDirectory(prefix="fp-", ignore_cleanup_errors=True) as folder:
        operators = Path(folder) / "operators"
        operators.write_text(f"operator-a {PEN.line}\n")
        operators.chmod(0o600)
        async with Sandbox.start(specs) as sandbox, AsyncExitStack() as stack:
            yield Stage(sandbox, Path(folder), random.Random(seed), stack, operators)
