"""Properties into a backlog message and out of it again (SPEC.md section 7.2), and what cannot be read back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paired_servicebus.core.errors import EnvelopeError, ReservedPropertyError
from paired_servicebus.core.model.envelope import (
    MAX_TICKS,
    PATH,
    PING_CONTENT_TYPE,
    RESERVED,
    SCHEDULED,
    SESSION_ID,
    TICKS_A_SECOND,
    TIME_TO_LIVE,
    EnvelopeProperties,
    Timespan,
    from_ticks,
    refuse_reserved,
    remaining,
    to_ticks,
    unwrap,
    wrap,
)

LONGEST = timedelta(microseconds=MAX_TICKS // 10)
"""TimeSpan.MaxValue, to the microsecond."""
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = st.text(st.characters(categories=["L", "Nd"], include_characters="._-"), min_size=1, max_size=60)
PATHS = st.lists(NAMES.filter(lambda name: name.strip(".")), min_size=1, max_size=4).map("/".join)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45)), ZoneInfo("America/New_York")])
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(9000, 1, 1), timezones=ZONES, allow_imaginary=False)
ENCLOSED = st.builds(
    EnvelopeProperties,
    path=PATHS,
    session_id=st.none() | TEXT,
    time_to_live=st.none() | st.timedeltas(timedelta(0), LONGEST),
    scheduled=st.none() | MOMENTS,
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose local time is not UTC."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def in_utc(enclosed: EnvelopeProperties) -> EnvelopeProperties:
    """The same moment; an hour that a zone has twice is equal to none of another zone."""
    scheduled = enclosed.scheduled
    return enclosed if scheduled is None else replace(enclosed, scheduled=scheduled.astimezone(UTC))


# -- round trips -----------------------------------------------------------------------------------------------------


@given(enclosed=ENCLOSED)
@example(EnvelopeProperties(path="a", session_id="", time_to_live=timedelta(0), scheduled=EPOCH))
@example(EnvelopeProperties(path="a", scheduled=datetime(1970, 10, 25, 1, tzinfo=ZoneInfo("America/New_York"))))
def test_what_was_wrapped_comes_out_again(enclosed: EnvelopeProperties) -> None:
    assert unwrap(wrap(enclosed)) == in_utc(enclosed)


@given(enclosed=ENCLOSED)
def test_it_survives_an_sdk_that_leaves_bytes_and_bare_numbers(enclosed: EnvelopeProperties) -> None:
    """A received message has bytes for strings, a long for a timespan, milliseconds for a timestamp."""

    def as_received(value: object) -> object:
        if isinstance(value, Timespan):
            return value.ticks
        if isinstance(value, datetime):
            return (value - EPOCH) // timedelta(milliseconds=1)
        return value.encode() if isinstance(value, str) else value

    found = unwrap({name.encode(): as_received(value) for name, value in wrap(enclosed).items()})

    assert (found.path, found.session_id, found.time_to_live) == (
        enclosed.path,
        enclosed.session_id,
        enclosed.time_to_live,
    )
    assert (found.scheduled is None) == (enclosed.scheduled is None)
    if found.scheduled is not None and enclosed.scheduled is not None:
        assert timedelta(0) <= enclosed.scheduled - found.scheduled < timedelta(milliseconds=1)


@given(enclosed=ENCLOSED)
def test_only_what_was_set_is_added_and_only_under_the_four_names(enclosed: EnvelopeProperties) -> None:
    names = {
        PATH: enclosed.path,
        SESSION_ID: enclosed.session_id,
        TIME_TO_LIVE: enclosed.time_to_live,
        SCHEDULED: enclosed.scheduled,
    }
    assert set(wrap(enclosed)) == {name for name, value in names.items() if value is not None}


@given(others=st.dictionaries((TEXT | st.binary()).filter(lambda key: key not in RESERVED), st.integers()))
def test_the_senders_own_properties_are_none_of_its_business(others: dict[object, object]) -> None:
    own = {key: value for key, value in others.items() if key not in {name.encode() for name in RESERVED}}
    assert unwrap({**own, PATH: "orders"}) == EnvelopeProperties(path="orders")


def test_the_four_names_are_those_of_the_retired_client() -> None:
    assert {PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED} == RESERVED
    assert sorted(RESERVED) == ["x-ms-path", "x-ms-scheduledenqueuetimeutc", "x-ms-sessionid", "x-ms-timetolive"]
    assert PING_CONTENT_TYPE == "application/vnd.ms-servicebus-ping"


def test_a_scheduled_time_is_written_in_utc() -> None:
    noon = datetime(2026, 5, 1, 12, 0, tzinfo=timezone(timedelta(hours=2)))
    written = wrap(EnvelopeProperties(path="orders", scheduled=noon))[SCHEDULED]
    assert isinstance(written, datetime)
    assert (written, written.tzinfo) == (datetime(2026, 5, 1, 10, 0, tzinfo=UTC), UTC)


@pytest.mark.usefixtures("far_east")
def test_a_scheduled_time_without_a_zone_is_utc_on_every_machine() -> None:
    """The property is `scheduled_enqueue_time_utc`, and the SDK writes naive ones as UTC."""
    naive = datetime(2026, 5, 1, 12, 0)
    aware = naive.replace(tzinfo=UTC)
    assert wrap(EnvelopeProperties(path="orders", scheduled=naive))[SCHEDULED] == aware
    assert unwrap({PATH: "orders", SCHEDULED: naive}).scheduled == aware


# -- ticks -----------------------------------------------------------------------------------------------------------


@given(span=st.timedeltas(timedelta(0), LONGEST))
def test_ticks_keep_every_microsecond(span: timedelta) -> None:
    assert from_ticks(to_ticks(span)) == span


@given(ticks=st.integers(0, MAX_TICKS))
def test_ticks_lose_less_than_a_microsecond(ticks: int) -> None:
    assert 0 <= ticks - to_ticks(from_ticks(ticks)) < 10


def test_ticks_are_a_hundred_nanoseconds_and_end_at_the_longest_timespan() -> None:
    assert to_ticks(timedelta(seconds=1)) == TICKS_A_SECOND == 10_000_000
    assert to_ticks(timedelta.max) == MAX_TICKS == 9_223_372_036_854_775_807


@pytest.mark.parametrize("value", [MAX_TICKS, Timespan(MAX_TICKS), 2**64, timedelta.max])
def test_a_time_to_live_without_an_end_is_the_longest_there_is(value: object) -> None:
    assert unwrap({PATH: "orders", TIME_TO_LIVE: value}).time_to_live == LONGEST


# -- malformed -------------------------------------------------------------------------------------------------------

MALFORMED = [
    ({}, "'x-ms-path' is missing"),
    ({SESSION_ID: "s"}, "'x-ms-path' is missing"),
    ({"X-MS-PATH": "orders"}, "'x-ms-path' is missing"),
    ({PATH: ""}, "'x-ms-path' is empty"),
    ({PATH: "//"}, "'x-ms-path' is empty"),
    ({PATH: None}, "'x-ms-path' is of type NoneType"),
    ({PATH: 7}, "'x-ms-path' is of type int"),
    ({PATH: ["orders"]}, "'x-ms-path' is of type list"),
    ({PATH: b"\xff"}, "'x-ms-path' is not valid UTF-8"),
    ({PATH: "orders", SESSION_ID: 7}, "'x-ms-sessionid' is of type int"),
    ({PATH: "orders", SESSION_ID: None}, "'x-ms-sessionid' is of type NoneType"),
    ({PATH: "orders", SESSION_ID: b"\xc3\x28"}, "'x-ms-sessionid' is not valid UTF-8"),
    ({PATH: "orders", TIME_TO_LIVE: "00:01:00"}, "'x-ms-timetolive' is of type str"),
    ({PATH: "orders", TIME_TO_LIVE: 1.5}, "'x-ms-timetolive' is of type float"),
    ({PATH: "orders", TIME_TO_LIVE: True}, "'x-ms-timetolive' is of type bool"),
    ({PATH: "orders", TIME_TO_LIVE: Timespan(-1)}, "'x-ms-timetolive' is -1 ticks"),
    ({PATH: "orders", TIME_TO_LIVE: timedelta(seconds=-1)}, "'x-ms-timetolive' is -10000000 ticks"),
    ({PATH: "orders", SCHEDULED: "2026-05-01"}, "'x-ms-scheduledenqueuetimeutc' is of type str"),
    ({PATH: "orders", SCHEDULED: True}, "'x-ms-scheduledenqueuetimeutc' is of type bool"),
    ({PATH: "orders", SCHEDULED: 2**63}, "'x-ms-scheduledenqueuetimeutc' is out of range"),
    ({PATH: "orders", SCHEDULED: -(2**63)}, "'x-ms-scheduledenqueuetimeutc' is out of range"),
    (
        {PATH: "orders", SCHEDULED: datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))},
        "'x-ms-scheduledenqueuetimeutc' is out of range",
    ),
]


@pytest.mark.parametrize(("properties", "words"), MALFORMED)
def test_what_cannot_be_translated_back_says_which_property_and_why(
    properties: dict[object, object], words: str
) -> None:
    with pytest.raises(EnvelopeError) as caught:
        unwrap(properties)
    assert words in str(caught.value)


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.timedeltas(),
    st.datetimes(),
    st.datetimes(timezones=ZONES),
    st.lists(st.integers()),
    st.builds(Timespan, st.integers()),
)


@given(values=st.dictionaries(st.sampled_from(sorted(RESERVED)), ANYTHING))
def test_whatever_lies_in_a_backlog_queue_is_read_or_refused_in_words(values: dict[object, object]) -> None:
    """A pump that stops at what it did not expect would hold up the whole queue."""
    try:
        found: object = unwrap(values).path
    except EnvelopeError as error:
        found = str(error)
    assert found


# -- reserved names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_message_that_carries_one_of_the_names_is_refused(name: str) -> None:
    """Section 7.2: "refused with a `ValueError` at any time"."""
    for spelling in (name, name.encode()):
        with pytest.raises(ReservedPropertyError, match=f"'{name}' is reserved") as caught:
            refuse_reserved(["tenant", spelling])
        assert isinstance(caught.value, ValueError)
        assert caught.value.name == name


def test_other_names_are_the_senders_to_use() -> None:
    refuse_reserved(["x-ms-something", "X-MS-PATH", b"\xff", 7, None])
    assert "x-ms-something" not in RESERVED


@given(ttl=st.integers(1, 10**9), parked=st.floats(0, 10**9))
def test_what_is_left_of_a_time_to_live_is_the_whole_less_the_time_parked(ttl: int, parked: float) -> None:
    """What is left ("elapsed"; used up: dead-lettered as expired)."""
    left = remaining(timedelta(seconds=ttl), passed=parked)
    expected = timedelta(seconds=ttl) - timedelta(seconds=parked)
    assert left == (expected if expected > timedelta(0) else None)
