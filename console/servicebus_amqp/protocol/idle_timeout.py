"""Idle time-outs of both sides, without a clock: when to send an empty frame, and when the peer counts as gone.

Rules: times are seconds of the caller's monotonic clock. Received bytes count from the later of two ticks, so that the
connection never fails too early; ticks are frequent enough that an empty frame is never late.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

_TICKS_PER_TIMEOUT: Final = 4
"""Ticks during one time-out."""


class IdleVerdict(Enum):
    FINE = "fine"
    SEND = "send an empty frame"
    GONE = "the peer has been silent too long"


class IdleWatch:
    """ours, peers: the two time-outs in seconds, None for none. Set `heard` and `sent` when bytes move."""

    __slots__ = ("_last_heard", "_last_sent", "heard", "ours", "peers", "sent")

    def __init__(self, ours: float | None) -> None:
        self.ours = ours
        self.peers: float | None = None
        self.heard = True
        self.sent = True
        self._last_heard = 0.0
        self._last_sent = 0.0

    def tick(self, now: float) -> tuple[IdleVerdict, float | None]:
        """Return the present verdict and the time of the next tick (None: never)."""
        if self.heard:
            self._last_heard = now
        if self.sent:
            self._last_sent = now
        self.heard = self.sent = False
        verdict = IdleVerdict.FINE
        if self.peers is not None and now - self._last_sent >= self.peers / _TICKS_PER_TIMEOUT:
            verdict = IdleVerdict.SEND
            self._last_sent = now
        if self.ours is not None and now - self._last_heard >= self.ours:
            verdict = IdleVerdict.GONE
        running = [limit for limit in (self.ours, self.peers) if limit is not None]
        return verdict, now + min(running) / _TICKS_PER_TIMEOUT if running else None
