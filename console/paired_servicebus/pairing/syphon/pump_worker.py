"""What both pumps share, and their interface to the syphon."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.core.pump.intake_limit import IntakeLimit
from paired_servicebus.core.pump.pump_events import M, Publish, PumpFailed, QueueCounted
from paired_servicebus.core.pump.pump_machine import PumpMachine
from paired_servicebus.core.pump.pump_progress import PumpProgress, format_deferred
from paired_servicebus.pairing.runtime.deadlines import end_all
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime

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


class Pump(ABC, Generic[M]):
    """One backlog queue's pump: what both kinds do alike.

    Args:
        index, path: the backlog queue's.
        progress: shared with a pump of the other kind that replaces this one.
        intake: limits the messages that it takes.
        remake: makes a missing queue again.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        *,
        index: int,
        path: str,
        progress: PumpProgress | None = None,
        intake: IntakeLimit | None = None,
        remake: Remake = leave_gone,
    ) -> None:
        self.index = index
        self.path = path
        self.progress = progress or PumpProgress()
        self._steering = steering
        self._intake = intake
        self._remake = remake
        self.machine = self._new_machine()
        self._answers = PendingAnswers()
        self._window_ends = 0.0

    def _new_machine(self) -> PumpMachine[M]:
        return PumpMachine(self._steering.machine, self.index, progress=self.progress, intake=self._intake)

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether it has no unsettled message and no unconfirmed settlement."""

    @abstractmethod
    async def run(self) -> None:
        """Move messages until cancelled; a failure ends a link, not the pump."""

    @abstractmethod
    async def close(self) -> None:
        """Settle or release the messages in hand, within seconds; after `run` has ended."""

    def known(self) -> set[int]:
        """Return the numbers of messages in hand, requested, deferred, or about to be settled."""
        return self.machine.known()

    def holds(self, messages: int) -> None:
        """Search the queue if it contains more messages than known; the count was read while nothing moved."""
        self.machine.step(QueueCounted(messages, len(self.known()), self._steering.clock()))

    def report_failure(self, reason: str, *, retry_in: float, todo: str = "") -> None:
        """Report that the pump cannot use its queue. retry_in: seconds. todo: the operator's remedy."""
        for effect in self.machine.step(PumpFailed(reason, retry_in, self._steering.clock(), todo)):
            if isinstance(effect, Publish):
                self._steering.publish(effect.events)

    async def _while_paused(self) -> None:
        while not self._steering.machine.may_pump(self.index):
            self.progress.text = "paused"
            await self._steering.change(self._steering.clock() + 60.0)

    async def _pause_after(self, failure: Exception, pause: float = 0.0) -> None:
        """Report a failure, and wait: at least `pause` seconds, and longer for a busy namespace."""
        policy, judgement = self._steering.policy, self._steering.judge(failure)
        pause = max(pause, policy.syphon_retry_interval)
        if judgement.kind is FailureKind.BUSY:
            pause = max(pause, policy.throttle_wait)
        todo = await self._remake() if judgement.kind is FailureKind.NOT_FOUND else ""
        self.report_failure(judgement.reason, retry_in=pause, todo=todo)
        await asyncio.sleep(pause)

    def _show_progress(self, *troubles: str) -> None:
        """Update the text of the progress. troubles: what does not work beside."""
        deferred = self.machine.deferred
        self.progress.set_aside = deferred.count()
        text = format_deferred(self.progress.set_aside, deferred.paths()) if deferred else "receiving"
        self.progress.text = "; ".join(part for part in (text, *troubles) if part)
