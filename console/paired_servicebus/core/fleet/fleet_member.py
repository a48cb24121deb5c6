"""One engine's part in the fleet as a pure state machine: `step(event) -> effects` (FLEET.md sections 2 to 8).

    duty                                     when
    look at the orders                       pace.look_interval
    read the reports                         while this engine watches; hourly while messages are parked and this engine
                                             runs no syphon; when a rule of this engine asks (want_reports); while an
                                             order may be over, by a clock that has no evidence yet
    post a presence                          at the start, hourly (each 10 minutes while a watch is in force), and when
                                             syphon, queues or orders change
    post a report                            pace.report_interval, and when a state changes, while a watch is in force
    post a watch                             each WATCH_AGAIN seconds while this engine watches
    post an order again                      when its message vanishes, while this engine watches or posted it itself
    clean the boards                         while watching each minute, with a syphon hourly
    flush a flooded board                    a moment after its flood is found, different for each engine

An idle engine without these uses reads only the orders, since a reading costs an operation for each message. After
"server busy" every duty rests. No event makes `step` raise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Final, assert_never

from paired_servicebus.core.fleet import fleet_events, pace
from paired_servicebus.core.fleet.board_reader import (
    MAX_DIFFERENCES,
    READ,
    WRITE,
    BoardReader,
    BoardTroubles,
    LookResult,
    NamespaceClock,
    bound_snapshot,
    bound_text,
)
from paired_servicebus.core.fleet.engine_orders import EngineOrders
from paired_servicebus.core.fleet.fleet_documents import (
    PRESENCE_SECONDS,
    WATCH_SECONDS,
    Author,
    Board,
    Document,
    Goodbye,
    Order,
    Posted,
    Presence,
    Report,
    Signer,
    Watch,
)
from paired_servicebus.core.fleet.fleet_events import Clean, FleetEffect, FleetEvent, ReadBoard, Say, Write
from paired_servicebus.core.fleet.order_answers import order_views
from paired_servicebus.core.fleet.order_rules import ORDER_SECONDS
from paired_servicebus.core.fleet.pace import WatchPace, watch_pace
from paired_servicebus.core.fleet.roster import Roster, RosterView
from paired_servicebus.core.model.fleet_view import FleetView, Takes
from paired_servicebus.core.model.pairing_fold import count_states, list_unwell
from paired_servicebus.core.model.snapshot import MOVING_STATUSES, Snapshot, SyphonStatus

# The documents that an engine posts about itself, and the changes that make it post them.

ChangeKey = tuple[object, ...]


class OwnDocuments:
    """The documents of one engine. Their ids are its boot and a running number.

    Args:
        author: their head.
        signers: the hash of the file of signers; empty: this engine looks only.
    """

    def __init__(self, author: Author, orders: EngineOrders, *, signers: str = "") -> None:
        self._author, self._orders, self._signers = author, orders, signers
        self._count = 0

    def next_id(self) -> str:
        """Return a new document id."""
        self._count += 1
        return f"{self._author.boot}-{self._count}"

    def take_signers(self, signers: str) -> bool:
        """Take the hash of the changed file of signers; return whether verdicts by it may differ."""
        before, self._signers = self._signers, signers
        return signers not in ("", before)

    @property
    def has_signers(self) -> bool:
        return bool(self._signers)

    def takes(self, snapshot: Snapshot) -> Takes:
        """Return whether this engine acts on orders."""
        if snapshot.read_only:
            return Takes.READ_ONLY
        return Takes.SIGNED if self._signers else Takes.LOOK_ONLY

    def presence_key(self, snapshot: Snapshot) -> ChangeKey:
        """Return the values whose change makes a new presence; a syphon that begins to wait is no change."""
        status = snapshot.syphon.status
        return (
            "moving" if status in MOVING_STATUSES else status,
            snapshot.syphon.paused_queues,
            tuple(queue.index for queue in snapshot.queues),
            self._orders.rows,
            self._orders.register.carried(),
            self._orders.differences,
            self.takes(snapshot),
            self._signers,
        )

    def report_key(self, snapshot: Snapshot) -> ChangeKey:
        """Return the values whose change makes a report due immediately."""
        states = tuple((entity.path, entity.state) for entity in snapshot.entities)
        return (states, *self.presence_key(snapshot))

    def presence(self, snapshot: Snapshot, clock_offset: float | None) -> Presence:
        """Return a presence of now."""
        return Presence(
            id=self.next_id(),
            author=self._author,
            started_at=snapshot.at if snapshot.started_at is None else snapshot.started_at,
            queues=tuple(queue.index for queue in snapshot.queues),
            syphon=snapshot.syphon.status.value,
            states=count_states(snapshot.entities),
            not_well=list_unwell(snapshot.entities),
            takes=self.takes(snapshot),
            signers=self._signers,
            clock_offset=clock_offset,
            rows=self._orders.rows,
            newest_order=self._orders.register.newest_issue,
            carried=self._orders.register.carried(),
            differs=self._orders.differences[:MAX_DIFFERENCES],
        )

    def report(self, snapshot: Snapshot, clock_offset: float | None, pace: float) -> Report:
        """Return a report of now."""
        presence = self.presence(snapshot, clock_offset)
        return Report(id=self.next_id(), presence=presence, pace=pace, snapshot=bound_snapshot(snapshot))

    def goodbye(self, reason: str) -> Goodbye:
        """Return a goodbye."""
        return Goodbye(id=self.next_id(), author=self._author, reason=reason)


# The times of one engine's next duties in the fleet, and of its latest posts.


@dataclass
class DueTimes:
    """The times of the next duties; infinity: none."""

    look: float = -inf
    reports: float = inf
    report: float = inf
    watch: float = inf
    clean: float = inf
    presence_retry: float = -inf
    flush: float = inf


@dataclass
class LatestPosts:
    """The latest posts and cleanings of this engine."""

    presence_at: float = -inf
    presence_key: ChangeKey = ()
    report_at: float = -inf
    report_key: ChangeKey = ()
    reports_read: float = -inf
    cleaned: dict[Board, float] = field(default_factory=dict)

    def is_cleaning_new(self, wanted: Clean) -> bool:
        """Note a cleaning; return whether it deletes more than the latest one."""
        if wanted.before <= self.cleaned.get(wanted.board, 0.0) + 1.0 and not wanted.dead:
            return False
        self.cleaned[wanted.board] = max(wanted.before, self.cleaned.get(wanted.board, 0.0))
        return True


# The watches in force on the orders board, and the operations that this engine spent on them today.

MAX_WATCHES: Final = 16
_DAY: Final = 86_400.0


class WatchBook:
    """The watches by author; of each author the newest counts."""

    def __init__(self) -> None:
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
            known = watch_pace([watch for _, _, watch in self._watches.values()])
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


REPORT_SECONDS: Final = 120.0
ROSTER_WAIT: Final = 3.0
"""Seconds that the first watch waits for a reading, which gives it the number of engines."""
FLUSH_WAIT: Final = 30.0
"""Seconds after the finding of a flood until the last engine flushes the board: mostly the first one did then."""
POST_AGAIN: Final = 60.0
"""Least seconds between two posts of one order by an engine that guards it."""


class FleetMember:
    """One engine's part in the fleet.

    Args:
        author: the head of this engine's documents.
        signers: the hash of its file of signers; empty: it looks only.
        expect: the number or the names of the engines that pairing.toml expects.
        spread: from 0 up to 1, different for each engine, so that engines do not look together.
        orders: the orders of this engine.
    """

    def __init__(
        self,
        author: Author,
        *,
        signers: str = "",
        expect: int | tuple[str, ...] | None = None,
        spread: float = 0.0,
        orders: EngineOrders,
    ) -> None:
        self._me, self._boot = author.engine, author.boot
        self._expect, self._spread = expect, spread
        self.orders = orders
        self.clock = NamespaceClock(orders.clock_ahead)
        self._readers = {board: BoardReader(board, self.clock) for board in Board}
        names = expect if isinstance(expect, tuple) else ()
        self._roster = Roster(author, expected=names)
        self._watches = WatchBook()
        self._documents = OwnDocuments(author, orders, signers=signers)
        self._troubles = BoardTroubles()
        self._due, self._posted = DueTimes(), LatestPosts()
        self._due.reports = -inf if self._is_new else inf
        self._mine: dict[str, tuple[Order, float]] = {}
        """The orders that were posted here or again, with the time of the latest post, by our clock."""
        self._own: Snapshot | None = None
        self._at = 0.0
        self._looks = self._skipped = 0
        self._quiet_until = -inf
        self._has_ended = False
        self._watched_at: float | None = None
        self._watch_on: tuple[float, float] | None = None
        """Start and end of this engine's uninterrupted watch, by our clock."""
        self._read_at: float | None = None
        self._remarks: tuple[str, ...] = ()
        self._may_post_orders = True
        self._shown: RosterView | None = None

    # -- events -------------------------------------------------------------------------------------------------

    def step(self, event: FleetEvent) -> list[FleetEffect]:
        """Take an event in; return the effects."""
        if self._has_ended:
            return []
        self._at = event.at
        effects = self._on(event)
        self.orders.note_clock(self.clock.offset)
        if not self._has_ended:
            effects += self._duties(event.at)
        return effects

    def _on(self, event: FleetEvent) -> list[FleetEffect]:
        match event:
            case fleet_events.BoardRead():
                return self._on_read(event)
            case fleet_events.ReadFailed():
                return self._on_read_failed(event)
            case fleet_events.Written():
                self._on_written(event.document, event.at)
            case fleet_events.WriteFailed():
                self._on_write_failed(event)
            case fleet_events.OwnState():
                self._on_own_state(event.snapshot, event.at)
            case fleet_events.Watched():
                self._on_watched(event.is_watched, event.at)
            case fleet_events.Ending():
                self._has_ended = True
                return [Write(document=self._documents.goodbye(event.reason), ttl=PRESENCE_SECONDS)]
            case fleet_events.CleaningEnded():
                self._readers[event.wanted.board].cleaned(is_flush=event.wanted.is_flush)
            case fleet_events.Ticked():
                pass
            case _:
                assert_never(event)
        return []

    def _on_read(self, event: fleet_events.BoardRead) -> list[FleetEffect]:
        reader = self._readers[event.board]
        if not reader.is_reading(event.at):
            return []
        self._troubles.worked(event.board, READ)
        found = reader.read(event)
        self._skipped += found.skipped
        effects: list[FleetEffect] = []
        if found.is_page or found.was_reset:
            effects += self._read_orders(found) if event.board is Board.ORDERS else self._read_reports(found, event.at)
        if event.board is Board.ORDERS and (found.is_whole or found.vanished):
            effects += self._post_again(event.at)
        if reader.flushing(event.at) is not None and self._due.flush == inf:
            self._due.flush = event.at + FLUSH_WAIT * self._spread
        return [*effects, found.more] if found.more is not None else effects

    def _read_orders(self, found: LookResult) -> list[FleetEffect]:
        if found.was_reset:
            self.orders.board_unread()
            self._watches.clear()
            return []
        self._watches.read(found.posts)
        self.orders.read_orders(found.posts, is_whole=found.is_whole)
        return []

    def _read_reports(self, found: LookResult, at: float) -> list[FleetEffect]:
        now = self.clock.namespace_time(at)
        reached = self.clock.earliest(at)
        ours = tuple(post for post in found.posts if self._roster.read(post, now, reached=reached))
        self.orders.read_reports(ours, now, is_whole=found.is_whole)
        if not found.is_whole:
            return []
        self._read_at, self._shown = at, None
        before = self._remarks
        self._remarks = (*self._seen().remarks(), *self._unknown_orders())
        return [Say(about="fleet", text=text) for text in self._remarks if text not in before]

    @property
    def _unwatched(self) -> str:
        """Return why the watch of a console makes no engine report: the key only reads the orders."""
        if self._may_post_orders or self._watched_at is None:
            return ""
        return "engines report hourly: this engine's key may not post a watch; an operator's engine may"

    def _unknown_orders(self) -> tuple[str, ...]:
        """Return the remark about engines that have seen a newer order than any whose signed bytes are known here."""
        newest = self.orders.register.newest_issue
        found = [one.engine for one in self._seen().engines if one.newest_order > newest]
        if not found or not self.orders.is_informed:
            return ()
        more = f" and {len(found) - 3} more" if found[3:] else ""
        return (f"a newer order than any on the boards is claimed by {', '.join(found[:3])}{more}: order it again",)

    def _post_again(self, at: float) -> list[FleetEffect]:
        """Post the orders again whose messages vanished, if this engine posted them or watches."""
        register, reader = self.orders.register, self._readers[Board.ORDERS]
        guarded = {one.order.id: one.order for one in register.orders if one.counts}
        if self._watched_at is None:
            guarded = {key: one for key, one in guarded.items() if key in self._mine}
        reader.guarded = frozenset(guarded)
        effects: list[FleetEffect] = []
        if reader.unread_since is not None or not self._may_post_orders:
            return effects
        for order_id, order in guarded.items():
            posted_at = self._mine[order_id][1] if order_id in self._mine else -inf
            was_read = reader.last_whole is not None and reader.last_whole > posted_at
            if reader.missing(order_id) and was_read and at >= posted_at + POST_AGAIN:
                self._mine[order_id] = (order, at)
                effects.append(Write(document=order, ttl=ORDER_SECONDS))
                effects.append(Say(about="fleet", text=f"the order {order_id} was taken from the board: posted again"))
        return effects

    def _on_read_failed(self, event: fleet_events.ReadFailed) -> list[FleetEffect]:
        self._readers[event.board].failed()
        wait = self._failed(event.board, READ, event.reason, event.at, is_busy=event.is_busy)
        if event.board is Board.ORDERS:
            self._due.look = event.at + wait
        elif self._due.reports < inf or self._watched_at is not None or self._is_new:
            self._due.reports = event.at + wait
        return []

    def _on_written(self, document: Document, at: float) -> None:
        self._troubles.worked(document.kind.board, WRITE)
        match document:
            case Presence() | Report():
                self._roster.read_own(document, self.clock.namespace_time(at))
                self._shown = None
            case Watch() if self._watched_at is not None:
                self._may_post_orders = True
                is_on = self._watch_on is not None and at < self._watch_on[1]
                start = self._watch_on[0] if is_on and self._watch_on is not None else at
                self._watch_on = (start, at + WATCH_SECONDS)
                self._due.look = at  # this engine looks fast from now on, too
            case _:
                pass

    def _on_write_failed(self, event: fleet_events.WriteFailed) -> None:
        board = event.document.kind.board
        if event.is_refused and board is Board.ORDERS:  # an application's key only reads the orders: that is no trouble
            self._may_post_orders, self._due.watch = False, event.at + pace.REFUSED_SILENCE
            return
        retry = event.at + self._failed(board, WRITE, event.reason, event.at, is_busy=event.is_busy)
        match event.document:
            case Presence():
                self._posted.presence_at, self._due.presence_retry = -inf, retry
            case Watch() if self._watched_at is not None:
                self._due.watch = retry
            case _:
                pass  # the next report follows anyway

    def _failed(self, board: Board, direction: str, reason: str, at: float, *, is_busy: bool) -> float:
        if is_busy:
            self._quiet_until = at + pace.BUSY_SILENCE
        return self._troubles.failed(board, direction, reason, at)

    def _on_own_state(self, snapshot: Snapshot, at: float) -> None:
        self._own = snapshot
        if self._needs_roster and self._due.reports == inf:
            self._due.reports = max(at, self._posted.reports_read + pace.READ_UNWATCHED)
        if self._due.report < inf and self._documents.report_key(snapshot) != self._posted.report_key:
            floor = pace.change_floor(self._report_pace or pace.REPORT_LEAST)
            self._due.report = min(self._due.report, max(at, self._posted.report_at + floor))

    @property
    def _is_new(self) -> bool:
        """Return whether this engine takes orders, and has to read first what the others have seen."""
        return self._documents.has_signers and self.orders.needs_reports

    @property
    def _needs_roster(self) -> bool:
        """Return whether messages are parked that only another engine's syphon moves."""
        own = self._own
        if own is None or own.syphon.status is not SyphonStatus.OFF:
            return False
        return own.parked is not None and own.parked.messages > 0

    def _on_watched(self, is_watched: bool, at: float) -> None:
        if is_watched == (self._watched_at is not None):
            return
        self._watched_at, self._watch_on, self._shown = (at if is_watched else None), None, None
        self._due.watch = self._due.reports = at if is_watched else inf
        self._due.clean = at + pace.CLEAN_WATCHED if is_watched else inf

    # What these three note takes effect with the next event.

    def want_reports(self, at: float) -> None:
        """Note that a rule of this engine needs to know the other engines now."""
        self._due.reports = min(self._due.reports, max(at, self._posted.reports_read + pace.READ_ASKED))

    def note_posted(self, order: Order, signer: Signer | None, at: float) -> None:
        """Note that the namespace accepted an order of a console of this engine.

        signer: whose key verified it here: then it is seen, whether or not a reading shows it.
        """
        self._mine[order.id] = (order, at)
        self._due.look = at
        if signer is not None:
            self.orders.see(order, signer, self.clock.earliest(at))

    def note_signers(self, signers: str, verdicts: dict[str, bool], at: float) -> None:
        """Note that the file of operators changed.

        Args:
            signers: its hash; empty: it is unusable, so this engine looks only.
            verdicts: whether it verifies each seen order, by id; those without an entry keep their verdict.
        """
        if self._documents.take_signers(signers):
            self._readers[Board.ORDERS].restart()
            self.orders.board_unread()
            self.orders.judge_again(verdicts)
            self._due.look = at
            self._due.reports = at if self._is_new else self._due.reports

    # -- duties -------------------------------------------------------------------------------------------------

    @property
    def _pace(self) -> pace.WatchPace | None:
        return self._watches.pace(self.clock.namespace_time(self._at))

    @property
    def _spent(self) -> int:
        return self._watches.spent(self.clock.namespace_time(self._at))

    @property
    def look_seconds(self) -> float:
        """Return the seconds between two looks now."""
        return pace.look_interval(well=pace.is_well(self._own), watch=self._pace, spent=self._spent)

    @property
    def _report_pace(self) -> float | None:
        return pace.report_interval(watch=self._pace, spent=self._spent)

    @property
    def _presence_interval(self) -> float:
        return pace.presence_interval(watch=self._pace, spent=self._spent)

    def _duties(self, at: float) -> list[FleetEffect]:
        now = self.clock.namespace_time(at)
        effects = self.orders.step(now, reached=self.clock.earliest(at))
        if self.orders.awaits_evidence:  # a presence that appears between two readings dates this clock
            self.want_reports(at)
        self._due.look = min(self._due.look, at + self.look_seconds)
        if at < self._quiet_until:
            return effects
        effects += self._look(at)
        if self._own is not None:
            effects += self._post_presence(self._own, at)
            effects += self._post_report(self._own, at)
        effects += self._post_watch(at)
        effects += self._clean(at)
        effects += self._flush(at)
        return effects

    def _look(self, at: float) -> list[FleetEffect]:
        effects: list[FleetEffect] = []
        for board, reader in self._readers.items():
            if reader.resumes_at <= at and not reader.is_reading(at):
                effects.append(self._read(board, at))
        if self._due.look <= at and not self._readers[Board.ORDERS].is_reading(at):
            wait = self.look_seconds
            self._due.look = at + (pace.first_wait(wait, self._spread) if self._looks == 0 else wait)
            self._looks += 1
            effects.append(self._read(Board.ORDERS, at))
        if self._due.reports <= at and not self._readers[Board.REPORTS].is_reading(at):
            is_often = self._watched_at is not None or self._is_new
            self._due.reports = at + pace.READ_REPORTS if is_often else inf
            if self._needs_roster:
                self._due.reports = min(self._due.reports, at + pace.READ_UNWATCHED)
            self._posted.reports_read = at
            effects.append(self._read(Board.REPORTS, at))
        return effects

    def _read(self, board: Board, at: float) -> ReadBoard:
        if board is Board.ORDERS and self._pace is not None:
            self._watches.spend(self.clock.namespace_time(at))
        return self._readers[board].look(at)

    def _post_presence(self, own: Snapshot, at: float) -> list[FleetEffect]:
        if at < self._presence_due(own):
            return []
        self._posted.presence_at, self._posted.presence_key = at, self._documents.presence_key(own)
        return [Write(document=self._documents.presence(own, self.clock.offset), ttl=PRESENCE_SECONDS)]

    def _post_report(self, own: Snapshot, at: float) -> list[FleetEffect]:
        wanted = self._report_pace
        if wanted is None:
            self._due.report = inf
            return []
        if self._due.report == inf:  # a watch began
            self._due.report = max(at, self._posted.report_at + pace.change_floor(wanted))
        self._due.report = min(self._due.report, max(at, self._posted.report_at + wanted))
        if self._due.report > at:
            return []
        self._due.report, self._posted.report_at = at + wanted, at
        self._posted.report_key = self._documents.report_key(own)
        self._watches.spend(self.clock.namespace_time(at))
        report = self._documents.report(own, self.clock.offset, wanted)
        return [Write(document=report, ttl=max(REPORT_SECONDS, 3 * wanted))]

    def _post_watch(self, at: float) -> list[FleetEffect]:
        if at < self._watch_due():
            return []
        engines = max(self._seen().running, self._expected or 0, 1)
        self._due.watch = at + pace.WATCH_AGAIN
        look, report = pace.look_for(engines), pace.report_for(engines)
        watch = Watch(id=self._documents.next_id(), by=self._me, look=look, report=report)
        return [Write(document=watch, ttl=WATCH_SECONDS)]

    def _clean(self, at: float) -> list[FleetEffect]:
        syphon = self._own is not None and self._own.syphon.status not in (SyphonStatus.OFF, SyphonStatus.PAUSED)
        interval = pace.CLEAN_WATCHED if self._watched_at is not None else pace.CLEAN_UNWATCHED if syphon else None
        if interval is None:
            self._due.clean = inf
            return []
        if self._due.clean == inf:
            self._due.clean = at + interval * (1 + self._spread) / 2
        if at < self._due.clean:
            return []
        self._due.clean = at + interval
        known = frozenset(one.order.id for one in self.orders.shown)
        wanted = (reader.cleaning(at, known) for reader in self._readers.values())
        return [one for one in wanted if self._posted.is_cleaning_new(one)]

    def _flush(self, at: float) -> list[FleetEffect]:
        """Delete what floods a board. Another engine may have done so meanwhile: then its end is reached or nearer."""
        if at < self._due.flush:
            return []
        self._due.flush = inf
        return [one for reader in self._readers.values() if (one := reader.flushing(at)) is not None]

    @property
    def next_deadline(self) -> float:
        """Return the time by which a Ticked is needed; infinity: never."""
        if self._has_ended:
            return inf
        due = self._due
        orders, reports = self._readers[Board.ORDERS], self._readers[Board.REPORTS]
        times = [
            max(min(due.look, orders.resumes_at), orders.reading_until),
            max(min(due.reports, reports.resumes_at), reports.reading_until),
            inf if self._own is None else min(due.report, self._presence_due(self._own)),
            due.clean,
            due.flush,
            self._watch_due(),
        ]
        earliest = max(min(times), self._quiet_until)
        ends = self.orders.next_deadline
        return earliest if ends is None else min(earliest, ends + self._at - self.clock.namespace_time(self._at))

    def _presence_due(self, own: Snapshot) -> float:
        is_changed = self._documents.presence_key(own) != self._posted.presence_key
        wait = pace.PRESENCE_FLOOR if is_changed else self._presence_interval
        return max(self._posted.presence_at + wait, self._due.presence_retry)

    def _watch_due(self) -> float:
        if self._watched_at is None:
            return inf
        return self._due.watch if self._was_read else max(self._due.watch, self._watched_at + ROSTER_WAIT)

    @property
    def _was_read(self) -> bool:
        """Return whether the reports were read since this engine watches."""
        return self._watched_at is not None and self._read_at is not None and self._read_at >= self._watched_at

    # -- view ---------------------------------------------------------------------------------------------------

    @property
    def _expected(self) -> int | None:
        return len(self._expect) if isinstance(self._expect, tuple) else self._expect

    @property
    def _read_every(self) -> float:
        """Return the seconds between two readings of the reports; a watch that begins has a moment for its first."""
        began = self._watched_at
        is_watching = self._was_read or (began is not None and self._at - began > 2 * pace.READ_REPORTS)
        return pace.READ_REPORTS if is_watching else pace.READ_UNWATCHED

    def _seen(self) -> RosterView:
        """Return the engines as of the latest reading."""
        if self._shown is None:
            at = self._at if self._read_at is None else self._read_at
            since = (
                None
                if self._watch_on is None or at >= self._watch_on[1]
                else self.clock.namespace_time(self._watch_on[0])
            )
            wanted = self._report_pace or pace.REPORT_LEAST
            self._shown = self._roster.engines(self.clock.namespace_time(at), watched_since=since, pace=wanted)
        return self._shown

    def view(self) -> FleetView:
        """Return the fleet as this engine knows it."""
        seen = self._seen()
        me, boot = bound_text(self._me), bound_text(self._boot)
        key = (me.casefold(), boot)
        return FleetView(
            me=me,
            my_boot=boot,
            engines=seen.engines,
            entities=seen.entities(but=key),
            orders=order_views(
                self.orders.shown, self.orders.verbs, seen.engines, seen.answers | {key: self.orders.rows}, self._expect
            ),
            read_at=self._read_at,
            trouble=self._troubles.text,
            trouble_since=self._troubles.since,
            watched=self._pace is not None,
            unwatched=self._unwatched,
            look_seconds=self.look_seconds,
            read_every=self._read_every,
            expected=self._expected,
            expected_names=self._expect if isinstance(self._expect, tuple) else (),
            unread=self._readers[Board.ORDERS].behind,
            unread_since=self._readers[Board.ORDERS].unread_since,
            clock_offset=self.clock.offset,
            is_flooded=self._roster.is_flooded(self.clock.namespace_time(self._at)),
            missing=seen.missing(self._expect) if isinstance(self._expect, tuple) else (),
            skipped=self._skipped + self._roster.skipped,
            remarks=self._remarks,
        )
