"""One engine's orders that meet others: refused ones, late ones, and those of a board that was created again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.approval import Approve

from paired_servicebus.core.fleet.fleet_documents import Outcome
from paired_servicebus.core.fleet.fleet_events import AnswerOrder, CarryOut, FleetEffect, TakeUp, Undo
from paired_servicebus.core.fleet.orders.order_book import KeptOrders, OrderBook

from .test_order_book import FORCE, KEPT, RELEASE, T0, book, feed, kinds, post


def refuse(one: OrderBook, order_id: str, at: float) -> list[FleetEffect]:
    """The guard refuses an order about payments; the effects of the next step."""
    one.note_outcome(order_id, Outcome.REFUSED, ("payments",))
    return list(one.step(at))


@pytest.mark.parametrize("verb", ["force", "pin"])
def test_an_order_that_was_refused_here_leaves_the_end_of_the_one_before_it(verb: str) -> None:
    """A read-only engine refuses what follows, and what holds there still has an end."""
    one = book()
    feed(one, post(FORCE, 10), at=T0 + 1)
    one.note_outcome("o1", Outcome.DONE, ())
    longer = replace(FORCE, id="o2", verb=verb, issued_at=T0 + 1000, on_top_of=10)
    assert kinds(feed(one, post(longer, 12), at=T0 + 1001)) == [CarryOut]
    assert refuse(one, "o2", T0 + 1002) == []
    assert one.next_deadline == T0 + 3600
    (undo,) = one.step(T0 + 3600)
    assert isinstance(undo, Undo)
    assert undo.order.order_id == "o1"
    assert one.step(T0 + 4600) == ()


def test_an_order_that_was_taken_up_and_refused_later_still_has_its_end() -> None:
    one = book(read=False, kept=KeptOrders(standing=(KEPT,)))
    assert kinds(list(one.step(T0 + 100))) == [TakeUp]
    assert kinds(feed(one, post(FORCE, 10), at=T0 + 102)) == [CarryOut]
    assert refuse(one, "o1", T0 + 103) == []
    assert kinds(list(one.step(T0 + 3600))) == [Undo]


def test_the_end_of_the_one_before_waits_for_the_result_of_its_extension() -> None:
    one = book()
    feed(one, post(FORCE, 10), at=T0 + 1)
    longer = replace(FORCE, id="o2", issued_at=T0 + 3590, on_top_of=10)
    assert kinds(feed(one, post(longer, 12), at=T0 + 3599)) == [CarryOut]
    assert one.step(T0 + 3601) == ()
    one.note_outcome("o2", Outcome.DONE, ())
    assert one.step(T0 + 3602) == ()
    assert one.standing == ("o2",)


def test_a_late_release_ends_what_holds_beside_a_refused_extension() -> None:
    one = book()
    feed(one, post(FORCE, 10), at=T0 + 1)
    feed(one, post(replace(FORCE, id="o2", issued_at=T0 + 10, on_top_of=10), 11), at=T0 + 11)
    refuse(one, "o2", T0 + 12)
    (undo,) = feed(one, post(replace(RELEASE, on_top_of=11), 12), at=T0 + 3000)
    assert isinstance(undo, Undo)
    assert (undo.order.order_id, undo.answers) == ("o1", "r1")


def test_a_late_release_of_what_was_refused_here_is_answered(approve: Approve) -> None:
    one = book()
    feed(one, post(FORCE, 10), at=T0 + 1)
    refuse(one, "o1", T0 + 2)
    (answer,) = feed(one, post(RELEASE, 11), at=T0 + 3000)
    assert isinstance(answer, AnswerOrder)
    approve.part(answer.text, "rules of orders")


def test_an_order_with_the_number_of_another_on_the_board_before_is_carried_out() -> None:
    one = book()
    feed(one, post(FORCE, 10), at=T0 + 1)
    one.reset()
    assert kinds(feed(one, post(replace(FORCE, id="o2", issued_at=T0 + 500), 10), at=T0 + 501)) == [CarryOut]


def test_a_release_that_is_read_after_a_newer_order_does_not_end_it(approve: Approve) -> None:
    """A board was created again and is read from its beginning only now."""
    one = book()
    force = replace(FORCE, on_top_of=11)
    feed(one, post(force, 12), at=T0 + 1)
    one.reset()
    (answer,) = feed(one, post(replace(RELEASE, issued_at=T0 - 20), 11), post(force, 12), at=T0 + 2)
    assert isinstance(answer, AnswerOrder)
    approve.part(answer.text, "rules of orders", has=("12 before",))


def test_a_late_release_with_the_number_of_what_it_revokes_is_answered() -> None:
    one = book()
    feed(one, post(FORCE, 10), at=T0 + 1)
    one.reset()
    (undo,) = feed(one, post(replace(RELEASE, on_top_of=0), 10), at=T0 + 3000)
    assert isinstance(undo, Undo)
    assert undo.answers == "r1"


def test_a_deleted_board_ends_nothing_after_the_clock_was_ahead_for_a_while() -> None:
    """A host's clock was set: until the next evidence its engine took a later time for the namespace's."""
    one = book()
    feed(one, post(FORCE, 10), at=T0 + 1)
    one.step(T0 + 4000)
    assert kinds(feed(one, at=T0 + 10)) == [CarryOut]
    one.reset()
    assert feed(one, at=T0 + 20) == []
    assert one.standing == ("o1",)
