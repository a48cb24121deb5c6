"""The cursor of one board: the number to peek from, the pages of a look, and what is still in force.

A look reads on to the end of the board, at a bounded share of the namespace's credits. While the end is not reached it
finds out how many messages lie ahead, for the alarm and for the flush of a flooded board.

A namespace may show messages long after their end, so the reader filters them by the namespace's time. A queue that
was deleted and created again numbers from 1: each tenth look also peeks one message from there. Until such a check,
messages that this reader never saw may lie there, so cleaning trusts nothing newer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import lru_cache
from math import inf, isfinite
from typing import Any, Final, Literal, assert_never

from paired_servicebus.core.fleet.fleet_documents import (
    MAX_CARRIED,
    MAX_ROWS,
    PRESENCE_SECONDS,
    WATCH_SECONDS,
    Author,
    Board,
    Document,
    DocumentKind,
    Goodbye,
    Order,
    Posted,
    Presence,
    Report,
    Stamp,
    Watch,
)
from paired_servicebus.core.fleet.fleet_events import BoardRead, Clean, ReadBoard
from paired_servicebus.core.fleet.pace import CHECK_EVERY
from paired_servicebus.core.model.entity_state import WELL
from paired_servicebus.core.model.fleet_view import FleetFigures
from paired_servicebus.core.model.gateway_view import without_clients
from paired_servicebus.core.model.pairing_fold import MAX_NOT_WELL
from paired_servicebus.core.model.snapshot import (
    MAX_DESTINATIONS,
    DeadLettersView,
    EntityView,
    QueueView,
    Snapshot,
    UnusedView,
)
from paired_servicebus.core.text.untrusted_text import one_line

# Documents of unsigned boards, bounded: foreign text made harmless, lengths and numbers limited.
#
# Anyone with Send can post a report, so its values must neither grow this engine's memory nor reach a terminal as
# they are. The codec has checked the types.

MAX_NAME: Final = 80
MAX_PATH: Final = 260
MAX_QUEUES: Final = 100
MAX_DIFFERENCES: Final = 10
MAX_ENTITIES: Final = 1000
"""Entities kept of one report."""
MAX_ITEMS: Final = 20
"""Items of any other list."""
MAX_COUNT: Final = 10**15
MAX_REASON: Final = 160


_MOST_CHARS: Final = {
    "path": MAX_PATH,
    "primary": MAX_PATH,
    "secondary": MAX_PATH,
    "text": MAX_REASON,
    "differs": MAX_REASON,
    "reason": MAX_REASON,
}
"""Of the texts in a field, by its name; MAX_NAME of others."""
_MOST_ITEMS: Final = {
    "queues": MAX_QUEUES,
    "not_well": MAX_NOT_WELL,
    "rows": MAX_ROWS,
    "differs": MAX_DIFFERENCES,
    "entities": MAX_ENTITIES,
    "destinations": MAX_DESTINATIONS,
}
_LEFT_OUT: Final[dict[type, dict[str, object]]] = {
    Presence: {"id": "", "carried": ()},
    EntityView: {
        "why": "",
        "last_ping_text": "",
        "pings_sent": 0,
        "pings_accepted": 0,
        "too_large": 0,
        "failbacks": 0,
        "seconds_failed_over": 0.0,
        "recent_pings": (),
        "sends": (),
        "refusals": (),
        "p99": None,
    },
}
"""Fields that no other engine shows, with their value there."""


def bounded(value: Any, name: str = "") -> Any:
    """Return a document, or a part of it, with harmless texts, and limited lengths and numbers.

    name: the field that has the value.
    """
    kind: Any = type(value)
    bound = _BOUNDS.get(kind)
    if bound is not None:
        return bound(value, name)
    if value is None or kind is bool or isinstance(value, Enum):
        return value
    return kind(**{one: bounded(getattr(value, one), one) for one in _copied(kind)}, **_LEFT_OUT.get(kind, {}))


@lru_cache(maxsize=64)
def _copied(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name not in _LEFT_OUT.get(kind, {}))


def bound_snapshot(snapshot: Snapshot) -> Snapshot:
    """Return what a report carries of a snapshot: its entities, queues and counts, without what only itself shows.

    With more than MAX_ENTITIES entities those that are not well and those with sends are kept.
    """
    entities = snapshot.entities
    if len(entities) > MAX_ENTITIES:
        entities = tuple(sorted(entities, key=lambda one: (one.state in WELL, -one.sends_per_second)))
    return replace(
        snapshot,
        entities=bounded(entities, "entities"),
        queues=tuple(_bound_queue(queue) for queue in snapshot.queues[:MAX_QUEUES]),
        syphon=replace(snapshot.syphon, history=(), text=bound_text(snapshot.syphon.text, MAX_REASON)),
        fleet=None,
        gateway=None if snapshot.gateway is None else without_clients(snapshot.gateway),
        unused=UnusedView(),
        troubles=(),
        readiness=None,
        policy=None,
        drain=None,
        times="",
    )


def _bound_queue(queue: QueueView) -> QueueView:
    return replace(
        queue,
        pulled_reason=bound_text(queue.pulled_reason, MAX_REASON),
        pump_text="",
        differences=(),
        dead_reasons=(),
        dead_letters=DeadLettersView(),
    )


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
        dead_lettered=_sum_dead_letters(snapshot),
    )


def _sum_dead_letters(snapshot: Snapshot) -> int | None:
    known = [one.dead_lettered for one in snapshot.queues[:MAX_QUEUES] if one.dead_lettered is not None]
    return sum(bound_count(one) for one in known) if known else None


@lru_cache(maxsize=16_384)
def bound_text(text: str, most: int = MAX_NAME) -> str:
    """Return one harmless line of at most `most` characters: one string for all equal ones, as engines share paths."""
    return one_line(text[: 2 * most], most=most)


def bound_number(value: float) -> float:
    """Return a finite number from 0 on."""
    return min(max(float(value), 0.0), float(MAX_COUNT)) if abs(value) < MAX_COUNT else 0.0


def bound_count(value: int) -> int:
    """Return a count from 0 on."""
    return min(max(value, 0), MAX_COUNT)


_BOUNDS: Final[dict[type, Callable[[Any, str], Any]]] = {
    str: lambda value, name: bound_text(value, _MOST_CHARS.get(name, MAX_NAME)),
    int: lambda value, _: bound_count(value),
    float: lambda value, name: -bound_number(-value) if name == "clock_offset" and value < 0 else bound_number(value),
    tuple: lambda value, name: tuple(bounded(one, name) for one in value[: _MOST_ITEMS.get(name, MAX_ITEMS)]),
}
"""The bound of each kind of value. One number may be negative."""


def carried_by(document: Document | None) -> tuple[Order, ...]:
    """Return the orders that a presence or a report carries, at most MAX_CARRIED."""
    match document:
        case Presence():
            return document.carried[:MAX_CARRIED]
        case Report():
            return document.presence.carried[:MAX_CARRIED]
        case _:
            return ()


# The posts of one board that count, by the posts read so far (FLEET.md sections 3 and 7).
#
#     document           counts until its end, or until
#     presence           a newer presence or a goodbye of its boot; PRESENCE_SECONDS at most
#     report             a newer report or a goodbye of its boot; PRESENCE_SECONDS at most
#     goodbye            a newer goodbye of its boot; PRESENCE_SECONDS at most
#     watch              a newer watch of the same author; WATCH_SECONDS at most
#     order              a copy of it; while the register has it
#     unknown or newer   -
#
# All other posts may be deleted. Newer means later by the namespace's time and number, so posts may come in any order.

MIN_DEAD: Final = 1_000
"""Messages that do not count, behind a post that does, from which they are received: each receive is billed."""
LONGEST_LIFE: Final = 73 * 3600.0
"""The longest time to live of a document and a margin: all older messages are over, read or not."""
_MAX_COUNTING: Final = 10_000
"""Claims of one board: posts above it do not count, so nobody else's claims hinder a cleaning."""

Claim = tuple[str | int, ...]
"""What a post states: of two posts with one claim the newer counts."""


class CountingPosts:
    """The posts of one board that count."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._held: dict[Claim, tuple[Stamp, float]] = {}
        """The newest stamp of each claim, and the end of that post."""
        self._added = 0
        """Messages read, without those that a cleaning deleted."""

    def add(self, post: Posted) -> None:
        """Take a post in."""
        self._added += 1
        stamp, claim = post.stamp, claim_of(post, self._board)
        if claim is None:
            return
        if self._is_superseded(claim, stamp) or (claim not in self._held and len(self._held) >= _MAX_COUNTING):
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

    def number_of(self, order_id: str) -> int | None:
        """Return the number of the newest message of an order; None: none was read."""
        held = self._held.get(("order", order_id))
        return None if held is None else held[0][1]

    def vanished(self, order_id: str) -> None:
        """Note that an order's message is gone."""
        self._held.pop(("order", order_id), None)

    def oldest(self, now: float, wanted: frozenset[str]) -> float:
        """Return the enqueued time of the oldest post that counts; infinity: none does.

        now: a time that the namespace's clock has reached. wanted: the ids of the orders in the register.
        """
        self._held = {
            claim: held
            for claim, held in self._held.items()
            if held[1] > now and (claim[0] != "order" or claim[1] in wanted)
        }
        return min((stamp[0] for stamp, _ in self._held.values()), default=inf)

    @property
    def dead(self) -> int:
        """Return how many of the messages that were read do not count: superseded ones, and what is no document."""
        return self._added - len(self._held)

    def cleaned(self) -> None:
        """Note that these were deleted, or as many of them as one cleaning deletes."""
        self._added = len(self._held)

    def clear(self) -> None:
        """Forget all: the board was deleted."""
        self._held.clear()
        self._added = 0


def claim_of(post: Posted, board: Board) -> Claim | None:
    """Return what a post states; None: it is no document of this board, so it never counts."""
    document = post.document
    if document is None:
        return ("newer", post.number) if post.is_newer else None
    if document.kind.board is not board:
        return None
    match document:
        case Presence() | Goodbye() | Report():
            return (document.kind.value, *_boot(document.author))
        case Watch():
            return ("watch", bound_text(document.by))
        case Order():
            return ("order", document.id)
        case _:
            assert_never(document)


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
    """The offset of our clock: seconds that it is ahead of the namespace's.

    ahead: of the engine before, until there is evidence.
    """

    def __init__(self, ahead: float = 0.0) -> None:
        self._low, self._high = -inf, inf
        self._ahead = ahead

    def bound(self, *, enqueued_at: float, after: float | None, before: float) -> None:
        """Learn that the namespace enqueued a message between two times of our clock; after None: any time before."""
        if not isfinite(enqueued_at):
            return
        low = -inf if after is None else after - enqueued_at
        high = before - enqueued_at
        if low > self._high or high < self._low:  # a clock was set, or drifted: the newest evidence counts
            self._ahead = self._least  # it may be one of hours: within it the estimate stays as near as it can
            self._low, self._high = low, high
            return
        self._low, self._high = max(low, self._low), min(high, self._high)

    @property
    def offset(self) -> float | None:
        """Return the smallest offset that fits the evidence; None: there is none from both sides."""
        return self._least if isfinite(self._low) and isfinite(self._high) else None

    @property
    def _least(self) -> float:
        return max(self._low, min(self._high, self._ahead))

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
        """Return the failures as a sentence, each with its task and board; empty: there are none."""
        return "; ".join(dict.fromkeys(reason for _, (_, reason, _) in sorted(self._failed.items())))

    @property
    def since(self) -> float | None:
        """Return the start of the oldest failure."""
        return min((since for since, _, _ in self._failed.values()), default=None)


PAGE: Final = 250
MAX_MARKS: Final = 256
ANSWERED_WITHIN: Final = 60.0
"""Seconds after which a reading without an answer is taken for lost."""
CLOCK_SLACK: Final = 1.0
"""Seconds by which a namespace may date a message before an earlier one."""
CLEAN_MARGIN: Final = 60.0
CREDITS_A_SECOND: Final = {Board.ORDERS: 10.0, Board.REPORTS: 20.0}
"""Messages a second that an engine reads of a board while its end is not reached: each costs a credit, and a Standard
namespace has 1,000 a second for all engines and for the messages that are to be parked."""
FIRST_CREDITS: Final = 2_500.0
"""Messages that an engine may read at once when it starts: what stands is to be known before its first send."""
MOST_CREDITS: Final = {Board.ORDERS: float(PAGE), Board.REPORTS: FIRST_CREDITS}
FLOODED_FROM: Final = {Board.ORDERS: 1_000, Board.REPORTS: 5_000}
"""Unread messages from which a board is flushed: reading them would take minutes. A large fleet has thousands of
reports, and few orders."""
PROBE_SECONDS: Final = 60.0
"""Seconds between two searches for the end of a board that is not read to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookResult:
    """The new posts of a reading, in order of number, and the next reading of the same look.

    One that is over is among them if it carries orders: these count, whoever posted them and when.
    """

    posts: tuple[Posted, ...] = ()
    skipped: int = 0
    """Messages without a document of this board."""
    more: ReadBoard | None = None
    is_page: bool = False
    """Whether it is part of the look, not a check or a search."""
    is_whole: bool = False
    """Whether the look reached the end of the board."""
    was_reset: bool = False
    vanished: str = ""
    """The id of an order whose message is gone."""


class BoardReader:
    """The cursor of one board. It asks for one reading at a time.

    guarded: the ids of the orders whose messages each look proves to be there, one after the other.
    """

    def __init__(self, board: Board, clock: NamespaceClock) -> None:
        self._board, self._clock = board, clock
        self._next = 1
        self._marks: deque[tuple[int, float]] = deque(maxlen=MAX_MARKS)
        """Numbers and enqueued times of messages read since the queue was last known to be the same."""
        self._looks = 0
        self._asked: ReadBoard | None = None
        self._asked_at = 0.0
        self._search: Literal["", "first", "order", "end"] = ""
        """What the reading under way is, if it is not a page."""
        self._last_whole: float | None = None
        """Our clock when the latest look that reached the end was asked for."""
        self._sure: float | None = None
        """Our clock when the latest reading from number 1 was asked for, which showed that the queue is the same."""
        self._counting = CountingPosts(board)
        self._counted = 0
        """The highest number whose message was counted as known or skipped."""
        self._credits, self._credits_at = FIRST_CREDITS, -inf
        self._top = 0
        """The highest number that a search found."""
        self._searched_at = -inf
        self._is_flooded = False
        self.resumes_at = inf
        """When a look that has not reached the end goes on."""
        self.unread_since: float | None = None
        """Our clock when the end of the board was first not reached; None: it is."""
        self.guarded: frozenset[str] = frozenset()
        self._proved = ""

    @property
    def behind(self) -> int:
        """Return how many messages are known to lie unread; 0: the end is reached."""
        return 0 if self.unread_since is None else max(self._top - self._next + 1, 1)

    @property
    def last_whole(self) -> float | None:
        """Return our clock when the latest look that reached the end was asked for."""
        return self._last_whole

    def is_reading(self, at: float) -> bool:
        """Return whether a reading is under way."""
        return at < self.reading_until

    @property
    def reading_until(self) -> float:
        """Return the time until which an answer is awaited; minus infinity: no reading is under way."""
        return -inf if self._asked is None else self._asked_at + ANSWERED_WITHIN

    def look(self, at: float) -> ReadBoard:
        """Begin a look, or go on with one that has not reached the end."""
        self._looks += 1
        self.resumes_at, self._search = inf, ""
        return self._ask(ReadBoard(board=self._board, since=self._next, most=PAGE), at)

    def read(self, event: BoardRead) -> LookResult:
        """Take an answer in; one that was not asked for is ignored."""
        if self._asked is None or event.since != self._asked.since or event.board is not self._board:
            return LookResult()
        asked_at, self._asked = self._asked_at, None
        self._spend(len(event.posts), event.at)
        match self._search:
            case "first":
                return self._checked(event, asked_at)
            case "order":
                return self._proven(event)
            case "end":
                return self._searched(event)
            case _:
                return self._paged(event, asked_at)

    def failed(self) -> None:
        """End the look: the next one goes on from the same number."""
        self._asked = None

    def restart(self) -> None:
        """Read the board from its beginning again; an answer that is under way is ignored."""
        self._next, self._asked, self._last_whole, self._sure, self._top = 1, None, None, None, 0
        self._marks.clear()
        self._counting.clear()

    def _ask(self, reading: ReadBoard, at: float) -> ReadBoard:
        self._asked, self._asked_at = reading, at
        return reading

    def _spend(self, messages: int, at: float) -> None:
        gained = CREDITS_A_SECOND[self._board] * max(0.0, at - self._credits_at) if self._credits_at > -inf else 0.0
        most = max(MOST_CREDITS[self._board], min(self._credits, FIRST_CREDITS))
        self._credits, self._credits_at = min(self._credits + gained, most) - max(1, messages), at

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
        is_whole = event.is_end or not fresh
        if is_whole:
            self._last_whole, self.unread_since, self._is_flooded = asked_at, None, False
            self._sure = asked_at if self._sure is None else self._sure
        now = self._clock.earliest(event.at)
        return LookResult(
            posts=tuple(post for post in fresh if self._is_known(post) and (post.ends_at > now or post.carried)),
            skipped=sum(not self._is_known(post) for post in uncounted),
            is_page=True,
            is_whole=is_whole,
            more=self._further(event.at, is_whole),
        )

    def _fresh(self, posts: tuple[Posted, ...]) -> list[Posted]:
        by_number = {post.number: post for post in posts if post.number >= self._next}
        return [by_number[number] for number in sorted(by_number)]

    def _further(self, at: float, is_whole: bool) -> ReadBoard | None:
        if not is_whole:
            if self._credits >= PAGE:
                return self._ask(ReadBoard(board=self._board, since=self._next, most=PAGE), at)
            self.unread_since = at if self.unread_since is None else self.unread_since
            self.resumes_at = at + max((PAGE - self._credits) / CREDITS_A_SECOND[self._board], 1.0)
            if at - self._searched_at < PROBE_SECONDS:
                return None
            self._searched_at = at
            return self._look_for_end(self._next + FLOODED_FROM[self._board], at)
        if self._looks % CHECK_EVERY == 0 and self._next > 1:
            self._search = "first"
            return self._ask(ReadBoard(board=self._board, since=1, most=1), at)
        return self._prove(at)

    def _look_for_end(self, number: int, at: float) -> ReadBoard:
        self._search = "end"
        return self._ask(ReadBoard(board=self._board, since=number, most=1), at)

    def _searched(self, event: BoardRead) -> LookResult:
        """Go twice as far ahead while there are messages."""
        found = max((post.number for post in event.posts), default=0)
        if not found or found <= self._top:
            return LookResult()
        self._top = found
        self._is_flooded |= self.behind >= FLOODED_FROM[self._board]
        return LookResult(more=self._look_for_end(self._next + 2 * (found - self._next), event.at))

    def _prove(self, at: float) -> ReadBoard | None:
        """Ask for the message of the next guarded order."""
        known = [one for one in sorted(self.guarded) if self._counting.number_of(one) is not None]
        if not known:
            return None
        self._proved = next((one for one in known if one > self._proved), known[0])
        self._search = "order"
        return self._ask(ReadBoard(board=self._board, since=self._counting.number_of(self._proved) or 1, most=1), at)

    def _proven(self, event: BoardRead) -> LookResult:
        number = self._counting.number_of(self._proved)
        if any(post.number == number for post in event.posts):
            return LookResult()
        self._counting.vanished(self._proved)
        return LookResult(vanished=self._proved)

    def missing(self, order_id: str) -> bool:
        """Return whether no message of an order was read."""
        return self._counting.number_of(order_id) is None

    def _checked(self, event: BoardRead, asked_at: float) -> LookResult:
        """Compare the first message with those read: a lower number with a newer time is another queue's.

        The newest of them may lie on that other queue already, so all since the last check are compared. An empty queue
        may be another one too: reading it from 1 misses nothing.
        """
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
        self._looks += 1  # no second check in this look: a namespace whose answers differ would be read without a wait
        self._counted, self._search = 0, ""
        further = self._ask(ReadBoard(board=self._board, since=1, most=PAGE), event.at)
        return LookResult(more=further, was_reset=True)

    def _is_known(self, post: Posted) -> bool:
        if post.document is None:  # an order of a newer version is answered
            return post.is_newer and post.kind == DocumentKind.ORDER and self._board is Board.ORDERS
        return post.document.kind.board is self._board

    def cleaning(self, at: float, wanted: frozenset[str] = frozenset()) -> Clean:
        """Return what may be deleted, as far as this reader knows. wanted: the ids of the orders in the register."""
        now = self._clock.earliest(at)
        if self._last_whole is None or self._sure is None or self.unread_since is not None:
            # without a dated message our clock must do: the longest life has hours to spare
            return Clean(board=self._board, before=(now if now > -inf else at) - LONGEST_LIFE, now=now)
        known = self._clock.earliest(min(self._last_whole, self._sure)) - CLEAN_MARGIN
        oldest = min(self._counting.oldest(now, wanted), known)
        return Clean(
            board=self._board,
            before=max(oldest, (now if now > -inf else at) - LONGEST_LIFE),
            now=now,
            dead=self._counting.dead if self._counting.dead >= MIN_DEAD else 0,
        )

    def flushing(self, at: float) -> Clean | None:
        """Return the deletion of all messages older than now, if the board is flooded; nothing is lost with them."""
        if not self._is_flooded:
            return None
        now = self._clock.earliest(at)
        return Clean(board=self._board, before=now, now=now, is_flush=True) if now > -inf else None

    def cleaned(self, *, is_flush: bool) -> None:
        """Take in that a cleaning deleted messages. After a flush the look goes on at once."""
        self._counting.cleaned()
        if is_flush:
            self._is_flooded = False
            self._top, self.resumes_at, self._searched_at = 0, -inf, -inf
            self._credits = max(self._credits, float(PAGE))
