"""What both pumps share: their interface to the syphon."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from paired_servicebus.core.pump.pump_progress import PumpProgress

RECENT: Final = 5.0
"""Seconds after a move in which the syphon counts as running while anything is parked."""
MANAGED: Final = 10.0
"""Seconds for a management request or a settlement of a backlog queue: shorter than a lock."""

Remake = Callable[[], Awaitable[str]]
"""Makes the pump's queue again; returns why it is still missing and the remedy, or ""."""


async def leave_gone() -> str:
    """Do nothing, for a pump whose queue is not in use."""
    return ""


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
