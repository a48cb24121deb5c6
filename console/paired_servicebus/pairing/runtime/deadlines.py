"""Our own end to every wait on the SDK, whatever the SDK does, and a clock that never jumps.

`timeout=` of the SDK does not cover all of its waits, so each is also cut off from outside, `GRACE` seconds later. One
cancellation is not enough for that: inside of the SDK stand `asyncio.wait_for`s, which up to Python 3.11 can lose the
one that comes just as they end. So whoever has to end is told again and again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Collection
from math import inf
from types import TracebackType
from typing import Any, Final, Self, TypeVar

GRACE: Final = 1.0
"""Seconds the SDK has to keep its own time before we end the wait (SPEC.md section 3, send_timeout)."""
CLOSING: Final = 3.0
"""Seconds an SDK object has to close."""
AGAIN: Final = 0.25
"""Seconds between two cancellations of what does not end."""

T = TypeVar("T")


async def bounded(wait: Awaitable[T], seconds: float, what: str) -> T:
    """`wait`, ended after `seconds`.

    Raises:
        TimeoutError: naming what did not end.
    """
    with Deadline(seconds, what):
        return await wait


class Deadline:
    """Cancels the task it is entered in after some seconds, and again until it is left; leaving it then raises
    TimeoutError. `end_now` has it end before its time."""

    __slots__ = ("_before", "_cancels", "_path", "_seconds", "_task", "_timer", "_what")

    def __init__(self, seconds: float, what: str, path: str = "") -> None:
        self._seconds = seconds
        self._what = what
        self._path = path
        self._cancels = 0

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._task = task
        self._before = task.cancelling()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._cancel)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if not self._cancels:
            return
        for _ in range(self._cancels):
            self._task.uncancel()
        if kind is asyncio.CancelledError and self._task.cancelling() <= self._before:
            what = f"{self._what} on {self._path}" if self._path else self._what
            raise TimeoutError(f"{what} did not end within {self._seconds:g} s") from error

    def end_now(self) -> None:
        """As if the time were over. Only while it is entered."""
        self._timer.cancel()
        self._cancel()

    def _cancel(self) -> None:
        self._cancels += 1
        self._timer = asyncio.get_running_loop().call_later(AGAIN, self._cancel)
        self._task.cancel()


class Watch:
    """A deadline for one wait after the other, as `Deadline` is for one alone.

    Its timer stays set when a wait has ended in time, and is looked at when it comes: setting and cancelling one for
    every send would cost more than all else about a deadline.
    """

    __slots__ = ("_before", "_due", "_ends", "_path", "_seconds", "_timer", "cancels", "task", "what")

    def __init__(self, path: str) -> None:
        self._path = path
        self.what = ""
        """What is waited for, or was."""
        self._seconds = self._ends = 0.0
        self._before = 0
        self.cancels = 0
        """How often the one that waits was cancelled for being late."""
        self.task: asyncio.Task[Any] | None = None
        """The one that waits."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = inf

    def begin(self, seconds: float, what: str, loop: asyncio.AbstractEventLoop, now: float) -> None:
        """From `now` on, by the loop's time, the current task has so many seconds, until `finish`. Only when the wait
        before is finished."""
        task = asyncio.current_task(loop)
        assert task is not None, "a coroutine runs in a task"
        self.task, self.what, self._seconds = task, what, seconds
        self._before, self.cancels = task.cancelling(), 0
        self._ends = ends = now + seconds
        if ends < self._due:
            self._set(ends)

    def finish(self, error: BaseException | None) -> None:
        """The wait has ended, with this error or none. Raises TimeoutError if that was the deadline's doing."""
        task, self.task = self.task, None
        if not self.cancels or task is None:
            return
        for _ in range(self.cancels):
            task.uncancel()
        if isinstance(error, asyncio.CancelledError) and task.cancelling() <= self._before:
            raise TimeoutError(f"{self.what} on {self._path} did not end within {self._seconds:g} s") from error

    def end_now(self) -> None:
        """As if the time were over, if something waits."""
        if self.task is not None:
            self._cancel(self.task)

    def stop(self) -> None:
        """Nothing is waited for any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._due = None, inf

    def _set(self, when: float) -> None:
        self.stop()
        self._timer, self._due = asyncio.get_running_loop().call_at(when, self._look), when

    def _look(self) -> None:
        self._timer, self._due = None, inf
        if self.task is None:
            return
        if asyncio.get_running_loop().time() < self._ends:
            self._set(self._ends)
        else:
            self._cancel(self.task)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        self.cancels += 1
        self._ends = asyncio.get_running_loop().time() + AGAIN
        self._set(self._ends)
        task.cancel()


async def end_all(tasks: Collection[asyncio.Task[Any]], within: float) -> bool:
    """Cancel tasks until each has ended; False when some have not after `within` seconds."""
    end = asyncio.get_running_loop().time() + within
    left = {task for task in tasks if not task.done()}
    while left and asyncio.get_running_loop().time() < end:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN)
    return not left


class Clock:
    """Seconds since the epoch that never go back or jump: the wall clock at the start, and what has passed since."""

    def __init__(self) -> None:
        self._base = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._base + time.monotonic()
