"""Deadlines for every wait on the SDK, and a clock that never jumps.

The SDK's `timeout=` does not cover all of its waits, so each is cancelled GRACE seconds later. One cancellation is not
enough: the SDK uses `asyncio.wait_for`, which up to Python 3.11 can lose a cancellation that arrives as it ends. So
cancellations are repeated.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Collection
from math import inf
from typing import Any, Final, Self, TypeVar

GRACE: Final = 1.0
"""Seconds in which the SDK may apply its own timeout before ours ends the wait (SPEC.md section 3, send_timeout)."""
CLOSING: Final = 3.0
"""Seconds in which an SDK object has to close."""
CANCEL_SECONDS: Final = 0.25
"""Seconds between two cancellations of a task that does not end."""

T = TypeVar("T")


async def bounded(wait: Awaitable[T], seconds: float, what: str) -> T:
    """Await `wait` for at most `seconds`. Raises TimeoutError: naming `what`."""
    with Deadline(seconds, what):
        return await wait


class Watch:
    """A reusable deadline for one wait after the other.

    Its timer stays set after a wait that ended in time: setting and cancelling one for every send would be most of the
    cost.
    """

    __slots__ = ("_before", "_due", "_ends", "_path", "_seconds", "_timer", "cancels", "task", "what")

    def __init__(self, path: str = "") -> None:
        self._path = path
        self.what = ""
        """The present or latest wait."""
        self._seconds = self._ends = 0.0
        self._before = 0
        self.cancels = 0
        """The number of cancellations of the present wait."""
        self.task: asyncio.Task[Any] | None = None
        """The task that waits."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = inf

    def begin(self, seconds: float, what: str, loop: asyncio.AbstractEventLoop, now: float) -> None:
        """Give the current task `seconds` from the loop's time `now` until `finish`.

        Call it only after the previous wait has finished.
        """
        task = asyncio.current_task(loop)
        assert task is not None, "a coroutine runs in a task"
        self.task, self.what, self._seconds = task, what, seconds
        self._before, self.cancels = task.cancelling(), 0
        self._ends = ends = now + seconds
        if ends < self._due:
            self._set(ends)

    def finish(self, error: BaseException | None) -> None:
        """End the wait with its error, or None. Raises TimeoutError if the deadline caused the error."""
        task, self.task = self.task, None
        if not self.cancels or task is None:
            return
        for _ in range(self.cancels):
            task.uncancel()
        if isinstance(error, asyncio.CancelledError) and task.cancelling() <= self._before:
            what = f"{self.what} on {self._path}" if self._path else self.what
            raise TimeoutError(f"{what} did not end within {self._seconds:g} s") from error

    def end_now(self) -> None:
        """End the time of the present wait now, if there is one."""
        if self.task is not None:
            self._cancel(self.task)

    def stop(self) -> None:
        """Cancel the timer; nothing waits any more."""
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
        self._ends = asyncio.get_running_loop().time() + CANCEL_SECONDS
        self._set(self._ends)
        task.cancel()


class Deadline:
    """A context manager that cancels its task after some seconds, repeatedly; its exit then raises TimeoutError."""

    __slots__ = ("_seconds", "_watch", "_what")

    def __init__(self, seconds: float, what: str) -> None:
        self._seconds = seconds
        self._what = what
        self._watch = Watch()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._watch.begin(self._seconds, self._what, loop, loop.time())
        return self

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        self._watch.stop()
        self._watch.finish(error)


async def end_all(tasks: Collection[asyncio.Task[Any]], within: float) -> bool:
    """Cancel tasks until each has ended; return False if some have not after `within` seconds."""
    end = asyncio.get_running_loop().time() + within
    left = {task for task in tasks if not task.done()}
    while left and asyncio.get_running_loop().time() < end:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_SECONDS)
    return not left


class Clock:
    """Seconds since the epoch that never go back or jump: the wall clock at the start plus monotonic time."""

    def __init__(self) -> None:
        self._base = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._base + time.monotonic()
