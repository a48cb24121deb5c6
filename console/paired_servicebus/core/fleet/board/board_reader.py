"""The cursor of one board: the number to peek from, the pages of a look, and what is still in force.

A namespace may show messages long after their end, so the reader filters them by the namespace's time. A queue that
was deleted and created again numbers from 1: each tenth look also peeks one message from there. Until such a check,
messages that this reader never saw may lie there, so cleaning trusts nothing newer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import (
    BOARD_OF,
    MAX_NOT_WELL,
    PRESENCE_INTERVAL,
    PRESENCE_SECONDS,
    WATCH_SECONDS,
    Author,
    Board,
    DocumentKind,
    Goodbye,
    Posted,
    Presence,
    Report,
    Watch,
    kind_of,
)
from paired_servicebus.core.fleet.fleet_events import BoardRead, Clean, ReadBoard
from paired_servicebus.core.fleet.pace import CHECK_EVERY, PRESENCE_WATCHED
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetEntityState, FleetFigures
from paired_servicebus.core.model.snapshot import EntityView, Snapshot
from paired_servicebus.core.text.untrusted_text import one_line

# Documents of unsigned boards, bounded: foreign text made harmless, lengths and numbers limited.
#
# Anyone with Send can post a report, so its values must neither grow this engine's memory nor reach a terminal as
# they are. The codec has checked the types.

MAX_NAME: Final = 80
MAX_PATH: Final = 260
MAX_QUEUES: Final = 100
MAX_STANDING: Final = 50
MAX_DIFFERENCES: Final = 10
MAX_ENTITIES: Final = 1000
"""Entities kept of one report."""
MAX_COUNT: Final = 10**15
MAX_REASON: Final = 160

EntityRow = tuple[str, State, float, float, float]
"""Path, state, since, sends and refused messages a second."""


def bound_author(author: Author) -> Author:
    """Return the author with harmless texts of limited length."""
    return Author(
        engine=bound_text(author.engine),
        boot=bound_text(author.boot),
        host=bound_text(author.host),
        pid=bound_count(author.pid),
        program=bound_text(author.program),
        version=bound_text(author.version),
        pairing=bound_text(author.pairing),
        environment=bound_text(author.environment),
        primary=bound_text(author.primary, MAX_PATH),
        secondary=bound_text(author.secondary, MAX_PATH),
    )


def bound_presence(presence: Presence) -> Presence:
    """Return the presence with harmless texts and limited lengths and numbers."""
    offset = presence.clock_offset
    return replace(
        presence,
        id="",
        author=bound_author(presence.author),
        started_at=bound_number(presence.started_at),
        queues=tuple(bound_count(index) for index in presence.queues[:MAX_QUEUES]),
        syphon=bound_text(presence.syphon),
        paused_queues=tuple(bound_count(index) for index in presence.paused_queues[:MAX_QUEUES]),
        states=tuple((state, bound_count(count)) for state, count in presence.states[: len(State)]),
        not_well=tuple(
            FleetEntityState(path=bound_text(one.path, MAX_PATH), state=one.state, since=bound_number(one.since))
            for one in presence.not_well[:MAX_NOT_WELL]
        ),
        signers=bound_text(presence.signers),
        standing=tuple(bound_text(one) for one in presence.standing[:MAX_STANDING]),
        newest_order=bound_count(presence.newest_order),
        clock_offset=offset if offset is not None and isfinite(offset) else None,
        differs=tuple(bound_text(one, MAX_REASON) for one in presence.differs[:MAX_DIFFERENCES]),
        next_within=min(max(bound_number(presence.next_within), 60.0), PRESENCE_INTERVAL),
    )


def bound_entities(report: Report) -> tuple[EntityRow, ...]:
    """Return the rows of a report's entities, at most MAX_ENTITIES."""
    return tuple(_row(entity) for entity in report.snapshot.entities[:MAX_ENTITIES])


def _row(entity: EntityView) -> EntityRow:
    path = bound_text(entity.path, MAX_PATH)
    rates = bound_number(entity.sends_per_second), bound_number(entity.refused_per_second)
    return path, entity.state, bound_number(entity.since), *rates


def sum_figures(snapshot: Snapshot, at: float) -> FleetFigures:
    """Return the sums over a snapshot's entities. at: the time of its report."""
    entities, parked = snapshot.entities[:MAX_ENTITIES], snapshot.parked
    return FleetFigures(
        at=at,
        sends_per_second=sum(bound_number(entity.sends_per_second) for entity in entities),
        accepted=sum(bound_count(entity.accepted) for entity in entities),
        diverted=sum(bound_count(entity.diverted) for entity in entities),
        refused=sum(bound_count(entity.refused) for entity in entities),
        refused_per_second=sum(bound_number(entity.refused_per_second) for entity in entities),
        moved=bound_count(snapshot.syphon.moved),
        parked=None if parked is None else bound_count(parked.messages),
        gateway_clients=None if snapshot.gateway is None else bound_count(snapshot.gateway.count),
    )


def bound_text(text: str, most: int = MAX_NAME) -> str:
    """Return one harmless line of at most `most` characters."""
    return one_line(text[: 2 * most], most=most)


def bound_number(value: float) -> float:
    """Return a finite number from 0 on."""
    return min(max(float(value), 0.0), float(MAX_COUNT)) if abs(value) < MAX_COUNT else 0.0


def bound_count(value: int) -> int:
    """Return a count from 0 on."""
    return min(max(value, 0), MAX_COUNT)


# The posts of one board that count, by the posts read so far (FLEET.md sections 3 and 7).
#
#     document           counts until its end, or until
#     presence           a newer presence or a goodbye of its boot; PRESENCE_SECONDS at most
#     report             a newer report or a goodbye of its boot; PRESENCE_SECONDS at most
#     goodbye            a newer goodbye of its boot; PRESENCE_SECONDS at most
#     watch              a newer watch of the same author; WATCH_SECONDS at most
#     answer, order      -
#     unknown or newer   -
#
# All other posts may be deleted. Newer means later by the namespace's time and number, so posts may come in any order.

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


# An engine's estimate of the namespace's clock, from the times of messages on the boards.
#
# A message that appears between two readings was enqueued between them. So its enqueued time bounds the offset of our
# clock from both sides, without a post of our own, and nobody but the namespace dates messages.

OFF_BY: Final = 60.0
"""Seconds of offset that deserve a remark."""


class NamespaceClock:
    """The offset of our clock: seconds that it is ahead of the namespace's."""

    def __init__(self) -> None:
        self._low, self._high = -inf, inf

    def bound(self, *, enqueued_at: float, after: float | None, before: float) -> None:
        """Learn that the namespace enqueued a message between two times of our clock; after None: any time before."""
        if not isfinite(enqueued_at):
            return
        low = -inf if after is None else after - enqueued_at
        high = before - enqueued_at
        if low > self._high or high < self._low:  # a clock was set, or drifted: the newest evidence counts
            self._low, self._high = low, high
            return
        self._low, self._high = max(low, self._low), min(high, self._high)

    @property
    def offset(self) -> float | None:
        """Return the smallest offset that fits the evidence; None: there is none from both sides."""
        return self._least if isfinite(self._low) and isfinite(self._high) else None

    @property
    def _least(self) -> float:
        return max(self._low, min(self._high, 0.0))

    def namespace_time(self, at: float) -> float:
        """Return the namespace's time at a time of our clock."""
        return at - self._least

    def earliest(self, at: float) -> float:
        """Return a time that the namespace's clock has certainly reached: what ended before it is over."""
        return at - self._high if isfinite(self._high) else -inf


# The boards' present failures: what cannot be read or written, and since when.

_FIRST_WAIT: Final = 10.0
_LONGEST_WAIT: Final = 60.0

READ: Final = "read"
WRITE: Final = "written"


class BoardTroubles:
    """The failures by board and direction, each until the next success."""

    def __init__(self) -> None:
        self._failed: dict[tuple[Board, str], tuple[float, str, int]] = {}

    def failed(self, board: Board, direction: str, reason: str, at: float) -> float:
        """Note a failure; return the seconds to wait before the next attempt."""
        since, _, count = self._failed.get((board, direction), (at, "", 0))
        self._failed[board, direction] = (since, bound_text(reason, MAX_REASON), min(count + 1, 10))
        return min(_FIRST_WAIT * 2.0**count, _LONGEST_WAIT)

    def worked(self, board: Board, direction: str) -> None:
        """Note a success."""
        self._failed.pop((board, direction), None)

    @property
    def text(self) -> str:
        """Return the failures as a sentence; empty: there are none."""
        return "; ".join(
            f"{board} cannot be {direction}: {reason}"
            for (board, direction), (_, reason, _) in sorted(self._failed.items())
        )

    @property
    def since(self) -> float | None:
        """Return the start of the oldest failure."""
        return min((since for since, _, _ in self._failed.values()), default=None)


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
