"""What one connection has shown tokens for, and until when.

A token for an entity opens it with everything below: sub-queues, subscriptions, its management node. Judging tokens
belongs to `cbs`; which rights (Send, Listen, Manage) a grant carries will be asked of `Grants.allow`.
"""

from __future__ import annotations

from console.sandbox.addresses import covers


class Grants:
    """Audience paths with the ends of their tokens, in epoch seconds."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}

    def put(self, path: str, expires_at: float) -> None:
        """A token for this path was accepted; it takes the place of an earlier one."""
        self._ends[path.lower()] = expires_at

    def allow(self, path: str, now: float) -> bool:
        """Whether some token that is still good covers the path."""
        return any(ends > now and covers(granted, path) for granted, ends in self._ends.items())

    def drop_expired(self, now: float) -> bool:
        """Forget what has ended; True if anything had."""
        expired = [path for path, ends in self._ends.items() if ends <= now]
        for path in expired:
            del self._ends[path]
        return bool(expired)

    def next_end(self) -> float | None:
        """When the first of the tokens ends."""
        return min(self._ends.values(), default=None)
