"""Virtual time: a heap of scheduled calls, and processes that wait for them.

A process is a generator. It schedules any number of wake-ups and yields once; the first resumes it, and the others are
then stale. An engine's processes die with it. An event is one entry of the heap that had an effect.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final

Steps = Generator[None, Any, Any]
"""A process's body; `yield` waits, and returns the wake-up's value."""
_push: Final = heapq.heappush
DEAD: Final = -1
"""The turn of a killed process, which no wake-up names."""


class SimProcess:
    """A running generator; `turn` counts its waits, so that only the first wake-up of each counts."""

    __slots__ = ("close", "owner", "send", "turn")

    def __init__(self, steps: Steps, owner: dict[SimProcess, None]) -> None:
        self.send = steps.send
        self.close = steps.close
        self.owner = owner
        self.turn = 0


Entry = tuple[float, int, SimProcess | None, Any, Any]
"""Time, order, and a process with its turn and the wake-up's value; or None with an action and its arguments."""


class VirtualClock:
    """The scheduler: calls in order of time, then of scheduling."""

    def __init__(self, began: float) -> None:
        self.now = began
        self.events = 0
        self.current: SimProcess
        self._heap: list[Entry] = []
        self._due: deque[Entry] = deque()
        """Entries for the present time; those of `_heap` for it were scheduled earlier and come first."""
        self._order = 0

    def at(self, when: float, action: Callable[..., object], *arguments: Any) -> None:
        """Call `action` at `when`; immediately if that has passed."""
        if when <= self.now:
            self._due.append((when, 0, None, action, arguments))
        else:
            self._order = order = self._order + 1
            _push(self._heap, (when, order, None, action, arguments))

    def run(self, until: float) -> None:
        """Run all calls up to and including `until`."""
        heap, due, pop = self._heap, self._due, heapq.heappop
        while True:
            if due and not (heap and heap[0][0] <= self.now):
                _, _, process, turn, value = due.popleft()
            elif heap and heap[0][0] <= until:
                self.now, _, process, turn, value = pop(heap)
            else:
                break
            if process is None:
                self.events += 1
                turn(*value)
            elif process.turn == turn:
                self.events += 1
                process.turn = turn + 1
                self.current = process
                try:
                    process.send(value)
                except StopIteration:
                    process.owner.pop(process, None)
        self.now = until

    # -- processes ----------------------------------------------------------------------------------------------

    def start(self, steps: Steps, owner: dict[SimProcess, None]) -> SimProcess:
        """Run a process to its first wait; it is in `owner` while it lives."""
        process = SimProcess(steps, owner)
        owner[process] = None
        before = getattr(self, "current", process)
        process.turn = 1
        self.current = process
        try:
            process.send(None)
        except StopIteration:
            owner.pop(process, None)
        self.current = before
        return process

    def wake(self, when: float, process: SimProcess, turn: int, value: object = None) -> None:
        """Resume `process` at `when` with `value`, unless the wait of `turn` has ended."""
        if when <= self.now:
            self._due.append((when, 0, process, turn, value))
        else:
            self._order = order = self._order + 1
            _push(self._heap, (when, order, process, turn, value))

    def sleep(self, until: float) -> Steps:
        """Wait, as part of the running process."""
        self.wake(until, self.current, self.current.turn)
        yield


def kill(owner: dict[SimProcess, None]) -> None:
    """End every process of an owner; its requests on the way still arrive."""
    for process in owner:
        process.turn = DEAD
        process.close()
    owner.clear()
