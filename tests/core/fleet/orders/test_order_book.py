"""One engine's orders: what it carries out, what stands, what it undoes, and what it answers (FLEET.md section 5)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.approval import Approve
from tests.core.fleet.board_log import judge_log, standing_set
from tests.fleet_views import AT, engine

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.fleet.fleet_documents import (
    MAX_BYTES,
    MAX_SIGNED_BYTES,
    Author,
    Order,
    OrderAnswer,
    OrderText,
    Outcome,
    Posted,
    Signer,
    StandingFleetOrder,
    Unverified,
)
from paired_servicebus.core.fleet.fleet_events import AnswerOrder, CarryOut, FleetEffect, Say, TakeUp, Undo
from paired_servicebus.core.fleet.orders.order_book import MAX_REFUSALS, KeptOrders, OrderBook
from paired_servicebus.core.fleet.orders.order_draft import OrderDraft, draft_order
from paired_servicebus.core.fleet.orders.order_rules import ReadOrder, ThisEngine, to_type
from paired_servicebus.core.fleet.orders.order_text import decode_order_text, encode_order_text
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetView, Takes
from paired_servicebus.core.operator.actions import FLEET_VERBS
from paired_servicebus.engine.control.protocol import MAX_CLIENT_LINE_BYTES, PostOrder, encode
from paired_servicebus.engine.fleet.board_codec import write_body

T0 = 1_800_000_000.0
ME = ThisEngine(name="web-1", primary="p.example", secondary="s.example")
SIGNER = Signer(by="operator-a", fingerprint="SHA256:x")
FORCE = OrderText(
    id="o1", primary="p.example", secondary="s.example", verb="force", scope="entity", targets=("payments",),
    engines=("web-1", "web-2"), typed="2", why="drill", issued_at=T0, act_within=300.0, stands_for=3600.0,
    on_top_of=0, seen=(("web-1", "healthy"), ("web-2", "healthy")),
)  # fmt: skip
RELEASE = replace(FORCE, id="r1", verb="release", stands_for=None, on_top_of=10, issued_at=T0 + 60)
REDRIVE = replace(
    FORCE, id="d1", verb="redrive", scope="queue", targets=("0",), engines=("web-1",), typed="0", stands_for=None
)
PAYMENTS = ("entity", "entity", "payments")


def post(text: OrderText, number: int, *, at: float | None = None, signer: Any = SIGNER) -> Posted:
    at = text.issued_at if at is None else at
    order = Order(text=text, signed=encode_order_text(text), signature="s")
    return Posted(number=number, enqueued_at=at, ends_at=at + 1e6, document=order, signer=signer)


def book(*, read: bool = True, kept: KeptOrders | None = None, expect: Any = None) -> OrderBook:
    """An engine's; read: it runs since before the orders."""
    one = OrderBook(engine=ME, verbs=FLEET_VERBS, kept=kept, expect=expect)
    if read:
        assert one.read((), T0 - 1, is_whole=True) == ()
    return one


def feed(one: OrderBook, *posts: Posted, at: float) -> list[FleetEffect]:
    return [*one.read(posts, at, is_whole=True), *one.step(at)]


def kinds(effects: list[FleetEffect]) -> list[type]:
    return [type(one) for one in effects]


def test_an_order_that_counts_is_carried_out_by_the_signer() -> None:
    """`by` is not in it: the engine writes the principal of the key that verified, and its fingerprint."""
    one = book()
    (effect,) = feed(one, post(FORCE, 10), at=T0 + 5)
    assert isinstance(effect, CarryOut)
    assert (effect.number, effect.by, effect.fingerprint) == (10, "operator-a", "SHA256:x")
    assert effect.targets == ("payments",)
    assert effect.late == ""
    assert one.standing == ("o1",)
    assert one.newest == 10
    assert one.find("o1") == (10, T0 + 3600)
    assert feed(one, post(FORCE, 10), at=T0 + 6) == []


def test_nothing_is_decided_before_the_end_of_the_board(approve: Approve) -> None:
    one = book()
    assert one.read((post(FORCE, 10),), T0 + 90, is_whole=False) == ()
    effects = feed(one, post(RELEASE, 11), at=T0 + 90)
    assert kinds(effects) == [AnswerOrder, CarryOut]
    answer, done = effects
    assert isinstance(answer, AnswerOrder)
    approve.part(answer.text, "rules of orders", has=("11 before",))
    assert isinstance(done, CarryOut)
    assert done.order.id == "r1"
    assert one.standing == ()


def test_thirty_and_five_minutes_before_the_end_an_alarm_at_the_end_a_release(approve: Approve) -> None:
    one = book()
    feed(one, post(FORCE, 10), at=T0 + 1)
    assert one.next_deadline == T0 + 1800
    (early,) = one.step(T0 + 1800)
    (late,) = one.step(T0 + 3300)
    assert isinstance(early, Say)
    assert isinstance(late, Say)
    assert early.about == late.about == "alarm"
    approve.part(early.text, "rules of orders", has=("30 min",))
    assert one.next_deadline == T0 + 3600
    (undo,) = one.step(T0 + 3600)
    assert isinstance(undo, Undo)
    approve.part(undo.text, "rules of orders")
    assert one.standing == ()
    assert one.step(T0 + 3601) == ()
    assert one.next_deadline is None


def test_a_new_order_extends_it() -> None:
    one = book()
    feed(one, post(FORCE, 10), at=T0 + 1)
    longer = replace(FORCE, id="o2", issued_at=T0 + 1000, on_top_of=10)
    assert kinds(feed(one, post(longer, 12), at=T0 + 1001)) == [CarryOut]
    assert kinds(feed(one, at=T0 + 3700)) == [Say]
    assert one.standing == ("o2",)


def test_an_engine_that_starts_later_takes_up_what_stands_and_one_shots_expire(approve: Approve) -> None:
    one = book(read=False)
    effects = feed(one, post(FORCE, 10), post(REDRIVE, 11), at=T0 + 200)
    assert kinds(effects) == [AnswerOrder, CarryOut]
    refused, done = effects
    assert isinstance(refused, AnswerOrder)
    approve.part(refused.text, "rules of orders")
    assert isinstance(done, CarryOut)
    approve.part(done.late, "rules of orders", has=("3m20s",))


def test_an_engine_that_was_cut_off_ends_what_a_late_release_revoked() -> None:
    one = book()
    feed(one, post(FORCE, 10), at=T0 + 1)
    (undo,) = feed(one, post(RELEASE, 11), at=T0 + 3000)
    assert isinstance(undo, Undo)
    assert undo.answers == "r1"
    assert one.find("r1") is not None


def test_a_late_release_of_nothing_is_refused(approve: Approve) -> None:
    (answer,) = feed(book(), post(RELEASE, 11), at=T0 + 3000)
    assert isinstance(answer, AnswerOrder)
    approve.part(answer.text, "rules of orders")


def test_a_one_shot_is_carried_out_once_also_on_a_board_created_again() -> None:
    one = book()
    assert kinds(feed(one, post(REDRIVE, 11), at=T0 + 1)) == [CarryOut]
    one.reset()
    assert feed(one, post(REDRIVE, 1), at=T0 + 2) == []


def test_a_board_that_was_deleted_releases_nothing() -> None:
    one = book()
    feed(one, post(FORCE, 10), at=T0 + 1)
    one.reset()
    assert feed(one, at=T0 + 2) == []
    assert one.standing == ("o1",)
    assert one.newest == 0
    again = replace(RELEASE, on_top_of=0)
    assert kinds(feed(one, post(again, 1), at=T0 + 61)) == [CarryOut]
    assert one.standing == ()


def test_a_local_release_differs_and_its_end_undoes_nothing(approve: Approve) -> None:
    """A local operator may release one engine by its socket; its reports then say that it differs."""
    one = book()
    feed(one, post(FORCE, 10), at=T0 + 1)
    one.note_local((PAYMENTS,), "released here by operator-b")
    assert one.standing == ()
    approve.part(one.differences[0], "rules of orders")
    later = book(read=False, kept=one.kept)
    feed(later, post(FORCE, 10), at=T0 + 2)
    assert later.differences == one.differences, "the next engine knows it, too"
    assert one.step(T0 + 3600) == ()


LOOKS_ONLY = Unverified(why="look only: no file of operators is configured", looks_only=True)
AGAIN = replace(FORCE, id="o2", on_top_of=10)


def test_an_engine_that_looks_only_takes_no_order_for_void() -> None:
    one = book()
    feed(one, post(FORCE, 10, signer=LOOKS_ONLY), at=T0 + 1)
    (view,) = one.orders((), T0 + 1)
    assert (view.is_unverified, view.void, view.by, one.standing) == (True, "", "", ())


@pytest.mark.parametrize(
    ("later", "ended"),
    [
        (RELEASE, "ended by operator-a's order 11"),
        (AGAIN, "replaced by operator-a's order 11"),
        (replace(RELEASE, targets=("orders",)), ""),
        (replace(RELEASE, engines=("web-1",), typed="payments"), ""),
        (replace(RELEASE, engines=None), "ended by operator-a's order 11"),
        (replace(RELEASE, verb="read-write", scope="all", targets=()), ""),
    ],
)
def test_an_order_that_a_newer_one_ended_is_not_shown_as_standing(later: OrderText, ended: str) -> None:
    one = book()
    feed(one, post(FORCE, 10), post(later, 11), at=T0 + 61)
    assert [view.ended for view in one.orders((), T0 + 61)] == [ended, ""]


def test_expected_engines_without_a_name_are_a_number_of_their_own() -> None:
    one = book(expect=3)
    feed(one, post(replace(FORCE, engines=None), 10), at=T0 + 1)
    (view,) = one.orders((), T0 + 1)
    assert (view.silent, view.unnamed, view.silent_count) == ((), 3, 3)


def test_an_order_that_was_refused_here_is_not_undone() -> None:
    one = book()
    feed(one, post(FORCE, 10), at=T0 + 1)
    one.note_outcome("o1", Outcome.REFUSED, ("payments",))
    assert one.standing == ()
    assert one.step(T0 + 3600) == ()


def test_a_release_that_was_refused_here_leaves_the_order_to_its_end() -> None:
    one = book()
    feed(one, post(FORCE, 10), at=T0 + 1)
    feed(one, post(RELEASE, 11), at=T0 + 61)
    one.note_outcome("r1", Outcome.REFUSED, ())
    assert one.next_deadline == T0 + 3600
    assert kinds(list(one.step(T0 + 3600))) == [Undo]


@pytest.mark.parametrize(
    ("text", "signer", "sentence"),
    [
        (FORCE, Unverified(why="it is not signed"), "it is not signed"),
        (FORCE, None, "look only: its signature was not verified"),
        (replace(FORCE, secondary="other"), SIGNER, "it is for another pairing (p.example and other)"),
        (replace(FORCE, issued_at=T0 - 90), SIGNER, "it was posted 90 s after it was issued, 60 s are allowed: a copy"),
        (replace(FORCE, stands_for=300_000.0), SIGNER, "force failover stands for 72 h at most"),
    ],
)
def test_no_engine_acts_and_each_says_why(text: OrderText, signer: Any, sentence: str) -> None:
    one = book()
    (answer,) = feed(one, post(text, 10, at=T0, signer=signer), at=T0 + 1)
    assert isinstance(answer, AnswerOrder)
    assert (answer.order_id, answer.number, answer.outcome) == ("o1", 10, Outcome.REFUSED)
    assert answer.text == sentence
    assert one.standing == ()
    (view,) = one.orders((), T0 + 1)
    assert view.void == sentence


def test_an_order_of_a_newer_version_is_refused_this_engine_is_older() -> None:
    newer = Posted(number=10, enqueued_at=T0, ends_at=T0 + 600, document=None, copies="n1", is_newer=True, kind="order")
    (answer,) = feed(book(), newer, at=T0 + 1)
    assert answer == AnswerOrder(order_id="n1", number=10, outcome=Outcome.REFUSED, text="this engine is older")


def test_a_flood_of_forgeries_is_answered_by_few_and_grows_nothing() -> None:
    one = book()
    forged = [post(replace(FORCE, id=f"f{n}"), n, at=T0, signer=Unverified(why="no")) for n in range(10, 510)]
    assert len(feed(one, *forged, at=T0 + 1)) == MAX_REFUSALS
    assert len(one.orders((), T0 + 1)) == 20
    assert kinds(feed(one, post(replace(FORCE, on_top_of=509), 600), at=T0 + 2)) == [CarryOut]


def test_an_order_for_other_engines_is_not_answered() -> None:
    assert feed(book(), post(replace(FORCE, engines=("pay-1", "pay-2")), 10), at=T0 + 1) == []


KEPT = StandingFleetOrder(
    subject=PAYMENTS, order_id="o1", number=10, verb="force", label="force failover", scope="entity", target="payments",
    by="operator-a", why="drill", since=T0, until=T0 + 3600,
)  # fmt: skip


def test_what_it_stored_stands_until_the_board_is_read_and_then_the_board_decides() -> None:
    """Not read: what it kept on disk until its end."""
    one = book(read=False, kept=KeptOrders(standing=(KEPT,)))
    (taken,) = one.step(T0 + 100)
    assert taken == TakeUp(order=KEPT)
    assert one.step(T0 + 101) == ()
    assert one.standing == ("o1",)
    assert kinds(feed(one, post(FORCE, 10), at=T0 + 102)) == [CarryOut]  # done already: this boot answers
    assert one.kept.standing == (KEPT,)


def test_what_it_stored_ends_at_its_end_and_when_the_board_revoked_it_meanwhile() -> None:
    one = book(read=False, kept=KeptOrders(standing=(KEPT,)))
    one.step(T0 + 100)
    assert kinds(list(one.step(T0 + 3600))) == [Undo]
    one = book(read=False, kept=KeptOrders(standing=(KEPT,)))
    one.step(T0 + 100)
    (undo,) = feed(one, post(FORCE, 10), post(RELEASE, 11), at=T0 + 102)
    assert isinstance(undo, Undo)
    assert undo.answers == "r1"


@pytest.mark.parametrize(("released", "effects"), [((), [Undo]), (((PAYMENTS, "o1"),), [])])
def test_what_ended_while_this_engine_started_is_undone(released: Any, effects: list[type]) -> None:
    """The engine applies what it stored before its first step."""
    one = book(read=False, kept=KeptOrders(standing=(KEPT,), released=released))
    assert kinds(list(one.step(T0 + 3601))) == effects
    assert one.step(T0 + 3602) == ()


def test_an_order_does_not_come_back_when_a_later_one_was_taken_from_the_board() -> None:
    """The engine stored the later one, which has ended; the board shows only the older one, which would stand."""
    later = replace(KEPT, order_id="o2", number=11, verb="pin", since=T0 + 10, until=T0 + 70)
    one = book(read=False, kept=KeptOrders(standing=(later,)))
    one.step(T0 + 100)
    assert feed(one, post(FORCE, 10), at=T0 + 102) == []
    assert one.standing == ()


def test_a_stored_order_whose_signer_lost_the_right_ends() -> None:
    one = book(read=False, kept=KeptOrders(standing=(KEPT,)))
    one.step(T0 + 100)
    effects = feed(one, post(FORCE, 10, signer=Unverified(why="gone")), at=T0 + 102)
    assert kinds(effects) == [AnswerOrder, Undo]


def test_a_stored_local_release_stays_and_is_answered() -> None:
    one = book(read=False, kept=KeptOrders(standing=(KEPT,), released=((PAYMENTS, "o1"),)))
    assert one.step(T0 + 100) == ()
    (answer,) = feed(one, post(FORCE, 10), at=T0 + 102)
    assert isinstance(answer, AnswerOrder)
    assert answer.outcome is Outcome.REFUSED
    assert one.standing == ()


def test_done_and_refused_and_silent_are_the_addressed() -> None:
    one = book(expect=("web-1", "web-2"))
    feed(one, post(FORCE, 10), at=T0 + 1)
    author = Author(
        engine="web-2", boot="b", host="h", pid=1, program="p", version="1", pairing="p", environment="e",
        primary="p.example", secondary="s.example",
    )  # fmt: skip
    answer = OrderAnswer(
        id="a", author=author, order_id="o1", number=10, at=T0 + 2, outcome=Outcome.REFUSED, text="read-only"
    )
    one.read_answer(Posted(number=1, enqueued_at=T0 + 2, ends_at=T0 + 99, document=answer))
    (view,) = one.orders((), T0 + 3)
    assert (view.done, view.refused, view.silent) == ((), (("web-2", "read-only"),), (("web-1", None),))
    assert view.until == T0 + 3600


def test_a_boot_that_began_after_the_end_of_an_order_is_not_asked_and_the_answer_before_it_counts() -> None:
    one = book()
    feed(one, post(replace(FORCE, engines=None, typed="2"), 10), post(RELEASE, 11), at=T0 + 61)
    author = Author(
        engine="web-2", boot="b", host="h", pid=1, program="p", version="1", pairing="p", environment="e",
        primary="p.example", secondary="s.example",
    )  # fmt: skip
    answer = OrderAnswer(id="a", author=author, order_id="o1", number=10, at=T0 + 2, outcome=Outcome.DONE, text="")
    one.read_answer(Posted(number=1, enqueued_at=T0 + 2, ends_at=T0 + 99, document=answer))
    reborn = replace(engine(2), engine="web-2", boot="c", started_at=T0 + 59)
    assert one.orders((reborn,), T0 + 70)[0].silent == (("web-2", reborn.heard_at),), "it still stood when it began"
    later = replace(reborn, started_at=T0 + 3700)
    assert one.orders((later,), T0 + 3800)[0].done == ("web-2",)


TEXTS = st.lists(
    st.builds(
        lambda verb, targets, engines, offset, forged: (verb, targets, engines, offset, forged),
        st.sampled_from(["force", "pin", "release"]),
        st.sampled_from([("payments",), ("audit",), ("payments", "audit")]),
        st.sampled_from([None, ("web-1",), ("web-2",)]),
        st.integers(1, 2000),
        st.booleans(),
    ),
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(
    TEXTS, st.lists(st.integers(0, 8), max_size=4), st.sets(st.integers(0, 8)), st.integers(0, 9000), st.integers(0, 8)
)
def test_what_holds_here_is_what_stands_on_the_board(
    orders: list[Any], cuts: list[int], partly: set[int], after: int, restart: int
) -> None:
    """However the board comes in pages, late, with a restart in between: acts lead to the standing set."""
    posts, at = [], T0
    for place, (verb, targets, engines, offset, forged) in enumerate(orders):
        at += offset
        text = replace(
            FORCE, id=f"o{place}", verb=verb, targets=targets, engines=engines, issued_at=at, on_top_of=place,
            stands_for=None if verb == "release" else 3600.0, seen=(("web-1", "x"), ("web-2", "x")),
        )  # fmt: skip
        text = replace(text, typed=to_type(text, FLEET_VERBS[verb]))
        posts.append(post(text, place + 1, signer=Unverified(why="no") if forged else SIGNER))
    held: dict[str, str] = {}
    one = book(read=False)
    pages = [
        posts[a:b] for a, b in itertools.pairwise(sorted({0, len(posts), *(min(cut, len(posts)) for cut in cuts)}))
    ]
    for place, page in enumerate(pages):
        if place == restart:
            held.clear()
            one = book(read=False, kept=one.kept)
            play(held, one, one.step(page[0].enqueued_at))
            page = [each for part in pages[: place + 1] for each in part]
        now = page[-1].enqueued_at + 1
        play(held, one, one.read(tuple(page), now, is_whole=place not in partly))
        play(held, one, one.step(now))
    now = at + after + 1
    play(held, one, one.read((), now, is_whole=True))
    play(held, one, one.step(now))
    log = judge_log(
        [ReadOrder(post=each, signer=each.signer or SIGNER) for each in posts], engine=ME, verbs=FLEET_VERBS
    )
    standing = standing_set(log, engine=ME, at=now)
    assert held == {each.target: each.verb for each in standing}
    assert set(one.standing) == {each.order_id for each in standing}
    assert one.kept.standing == standing


def play(held: dict[str, str], one: OrderBook, effects: Any) -> None:
    """Carry effects out as an engine does."""
    for effect in effects:
        match effect:
            case CarryOut():
                text = effect.order.text
                for target in effect.targets:
                    if text.verb == "release":
                        held.pop(target, None)
                    else:
                        held[target] = text.verb
                one.note_outcome(text.id, Outcome.DONE, ())
            case TakeUp():
                held[effect.order.target] = effect.order.verb
            case Undo():
                held.pop(effect.order.target, None)


# -- One engine's orders that meet others: refused ones, late ones, and those of a board that was created again.


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


# -- A new order before it is signed: who may refuse it, and what no engine would read.


def draft(fleet: list[FleetEngine], /, **changes: Any) -> OrderDraft:
    view = FleetView(me="web-1", my_boot="b1", engines=tuple(fleet), read_at=AT)
    chosen: dict[str, Any] = {
        "order_id": "0" * 32, "primary": "shop-ne", "secondary": "shop-we", "scope": "entity",
        "targets": ("payments",), "engines": None, "why": "drill", "stands_for": None, "now": AT,
    }  # fmt: skip
    return draft_order(view, FLEET_VERBS["force"], **chosen | changes)


@pytest.mark.parametrize(
    ("changes", "remarks"),
    [
        ({}, ()),
        ({"signers": "other"}, ("may refuse (another file of signers): web-2",)),
        ({"signers": "", "takes": Takes.LOOK_ONLY}, ("will refuse (look only): web-2",)),
        ({"signers": "other", "takes": Takes.READ_ONLY}, ("will refuse (read-only): web-2",)),
    ],
)
def test_who_may_refuse_is_known_before_the_order_is_given(changes: dict[str, Any], remarks: tuple[str, ...]) -> None:
    """Signers files differ: presence carries the hash; said before the order is given."""
    assert draft([engine(1), engine(2, **changes)]).takes == remarks


def test_files_are_compared_with_the_posting_engines_and_only_of_engines_addressed(approve: Approve) -> None:
    fleet = [engine(1, signers="mine"), engine(2), engine(3)]
    approve.part(draft(fleet).takes, "rules of orders", has=("web-2", "web-3"))
    assert draft(fleet, engines=("web-1",)).takes == ()


NAMES = tuple(f"payments/service-{number:03}" for number in range(500))


@pytest.mark.parametrize(
    ("engines", "changes", "counts"),
    [
        (
            [engine(1)],
            {"targets": tuple(f"{name}-{copy}" for name in NAMES for copy in "abcd")},
            "2,000 targets and 1 engine,",
        ),
        (
            [engine(1)],
            {"engines": tuple(f"{name}-{copy}" for name in NAMES for copy in "abcd")},
            "1 target and 2,000 engines,",
        ),
        (
            [engine(number, engine="orders@shop-web-7d9f8b6c5-" + f"{number}" * 8) for number in range(1000, 1500)],
            {"targets": NAMES},
            "500 targets and 500 engines,",
        ),
    ],
)
def test_an_order_that_no_engine_would_read_is_refused_before_it_is_signed(
    engines: list[FleetEngine], changes: dict[str, Any], counts: str
) -> None:
    with pytest.raises(ConfigurationError, match="bytes with") as raised:
        draft(engines, **changes)
    assert counts in str(raised.value)
    assert str(raised.value).endswith("give it in parts, with fewer targets or fewer named engines each")


def test_the_confirmation_is_part_of_the_size(approve: Approve) -> None:
    """What passes here is read by every engine."""
    found = draft([engine(1)], targets=("p" * (MAX_SIGNED_BYTES // 3),))
    assert decode_order_text(encode_order_text(found.confirm(found.to_type))).typed == "p" * (MAX_SIGNED_BYTES // 3)
    with pytest.raises(ConfigurationError) as refused:
        draft([engine(1)], targets=("p" * (MAX_SIGNED_BYTES // 2),))
    approve.part(refused.value, "rules of orders", has=("1 target", "1 engine"))


def test_a_part_of_the_targets_passes() -> None:
    found = draft([replace(engine(number), boot=f"b{number}") for number in range(1, 21)], targets=NAMES[:250])
    assert len(encode_order_text(found.confirm(found.to_type))) > 6000


def test_an_order_to_all_of_500_engines_in_an_outage_fits_its_message_and_a_line_of_the_socket() -> None:
    """To be reached: 500 engines, here with names of pods."""
    names = (f"orders@shop-web-7d9f8b6c5-{number:05x}" for number in range(70_000, 70_500))
    fleet = [engine(1), *(engine(number, State.FAILED_OVER, engine=name) for number, name in enumerate(names, 2))]
    found = draft(fleet)
    text = found.confirm(found.to_type)
    signed = encode_order_text(text)
    order = Order(text=text, signed=signed, signature="s" * 300)
    assert len(signed) > 16 * 1024
    assert len(write_body(order)[0]) < MAX_BYTES / 3
    line = encode(PostOrder(id=1, action_id="force", by="ada", signed=signed.decode(), signature="s" * 300))
    assert len(line) < MAX_CLIENT_LINE_BYTES * 2 / 3
