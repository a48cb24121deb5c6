"""What both pumps share: their interface to the syphon."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from paired_servicebus.core.pump.pump_progress import PumpProgress
from paired_servicebus.pairing.runtime.deadlines import end_all

RECENT: Final = 5.0
"""Seconds after a move in which the syphon counts as running while anything is parked."""
MANAGED: Final = 10.0
"""Seconds for a management request or a settlement of a backlog queue: shorter than a lock."""

STOPPING_SECONDS: Final = 5.0
"""Seconds in which a stopped pump gets the answers that are due, and the same again to settle what it holds."""

T = TypeVar("T")

Remake = Callable[[], Awaitable[str]]
"""Makes the pump's queue again; returns why it is still missing and the remedy, or ""."""


async def leave_gone() -> str:
    """Do nothing, for a pump whose queue is not in use."""
    return ""


class PendingAnswers:
    """Requests that lock or settle messages: a stop cancels none of them, since their answers name the locks."""

    def __init__(self) -> None:
        self._requests: set[asyncio.Task[Any]] = set()

    async def wait_for(self, request: Coroutine[Any, Any, T]) -> T:
        """Return the request's answer; a cancellation ends this wait, and not the request."""
        task = asyncio.create_task(request)
        self._requests.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait for the answers that are due, at most STOPPING_SECONDS; then cancel the requests."""
        if self._requests:
            await asyncio.wait(tuple(self._requests), timeout=STOPPING_SECONDS)
            await end_all(tuple(self._requests), STOPPING_SECONDS)

    def _ended(self, request: asyncio.Task[Any]) -> None:
        self._requests.discard(request)
        if not request.cancelled():
            request.exception()  # after a stop nobody else retrieves it


class Worker(Protocol):
    """One backlog queue's pump."""

    index: int
    path: str
    progress: PumpProgress

    @property
    def is_idle(self) -> bool:
        """Whether it has no unsettled message and no unconfirmed settlement."""

    async def run(self) -> None:
        """Move messages until cancelled."""

    async def close(self) -> None:
        """Release the messages in hand, within seconds; after `run` has ended."""

    def report_failure(self, reason: str, *, retry_in: float, todo: str = "") -> None:
        """Report that the pump cannot use its queue. retry_in: seconds. todo: the operator's remedy."""

    def holds(self, messages: int) -> None:
        """Search the queue if it contains more messages than known; the count was read while nothing moved."""
