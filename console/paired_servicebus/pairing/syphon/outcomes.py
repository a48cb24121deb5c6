"""What every pump has in common, whichever AMQP it moves messages with: its progress, receipts, and rulings.

A ruling says what becomes of a message that its destination did not take; the rules are the core's (destinations). A
receipt is announced before the settlement that depends on it (SPEC.md section 11). Links, locks and settlements do
not belong here.
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
"""Seconds between two searches for messages that somebody else set aside, at least: each is billed."""
MISSED: Final = 60.0
"""Seconds until the next search, at most, as long as a message that was set aside could not be received; and at least,
as long as messages lie in the queue that the pump does not know of."""
SOON: Final = 5.0
"""Seconds until the next search, at least, where a message that was set aside could not be received: whoever holds it
may be dead, and its lock ends by itself."""
RECENT: Final = 5.0
"""Seconds after a move in which the syphon is running, as long as anything is parked."""
RATIO: Final = 30
"""Times as long as a search took, until the next one."""
MANAGED: Final = 10.0
"""Seconds that a backlog queue has for a request to its management, or for a settlement: less than locks last, and than
anybody wants to wait who stands behind."""
NOT_STARTED: Final = "not started"
"""What a pump says until it is attached, or has failed to attach."""
MOST_NAMES: Final = 3
MOST_REASONS: Final = 20
OTHER_REASONS: Final = "other reasons: the journal has each"


@dataclass(slots=True)
class PumpProgress:
    """What one pump did since it started."""

    moved: int = 0
    dead_lettered: int = 0
    dead_reasons: Counter[str] = field(default_factory=Counter)
    """Why messages were dead-lettered, at most MOST_REASONS reasons; rarer ones are under OTHER_REASONS."""
    repeated: int = 0
    """Messages that may have arrived twice: in doubt when the way to their destination broke, or moved after their
    lock had ended."""
    last_moved_at: float | None = None
    text: str = NOT_STARTED
    failing_since: float | None = None
    set_aside: int = 0
    unconfirmed: Callable[[], int] = lambda: 0
    """How many moved or dead-lettered messages the queue has not confirmed to have left it."""
    note: str = ""
    """Why it is not the kind of pump that was asked for; empty if it is."""

    @property
    def line(self) -> str:
        """What the pump has to say, for the view of its queue."""
        said = [self.text, self.note]
        if self.repeated:
            said.insert(1, f"{_counted(self.repeated)} may have arrived twice")
        return "; ".join(part for part in said if part)


Remake = Callable[[], Awaitable[str]]
"""Make the pump's queue again; why it is still gone and what to do, empty where that is not so."""


async def leave_gone() -> str:
    """For a pump whose queue is not one in use."""
    return ""


class Worker(Protocol):
    """One backlog queue's pump."""

    index: int
    path: str
    progress: PumpProgress

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing in hand: no message that is not settled, and no settlement that is not confirmed."""

    async def run(self) -> None:
        """Move messages until cancelled."""

    async def close(self) -> None:
        """Let go of what is in hand, within seconds; after `run` has ended."""

    def holds(self, messages: int) -> None:
        """The queue was read while nothing moved, and holds so many messages: search it, if it does not know of all."""


class Rescan:
    """When a pump searches its queue for what is set aside: at once, then every RESCAN seconds; after a miss within
    SOON, and after growing pauses up to MISSED as long as some of it cannot be received. due_at: seconds since 1970."""

    __slots__ = ("_ended_at", "_missed", "_soon", "_took", "due_at")

    def __init__(self) -> None:
        self.due_at = 0.0
        self._missed = False
        self._soon = SOON
        self._took = 0.0
        self._ended_at = 0.0

    def unseen(self, now: float) -> None:
        """The queue holds messages that the pump knows nothing of: somebody else may have set them aside, and died."""
        self.due_at = min(self.due_at, max(now, self._ended_at + max(MISSED, RATIO * self._took)))

    def missed(self, now: float) -> None:
        """Something that is set aside could not be received: somebody has it, who may be dead."""
        if not self._missed:
            self._missed = True
            self.due_at = min(self.due_at, now + max(self._soon, RATIO * self._took))

    def began(self) -> None:
        """A search begins."""
        self._soon = min(MISSED, 2 * self._soon) if self._missed else SOON
        self._missed = False

    def failed(self, now: float) -> None:
        """The queue did not let itself be searched; a pump that asked at each step would hardly do anything else."""
        self.due_at = now + SOON

    def ended(self, now: float, *, took: float) -> None:
        """It is over, after so many seconds of work."""
        self._took = took
        self._ended_at = now
        self.due_at = now + max(self._soon if self._missed else RESCAN, RATIO * took)


@dataclass(frozen=True, slots=True)
class Ruling:
    """What becomes of messages that were not taken: dead-lettered for this reason, or set aside."""

    undeliverable: bool
    reason: str


def took(steering: PairingRuntime, path: str, now: float) -> None:
    """The destination accepted messages that were sent after its last failure."""
    if steering.machine.destinations.delivered(path, at=now):
        steering.announce(DestinationHealed(at=now, entity=path))
        steering.changed()


def refused(steering: PairingRuntime, path: str, failure: Judgement) -> Ruling:
    """The destination did not take a message, or there was no way to it."""
    if FATES[failure.kind] is Fate.DEAD_LETTERED:
        return Ruling(True, f"{path} refused it: {failure.reason}")
    destinations, now = steering.machine.destinations, steering.clock()
    if failure.kind is FailureKind.BUSY:
        _slow_down(steering, path, now)
    news = destinations.circuit(path) is None
    circuit = destinations.failed(path, at=now, kind=failure.kind, reason=failure.reason)
    if news:
        steering.announce(DestinationFailed(at=now, entity=path, reason=failure.reason, retry_at=circuit.retry_at))
    return waiting(steering, path, failure.reason)


def _slow_down(steering: PairingRuntime, path: str, now: float) -> None:
    limit = steering.machine.pace.throttled(now)
    if limit is not None:
        text = f"{path} is throttled: at most {limit:,.0f} messages a second are moved, and more again as it bears them"
        steering.announce(Warned(at=now, about="syphon", text=text))


def waiting(steering: PairingRuntime, path: str, reason: str = "") -> Ruling:
    """What becomes of further messages for a destination that has failed, and that is not tried again yet."""
    destinations, now = steering.machine.destinations, steering.clock()
    circuit = destinations.circuit(path)
    if circuit is not None and circuit.retry_at > now and destinations.undeliverable(path, now):
        return Ruling(True, f"{path} was not found for {now - (circuit.missing_since or now):.0f} s")
    return Ruling(False, reason)


def moved(steering: PairingRuntime, progress: PumpProgress, queue: int, messages: Sequence[tuple[str, str]]) -> None:
    """Receipts for messages that their destinations accepted, each its path and id; to be called before they are
    completed."""
    now = steering.clock()
    for path, message_id in messages:
        steering.announce(Moved(at=now, entity=path, message_id=message_id, queue=queue))
    progress.moved += len(messages)
    progress.last_moved_at = now


def buried(
    steering: PairingRuntime, progress: PumpProgress, path: str, queue: int, message_id: str, reason: str
) -> None:
    """The receipt for a message that is dead-lettered next."""
    now = steering.clock()
    steering.announce(DeadLettered(at=now, entity=path, message_id=message_id, queue=queue, reason=reason))
    progress.dead_lettered += 1
    known = reason in progress.dead_reasons or len(progress.dead_reasons) < MOST_REASONS
    progress.dead_reasons[reason if known else OTHER_REASONS] += 1


def stopped(
    steering: PairingRuntime, progress: PumpProgress, queue: int, reason: str, *, retry_in: float, todo: str = ""
) -> None:
    """A pump cannot go on with its queue: said once, not at every try. `todo`: what a person can do about it."""
    now = steering.clock()
    if progress.failing_since is None:
        progress.failing_since = now
        steering.announce(PumpStopped(at=now, queue=queue, reason=reason, retry_at=now + retry_in))
    progress.text = f"cannot receive: {reason}; {todo}" if todo else f"cannot receive: {reason}"


def holding(count: int, paths: Collection[str]) -> str:
    """What a pump says of messages that it set aside."""
    names = sorted(paths)
    shown = ", ".join(names[:MOST_NAMES])
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"holds {_counted(count)} for {shown}{more}"


def _counted(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"
