"""One engine's orders of the fleet: what it has seen, what is in force here, and what to change (FLEET.md section 5).

`step` compares the newest order of each subject with what is in force, whatever happened in between:

    the newest order that means this engine          what follows
    stands, and is not answered                      CarryOut
    revokes, and is not answered                     CarryOut: what stood ends, and what a local operator ordered
    is over, or its signer has no right              Undo of what is in force; no older order returns
    may be over: this clock has no evidence yet      the same, but it has no answer until the clock has evidence
    was issued before a local operator acted here    none: the local operator's order holds
    was done, stands, and is not in force            CarryOut: a clock that was ahead ended it too early
    (none is newer, and what is in force is over)    Undo

An order acts only once it is kept on disk as seen, and once the board was read to its end. A new engine, which kept
nothing, also reads the reports first: they carry what the other engines have seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import (
    MAX_CARRIED,
    MAX_CARRIED_BYTES,
    MAX_ROWS,
    OLDER,
    Author,
    Order,
    OrderRow,
    OrderText,
    Outcome,
    Posted,
    Signer,
    StandingFleetOrder,
    Subject,
    Unverified,
    is_meant,
)
from paired_servicebus.core.fleet.fleet_events import CarryOut, FleetEffect, OrderEnded, Say, Undo
from paired_servicebus.core.fleet.order_rules import (
    ORDER_SECONDS,
    FleetVerb,
    FleetVerbs,
    Rule,
    Void,
    why_void,
)
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.text.time_format import age, day_and_clock
from paired_servicebus.core.text.untrusted_text import repeated

# The register: of each subject the newest counting order, whatever happened in between.
#
# Newer means issued later; the digest of the signed bytes breaks a tie. So engines agree, whichever board or presence
# they read an order from. A release is an order like any other: it stays for as long as any older order of its subjects
# could stand. So an engine that saw it never returns to an older one, even if the message is received by an enemy.


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenOrder:
    """An order that was read here.

    Args:
        first_at: the namespace's time of the first message with its bytes.
        counts: False if its signer has no right any more, or may have had none: then the rules decide, and no older
            order does.
    """

    order: Order
    by: str
    fingerprint: str
    first_at: float
    counts: bool = True

    @property
    def text(self) -> OrderText:
        return self.order.text

    @property
    def age_key(self) -> tuple[float, str]:
        """Return its place among orders of one subject: the greatest is the newest."""
        return self.text.issued_at, self.order.id

    def command(self, targets: Iterable[str]) -> Command:
        """Return the command for some of its targets."""
        text = self.text
        return Command(action_id=text.verb, scope=text.scope, targets=tuple(targets), by=self.by, why=text.why)

    def is_signed_by(self, signer: Signer | Unverified) -> bool:
        """Return whether a verdict by another file of operators leaves it its right."""
        return isinstance(signer, Signer) and self.first_at <= signer.valid_before


class Register:
    """The orders that an engine has seen.

    Args:
        verbs: the actions that can be ordered.
        seen: what the engine before this one had seen.
    """

    def __init__(self, verbs: FleetVerbs, seen: Iterable[SeenOrder] = ()) -> None:
        self._verbs = verbs
        self._by_subject: dict[Subject, tuple[SeenOrder, ...]] = {}
        self._forget_views()
        for one in seen:
            self.add(one)

    def _forget_views(self) -> None:
        """Forget what was made of the orders, since they changed."""
        self._orders: tuple[SeenOrder, ...] | None = None
        self._carried: tuple[Order, ...] | None = None
        self._newest: dict[str, dict[Subject, SeenOrder]] = {}

    def verb(self, one: SeenOrder) -> FleetVerb:
        """Return the action of a seen order."""
        return self._verbs[one.text.verb]

    def add(self, one: SeenOrder) -> bool:
        """Take an order in; return whether it is the newest of a subject for an engine, and was not known."""
        if one.text.verb not in self._verbs:
            return False
        is_new = False
        for subject in self.verb(one).subjects(one.text.scope, one.text.targets):
            before = self._by_subject.get(subject, ())
            if any(each.order.id == one.order.id and each.counts >= one.counts for each in before):
                continue
            others = (each for each in before if each.order.id != one.order.id)
            after = _uncovered(sorted((*others, one), key=lambda each: each.age_key, reverse=True))
            self._by_subject[subject] = after
            is_new |= one in after
        self._forget_views()
        return is_new

    def newest(self, engine: str) -> dict[Subject, SeenOrder]:
        """Return the newest order of each subject that means an engine."""
        if engine not in self._newest:
            meant = {
                subject: next((one for one in seen if is_meant(one.text.engines, engine)), None)
                for subject, seen in self._by_subject.items()
            }
            self._newest[engine] = {subject: one for subject, one in meant.items() if one is not None}
        return self._newest[engine]

    @property
    def orders(self) -> tuple[SeenOrder, ...]:
        """Return every order that is the newest of one of its subjects for an engine, the newest first."""
        if self._orders is None:
            found = {one.order.id: one for seen in self._by_subject.values() for one in seen}
            self._orders = tuple(sorted(found.values(), key=lambda one: one.age_key, reverse=True))
        return self._orders

    def find(self, order_id: str) -> SeenOrder | None:
        """Return an order by its id; None: it is not known, or newer ones replaced all of it."""
        return next((one for one in self.orders if one.order.id == order_id), None)

    @property
    def newest_issue(self) -> float:
        """Return when the newest order that counts was issued; 0: none is known."""
        return next((one.text.issued_at for one in self.orders if one.counts), 0.0)

    def judge_again(self, verdicts: Mapping[str, bool]) -> bool:
        """Note which orders the present file of operators verifies, by id; return whether one changed."""
        changed = False
        for subject, seen in self._by_subject.items():
            after = tuple(replace(one, counts=verdicts.get(one.order.id, one.counts)) for one in seen)
            changed |= after != seen
            self._by_subject[subject] = after
        self._forget_views()
        return changed

    def forget_over(self, at: float) -> bool:
        """Forget the orders that can decide nothing any more; return whether there were any."""
        if not self.orders or self.orders[-1].text.issued_at + ORDER_SECONDS > at:
            return False
        left = {
            subject: tuple(one for one in seen if one.text.issued_at + ORDER_SECONDS > at)
            for subject, seen in self._by_subject.items()
        }
        self._by_subject = {subject: seen for subject, seen in left.items() if seen}
        self._forget_views()
        return True

    def carried(self) -> tuple[Order, ...]:
        """Return the orders that a presence carries: releases first, since they protect, then the newest."""
        if self._carried is None:
            self._carried = self._choose()
        return self._carried

    def _choose(self) -> tuple[Order, ...]:
        found: list[Order] = []
        size = 0
        for one in sorted(self.orders, key=lambda each: (not each.counts, self.verb(each).stands)):
            size += len(one.order.signed) + len(one.order.signature)
            if len(found) >= MAX_CARRIED or size > MAX_CARRIED_BYTES:
                break
            found.append(one.order)
        return tuple(found)


def _uncovered(newest_first: Iterable[SeenOrder]) -> tuple[SeenOrder, ...]:
    """Return the orders of one subject without those whose engines newer ones all mean."""
    found: list[SeenOrder] = []
    named: set[str] = set()
    for one in newest_first:
        if one.text.engines is None:
            return (*found, one)
        engines = {engine.casefold() for engine in one.text.engines}
        if not engines <= named:
            found.append(one)
            named |= engines
    return tuple(found)


# What an engine keeps on disk for the next one, written before an order that is new in it acts.

ALARM_SECONDS: Final = (1800.0, 300.0)
"""Seconds before the end of a standing order at which an alarm is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What an engine keeps.

    answered: what it did about the newest order of a subject.
    local: subject, time and description of a local operator's order.
    """

    seen: tuple[SeenOrder, ...] = ()
    applied: tuple[StandingFleetOrder, ...] = ()
    answered: tuple[tuple[Subject, OrderRow], ...] = ()
    local: tuple[tuple[Subject, float, str], ...] = ()
    is_informed: bool = False
    """Whether both boards were read to their end once: until then it is a new engine."""
    clock_ahead: float = 0.0
    """Seconds that its clock was ahead of the namespace's; 0: unknown, or behind."""


def alarms_due(standing: Iterable[StandingFleetOrder], *, after: float, at: float) -> tuple[str, ...]:
    """Return a sentence for each order whose alarm is due in (after, at]."""
    found = []
    for order in standing:
        if any(max(after, order.since) < order.until - seconds <= at < order.until for seconds in ALARM_SECONDS):
            left = age(order.until - at)
            found.append(f"{order} ends in {left}, and is released then; extend it by a new order")
    return tuple(found)


ALARM: Final = "alarm"
"""The subject of a remark that calls the operator."""
LATE_SECONDS: Final = 60.0
"""Seconds after its issue from which an order takes effect late: an engine looks at the board once a minute."""
MAX_REFUSALS: Final = 10
"""Orders that do not count and are answered: anyone with Send can post them."""
MAX_AHEAD_SECONDS: Final = 300.0
"""An end is delayed by no more than this after a restart, if the clock was mended meanwhile."""
MAX_UNPROVEN: Final = 100
"""Orders of which one kind is kept without a right: claims that an engine shows because it looks only, and orders by a
key that has ended."""
NO_RIGHT: Final = "its signer has no right to order"
RELEASED_HERE: Final = "released here by a local operator"
NOT_KEPT: Final = "no order of the fleet is carried out: what was seen cannot be kept on disk"


class EngineOrders:
    """The orders of one engine, for FleetMember.

    Args:
        engine: this engine.
        verbs: the actions that can be ordered.
        kept: what the engine before this one kept; None: nothing, this is a new engine.

    version: grows with each change of `kept`; note_kept reports what is on disk.
    """

    def __init__(self, *, engine: Author, verbs: FleetVerbs, kept: Kept | None = None) -> None:
        self._engine, self.verbs = engine, verbs
        kept = Kept() if kept is None else kept
        self._is_new = not kept.is_informed
        self._register = Register(verbs, kept.seen)
        self._applied = {one.subject: one for one in kept.applied}
        self._answered = dict(kept.answered)
        self._local = {subject: (at, how) for subject, at, how in kept.local}
        self._under_way: dict[Subject, SeenOrder | StandingFleetOrder] = {}
        """The subjects of acts whose result is not known yet."""
        self._claimed = Register(verbs)
        """What an engine that verifies nothing shows; it decides nothing."""
        self._refusals: deque[OrderRow] = deque(maxlen=MAX_REFUSALS)
        self.version = self._on_disk = 0
        self._seen_in = {one.order.id: 0 for one in self._register.orders}
        """The version with which each order was seen first."""
        self._kept: tuple[int, Kept] = (-1, kept)
        self.clock_ahead = kept.clock_ahead
        """Seconds that our clock is ahead of the namespace's, for the next engine; at most MAX_AHEAD_SECONDS."""
        self._rows: tuple[int, tuple[OrderRow, ...]] = (-1, ())
        self._kept_trouble = ""
        self._orders_end = self._reports_end = False
        self.awaits_evidence = False
        """Whether an order has no answer because it may be over: this clock may be ahead of the namespace's."""
        self._alarms_at: float | None = None

    # -- what is read -------------------------------------------------------------------------------------------------

    def read_orders(self, posts: Iterable[Posted], *, is_whole: bool) -> None:
        """Take posts of the orders board in. is_whole: the end of the board is reached."""
        for post in posts:
            if isinstance(post.document, Order):
                self._read(post, post.document)
            elif post.is_newer:
                self._refuse(post.copies, OLDER.removeprefix("refused: "))
        self._orders_end = is_whole
        self._note_informed()

    def read_reports(self, posts: Iterable[Posted], now: float, *, is_whole: bool) -> None:
        """Take the orders in that presences and reports carry. now: the namespace's time."""
        for post in posts:
            for order, signer in post.carried:
                self.see(order, signer, min(post.enqueued_at, now))
        self._reports_end |= is_whole
        self._note_informed()

    def _note_informed(self) -> None:
        if self._is_new and self._orders_end and self._reports_end:
            self._is_new = False
            self._changed()

    def see(self, order: Order, signer: Signer, first_at: float) -> Void | None:
        """Take an order in that a signer's key verified, wherever it was read; return why it is void.

        A new engine cannot know whether an order that it reads after the end of its key was signed before: it obeys
        neither that order nor an older one of its subjects.
        """
        void = why_void(order.text, signer, engine=self._engine, verbs=self.verbs, first_at=first_at)
        if void is None or (void.rule is Rule.KEY and self._is_new and self._has_room):
            seen = SeenOrder(
                order=order, by=signer.by, fingerprint=signer.fingerprint, first_at=first_at, counts=void is None
            )
            if self._register.add(seen):
                self._changed()
                self._seen_in[order.id] = self.version
        return void

    @property
    def _has_room(self) -> bool:
        """Return whether one more order without a right is kept: the holder of an ended key can sign many."""
        return sum(not one.counts for one in self._register.orders) < MAX_UNPROVEN

    def _read(self, post: Posted, order: Order) -> None:
        signer = post.signer
        if isinstance(signer, Signer):
            void = self.see(order, signer, post.enqueued_at)
        else:
            unknown = Unverified(why="look only", looks_only=True) if signer is None else signer
            void = why_void(order.text, unknown, engine=self._engine, verbs=self.verbs, first_at=post.enqueued_at)
            if (unknown.looks_only or unknown.is_unknown) and self._register.find(order.id) is None:
                self._claim(order, post.enqueued_at)
        if void is not None and void.rule is not Rule.OVER and is_meant(order.text.engines, self._engine.engine):
            self._refuse(order.id, void.text)

    def _claim(self, order: Order, first_at: float) -> None:
        anybody = Signer(by="", fingerprint="")
        void = why_void(order.text, anybody, engine=self._engine, verbs=self.verbs, first_at=first_at)
        if void is None and len(self._claimed.orders) < MAX_UNPROVEN:
            self._claimed.add(SeenOrder(order=order, by="", fingerprint="", first_at=first_at))

    def _refuse(self, order_id: str, text: str) -> None:
        row = OrderRow(order_id=order_id, outcome=Outcome.REFUSED, text=repeated(text))
        if order_id and row not in self._refusals:
            self._refusals.append(row)
            self._changed()

    def board_unread(self) -> None:
        """Note that the orders board is another one, or is read again: its end is not reached."""
        self._orders_end = False

    def check(self, order: Order, signer: Signer | Unverified, at: float) -> str:
        """Return why an order would be void if it were posted now; empty if it would count."""
        void = why_void(order.text, signer, engine=self._engine, verbs=self.verbs, first_at=at, at=at)
        return "" if void is None else void.text

    def judge_again(self, verdicts: dict[str, bool]) -> None:
        """Note which seen orders the present file of operators verifies, by id."""
        self._refusals.clear()
        self._claimed = Register(self.verbs)
        self._changed()
        again = {one.order.id for one in self._register.orders if not one.counts and verdicts.get(one.order.id)}
        self._answered = {key: one for key, one in self._answered.items() if one.order_id not in again}
        if self._register.judge_again(verdicts):
            self._changed()

    # -- what follows -------------------------------------------------------------------------------------------------

    @property
    def needs_reports(self) -> bool:
        """Return whether the reports have to be read first: no engine before this one had seen what stands."""
        return self._is_new and not self._reports_end

    @property
    def is_informed(self) -> bool:
        """Return whether the boards were read as far as an act needs."""
        return self._orders_end and not self._is_new

    def step(self, at: float, *, reached: float = inf) -> list[FleetEffect]:
        """Return what is to be done at a time of the namespace.

        Args:
            at: the time by the best estimate of the namespace's clock.
            reached: a time that this clock has certainly reached. An estimate without evidence may be ahead.
        """
        if self._register.forget_over(at):
            self._changed()
        effects: list[FleetEffect] = [*self._ends(at)]
        if self.is_informed:
            effects += self._begins(at, min(at, reached))
        after, self._alarms_at = (at if self._alarms_at is None else self._alarms_at), at
        return [
            *effects,
            *(Say(about=ALARM, text=text) for text in alarms_due(self._applied.values(), after=after, at=at)),
        ]

    def _ends(self, at: float) -> list[FleetEffect]:
        """Return the acts that end what is over, or what a newer order that is over itself replaced."""
        effects: list[FleetEffect] = []
        newest = self._register.newest(self._engine.engine)
        for subject, held in sorted(self._applied.items()):
            if subject in self._under_way:
                continue
            later = newest.get(subject)
            text = ""
            if held.until <= at:
                text = f"released at its end: {held}"
            elif later is not None and not later.counts and self._on_disk >= self._seen_in[later.order.id]:
                text = f"released, because it does not count any more: {held}"
                self._answer(subject, later, Outcome.REFUSED, NO_RIGHT)
            elif later is not None and self._is_over_unanswered(subject, later, at):
                text = f"released by a newer order, which is over: {held}"
            if text:
                self._under_way[subject] = held
                effects.append(Undo(order=held, text=text))
        return effects

    def _is_over_unanswered(self, subject: Subject, one: SeenOrder, at: float) -> bool:
        return one.text.until <= at and self._acts_on(one) and not self._is_answered(subject, one, at)

    def _begins(self, at: float, reached: float) -> list[FleetEffect]:
        """Return the acts that carry new orders out, one for each order."""
        wanted: dict[str, list[Subject]] = {}
        found: dict[str, SeenOrder] = {}
        self.awaits_evidence = False
        for subject, one in sorted(self._register.newest(self._engine.engine).items()):
            if subject in self._under_way or self._is_answered(subject, one, at) or not self._acts_on(one):
                continue
            reason = self._why_not(subject, one, at)
            if reason and not self._why_not(subject, one, reached):
                self.awaits_evidence = True
                continue
            if reason:
                self._answer(subject, one, Outcome.REFUSED, reason)
                continue
            found[one.order.id] = one
            wanted.setdefault(one.order.id, []).append(subject)
        effects: list[FleetEffect] = []
        for order_id, subjects in wanted.items():
            one = found[order_id]
            self._under_way |= dict.fromkeys(subjects, one)
            late = at - one.text.issued_at
            named = {subject[2] for subject in subjects}
            command = one.command(each for each in one.text.targets if each.casefold() in named)
            effects.append(
                CarryOut(
                    order=one.order,
                    command=replace(command, by=f"{one.by} ({one.fingerprint})"),
                    late=f"takes effect {age(late)} late" if late > LATE_SECONDS else "",
                )
            )
        return effects

    def _acts_on(self, one: SeenOrder) -> bool:
        """Return whether an order that was seen is kept on disk, so that no later boot returns to an older one."""
        return self._seen_in.get(one.order.id, inf) <= self._on_disk

    def _is_answered(self, subject: Subject, one: SeenOrder, at: float) -> bool:
        """Return whether nothing is to be done about an order.

        What was done and stands, but is not in force, was ended too early: by a clock that was ahead.
        """
        answer = self._answered.get(subject)
        if answer is None or answer.order_id != one.order.id:
            return False
        stands = self._register.verb(one).stands and one.text.until > at and answer.outcome is Outcome.DONE
        return not stands or subject in self._applied or self._is_overtaken(subject, one)

    def _why_not(self, subject: Subject, one: SeenOrder, at: float) -> str:
        """Return why an order that was never answered is not carried out; empty: it is."""
        if not one.counts:
            return NO_RIGHT
        if self._is_overtaken(subject, one):
            return f"overtaken: {self._local[subject][1] or RELEASED_HERE}"
        held = self._applied.get(subject)
        if one.text.until <= at and held is None:
            return f"its time was over at {day_and_clock(one.text.until)}"
        return "its time is over" if one.text.until <= at else ""

    def _is_overtaken(self, subject: Subject, one: SeenOrder) -> bool:
        return subject in self._local and one.text.issued_at <= self._local[subject][0]

    def _answer(self, subject: Subject, one: SeenOrder, outcome: Outcome, text: str) -> None:
        before = self._answered.get(subject)
        self._answered[subject] = OrderRow(order_id=one.order.id, outcome=outcome, text=text)
        if before is not None and before.outcome is not Outcome.DONE:  # its other subjects remember that it failed
            same = [key for key, each in self._answered.items() if each.order_id == before.order_id]
            self._answered.update(dict.fromkeys(same, before))
        self._changed()

    # -- results ------------------------------------------------------------------------------------------------------

    def note_outcome(self, ended: OrderEnded) -> None:
        """Note the result of a CarryOut. What held before holds on for the targets that are not held."""
        order_id, outcome, text = ended.order_id, ended.outcome, ended.text
        failed = {target.casefold() for target in ended.not_held}
        newest = self._register.newest(self._engine.engine)
        for subject, one in list(self._under_way.items()):
            if not isinstance(one, SeenOrder) or one.order.id != order_id:
                continue
            del self._under_way[subject]
            is_failed, is_newest = subject[2] in failed, subject in newest and newest[subject].order.id == order_id
            is_contested = self._is_overtaken(subject, one)  # a local operator acted meanwhile: carried out again
            if not is_failed:
                self._hold(subject, one)
            if is_newest and not is_contested:
                refused = Outcome.REFUSED if outcome is Outcome.DONE else outcome
                self._answer(subject, one, refused if is_failed else Outcome.DONE, text)

    def _hold(self, subject: Subject, one: SeenOrder) -> None:
        """Note that an order is in force for a subject."""
        self._local.pop(subject, None)
        self._applied.pop(subject, None)
        if self._register.verb(one).stands:
            self._applied[subject] = self._standing(one, subject)
        self._changed()

    def note_undone(self, order: StandingFleetOrder) -> None:
        """Note that an Undo was performed."""
        self._under_way.pop(order.subject, None)
        held = self._applied.get(order.subject)
        if held is not None and held.order_id == order.order_id:
            del self._applied[order.subject]
            self._changed()

    def _standing(self, one: SeenOrder, subject: Subject) -> StandingFleetOrder:
        return StandingFleetOrder(
            subject=subject,
            order_id=one.order.id,
            command=one.command(each for each in one.text.targets if each.casefold() == subject[2]),
            label=self._register.verb(one).label,
            since=one.first_at,
            until=one.text.until,
        )

    def note_local(self, subjects: tuple[Subject, ...], how: str, at: float) -> None:
        """Note that a local operator gave an order about these subjects: it holds until a newer order of the fleet."""
        newest = self._register.newest(self._engine.engine)
        for subject in subjects:
            one = newest.get(subject)
            self._local[subject] = (at if one is None else max(at, one.text.issued_at), how)
            self._applied.pop(subject, None)
            if subject not in self._under_way and one is not None and not self._is_answered(subject, one, at):
                self._answer(subject, one, Outcome.REFUSED, f"overtaken: {how or RELEASED_HERE}")
        self._changed()

    # -- the disk -----------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        self.version += 1

    def note_clock(self, offset: float | None) -> None:
        """Note how far our clock is ahead of the namespace's; None: there is no evidence yet."""
        if offset is not None:
            self.clock_ahead = max(0.0, min(offset, MAX_AHEAD_SECONDS))

    def note_kept(self, version: int, trouble: str) -> str:
        """Note that `kept` of a version is on disk, or why it is not; return a new warning."""
        if not trouble:
            self._on_disk = max(self._on_disk, version)
        before, self._kept_trouble = self._kept_trouble, trouble
        return f"{NOT_KEPT} ({trouble})" if trouble and trouble != before else ""

    @property
    def kept(self) -> Kept:
        """Return what the next engine needs."""
        if self._kept[0] != self.version:
            known = self._register.newest(self._engine.engine)
            kept = Kept(
                seen=self._register.orders,
                applied=tuple(self._applied.values()),
                answered=tuple(sorted((key, one) for key, one in self._answered.items() if key in known)),
                local=tuple((key, at, how) for key, (at, how) in sorted(self._local.items())),
                is_informed=not self._is_new,
                clock_ahead=self.clock_ahead,
            )
            self._kept = (self.version, kept)
        return self._kept[1]

    # -- views --------------------------------------------------------------------------------------------------------

    @property
    def register(self) -> Register:
        return self._register

    @property
    def shown(self) -> tuple[SeenOrder, ...]:
        """Return the orders for screens, the newest first: also what an engine that verifies none is not sure of."""
        return tuple(sorted((*self._register.orders, *self._claimed.orders), key=lambda one: one.age_key, reverse=True))

    @property
    def rows(self) -> tuple[OrderRow, ...]:
        """Return the answers to the newest orders, and to some that do not count."""
        if self._rows[0] != self.version:
            self._rows = self.version, self._answers()
        return self._rows[1]

    def _answers(self) -> tuple[OrderRow, ...]:
        known = {one.order.id for one in self._register.orders}
        found: dict[str, OrderRow] = {}
        for answer in self._answered.values():
            row = found.get(answer.order_id)
            if answer.order_id in known and (row is None or row.outcome is Outcome.DONE):
                found[answer.order_id] = OrderRow(
                    order_id=answer.order_id, outcome=answer.outcome, text=repeated(answer.text)
                )
        return (*found.values(), *(one for one in self._refusals if one.order_id not in found))[:MAX_ROWS]

    @property
    def differences(self) -> tuple[str, ...]:
        """Return how this engine differs from the newest orders: a local operator acted after them."""
        newest = self._register.newest(self._engine.engine)
        return tuple(
            f"{how or RELEASED_HERE}: {self._standing(one, subject)}"
            for subject, (at, how) in sorted(self._local.items())
            if (one := newest.get(subject)) is not None
            and one.counts
            and self._register.verb(one).stands
            and one.text.issued_at <= at
            and (self._alarms_at is None or one.text.until > self._alarms_at)
        )

    @property
    def next_deadline(self) -> float | None:
        """Return the time of the next alarm or end."""
        at = -inf if self._alarms_at is None else self._alarms_at
        due = [one.until - before for one in self._applied.values() for before in (*ALARM_SECONDS, 0.0)]
        return min((time for time in due if time > at), default=None)


def to_take_up(kept: Kept, *, engine: str, verbs: FleetVerbs, at: float) -> tuple[StandingFleetOrder, ...]:
    """Return what was in force when the engine before ended, is not over, and was not replaced by what it had seen.

    at: by this host's clock, which is ahead as it was before: an order that is dropped early is not taken up again.
    """
    newest = Register(verbs, kept.seen).newest(engine)
    refused = {subject: answer for subject, answer in kept.answered if answer.outcome is not Outcome.DONE}

    def holds(one: StandingFleetOrder) -> bool:
        later = newest.get(one.subject)
        if later is None or later.order.id == one.order_id:
            return later is None or later.counts
        answer = refused.get(one.subject)
        return answer is not None and answer.order_id == later.order.id

    return tuple(one for one in kept.applied if one.until > at - kept.clock_ahead and holds(one))
