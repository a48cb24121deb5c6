"""Who answered: done + refused + silent = addressed, FLEET.md section 5."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.approval import Approve

from paired_servicebus.core.fleet.fleet_documents import Author, OrderAnswer, OrderText, Outcome
from paired_servicebus.core.fleet.orders.order_answers import (
    Expected,
    ExpectedEngine,
    Tally,
    exit_status,
    expected_engines,
    needs_partial,
    tally,
)
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetStatus, Takes

T0 = 1_800_000_000.0  # 08:00:00
FORCE = OrderText(
    id="o1", primary="p", secondary="s", verb="force", scope="entity", targets=("payments",), engines=None,
    typed="20", why="", issued_at=T0, act_within=300.0, stands_for=7200.0, on_top_of=0, seen=(),
)  # fmt: skip
AUTHOR = Author(
    engine="", boot="", host="", pid=1, program="", version="", pairing="", environment="", primary="p", secondary="s"
)


def answer(engine: str, outcome: Outcome = Outcome.DONE, text: str = "", boot: str = "b", at: float = 1) -> OrderAnswer:
    author = replace(AUTHOR, engine=engine, boot=boot)
    return OrderAnswer(id=engine, author=author, order_id="o1", number=5, at=at, outcome=outcome, text=text)


def engine(name: str, status: FleetStatus = FleetStatus.REPORTING, boot: str = "b") -> FleetEngine:
    return FleetEngine(
        engine=name, boot=boot, host="", pid=1, program="", version="", environment="", status=status,
        heard_at=T0 - 120, started_at=T0, states=(), not_well=(), queues=(), syphon="", takes=Takes.SIGNED,
        signers="", standing=(), newest_order=0,
    )  # fmt: skip


FLEET = expected_engines(
    [*(engine(f"web-{n}") for n in range(1, 19)), *(engine(f"pay-{n}", FleetStatus.SILENT) for n in (3, 4))]
)


def test_an_engine_of_which_two_boots_answered_and_none_has_to_counts_once() -> None:
    answers = [answer("web-1", boot="b2", at=9), answer("web-1", Outcome.REFUSED, "read-only", boot="b1", at=1)]
    found = tally(FORCE, 5, expected_engines([]), answers)
    assert (found.done, found.refused, found.silent) == (("web-1",), (), ())


def test_17_done_1_refused_and_2_silent(approve: Approve) -> None:
    answers = [answer(f"web-{n}") for n in range(1, 19) if n != 9]
    answers.append(answer("web-9", Outcome.REFUSED, "read-only"))
    found = tally(FORCE, 5, FLEET, answers)
    assert len(found.done) == 17
    assert found.refused == (("web-9", "read-only"),)
    assert found.silent == (("pay-3", T0 - 120), ("pay-4", T0 - 120))
    assert exit_status(found) == 1
    approve.part(needs_partial(FORCE, FLEET), "rules of orders", has=("2 engines", "pay-3", "pay-4", "--partial"))


def addressed(found: Tally) -> int:
    return len(found.done) + len(found.refused) + found.silent_count


def test_an_engine_that_an_order_names_is_addressed_known_or_not() -> None:
    redrive = replace(FORCE, verb="redrive", scope="queue", targets=("3",), stands_for=None, engines=("a",))
    assert tally(redrive, 5, Expected(engines=()), []).silent == (("a", None),)


def test_expected_are_presences_that_have_not_ended_and_what_expect_names_or_counts() -> None:
    known = [engine("a"), engine("b", FleetStatus.SILENT), engine("c", FleetStatus.ENDED)]
    assert [one.name for one in expected_engines(known).engines] == ["a", "b"]
    assert [one.name for one in expected_engines(known, ("A", "c", "d")).engines] == ["a", "b", "c", "d"]
    assert expected_engines(known, 5).unnamed == 3
    assert addressed(tally(FORCE, 5, expected_engines(known, 5), [answer("a"), answer("z")])) == 5


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (Tally(done=("a",), refused=(), silent=()), 0),
        (Tally(done=("a",), refused=(("b", ""),), silent=()), 1),
        (Tally(done=("a",), refused=(), silent=(), unnamed=1), 1),
        (Tally(done=(), refused=(("b", ""),), silent=()), 1),
        (Tally(done=(), refused=(), silent=(("a", None),)), 3),
        (Tally(done=(), refused=(), silent=()), 3),
    ],
)
def test_exit_status_0_all_done_1_some_refused_or_silent_3_nobody_answered(found: Tally, status: int) -> None:
    assert exit_status(found) == status


def test_done_is_never_shown_for_an_engine_that_did_not() -> None:
    restarted = Expected(engines=(ExpectedEngine(name="a", boot="new", heard_at=T0),))
    assert tally(FORCE, 5, restarted, [answer("a", boot="old")]).silent == (("a", T0),)
    assert tally(FORCE, 6, restarted, [answer("a", boot="new")]).done == (), "another number"
    assert tally(replace(FORCE, engines=("b",)), 5, restarted, [answer("a")]).done == (), "not addressed"


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("xy")), unique=True, max_size=6),
    st.one_of(st.integers(0, 6), st.lists(st.sampled_from("abef"), max_size=4).map(tuple)),
    st.lists(st.tuples(st.sampled_from("abce"), st.sampled_from("xyz"), st.sampled_from(Outcome)), max_size=6),
    st.one_of(st.none(), st.just(("a", "f"))),
)
def test_done_refused_and_silent_are_all_addressed(
    known: list[tuple[str, str]],
    expect: int | tuple[str, ...],
    given_: list[tuple[str, str, Outcome]],
    engines: tuple[str, ...] | None,
) -> None:
    expected = expected_engines([engine(name, boot=boot) for name, boot in known], expect)
    answers = [answer(name, outcome, boot=boot) for name, boot, outcome in given_]
    found = tally(replace(FORCE, engines=engines), 5, expected, answers)
    assert len(found.done) + len(found.refused) + len(found.silent) + found.unnamed == addressed(found)
    assert {name for name, _, one in given_ if one is Outcome.DONE} >= set(found.done)
    wanted = {name for name, _ in known if engines is None or name in engines} | set(engines or ())
    names = {*found.done, *(name for name, _ in found.refused), *(name for name, _ in found.silent)}
    assert wanted <= names
    if isinstance(expect, int) and engines is None:
        assert addressed(found) >= expect
    assert (exit_status(found) == 3) == (not found.done and not found.refused)
