"""The two ends of `python -m tests.bench console`, each a process: an engine without namespaces, and its dashboard.

    python -m tests.bench.screen.screen_processes engine FOLDER ENTITIES          until its standard input ends
    python -m tests.bench.screen.screen_processes dashboard SOCKET LAGS PROFILE   on the terminal it was given, until q

The engine obeys lines of its standard input: "quiet" and "busy" end and start the traffic, and from "away 3" on the
primary namespace refuses the sends to the first three entities.

The engine is the shipped one, its pairing on stubs: a tenth of its entities is sent to each second, another tenth each
time, and one of a hundred is failed over. The dashboard is the shipped one, with a task on its loop that notes how long
it was kept waiting; what it saw is in the file LAGS when it ends.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from azure.servicebus import ServiceBusMessage

from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.pairing import PairedSender, SendAvailabilityPairedNamespaceOptions, pair_namespaces
from paired_servicebus.ui import run_dashboard
from paired_servicebus.ui.display.profile import ProfileName, ScreenOptions
from tests.bench.sdk_stubs import StubClient, StubManagement

ENGINE: Final = "engine"
DASHBOARD: Final = "dashboard"
PAIRING: Final = "bench"
SOCKET: Final = "s"
BUSY: Final = 10
"""One of so many entities is sent to in a second."""
AWAY: Final = 100
"""One of so many is failed over."""
PING_SECONDS: Final = 5.0
BEAT: Final = 0.002
"""Seconds that the loop is left alone between two looks at the clock."""


class Lags(msgspec.Struct, kw_only=True):
    """How long a loop was kept from its next task, at most, in milliseconds; from the first paint on.

    wall: by the clock, so with whatever else the machine did. own: by the CPU time that the loop's thread used
    meanwhile, which is what the program can be blamed for. over: how often that was more than 50 ms. step, step_ms:
    the task that had the loop longest without a break, and for how much CPU time.
    """

    wall: float = 0.0
    own: float = 0.0
    over: int = 0
    looks: int = 0
    step: str = ""
    step_ms: float = 0.0


@dataclass(slots=True)
class _Watch:
    """Keeps the lags of one loop."""

    lags: Lags = field(default_factory=Lags)
    task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """On the loop that runs."""
        self._note_steps()
        self.task = asyncio.get_running_loop().create_task(self._look(), name="how long the loop is blocked")

    def _note_steps(self) -> None:
        run, lags = asyncio.Handle._run, self.lags

        def noted(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            used = 1000 * (time.thread_time() - began)
            if used > lags.step_ms:
                task: Any = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
                name = task.get_name() if isinstance(task, asyncio.Task) else str(task)
                lags.step, lags.step_ms = name, used

        asyncio.Handle._run = noted  # type: ignore[method-assign, assignment]

    async def _look(self) -> None:
        while True:
            wall, own = time.perf_counter(), time.thread_time()
            await asyncio.sleep(BEAT)
            late = 1000 * (time.perf_counter() - wall - BEAT)
            used = min(1000 * (time.thread_time() - own), late)
            self.lags.wall, self.lags.own = max(self.lags.wall, late), max(self.lags.own, used)
            self.lags.over += used > LOOP_TARGET_MS
            self.lags.looks += 1


LOOP_TARGET_MS: Final = 50.0


def run_watched_dashboard(socket: Path, lags: Path, profile: ProfileName) -> int:
    """The dashboard as a person has it; its exit status."""
    watch = _Watch()
    status = run_dashboard(socket, config_name=PAIRING, on_ready=watch.start, wishes=ScreenOptions(profile=profile))
    lags.write_bytes(msgspec.json.encode(watch.lags))
    return status


async def run_engine(folder: Path, entities: int) -> None:
    """An engine with so many entities, until the standard input ends. Says a line when consoles can attach."""
    primary: Any = StubClient("primary", is_up=True)
    secondary: Any = StubClient("secondary", is_up=True)
    management: Any = StubManagement(secondary.sent)
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=management, secondary_client=secondary,
        primary_name="primary", enable_syphon=False,
        failover_interval=0.0, ping_primary_interval=PING_SECONDS,
    )  # fmt: skip
    async with (
        EngineHost(
            EngineIdentity.of(PAIRING), spool=folder / "spool", socket=folder / SOCKET, policy=options.policy()
        ) as host,
        await pair_namespaces(primary, options, on_event=host.record) as paired,
    ):
        await host.adopt(paired)
        names = [f"entity-{number:04}" for number in range(entities)]
        senders = [paired.get_queue_sender(name) for name in names]
        await asyncio.gather(*(sender.send_messages(ServiceBusMessage(b"x")) for sender in senders))
        for number, name in enumerate(names):
            if number % AWAY == AWAY - 1:
                paired.force(name, by="bench")
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        await _obey(primary, dict(zip(names, senders, strict=True)))


async def _obey(primary: StubClient, senders: Mapping[str, PairedSender]) -> None:
    """Follow the lines of the standard input until it ends."""
    sending: asyncio.Task[None] | None = None
    line = "busy"
    while line:
        match line.split():
            case ["busy"]:
                sending = asyncio.create_task(_send(tuple(senders.values())), name="the traffic")
            case ["quiet"] if sending is not None:
                sending.cancel()
            case ["away", number]:
                primary.refused.update(tuple(senders)[: int(number)])
        line = await asyncio.to_thread(sys.stdin.readline)
    if sending is not None:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _send(senders: Sequence[PairedSender]) -> None:
    """One message after another, to all entities in turn; its rate varies, as the graphs show."""
    draw = random.Random(1)
    while True:
        for sender in senders:
            began, pause = time.perf_counter(), BUSY / len(senders) * draw.uniform(0.5, 1.5)
            await sender.send_messages(ServiceBusMessage(b"x"))
            await asyncio.sleep(max(0.0, pause - (time.perf_counter() - began)))


def main(end: str, place: str, more: str, profile: str = ProfileName.FULL) -> int:
    """One of the two ends; its exit status."""
    if end == DASHBOARD:
        return run_watched_dashboard(Path(place), Path(more), ProfileName(profile))
    asyncio.run(run_engine(Path(place), int(more)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
