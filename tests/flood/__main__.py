"""`python -m tests.flood`: 2,000 connections that say nothing, or never finish saying it, on one server after another.

A sandbox and an engine run as processes with 1,024 descriptors each. Messages are parked all the time, and the engine
has to move them. While each flood lasts, the engine has to answer a status within a second, the journal and the syphon
have to go on, and the log has to stay small. Exit status 1, and the reason, where one of these fails. The seconds of
the whole command `paired status`, Python's start included, are printed beside.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import shutil
import socket
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from yarl import URL

from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.instance.engine_paths import EnginePaths

ROOT = Path(__file__).parents[2]
DESCRIPTORS = 1024
AGAIN = 1.0
"""Seconds until a connection that was dropped is made again."""
SOON = 1.0
MOST_LOG = 10 * 1000 * 1000
START = 60.0
HEADER = b"AMQP\x03\x01\x00\x00"
HALF_HELLO = b"\x16\x03\x01\x02\x00"
HALF_HEAD = b"GET / HTTP/1.1\r\nHo"


@dataclass(frozen=True)
class Target:
    """One server, and what each connection to it says before it falls silent."""

    name: str
    address: tuple[str, int] | str
    opening: bytes = b""


@dataclass
class Scene:
    """The processes of one run."""

    places: EnginePaths
    config: Path
    environ: dict[str, str]
    sandbox: dict[str, Any]
    sandbox_pid: int
    metrics: int

    def targets(self) -> list[Target]:
        """Every server there is."""
        amqp = ("127.0.0.1", self.sandbox["namespaces"][1]["amqp_port"])
        arm, control = (("127.0.0.1", URL(self.sandbox[name]).port or 0) for name in ("arm_url", "control_url"))
        metrics = ("127.0.0.1", self.metrics)
        return [
            Target("nothing", metrics),
            Target("metrics", metrics),
            Target("metrics, half a request", metrics, HALF_HEAD),
            Target("control socket", str(self.places.socket)),
            Target("namespace, silent", amqp),
            Target("namespace, AMQP header", amqp, HEADER),
            Target("namespace, half a TLS hello", amqp, HALF_HELLO),
            Target("ARM", arm, HALF_HEAD),
            Target("control URL", control, HALF_HEAD),
        ]

    def size(self, folder: Path) -> int:
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def allow(descriptors: int) -> None:
    """In a child, before it runs: no more than these."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))


async def run(*command: str, environ: dict[str, str]) -> float:
    """Runs `paired` to its end; the seconds it took. Raises RuntimeError when it failed."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "paired_servicebus.cli", *command,
        cwd=ROOT, env=environ, stdin=DEVNULL, stdout=PIPE, stderr=PIPE,
        preexec_fn=lambda: allow(DESCRIPTORS),
    )  # fmt: skip
    async with asyncio.timeout(START):
        out, err = await process.communicate()
    if process.returncode not in (0, 1):  # 1: not all is healthy
        raise RuntimeError(f"paired {command[0]} ended with {process.returncode}: {out.decode()}{err.decode()}")
    return time.perf_counter() - began


@contextlib.asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    """A sandbox and an engine that moves messages."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        metrics = free.getsockname()[1]
    with (folder / "sandbox.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "paired_servicebus.cli", "sandbox", "--json", cwd=ROOT, stdout=PIPE, stderr=log,
            preexec_fn=lambda: allow(DESCRIPTORS),
        )  # fmt: skip
    assert process.stdout is not None
    try:
        told = msgspec.json.decode(await asyncio.wait_for(process.stdout.readline(), START))
        config = folder / "pairing.toml"
        trust = f'ca_file = "{told["ca_file"]}"'
        sides = "".join(
            f'[{side}]\nname = "{side}"\n{trust}\nconnection_string = {{ env = "{side.upper()}" }}\n'
            for side in ("primary", "secondary")
        )
        pairing = f'name = "flood"\nentities = ["orders"]\nbacklog_queue_count = 1\nmetrics = "127.0.0.1:{metrics}"'
        config.write_text(f"[pairing]\n{pairing}\n{sides}")
        environ = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
        environ["XDG_STATE_HOME"] = str(folder)
        environ |= {each["name"].upper(): each["connection_string"] for each in told["namespaces"]}
        state = folder / "paired" / "flood"
        made = Scene(
            EnginePaths(state=state, socket=state / "control.sock"), config, environ, told, process.pid, metrics
        )
        await run("up", "--headless", "--config", str(config), environ=environ)
        try:
            yield made
        finally:
            await run("down", "--config", str(config), environ=environ)
    finally:
        process.terminate()
        await process.wait()


async def park(made: Scene) -> None:
    """Parks messages until cancelled, as a sender elsewhere would."""
    number = 0
    text = made.sandbox["namespaces"][1]["connection_string"]
    queue = "primary/x-servicebus-transfer/0"
    async with ServiceBusClient.from_connection_string(text) as client, client.get_queue_sender(queue) as sender:
        while True:
            properties: dict[str | bytes, Any] = {"x-ms-path": "orders"}
            ids = range(number, number + 20)
            await sender.send_messages(
                [ServiceBusMessage(b"x", message_id=f"{one}", application_properties=properties) for one in ids]
            )
            number += 20
            await asyncio.sleep(0.1)


async def hold(target: Target) -> None:
    """One connection that says no more than its opening, made again whenever it was dropped."""
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


async def snapshot(places: EnginePaths) -> tuple[Snapshot, float]:
    """How the engine stands, and how long its answer took."""
    began = time.perf_counter()
    client = await ControlClient.connect(places.socket)
    try:
        async with asyncio.timeout(START):
            async for update in client.updates():
                if isinstance(update, Snapshot):
                    return update, time.perf_counter() - began
    finally:
        await client.close()
    raise RuntimeError("the engine ended")


async def flooded(made: Scene, target: Target, count: int, seconds: float) -> str:
    """Measures during one flood; what is wrong, or empty."""
    holders = [asyncio.create_task(hold(target)) for _ in range(count)]
    try:
        await asyncio.sleep(1.0)
        journal, (before, _) = made.size(made.places.spool), await snapshot(made.places)
        answers = []
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            answers.append((await snapshot(made.places))[1])
            await asyncio.sleep(0.1)
        status = await run("status", "--json", "--config", str(made.config), environ=made.environ)
        (after, last), grown = await snapshot(made.places), made.size(made.places.spool) - journal
    finally:
        for holder in holders:
            holder.cancel()
        await asyncio.gather(*holders, return_exceptions=True)
    moved, worst, log = after.syphon.moved - before.syphon.moved, max(*answers, last), made.size(made.places.logs)
    print(
        f"{target.name:28} {count:5}  {worst * 1000:8.0f} ms  {status:6.2f} s  {moved:6}  {grown:9,}  {log:9,}"
        f"  {memory(made.sandbox_pid):4} MB",
        flush=True,
    )
    faults = {
        "the engine answered late": worst > SOON,
        "the syphon moved nothing": not moved,
        "the journal did not grow": not grown,
        "the log is too large": log > MOST_LOG,
    }
    return ", ".join(f"{target.name}: {fault}" for fault, holds in faults.items() if holds)


def memory(pid: int) -> int:
    """Megabytes that the process has resident."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() // 2**20


async def proof(count: int, seconds: float) -> int:
    """The exit status."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = Path(tempfile.mkdtemp(prefix="pf-"))
    wrong = []
    try:
        async with scene(folder) as made:
            parking = asyncio.create_task(park(made))
            print(
                f"{'flooded':28} {'idle':>5}  {'answer':>11}  {'status':>8}  {'moved':>6}  {'journal':>9}  {'log':>9}"
            )
            for target in made.targets():
                wrong.append(await flooded(made, target, 0 if target.name == "nothing" else count, seconds))
            if parking.done():
                wrong.append(f"messages could not be parked: {parking.exception()!r}")
            parking.cancel()
            await asyncio.gather(parking, return_exceptions=True)
    finally:
        shutil.rmtree(folder)
    for sentence in filter(None, wrong):
        print(sentence)
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    reader = argparse.ArgumentParser(prog="python -m tests.flood", description=__doc__)
    reader.add_argument("--idle", type=int, default=2000, help="connections at the same time")
    reader.add_argument("--seconds", type=float, default=1.0, help="how long each flood is watched")
    chosen = reader.parse_args()
    sys.exit(asyncio.run(proof(chosen.idle, chosen.seconds)))
