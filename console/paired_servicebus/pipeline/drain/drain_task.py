"""One task of a drain on an executor: the syphon's own pump on one backlog queue, within bounds.

It reads pairing.toml on its machine, so that keys come from that machine's environment, files or identity and from no
closure. It writes each receipt to the attempt's journal before the settlement. It ends at its bounds, on request, or
when no message arrives. At the end it settles the moves under way and releases the rest.
"""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from paired_servicebus.config import load_config
from paired_servicebus.core.errors import ConfigurationError, UnreadableError, WireUnavailableError
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import judge
from paired_servicebus.core.pump.intake_limit import IntakeLimit
from paired_servicebus.core.pump.pump_machine import PumpProgress
from paired_servicebus.core.text.masking import masked
from paired_servicebus.engine.clients.client_factory import open_clients
from paired_servicebus.pairing.runtime.deadlines import TaskOwner
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.amqp_pump import AmqpPump
from paired_servicebus.pairing.syphon.syphon import ConnectionPair
from paired_servicebus.pipeline.drain.drain_files import (
    DrainOrder,
    Receipts,
    TaskEnd,
    TaskReport,
    is_stopped,
    read_order,
)

if TYPE_CHECKING:
    import pyarrow as pa

QUIET: Final = 3.0
"""Seconds without any progress after which a queue counts as empty for now."""
FAILING: Final = 30.0
"""Seconds without progress after which a task with a known reason ends, to free its place."""
OPENING: Final = 60.0
"""Seconds to open the queue and find its deferred messages."""
LOOK: Final = 0.1
STOP_LOOK: Final = 1.0
"""Seconds between two looks for the order to stop, which may be on a network's disk."""
ROWS: Final = "queue int, report binary"


def partition(folder: str, deals: tuple[int, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: the task of each row's number, a row of its report.

    Args:
        folder: the run's, with its order.
        deals: the backlog queue that each task drains.
    """
    import pyarrow as pa

    _tune()
    for batch in batches:
        numbers = batch.column(0).to_pylist()
        reports = [report(Path(folder), deals[number], share=len(deals)) for number in numbers]
        queues = pa.array([one.queue for one in reports], pa.int32())
        rows = pa.array([msgspec.json.encode(one) for one in reports], pa.binary())
        yield pa.RecordBatch.from_arrays([queues, rows], names=["queue", "report"])


def report(folder: Path, queue: int, *, share: int) -> TaskReport:
    """Drain one queue within the order's bounds; `share` tasks have the rate together."""
    here = socket.gethostname()
    try:
        order = read_order(folder)
    except (OSError, UnreadableError) as error:
        text = f"the journal's folder is not seen by the executor on {here} ({error}): name one that all see, --journal"
        return TaskReport(queue=queue, end=TaskEnd.UNFIT, text=text)
    try:
        return asyncio.run(_Task(order, queue, share).run())
    except (ConfigurationError, WireUnavailableError) as error:
        return TaskReport(queue=queue, end=TaskEnd.UNFIT, text=masked(f"on {here}: {error}"))
    except OSError as error:
        return TaskReport(queue=queue, end=TaskEnd.FAILING, text=masked(f"on {here}: {error}"))


def _tune() -> None:
    """For a process that does nothing else: the collector's walks cost as much as the messages."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


class _Task:
    """One attempt."""

    def __init__(self, order: DrainOrder, queue: int, share: int) -> None:
        self._order = order
        self._queue = queue
        self._share = share
        self._progress = PumpProgress()

    async def run(self) -> TaskReport:
        """Move messages until the task's limits. Raises ConfigurationError, WireUnavailableError, OSError."""
        order = self._order
        config = load_config(Path(order.config))
        async with AsyncExitStack() as stack:
            receipts = await stack.enter_async_context(Receipts(order.folder, order.pairing))
            clients = await stack.enter_async_context(open_clients(config))
            tasks = TaskOwner()
            await tasks.open()
            machine = PairingMachine(self._policy(config.policy), queues=order.by_index)
            steering = PairingRuntime(machine, tasks, judge, receipts.record)
            steering.together = receipts.together
            wires = ConnectionPair(steering, clients.primary, clients.secondary)
            pump = self._pump(steering, wires)
            watch = asyncio.create_task(_watch(wires, steering), name="the watch over destinations")
            try:
                end, text = await self._pumped(pump, steering, receipts)
            finally:
                watch.cancel()
                await tasks.close()
                await pump.close()
                await wires.close()
            return self._reported(end, text)

    def _policy(self, policy: Policy) -> Policy:
        """Return this task's part of the rate that was ordered, unless pairing.toml allows less."""
        if self._order.rate is None:
            return policy
        rate = self._order.rate / self._share
        return replace(policy, syphon_rate=min(rate, policy.syphon_rate or rate))

    def _pump(self, steering: PairingRuntime, wires: ConnectionPair) -> AmqpPump:
        order = self._order
        self._intake = IntakeLimit(steering.machine.pace, messages=order.wave_messages, in_hand=order.in_hand)
        return AmqpPump(
            steering,
            wires.secondary,
            wires.courier,
            index=self._queue,
            path=order.by_index[self._queue],
            progress=self._progress,
            intake=self._intake,
        )

    async def _pumped(self, pump: AmqpPump, steering: PairingRuntime, receipts: Receipts) -> tuple[TaskEnd, str]:
        """Run the pump until there is a reason to end; return the reason and its detail."""
        pumping = steering.tasks.start(pump.run(), name=f"the pump of {pump.path}")
        assert pumping is not None, "the tasks are open"
        seen, seen_at, looked_at = self._seen(), steering.clock(), 0.0
        began: float | None = None
        while True:
            await asyncio.sleep(LOOK)
            now = steering.clock()
            if pumping.done():
                await pumping  # raises why
            if receipts.trouble:
                return TaskEnd.FAILING, f"receipts cannot be written: {receipts.trouble}"
            is_first_look = began is None and pump.is_open
            if is_first_look:
                began = now
            if (
                is_first_look
                or self._seen() != seen
                or pump.machine.in_hand
                or (pump.is_open and not self._intake.left(0, now))
            ):
                seen, seen_at = self._seen(), now
            if now - looked_at >= STOP_LOOK:
                looked_at = now
                if is_stopped(self._order.folder):
                    return TaskEnd.STOPPED, ""
            is_over = began is not None and now - began >= self._order.wave_seconds
            if is_over or (self._intake.is_spent and pump.is_idle):
                return TaskEnd.BOUND, ""
            if pump.is_open and pump.is_idle and now - seen_at >= QUIET:
                return TaskEnd.EMPTY, self._progress.text
            if now - seen_at >= (OPENING if self._progress.failing_since is None else FAILING):
                return TaskEnd.FAILING, self._progress.text

    def _seen(self) -> tuple[int, int, int]:
        return self._progress.moved, self._progress.dead_lettered, self._progress.set_aside

    def _reported(self, end: TaskEnd, text: str) -> TaskReport:
        moved, dead, aside = self._seen()
        return TaskReport(queue=self._queue, end=end, moved=moved, dead_lettered=dead, set_aside=aside, text=text)


async def _watch(wires: ConnectionPair, steering: PairingRuntime) -> None:
    while True:
        await asyncio.sleep(STOP_LOOK)
        wires.courier.watch(steering.clock())
