"""Deliberate mistakes in the rules of the fleet, to show that the checks can fail. Shipped code knows none of them.

Each must be caught within `WITHIN` seeds; the rules as shipped must pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from paired_servicebus.core.fleet import pace
from paired_servicebus.core.fleet.board.board_reader import BoardReader, LookResult
from paired_servicebus.core.fleet.fleet_documents import Outcome, Signer, Subject
from paired_servicebus.core.fleet.fleet_events import BoardRead, FleetEffect
from paired_servicebus.core.fleet.orders import order_answers, order_book, order_rules
from paired_servicebus.core.fleet.orders.order_answers import Tally
from paired_servicebus.core.fleet.orders.order_book import KeptOrders, OrderBook
from paired_servicebus.core.fleet.orders.order_rules import BoardOrder, Counts, ReadOrder, Rule
from tests.simulation.planted_bugs.bug import Patch

WITHIN: Final = 200
"""Seeds."""


@dataclass(frozen=True, slots=True)
class FleetBug:
    """A mistake in one sentence, and the patches that make it.

    rare: a seed that catches a mistake which few seeds meet; it is tried first.
    """

    what: str
    patches: tuple[Patch, ...]
    rare: int = 1

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Apply the patches."""
        with ExitStack() as stack:
            for patch in self.patches:
                stack.enter_context(patch.applied())
            yield


shipped_decide: Final = OrderBook._decide
shipped_judge: Final = order_book.OrderLog.judge
shipped_tally: Final = order_answers.tally
shipped_verdict: Final = order_rules.verdict
shipped_order_end: Final = order_rules.order_end
shipped_bounded: Final = pace._bounded


def _without(rule: Rule) -> tuple[Any, ...]:
    return tuple(row for row in order_rules.BOARD_RULES if row[0] is not rule)


def anyone_signs(self: order_book.OrderLog, read: ReadOrder) -> BoardOrder:
    return shipped_judge(self, replace(read, signer=Signer(by="anyone", fingerprint="")))


def one_shots_never_end(order: BoardOrder, **now: Any) -> Any:
    found = shipped_verdict(order, **{**now, "at": order.enqueued_at})
    return replace(found, acts=True) if isinstance(found, Counts) else found


def ends_early(*given: Any) -> float:
    return shipped_order_end(*given) - 45.0


def few_bounds(seconds: float, least: float) -> float:
    return shipped_bounded(seconds, least / 8)


def stores_nothing(self: OrderBook) -> KeptOrders:
    return KeptOrders()


def forgets_local_releases(self: OrderBook) -> KeptOrders:
    return KeptOrders(standing=tuple(self._applied.values()))


def ignores_local_operators(self: OrderBook, subjects: tuple[Subject, ...], how: str = "") -> None:
    del self, subjects, how


def reset_forgets(self: OrderBook) -> None:
    self._carried.clear()
    self._pending.clear()
    self._log.clear()


def acts_before_start(self: OrderBook, order: BoardOrder) -> bool:
    del self, order
    return True


def never_finds_another_queue(self: BoardReader, event: BoardRead, asked_at: float) -> LookResult:
    del event
    self._is_check, self._sure = False, asked_at
    return LookResult()


def silent_is_done(*given: Any) -> Tally:
    found = shipped_tally(*given)
    return replace(found, done=(*found.done, *(name for name, _ in found.silent)), silent=())


def any_boot_answers(text: Any, number: int, expected: Any, answers: Any) -> Tally:
    boots = {one.name.casefold(): one.boot for one in expected.engines}
    renamed = [
        replace(one, author=replace(one.author, boot=boots.get(one.author.engine.casefold(), one.author.boot)))
        for one in answers
    ]
    return shipped_tally(text, number, expected, renamed)


def refused_holds(self: OrderBook, order_id: str, outcome: Outcome, not_held: tuple[str, ...]) -> None:
    del self, order_id, outcome, not_held


def no_end(self: OrderBook, ended: Any, *others: Any) -> list[FleetEffect]:
    del self, ended, others
    return []


def _bug(what: str, owner: Any, name: str, value: Any, *, rare: int = 1) -> FleetBug:
    return FleetBug(what, (Patch(owner, name, value),), rare)


FLEET_BUGS: Final = (
    _bug("an order of any key counts", order_book.OrderLog, "judge", anyone_signs),
    _bug("a copy that was posted later counts", order_rules, "BOARD_RULES", _without(Rule.FRESH), rare=9),
    _bug("an id that is on the board already counts", order_rules, "BOARD_RULES", _without(Rule.FIRST)),
    _bug("an order on top of an older state counts", order_rules, "BOARD_RULES", _without(Rule.OVERTAKEN), rare=5),
    _bug("an order of another pairing counts", order_rules, "BOARD_RULES", _without(Rule.FORM)),
    _bug("an order that is late is done", order_rules, "verdict", one_shots_never_end, rare=13),
    _bug("an order is for every engine", order_rules, "is_meant", lambda *_: True),
    _bug("what was ordered before a boot is done again", OrderBook, "_is_new", acts_before_start, rare=4),
    _bug("what stands is not stored", OrderBook, "kept", property(stores_nothing), rare=14),
    _bug("a boot takes up what was released before it", OrderBook, "kept", property(forgets_local_releases), rare=11),
    _bug("a local order does not end an order of the fleet", OrderBook, "note_local", ignores_local_operators, rare=54),
    _bug("a deleted board ends what stands", OrderBook, "reset", reset_forgets),
    _bug("a board that was created again is not found", BoardReader, "_checked", never_finds_another_queue, rare=21),
    _bug("an ended order is not undone", OrderBook, "_end", no_end),
    _bug("a refused order counts as held", OrderBook, "note_outcome", refused_holds, rare=11),
    _bug("an order ends early", order_rules, "order_end", ends_early),
    _bug("a silent engine has done it", order_answers, "tally", silent_is_done),
    _bug("an answer counts for every boot", order_answers, "tally", any_boot_answers, rare=20),
    _bug("a watch has hardly any bounds", pace, "_bounded", few_bounds, rare=6),
)
