"""Options (SPEC.md section 3): defaults, both ends of every range, wrong types; the text says what would be right."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.errors import ConfigurationError, EnvelopeError
from paired_servicebus.core.model.envelope import PATH, unwrap
from paired_servicebus.core.model.policy import RANGES, WHOLE, WORDS, OptionRange, Policy
from paired_servicebus.core.text.entity_paths import MAX_PATH, entity_path, path_fault

MINUTE = 60

DEFAULTS = {
    "backlog_queue_count": 10,
    "failover_interval": MINUTE,
    "enable_syphon": False,
    "ping_primary_interval": MINUTE,
    "ping_timeout": 2 * MINUTE,
    "ping": "message",
    "syphon_retry_interval": 1,
    "syphon_receive_window": 15 * MINUTE,
    "close_grace": 5,
    "send_timeout": 30,
    "hold_until_failover": False,
    "failback_pings": 1,
    "cool_down": 0,
    "ttl_policy": "restart",
    "undeliverable_after": 15 * MINUTE,
    "throttle_wait": 10,
    "quiet_period": 15 * MINUTE,
    "journal": "diverted",
    "pump": "auto",
    "syphon_rate": 0,
    "syphon_live_share": 0.5,
    "destinations": None,
    "start_degraded": False,
    "record_received": False,
}

ENDS = {
    "backlog_queue_count": (1, 10_000),
    "failover_interval": (0, 60 * MINUTE),
    "ping_primary_interval": (1, 30 * MINUTE),
    "ping_timeout": (1, 2 * MINUTE),
    "syphon_retry_interval": (1, 2 * MINUTE),
    "syphon_receive_window": (1, 60 * MINUTE),
    "close_grace": (0, 60 * MINUTE),
    "send_timeout": (1, 5 * MINUTE),
    "failback_pings": (1, 1_000),
    "cool_down": (0, 366 * 24 * 60 * MINUTE),
    "undeliverable_after": (0, 366 * 24 * 60 * MINUTE),
    "throttle_wait": (10, 366 * 24 * 60 * MINUTE),
    "quiet_period": (1, 366 * 24 * 60 * MINUTE),
    "syphon_rate": (0, 1_000_000),
    "syphon_live_share": (0, 0.9),
}
"""Least and greatest, a second time. The specification leaves those of syphon_receive_window and close_grace open."""

SWITCHES = ("enable_syphon", "hold_until_failover", "start_degraded", "record_received")
CHOICES = {
    "ping": ("message", "link"),
    "ttl_policy": ("restart", "elapsed"),
    "journal": ("diverted", "all"),
    "pump": ("auto", "amqp", "sdk"),
}
BOUNDED = {name: greatest for name, (_, greatest) in ENDS.items() if greatest is not None}


def refused(**option: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        Policy(**option)
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


def step(name: str) -> float:
    """The least step that leaves a range."""
    return 1 if name in WHOLE else 1e-9


def test_the_defaults_are_those_of_the_specification() -> None:
    policy = Policy()
    assert {field.name: getattr(policy, field.name) for field in fields(Policy)} == DEFAULTS


def test_every_option_is_checked_by_exactly_one_rule() -> None:
    rules = [*RANGES, *WORDS, *SWITCHES, "destinations"]
    assert sorted(rules) == sorted(field.name for field in fields(Policy))


def test_the_ranges_are_those_of_the_specification() -> None:
    assert {name: tuple(limits) for name, limits in RANGES.items()} == ENDS
    assert WORDS == CHOICES


@pytest.mark.parametrize(("name", "least"), [(name, least) for name, (least, _) in ENDS.items()])
def test_the_least_value_is_in_and_the_one_below_is_out(name: str, least: float) -> None:
    assert getattr(Policy(**{name: least}), name) == least
    below = least - step(name)
    assert refused(**{name: below}).startswith(f"{name} is {below!r}; it must be ")


@pytest.mark.parametrize(("name", "greatest"), BOUNDED.items())
def test_the_greatest_value_is_in_and_the_one_above_is_out(name: str, greatest: float) -> None:
    assert getattr(Policy(**{name: greatest}), name) == greatest
    above = greatest + 1 if name in WHOLE else math.nextafter(greatest, math.inf)
    assert refused(**{name: above}).startswith(f"{name} is {above!r}; it must be ")


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("value", ["60", None, True, b"1", [1], 1j, math.nan, math.inf])
def test_what_is_no_finite_number_is_refused(name: str, value: object) -> None:
    assert refused(**{name: value}).startswith(f"{name} is {value!r}; it ")


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_a_number_of_things_is_whole(name: str) -> None:
    assert refused(**{name: 2.0}) == f"{name} is 2.0; it is a whole number, {RANGES[name]}"


@pytest.mark.parametrize(("name", "words"), CHOICES.items())
def test_a_word_is_one_of_those_there_are(name: str, words: tuple[str, ...]) -> None:
    assert [getattr(Policy(**{name: word}), name) for word in words] == list(words)
    for wrong in (words[0].upper(), "", None, True, ["message"]):
        assert refused(**{name: wrong}) == f"{name} is {wrong!r}; it is one of {', '.join(words)}"


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_is_true_or_false(name: str) -> None:
    assert [getattr(Policy(**{name: value}), name) for value in (True, False)] == [True, False]
    for wrong in (1, 0, "true", None):
        assert refused(**{name: wrong}) == f"{name} is {wrong!r}; it is true or false"


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"failover_interval": -1}, "failover_interval is -1; it must be 0 to 3600 seconds"),
        ({"throttle_wait": 9.5}, "throttle_wait is 9.5; it must be 10 to 31622400 seconds"),
        ({"cool_down": math.inf}, "cool_down is inf; it must be 0 to 31622400 seconds, and finite"),
        ({"backlog_queue_count": 0}, "backlog_queue_count is 0; it must be 1 to 10000"),
        ({"ping_timeout": "2m"}, "ping_timeout is '2m'; it is a number of seconds, 1 to 120"),
    ],
)
def test_the_text_names_the_option_the_value_and_the_range(option: dict[str, object], text: str) -> None:
    """Section 3: "Out of range: `ValueError` naming the option, the value and the range"."""
    assert refused(**option) == text


@pytest.mark.parametrize("value", [(), ["orders"], "orders", ("orders/$management",), (7,)])
def test_destinations_are_paths_of_entities(value: object) -> None:
    assert "destinations" in refused(destinations=value)


def test_a_range_says_itself() -> None:
    assert (str(OptionRange(1, 120)), str(OptionRange(0.5))) == ("1 to 120", "at least 0.5")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({}, False),
        ({"hold_until_failover": True}, True),
        ({"hold_until_failover": True, "failover_interval": 30}, True),
        ({"hold_until_failover": True, "failover_interval": 29}, False),
        ({"failover_interval": 300}, False),
    ],
)
def test_a_hold_that_ends_before_the_failover_is_remarked(option: dict[str, float], said: bool) -> None:
    """Section 6, `hold_until_failover`: "the send waits instead of raising, bounded by its timeout"."""
    remarks = Policy(**option).remarks  # type: ignore[arg-type]
    assert len(remarks) == said
    assert all("set send_timeout above failover_interval" in text for text in remarks)


# -- Which texts are paths of entities.


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
