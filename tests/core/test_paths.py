"""Which texts are paths of entities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.errors import ConfigurationError, EnvelopeError
from paired_servicebus.core.model.envelope import PATH, unwrap
from paired_servicebus.core.text.entity_paths import MAX_PATH, entity_path, path_fault

PATHS = ["orders", "Orders", "a/b/c", "contoso/x-servicebus-transfer/0", "a.b-c_d", "Größe", "x" * MAX_PATH]
FOREIGN = {
    "$management": "begins with '$'",
    "$cbs": "begins with '$'",
    "orders/$management": "begins with '$'",
    "audit/Subscriptions/all/$management": "begins with '$'",
    "/orders": "empty segment",
    "/orders/": "empty segment",
    "a//b": "empty segment",
    "a/../b": "empty segment",
    "amqps://evil.example/orders": "scheme",
    "orders?x": "holds '?'",
    "orders#x": "holds '#'",
    "orders\x1b[2J": "the character U+001B",
    "orders\n": "the character U+000A",
    "orders\u202e": "the character U+202E",
    "or ders": "holds ' '",
    "x" * 70_000: "has 70,000 characters",
    "": "is empty",
    "///": "is empty",
}


@pytest.mark.parametrize("path", PATHS)
def test_an_entitys_path_is_a_destination(path: str) -> None:
    assert unwrap({PATH: path}).path == path


@pytest.mark.parametrize("path", FOREIGN)
def test_a_path_that_no_entity_has_is_refused_with_the_reason(path: str) -> None:
    """An entity's path, no `$` segment, no scheme, no empty segment, at most 260 characters [...]; else dead-lettered
    with the reason."""
    with pytest.raises(EnvelopeError) as caught:
        unwrap({PATH: path})
    assert FOREIGN[path] in str(caught.value)


@given(st.text())
def test_a_refusal_repeats_nothing_that_a_terminal_could_act_on(path: str) -> None:
    fault = path_fault(path)
    assert fault.isprintable()
    assert len(fault) < 150


@given(st.text(max_size=20))
def test_a_path_that_is_taken_reaches_the_entity_of_that_name_and_no_other_node(path: str) -> None:
    if not path_fault(path):
        assert path == path.strip("/")
        assert not set(path) & set("$?#:\\ ")


@pytest.mark.parametrize("name", ["orders", "/orders", "orders/", "/orders/"])
def test_a_callers_slashes_around_a_name_are_no_part_of_the_path(name: str) -> None:
    assert entity_path(name) == "orders"


@pytest.mark.parametrize("name", ["", "/", "orders/$management", "a//b", "orders?"])
def test_a_caller_is_told_at_once_that_no_entity_has_that_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match="entity's name"):
        entity_path(name)
