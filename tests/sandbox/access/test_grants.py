"""What a connection may do by the tokens it has shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from servicebus_amqp.node_address import covers
from servicebus_sandbox.access.grants import MAX_GRANTS, Grants, ProvenAccess
from servicebus_sandbox.broker.entity_settings import ALL_RIGHTS, Right

SEND, LISTEN = frozenset({Right.SEND}), frozenset({Right.LISTEN})


def test_grants_end_one_by_one() -> None:
    grants = Grants()
    grants.put(ProvenAccess("Orders", ALL_RIGHTS, 100.0))
    grants.put(ProvenAccess("audit", ALL_RIGHTS, 200.0))
    assert grants.next_end == 100.0
    assert grants.allow("orders/$DeadLetterQueue", Right.LISTEN, 99.9)
    assert not grants.allow("orders", Right.LISTEN, 100.0)
    assert not grants.drop_expired(99.9)
    assert grants.drop_expired(100.0)
    assert grants.next_end == 200.0


def test_a_new_token_takes_the_place_of_the_old_one() -> None:
    grants = Grants()
    grants.put(ProvenAccess("orders", SEND, 100.0))
    grants.put(ProvenAccess("ORDERS", LISTEN, 300.0))
    assert not grants.drop_expired(200.0)
    assert grants.allow("orders", Right.LISTEN, 200.0)
    assert not grants.allow("orders", Right.SEND, 50.0)


def test_rights_come_from_any_token_above() -> None:
    grants = Grants()
    grants.put(ProvenAccess("", SEND, 100.0))
    grants.put(ProvenAccess("audit", LISTEN, 100.0))
    assert grants.allow("audit/Subscriptions/all", Right.LISTEN, 0.0)
    assert grants.allow("audit/Subscriptions/all", Right.SEND, 0.0)
    assert not grants.allow("orders", Right.LISTEN, 0.0)
    assert grants.allow("orders", None, 0.0)


def test_there_is_an_end_to_what_is_kept() -> None:
    grants = Grants()
    assert all(grants.put(ProvenAccess(f"q{number}", SEND, 100.0)) for number in range(MAX_GRANTS))
    assert not grants.put(ProvenAccess("one-more", SEND, 100.0))
    assert grants.put(ProvenAccess("Q7", LISTEN, 100.0))
    assert grants.allow("q7", Right.LISTEN, 0.0)


PATHS = st.lists(st.sampled_from(["a", "B", "$management"]), max_size=4).map("/".join)


@given(PATHS, PATHS)
def test_a_path_opens_itself_and_what_lies_below(granted: str, wanted: str) -> None:
    grants = Grants()
    grants.put(ProvenAccess(granted, SEND, 100.0))
    assert grants.allow(wanted, Right.SEND, 0.0) == covers(granted, wanted)


@given(st.integers(1, 3))
def test_a_path_longer_than_any_opens_nothing(size: int) -> None:
    grants = Grants()
    grants.put(ProvenAccess("a", SEND, 100.0))
    assert not grants.allow("a" + "/" * size * 100_000, Right.SEND, 0.0)
