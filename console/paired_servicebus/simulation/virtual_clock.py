"""Virtual time: a heap of scheduled calls, and processes that wait for them.

A process is a generator. It schedules any number of wake-ups and yields once; the first resumes it, and the others are
then stale. An engine's processes die with it. An event is one entry of the heap that had an effect.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from typing import Any

Steps = Generator[None, Any, Any]
"""A process's body; `yield` waits, and returns the wake-up's value."""


class SimProcess:
    """A running generator; `turn` counts its waits, so that only the first wake-up of each counts."""

    __slots__ = ("alive", "owner", "steps", "turn")

    def __init__(self, steps: Steps, owner: dict[SimProcess, None]) -> None:
        self.steps = steps
        self.owner = owner
        self.turn = 0
        self.alive = True


class VirtualClock:
    """The scheduler: calls in order of time, then of scheduling."""

    def __init__(self, began: float) -> None:
        self.now = began
        self.events = 0
        self.current: SimProcess
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._order = 0

    def at(self, when: float, action: Callable[..., object], *arguments: Any) -> None:
        """Call `action` at `when`; immediately if that has passed."""
        self._order += 1
        heapq.heappush(self._heap, (when if when > self.now else self.now, self._order, action, arguments))

    def run(self, until: float) -> None:
        """Run all calls up to and including `until`."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until:
            self.now, _, action, arguments = pop(heap)
            self.events += 1
            action(*arguments)
        self.now = until

    # -- processes ----------------------------------------------------------------------------------------------

    def start(self, steps: Steps, owner: dict[SimProcess, None]) -> SimProcess:
        """Run a process to its first wait; it is in `owner` while it lives."""
        process = SimProcess(steps, owner)
        owner[process] = None
        self._step(process, None)
        return process

    def wake(self, when: float, process: SimProcess, turn: int, value: object = None) -> None:
        """Resume `process` at `when` with `value`, unless the wait of `turn` has ended."""
        self.at(when, self._wake, process, turn, value)

    def sleep(self, until: float) -> Steps:
        """Wait, as part of the running process."""
        self.wake(until, self.current, self.current.turn)
        yield

    def _wake(self, process: SimProcess, turn: int, value: object) -> None:
        if process.alive and process.turn == turn:
            process.turn += 1
            self._step(process, value)
        else:
            self.events -= 1

    def _step(self, process: SimProcess, value: object) -> None:
        before = getattr(self, "current", process)
        self.current = process
        try:
            process.steps.send(value)
        except StopIteration:
            process.alive = False
            process.owner.pop(process, None)
        finally:
            self.current = before


def kill(owner: dict[SimProcess, None]) -> None:
    """End every process of an owner; its requests on the way still arrive."""
    for process in owner:
        process.alive = False
    owner.clear()
