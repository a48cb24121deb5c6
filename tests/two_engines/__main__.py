"""`python -m tests.two_engines --runs 10 --seconds 90`: does an outage with two engines on one backlog cry wolf?

In each run `paired up` and an application with `enable_syphon=True`, two processes, move messages out of one backlog.
`orders` takes nothing for so many seconds; then it heals and both drain. Each snapshot and event of both is read. Exit
status 1 if one of them ever says that the syphon is stuck, does not wait for the outage, or if the backlog does not
drain.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from paired_servicebus.core.model.entity_state import DIVERTING
from paired_servicebus.core.model.pairing_events import Record, Warned
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from servicebus_sandbox import Sandbox

ROOT: Final = Path(__file__).parents[2]
ENGINES: Final = ("up", "application")
QUEUES: Final = 3
START: Final = 60.0
DRAIN: Final = 120.0
"""Seconds in which all has to arrive once the destination is healthy."""
CALM: Final = 10.0
"""Seconds that both are watched after that."""


@dataclass(frozen=True)
class Times:
    """Of both engines, in seconds; of `paired up` as of the application."""

    send_timeout: float = 5.0
    failover_interval: float = 5.0
    ping_interval: float = 5.0
    each: float = 0.1


@dataclass
class Heard:
    """What one engine said."""

    statuses: Counter[SyphonStatus] = field(default_factory=Counter)
    stuck: list[str] = field(default_factory=list)
    latest: Snapshot | None = None
    most_held: int = 0

    def take(self, update: object) -> None:
        """A snapshot, or an event."""
        if isinstance(update, Snapshot):
            self.latest = update
            self.statuses[update.syphon.status] += 1
            self.most_held = max(self.most_held, sum(queue.set_aside for queue in update.queues))
            said = [update.syphon.text] if update.syphon.status is SyphonStatus.STUCK else []
            self.stuck += said + [alarm for alarm in update.alarms if "stuck" in alarm]
        elif isinstance(update, Record) and isinstance(update.event, Warned) and "stuck" in update.event.text:
            self.stuck.append(update.event.text)

    @property
    def diverts(self) -> bool:
        """Whether its sends go to the backlog."""
        return self.latest is not None and any(entity.state in DIVERTING for entity in self.latest.entities)

    @property
    def parked(self) -> int | None:
        """The figure."""
        return self.latest.parked.messages if self.latest is not None and self.latest.parked is not None else None


@dataclass
class Run:
    """One run's outcome. late: seconds that a figure was above zero after nothing was parked any more."""

    heard: dict[str, Heard] = field(default_factory=lambda: {name: Heard() for name in ENGINES})
    parked: int = 0
    drained_in: float | None = None
    late: dict[str, float] = field(default_factory=dict)

    @property
    def wrong(self) -> list[str]:
        """What must not be."""
        said = [
            f"{name}: {heard.stuck[0]} (said {len(heard.stuck)} times)"
            for name, heard in self.heard.items()
            if heard.stuck
        ]
        said += [
            f"{name} never waited" for name, heard in self.heard.items() if not heard.statuses[SyphonStatus.WAITING]
        ]
        return said + ([] if self.drained_in is not None else [f"not drained after {DRAIN:g} s"])  # fmt: skip


async def follow(places: EnginePaths, heard: Heard) -> None:
    """Hear everything that an engine says, until cancelled."""
    client = await ControlClient.connect(places.socket)
    try:
        async for update in client.updates():
            heard.take(update)
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def process(*command: str, environ: dict[str, str]) -> AsyncIterator[Process]:
    """A process of this Python that ends when its input does."""
    running = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=ROOT, env=environ, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )
    try:
        yield running
    finally:
        if running.returncode is None:
            assert running.stdin is not None
            running.stdin.close()
            try:
                await asyncio.wait_for(running.wait(), START)
            except TimeoutError:
                running.kill()


async def paired(*command: str, environ: dict[str, str]) -> None:
    """Run a verb to its end. Raises RuntimeError."""
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "paired_servicebus.cli",
        *command,
        cwd=ROOT,
        env=environ,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )
    out, err = await running.communicate()
    if running.returncode:
        raise RuntimeError(f"paired {command[0]} ended with {running.returncode}: {out.decode()}{err.decode()}")


@contextlib.asynccontextmanager
async def engines(sandbox: Sandbox, folder: Path, times: Times) -> AsyncIterator[dict[str, EnginePaths]]:
    """Both, by name."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
    environ["XDG_STATE_HOME"] = str(folder)
    environ |= {name.upper(): sandbox[name].connection_string for name in ("primary", "secondary")}
    config = folder / "pairing.toml"
    sides = "".join(
        f'[{side}]\nname = "{side}"\nca_file = "{sandbox.ca_file}"\nconnection_string = {{ env = "{side.upper()}" }}\n'
        for side in ("primary", "secondary")
    )
    config.write_text(
        f'[pairing]\nname = "up"\nentities = ["orders"]\nbacklog_queue_count = {QUEUES}\n'
        f'send_timeout = "{times.send_timeout:g}s"\nfailover_interval = "{times.failover_interval:g}s"\n'
        f'ping_primary_interval = "{times.ping_interval:g}s"\n{sides}'
    )
    await paired("up", "--headless", "--config", str(config), environ=environ)
    options = {"queues": QUEUES, "send-timeout": times.send_timeout, "failover-interval": times.failover_interval}
    options |= {"ping-interval": times.ping_interval, "each": times.each}
    given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    command = ("-m", "tests.two_engines.application", "--name", "application", "--ca-file", str(sandbox.ca_file))
    try:
        async with process(*command, *given, environ=environ) as application:
            assert application.stdout is not None
            if not await asyncio.wait_for(application.stdout.readline(), START):
                raise RuntimeError("the application did not start")
            states = {name: folder / "paired" / name for name in ENGINES}
            yield {name: EnginePaths(state=state, socket=state / "control.sock") for name, state in states.items()}
    finally:
        await paired("down", "--config", str(config), environ=environ)


def lying(sandbox: Sandbox) -> int:
    """What is parked, as the sandbox knows it."""
    namespace = sandbox["secondary"].node.namespace
    return sum(namespace.queue(f"primary/x-servicebus-transfer/{index}").counts().active for index in range(QUEUES))


async def play(seconds: float, times: Times, kind: str) -> Run:
    """One outage."""
    run, folder = Run(), Path(tempfile.mkdtemp(prefix="p2-"))
    try:
        async with Sandbox.start() as sandbox, engines(sandbox, folder, times) as places:
            following = [asyncio.create_task(follow(places[name], run.heard[name])) for name in ENGINES]
            await asyncio.sleep(min(5.0, seconds))
            board = sandbox["primary"].node.faults
            fault = board.add(kind, entity="orders")
            await asyncio.sleep(seconds)
            run.parked = lying(sandbox)
            board.remove(fault.id)
            await drain(sandbox, run)
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return run


async def drain(sandbox: Sandbox, run: Run) -> None:
    """Wait until the application sends to the primary and nothing is parked, and watch a little longer."""
    began = time.monotonic()
    while lying(sandbox) or run.heard["application"].diverts:
        if time.monotonic() - began > DRAIN:
            return
        await asyncio.sleep(0.2)
    ended = time.monotonic()
    run.drained_in = ended - began
    while time.monotonic() - ended < CALM:
        for name, heard in run.heard.items():
            if heard.parked:
                run.late[name] = time.monotonic() - ended
        await asyncio.sleep(0.2)


def told(number: int, run: Run) -> str:
    """A run in a line."""
    each = [
        f"{name}: held {heard.most_held}, "
        + ", ".join(f"{status} {count}" for status, count in heard.statuses.most_common())
        + f", figure zero {run.late.get(name, 0.0):.1f} s after"
        for name, heard in run.heard.items()
    ]
    drained = f"drained in {run.drained_in:.1f} s" if run.drained_in is not None else "not drained"
    return "\n".join((f"run {number}: {run.parked} parked, {drained}", *(f"  {text}" for text in each)))


async def proof(runs: int, seconds: float, parallel: int, kind: str) -> int:
    """The exit status."""
    turns, wrong = asyncio.Semaphore(parallel), 0

    async def one(number: int) -> None:
        nonlocal wrong
        async with turns:
            run = await play(seconds, Times(), kind)
        print(told(number, run), flush=True)
        for text in run.wrong:
            print(f"  WRONG: {text}", flush=True)
        wrong += bool(run.wrong)

    await asyncio.gather(*(one(number) for number in range(1, runs + 1)))
    print(f"{runs} runs of {seconds:g} s: {wrong} with something wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    reader = argparse.ArgumentParser(prog="python -m tests.two_engines", description=__doc__)
    reader.add_argument("--runs", type=int, default=10)
    reader.add_argument("--seconds", type=float, default=90.0, help="how long the outage lasts")
    reader.add_argument("--parallel", type=int, default=1, help="runs at the same time")
    reader.add_argument("--fault", default="refused", help="of orders: refused, black-holed, disabled, busy, …")
    chosen = reader.parse_args()
    sys.exit(asyncio.run(proof(chosen.runs, chosen.seconds, chosen.parallel, chosen.fault)))
