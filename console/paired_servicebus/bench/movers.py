"""Ways to move messages from a queue of the secondary namespace to one of the primary, each with its links open.

The loops on the SDK are usual application code. They leave the envelope on, which favours them. A lap runs from the
first completed message to the last, so that opening links is not measured.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender

from paired_servicebus.bench.amqp_loads import copy, flooding, open_wire
from paired_servicebus.bench.bench_namespaces import BenchNamespaces
from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.bench.rounds import Lap
from paired_servicebus.bench.sample_messages import MessageSource
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.pairing_events import Event, Moved, Record
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import judge
from paired_servicebus.engine.journal import records
from paired_servicebus.engine.journal.writer import Journal
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.runtime.task_owner import TaskOwner
from paired_servicebus.pairing.syphon.syphon import Syphon

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


async def fill(namespaces: BenchNamespaces, queue: str, letters: MessageSource, count: int) -> None:
    """Send messages to a queue of the secondary namespace. Raises BenchError."""
    async with open_wire(namespaces.secondary) as wire, flooding(wire, queue, letters) as flood:
        await flood.run(count)


class NaiveLoop:
    """Receive one, send one, complete one. A lap ends after `patience` seconds."""

    def __init__(self, source: str, receiver: ServiceBusReceiver, sender: ServiceBusSender, patience: float) -> None:
        self.source = source
        self.moved = 0
        self._receiver = receiver
        self._sender = sender
        self._patience = patience

    async def lap(self, count: int) -> Lap:
        """Move `count` messages; see Mover."""
        moved, began, cpu = 0, 0.0, 0.0
        while moved < count and (moved < 2 or time.perf_counter() - began < self._patience):
            received = await self._receiver.receive_messages(1, max_wait_time=_WAIT)
            if not received:
                break
            await self._sender.send_messages(received[0])
            await self._receiver.complete_message(received[0])
            if not moved:
                began, cpu = time.perf_counter(), time.process_time()
            moved += 1
        self.moved = moved
        return _lap(moved - 1, began, cpu)


class BatchedLoop:
    """The best loop on the SDK's documented interface: batches, and all completions of one at the same time.

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
            await self._sender.send_messages(list(received))
            await asyncio.gather(*(self._receiver.complete_message(message) for message in received))
            moved += len(received)
            if not first:
                first, began, cpu = moved, time.perf_counter(), time.process_time()
        self.moved = moved
        return _lap(moved - first, began, cpu)


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
