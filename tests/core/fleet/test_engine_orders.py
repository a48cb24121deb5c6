"""One engine's orders: what it has seen decides, whatever happened in between (FLEET.md section 5)."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.fleet.fleet_world import author
from tests.core.fleet.made_orders import SIGNER, T0, made_order, post_of

from paired_servicebus.core.fleet.engine_orders import (
    MAX_AHEAD_SECONDS,
    MAX_REFUSALS,
    NOT_KEPT,
    EngineOrders,
    Kept,
    to_take_up,
)
from paired_servicebus.core.fleet.fleet_documents import Order, OrderRow, Outcome, Posted, Unverified
from paired_servicebus.core.fleet.fleet_events import CarryOut, FleetEffect, OrderEnded, Say, Undo
from paired_servicebus.core.fleet.order_rules import ORDER_SECONDS
from paired_servicebus.core.operator.actions import FLEET_VERBS

ME = author("web-1")
PAYMENTS = ("entity", "entity", "payments")


class Engine:
    """An engine whose guard does what it is given, and whose disk accepts everything at once."""

    def __init__(self, kept: Kept | None = None) -> None:
        self.orders = EngineOrders(engine=ME, verbs=FLEET_VERBS, kept=kept)
        self.orders.read_reports((), T0, is_whole=True)
        self.acts: list[str] = []
        self.refuses = ""

    def read(self, *orders: Order | Posted, at: float = T0, is_whole: bool = True) -> list[str]:
        """Read orders, keep what was seen, and do what follows; return the acts."""
        posts = [one if isinstance(one, Posted) else post_of(one, at=max(at, one.text.issued_at)) for one in orders]
        self.orders.read_orders(posts, is_whole=is_whole)
        return self.step(at)

    def step(self, at: float) -> list[str]:
        self.keep()
        done = [self.act(one) for one in self.orders.step(at) if not isinstance(one, Say)]
        self.keep()
        self.acts += done
        return done

    def keep(self, trouble: str = "") -> str:
        return self.orders.note_kept(self.orders.version, trouble)

    def act(self, effect: FleetEffect) -> str:
        if isinstance(effect, Undo):
            self.orders.note_undone(effect.order)
            return f"undo {effect.order.command.action_id} {effect.order.command.target}"
        assert isinstance(effect, CarryOut)
        command = effect.command
        refused = command.targets or ("",) if self.refuses else ()
        outcome = Outcome.REFUSED if self.refuses else Outcome.DONE
        text = self.refuses or "done"
        self.orders.note_outcome(OrderEnded(order_id=effect.order.id, outcome=outcome, text=text, not_held=refused))
        return f"{'refuse' if self.refuses else command.action_id} {' '.join(command.targets)}".rstrip()

    def local(self, verb: str, at: float) -> None:
        self.orders.note_local((PAYMENTS,), f"{verb} here by ada", at)

    @property
    def in_force(self) -> list[str]:
        return [f"{one.command.action_id} {one.command.target}".rstrip() for one in self.orders.kept.applied]

    @property
    def rows(self) -> dict[str, OrderRow]:
        return {row.order_id: row for row in self.orders.rows}

    def restarted(self, at: float = T0 + 100) -> Engine:
        kept = self.orders.kept
        return Engine(replace(kept, applied=to_take_up(kept, engine="web-1", verbs=FLEET_VERBS, at=at)))


FORCE, PIN, RELEASE = made_order("force"), made_order("pin", at=T0 + 10), made_order("release", at=T0 + 20)


@pytest.fixture
def engine() -> Engine:
    made = Engine()
    made.read()
    return made


def test_the_newest_counting_order_wins_whatever_happened_in_between(engine: Engine) -> None:
    assert engine.read(FORCE, PIN, at=T0 + 15) == ["pin payments"]
    assert engine.read(RELEASE, at=T0 + 30) == ["release payments"]
    assert engine.read(FORCE, PIN, RELEASE, at=T0 + 40) == []
    assert engine.in_force == []


def test_nothing_is_decided_before_the_end_of_the_board(engine: Engine) -> None:
    assert engine.read(FORCE, is_whole=False) == []
    assert engine.read(RELEASE, at=T0 + 30) == ["release payments"]


def test_what_is_seen_is_on_disk_before_it_acts(engine: Engine) -> None:
    """ "Without a disk for what was seen an engine obeys no document, and says so." """
    engine.orders.read_orders([post_of(FORCE)], is_whole=True)
    assert engine.orders.step(T0) == []
    assert engine.keep("no space left") == f"{NOT_KEPT} (no space left)"
    assert engine.keep("no space left") == "", "once"
    assert engine.orders.step(T0 + 1) == []
    assert [one.order for one in engine.orders.kept.seen] == [FORCE]
    assert engine.step(T0 + 2) == ["force payments"]


@pytest.mark.parametrize("stolen", [RELEASE, None])
def test_no_older_order_returns_on_an_engine_that_saw_the_newer_one(engine: Engine, stolen: Order | None) -> None:
    """An enemy takes the release from the board, or the board is deleted and made anew."""
    engine.read(FORCE)
    engine.read(RELEASE, at=T0 + 30)
    again = engine.restarted()
    assert again.read(*([FORCE] if stolen else []), at=T0 + 200) == []
    again.orders.board_unread()
    assert again.read(FORCE, at=T0 + 300) == []
    assert again.in_force == []


def test_a_new_engine_reads_both_boards_first_and_obeys_what_the_others_have_seen() -> None:
    """ "What was taken from `orders` is still known while one engine lives." """
    new = Engine()
    new.orders = EngineOrders(engine=ME, verbs=FLEET_VERBS)
    assert new.read(FORCE, at=T0 + 30) == []
    assert (new.orders.needs_reports, new.orders.is_informed) == (True, False)
    presence = Posted(number=1, enqueued_at=T0 + 25, ends_at=T0 + 9e3, document=None, carried=((RELEASE, SIGNER),))
    new.orders.read_reports([presence], T0 + 30, is_whole=True)
    assert new.step(T0 + 31) == ["release payments"]
    assert new.in_force == []


ENDED = replace(SIGNER, valid_before=T0 + 15)


def test_an_ended_key_dates_no_order_back(engine: Engine) -> None:
    """ "So nobody dates an order back with a key that has ended." """
    engine.read(FORCE)
    assert engine.read(post_of(PIN, at=T0 + 100, signer=ENDED), at=T0 + 100) == []
    assert engine.in_force == ["force payments"]
    assert engine.rows[PIN.id].text.startswith("it is first seen after its key's end")
    assert engine.restarted().in_force == ["force payments"]


@pytest.mark.parametrize("first", [T0 + 12, T0 + 100])
def test_a_new_engine_obeys_neither_an_order_that_its_key_may_have_dated_back_nor_an_older_one(first: float) -> None:
    """ "A new engine that reads such an order first obeys neither it nor an older one of its subject." """
    new = Engine()
    new.orders = EngineOrders(engine=ME, verbs=FLEET_VERBS)
    carried = ((PIN, ENDED),)
    presence = Posted(number=1, enqueued_at=first, ends_at=T0 + 9e3, document=None, carried=carried)
    new.orders.read_reports([presence], T0 + 100, is_whole=True)
    is_known = first < ENDED.valid_before
    assert new.read(FORCE, at=T0 + 100) == (["pin payments"] if is_known else [])
    assert new.in_force == (["pin payments"] if is_known else [])
    assert new.read(made_order("force", at=T0 + 200), at=T0 + 200) == ["force payments"]


def test_a_new_engine_obeys_an_order_of_an_ended_key_once_it_reads_its_first_message() -> None:
    new = Engine()
    new.orders = EngineOrders(engine=ME, verbs=FLEET_VERBS)
    carried = ((PIN, ENDED),)
    presence = Posted(number=1, enqueued_at=T0 + 100, ends_at=T0 + 9e3, document=None, carried=carried)
    new.orders.read_reports([presence], T0 + 100, is_whole=True)
    assert new.read(post_of(PIN, at=T0 + 11, signer=ENDED), at=T0 + 100) == ["pin payments"]


READS = st.tuples(
    st.sampled_from(["force", "pin", "release"]), st.integers(0, 40), st.sampled_from([0, 10, 30, 90]), st.booleans()
)
"""An order's verb, its issue, how long after it a message with its bytes is posted, and whether its key has an end."""


@settings(max_examples=150, deadline=None)
@given(st.lists(READS, max_size=7), st.randoms(use_true_random=False), st.booleans())
def test_in_any_sequence_an_ended_key_sets_nothing_and_a_new_engine_returns_to_no_older_order(
    reads: list[tuple[str, int, int, bool]], random: Random, is_new: bool
) -> None:
    engine = Engine()
    if is_new:
        engine.orders = EngineOrders(engine=ME, verbs=FLEET_VERBS)
    else:
        engine.read(at=T0)
    first: dict[str, float] = {}
    orders: dict[str, Order] = {}
    posts = []
    for verb, issue, late, has_end in reads:
        order = made_order(verb, at=T0 + issue, why="its key ends" if has_end else "its key has no end")
        orders[order.id], at = order, T0 + issue + late
        first[order.id] = min(at, first.get(order.id, inf))
        signer = replace(SIGNER, valid_before=T0 + 50) if has_end else SIGNER
        posts.append(post_of(order, at=at, signer=signer))
    counting = {key for key, one in orders.items() if "no end" in one.text.why or first[key] <= T0 + 50}
    random.shuffle(posts)
    acts = engine.read(*posts, at=T0 + 200)
    if is_new:
        assert acts == []
        engine.orders.read_reports((), T0 + 200, is_whole=True)
        acts = engine.step(T0 + 201)
    known = orders if is_new else counting
    newest = max(known, key=lambda key: (orders[key].text.issued_at, key), default="")
    assert acts == ([f"{orders[newest].text.verb} payments"] if newest in counting else [])


def test_an_engine_that_was_killed_before_it_had_read_both_boards_is_new_again() -> None:
    first = Engine()
    first.orders = EngineOrders(engine=ME, verbs=FLEET_VERBS)
    first.read(FORCE)
    assert not first.orders.kept.is_informed
    assert EngineOrders(engine=ME, verbs=FLEET_VERBS, kept=first.orders.kept).needs_reports


@pytest.mark.parametrize("act", [0, 1, 2])
def test_an_engine_that_restarts_at_each_step_of_seen_then_applied_ends_equal(act: int) -> None:
    engine = Engine()
    engine.read(FORCE)
    engine.orders.read_orders([post_of(RELEASE)], is_whole=True)
    if act == 0:  # the release is not on disk: it is read again
        before = Engine(engine.orders.kept)
        before.orders = EngineOrders(engine=ME, verbs=FLEET_VERBS, kept=replace(engine.orders.kept, seen=()))
    engine.keep()
    if act == 2:
        engine.step(T0 + 30)
    again = engine.restarted()
    again.read(FORCE, RELEASE, at=T0 + 100)
    assert (again.in_force, again.acts) == ([], ["release payments"] if act < 2 else [])


def test_the_end_is_kept_and_no_older_order_returns_at_it(engine: Engine) -> None:
    engine.read(FORCE)
    engine.read(made_order("pin", at=T0 + 10, lasts=60.0), at=T0 + 15)
    assert engine.in_force == ["pin payments"]
    assert engine.step(T0 + 69) == []
    assert engine.step(T0 + 70) == ["undo pin payments"]
    assert engine.read(FORCE, at=T0 + 90) == []


def test_a_newer_order_that_is_over_ends_what_stood_and_begins_nothing(engine: Engine) -> None:
    engine.read(FORCE)
    assert engine.read(made_order("pin", at=T0 + 10, lasts=5.0), at=T0 + 60) == ["undo force payments"]
    assert engine.in_force == []


def test_an_order_that_may_be_over_is_refused_only_once_the_namespaces_clock_has_reached_its_end(
    engine: Engine,
) -> None:
    """ "An end is judged by the namespace's clock." A new engine's clock may be ahead, and nothing shows it yet."""
    engine.read(FORCE)
    pin = made_order("pin", at=T0 + 10, lasts=60.0)
    engine.orders.read_orders([post_of(pin)], is_whole=True)
    engine.keep()
    ahead, sure = T0 + 95, T0 + 10
    assert [engine.act(one) for one in engine.orders.step(ahead, reached=sure)] == ["undo force payments"]
    assert engine.orders.step(ahead, reached=sure) == []
    assert (engine.orders.awaits_evidence, pin.id in engine.rows) == (True, False)
    assert [engine.act(one) for one in engine.orders.step(T0 + 12, reached=sure)] == ["pin payments"]
    late = made_order("pin", at=T0 + 40, lasts=5.0)
    engine.orders.read_orders([post_of(late)], is_whole=True)
    engine.keep()
    assert [engine.act(one) for one in engine.orders.step(ahead, reached=T0 + 45)] == ["undo pin payments"]
    engine.orders.step(ahead, reached=T0 + 45)
    assert (engine.orders.awaits_evidence, engine.rows[late.id].outcome) == (False, Outcome.REFUSED)


def test_an_order_that_arrives_late_takes_effect_and_says_how_late(engine: Engine) -> None:
    engine.orders.read_orders([post_of(FORCE)], is_whole=True)
    engine.keep()
    (effect,) = engine.orders.step(T0 + 3000)
    assert isinstance(effect, CarryOut)
    assert effect.late == "takes effect 50 min late"
    assert engine.orders.step(T0 + 3001) == [], "once"


def test_a_refusal_is_answered_once_and_leaves_in_force_what_was_until_its_own_end(engine: Engine) -> None:
    engine.read(FORCE)
    engine.refuses = "read-only"
    assert engine.read(PIN, at=T0 + 15) == ["refuse payments"]
    assert engine.step(T0 + 20) == []
    assert engine.in_force == ["force payments"]
    assert engine.rows[PIN.id] == OrderRow(order_id=PIN.id, outcome=Outcome.REFUSED, text="read-only")
    assert engine.restarted().in_force == ["force payments"]
    assert engine.step(T0 + 3600) == ["undo force payments"]


def test_a_boot_takes_up_neither_what_is_over_nor_what_a_newer_order_replaced(engine: Engine) -> None:
    engine.read(FORCE)
    assert engine.restarted(at=T0 + 3599).in_force == ["force payments"]
    assert engine.restarted(at=T0 + 3600).in_force == []
    engine.orders.read_orders([post_of(PIN)], is_whole=True)
    engine.keep()
    assert engine.restarted().in_force == []


def test_a_local_operators_order_holds_until_a_newer_one_of_the_fleet(engine: Engine) -> None:
    engine.read(FORCE)
    engine.local("released", T0 + 5)
    assert engine.orders.differences == (
        "released here by ada: force failover payments, ordered by operator-a until 09:00",
    )
    assert engine.read(FORCE, at=T0 + 6) == []
    assert engine.restarted().read(FORCE) == []
    assert engine.read(PIN, at=T0 + 15) == ["pin payments"]
    assert engine.orders.differences == ()


def test_an_order_from_before_a_local_operators_act_does_not_undo_it(engine: Engine) -> None:
    engine.local("forced", T0 + 5)
    assert engine.read(made_order("release"), at=T0 + 9) == []
    (row,) = engine.orders.rows
    assert (row.outcome, row.text) == (Outcome.REFUSED, "overtaken: forced here by ada")


def test_an_order_under_way_while_a_local_operator_acts_is_carried_out_again(engine: Engine) -> None:
    engine.orders.read_orders([post_of(PIN)], is_whole=True)
    engine.keep()
    (effect,) = engine.orders.step(T0 + 15)
    engine.local("released", T0 + 16)
    engine.act(effect)
    assert engine.step(T0 + 17) == ["pin payments"]
    assert engine.in_force == ["pin payments"]


def test_it_acts_on_its_own_subjects_only(engine: Engine) -> None:
    both = made_order("force", "orders", "payments")
    assert engine.read(both) == ["force orders payments"]
    assert engine.read(RELEASE, at=T0 + 30) == ["release payments"]
    assert engine.in_force == ["force orders"]
    elsewhere = made_order("pin", "orders", at=T0 + 40, engines=("web-2",), reach=1)
    assert engine.read(elsewhere, at=T0 + 41) == []


def test_a_signer_who_lost_the_right_ends_what_stands_by_him_and_gets_it_back_with_the_file(engine: Engine) -> None:
    engine.read(FORCE)
    engine.read(PIN, at=T0 + 15)
    engine.orders.judge_again({PIN.id: False})
    assert engine.step(T0 + 20) == ["undo pin payments"]
    assert engine.rows[PIN.id].outcome is Outcome.REFUSED
    assert engine.restarted().in_force == []
    engine.orders.judge_again({PIN.id: True})
    assert engine.read(at=T0 + 30) == ["pin payments"]


def test_a_file_that_became_unusable_leaves_what_stands(engine: Engine) -> None:
    engine.read(FORCE)
    engine.orders.judge_again({})
    assert engine.step(T0 + 20) == []
    assert engine.in_force == ["force payments"]


def test_forged_orders_are_answered_few_of_them_and_change_nothing(engine: Engine) -> None:
    unknown = Unverified(why="no operator has this key")
    forged = [post_of(made_order("force", f"q{number}"), number, signer=unknown) for number in range(50)]
    assert engine.read(*forged) == []
    assert {row.text for row in engine.orders.rows} == {"no operator has this key"}
    assert len(engine.orders.rows) == MAX_REFUSALS
    assert engine.orders.kept.seen == ()
    other = made_order("force", engines=("web-9",), reach=1)
    engine.orders.judge_again({})
    engine.read(post_of(other, signer=unknown))
    assert engine.orders.rows == ()


def test_an_engine_that_looks_only_shows_orders_refuses_them_and_does_nothing(engine: Engine) -> None:
    looks = Unverified(why="look only: no file of operators is configured", looks_only=True)
    assert engine.read(post_of(FORCE, signer=looks)) == []
    assert [one.by for one in engine.orders.shown] == [""]
    assert engine.rows[FORCE.id].text == looks.why


def test_an_order_of_a_newer_version_is_answered_this_engine_is_older(engine: Engine) -> None:
    post = Posted(number=3, enqueued_at=T0, ends_at=T0 + 9, document=None, copies="n1", is_newer=True, kind="order")
    engine.read(post)
    assert engine.rows["n1"].text == "this engine is older"


def test_alarms_30_and_5_minutes_before_the_end(engine: Engine) -> None:
    engine.read(FORCE)
    at, said = T0, []
    while (due := engine.orders.next_deadline) is not None and due < T0 + 3600:
        at = due
        said.append((at - T0, [one.text for one in engine.orders.step(at) if isinstance(one, Say)]))
    assert [(after, len(texts)) for after, texts in said] == [(1800, 1), (3300, 1)]
    assert "ends in 30 min, and is released then" in said[0][1][0]


def test_what_is_over_is_forgotten_and_the_disk_says_so(engine: Engine) -> None:
    engine.read(FORCE)
    engine.step(T0 + 3600)
    assert len(engine.orders.kept.seen) == 1
    engine.step(T0 + ORDER_SECONDS)
    assert engine.orders.kept.seen == ()


@pytest.mark.parametrize(
    ("signer", "changes", "sentence"),
    [
        (SIGNER, {}, ""),
        (Unverified(why="nobody"), {}, "nobody"),
        (SIGNER, {"secondary": "other"}, "it is for another pairing (shop-ne and other)"),
        (SIGNER, {"at": T0 + 99}, "it was issued 99 s after it was posted, 60 s are allowed: set the clock"),
    ],
)
def test_a_console_learns_why_its_order_would_not_count(
    engine: Engine, signer: Any, changes: dict[str, Any], sentence: str
) -> None:
    assert engine.orders.check(made_order("force", **changes), signer, T0) == sentence


def test_an_order_that_failed_for_one_target_is_never_called_done(engine: Engine) -> None:
    """The other target's answer remembers the failure, when a newer order answers for the one that failed."""
    both = made_order("force", targets=("payments", "audit"))
    engine.orders.read_orders([post_of(both)], is_whole=True)
    engine.keep()
    assert [type(one) for one in engine.orders.step(T0)] == [CarryOut]
    failed = OrderEnded(order_id=both.id, outcome=Outcome.FAILED, text="it broke", not_held=("payments",))
    engine.orders.note_outcome(failed)
    before = engine.rows[both.id]
    assert (before.outcome, before.text) == (Outcome.FAILED, "it broke")
    assert engine.read(both, RELEASE, at=T0 + 30) == ["release payments"]
    assert engine.rows[both.id] == before


def test_a_boot_on_a_clock_that_is_ahead_drops_no_order_early(engine: Engine) -> None:
    """Without evidence of its own a boot's clock is as far ahead as that of the engine before."""
    engine.read(FORCE)
    (held,) = engine.orders.kept.applied
    kept = replace(engine.orders.kept, clock_ahead=119.0)
    early, late = held.until + 118.0, held.until + 120.0
    assert to_take_up(kept, engine="web-1", verbs=FLEET_VERBS, at=early) == (held,)
    assert to_take_up(kept, engine="web-1", verbs=FLEET_VERBS, at=late) == ()
    again = EngineOrders(engine=ME, verbs=FLEET_VERBS, kept=kept)
    assert again.clock_ahead == 119.0
    again.note_clock(None)
    assert again.clock_ahead == 119.0
    again.note_clock(4000.0)
    assert again.clock_ahead == MAX_AHEAD_SECONDS


def test_an_order_that_a_boot_ended_too_early_is_in_force_again_once_its_clock_has_evidence(engine: Engine) -> None:
    """ "An end is judged by the namespace's clock." The boot's own one is ahead, and nothing shows it at its start."""
    engine.read(FORCE)
    again = engine.restarted(at=T0 + 3700)
    assert again.in_force == []
    assert again.read(at=T0 + 3700) == []
    assert again.step(T0 + 200) == ["force payments"]
    assert again.step(T0 + 3600) == ["undo force payments"]
    assert again.step(T0 + 3700) == []
    assert again.rows[FORCE.id].outcome is Outcome.DONE
