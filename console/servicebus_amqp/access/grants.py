"""The access that one connection has proven: rights and their end.

A token for an entity also opens its sub-queues, subscriptions and management node. The owner judges tokens and chooses
the right for a link.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Final


@dataclass(frozen=True, slots=True)
class ProvenAccess:
    """The access of a good token to `path` and everything below it. `expires_at` is in epoch seconds.

    `rights` are names such as Send. `key` is the name of the rule whose key signed the token; None for a bearer token.
    An access that SASL PLAIN has proven ends with its connection: its `expires_at` is infinite.
    """

    path: str
    rights: frozenset[str]
    expires_at: float
    key: str | None = None
    entities: EntityNames | None = None
    """The entities that the key is for; None: all."""

    def covers(self, resource: str) -> bool:
        """Return whether the key is for the entity of a resource that is at `path` or below it."""
        return self.entities is None or not resource or self.entities.include(resource)


_BELOW: Final = re.compile(
    r"(/subscriptions/[^/]*)?((/\$transfer)?/\$deadletterqueue)?(/\$management)?", re.IGNORECASE | re.ASCII
)
"""What follows the name of an entity in the path of something below it."""


@dataclass(frozen=True, slots=True)
class EntityNames:
    """Names of entities without regard to case; `*` stands for any characters, slashes included."""

    patterns: tuple[str, ...]

    def include(self, resource: str) -> bool:
        """Return whether the resource is one of the entities, or its sub-queue, subscription or management node.

        A path in any other spelling than the plain one is none of them.
        """
        if not (resource.isascii() and resource.isprintable()) or "%" in resource or "//" in resource:
            return False
        return any(self._is_at_or_below(pattern, resource) for pattern in self.patterns)

    @staticmethod
    def _is_at_or_below(pattern: str, resource: str) -> bool:
        name = ".*".join(re.escape(part) for part in pattern.split("*"))
        return re.fullmatch(f"(?:{name}){_BELOW.pattern}", resource, re.IGNORECASE | re.ASCII) is not None


MAX_GRANTS: Final = 5000
"""The audiences of one connection; the path of an entity has at most MAX_PATH characters."""
MAX_PATH: Final = 1024


class Grants:
    """Accesses by path, without regard to case. Times are epoch seconds."""

    __slots__ = ("_accesses", "next_end")

    def __init__(self) -> None:
        self._accesses: dict[str, ProvenAccess] = {}
        self.next_end: float | None = None
        """A lower bound of the first end; the token that ends first may have been replaced."""

    def __len__(self) -> int:
        return len(self._accesses)

    @property
    def key_names(self) -> frozenset[str]:
        """Return the names of all keys that have proven something."""
        return frozenset(access.key for access in self._accesses.values() if access.key is not None)

    def put(self, access: ProvenAccess) -> bool:
        """Store an access in place of the earlier one for its path; return False if there are too many."""
        key = access.path.lower()
        if key not in self._accesses and len(self._accesses) >= MAX_GRANTS:
            return False
        self._accesses[key] = access
        if access.expires_at < (inf if self.next_end is None else self.next_end):
            self.next_end = access.expires_at
        return True

    def allow(self, path: str, right: str | None, now: float) -> bool:
        """Return whether a valid token covers the path with this right; None means any right."""
        return any(right is None or right in access.rights for access in self._above(path, now))

    def keys(self, path: str, right: str | None, now: float) -> frozenset[str]:
        """Return the names of the rules whose keys give this right on the path; None means any right."""
        found = (access for access in self._above(path, now) if right is None or right in access.rights)
        return frozenset(access.key for access in found if access.key is not None)

    def drop_expired(self, now: float) -> bool:
        """Remove expired accesses; return whether there were any."""
        expired = [path for path, access in self._accesses.items() if access.expires_at <= now]
        for path in expired:
            del self._accesses[path]
        ends = [access.expires_at for access in self._accesses.values() if access.expires_at < inf]
        self.next_end = min(ends, default=None)
        return bool(expired)

    def drop_keys(self, names: frozenset[str]) -> bool:
        """Remove the accesses that the keys of these names have proven; return whether there were any."""
        dropped = [path for path, access in self._accesses.items() if access.key in names]
        for path in dropped:
            del self._accesses[path]
        return bool(dropped)

    def _above(self, path: str, now: float) -> Iterator[ProvenAccess]:
        """Yield the valid accesses to the path or above it."""
        at = path.lower() if len(path) <= MAX_PATH else ""
        while True:
            access = self._accesses.get(at)
            if access is not None and access.expires_at > now and access.covers(path):
                yield access
            if not at:
                return
            at = at.rpartition("/")[0]
