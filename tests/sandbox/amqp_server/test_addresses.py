"""Addresses, audiences and what a token opens."""

import pytest

from console.sandbox.addresses import Address, NodeKind, covers, parse_address, path_of
from console.sandbox.grants import Grants


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("sb://host:5671/contoso/x/0", "contoso/x/0"),
        ("amqps://host/q/", "q"),
        ("sb://host", ""),
        ("sb://host/", ""),
        ("q", "q"),
        ("/q", "q"),
        ("a/b://c", "a/b://c"),
    ],
)
def test_the_path_of_a_uri(uri, path):
    assert path_of(uri) == path


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("$cbs", Address(NodeKind.CBS, "", "")),
        ("sb://host/$CBS", Address(NodeKind.CBS, "", "")),
        ("orders/$management", Address(NodeKind.MANAGEMENT, "orders", "orders/$management")),
        ("Orders/$Management", Address(NodeKind.MANAGEMENT, "Orders", "Orders/$Management")),
        ("amqps://h/t/Subscriptions/s", Address(NodeKind.ENTITY, "t/Subscriptions/s", "t/Subscriptions/s")),
        ("q/$DeadLetterQueue", Address(NodeKind.ENTITY, "q/$DeadLetterQueue", "q/$DeadLetterQueue")),
    ],
)
def test_what_an_address_names(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("parent", "path", "covered"),
    [
        ("q", "Q", True),
        ("q", "q/$management", True),
        ("q", "qq", False),
        ("q/a", "q", False),
        ("", "anything", True),
    ],
)
def test_whole_segments_are_covered(parent, path, covered):
    assert covers(parent, path) is covered


def test_grants_end_one_by_one():
    grants = Grants()
    grants.put("Orders", 100.0)
    grants.put("audit", 200.0)
    assert grants.next_end() == 100.0
    assert grants.allow("orders/$DeadLetterQueue", 99.9)
    assert not grants.allow("orders", 100.0)
    assert not grants.drop_expired(99.9)
    assert grants.drop_expired(100.0)
    assert grants.next_end() == 200.0


def test_a_new_token_takes_the_place_of_the_old_one():
    grants = Grants()
    grants.put("orders", 100.0)
    grants.put("ORDERS", 300.0)
    assert not grants.drop_expired(200.0)
    assert grants.allow("orders", 200.0)
