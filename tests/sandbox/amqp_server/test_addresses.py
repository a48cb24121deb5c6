"""Addresses and audiences."""

import pytest

from servicebus_amqp.node_address import NodeAddress, NodeKind, covers, parse_address, path_of


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
        ("$cbs", NodeAddress(NodeKind.CBS, "", "")),
        ("sb://host/$CBS", NodeAddress(NodeKind.CBS, "", "")),
        ("orders/$management", NodeAddress(NodeKind.MANAGEMENT, "orders", "orders/$management")),
        ("Orders/$Management", NodeAddress(NodeKind.MANAGEMENT, "Orders", "Orders/$Management")),
        ("amqps://h/t/Subscriptions/s", NodeAddress(NodeKind.ENTITY, "t/Subscriptions/s", "t/Subscriptions/s")),
        ("q/$DeadLetterQueue", NodeAddress(NodeKind.ENTITY, "q/$DeadLetterQueue", "q/$DeadLetterQueue")),
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
