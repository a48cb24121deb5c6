"""`paired bench syphon`: the speed of moving a backlog, beside loops on the SDK and beside a plain copy.

Five ways take turns in each round: the syphon with receipts, the naive loop and the best loop on the SDK, and twice
the plain copy on our own AMQP, which is the limit and gives the A/A band. On request, a peer moves the same messages,
and the syphon moves them for many destinations.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender

from paired_servicebus.bench.amqp_loads import (
    WINDOW,
    SampleMessages,
    copy,
    flooding,
    open_wire,
)
from paired_servicebus.bench.bench_namespaces import BenchNamespaces, open_namespaces
from paired_servicebus.bench.bench_plans import BenchError, SyphonPlan
from paired_servicebus.bench.rounds import Lap, RoundFigures, compare, in_turn
from paired_servicebus.config import PairingConfig
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.pairing_events import Event, Moved, Record
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import judge
from paired_servicebus.engine.journal import records
from paired_servicebus.engine.journal.writer import Journal
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.runtime.deadlines import TaskOwner
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.syphon import Syphon

# Ways to move messages from a queue of the secondary namespace to one of the primary, each with its links open.
#
# The loops on the SDK are usual application code. They leave the envelope on, which favours them. A lap runs from the
# first completed message to the last, so that opening links is not measured.

BATCH: Final = 200
"""Messages of 1 KB in a batch of 256 KB."""
AHEAD: Final = 64 * 1024 * 1024
"""Bytes of a copy in flight at most, as in the pump."""
LONGEST: Final = 600.0
SLOWEST: Final = 500.0
"""Messages a second; a lap of the syphon that is slower, and longer than LONGEST seconds, is stuck."""
_WAIT: Final = 5.0


class Mover(Protocol):
    """One way; `source` is filled before each lap. moved: all messages of its latest lap, timed or not."""

    source: str
    moved: int

    async def lap(self, count: int) -> Lap:
        """Move `count` messages, or fewer if the time is over. Raises BenchError."""


async def fill(namespaces: BenchNamespaces, queue: str, letters: SampleMessages, count: int) -> None:
    """Send messages to a queue of the secondary namespace. Raises BenchError."""
    async with open_wire(namespaces.secondary) as wire, flooding(wire, queue, letters) as flood:
        await flood.run(count)


class SdkLoop:
    """A loop on the SDK's documented interface: receive, send, complete.

    With a batch of one it is usual code. With more it is the best loop: all completions of a batch at the same time.
    A lap ends after `patience` seconds: on a busy machine the SDK's completions wait long for each other.
    """

    def __init__(
        self, source: str, receiver: ServiceBusReceiver, sender: ServiceBusSender, batch: int, patience: float
    ) -> None:
        self.source = source
        self.moved = 0
        self._patience = patience
        self._receiver = receiver
        self._sender = sender
        self._batch = batch

    async def lap(self, count: int) -> Lap:
        """Move `count` messages; see Mover."""
        moved, first, began, cpu = 0, 0, 0.0, 0.0
        while moved < count and (moved <= first or time.perf_counter() - began < self._patience):
            received = await self._receiver.receive_messages(min(self._batch, count - moved), max_wait_time=_WAIT)
            if not received:
                break
            await self._move(received)
            moved += len(received)
            if not first:
                first, began, cpu = moved, time.perf_counter(), time.process_time()
        self.moved = moved
        return _lap(moved - first, began, cpu)

    async def _move(self, received: list[ServiceBusReceivedMessage]) -> None:
        if self._batch == 1:
            await self._sender.send_messages(received[0])
            await self._receiver.complete_message(received[0])
            return
        await self._sender.send_messages(list(received))
        await asyncio.gather(*(self._receiver.complete_message(message) for message in received))


class CopyMover:
    """A plain copy on the pump's own AMQP, without rewriting and without a journal."""

    def __init__(
        self, source: str, target: str, wires: tuple[ReconnectingConnection, ReconnectingConnection], window: int
    ) -> None:
        self.source = source
        self.moved = 0
        self._target = target
        self._wires = wires
        self._window = window

    async def lap(self, count: int) -> Lap:
        """Move `count` messages; see Mover."""
        primary, secondary = self._wires
        self.moved = count
        return await copy(secondary, self.source, primary, self._target, count=count, window=self._window)


class SyphonMover:
    """The engine's syphon: it removes envelopes and writes a receipt of each message to a journal."""

    def __init__(self, source: str, namespaces: BenchNamespaces, journal: Journal) -> None:
        self.source = source
        self._namespaces = namespaces
        self._journal = journal
        self.moved = 0
        self._seq = 0
        self._began = (0.0, 0.0)
        self._count = 0
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def lap(self, count: int) -> Lap:
        """Move `count` messages; see Mover."""
        self.moved, self._count = 0, count
        self._done = asyncio.get_running_loop().create_future()
        tasks = TaskOwner()
        await tasks.open()
        steering = PairingRuntime(PairingMachine(Policy(enable_syphon=True), queues=(0,)), tasks, judge, self._on_event)
        steering.together = self._journal.together
        syphon = Syphon(steering, self._namespaces.primary, self._namespaces.secondary, {0: self.source})
        try:
            syphon.start()
            async with asyncio.timeout(max(LONGEST, count / SLOWEST)):
                await self._done
                while not all(pump.is_idle for pump in syphon.pumps.values()):  # noqa: ASYNC110 - no event reports it
                    await asyncio.sleep(0)
            return _lap(count - 1, *self._began)
        except TimeoutError as error:
            line = syphon.pumps[0].progress.line
            raise BenchError(f"{self.moved} of {count} messages were moved in time: {line}") from error
        finally:
            await tasks.close()
            await syphon.close()

    def _on_event(self, event: Event) -> None:
        self._seq += 1
        self._journal.append(records.encode(Record(engine="bench", boot="bench", seq=self._seq, event=event)))
        if isinstance(event, Moved):
            self.moved += 1
            if self.moved == 1:
                self._began = (time.perf_counter(), time.process_time())
            if self.moved == self._count and not self._done.done():
                self._done.set_result(None)


def _lap(messages: int, began: float, cpu: float) -> Lap:
    if messages < 1:
        raise BenchError("too few messages arrived to measure a rate; give more with --messages")
    return Lap(messages=messages, seconds=time.perf_counter() - began, cpu_seconds=time.process_time() - cpu)


@asynccontextmanager
async def sdk_links(
    namespaces: BenchNamespaces, source: str, target: str, **options: float
) -> AsyncIterator[tuple[ServiceBusReceiver, ServiceBusSender]]:
    """Open the SDK's receiver and sender. options: of the receiver."""
    async with (
        namespaces.secondary.get_queue_receiver(source, **options) as receiver,  # type: ignore[arg-type] # names of the SDK
        namespaces.primary.get_queue_sender(target) as sender,
    ):
        yield receiver, sender


@asynccontextmanager
async def wires(namespaces: BenchNamespaces) -> AsyncIterator[tuple[ReconnectingConnection, ReconnectingConnection]]:
    """Open the pump's connections to the primary and the secondary."""
    async with open_wire(namespaces.primary) as primary, open_wire(namespaces.secondary) as secondary:
        yield primary, secondary


@asynccontextmanager
async def ours(namespaces: BenchNamespaces, source: str, folder: Path) -> AsyncIterator[SyphonMover]:
    """Open the syphon with a journal in `folder`."""
    async with Journal(folder, engine="bench") as journal:
        yield SyphonMover(source, namespaces, journal)


Peer = Callable[[int], AbstractAsyncContextManager[Mover]]
"""Opens another mover of messages; its argument is the size of a body in bytes."""
WAYS: Final = ("ours", "mixed", "naive", "best_sdk", "raw", "peer")
PAIRS: Final = {
    "ratio_vs_naive": ("ours", "naive"),
    "ratio_vs_best_sdk": ("ours", "best_sdk"),
    "ratio_vs_raw": ("ours", "raw"),
    "ratio_vs_peer": ("ours", "peer"),
    "ratio_mixed": ("mixed", "ours"),
}
SOURCES: Final = {name: f"bench-{name}-source" for name in ("ours", "naive", "best-0", "best-1", "raw")}
MIXED: Final = "bench-mixed-source"
TARGET: Final = "bench-target"
HELD: Final = 3 * 1024**3
"""Bytes moved to the destination in all; the sandbox holds them in memory."""
PATIENCE: Final = 3.0
"""Seconds for a lap of a loop on the SDK."""
MOST_RATE: Final = {"naive": 1500, "best_sdk": 4000}
"""Messages a second of a loop at most; limits the messages of its lap."""
SETTINGS: Final = ((400, 0.01), (0, 0.005))
"""Prefetch and socket_timeout of the best loop. The better pair depends on the latency, so both are tried."""
SAMPLE: Final = 600
NAIVE_TARGET: Final = 20.0
NAIVE_TARGET_LATE: Final = 300.0
RAW_TARGET: Final = 0.5
RAW_TARGET_LATE: Final = 0.75
RAW_TARGET_LARGE: Final = 0.8
PEER_TARGET: Final = 1.5
MIXED_TARGET: Final = 0.7
CPU_TARGET_US: Final = 30.0
LATE: Final = 10.0
"""Milliseconds of latency from which the targets …_LATE apply."""
LARGE: Final = 64 * 1024


def wanted(plan: SyphonPlan, laps: Mapping[str, Sequence[Lap]]) -> dict[str, float]:
    """Return the target of each ratio, at least. Some do not apply to large messages."""
    is_late, is_large = plan.latency_ms >= LATE, plan.size >= LARGE
    targets = {
        "ratio_vs_naive": None if is_large else NAIVE_TARGET_LATE if is_late else NAIVE_TARGET,
        "ratio_vs_raw": RAW_TARGET_LARGE if is_large else RAW_TARGET_LATE if is_late else RAW_TARGET,
        "ratio_vs_peer": PEER_TARGET if laps["peer"] else None,
        "ratio_mixed": MIXED_TARGET if laps["mixed"] else None,
    }
    return {name: target for name, target in targets.items() if target is not None}


async def measure_syphon(
    plan: SyphonPlan, config: PairingConfig | None = None, *, peer: Peer | None = None
) -> RoundFigures:
    """Return all figures. config: the namespaces; None: sandboxes. peer: another mover. Raises BenchError."""
    laps: dict[str, list[Lap]] = {name: [] for name in (*WAYS, "again")}
    async with AsyncExitStack() as stack:
        where = await stack.enter_async_context(
            open_namespaces(
                config,
                primary=(TARGET, *_mixed_targets(plan)),
                secondary=(*SOURCES.values(), MIXED),
                latency_ms=plan.latency_ms,
            )
        )
        course = _Course(where, plan)
        ways = await course.ways(stack)
        if peer is not None:
            ways["peer"] = await stack.enter_async_context(peer(plan.size))
        names = list(ways)
        for number in range(plan.rounds):
            for name in in_turn(names, number):
                laps[name].append(await course.lap(name, ways[name]))
    return compare(
        laps,
        PAIRS,
        ("raw", "again"),
        size=plan.size,
        latency_ms=plan.latency_ms,
        rounds=plan.rounds,
        wanted=wanted(plan, laps),
        cpu_limit_us=None if plan.size >= LARGE else CPU_TARGET_US,  # not for copying bytes
    )


def most_messages(size: int, rounds: int) -> int:
    """Return the messages of `size` bytes of one lap at most, so that the destination holds those of all ways."""
    return max(2, HELD // (size * rounds * (len(SOURCES) + 1)))  # raw goes twice


def _mixed_targets(plan: SyphonPlan) -> list[str]:
    return [f"bench-target-{number}" for number in range(plan.destinations)] if plan.destinations > 1 else []


class _Course:
    """The queues, and the number of messages of each way in a lap."""

    def __init__(self, where: BenchNamespaces, plan: SyphonPlan) -> None:
        self._where = where
        self._plan = plan
        self._letters = SampleMessages(plan.size, TARGET)
        self._mixed = SampleMessages(plan.size, *_mixed_targets(plan))
        self._left_over: dict[str, int] = {}

    async def ways(self, stack: AsyncExitStack) -> dict[str, Mover]:
        """Open the links of all ways."""
        where, window = self._where, max(8, min(WINDOW, AHEAD // self._letters.size))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paired-bench-")))
        links = await stack.enter_async_context(wires(where))
        receiver, sender = await stack.enter_async_context(sdk_links(where, SOURCES["naive"], TARGET))
        copies = [CopyMover(SOURCES["raw"], TARGET, links, window) for _ in range(2)]
        mixed: dict[str, Mover] = {}
        if self._plan.destinations > 1:
            mixed["mixed"] = await stack.enter_async_context(ours(where, MIXED, folder / "mixed"))
        return {
            "ours": await stack.enter_async_context(ours(where, SOURCES["ours"], folder)),
            **mixed,
            "naive": SdkLoop(SOURCES["naive"], receiver, sender, 1, PATIENCE),
            "best_sdk": await self._careful(stack),
            "raw": copies[0],
            "again": copies[1],
        }

    async def lap(self, name: str, way: Mover) -> Lap:
        """Fill the queue of a way and run one lap."""
        count = self._count(name)
        if name == "peer":
            return await way.lap(count)
        left_over = self._left_over.get(way.source, 0)
        letters = self._mixed if name == "mixed" else self._letters
        await fill(self._where, way.source, letters, max(1, count - left_over))
        lap = await way.lap(count)
        self._left_over[way.source] = max(count, left_over + 1) - way.moved  # some are left for lack of time
        return lap

    def _count(self, name: str) -> int:
        count = min(self._plan.messages, most_messages(self._letters.size, self._plan.rounds))
        return min(count, int(PATIENCE * MOST_RATE[name])) if name in MOST_RATE else count

    async def _careful(self, stack: AsyncExitStack) -> SdkLoop:
        """Return the faster of the best loops."""
        batch = max(1, BATCH * 1024 // max(1024, self._letters.size))
        sample = min(self._plan.messages, 3 * batch if self._letters.size > LARGE else SAMPLE)
        tried: list[tuple[float, SdkLoop]] = []
        for number, (prefetch, timeout) in enumerate(SETTINGS):
            source = SOURCES[f"best-{number}"]
            links = await stack.enter_async_context(
                sdk_links(self._where, source, TARGET, prefetch_count=prefetch, socket_timeout=timeout)
            )
            way = SdkLoop(source, *links, batch, PATIENCE)
            await fill(self._where, way.source, self._letters, sample)
            lap = await way.lap(sample)
            self._left_over[source] = sample - way.moved
            tried.append((lap.per_second, way))
        return max(tried, key=lambda one: one[0])[1]
