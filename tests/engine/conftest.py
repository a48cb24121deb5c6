"""What several tests of the engine share: a pairing made of plain values, hosted on a socket with a short path."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.backlog.depth_readings import QueueUsage
from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_condition import PairingCondition
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import (
    EntityView,
    Meter,
    ParkedView,
    QueueView,
    Snapshot,
    SyphonStatus,
    SyphonView,
    Trouble,
    TroubleKind,
    UnusedQueue,
    UnusedView,
)
from paired_servicebus.core.operator.failover_readiness import GB, Evidence, QueueEvidence, TokenEvidence
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.journal import writer
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.pairing.monitoring.backlog_inspection import PollWatchers
from servicebus_sandbox.fixtures.sdk_sleeps import shorten_sleeps

WAIT = 60.0
"""Seconds after which a condition that is waited for counts as not met."""


def entity(path: str, state: State = State.HEALTHY) -> EntityView:
    """An entity's view with nothing special about it."""
    counts = {"sends_per_second": 0.0, "accepted": 0, "diverted": 0, "failed": 0}
    return EntityView(path=path, state=state, since=1.0, why="because", route="primary", **counts)


def evidence(refusal: str = "", **changes: Any) -> Evidence:
    """Two backlog queues with room, links to which could be opened unless there is a refusal."""
    queues = tuple(
        QueueEvidence(
            path=f"contoso/x-servicebus-transfer/{index}", tried_at=1.0, refusal=refusal, messages=0, size_bytes=0,
            limit_bytes=5 * GB, read_at=1.0,
        )
        for index in range(2)
    )  # fmt: skip
    chosen: dict[str, Any] = {
        "at": 1.0, "primary": "contoso", "secondary": "contoso-backup", "queues": queues, "queues_wanted": 2,
        "tokens": (TokenEvidence(namespace="contoso-backup"),), "syphon": SyphonStatus.IDLE, "too_large": (),
        "expiry": (),
    }  # fmt: skip
    return Evidence(**chosen | changes)


def unused_queue(index: int) -> UnusedQueue:
    """A backlog queue that nobody uses."""
    return UnusedQueue(path=f"contoso/x-servicebus-transfer/{index}", index=index, status="Active", messages=0)


@dataclass
class FakePairing:
    """Does what it is told and remembers it."""

    entities: dict[str, EntityView] = field(default_factory=dict)
    acts: list[tuple[str, ...]] = field(default_factory=list)
    syphon: SyphonView = field(default_factory=lambda: SyphonView(status=SyphonStatus.IDLE, text="nothing to move"))
    before_act: Callable[[], None] = lambda: None
    primary_name: str = "contoso"
    secondary_name: str = "contoso-backup"
    syphons_elsewhere: tuple[str, ...] = ()
    elsewhere: frozenset[int] = frozenset()
    usage: QueueUsage | None = None
    indices: tuple[int, ...] = (0, 1)
    unused: UnusedView = field(default_factory=lambda: UnusedView(queues=(unused_queue(7),), read_at=1.0))
    evidence: Evidence = field(default_factory=lambda: evidence())
    troubled: tuple[Trouble, ...] = (Trouble(kind=TroubleKind.BACKLOG_STALLED, reason="7 parked"),)
    noted: PairingCondition | None = None
    looks: PollWatchers = field(default_factory=lambda: PollWatchers(time.time, lambda: None))
    reading: bool = False

    def watch(self, path: str) -> None:
        self.entities.setdefault(path, entity(path, State.UNKNOWN))

    def force(self, path: str, *, by: str, why: str = "") -> str:
        return self._turn("force", path, State.FORCED, by, why)

    def pin(self, path: str, *, by: str, why: str = "") -> str:
        return self._turn("pin", path, State.PINNED, by, why)

    def release(self, path: str, *, by: str, why: str = "") -> str:
        if self.entities[path].state is State.UNKNOWN:
            raise IllegalEventError(f"{path} is unknown: there is nothing to release")
        return self._turn("release", path, State.HEALTHY, by, why)

    def pause_syphon(self, *, by: str, why: str = "", queue: int | None = None, destination: str = "") -> str:
        self.acts.append(("pause", by, why))
        if queue is not None:
            self.syphon = replace(self.syphon, paused_queues=(queue,))
        elif destination:
            self.syphon = replace(self.syphon, paused_destinations=(destination,))
        else:
            self.syphon = replace(self.syphon, status=SyphonStatus.PAUSED)
        return "the syphon is paused"

    def resume_syphon(self, *, by: str, why: str = "", queue: int | None = None, destination: str = "") -> str:
        self.acts.append(("resume", by, why))
        if queue is None and not destination:
            self.syphon = replace(self.syphon, status=SyphonStatus.IDLE)
        else:
            self.syphon = replace(self.syphon, paused_queues=(), paused_destinations=())
        return "the syphon goes on"

    async def redrive(self, queue: int, numbers: Collection[int] = ()) -> str:
        self.acts.append(("redrive-letters" if numbers else "redrive", str(queue), *map(str, numbers)))
        return f"2 of 2 dead letters of {queue} were put back to work"

    async def move_stranded(self, path: str) -> str:
        self.acts.append(("move-stranded", path))
        return f"3 messages of {path} were moved"

    async def clean_up(self, path: str, *, elsewhere: Callable[[], Awaitable[frozenset[int]]]) -> str:
        self.acts.append(("clean-up", path))
        self.elsewhere = await elsewhere()
        return f"{path} was deleted"

    def unused_view(self) -> UnusedView:
        return self.unused

    def entity_views(self) -> tuple[EntityView, ...]:
        return tuple(self.entities.values())

    def queue_views(self, *, looking: bool = True) -> tuple[QueueView, ...]:
        paths = {index: f"contoso/x-servicebus-transfer/{index}" for index in self.indices}
        return tuple(QueueView(index=index, path=path, in_rotation=True) for index, path in paths.items())

    @property
    def backlog_queue_count(self) -> int:
        return len(self.indices)

    def parked_view(self) -> ParkedView | None:
        return None

    def syphon_view(self) -> SyphonView:
        return self.syphon

    def billed(self) -> Meter:
        return Meter(sends=3)

    async def inspect(self) -> Evidence:
        return self.evidence

    def recounted(self, evidence: Evidence) -> Evidence:
        return evidence

    def take_send_times(self) -> dict[str, dict[int, int]]:
        return {}

    def write_together(self, how: Any) -> None:
        """Announces nothing."""

    def know_usage(self, usage: QueueUsage) -> None:
        self.usage = usage

    def know_syphons(self, engines: tuple[str, ...]) -> None:
        self.syphons_elsewhere = engines

    def troubles(self) -> tuple[Trouble, ...]:
        return self.troubled

    def note_alarms(self, condition: PairingCondition) -> None:
        self.noted = condition

    def _turn(self, act: str, path: str, state: State, by: str, why: str) -> str:
        self.before_act()
        self.acts.append((act, path, by, why))
        self.entities[path] = entity(path, state)
        return f"{path} is {state} now"


@dataclass
class Hosted:
    """An engine in this process."""

    host: EngineHost
    pairing: FakePairing
    socket: Path
    spool: Path

    async def connect(self) -> ControlClient:
        return await ControlClient.connect(self.socket)

    @asynccontextmanager
    async def console(self) -> AsyncIterator[ControlClient]:
        client = await self.connect()
        yield client
        await client.close()


async def newest_snapshot(client: ControlClient, enough: Callable[[Snapshot], bool]) -> Snapshot:
    """The first from now on that is as it should be."""
    async with asyncio.timeout(WAIT):
        async for update in client.updates():
            if isinstance(update, Snapshot) and enough(update):
                return update
    raise AssertionError("the engine went")


Engine = Callable[..., AbstractAsyncContextManager[Hosted]]


@pytest.fixture(autouse=True)
def brisk() -> Iterator[None]:
    """The SDK's own sleeps are short."""
    with shorten_sleeps():
        yield


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy disk is no trouble of a journal, except where the deadline is what is proven."""
    monkeypatch.setattr(writer, "DISK_TIMEOUT", 60.0)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name; pytest's own may be too long."""
    folder = Path(tempfile.mkdtemp(prefix="pe-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def pairing() -> FakePairing:
    """Two entities that nothing was sent to."""
    fake = FakePairing()
    fake.watch("orders")
    fake.watch("payments")
    return fake


@pytest.fixture
def engine(short: Path, pairing: FakePairing) -> Engine:
    """Hosts the fake pairing for as long as its context lasts."""

    @asynccontextmanager
    async def hosted(*, read_only: bool = False, folder: Path = short) -> AsyncIterator[Hosted]:
        spool, socket = folder / "spool", folder / "s"
        identity = EngineIdentity.of("orders", environment="test", read_only=read_only)
        async with EngineHost(identity, spool=spool, socket=socket, policy=Policy()) as host:
            await host.adopt(pairing)
            yield Hosted(host, pairing, socket, spool)

    return hosted


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], object]:
    """Waits for a condition."""

    async def wait(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT):
            while not condition():
                await asyncio.sleep(0.01)

    return wait
