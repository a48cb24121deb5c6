"""The posts of one board that count, by the posts read so far (FLEET.md sections 3 and 7).

    document           counts until its end, or until
    presence           a newer presence or a goodbye of its boot; PRESENCE_SECONDS at most
    report             a newer report or a goodbye of its boot; PRESENCE_SECONDS at most
    goodbye            a newer goodbye of its boot; PRESENCE_SECONDS at most
    watch              a newer watch of the same author; WATCH_SECONDS at most
    answer, order      -
    unknown or newer   -

All other posts may be deleted. Newer means later by the namespace's time and number, so posts may come in any order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Final

from paired_servicebus.core.fleet.board.document_bounds import MAX_PATH, bound_text
from paired_servicebus.core.fleet.fleet_documents import (
    BOARD_OF,
    PRESENCE_SECONDS,
    WATCH_SECONDS,
    Author,
    Board,
    Goodbye,
    Posted,
    Presence,
    Report,
    Watch,
    kind_of,
)

MIN_BEHIND: Final = 100
"""Posts that do not count, behind one that does, from which they are received: each receive is billed."""
MAX_RECEIVED: Final = 2_000
"""Messages that one cleaning receives."""
LONGEST_LIFE: Final = 73 * 3600.0
"""The longest time to live of a document and a margin: all older messages are over, read or not."""
_MAX_COUNTING: Final = 10_000
_MAX_READ: Final = 20_000

Stamp = tuple[float, int]
Claim = tuple[str | int, ...]
"""What a post states: of two posts with one claim the newer counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """The posts that do not count and lie behind one that does. last: the number of the last of them."""

    count: int = 0
    last: int = 0


class CountingPosts:
    """The posts of one board that count, and the order of all."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._held: dict[Claim, tuple[Stamp, float]] = {}
        """The newest stamp of each claim, and the end of that post."""
        self._rest: tuple[float, float] | None = None
        """The oldest enqueued time and the latest end of posts above _MAX_COUNTING."""
        self._read: deque[tuple[Stamp, Claim | None]] = deque(maxlen=_MAX_READ)

    def add(self, post: Posted) -> None:
        """Take a post in."""
        stamp, claim = stamp_of(post), claim_of(post, self._board)
        self._read.append((stamp, claim))
        if claim is None or self._is_superseded(claim, stamp):
            return
        if claim not in self._held and len(self._held) >= _MAX_COUNTING:
            oldest, latest = (inf, -inf) if self._rest is None else self._rest
            self._rest = min(oldest, post.enqueued_at), max(latest, _end(post))
            return
        self._held[claim] = (stamp, _end(post))
        if isinstance(post.document, Goodbye):
            for kind in ("presence", "report"):
                older = self._held.get((kind, *claim[1:]))
                if older is not None and older[0] < stamp:
                    del self._held[(kind, *claim[1:])]

    def _is_superseded(self, claim: Claim, stamp: Stamp) -> bool:
        rivals = [claim, ("goodbye", *claim[1:])] if claim[0] in ("presence", "report") else [claim]
        return any(self._held[rival][0] > stamp for rival in rivals if rival in self._held)

    def counts(self, post: Posted, now: float) -> bool:
        """Return whether a post that was added counts. now: a time that the namespace's clock has reached."""
        return self._counts(stamp_of(post), claim_of(post, self._board), now)

    def _counts(self, stamp: Stamp, claim: Claim | None, now: float) -> bool:
        if claim is None:
            return False
        held = self._held.get(claim)
        if held is not None and held[0] == stamp:
            return held[1] > now
        return self._rest is not None and self._rest[1] > now and not self._is_superseded(claim, stamp)

    def oldest(self, now: float) -> float:
        """Return the enqueued time of the oldest post that counts; infinity: none does."""
        if self._rest is not None and self._rest[1] <= now:
            self._rest = None
        self._held = {claim: held for claim, held in self._held.items() if held[1] > now}
        oldest = min((stamp[0] for stamp, _ in self._held.values()), default=inf)
        return oldest if self._rest is None else min(oldest, self._rest[0])

    def behind(self, now: float, until: float) -> Behind:
        """Return the posts that were enqueued before `until`, do not count, and lie behind one that does.

        None, if they are too few, or fewer than the ones that count among them: receiving costs more than it saves.
        """
        oldest = self.oldest(now)
        while self._read and self._read[0][0][0] < oldest:
            self._read.popleft()
        best = Behind()
        count = 0
        for place, (stamp, claim) in enumerate(self._read, start=1):
            if stamp[0] >= until or place > MAX_RECEIVED:
                break
            if not self._counts(stamp, claim, now):
                count += 1
                if count >= MIN_BEHIND and 2 * count >= place:
                    best = Behind(count=count, last=stamp[1])
        return best

    def forget(self, last: int, now: float) -> None:
        """Forget the posts up to a number that do not count: they are being deleted."""
        kept = (one for one in self._read if one[0][1] > last or self._counts(*one, now))
        self._read = deque(kept, maxlen=_MAX_READ)

    def clear(self) -> None:
        """Forget all: the board was deleted."""
        self._held.clear()
        self._read.clear()
        self._rest = None


def stamp_of(post: Posted) -> Stamp:
    """Return the place of a post in time."""
    return post.enqueued_at, post.number


def claim_of(post: Posted, board: Board) -> Claim | None:
    """Return what a post states; None: its document is of another board, so it never counts."""
    document = post.document
    if document is None:
        return ("unknown", post.number)
    if BOARD_OF[kind_of(document)] is not board:
        return None
    match document:
        case Presence() | Goodbye():
            return (kind_of(document).value, *_boot(document.author))
        case Report():
            return (kind_of(document).value, *_boot(document.presence.author))
        case Watch():
            return ("watch", bound_text(document.by))
        case _:
            return (kind_of(document).value, post.number)


def _boot(author: Author) -> tuple[str, ...]:
    """Return the name of a boot, as Roster compares them."""
    spaces = (bound_text(author.primary, MAX_PATH), bound_text(author.secondary, MAX_PATH))
    return (*(space.casefold() for space in spaces), bound_text(author.engine).casefold(), bound_text(author.boot))


def _end(post: Posted) -> float:
    match post.document:
        case Presence() | Goodbye() | Report():
            return min(post.ends_at, post.enqueued_at + PRESENCE_SECONDS)
        case Watch():
            return min(post.ends_at, post.enqueued_at + WATCH_SECONDS)
        case _:
            return min(post.ends_at, post.enqueued_at + LONGEST_LIFE)
