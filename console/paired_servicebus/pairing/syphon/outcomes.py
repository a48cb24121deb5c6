"""The common part of both pumps: progress, receipts, and rulings.

A ruling decides the fate of a message that its destination did not accept, by the core's rules (destinations). A
receipt precedes the settlement that depends on it (SPEC.md section 11).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from paired_servicebus.core.accounting.billing import SEARCH_INTERVAL_SECONDS
from paired_servicebus.core.model.pairing_events import (
    DeadLettered,
    DestinationFailed,
    DestinationHealed,
    Moved,
    PumpStopped,
    Warned,
)
from paired_servicebus.core.model.verdict import FailureKind, Judgement
from paired_servicebus.core.pump.destination_circuits import FATES, Fate
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime

RESCAN: Final = SEARCH_INTERVAL_SECONDS
"""Minimum seconds between two searches for messages that others deferred: each is billed."""
MISSED: Final = 60.0
"""Maximum seconds until the next search while a deferred message could not be received, and the minimum while the
queue contains messages that the pump does not know."""
SOON: Final = 5.0
"""Minimum seconds until the next search after a deferred message could not be received: its holder may be dead, and
the lock ends by itself."""
RECENT: Final = 5.0
"""Seconds after a move in which the syphon counts as running while anything is parked."""
RATIO: Final = 30
"""Pause before the next search, as a multiple of the last one's duration."""
MANAGED: Final = 10.0
"""Seconds for a management request or a settlement of a backlog queue: shorter than a lock."""
NOT_STARTED: Final = "not started"
"""A pump's text until it is attached, or has failed to attach."""
MAX_NAMES: Final = 3
MAX_REASONS: Final = 20
OTHER_REASONS: Final = "other reasons: the journal has each"


@dataclass(slots=True)
class PumpProgress:
    """One pump's work since its start."""

    moved: int = 0
    dead_lettered: int = 0
    dead_reasons: Counter[str] = field(default_factory=Counter)
    """Reasons of dead letters, at most MAX_REASONS of them; the rest count under OTHER_REASONS."""
    repeated: int = 0
    """Messages that may have arrived twice: in doubt after a lost link, or moved after their lock's end."""
    last_moved_at: float | None = None
    text: str = NOT_STARTED
    failing_since: float | None = None
    set_aside: int = 0
    unconfirmed: Callable[[], int] = lambda: 0
    """Return the number of moved or dead-lettered messages that the queue has not confirmed."""
    note: str = ""
    """The reason why the pump is of the other kind, or ""."""

    @property
    def line(self) -> str:
        """The pump's text for the view of its queue."""
        parts = [self.text, self.note]
        if self.repeated:
            parts.insert(1, f"{_counted(self.repeated)} may have arrived twice")
        return "; ".join(part for part in parts if part)


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

    def holds(self, messages: int) -> None:
        """Search the queue if it contains more messages than known; the count was read while nothing moved."""


class Rescan:
    """Times of a pump's searches for deferred messages: immediately, then every RESCAN seconds.

    After a miss the next follows within SOON, then after growing pauses up to MISSED while messages cannot be received.
    due_at: seconds since 1970.
    """

    __slots__ = ("_ended_at", "_missed", "_soon", "_took", "due_at")

    def __init__(self) -> None:
        self.due_at = 0.0
        self._missed = False
        self._soon = SOON
        self._took = 0.0
        self._ended_at = 0.0

    def unseen(self, now: float) -> None:
        """Search soon: the queue contains unknown messages, perhaps deferred by an engine that died."""
        self.due_at = min(self.due_at, max(now, self._ended_at + max(MISSED, RATIO * self._took)))

    def missed(self, now: float) -> None:
        """Search soon: another engine, perhaps dead, has a deferred message."""
        if not self._missed:
            self._missed = True
            self.due_at = min(self.due_at, now + max(self._soon, RATIO * self._took))

    def began(self) -> None:
        """Handle the begin of a search."""
        self._soon = min(MISSED, 2 * self._soon) if self._missed else SOON
        self._missed = False

    def failed(self, now: float) -> None:
        """Pause after a failed search, so that a pump can do other work."""
        self.due_at = now + SOON

    def ended(self, now: float, *, took: float) -> None:
        """Handle the end of a search; took: seconds of work."""
        self._took = took
        self._ended_at = now
        self.due_at = now + max(self._soon if self._missed else RESCAN, RATIO * took)


@dataclass(frozen=True, slots=True)
class Ruling:
    """The fate of messages that were not accepted: dead-lettered for this reason, or deferred."""

    undeliverable: bool
    reason: str


def record_success(steering: PairingRuntime, path: str, now: float) -> None:
    """Handle the acceptance of messages that were sent after the destination's last failure."""
    if steering.machine.destinations.delivered(path, at=now):
        steering.announce(DestinationHealed(at=now, entity=path))
        steering.changed()


def record_failure(steering: PairingRuntime, path: str, failure: Judgement) -> Ruling:
    """Handle a message that the destination did not accept, or that could not reach it."""
    if FATES[failure.kind] is Fate.DEAD_LETTERED:
        return Ruling(True, f"{path} refused it: {failure.reason}")
    destinations, now = steering.machine.destinations, steering.clock()
    if failure.kind is FailureKind.BUSY:
        _slow_down(steering, path, now)
    news = destinations.circuit(path) is None
    circuit = destinations.failed(path, at=now, kind=failure.kind, reason=failure.reason)
    if news:
        steering.announce(DestinationFailed(at=now, entity=path, reason=failure.reason, retry_at=circuit.retry_at))
    return pending_ruling(steering, path, failure.reason)


def _slow_down(steering: PairingRuntime, path: str, now: float) -> None:
    limit = steering.machine.pace.throttled(now)
    if limit is not None:
        text = f"{path} is throttled: the limit is {limit:,.0f} messages a second, and rises again with its capacity"
        steering.announce(Warned(at=now, about="syphon", text=text))


def pending_ruling(steering: PairingRuntime, path: str, reason: str = "") -> Ruling:
    """Return the fate of further messages for a failed destination before its next try."""
    destinations, now = steering.machine.destinations, steering.clock()
    circuit = destinations.circuit(path)
    if circuit is not None and circuit.retry_at > now and destinations.undeliverable(path, now):
        return Ruling(True, f"{path} was not found for {now - (circuit.missing_since or now):.0f} s")
    return Ruling(False, reason)


def record_moves(
    steering: PairingRuntime, progress: PumpProgress, queue: int, messages: Sequence[tuple[str, str]]
) -> None:
    """Announce receipts for accepted messages, each with its path and id; call it before they are completed."""
    now = steering.clock()
    for path, message_id in messages:
        steering.announce(Moved(at=now, entity=path, message_id=message_id, queue=queue))
    progress.moved += len(messages)
    progress.last_moved_at = now


def record_dead_letter(
    steering: PairingRuntime, progress: PumpProgress, path: str, queue: int, message_id: str, reason: str
) -> None:
    """Announce the receipt for a message that is dead-lettered next."""
    now = steering.clock()
    steering.announce(DeadLettered(at=now, entity=path, message_id=message_id, queue=queue, reason=reason))
    progress.dead_lettered += 1
    known = reason in progress.dead_reasons or len(progress.dead_reasons) < MAX_REASONS
    progress.dead_reasons[reason if known else OTHER_REASONS] += 1


def record_stop(
    steering: PairingRuntime, progress: PumpProgress, queue: int, reason: str, *, retry_in: float, todo: str = ""
) -> None:
    """Report a pump that cannot use its queue, once and not at every try. todo: the operator's remedy."""
    now = steering.clock()
    if progress.failing_since is None:
        progress.failing_since = now
        steering.announce(PumpStopped(at=now, queue=queue, reason=reason, retry_at=now + retry_in))
    progress.text = f"cannot receive: {reason}; {todo}" if todo else f"cannot receive: {reason}"


def format_deferred(count: int, paths: Collection[str]) -> str:
    """Return a pump's text about its deferred messages."""
    names = sorted(paths)
    shown = ", ".join(names[:MAX_NAMES])
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"holds {_counted(count)} for {shown}{more}"


def _counted(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"
