"""A search over messages: a text anywhere, or a JSON path into the body."""

from __future__ import annotations

import pytest

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.message_view import MAX_SEARCH_CHARS, parse_search

BODY = b'{"order": {"id": 4711, "who": "Ada", "vip": true}, "lines": [{"sku": "A-1"}, {"sku": "b 2"}], "n": null}'
TEXTS = ("m-29", "orders", "tenant: Contoso")


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("M-29", True),
        ("contoso", True),
        ("4711", True),
        ("ada", True),
        ("m-30", False),
        ("$.order", True),
        ("$.order.id", True),
        ("$.order.id = 4711", True),
        ("$.order.id=4711.0", True),
        ("$.order.id = 1", False),
        ("$.order.id = true", False),
        ("$.order.vip = true", True),
        ("$.order.vip = 1", False),
        ("$.order.who = Ada", True),
        ('$.order.who = "Ada"', True),
        ("$.order.who = ada", False),
        ("$.lines[1].sku = b 2", True),
        ("$.lines[*].sku = A-1", True),
        ("$.lines[7].sku", False),
        ('$["order"]["id"]', True),
        ("$.n = null", True),
        ("$.order.nothing", False),
        ("$5", False),
    ],
)
def test_a_text_is_found_anywhere_and_a_path_in_the_body(search: str, found: bool) -> None:
    assert parse_search(search)(TEXTS, BODY) is found


@pytest.mark.parametrize("search", ["$.", "$.a b", "$[x]", "$.a[", "$.a ~ 1", "x" * (MAX_SEARCH_CHARS + 1)])
def test_what_is_no_search_is_one_sentence(search: str) -> None:
    with pytest.raises(ConfigurationError, match=r"JSON path|characters"):
        parse_search(search)


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"{", b"[" * 100_000, b'{"a": NaN}', None])
@pytest.mark.parametrize("search", ["$.a = 1", "text"])
def test_a_body_that_is_none_matches_nothing(body: bytes | None, search: str) -> None:
    assert parse_search(search)((), body) is False


def test_a_hidden_body_is_not_searched() -> None:
    assert parse_search("4711")(("4711",), None) is True
    assert parse_search("Ada")(TEXTS, None) is False
