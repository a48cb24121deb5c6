"""The times of a pump's searches for deferred messages that it does not know."""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.accounting.billing import SEARCH_INTERVAL_SECONDS

RESCAN: Final = SEARCH_INTERVAL_SECONDS
"""Minimum seconds between two searches for messages that others deferred: each is billed."""
MISSED: Final = 60.0
"""Maximum seconds until the next search while a deferred message could not be received, and the minimum while the
queue contains messages that the pump does not know."""
SOON: Final = 5.0
"""Minimum seconds until the next search after a deferred message could not be received: its holder may be dead, and
the lock ends by itself."""
RATIO: Final = 30
"""Pause before the next search, as a multiple of the last one's duration."""


class SearchSchedule:
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
