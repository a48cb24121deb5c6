"""When an order counts: FLEET.md section 5, a test for each rule, and the same standing set on every engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.approval import Approve
from tests.core.fleet.board_log import judge_log, standing_set

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.fleet.fleet_documents import Order, OrderText, Posted, Signer, Unverified
from paired_servicebus.core.fleet.orders import standing_rules
from paired_servicebus.core.fleet.orders.order_rules import (
    BOARD_RULES,
    Counts,
    EnginesPerOrder,
    ReadOrder,
    Rule,
    ThisEngine,
    Void,
    verdict,
)
from paired_servicebus.core.fleet.orders.order_text import OLDER, decode_order_text, encode_order_text
from paired_servicebus.core.operator.actions import BY_ID, FLEET_VERBS

T0 = 1_800_000_000.0
ME = ThisEngine(name="web-1", primary="p.example", secondary="s.example")
SIGNER = Signer(by="operator-a", fingerprint="SHA256:x")
FORCE = OrderText(
    id="o1", primary="P.example", secondary="s.EXAMPLE", verb="force", scope="entity", targets=("orders",),
    engines=("web-1", "web-2"), typed="2", why="drill", issued_at=T0, act_within=300.0, stands_for=3600.0,
    on_top_of=0, seen=(("web-1", "healthy"), ("web-2", "healthy")),
)  # fmt: skip
RELEASE = replace(FORCE, verb="release", stands_for=None)


def read(text: OrderText, number: int = 10, *, at: float = T0, signer: Signer | Unverified = SIGNER) -> ReadOrder:
    order = Order(text=text, signed=encode_order_text(text), signature="s")
    return ReadOrder(post=Posted(number=number, enqueued_at=at, ends_at=at + 1, document=order), signer=signer)


def verdicts(*reads: ReadOrder, at: float = T0 + 1, engine: ThisEngine = ME) -> list[Counts | Void]:
    return [verdict(one, engine=engine, at=at) for one in judge_log(reads, engine=engine, verbs=FLEET_VERBS)]


def test_the_rules_are_in_the_order_of_the_design() -> None:
    assert [rule for rule, _ in BOARD_RULES] == list(Rule)[:5]


def test_an_order_that_breaks_no_rule_counts() -> None:
    counts = Counts(by="operator-a", fingerprint="SHA256:x", ends_at=T0 + 3600)
    assert verdicts(read(FORCE)) == [counts]
    assert verdicts(read(FORCE), at=T0) == [counts]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"primary": "other"}, "it is for another pairing (other and s.EXAMPLE)"),
        ({"secondary": "other"}, "it is for another pairing (P.example and other)"),
        ({"verb": "explode"}, "this version knows no order 'explode'"),
        ({"verb": "stop", "scope": "all", "targets": (), "stands_for": None}, "end the engine is not allowed over the"),
        ({"verb": "drain", "scope": "all", "targets": (), "stands_for": None}, "drain is not allowed over the fleet"),
        ({"verb": "redrive", "scope": "queue", "targets": ("0",)}, "re-drive is for exactly one named engine"),
        ({"scope": "queue"}, "force failover has the wrong kind of target (queue)"),
        ({"targets": ()}, "force failover has the wrong kind of target"),
        ({"targets": ("a", "A")}, "it names a target twice"),
        ({"stands_for": None}, "force failover has no end; 4 h are usual, 72 h at most"),
        ({"stands_for": 72 * 3600 + 1.0}, "force failover stands for 72 h at most"),
        ({"typed": "3"}, "its author typed '3', not '2'"),
        ({"engines": ("web-1",)}, "its author typed '2', not 'orders'"),
        ({"engines": None, "seen": ()}, "its author typed '2', not '0'"),
    ],
)
def test_rule_1_form_version_size_primary_and_secondary_are_ours(changes: dict[str, Any], sentence: str) -> None:
    (found,) = verdicts(read(replace(FORCE, **changes)))
    assert isinstance(found, Void)
    assert found.rule is Rule.FORM
    assert sentence in found.text


def test_rule_2_no_signers_file_look_only() -> None:
    (found,) = verdicts(read(FORCE, signer=Unverified(why="look only: none")))
    assert found == Void(rule=Rule.SIGNATURE, text="look only: none")


@pytest.mark.parametrize(("apart", "counts"), [(60, True), (-60, True), (60.1, False), (-60.1, False), (3600, False)])
def test_rule_3_a_copy_posted_later_is_void_whoever_posts_it(apart: float, counts: bool) -> None:
    (found,) = verdicts(read(FORCE, at=T0 + apart), at=T0 + apart)
    assert isinstance(found, Counts) is counts
    assert counts or found.rule is Rule.FRESH  # type: ignore[union-attr]


def test_rule_4_its_id_is_not_on_the_board_under_a_lower_number() -> None:
    first, second = verdicts(read(FORCE, 10), read(FORCE, 12, at=T0 + 2))
    assert isinstance(first, Counts)
    assert second == Void(rule=Rule.FIRST, text="it is already on the board as number 10")


def test_rule_4_a_forgery_under_a_lower_number_blocks_nothing() -> None:
    assert isinstance(verdicts(read(FORCE, 9, signer=Unverified(why="no")), read(FORCE, 10))[1], Counts)


def test_rule_5_overtaken_by_operator_as_order_418() -> None:
    late = replace(FORCE, id="o2", verb="pin", on_top_of=417)
    found = verdicts(read(FORCE, 418), read(late, 420))
    assert found[1] == Void(rule=Rule.OVERTAKEN, text="overtaken by operator-a's order 418")


@pytest.mark.parametrize(
    "changes",
    [
        {"on_top_of": 418},
        {"targets": ("audit",)},
        {"engines": ("pay-1", "pay-2")},
        {"verb": "pause-syphon", "scope": "all", "targets": ()},
    ],
)
def test_rule_5_only_an_order_about_the_same_thing_overtakes(changes: dict[str, Any]) -> None:
    last = judge_log([read(FORCE, 418), read(replace(FORCE, id="o2", **changes), 420)], engine=ME, verbs=FLEET_VERBS)[1]
    assert last.void is None


def test_rule_5_a_void_order_and_one_that_was_over_overtake_nothing() -> None:
    short = replace(FORCE, stands_for=1.0)
    assert isinstance(verdicts(read(short, 418), read(replace(FORCE, id="o2"), 420, at=T0 + 2), at=T0 + 3)[1], Counts)
    forged = read(FORCE, 418, signer=Unverified(why="no"))
    assert isinstance(verdicts(forged, read(replace(FORCE, id="o2"), 420))[1], Counts)


def test_rule_6_its_time_is_not_over() -> None:
    assert isinstance(verdicts(read(FORCE), at=T0 + 3599)[0], Counts)
    (found,) = verdicts(read(FORCE), at=T0 + 3600)
    assert found == Void(rule=Rule.OVER, text="its time was over at 2027-01-15 09:00:00")
    redrive = replace(
        FORCE, verb="redrive", scope="queue", targets=("0",), engines=("web-1",), typed="0", stands_for=None
    )
    assert isinstance(verdicts(read(redrive), at=T0 + 299)[0], Counts)
    assert isinstance(verdicts(read(redrive), at=T0 + 300)[0], Void)
    assert isinstance(verdicts(read(replace(redrive, act_within=1e6)), at=T0 + 600)[0], Void)


def test_rule_6_a_late_release_only_ends_what_stood() -> None:
    for at, acts in ((T0 + 299, True), (T0 + 301, False)):
        (found,) = verdicts(read(RELEASE), at=at)
        assert isinstance(found, Counts)
        assert found.acts is acts


def test_rule_7_this_engine_is_meant() -> None:
    other = replace(ME, name="pay-1")
    assert verdicts(read(FORCE), engine=other) == [Void(rule=Rule.MEANT, text="it is for web-1, web-2")]
    everyone = read(replace(FORCE, engines=None))
    assert isinstance(verdicts(everyone, engine=other)[0], Counts)


def test_verbs_over_the_fleet() -> None:
    allowed: dict[EnginesPerOrder, set[str]] = {one: set() for one in EnginesPerOrder}
    for verb in FLEET_VERBS.values():
        allowed[verb.over].add(verb.id)
        assert bool(BY_ID[verb.id].participle) == (verb.over is not EnginesPerOrder.NONE)
    assert allowed == {
        EnginesPerOrder.ANY: {
            "force", "pin", "release", "pause-syphon", "resume-syphon", "read-only", "read-write",
        },
        EnginesPerOrder.ONE: {"redrive", "move-stranded", "clean-up"},
        EnginesPerOrder.NONE: {"stop", "drain", "end-drain", "redrive-letters"},
    }  # fmt: skip


# -- the signed bytes -------------------------------------------------------------------------------------------------


def test_the_signed_bytes_are_canonical_and_come_back() -> None:
    signed = encode_order_text(replace(FORCE, why="Störung"))
    assert signed.isascii()
    assert encode_order_text(decode_order_text(signed)) == signed
    assert decode_order_text(signed[:-1] + b',"zz":[1]}') == replace(FORCE, why="Störung"), "extra fields are ignored"


def test_a_larger_version_is_refused_this_engine_is_older() -> None:
    with pytest.raises(UnreadableError, match=OLDER):
        decode_order_text(encode_order_text(FORCE).replace(b'"v":1', b'"v":2'))


@pytest.mark.parametrize(
    "signed",
    [
        b"", b"[", b"[]", b"\xff", b'{"v":1}', b'{"v":true}', b"[" * 9000, b'{"v":' + b"9" * 5000 + b"}", b" " * 16385,
        encode_order_text(FORCE)[:-1] + b',"verb":"pin"}',
        encode_order_text(FORCE).replace(b"300.0", b"NaN"), encode_order_text(FORCE).replace(b"300.0", b"1e999"),
        encode_order_text(FORCE).replace(b'"drill"', b'"\\n"'), encode_order_text(FORCE).replace(b'"drill"', b"7"),
    ],
)  # fmt: skip
def test_hostile_bytes_raise_our_error(signed: bytes) -> None:
    with pytest.raises(UnreadableError):
        decode_order_text(signed)


@settings(max_examples=50)
@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_else(signed: bytes) -> None:
    with pytest.raises(UnreadableError):
        decode_order_text(signed)


# -- what stands ------------------------------------------------------------------------------------------------------


def stands(*reads: ReadOrder, at: float) -> tuple[standing_rules.StandingFleetOrder, ...]:
    return standing_set(judge_log(reads, engine=ME, verbs=FLEET_VERBS), engine=ME, at=at)


def test_the_newest_order_about_a_subject_wins_and_an_older_one_never_comes_back() -> None:
    short = read(replace(FORCE, id="o2", stands_for=60.0, on_top_of=10), 11)
    assert [one.number for one in stands(read(FORCE, 10), short, at=T0 + 59)] == [11]
    assert stands(read(FORCE, 10), short, at=T0 + 61) == ()


def test_an_engine_that_was_cut_off_takes_up_what_stands_and_not_what_was_released(approve: Approve) -> None:
    (order,) = stands(read(FORCE, 10), at=T0 + 3000)
    approve.part(standing_rules.late(order, at=T0 + 3000), "rules of orders", has=("50 min",))
    assert stands(read(FORCE, 10), read(replace(RELEASE, id="o2", on_top_of=10), 11), at=T0 + 3000) == ()


def test_it_is_extended_by_a_new_order_and_released_at_the_end(approve: Approve) -> None:
    longer = read(replace(FORCE, id="o2", on_top_of=10, stands_for=7200.0), 11)
    before, after = stands(read(FORCE, 10), at=T0 + 1), stands(read(FORCE, 10), longer, at=T0 + 1)
    changes = standing_rules.standing_changes(before, after, at=T0 + 1)
    assert ([one.number for one in changes.extended], changes.begun, changes.ended) == ([11], (), ())
    ended = standing_rules.standing_changes(before, (), at=T0 + 3600).ended
    approve.part([one.text for one in ended], "rules of orders", has=("09:00",))
    approve.part(standing_rules.standing_changes(before, (), at=T0 + 60).ended[0].text, "rules of orders")


def test_alarms_30_and_5_minutes_before_the_end() -> None:
    standing = stands(read(FORCE), at=T0)
    at, seen = T0, []
    while (due := standing_rules.next_deadline(standing, at=at)) is not None:
        seen.append((due - T0, [one.seconds for one in standing_rules.alarms_due(standing, after=at, at=due)]))
        at = due
    assert seen == [(1800, [1800]), (3300, [300]), (3600, [])]
    assert [one.seconds for one in standing_rules.alarms_due(standing, after=T0, at=T0 + 3400)] == [300]


def test_a_local_release_differs_until_a_newer_order(approve: Approve) -> None:
    standing = stands(read(FORCE, 10), at=T0)
    subject, order_id = standing[0].subject, standing[0].order_id
    how = {subject: "released here by operator-b"}
    released = {subject: order_id}
    assert standing_rules.in_force(standing, released) == ()
    approve.part(standing_rules.differing(standing, released, how), "rules of orders")
    unknown = standing_rules.differing(standing, released, {subject: ""})
    approve.part(unknown, "rules of orders")
    older = {subject: "an older one"}
    assert (standing_rules.in_force(standing, older), standing_rules.differing(standing, older, how)) == (standing, ())


def test_what_was_refused_here_is_no_difference_because_its_answer_says_so() -> None:
    standing = stands(read(FORCE, 10), at=T0)
    released = {standing[0].subject: standing[0].order_id}
    assert standing_rules.in_force(standing, released) == ()
    assert standing_rules.differing(standing, released, {}) == ()


def _log(data: list[tuple[Any, ...]]) -> list[ReadOrder]:
    reads = []
    for number, (verb, target, engines, back, stands_for, ident) in enumerate(data, 1):
        text = replace(
            FORCE, id=f"o{ident}", verb=verb, targets=(target,), engines=engines, issued_at=T0 + number,
            on_top_of=max(0, number - 1 - back), stands_for=None if verb == "release" else stands_for,
            typed=target if engines == ("web-1",) else "2",
        )  # fmt: skip
        reads.append(read(text, number, at=T0 + number))
    return reads


LOGS = st.lists(
    st.tuples(
        st.sampled_from(["force", "pin", "release"]), st.sampled_from(["orders", "audit"]),
        st.sampled_from([None, ("web-1",), ("web-1", "web-2")]), st.integers(0, 3),
        st.sampled_from([2.0, 100.0]), st.integers(0, 30),
    ),
    max_size=8,
).map(_log)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(LOGS, st.data())
def test_any_interleaving_duplication_and_delay_of_a_log_gives_the_same_standing_set(
    log: list[ReadOrder], data: st.DataObject
) -> None:
    at = T0 + data.draw(st.integers(0, 120))
    expected = stands(*log, at=at)
    shuffled = data.draw(st.permutations(log + log[: data.draw(st.integers(0, len(log)))]))
    assert stands(*shuffled, at=at) == expected
    so_far: list[ReadOrder] = []
    now: tuple[standing_rules.StandingFleetOrder, ...] = ()
    for one in shuffled:  # an engine that reads piece by piece, and follows the changes
        so_far.append(one)
        after = stands(*so_far, at=at)
        changes = standing_rules.standing_changes(now, after, at=at)
        gone = {each.order.subject for each in changes.ended}
        new = {each.subject: each for each in (*changes.begun, *changes.extended)}
        kept = {each.subject: each for each in now if each.subject not in gone}
        now = tuple(one for _, one in sorted({**kept, **new}.items()))
        assert now == after
    assert now == expected
