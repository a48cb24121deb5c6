"""The cursor of one board: the number to peek from, the pages of a look, and what is still in force.

A namespace may show messages long after their end, so the reader filters them by the namespace's time. A queue that
was deleted and created again numbers from 1: each tenth look also peeks one message from there. Until such a check,
messages that this reader never saw may lie there, so cleaning trusts nothing newer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Final

from paired_servicebus.core.fleet.board.counting_posts import LONGEST_LIFE, Behind, CountingPosts
from paired_servicebus.core.fleet.board.namespace_clock import NamespaceClock
from paired_servicebus.core.fleet.fleet_documents import BOARD_OF, Board, DocumentKind, Posted, kind_of
from paired_servicebus.core.fleet.fleet_events import BoardRead, Clean, ReadBoard
from paired_servicebus.core.fleet.pace import CHECK_EVERY, PRESENCE_WATCHED

PAGE: Final = 250
MAX_MARKS: Final = 256
MAX_PAGES: Final = 20
"""Pages of one look: more messages wait for the next one, so that a flood cannot prolong a look."""
ANSWERED_WITHIN: Final = 60.0
"""Seconds after which a reading without an answer is taken for lost."""
CLOCK_SLACK: Final = 1.0
"""Seconds by which a namespace may date a message before an earlier one."""
CLEAN_MARGIN: Final = 60.0
STUCK_SECONDS: Final = PRESENCE_WATCHED
"""Age from which a post that does not count is behind one that does: else a batch delete would have deleted it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookResult:
    """The new posts of a reading, in order of number, and the next reading of the same look."""

    posts: tuple[Posted, ...] = ()
    skipped: int = 0
    """Messages without a document of this board."""
    more: ReadBoard | None = None
    is_whole: bool = False
    """Whether the look reached the end of the board."""
    was_reset: bool = False


class BoardReader:
    """The cursor of one board. It asks for one reading at a time."""

    def __init__(self, board: Board, clock: NamespaceClock) -> None:
        self._board, self._clock = board, clock
        self._next = 1
        self._marks: deque[tuple[int, float]] = deque(maxlen=MAX_MARKS)
        """Numbers and enqueued times of messages read since the queue was last known to be the same."""
        self._looks = self._pages = 0
        self._asked: ReadBoard | None = None
        self._asked_at = 0.0
        self._is_check = False
        self._last_whole: float | None = None
        """Our clock when the latest look that reached the end was asked for."""
        self._sure: float | None = None
        """Our clock when the latest reading from number 1 was asked for, which showed that the queue is the same."""
        self._counting = CountingPosts(board)
        self._counted = 0
        """The highest number whose message was counted as known or skipped."""
        self._cleaned = Behind()
        """The posts behind one that counts which the latest cleaning was asked to delete."""

    @property
    def next_number(self) -> int:
        return self._next

    def is_reading(self, at: float) -> bool:
        """Return whether a reading is under way."""
        return at < self.reading_until

    @property
    def reading_until(self) -> float:
        """Return the time until which an answer is awaited; minus infinity: no reading is under way."""
        return -inf if self._asked is None else self._asked_at + ANSWERED_WITHIN

    def look(self, at: float) -> ReadBoard:
        """Begin a look."""
        self._pages, self._looks, self._is_check = 0, self._looks + 1, False
        return self._ask(ReadBoard(board=self._board, since=self._next, most=PAGE), at)

    def read(self, event: BoardRead) -> LookResult:
        """Take an answer in; one that was not asked for is ignored."""
        if self._asked is None or event.since != self._asked.since or event.board is not self._board:
            return LookResult()
        asked_at, self._asked = self._asked_at, None
        return self._checked(event, asked_at) if self._is_check else self._paged(event, asked_at)

    def failed(self) -> None:
        """End the look: the next one goes on from the same number."""
        self._asked = None

    def restart(self) -> None:
        """Read the board from its beginning again; an answer that is under way is ignored."""
        self._next, self._asked, self._last_whole, self._sure = 1, None, None, None
        self._marks.clear()
        self._counting.clear()
        self._cleaned = Behind()

    def _ask(self, reading: ReadBoard, at: float) -> ReadBoard:
        self._asked, self._asked_at = reading, at
        return reading

    def _paged(self, event: BoardRead, asked_at: float) -> LookResult:
        fresh = self._fresh(event.posts)
        for post in fresh:
            self._clock.bound(enqueued_at=post.enqueued_at, after=self._last_whole, before=event.at)
            self._counting.add(post)
        if fresh:
            self._next = fresh[-1].number + 1
            self._marks.append((fresh[-1].number, fresh[-1].enqueued_at))
        uncounted = [post for post in fresh if post.number > self._counted]
        self._counted = max(self._counted, self._next - 1)
        self._pages += 1
        is_whole = event.is_end or not fresh
        if is_whole:
            self._last_whole = asked_at
            self._sure = asked_at if self._sure is None else self._sure
        known = tuple(post for post in fresh if self._is_known(post))
        now = self._clock.earliest(event.at)
        posts = tuple(post for post in known if post.ends_at > now)
        return LookResult(
            posts=posts,
            skipped=sum(not self._is_known(post) for post in uncounted),
            is_whole=is_whole,
            more=self._further(event.at, is_whole),
        )

    def _fresh(self, posts: tuple[Posted, ...]) -> list[Posted]:
        by_number = {post.number: post for post in posts if post.number >= self._next}
        return [by_number[number] for number in sorted(by_number)]

    def _further(self, at: float, is_whole: bool) -> ReadBoard | None:
        if not is_whole:
            further = ReadBoard(board=self._board, since=self._next, most=PAGE)
            return self._ask(further, at) if self._pages < MAX_PAGES else None
        if self._looks % CHECK_EVERY == 0 and self._next > 1:
            self._is_check = True
            return self._ask(ReadBoard(board=self._board, since=1, most=1), at)
        return None

    def _checked(self, event: BoardRead, asked_at: float) -> LookResult:
        """Compare the first message with those read: a lower number with a newer time is another queue's.

        The newest of them may lie on that other queue already, so all since the last check are compared. An empty queue
        may be another one too: reading it from 1 misses nothing.
        """
        self._is_check = False
        first = min(event.posts, key=lambda post: post.number, default=None)
        if first is not None and not any(
            first.number <= number and enqueued_at < first.enqueued_at - CLOCK_SLACK
            for number, enqueued_at in self._marks
        ):
            self._sure = asked_at
            while len(self._marks) > 1:
                self._marks.popleft()
            return LookResult()
        self.restart()
        self._pages = self._counted = 0
        further = self._ask(ReadBoard(board=self._board, since=1, most=PAGE), event.at)
        return LookResult(more=further, was_reset=True)

    def _is_known(self, post: Posted) -> bool:
        if post.document is None:  # an order of a newer version is answered
            return post.is_newer and post.kind == DocumentKind.ORDER and self._board is Board.ORDERS
        return BOARD_OF[kind_of(post.document)] is self._board

    def cleaning(self, at: float) -> Clean:
        """Return what may be deleted, as far as this reader knows.

        Posts behind one that counts are named again until `cleaned` reports them, at most twice: others may clean too.
        """
        now = self._clock.earliest(at)
        if self._last_whole is None or self._sure is None:
            # without a dated message our clock must do: the longest life has hours to spare
            return Clean(board=self._board, before=(now if now > -inf else at) - LONGEST_LIFE, now=now)
        known = self._clock.earliest(min(self._last_whole, self._sure)) - CLEAN_MARGIN
        behind = self._counting.behind(now, known - STUCK_SECONDS)
        if behind.count:
            self._counting.forget(self._cleaned.last, now)
            self._cleaned = behind
        return Clean(
            board=self._board,
            before=max(min(self._counting.oldest(now), known), (now if now > -inf else at) - LONGEST_LIFE),
            now=now,
            behind=behind.count,
            last=behind.last,
        )

    def cleaned(self, behind: int | None, at: float) -> None:
        """Take in how many posts behind one that counts the latest cleaning deleted; None: it failed."""
        if behind is not None and behind >= self._cleaned.count:
            self._counting.forget(self._cleaned.last, self._clock.earliest(at))
        if behind is None:
            self._cleaned = Behind()
