"""Deadlines for every wait on the SDK, a clock that never jumps, and the owner of a pairing's tasks.

The SDK's `timeout=` does not cover all of its waits, so each is cancelled GRACE seconds later. One cancellation is not
enough: the SDK uses `asyncio.wait_for`, which up to Python 3.11 can lose a cancellation that arrives as it ends. So
cancellations are repeated.

All background tasks start at their owner and end with it, and calls under way are counted.
"""

from __future__ import annotations

import asyncio
import logging
import time
import types
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context
from math import inf
from typing import Any, Final, TypeVar, cast

from paired_servicebus.core.errors import ForeignLoopError

GRACE: Final = 1.0
"""Seconds in which the SDK may apply its own timeout before ours ends the wait (SPEC.md section 3, send_timeout)."""
CLOSING: Final = 3.0
"""Seconds in which an SDK object has to close."""
CANCEL_SECONDS: Final = 0.25
"""Seconds between two cancellations of a task that does not end."""

T = TypeVar("T")


async def bounded(wait: Awaitable[T], seconds: float, what: str) -> T:
    """Await `wait` for at most `seconds`. Raises TimeoutError: naming `what`."""
    with deadline(seconds, what):
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


@types.coroutine
def overlapped(wait: Coroutine[Any, Any, T], act: Callable[[], object]) -> Generator[Any, None, T]:
    """Await `wait`, and call `act` at its first pause, before any other task runs: that takes no time of the caller.

    A `wait` without a pause ends without the call. An error of `act` is raised in `wait`.
    """
    is_first = True
    try:
        pause = wait.send(None)
        while True:
            try:
                if is_first:
                    is_first = False
                    act()
                yield pause
            except BaseException as error:  # noqa: BLE001 - a cancellation too belongs to `wait`
                pause = wait.throw(error)
            else:
                return cast(T, (yield from wait))
    except StopIteration as end:
        return cast(T, end.value)


@contextmanager
def deadline(seconds: float, what: str) -> Iterator[None]:
    """Cancel the current task after some seconds, repeatedly; then raise TimeoutError, naming `what`."""
    watch, loop = Watch(), asyncio.get_running_loop()
    watch.begin(seconds, what, loop, loop.time())
    error: BaseException | None = None
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        watch.stop()
        watch.finish(error)


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


ENDING_SECONDS: Final = 8.0
"""Seconds in which all tasks together have to end: each may be closing a link of the SDK."""

log = logging.getLogger(__name__)


class TaskOwner:
    """The tasks with the lifetime of their pairing.

    A task that ends with an error ends all. `failed` then has the error, which the pairing reports (SPEC.md section 9:
    "a task of ours that owned it crashed").
    """

    def __init__(self) -> None:
        self._started: set[asyncio.Task[Any]] = set()
        self._is_ending = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.failed: BaseException | None = None

    async def open(self) -> None:
        """Prepare to start tasks, in the running loop only."""
        self._loop = asyncio.get_running_loop()

    def start(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any] | None:
        """Run `work` until it ends or all tasks do; return None if they are ending already.

        It runs in a context of its own: a task serves all callers, and is part of no caller's trace.
        """
        if self._loop is None or self._is_ending:
            work.close()
            return None
        task = self._loop.create_task(work, name=name, context=Context())
        self._started.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._started.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self.failed, self._is_ending = self.failed or failure, True
            for other in self._started:
                other.cancel()

    def refuse_elsewhere(self) -> None:
        """Raise ForeignLoopError in another event loop than that of the tasks; outside of any loop, return."""
        if self._loop is None or asyncio._get_running_loop() in (self._loop, None):
            return
        raise ForeignLoopError(
            "this pairing belongs to the event loop in which it was made, and was used from another one: pair in each "
            "loop of its own clients, or use paired_servicebus.sync, whose paired client any thread may use"
        )

    async def finish(self, within: float) -> None:
        """Wait for the running tasks to end by themselves, at most `within` seconds."""
        if self._started:
            await asyncio.wait(tuple(self._started), timeout=within)

    async def close(self) -> None:
        """End the running tasks within ENDING_SECONDS seconds; a task that does not end is abandoned and logged."""
        self._is_ending = True
        if not await end_all(tuple(self._started), ENDING_SECONDS):
            log.warning("these tasks do not end: %s", ", ".join(sorted(task.get_name() for task in self._started)))


class InFlight:
    """The counter of all calls under way. `empty` is set when the last has ended after `close`."""

    __slots__ = ("closing", "count", "empty")

    def __init__(self) -> None:
        self.count = 0
        self.closing = False
        self.empty = asyncio.Event()

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Count the end of a call."""
        self.count -= 1
        if self.closing and not self.count:
            self.empty.set()

    def close(self) -> None:
        """Expect no further calls."""
        self.closing = True
        if not self.count:
            self.empty.set()
