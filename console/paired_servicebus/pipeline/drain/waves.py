"""The waves of a drain: their tasks, the condition of a drained queue, and the condition to give up.

A wave is one Spark job of bounded tasks. After it, queues that may still hold messages get the next wave's tasks, the
fullest the most. A queue is drained when a task found it empty and the namespace counts only deferred messages. If the
namespace counts more, or gives no count, the queue is drained after a lock's duration without a message, since a killed
task leaves its messages locked. Only decisions: drain_main passes in Spark, clock and namespaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.errors import DrainError
from paired_servicebus.pipeline.drain.drain_files import TaskEnd, TaskReport

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


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """A queue's messages as its namespace counts them: all, and those that are set to appear later."""

    messages: int
    scheduled: int = 0


Depths = Mapping[int, QueueDepth | None]
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
