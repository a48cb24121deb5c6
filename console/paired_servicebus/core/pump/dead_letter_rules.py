"""Where dead-lettering is decided: its causes, their reasons, and the fate of a failed delivery (SPEC.md section 8).

    cause         decided                                                          by
    unreadable    on arrival: no message, no envelope, or no valid path            core.model.envelope and its readers
    expired       on arrival: `ttl_policy` is elapsed, and no time to live is left `time_left`
    not allowed   on arrival: the owner's `destinations` exclude the path          `not_allowed`
    refused       the destination never accepts this message                       FATES, `refused`
    missing       not found for `undeliverable_after`, and no try is due, or not   FATES, `missing`
                  found by the pings of a failed-over entity for so long

The pump (pump_machine.py) is the only caller. Every other message is delivered, deferred, or released.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final

from paired_servicebus.core.errors import EnvelopeError
from paired_servicebus.core.model.envelope import EnvelopeProperties, remaining
from paired_servicebus.core.model.verdict import FailureKind


class Fate(StrEnum):
    """The consequence of a failed delivery for the message."""

    WAITS = "waits"
    """Waits until the destination accepts it, without limit."""
    WAITS_A_WHILE = "waits a while"
    """Waits for `undeliverable_after`, then is dead-lettered."""
    DEAD_LETTERED = "dead-lettered"
    """Dead-lettered immediately: the destination will never accept this message."""


FATES: Final[dict[FailureKind, Fate]] = {
    **dict.fromkeys(FailureKind, Fate.WAITS),
    FailureKind.TOO_LARGE: Fate.DEAD_LETTERED,
    FailureKind.ARGUMENT: Fate.DEAD_LETTERED,
    FailureKind.IMPOSSIBLE: Fate.DEAD_LETTERED,
    FailureKind.NOT_FOUND: Fate.WAITS_A_WHILE,
}
"""SPEC.md section 8. For DEAD_LETTERED the message is at fault, otherwise the destination."""

CAUSE_UNKNOWN: Final = FailureKind.UNEXPLAINED
"""The kind of a failure that one of several messages caused: none of them is at fault until it fails alone."""


def kind_for(kind: FailureKind, *, alone: bool) -> FailureKind:
    """Return the kind of a failed delivery. alone: one message was tried."""
    return CAUSE_UNKNOWN if not alone and FATES[kind] is Fate.DEAD_LETTERED else kind


def is_messages_fault(kind: FailureKind, *, alone: bool) -> bool:
    """Return whether the message is at fault, and not its destination."""
    return alone and FATES[kind] is Fate.DEAD_LETTERED


def time_left(enclosed: EnvelopeProperties, *, parked_at: float, now: float, elapsed: bool) -> timedelta | None:
    """Return a message's time to live at its destination; None: unlimited.

    A time to live begins at the later of the arrival and the scheduled time, in the backlog as at the destination.

    Args:
        parked_at: when it arrived in the backlog, in seconds since 1970, as `now`.
        elapsed: whether the time in the backlog counts (ttl_policy).

    Raises:
        EnvelopeError: nothing is left; the text is the reason of the dead letter.
    """
    whole, scheduled = enclosed.time_to_live, enclosed.scheduled
    if whole is not None and whole <= timedelta(0):
        raise EnvelopeError("expired: its time to live is 0, which no destination accepts")
    if whole is None or not elapsed:
        return whole
    begins = parked_at if scheduled is None else max(parked_at, scheduled.timestamp())
    left = remaining(whole, passed=now - begins)
    if left is None:
        raise EnvelopeError(f"expired: its time to live of {whole} passed in the backlog")
    return left


def not_allowed(path: str) -> str:
    """Return the reason for a destination that the owner's list excludes."""
    return f"{path} is not among the destinations that this engine's owner allows"


def refused(path: str, reason: str) -> str:
    """Return the reason for a message that its destination never accepts."""
    return f"{path} refused it: {reason}"


def missing(path: str, seconds: float) -> str:
    """Return the reason for a destination that was not found for so long."""
    return f"{path} was not found for {seconds:.0f} s"
