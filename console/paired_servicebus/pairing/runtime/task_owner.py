"""The owner of a pairing's tasks: all background tasks start here and end with it, and calls under way are counted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, Final

from paired_servicebus.core.errors import ForeignLoopError
from paired_servicebus.pairing.runtime.deadlines import CANCEL_SECONDS, end_all

ENDING_SECONDS: Final = 8.0
"""Seconds in which all tasks together have to end: each may be closing a link of the SDK."""

log = logging.getLogger(__name__)


class TaskOwner:
    """A task group with the lifetime of its pairing.

    A task that ends with an error ends the group. `failed` then has the error, which the pairing reports (SPEC.md
    section 9: "a task of ours that owned it crashed").
    """

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._started: set[asyncio.Task[Any]] = set()
        self._runner: asyncio.Task[None] | None = None
        self._end = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.failed: BaseExceptionGroup[BaseException] | None = None

    async def open(self) -> None:
        """Prepare to start tasks, in the running loop only."""
        self._loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        self._runner = asyncio.create_task(self._run(ready), name="the pairing's tasks")
        await ready.wait()

    def start(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any] | None:
        """Run `work` until it ends or the group does; return None if the group is ending already.

        It runs in a context of its own: a task serves all callers, and is part of no caller's trace.
        """
        if self._group is not None and not self._end.is_set():
            try:
                task = self._group.create_task(work, name=name, context=Context())
            except RuntimeError:  # a task has failed, and the group accepts no more
                pass
            else:
                self._started.add(task)
                task.add_done_callback(self._started.discard)
                return task
        work.close()
        return None

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
        self._end.set()
        if not await end_all(tuple(self._started), ENDING_SECONDS):
            log.warning("these tasks do not end: %s", ", ".join(sorted(task.get_name() for task in self._started)))
        if self._runner is not None:
            done, _ = await asyncio.wait([self._runner], timeout=CANCEL_SECONDS if self._started else ENDING_SECONDS)
            for runner in done:
                runner.exception()  # mark it as retrieved: `failed` has it

    async def _run(self, ready: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                ready.set()
                await self._end.wait()
                raise _Ended
        except* _Ended:
            pass
        except* Exception as failures:
            self.failed = failures
            raise
        finally:
            self._group = None


class _Ended(Exception):
    """The exception that ends the group cleanly: a task group cancels its tasks when its body raises."""


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
