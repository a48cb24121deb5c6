"""When an order counts, and which is the newest: FLEET.md section 5, a test for each rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.fleet.fleet_world import author
from tests.core.fleet.made_orders import SIGNER, T0, made_order, made_text

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.fleet.engine_orders import Register, SeenOrder
from paired_servicebus.core.fleet.fleet_documents import (
    OLDER,
    Order,
    Signer,
    Unverified,
    decode_order_text,
    encode_order_text,
    order_id,
)
from paired_servicebus.core.fleet.order_rules import ORDER_SECONDS, RULES, Rule, why_void
from paired_servicebus.core.operator.actions import BY_ID, FLEET_VERBS

ME = author("web-1", primary="SHOP-NE")


def void(
    order: Order, *, signer: Signer | Unverified = SIGNER, at: float = T0, now: float = T0
) -> tuple[Rule, str] | None:
    found = why_void(order.text, signer, engine=ME, verbs=FLEET_VERBS, first_at=at, at=now)
    return None if found is None else (found.rule, found.text)


def test_the_rules_are_in_the_order_of_the_design_and_an_order_that_breaks_none_counts() -> None:
    assert [rule for rule, _ in RULES] == list(Rule)
    assert void(made_order()) is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"primary": "other"}, "it is for another pairing (other and shop-we)"),
        ({"secondary": "other"}, "it is for another pairing (shop-ne and other)"),
        ({"verb": "explode"}, "this version knows no order 'explode' over the fleet"),
        *(
            ({"verb": verb}, f"this version knows no order '{verb}' over the fleet")
            for verb in ("stop", "redrive", "clean-up")
        ),
        ({"scope": "queue"}, "force failover has the wrong kind of target (queue)"),
        ({"targets": ()}, "force failover has the wrong kind of target"),
        ({"targets": ("a", "A")}, "it names a target twice"),
        ({"until": T0}, "force failover ends before it begins"),
        ({"until": T0 + 72 * 3600 + 1.0}, "force failover stands for 72 h at most"),
        ({"typed": "3"}, "its author typed '3', not '2'"),
        ({"reach": 1, "typed": "2"}, "its author typed '2', not 'payments'"),
        ({"reach": 0, "typed": "2"}, "its author typed '2', not 'payments'"),
        ({"engines": tuple(f"e{number}" for number in range(51))}, "it names 51 engines, and 50 are allowed"),
    ],
)
def test_rule_1_form_version_size_primary_and_secondary_are_ours(changes: dict[str, Any], sentence: str) -> None:
    verb = changes.pop("verb", "force")
    found = void(made_order(verb, **changes))
    assert found is not None
    assert found[0] is Rule.FORM
    assert sentence in found[1]


def test_rule_2_an_order_that_no_operator_signed_is_void() -> None:
    assert void(made_order(), signer=Unverified(why="look only: none")) == (Rule.SIGNATURE, "look only: none")


@pytest.mark.parametrize(("first_at", "counts"), [(T0 + 60, True), (T0 + 60.1, False), (T0 + 86_400, False)])
def test_an_order_counts_only_if_the_namespace_first_dates_it_before_the_end_of_its_key(
    first_at: float, counts: bool
) -> None:
    """ "A key has to be valid at the order's issue, and when the namespace first dates its bytes." """
    found = void(made_order(), signer=replace(SIGNER, valid_before=T0 + 60), at=first_at)
    assert (found is None) is counts
    assert found is None or found[0] is Rule.KEY


@pytest.mark.parametrize(("ahead", "counts"), [(60.0, True), (60.1, False), (7200.0, False), (-86_400.0, True)])
def test_rule_3_none_comes_from_the_future_and_a_copy_counts_whoever_posts_it_and_when(
    ahead: float, counts: bool
) -> None:
    found = void(made_order(at=T0 + ahead), at=T0)
    assert (found is None) is counts
    assert counts or (found is not None and found[0] is Rule.FUTURE)


def test_an_order_decides_nothing_once_no_older_one_can_stand() -> None:
    assert void(made_order("release"), now=T0 + ORDER_SECONDS - 1) is None
    assert void(made_order("release"), now=T0 + ORDER_SECONDS) == (Rule.OVER, "it was over three days ago")


def test_verbs_over_the_fleet() -> None:
    """ "Redrive, move-stranded, clean-up leave the fleet: one engine does them." """
    assert set(FLEET_VERBS) == {
        "force", "pin", "release", "pause-syphon", "resume-syphon", "read-only", "read-write",
    }  # fmt: skip
    assert all(BY_ID[verb].stands_for and BY_ID[verb].participle for verb in FLEET_VERBS)


# -- the register -----------------------------------------------------------------------------------------------------


def seen(order: Order, **changes: Any) -> SeenOrder:
    made = SeenOrder(order=order, by="operator-a", fingerprint="SHA256:x", first_at=order.text.issued_at)
    return replace(made, **changes)


def newest(*orders: Order, engine: str = "web-1") -> dict[str, str]:
    """The newest order's verb by target."""
    register = Register(FLEET_VERBS, map(seen, orders))
    return {subject[2]: one.text.verb for subject, one in register.newest(engine).items()}


def test_the_newest_order_of_a_subject_wins_in_whatever_sequence_they_are_read() -> None:
    force, pin, release = made_order("force"), made_order("pin", at=T0 + 1), made_order("release", at=T0 + 2)
    assert newest(force, pin) == newest(pin, force) == {"payments": "pin"}
    assert newest(release, force, pin) == {"payments": "release"}
    assert newest(made_order("force", "Payments"), made_order("pin", "audit", at=T0 + 9)) == {
        "payments": "force",
        "audit": "pin",
    }


def test_a_tie_is_broken_by_the_signed_bytes_the_same_on_every_engine() -> None:
    one, other = made_order("force"), made_order("pin")
    assert newest(one, other) == newest(other, one)


def test_an_order_replaces_only_the_targets_and_the_engines_that_it_names() -> None:
    all_ = made_order("force", "payments", "audit")
    some = made_order("release", at=T0 + 1, engines=("WEB-1",))
    assert newest(all_, some) == {"payments": "release", "audit": "force"}
    assert newest(some, all_, engine="web-2") == {"payments": "force", "audit": "force"}
    assert newest(all_, some, made_order("pin", at=T0 + 2)) == {"payments": "pin", "audit": "force"}


def test_an_order_that_newer_ones_replaced_for_everybody_is_not_taken_in_again() -> None:
    register = Register(FLEET_VERBS, [seen(made_order("release", at=T0 + 1))])
    assert not register.add(seen(made_order("force")))
    assert register.add(seen(made_order("force", at=T0 + 2)))
    assert not register.add(seen(made_order("force", at=T0 + 2)))
    assert [one.text.verb for one in register.orders] == ["force"]


def test_a_signer_who_lost_the_right_leaves_the_subject_to_the_rules_and_to_no_older_order() -> None:
    older, newer = made_order("force"), made_order("pin", at=T0 + 1)
    register = Register(FLEET_VERBS, map(seen, (older, newer)))
    assert register.judge_again({newer.id: False})
    (one,) = register.newest("web-1").values()
    assert (one.text.verb, one.counts) == ("pin", False)
    assert not register.judge_again({newer.id: False})


@pytest.mark.parametrize(("end", "holds"), [(T0 - 1, False), (T0 + 5, True)])
def test_an_earlier_end_of_a_key_leaves_its_right_to_what_was_seen_before(end: float, holds: bool) -> None:
    one = seen(made_order("force"))
    assert one.is_signed_by(replace(SIGNER, valid_before=end)) is holds
    assert not one.is_signed_by(Unverified(why="its key is not in the file of operators"))


def test_what_can_decide_nothing_any_more_is_forgotten() -> None:
    register = Register(FLEET_VERBS, [seen(made_order("release")), seen(made_order("force", "audit", at=T0 + 60))])
    assert not register.forget_over(T0 + ORDER_SECONDS - 1)
    assert register.forget_over(T0 + ORDER_SECONDS)
    assert [one.text.targets for one in register.orders] == [("audit",)]
    assert register.newest_issue == T0 + 60


def test_a_presence_carries_releases_first_and_at_most_30_orders_of_16_kb() -> None:
    forces = [seen(made_order("force", f"q{number}", at=T0 + number)) for number in range(40)]
    release = seen(made_order("release", "old", at=T0 - 9))
    carried = Register(FLEET_VERBS, [*forces, release]).carried()
    assert len(carried) <= 30
    assert sum(len(one.signed) + len(one.signature) for one in carried) <= 16 * 1024
    assert carried[:2] == (release.order, forces[-1].order)


def age_key(one: Order) -> tuple[float, str]:
    return one.text.issued_at, one.id


ORDERS = st.builds(
    lambda verb, target, engines, at: made_order(verb, target, at=T0 + at, engines=engines),
    st.sampled_from(["force", "pin", "release"]), st.sampled_from(["orders", "audit"]),
    st.sampled_from([None, ("web-1",), ("web-1", "web-2"), ("pay-1",)]), st.integers(0, 9),
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.lists(ORDERS, max_size=9), st.data())
def test_any_interleaving_duplication_and_delay_gives_the_same_newest_orders(
    orders: list[Order], data: st.DataObject
) -> None:
    mixed = data.draw(st.permutations(orders + orders[: data.draw(st.integers(0, len(orders)))]))
    for engine in ("web-1", "web-2", "pay-1"):
        meant = [one for one in orders if one.text.engines is None or engine in one.text.engines]
        found = Register(FLEET_VERBS, map(seen, mixed)).newest(engine)
        expected = {
            target: max(
                (one for one in meant if target in one.text.targets), key=lambda one: (one.text.issued_at, one.id)
            )
            for target in {one.text.targets[0] for one in meant}
        }
        assert {subject[2]: one.order.id for subject, one in found.items()} == {
            target: one.id for target, one in expected.items()
        }


# -- the signed bytes -------------------------------------------------------------------------------------------------


def test_the_signed_bytes_are_canonical_come_back_and_are_the_id() -> None:
    text = made_text(why="Störung")
    signed = encode_order_text(text)
    assert signed.isascii()
    assert encode_order_text(decode_order_text(signed)) == signed
    assert decode_order_text(signed[:-1] + b',"zz":[1]}') == text, "extra fields are ignored"
    assert Order(signed=signed.decode(), signature="a").id == Order(signed=signed.decode(), signature="b").id
    assert order_id(signed) != order_id(signed + b" ")


def test_a_larger_version_is_refused_this_engine_is_older() -> None:
    with pytest.raises(UnreadableError, match=OLDER):
        decode_order_text(encode_order_text(made_text()).replace(b'"v":1', b'"v":2'))


SIGNED = encode_order_text(made_text())


@pytest.mark.parametrize(
    "signed",
    [
        b"", b"[", b"[]", b"\xff", b'{"v":1}', b'{"v":true}', b"[" * 9000, b'{"v":' + b"9" * 5000 + b"}", b" " * 12289,
        SIGNED[:-1] + b',"verb":"pin"}', SIGNED.replace(b"1800003600.0", b"NaN"),
        SIGNED.replace(b"1800003600.0", b"1e999"), SIGNED.replace(b'"drill"', b'"\\n"'),
        SIGNED.replace(b'"drill"', b"7"), SIGNED.replace(b'"reach":2', b'"reach":-2'),
    ],
)  # fmt: skip
def test_hostile_bytes_raise_our_error(signed: bytes) -> None:
    assert signed != SIGNED
    with pytest.raises(UnreadableError):
        decode_order_text(signed)


@settings(max_examples=50)
@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_else(signed: bytes) -> None:
    with pytest.raises(UnreadableError):
        decode_order_text(signed)
