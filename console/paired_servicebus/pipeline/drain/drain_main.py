"""The process of a drain that holds Spark; drain_command runs it with the arguments RUN and WORK.

Its output is a log file, with lines for its progress, its outcome or its trouble (spark_processes). The first line of
standard input holds the operator's Spark settings, which may be secret. The end of the input means the parent has
ended, and ends the drain cleanly. Its tasks are in drain_task, its decisions in Waves.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from azure.core.exceptions import AzureError

from paired_servicebus.config import PairingConfig, load_config
from paired_servicebus.core.backlog.queue_settings import Depth
from paired_servicebus.core.errors import DrainError, PairedError
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.engine.clients.client_factory import open_admin
from paired_servicebus.engine.instance.logs import log_to
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pairing.management.management_port import Management
from paired_servicebus.pipeline.drain import drain_task as drain_task
from paired_servicebus.pipeline.drain.drain_files import (
    DrainOrder,
    DrainOutcome,
    TaskEnd,
    TaskReport,
    is_stopped,
    read_order,
)
from paired_servicebus.pipeline.spark.spark_session import first_line, open_session
from paired_servicebus.pipeline.spark_processes import TOOK, TROUBLE, ProgressLines, watch_parent, write_line

# The waves of a drain: their tasks, the condition of a drained queue, and the condition to give up.
#
# A wave is one Spark job of bounded tasks. After it, queues that may still hold messages get the next wave's tasks,
# the fullest the most. A queue is drained when a task found it empty and the namespace counts only deferred messages.
# If the namespace counts more, or gives no count, the queue is drained after a lock's duration without a message,
# since a killed task leaves its messages locked. Only decisions: drain_main passes in Spark, clock and namespaces.

LOCKED: Final = 75.0
"""Seconds until a killed task's messages are free again: a lock's minute, and a margin."""
PATIENCE: Final = 150.0
"""Seconds without a message moved, while tasks cannot go on, after which the drain gives up."""
PAUSE: Final = 2.0
"""Seconds between waves that move nothing."""
WORTH: Final = 1000
"""Messages of a queue that a further task is worth."""


@dataclass(slots=True)
class QueueState:
    """One backlog queue as the waves know it."""

    lying: int | None = None
    """Messages that the namespace counts beyond the deferred ones; None: unknown."""
    set_aside: int = 0
    quiet_since: float | None = None
    trouble: str = ""
    is_drained: bool = False


Depths = Mapping[int, Depth | None]
"""By a queue's index; None: not known."""


@dataclass(slots=True)
class WaveActions:
    """The dependencies of the waves."""

    run: Callable[[tuple[int, ...]], Sequence[TaskReport]]
    """One wave: the queue of each task; its reports. Those of tasks that were killed for good raise."""
    depths: Callable[[], Depths]
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    is_stopped: Callable[[], bool]
    tell: Callable[[int, str], None]
    """The number of the wave that begins, and a sentence."""


class Waves:
    """One run's. `count` is how many there were."""

    def __init__(self, world: WaveActions, *, queues: Iterable[int], parallelism: int) -> None:
        self.queues = {index: QueueState() for index in queues}
        self.count = 0
        self._world = world
        self._parallelism = parallelism
        self._progressed_at = world.clock()

    @property
    def set_aside(self) -> int:
        """Messages that wait for their destinations."""
        return sum(queue.set_aside for queue in self.queues.values())

    def run(self) -> str:
        """Wave after wave until all is drained; why it ended before, or empty.

        Raises DrainError: an executor cannot drain.
        """
        world = self._world
        self._look()
        while live := {index: queue for index, queue in self.queues.items() if not queue.is_drained}:
            if world.is_stopped():
                return "it was told to stop"
            if trouble := self._hopeless(live):
                return trouble
            deals = dealt({index: queue.lying for index, queue in live.items()}, self._parallelism)
            self.count += 1
            world.tell(self.count, self._said(live))
            if not self._learn(world.run(deals)):
                world.sleep(PAUSE)
        return ""

    def _look(self) -> None:
        for index, depth in self._world.depths().items():
            queue = self.queues[index]
            queue.lying = None if depth is None else max(0, depth.messages - depth.scheduled - queue.set_aside)

    def _learn(self, reports: Sequence[TaskReport]) -> bool:
        """Take in a wave's reports; whether it moved anything."""
        now = self._world.clock()
        unfit = next((one for one in reports if one.end is TaskEnd.UNFIT), None)
        if unfit is not None:
            raise DrainError(unfit.text)
        moved = False
        for index, of_queue in _by_queue(reports).items():
            queue = self.queues[index]
            has_moved = any(one.moved or one.dead_lettered for one in of_queue)
            moved = moved or has_moved
            queue.set_aside = max(one.set_aside for one in of_queue)
            queue.trouble = next((one.text for one in of_queue if one.end is TaskEnd.FAILING), "")
            is_quiet = all(one.end is TaskEnd.EMPTY for one in of_queue)
            before = None if has_moved else queue.quiet_since
            queue.quiet_since = (before or now) if is_quiet else None
        if moved:
            self._progressed_at = now
        self._look()
        for queue in self.queues.values():
            queue.is_drained = queue.is_drained or _is_drained(queue, now)
        return moved

    def _hopeless(self, live: Mapping[int, QueueState]) -> str:
        trouble = next((queue.trouble for queue in live.values() if queue.trouble), "")
        waited = self._world.clock() - self._progressed_at
        return f"nothing was moved for {waited:.0f} s: {trouble}" if trouble and waited >= PATIENCE else ""

    def _said(self, live: Mapping[int, QueueState]) -> str:
        trouble = next((queue.trouble for queue in live.values() if queue.trouble), "")
        known = [queue.lying for queue in live.values() if queue.lying is not None]
        lie = f"{sum(known):,} messages counted" if len(known) == len(live) else "counts not known"
        return f"{len(live)} of {len(self.queues)} queues to drain, {lie}" + (f"; {trouble}" if trouble else "")


def _by_queue(reports: Sequence[TaskReport]) -> dict[int, list[TaskReport]]:
    found: dict[int, list[TaskReport]] = {}
    for one in reports:
        found.setdefault(one.queue, []).append(one)
    return found


def _is_drained(queue: QueueState, now: float) -> bool:
    if queue.quiet_since is None:
        return False
    return queue.lying == 0 or now - queue.quiet_since >= LOCKED


def dealt(lying: Mapping[int, int | None], tasks: int) -> tuple[int, ...]:
    """Return the queue of each task of a wave.

    Each queue gets one task while there are tasks, the fullest first. Further tasks go to the most messages per task.
    """
    weights = {index: float(WORTH if known is None else known) for index, known in lying.items()}
    fullest = sorted(weights, key=lambda index: -weights[index])
    given = dict.fromkeys(fullest[:tasks], 1)
    for _ in range(tasks - len(given)):
        best = max(given, key=lambda index: weights[index] / given[index])
        if weights[best] / (given[best] + 1) < WORTH:
            break
        given[best] += 1
    return tuple(index for index, count in given.items() for _ in range(count))


LAST_RESORT: Final = 120.0
"""Seconds that a drain without a parent has to end cleanly."""

log = logging.getLogger("paired_servicebus.pipeline.drain.drain_main")


def main(folder: Path, work: Path) -> int:
    """Run the order in `folder`; return the exit status."""
    log_to(sys.stderr)
    private = msgspec.json.decode(sys.stdin.buffer.readline() or b"{}", type=dict[str, str])
    watch_parent((folder / "stop").touch, within=LAST_RESORT)
    began = time.time()
    try:
        waves, reason = _drain(read_order(folder), private, work)
    except PairedError as error:
        log.exception("the drain failed")
        write_line(TROUBLE + one_line(masked(str(error))))
        return 2
    outcome = DrainOutcome(
        set_aside=waves.set_aside,
        seconds=time.time() - began,
        waves=waves.count,
        complete=not reason,
        text=reason,
    )
    write_line(TOOK + msgspec.json.encode(outcome).decode())
    return 0


def _drain(order: DrainOrder, private: dict[str, str], work: Path) -> tuple[Waves, str]:
    """Run the waves. Raises PairedError if the drain cannot begin or go on."""
    config = load_config(Path(order.config))
    progress = ProgressLines()
    progress.show(f"starting Spark on {masked(order.master)}")
    with open_session(
        app="drain",
        work=work,
        master=order.master,
        settings=_cluster_settings(order),
        private=private,
        whole_environment=order.master.startswith("local"),
    ) as spark:
        world = WaveActions(
            run=lambda deals: wave(spark, order, deals),
            depths=lambda: _depths(config, order.by_index),
            clock=time.time,
            sleep=time.sleep,
            is_stopped=lambda: is_stopped(order.folder),
            tell=lambda number, text: progress.show(f"wave {number}: {text}"),
        )
        waves = Waves(world, queues=order.by_index, parallelism=order.parallelism)
        return waves, waves.run()


def wave(spark: Any, order: DrainOrder, deals: tuple[int, ...]) -> list[TaskReport]:
    """One Spark job, a task for each of `deals`.

    Raises DrainError: a task failed as often as Spark tries it, or the executors are gone.
    """
    work = partial(drain_task.partition, str(order.folder), deals)
    count = len(deals)
    try:
        rows = spark.range(0, count, 1, count).mapInArrow(work, drain_task.ROWS).collect()
    except Exception as error:  # whatever py4j, the JVM or a task said
        raise DrainError(f"a wave of {count} tasks failed: {_said(error)}") from error
    reports = [msgspec.json.decode(bytes(row["report"]), type=TaskReport) for row in rows]
    for one in reports:
        log.info("queue %d: %s", one.queue, one)
    return reports


def _said(error: Exception) -> str:
    """Return the last traceback line of a failed task; otherwise the first line of Spark's error."""
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in lines if ": " in line and line.split(":", 1)[0].endswith(("Error", "Exception"))]
    of_python = [line for line in ours if not line.startswith(("org.", "py4j.", "java.", "Caused"))]
    return masked((of_python or [first_line(error)])[-1][:400])


def _depths(config: PairingConfig, queues: Mapping[int, str]) -> Depths:
    """Return the depths; an unknown one is None. Raises nothing."""

    async def asked() -> list[Depth | None]:
        async with open_admin(config.secondary) as admin:
            return await asyncio.gather(*(_depth(admin, path) for path in queues.values()))

    try:
        return dict(zip(queues, asyncio.run(asked()), strict=True))
    except (PairedError, ValueError, OSError) as error:
        log.warning("the counts of the queues cannot be read: %s", error)
        return dict.fromkeys(queues)


async def _depth(admin: Management, path: str) -> Depth | None:
    try:
        return await backlog_queues.depth(admin, path)
    except (AzureError, OSError, TimeoutError) as error:
        log.warning("%s", masked(str(error)))
        return None


def _cluster_settings(order: DrainOrder) -> dict[str, object]:
    """Spark settings for a cluster's executors: their size."""
    if order.master.startswith("local"):
        return {}
    return {"spark.cores.max": order.parallelism, "spark.task.maxFailures": 4}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
