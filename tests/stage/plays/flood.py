"""Connections by the thousand that say nothing, or never finish saying it, on one server after another."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from tests.ports import free_port
from tests.stage.course import BACKLOG
from tests.stage.director import DRAINED, Director
from tests.stage.ledger import Answered, Arrived, Attempted, now
from tests.stage.processes import ROOT, START, CoreWaits, Engine, resident_megabytes, run_paired
from yarl import URL

from paired_servicebus.core.accounting.ledger import SendOutcome
from paired_servicebus.core.errors import EngineNotRunningError

ENTITY: Final = "orders"
IDLE: Final = 2000
"""Connections at the same time."""
DESCRIPTORS: Final = 1024
"""Of the sandbox and of the engine."""
AGAIN: Final = 1.0
"""Seconds until a connection that was dropped is made again."""
SOON: Final = 1.0
"""Seconds within which the engine shows its state, besides those that it waits for a core."""
MOST_LOG: Final = 10 * 1000 * 1000
TRIES: Final = 5
BATCH: Final = 20
HEADER: Final = b"AMQP\x03\x01\x00\x00"
HALF_HELLO: Final = b"\x16\x03\x01\x02\x00"
HALF_HEAD: Final = b"GET / HTTP/1.1\r\nHo"


@dataclass(frozen=True)
class Target:
    """One server, and what each connection to it says before it falls silent."""

    name: str
    address: tuple[str, int] | str
    opening: bytes = b""


@dataclass(frozen=True)
class Limited:
    """The sandbox as a process of few descriptors. told: its first line."""

    told: dict[str, Any]
    pid: int

    @property
    def strings(self) -> dict[str, str]:
        return {one["name"]: one["connection_string"] for one in self.told["namespaces"]}

    def targets(self, engine: Engine, metrics: int) -> list[Target]:
        """Return every server that there is."""
        amqp = ("127.0.0.1", self.told["namespaces"][1]["amqp_port"])
        arm, control = (("127.0.0.1", URL(self.told[name]).port or 0) for name in ("arm_url", "control_url"))
        page = ("127.0.0.1", metrics)
        return [
            Target("nothing", page),
            Target("metrics", page),
            Target("metrics, half a request", page, HALF_HEAD),
            Target("control socket", str(engine.paths.socket)),
            Target("namespace, silent", amqp),
            Target("namespace, AMQP header", amqp, HEADER),
            Target("namespace, half a TLS hello", amqp, HALF_HELLO),
            Target("ARM", arm, HALF_HEAD),
            Target("control URL", control, HALF_HEAD),
        ]


async def flood(director: Director, minutes: float, _engines: int) -> None:
    """Park messages all the time, and have the engine move them beside each flood."""
    async with _limited(director) as sandbox:
        metrics = free_port()
        engine = Engine(
            "flood", director.folder, sandbox.strings, Path(sandbox.told["ca_file"]),
            {"entities": [ENTITY], "backlog_queue_count": 1, "metrics": f"127.0.0.1:{metrics}"},
        )  # fmt: skip
        director.actors.append(engine)
        await engine.start()
        limit(engine.pid)
        parking = asyncio.create_task(_park(director, sandbox))
        targets = sandbox.targets(engine, metrics)
        for target in targets:
            count = 0 if target.name == "nothing" else IDLE
            await _flood_one(director, engine, target, count, seconds=max(1.0, minutes * 60 / len(targets)))
        director.figures["the sandbox, MB"] = resident_megabytes(sandbox.pid)
        if parking.done():
            director.found(f"messages could not be parked: {parking.exception()!r}")
        parking.cancel()
        await asyncio.gather(parking, return_exceptions=True)
        await _collect(director, sandbox)
        await director.end()


@contextlib.asynccontextmanager
async def _limited(director: Director) -> AsyncIterator[Limited]:
    with (director.folder / "sandbox.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "servicebus_sandbox", "--json", cwd=ROOT, stdout=PIPE, stderr=log
        )
    assert process.stdout is not None
    try:
        limit(process.pid)
        async with asyncio.timeout(START):
            told = msgspec.json.decode(await process.stdout.readline())
        yield Limited(told, process.pid)
    finally:
        process.terminate()
        await process.wait()


def limit(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


async def _park(director: Director, sandbox: Limited) -> None:
    """Park messages until cancelled, as a sender elsewhere would, in calls of which each has its line in the ledger."""
    async with (
        ServiceBusClient.from_connection_string(sandbox.strings["secondary"]) as client,
        client.get_queue_sender(BACKLOG[0]) as sender,
    ):
        number = 0
        while True:
            ids = [f"parked-{one}" for one in range(number, number + BATCH)]
            properties: dict[str | bytes, Any] = {"x-ms-path": ENTITY}
            director.facts.write(Attempted(at=now(), entity=ENTITY, ids=ids))
            await sender.send_messages(
                [ServiceBusMessage(b"x", message_id=one, application_properties=properties) for one in ids]
            )
            director.facts.write(Answered(at=now(), ids=ids, answer=SendOutcome.ACCEPTED))
            number += BATCH
            await asyncio.sleep(0.1)


async def _collect(director: Director, sandbox: Limited) -> None:
    """List all that has arrived, once it is as much as was accepted."""
    end = now() + DRAINED
    async with ServiceBusClient.from_connection_string(sandbox.strings["primary"]) as client:
        number = 1
        async with client.get_queue_receiver(ENTITY) as receiver:
            while now() < end:
                for message in await receiver.peek_messages(250, sequence_number=number):
                    number = (message.sequence_number or 0) + 1
                    name = str(message.message_id)
                    director.facts.write(Arrived(at=now(), entity=ENTITY, id=name, number=number))
                if await director.until(lambda: director.ledger.accepted.keys() <= director.ledger.arrived, 0.0):
                    return


async def _hold(target: Target) -> None:
    """Hold one connection that says no more than its opening, made again whenever it was dropped."""
    loop = asyncio.get_running_loop()
    while True:
        is_unix = isinstance(target.address, str)
        with socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET) as connection:
            connection.setblocking(False)
            with contextlib.suppress(OSError):
                await loop.sock_connect(connection, target.address)
                if target.opening:
                    await loop.sock_sendall(connection, target.opening)
                while await loop.sock_recv(connection, 4096):
                    pass
        await asyncio.sleep(AGAIN)


async def _flood_one(director: Director, engine: Engine, target: Target, count: int, seconds: float) -> None:
    """Measure during one flood; note each promise that it breaks."""
    holders = [asyncio.create_task(_hold(target)) for _ in range(count)]
    try:
        await asyncio.sleep(1.0)
        journal, (before, _) = _size(engine.paths.spool), await _moved(director, engine)
        answers, end, waits = [], time.monotonic() + seconds, CoreWaits([engine.pid])
        while time.monotonic() < end:
            answers.append((await _moved(director, engine))[1])
            await asyncio.sleep(0.1)
        status, said = await _status(engine)
        (after, last), grown = await _moved(director, engine), _size(engine.paths.spool) - journal
    finally:
        for holder in holders:
            holder.cancel()
        await asyncio.gather(*holders, return_exceptions=True)
    worst, log = max(*answers, last), _size(engine.paths.logs)
    told = f"answers within {worst * 1000:.0f} ms, {after - before} moved, journal {grown:,}, log {log:,} bytes"
    director.figures[target.name] = told
    director.say(f"{target.name}: {told}")
    broken = {
        f"paired status ended with {status}: {said}": status not in (0, 1),
        "the engine answered late": worst > SOON + waits.longest,
        "the syphon moved nothing": after == before,
        "the journal did not grow": not grown,
        "the log is too large": log > MOST_LOG,
    }
    for text in (text for text, holds in broken.items() if holds):
        director.found(f"{target.name}: {text}; {told}")


async def _status(engine: Engine) -> tuple[int, str]:
    """Run `paired status`, again as a person does where the crowd at the socket was faster."""
    for _ in range(TRIES):
        status, said = await run_paired("status", "--json", "--config", str(engine.config))
        if status in (0, 1):  # 1: not all is healthy
            break
    return status, said


async def _moved(director: Director, engine: Engine) -> tuple[int, float]:
    """Return how many messages the syphon has moved, and the seconds until a new console shows it.

    A console that is turned away connects again: on a busy machine the crowd may be faster than its first words.
    """
    began = time.monotonic()
    while True:
        try:
            console = await director.console(engine)
            break
        except EngineNotRunningError:
            if time.monotonic() - began > START or not engine.is_running:
                raise
    try:
        async with asyncio.timeout(START):
            while console.snapshot is None:
                await asyncio.sleep(0.005)
        return console.snapshot.syphon.moved, time.monotonic() - began
    finally:
        await console.close()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
