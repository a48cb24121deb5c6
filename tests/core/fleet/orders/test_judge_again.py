"""The signers changed while an engine runs: the orders on the board are judged again, and none is done twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.approval import Approve
from tests.core.fleet.fleet_world import START, author, snapshot

from paired_servicebus.core.fleet.board.board_reader import BoardReader, NamespaceClock
from paired_servicebus.core.fleet.fleet_documents import Board, OrderText, Outcome, Posted, Unverified
from paired_servicebus.core.fleet.fleet_events import AnswerOrder, BoardRead, CarryOut, OwnState, SignersChanged, Undo
from paired_servicebus.core.fleet.fleet_events import ReadBoard as Reading
from paired_servicebus.core.fleet.fleet_member import FleetMember, Identity
from paired_servicebus.core.fleet.orders.order_book import KeptOrders, OrderBook

from .test_order_book import FORCE, KEPT, REDRIVE, RELEASE, SIGNER, T0, book, feed, kinds, post

REMOVED = Unverified(why="its key SHA256:x is not in the file of operators")
UNREADABLE = Unverified(why="look only: the file cannot be read", is_unknown=True)


def judged_again(one: OrderBook, *posts: Posted, at: float) -> list[Any]:
    one.judge_again()
    return [*one.step(at), *feed(one, *posts, at=at)]


def test_an_order_of_a_removed_operator_is_released_and_answered_by_the_reason(approve: Approve) -> None:
    one = book()
    feed(one, post(FORCE, 10), at=T0 + 1)
    answer, undo = judged_again(one, post(FORCE, 10, signer=REMOVED), at=T0 + 2)
    assert answer == AnswerOrder(order_id="o1", number=10, outcome=Outcome.REFUSED, text=REMOVED.why)
    assert isinstance(undo, Undo)
    approve.part(undo.text, "rules of orders")
    assert one.standing == ()


@pytest.mark.parametrize("text", [FORCE, REDRIVE, replace(RELEASE, on_top_of=0, issued_at=T0)])
def test_an_order_of_an_operator_who_stays_is_not_carried_out_again(text: OrderText) -> None:
    one = book()
    assert kinds(feed(one, post(text, 10), at=T0 + 1)) == [CarryOut]
    assert judged_again(one, post(text, 10), at=T0 + 2) == []
    assert judged_again(one, post(text, 10), at=T0 + 3) == []
    assert one.standing == (("o1",) if text is FORCE else ())


def test_what_stands_by_an_added_operator_is_taken_up() -> None:
    one = book()
    feed(one, post(FORCE, 10, signer=REMOVED), at=T0 + 1)
    assert one.standing == ()
    assert kinds(judged_again(one, post(FORCE, 10), at=T0 + 2)) == [CarryOut]
    assert one.standing == ("o1",)


def test_what_is_done_once_is_refused_if_its_signer_is_added_afterwards(approve: Approve) -> None:
    one = book()
    feed(one, post(REDRIVE, 10, signer=REMOVED), at=T0 + 1)
    (answer,) = judged_again(one, post(REDRIVE, 10), at=T0 + 2)
    approve.part(answer.text, "rules of orders")


def test_an_order_that_was_posted_after_the_change_is_done() -> None:
    one = book()
    feed(one, post(FORCE, 10), at=T0 + 1)
    assert kinds(judged_again(one, post(FORCE, 10), post(REDRIVE, 11), at=T0 + 2)) == [CarryOut]


def test_what_stands_is_in_force_until_the_board_is_read_again() -> None:
    one = book()
    feed(one, post(FORCE, 10), at=T0 + 1)
    one.judge_again()
    assert one.step(T0 + 2) == ()
    assert (one.standing, one.newest, one.is_read) == (("o1",), 10, False)
    assert one.read((post(FORCE, 10, signer=REMOVED),), T0 + 2, is_whole=False) == ()
    assert one.standing == ("o1",)


def test_a_start_with_an_unusable_file_keeps_what_the_engine_before_stored() -> None:
    """An unusable file proves no removal."""
    one = book(read=False, kept=KeptOrders(standing=(KEPT,)))
    one.step(T0 + 10)
    feed(one, post(FORCE, 10, signer=UNREADABLE), at=T0 + 11)
    assert one.standing == ("o1",)
    assert kinds(judged_again(one, post(FORCE, 10, signer=REMOVED), at=T0 + 12)) == [AnswerOrder, Undo]


@pytest.mark.parametrize(("signers", "since"), [("h2", 1), ("", None), ("h1", None)])
def test_a_member_reads_the_board_again_only_if_the_verdicts_may_differ(signers: str, since: int | None) -> None:
    member = FleetMember(Identity(author=author("web-1"), signers="h1"), orders=book(read=False))
    effects = member.step(OwnState(at=START, snapshot=snapshot("web-1")))
    (first,) = [one for one in effects if isinstance(one, Reading)]
    page = (post(FORCE, 7, at=START, signer=SIGNER),)
    member.step(BoardRead(at=START, board=first.board, since=1, posts=page, is_end=True))
    found = [one for one in member.step(SignersChanged(at=START + 1, signers=signers)) if isinstance(one, Reading)]
    assert [one.since for one in found] == ([since] if since else [])


@pytest.mark.parametrize(("signers", "takes"), [("h2", "signed orders"), ("", "look only")])
def test_presence_follows_the_file(signers: str, takes: str) -> None:
    member = FleetMember(Identity(author=author("web-1"), signers="h1"), orders=book(read=False))
    own = OwnState(at=START, snapshot=snapshot("web-1"))
    member.step(own)
    effects = [*member.step(SignersChanged(at=START + 60, signers=signers)), *member.step(replace(own, at=START + 61))]
    (presence,) = [one.document for one in effects if hasattr(one, "document")]
    assert (presence.signers, presence.takes.value) == (signers, takes)


def test_a_reader_that_starts_again_counts_what_it_skips_once() -> None:
    reader = BoardReader(Board.ORDERS, NamespaceClock())
    foreign = Posted(number=1, enqueued_at=START, ends_at=START + 60, document=None)
    counts = []
    for page in ((foreign,), (foreign, replace(foreign, number=2))):
        asked = reader.look(START)
        counts.append(
            reader.read(BoardRead(at=START, board=asked.board, since=asked.since, posts=page, is_end=True)).skipped
        )
        reader.restart()
    assert counts == [1, 1]
