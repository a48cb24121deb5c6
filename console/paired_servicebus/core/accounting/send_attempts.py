"""Calls of a sender, and the times that follow from them: detection of a failure, and the first diverted send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SendAttempt:
    """One call of a sender; times are seconds since the epoch."""

    entity: str
    began: float
    ended: float
    is_accepted: bool


def detection_start(attempts: Sequence[SendAttempt], failed_over_at: float) -> float | None:
    """Return the beginning of the first of the failures that led to a failover; None: no attempt led to it.

    An accepted send ends a suspicion (SPEC.md section 6), so earlier failures do not count. With `failover_interval` 0
    and with `hold_until_failover`, the failing call itself goes on to the backlog: it began before the failover and
    ended after it.
    """
    accepted = [one.ended for one in attempts if one.is_accepted and one.ended < failed_over_at]
    last_accepted = max(accepted, default=0.0)
    led = [one.began for one in attempts if one.ended > last_accepted and one.began <= failed_over_at]
    return min(led, default=None)


def diversion_seconds(attempts: Sequence[SendAttempt], failed_over_at: float) -> float | None:
    """Return the seconds from the first call after a failover to the first accepted one; None: none was accepted."""
    later = [one for one in attempts if one.began >= failed_over_at]
    accepted = [one.ended for one in later if one.is_accepted]
    return min(accepted) - min(one.began for one in later) if accepted else None
