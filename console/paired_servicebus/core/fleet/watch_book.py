"""The watches in force on the orders board, and the operations that this engine spent on them today."""

from __future__ import annotations

from math import inf
from typing import Final

from paired_servicebus.core.fleet.board.document_bounds import bound_text
from paired_servicebus.core.fleet.fleet_documents import WATCH_SECONDS, Posted, Watch
from paired_servicebus.core.fleet.pace import WatchPace, watch_pace

MAX_WATCHES: Final = 16
_DAY: Final = 86_400.0


class WatchBook:
    """The watches by author; of each author the newest counts."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._watches: dict[str, tuple[float, float, Watch]] = {}
        self._known: tuple[float, float, WatchPace | None] = (inf, -inf, None)
        """The latest pace, and the times from and until which it holds: each step asks several times."""
        self._day = -1
        self._spent = 0

    def read(self, posts: tuple[Posted, ...]) -> None:
        """Take the watches among the posts in. A watch lasts for WATCH_SECONDS at most, whatever its time to live."""
        for post in posts:
            if isinstance(post.document, Watch):
                self._known = (inf, -inf, None)
                ends_at = min(post.ends_at, post.enqueued_at + WATCH_SECONDS)
                by = bound_text(post.document.by)
                entry = (post.enqueued_at, ends_at, post.document)
                if by not in self._watches or self._watches[by][0] <= post.enqueued_at:
                    self._watches[by] = entry
        while len(self._watches) > MAX_WATCHES:
            del self._watches[min(self._watches, key=lambda by: self._watches[by][1])]

    def pace(self, now: float) -> WatchPace | None:
        """Return the pace that the watches in force ask of this engine. now: the namespace's time."""
        since, until, known = self._known
        if not since <= now < until:
            self._watches = {by: entry for by, entry in self._watches.items() if entry[1] > now}
            known = watch_pace((watch for _, _, watch in self._watches.values()), engine=self._engine)
            end = self.ends_at()
            self._known = (now, inf if end is None else end, known)
        return known

    def ends_at(self) -> float | None:
        """Return the end of the watch that ends first; None: there is none."""
        return min((ends_at for _, ends_at, _ in self._watches.values()), default=None)

    def clear(self) -> None:
        """Forget the watches: the board was deleted."""
        self._watches.clear()
        self._known = (inf, -inf, None)

    def spend(self, now: float) -> None:
        """Count an operation."""
        self._spent = self.spent(now) + 1

    def spent(self, now: float) -> int:
        """Return the operations of the day, by the namespace's time."""
        if int(now // _DAY) != self._day:
            self._day, self._spent = int(now // _DAY), 0
        return self._spent
