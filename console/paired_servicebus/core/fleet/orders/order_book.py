"""One engine's orders of the fleet: which are carried out, what stands, and what is undone at its end.

    an order                       an engine that read the board before    one that reads it for the first time
    stands (force, pin, pause)     carries it out, and undoes it at its end, late or not: both the same
    revokes (release, resume)      carries it out within `act_within`;     ends what the engine before it stored
                                   later it only ends what stands
    is done once (re-drive)        carries it out within its time          never: the engine before it may have

Nothing is decided before the end of the board is reached: the newest order about a subject wins. Each engine answers
the orders that mean it, also by a refusal with the reason; answers to forged orders are bounded.

A board that was deleted and created again ends nothing. What stands stays until its end, or until a newer order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from paired_servicebus.core.fleet.board.board_reader import MAX_REASON, bound_author, bound_text
from paired_servicebus.core.fleet.fleet_documents import (
    ONE_SHOT_SECONDS,
    Order,
    OrderAnswer,
    OrderText,
    Outcome,
    Posted,
    Signer,
    StandingFleetOrder,
    Subject,
    Unverified,
)
from paired_servicebus.core.fleet.fleet_events import AnswerOrder, CarryOut, FleetEffect, Say, TakeUp, Undo
from paired_servicebus.core.fleet.orders import standing_rules
from paired_servicebus.core.fleet.orders.order_answers import Tally, expected_engines, tally
from paired_servicebus.core.fleet.orders.order_rules import (
    ORDER_SECONDS,
    BoardOrder,
    Counts,
    FleetVerbs,
    ReadOrder,
    Rule,
    ThisEngine,
    act_end,
    is_meant,
    judge_board,
    order_end,
    verdict,
)
from paired_servicebus.core.fleet.orders.order_text import MAX_NUMBER, OLDER
from paired_servicebus.core.fleet.orders.standing_rules import NewestOrder, replaced_by
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetOrder
from paired_servicebus.core.text.untrusted_text import repeated

# The answers of engines to orders, and the orders as screens show them. Answers are unsigned, hence bounded.

MAX_ORDERS: Final = 200
"""Orders whose answers are kept; the oldest gives way."""
MAX_ANSWERS: Final = 2000
"""Answers kept of one order: the roster's limit of engines."""


class AnswerBook:
    """The answers read from the reports board, by order and engine.

    Args:
        expect: the number or the names of the engines that pairing.toml expects.
    """

    def __init__(self, expect: int | tuple[str, ...] | None) -> None:
        self._expect: int | tuple[str, ...] = () if expect is None else expect
        self._answers: dict[str, dict[tuple[str, str, int], OrderAnswer]] = {}
        self._changes = 0
        self._shown: tuple[object, ...] = ()
        self._views: tuple[FleetOrder, ...] = ()

    def read(self, post: Posted) -> None:
        """Take an answer in; of each engine and boot the newest counts."""
        if not isinstance(post.document, OrderAnswer):
            return
        answer = replace(
            post.document,
            author=bound_author(post.document.author),
            text=bound_text(post.document.text, MAX_REASON),
        )
        answers = self._answers.setdefault(answer.order_id, {})
        while len(self._answers) > MAX_ORDERS:
            self._answers.pop(next(iter(self._answers)))
        key = (answer.author.engine.casefold(), answer.author.boot, answer.number)
        known = answers.get(key)
        if (known is None and len(answers) < MAX_ANSWERS) or (known is not None and known.at <= answer.at):
            answers[key] = answer
            self._changes += 1

    def views(self, orders: tuple[BoardOrder, ...], engines: tuple[FleetEngine, ...]) -> tuple[FleetOrder, ...]:
        """Return the orders for screens. The result is kept until something of it changes."""
        key = (self._changes, tuple(one.number for one in orders), engines)
        if self._shown[:2] != key[:2] or self._shown[2] is not engines:
            self._shown = key
            counting = tuple(one for one in orders if one.void is None or is_unjudged(one))
            self._views = tuple(view for one in orders if (view := self._view(one, counting, engines)) is not None)
        return self._views

    def _view(
        self, order: BoardOrder, counting: tuple[BoardOrder, ...], engines: tuple[FleetEngine, ...]
    ) -> FleetOrder | None:
        text, verb = order.text, order.verb
        if text is None or verb is None:
            return None
        void, is_unverified = order.void, is_unjudged(order)
        newer = replaced_by(order, counting) if verb.stands else None
        until = order_end(text, verb, order.enqueued_at) if verb.stands else None
        if newer is not None and until is not None:
            until = min(until, newer.enqueued_at)
        counted = self._tally(text, order, until, engines)
        return FleetOrder(
            id=bound_text(text.id),
            number=order.number,
            verb=verb.id,
            scope=bound_text(text.scope),
            targets=tuple(bound_text(one) for one in text.targets),
            engines=None if text.engines is None else tuple(bound_text(one) for one in text.engines),
            by=repeated(order.by),
            at=order.enqueued_at,
            until=until,
            acts_until=None if verb.stands or verb.revokes else act_end(text, order.enqueued_at),
            done=counted.done,
            refused=counted.refused,
            silent=counted.silent,
            unnamed=counted.unnamed,
            why=repeated(text.why),
            void=repeated(void.text) if void is not None and not is_unverified else "",
            ended="" if newer is None else _how_ended(newer),
            is_unverified=is_unverified,
        )

    def _tally(
        self, text: OrderText, order: BoardOrder, until: float | None, engines: tuple[FleetEngine, ...]
    ) -> Tally:
        """Count the answers. An engine that started after an order, or after the end of what stood, is not asked."""
        asked = [one for one in engines if _began(one) <= (order.enqueued_at if until is None else until)]
        return tally(text, order.number, expected_engines(asked, self._expect), self._answers.get(text.id, {}).values())


def is_unjudged(order: BoardOrder) -> bool:
    """Return whether an order is void only because this engine verifies none."""
    return order.void is not None and order.void.rule is Rule.SIGNATURE and getattr(order.signer, "looks_only", False)


def _how_ended(newer: BoardOrder) -> str:
    how = "ended" if newer.verb is not None and newer.verb.revokes else "replaced"
    return f"{how} by {repeated(newer.by)}'s order {newer.number}" if newer.by else f"{how} by order {newer.number}"


def _began(engine: FleetEngine) -> float:
    """Return an engine's start by the namespace's clock."""
    return engine.started_at - (engine.clock_offset or 0.0)


# The orders that one engine read from the board, judged by rules 1 to 5 as they came.
#
# Forged, late and malformed orders decide nothing, so only the latest of them are kept, for screens. A flood of them
# grows nothing.

MAX_SHOWN: Final = 20
"""Orders kept for screens, and as many void ones."""
NOT_VERIFIED: Final = Unverified(why="look only: its signature was not verified")


class OrderLog:
    """The orders of one board, by number. `newest` is the highest number of an order, void or not."""

    def __init__(self, *, engine: ThisEngine, verbs: FleetVerbs) -> None:
        self._engine, self._verbs = engine, verbs
        self._orders: list[BoardOrder] = []
        """Those that count or were overtaken: only they decide about later ones."""
        self._documents: dict[int, Order] = {}
        self._void: deque[BoardOrder] = deque(maxlen=MAX_SHOWN)
        self.newest = 0

    def read(self, posts: Iterable[Posted]) -> list[tuple[Posted, BoardOrder]]:
        """Judge new posts; return the orders among them by number. A number that was read before is skipped."""
        judged = []
        for post in sorted(posts, key=lambda one: one.number):
            is_order = isinstance(post.document, Order) or (post.document is None and post.is_newer)
            if is_order and post.number > self.newest:
                self.newest = post.number
                judged.append((post, self._add(post)))
        return judged

    def judge(self, read: ReadOrder) -> BoardOrder:
        """Apply rules 1 to 5 to an order after those of the log."""
        return judge_board(read, engine=self._engine, verbs=self._verbs, earlier=self._orders)

    def _add(self, post: Posted) -> BoardOrder:
        order = self.judge(ReadOrder(post=post, signer=NOT_VERIFIED if post.signer is None else post.signer))
        if order.void is None or order.void.rule is Rule.OVERTAKEN:
            self._orders.append(order)
            if isinstance(post.document, Order):
                self._documents[post.number] = post.document
        else:
            self._void.append(order)
        return order

    def has(self, order_id: str) -> bool:
        """Return whether an order of that id was read, void or not."""
        return any(one.text is not None and one.text.id == order_id for one in (*self._orders, *self._void))

    def document(self, number: int) -> Order:
        """Return the document of an order that counts."""
        return self._documents[number]

    def forget_over(self, at: float) -> None:
        """Forget orders that can decide nothing any more."""
        if self._orders and self._orders[0].enqueued_at + ORDER_SECONDS < at:
            self._orders = [one for one in self._orders if one.enqueued_at + ORDER_SECONDS >= at]
            kept = {one.number for one in self._orders}
            self._documents = {number: one for number, one in self._documents.items() if number in kept}

    def clear(self) -> None:
        """Forget a board that was deleted."""
        self._orders, self.newest = [], 0
        self._documents.clear()
        self._void.clear()

    @property
    def orders(self) -> tuple[BoardOrder, ...]:
        """Return the orders that count or were overtaken."""
        return tuple(self._orders)

    @property
    def shown(self) -> tuple[BoardOrder, ...]:
        """Return the orders for screens, by number."""
        return tuple(sorted((*self._orders[-MAX_SHOWN:], *self._void), key=lambda one: one.number))


# The answers of one engine to orders that do not count: each with the reason, and few to forged ones.

MAX_REFUSALS: Final = 30
REFUSALS_SECONDS: Final = 3600.0
"""An engine answers at most MAX_REFUSALS void orders in this time: anyone with Send can post them."""
MAX_ID: Final = 128


class VoidAnswers:
    """Decides whether a void order is answered. Every time is the namespace's."""

    def __init__(self, engine: ThisEngine) -> None:
        self._me = engine
        self._answered: deque[float] = deque()

    def answer(self, post: Posted, order: BoardOrder, at: float, *, is_new: bool) -> list[AnswerOrder]:
        """Return the answer to a void order, if there is one.

        is_new: it was posted after this engine's start. Of older ones a starting engine answers only those that would
        stand, and that it cannot verify.
        """
        if post.is_newer:
            return self._answer_newer(post, at) if is_new else []
        if order.text is None or not is_meant(order.text, self._me.name) or len(order.text.id) > MAX_ID:
            return []
        void = verdict(order, engine=self._me, at=at)
        if isinstance(void, Counts) or void.rule is Rule.MEANT or not (is_new or _would_stand(order, void.rule, at)):
            return []
        if void.rule not in (Rule.OVERTAKEN, Rule.OVER) and not self._may_answer(at):
            return []
        return [AnswerOrder(order_id=order.text.id, number=order.number, outcome=Outcome.REFUSED, text=void.text)]

    def _answer_newer(self, post: Posted, at: float) -> list[AnswerOrder]:
        is_late = at >= post.enqueued_at + ONE_SHOT_SECONDS
        if is_late or not 0 < len(post.copies) <= MAX_ID or not self._may_answer(at):
            return []
        text = OLDER.removeprefix("refused: ")
        return [AnswerOrder(order_id=post.copies, number=post.number, outcome=Outcome.REFUSED, text=text)]

    def _may_answer(self, at: float) -> bool:
        while self._answered and self._answered[0] + REFUSALS_SECONDS <= at:
            self._answered.popleft()
        if len(self._answered) >= MAX_REFUSALS:
            return False
        self._answered.append(at)
        return True


def _would_stand(order: BoardOrder, rule: Rule, at: float) -> bool:
    if rule is not Rule.SIGNATURE or order.text is None or order.verb is None or not order.verb.stands:
        return False
    return order_end(order.text, order.verb, order.enqueued_at) > at


ALARM: Final = "alarm"
"""The subject of a remark that calls the operator."""
MAX_ACTED: Final = 4096
Standing = dict[Subject, StandingFleetOrder]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOrders:
    """What an engine stores for the next one.

    released: subject and order id of what is not in force here; how: how a local operator ended it.
    """

    standing: tuple[StandingFleetOrder, ...] = ()
    released: tuple[tuple[Subject, str], ...] = ()
    how: tuple[tuple[Subject, str], ...] = ()


class OrderBook:
    """The orders of one engine, for FleetMember.

    Args:
        engine: this engine.
        verbs: the actions that exist.
        expect: the number or the names of the engines that pairing.toml expects.
        kept: what the engine before this one stored.
    """

    def __init__(
        self,
        *,
        engine: ThisEngine,
        verbs: FleetVerbs,
        expect: int | tuple[str, ...] | None = None,
        kept: KeptOrders | None = None,
    ) -> None:
        kept = KeptOrders() if kept is None else kept
        self._me = engine
        self._log = OrderLog(engine=engine, verbs=verbs)
        self._answers = AnswerBook(expect)
        self._carried = {one.subject: one for one in kept.standing}
        """Standing orders that are not on the board: stored by the engine before, or of a deleted board."""
        self._applied: Standing = {}
        """What stands here by the board; its `_released` are not in force."""
        self._released, self._how = dict(kept.released), dict(kept.how)
        self._taken_up: set[tuple[Subject, str]] = set()
        self._stuck: Standing = {}
        """Orders in force that a newer one replaces or revokes: if it is refused, they are undone at their end."""
        self._awaited: dict[Subject, str] = {}
        """The orders that replace a stuck one and have no result yet."""
        self._pending: list[tuple[Posted, BoardOrder]] = []
        self._found: dict[str, tuple[int, float]] = {}
        self._acted: dict[str, None] = {}
        self._void_answers = VoidAnswers(engine)
        self._was_whole = False
        self._old: float = inf
        """The highest number of an order from before this engine's start, or from before the signers changed."""
        self._at = -inf

    # -- the board ------------------------------------------------------------------------------------------------

    def read(self, posts: tuple[Posted, ...], at: float, *, is_whole: bool) -> tuple[FleetEffect, ...]:
        """Read new posts; at the end of the board, decide about them."""
        self._pending += self._log.read(posts)
        if not is_whole:
            return ()
        pending, self._pending = self._pending, []
        for post, order in pending:
            self._forget_void(post, order)
        newest = standing_rules.newest_orders(self._log.orders, engine=self._me)
        effects: list[FleetEffect] = []
        revoked: set[Subject] = set()
        for post, order in pending:
            effects += self._decide(post, order, newest, revoked, at)
        is_first = self._old == inf
        self._was_whole, self._old = True, 0
        effects += self._sync(newest, revoked, at, is_first=is_first)
        self._log.forget_over(at)
        return tuple(effects)

    def reset(self) -> None:
        """Forget the board. What stands stays, as an order that is not on the board."""
        self._carried = dict(self._applied)
        self._old = inf if self._old == inf else 0
        self._pending = []
        self._log.clear()

    def judge_again(self) -> None:
        """Forget the verdicts: the signers changed, and the board is read again. What stands stays until then.

        The orders read before are then judged as by an engine that starts: none of them is done once more.
        """
        if self._was_whole:
            newest = self._log.newest
            self.reset()
            self._was_whole, self._old = False, newest
        self._pending = []
        self._log.clear()

    def step(self, at: float) -> tuple[FleetEffect, ...]:
        """Act on ends and alarms."""
        before, self._at = self._at, max(at, self._at)
        alarms = standing_rules.alarms_due(self._in_force, after=before, at=self._at) if before > -inf else ()
        due = not self._was_whole and self._carried.keys() != self._applied.keys()
        is_over = any(one.until <= at for one in (*self._applied.values(), *self._stuck_here))
        effects: list[FleetEffect] = [Say(about=ALARM, text=one.text) for one in alarms]
        if before == -inf:
            ended = standing_rules.just_ended(self._carried.values(), self._released, at=at)
            effects += [Undo(order=one, text=f"released at its end: {one}") for one in ended]
        if due or is_over:
            newest = standing_rules.newest_orders(self._log.orders if self._was_whole else (), engine=self._me)
            effects += self._sync(newest, set(), at)
        return tuple(effects)

    def has(self, order_id: str) -> bool:
        """Return whether an order of that id was read, void or not."""
        return self._log.has(order_id)

    def check(self, order: Order, signer: Signer | Unverified, at: float) -> str:
        """Return why an order would be void if it were posted now; empty if it would count."""
        post = Posted(number=MAX_NUMBER, enqueued_at=at, ends_at=at + ONE_SHOT_SECONDS, document=order)
        void = self._log.judge(ReadOrder(post=post, signer=signer)).void
        return "" if void is None else void.text

    def _forget_void(self, post: Posted, order: BoardOrder) -> None:
        """Forget a stored order that the board shows to be void now: its signer lost the right."""
        if order.void is None or (isinstance(order.signer, Unverified) and order.signer.is_unknown):
            return
        for subject, one in list(self._carried.items()):
            if (one.number, one.since) == (post.number, post.enqueued_at):
                del self._carried[subject]

    # -- one order ------------------------------------------------------------------------------------------------

    def _decide(
        self,
        post: Posted,
        order: BoardOrder,
        newest: dict[Subject, NewestOrder],
        revoked: set[Subject],
        at: float,
    ) -> list[FleetEffect]:
        """Carry out or answer a new order; orders that stand follow from the set. revoked: gets the subjects ended."""
        found = verdict(order, engine=self._me, at=at)
        if not isinstance(found, Counts) or order.text is None or order.verb is None:
            return [*self._void_answers.answer(post, order, at, is_new=self._is_new(order))]
        text, verb = order.text, order.verb
        self._note(text.id, order.number, found.ends_at)
        if verb.stands:
            is_newest = any(newest[one].order.number == order.number for one in order.subjects if one in newest)
            return [] if is_newest or not self._is_new(order) else [self._superseded(order, newest)]
        if not self._is_new(order):
            return self._before_start(order, found)
        if not found.acts:
            stands = any(self._holds(one) for one in order.subjects)
            return [] if stands else [self._refuse(order, "it came too late, and nothing of it stands here")]
        subjects = {one for one in order.subjects if not self._is_replaced(one, order, newest)}
        if not subjects:
            return [self._superseded(order, newest)]
        if text.id in self._acted:
            return []
        self._acted[text.id] = None
        while len(self._acted) > MAX_ACTED:
            self._acted.pop(next(iter(self._acted)))
        revoked |= subjects if verb.revokes else set()
        about = verb.stands_for or verb.id
        return [
            CarryOut(
                order=self._log.document(order.number),
                number=order.number,
                by=found.by,
                fingerprint=found.fingerprint,
                targets=tuple(one for one in text.targets if (about, text.scope, one.casefold()) in subjects),
            )
        ]

    def _is_replaced(self, subject: Subject, order: BoardOrder, newest: dict[Subject, NewestOrder]) -> bool:
        """Return whether a newer order is in force already: this one was read late, on a board created again."""
        later, one = newest.get(subject), self._applied.get(subject)
        return (
            one is not None
            and later is not None
            and order.number < later.order.number
            and one.order_id == later.text.id
        )

    def _before_start(self, order: BoardOrder, found: Counts) -> list[FleetEffect]:
        """Answer an order from before this engine started; it may have been carried out by the engine before."""
        if not found.acts or (order.text is not None and order.text.id in self._acted):
            return []
        if order.verb is not None and order.verb.revokes:
            if any(one in self._applied for one in order.subjects):
                return []  # the end of what stood answers it
            return [self._answer(order, Outcome.DONE, "nothing of it stands here: this engine read it later")]
        after = "started" if self._old == inf else "got another file of operators"
        return [self._refuse(order, f"this engine {after} after it was ordered")]

    def _is_new(self, order: BoardOrder) -> bool:
        return order.number > self._old

    def _superseded(self, order: BoardOrder, newest: dict[Subject, NewestOrder]) -> AnswerOrder:
        later = max((newest[one].order for one in order.subjects if one in newest), key=lambda one: one.number)
        return self._refuse(order, f"overtaken by {later.by}'s order {later.number} before it was read here")

    def _refuse(self, order: BoardOrder, text: str) -> AnswerOrder:
        return self._answer(order, Outcome.REFUSED, text)

    def _answer(self, order: BoardOrder, outcome: Outcome, text: str) -> AnswerOrder:
        assert order.text is not None, "only a readable order is answered"
        return AnswerOrder(order_id=order.text.id, number=order.number, outcome=outcome, text=text)

    # -- what stands ----------------------------------------------------------------------------------------------

    def _desired(self, newest: dict[Subject, NewestOrder], at: float) -> tuple[StandingFleetOrder, ...]:
        """Return what stands: by the board, and stored orders that are newer. An older one never comes back."""
        found = {one.subject: one for one in standing_rules.standing_of(newest, at=at)}
        for subject, one in self._carried.items():
            if subject not in newest or newest[subject].order.enqueued_at < one.since:
                found[subject] = one
        return tuple(one for _, one in sorted(found.items()) if one.until > at)

    def _sync(
        self, newest: dict[Subject, NewestOrder], revoked: set[Subject], at: float, *, is_first: bool = False
    ) -> list[FleetEffect]:
        """Return the acts that lead from what stands here to what stands by the board.

        is_first: stored orders that are on the board are carried out again, and answered.
        """
        after = self._desired(newest, at)
        changes = standing_rules.standing_changes(self._applied.values(), after, at=at)
        effects: list[FleetEffect] = []
        for ended in changes.ended:
            effects += self._end(ended, newest, revoked, at)
        held = {one.subject: one for one in self._in_force}
        self._applied = {one.subject: one for one in after}
        begun = after if is_first else (*changes.begun, *changes.extended)
        effects += self._begin(begun, held, newest, at)
        for stuck in [one for one in self._stuck_here if one.until <= at]:
            del self._stuck[stuck.subject]
            effects.append(Undo(order=stuck, text=f"released at its end: {stuck}"))
        return effects

    @property
    def _stuck_here(self) -> tuple[StandingFleetOrder, ...]:
        """Return what stays in force until its end, whatever the newer order said."""
        return tuple(one for subject, one in self._stuck.items() if subject not in self._awaited)

    def _holds(self, subject: Subject) -> bool:
        """Return whether an order of the fleet stands and is in force here."""
        one = self._applied.get(subject)
        return one is not None and (subject in self._stuck or self._released.get(subject) != one.order_id)

    def _end(
        self, ended: standing_rules.Ended, newest: dict[Subject, NewestOrder], revoked: set[Subject], at: float
    ) -> list[FleetEffect]:
        order, later = ended.order, newest.get(ended.order.subject)
        revokes = later is not None and later.text.id != order.order_id and not later.verb.stands
        if self._released.pop(order.subject, None) == order.order_id:
            if not revokes or order.subject in revoked or order.subject not in self._stuck:
                return []
            order = self._stuck.pop(order.subject)
        if order.subject in revoked:  # its order is being carried out
            self._stuck[order.subject] = order
            return []
        is_void = later is None and at < order.until
        text = f"released, because it does not count any more: {order}" if is_void else ended.text
        return [Undo(order=order, text=text, answers=later.text.id if revokes and later is not None else "")]

    def _begin(
        self, begun: Iterable[StandingFleetOrder], held: Standing, newest: dict[Subject, NewestOrder], at: float
    ) -> list[FleetEffect]:
        """Carry out what begins. held: what was in force before, and stays so if the guard refuses."""
        effects: list[FleetEffect] = []
        by_number: dict[int, list[StandingFleetOrder]] = {}
        for one in begun:
            on_board = newest.get(one.subject)
            is_on_board = on_board is not None and on_board.order.number == one.number
            if self._released.get(one.subject) == one.order_id:
                effects += self._still_released(one) if is_on_board else []
                continue
            self._released.pop(one.subject, None)
            if is_on_board:
                by_number.setdefault(one.number, []).append(one)
                self._replace(one, held.get(one.subject))
            elif (one.subject, one.order_id) not in self._taken_up:
                self._taken_up.add((one.subject, one.order_id))
                effects.append(TakeUp(order=one))
        for number, ones in sorted(by_number.items()):
            order = newest[ones[0].subject].order
            self._note(ones[0].order_id, number, ones[0].until)
            effects.append(
                CarryOut(
                    order=self._log.document(number),
                    number=number,
                    by=order.by,
                    fingerprint=getattr(order.signer, "fingerprint", ""),
                    targets=tuple(one.target for one in ones if one.target),
                    late=standing_rules.late(ones[0], at=at),
                )
            )
        return effects

    def _replace(self, order: StandingFleetOrder, held: StandingFleetOrder | None) -> None:
        if held is not None:
            self._stuck[order.subject] = held
        if order.subject in self._stuck:
            self._awaited[order.subject] = order.order_id

    def _still_released(self, order: StandingFleetOrder) -> list[FleetEffect]:
        self._note(order.order_id, order.number, order.until)
        text = "not in force here: released or refused before this engine started"
        return [AnswerOrder(order_id=order.order_id, number=order.number, outcome=Outcome.REFUSED, text=text)]

    @property
    def _in_force(self) -> tuple[StandingFleetOrder, ...]:
        return standing_rules.in_force(self._applied.values(), self._released)

    @property
    def differences(self) -> tuple[str, ...]:
        """Return how this engine differs from what stands on the board."""
        return standing_rules.differing(self._applied.values(), self._released, self._how)

    # -- results --------------------------------------------------------------------------------------------------

    def note_outcome(self, order_id: str, outcome: Outcome, not_held: tuple[str, ...]) -> None:
        """Note the result of a CarryOut: of targets that are not held, only what held before is undone at its end."""
        targets = {target.casefold() for target in not_held}
        self._awaited = {subject: one for subject, one in self._awaited.items() if one != order_id}
        for subject, one in self._applied.items():
            if one.order_id != order_id:
                continue
            if one.target.casefold() in targets:
                self._released[subject] = order_id
                self._how.pop(subject, None)
            else:
                self._stuck.pop(subject, None)
        found = self._found.get(order_id)
        if found is not None and outcome is Outcome.DONE:
            revoked = next((one for one in self._log.orders if one.number == found[0]), None)
            for subject in revoked.subjects if revoked is not None else ():
                self._stuck.pop(subject, None)

    def note_local(self, subjects: tuple[Subject, ...], how: str = "") -> None:
        """Note that a local operator gave an order about these subjects: the fleet's is not in force here."""
        for subject in subjects:
            self._stuck.pop(subject, None)
            if subject in self._applied:
                self._released[subject], self._how[subject] = self._applied[subject].order_id, how

    def _note(self, order_id: str, number: int, ends_at: float) -> None:
        self._found[order_id] = (number, ends_at)
        while len(self._found) > MAX_ACTED:
            self._found.pop(next(iter(self._found)))

    def read_answer(self, post: Posted) -> None:
        """Read an engine's answer."""
        self._answers.read(post)

    def find(self, order_id: str) -> tuple[int, float] | None:
        """Return the number and the end of an order that counted here."""
        return self._found.get(order_id)

    def orders(self, engines: tuple[FleetEngine, ...], at: float) -> tuple[FleetOrder, ...]:
        """Return the orders for screens."""
        del at
        return self._answers.views(self._log.shown, engines)

    @property
    def kept(self) -> KeptOrders:
        """Return what the next engine needs."""
        released = {key: one for key, one in self._released.items() if key in self._applied}
        how = {key: one for key, one in self._how.items() if key in released}
        return KeptOrders(
            standing=tuple(self._applied.values()),
            released=tuple(sorted(released.items())),
            how=tuple(sorted(how.items())),
        )

    @property
    def is_read(self) -> bool:
        """Return whether the board was read to its end."""
        return self._was_whole

    @property
    def standing(self) -> tuple[str, ...]:
        """Return the ids of the orders in force here."""
        return tuple(dict.fromkeys(one.order_id for one in sorted(self._in_force, key=lambda one: one.number)))

    @property
    def newest(self) -> int:
        """Return the number of the newest order read."""
        return self._log.newest if self._old == inf else max(self._log.newest, int(self._old))

    @property
    def next_deadline(self) -> float | None:
        """Return the time of the next alarm or end."""
        times = [one.until for one in (*self._applied.values(), *self._stuck_here)]
        alarm = standing_rules.next_deadline(self._in_force, at=self._at)
        return min((*times, *(() if alarm is None else (alarm,))), default=None)
