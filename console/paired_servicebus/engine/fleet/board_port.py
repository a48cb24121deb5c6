"""The port to a pairing's boards: read, write, clean. Another store than Service Bus would implement it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from paired_servicebus.core.fleet.fleet_documents import Board, Document, Posted
from paired_servicebus.core.fleet.fleet_events import Clean


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """The result of a cleaning: messages deleted, and billed operations."""

    deleted: int = 0
    operations: int = 0

    def __add__(self, other: Cleaned) -> Cleaned:
        return Cleaned(
            deleted=self.deleted + other.deleted,
            operations=self.operations + other.operations,
        )


class FleetBoard(Protocol):
    """The boards of one pairing. Each call ends within seconds, and raises only FleetBoardError."""

    async def read(self, board: Board, since: int, most: int) -> tuple[Sequence[Posted], bool]:
        """Read at most `most` posts from the number `since` on, without a change to the board.

        Returns: the posts in order of number, unusable ones included; and whether none follow. Fewer than `most` posts
        may come although more follow: ask again after the last number.
        """

    async def write(self, document: Document, ttl: float) -> None:
        """Post a document with a time to live in seconds. After a timeout the board may have it all the same."""

    async def clean(self, wanted: Clean) -> Cleaned:
        """Delete posts that do not count, a bounded number: the next call continues. A flush takes minutes."""

    async def close(self) -> None:
        """Close the connections. Never raises."""
