"""Deliberate mistakes in the rules of the fleet, to show that the checks can fail. Shipped code knows none of them.

Each must be caught within `WITHIN` seeds; the rules as shipped must pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf
from typing import Any, Final

from paired_servicebus.core.fleet import engine_orders, fleet_documents, order_answers, order_rules, pace
from paired_servicebus.core.fleet.board_reader import BoardReader, CountingPosts, LookResult
from paired_servicebus.core.fleet.engine_orders import EngineOrders, Kept, Register, SeenOrder
from paired_servicebus.core.fleet.fleet_documents import (
    Order,
    OrderRow,
    Outcome,
    Posted,
    Signer,
    StandingFleetOrder,
    Subject,
)
from paired_servicebus.core.fleet.fleet_events import BoardRead, FleetEffect, OrderEnded
from paired_servicebus.core.fleet.order_rules import Rule
from paired_servicebus.core.model.fleet_view import FleetView
from paired_servicebus.core.operator import fleet_question
from tests.simulation.planted_bugs.bug import Bug, Patch

shipped_newest: Final = Register.newest
shipped_kept: Final[Callable[[EngineOrders], Kept]] = EngineOrders.kept.fget  # type: ignore[attr-defined]
shipped_standing: Final = EngineOrders._standing
shipped_outcome: Final = EngineOrders.note_outcome
shipped_read_orders: Final = EngineOrders.read_orders
shipped_view: Final = order_answers._view
shipped_answers: Final = EngineOrders._answers
shipped_bounded: Final = pace._bounded
shipped_see: Final = EngineOrders.see
shipped_to_take_up: Final = engine_orders.to_take_up


shipped_board_unread: Final = EngineOrders.board_unread


def _without(rule: Rule) -> tuple[Any, ...]:
    return tuple(row for row in order_rules.RULES if row[0] is not rule)


def anyone_signs(self: EngineOrders, post: Posted, order: Order) -> None:
    self.see(order, Signer(by="anyone", fingerprint=""), post.enqueued_at)


def no_release_is_newest(self: Register, engine: str) -> dict[Subject, SeenOrder]:
    return {key: one for key, one in shipped_newest(self, engine).items() if self.verb(one).stands}


def takes_no_release_in(self: EngineOrders, order: Order, signer: Signer, first_at: float) -> Any:
    is_release = order.text.verb in ("release", "read-write", "resume-syphon")
    return None if is_release else shipped_see(self, order, signer, first_at)


def _keeps(**changes: Any) -> property:
    def kept(self: EngineOrders) -> Kept:
        return replace(shipped_kept(self), **changes)

    return property(kept)


def keeps_no_release(self: EngineOrders) -> Kept:
    kept = shipped_kept(self)
    return replace(kept, seen=tuple(one for one in kept.seen if '"verb":"re' not in one.order.signed))


def informed_by_orders_alone(self: EngineOrders) -> None:
    if self._is_new and self._orders_end:
        self._is_new = False
        self._changed()


def reads_no_carried_order(self: EngineOrders, posts: Any, now: float, *, is_whole: bool) -> None:
    del posts, now
    self._reports_end |= is_whole
    self._note_informed()


def every_page_is_the_last(self: EngineOrders, posts: Iterable[Posted], *, is_whole: bool) -> None:
    del is_whole
    shipped_read_orders(self, posts, is_whole=True)


def ignores_local_operators(self: EngineOrders, subjects: tuple[Subject, ...], how: str, at: float) -> None:
    del self, subjects, how, at


def over_orders_begin(self: EngineOrders, subject: Subject, one: SeenOrder, at: float) -> str:
    del self, subject, one, at
    return ""


def no_end(self: EngineOrders, at: float) -> list[FleetEffect]:
    del self, at
    return []


def ends_early(self: EngineOrders, one: SeenOrder, subject: Subject) -> StandingFleetOrder:
    found = shipped_standing(self, one, subject)
    return replace(found, until=found.until - 45.0)


def ends_late(self: EngineOrders, one: SeenOrder, subject: Subject) -> StandingFleetOrder:
    found = shipped_standing(self, one, subject)
    return replace(found, until=found.until + 400.0)


def refused_holds(self: EngineOrders, ended: OrderEnded) -> None:
    outcome = Outcome.DONE if ended.outcome is Outcome.REFUSED else ended.outcome
    shipped_outcome(self, replace(ended, outcome=outcome, not_held=()))


def holds_nothing(self: EngineOrders, subject: Subject, one: SeenOrder) -> None:
    del self, subject, one


def never_finds_another_queue(self: BoardReader, event: BoardRead, asked_at: float) -> LookResult:
    del event
    self._search, self._sure = "", asked_at
    return LookResult()


def local_operators_are_overtaken(self: EngineOrders, subject: Subject, one: SeenOrder, at: float) -> str:
    del self, subject
    return "its time is over" if one.text.until <= at else "" if one.counts else "no right"


def reset_forgets(self: EngineOrders) -> None:
    shipped_board_unread(self)
    self._register = Register(self.verbs)


def keeps_the_right(self: Register, verdicts: Any) -> bool:
    del self, verdicts
    return False


def takes_up_all(kept: Kept, *, engine: str, verbs: Any, at: float) -> tuple[StandingFleetOrder, ...]:
    del engine, verbs
    return tuple(one for one in kept.applied if one.until > at)


def takes_up_what_is_over(kept: Kept, *, engine: str, verbs: Any, at: float) -> tuple[StandingFleetOrder, ...]:
    del at
    return shipped_to_take_up(kept, engine=engine, verbs=verbs, at=-inf)


def silent_is_done(*given: Any) -> Any:
    found = shipped_view(*given)
    return replace(found, done=(*found.done, *(name for name, _ in found.silent)), silent=())


def silent_is_left_out(*given: Any) -> Any:
    return replace(shipped_view(*given), silent=(), unnamed=0)


def always_done(self: EngineOrders) -> tuple[OrderRow, ...]:
    return tuple(replace(row, outcome=Outcome.DONE) for row in shipped_answers(self))


def answers_nothing(self: EngineOrders) -> tuple[OrderRow, ...]:
    del self
    return ()


def all_is_old(self: CountingPosts, now: float, wanted: frozenset[str]) -> float:
    del self, now, wanted
    return inf


def few_bounds(seconds: float, least: float) -> float:
    return shipped_bounded(seconds, least / 8)


def issued_before_all(view: FleetView, verb: Any, command: Any, now: float) -> float:
    del verb, command
    return min([now, *(one.at - 1.0 for one in view.orders)])


def _age(key: Any) -> property:
    return property(lambda self: (key(self), self.order.id))


def _bug(what: str, owner: Any, name: str, value: Any, *, rare: int = 1) -> Bug:
    return Bug(what, patches=(Patch(owner, name, value),), rare=rare)


FLEET_BUGS: Final = (
    _bug("an order of any key counts", EngineOrders, "_read", anyone_signs),
    _bug("an order of another pairing counts", order_rules, "RULES", _without(Rule.FORM)),
    _bug("a key signs after its end", order_rules, "RULES", _without(Rule.KEY)),
    _bug("an order from the future counts", order_rules, "RULES", _without(Rule.FUTURE)),
    _bug("an order stands for as long as it says", order_rules, "_wrong_end", lambda *_: ""),
    _bug("an order is for every engine", fleet_documents, "is_meant", lambda *_: True),
    _bug("the oldest order wins", SeenOrder, "age_key", _age(lambda one: -one.text.issued_at)),
    _bug("the order that was read last wins", SeenOrder, "age_key", _age(lambda one: one.first_at)),
    _bug("an order to one engine replaces those to all", engine_orders, "_uncovered", lambda seen: tuple(seen)[:1]),
    _bug("a release replaces nothing", Register, "newest", no_release_is_newest),
    _bug("a release is not kept in memory", EngineOrders, "see", takes_no_release_in),
    _bug("what can still be replaced is forgotten", engine_orders, "ORDER_SECONDS", 60.0),
    _bug("what was seen is not kept", EngineOrders, "kept", _keeps(seen=())),
    _bug("releases are not kept", EngineOrders, "kept", property(keeps_no_release)),
    _bug("what is in force is not kept", EngineOrders, "kept", _keeps(applied=())),
    _bug("an order acts before the disk has it", EngineOrders, "_acts_on", lambda *_: True),
    _bug("an order acts before the end of the board", EngineOrders, "is_informed", property(lambda _: True)),
    _bug("every page is the last", EngineOrders, "read_orders", every_page_is_the_last),
    _bug("a new engine reads the orders alone", EngineOrders, "_note_informed", informed_by_orders_alone),
    _bug("carried orders are not read", EngineOrders, "read_reports", reads_no_carried_order),
    _bug("a local order does not end an order of the fleet", EngineOrders, "note_local", ignores_local_operators),
    _bug("an order that is over begins", EngineOrders, "_why_not", over_orders_begin),
    _bug("an ended order is not undone", EngineOrders, "_ends", no_end),
    _bug("an order ends early", EngineOrders, "_standing", ends_early),
    _bug("an order ends late", EngineOrders, "_standing", ends_late),
    _bug("a refused order counts as held", EngineOrders, "note_outcome", refused_holds),
    _bug("what is done is not noted", EngineOrders, "_hold", holds_nothing),
    _bug("every boot is informed", EngineOrders, "kept", _keeps(is_informed=True)),
    _bug("presences carry no order", Register, "carried", lambda _: ()),
    _bug("an older order overtakes a local one", EngineOrders, "_why_not", local_operators_are_overtaken),
    _bug("a board that is made anew is a new fleet", EngineOrders, "board_unread", reset_forgets),
    _bug("a signer keeps the right that he lost", Register, "judge_again", keeps_the_right, rare=51),
    _bug("a boot takes up what was replaced", engine_orders, "to_take_up", takes_up_all),
    _bug("a boot takes up what is over", engine_orders, "to_take_up", takes_up_what_is_over),
    _bug("a board that was created again is not found", BoardReader, "_checked", never_finds_another_queue),
    _bug("a silent engine has done it", order_answers, "_view", silent_is_done),
    _bug("a silent engine is left out", order_answers, "_view", silent_is_left_out),
    _bug("a refusal is shown as done", EngineOrders, "_answers", always_done),
    _bug("no order is answered", EngineOrders, "_answers", answers_nothing),
    _bug("a cleaning deletes what counts", CountingPosts, "oldest", all_is_old),
    _bug("a watch has hardly any bounds", pace, "_bounded", few_bounds, rare=6),
    _bug("an order is issued before those that it shall replace", fleet_question, "_issue", issued_before_all),
)
