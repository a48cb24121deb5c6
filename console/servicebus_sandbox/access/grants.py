"""What one connection has shown tokens for: which rights, and until when.

A token for an entity opens it with everything below it: sub-queues, subscriptions, its management node. Judging tokens
belongs to `authorization`, which right a link needs to `amqp_server.attaching`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from servicebus_sandbox.access.proven_access import ProvenAccess
from servicebus_sandbox.broker.authorization_rules import Right

MAX_GRANTS: Final = 5000
"""Audiences that one connection may hold tokens for; no entity's path is longer than MAX_PATH."""
MAX_PATH: Final = 1024


class Grants:
    """Accesses by their paths, without regard to case. Times are epoch seconds."""

    __slots__ = ("_accesses", "next_end")

    def __init__(self) -> None:
        self._accesses: dict[str, ProvenAccess] = {}
        self.next_end: float | None = None
        """When the first of the tokens ends, at the earliest: one that was replaced may have been it."""

    def put(self, access: ProvenAccess) -> bool:
        """Keep what a token opened, in the place of an earlier one for its path; False if there are too many."""
        key = access.path.lower()
        if key not in self._accesses and len(self._accesses) >= MAX_GRANTS:
            return False
        self._accesses[key] = access
        if self.next_end is None or access.expires_at < self.next_end:
            self.next_end = access.expires_at
        return True

    def allow(self, path: str, right: Right | None, now: float) -> bool:
        """Whether some token that is still good covers the path with this right; None stands for any right."""
        return any(right is None or right in access.rights for access in self._above(path, now))

    def drop_expired(self, now: float) -> bool:
        """Forget what has ended; True if anything had."""
        expired = [path for path, access in self._accesses.items() if access.expires_at <= now]
        for path in expired:
            del self._accesses[path]
        self.next_end = min((access.expires_at for access in self._accesses.values()), default=None)
        return bool(expired)

    def _above(self, path: str, now: float) -> Iterator[ProvenAccess]:
        """What is still open at the path or above it."""
        at = path.lower() if len(path) <= MAX_PATH else ""
        while True:
            access = self._accesses.get(at)
            if access is not None and access.expires_at > now:
                yield access
            if not at:
                return
            at = at.rpartition("/")[0]
