"""The conversion of message properties into the backlog envelope and back (SPEC.md section 7.2).

A backlog queue holds messages for many entities. So four properties are cleared and stored as application properties;
the rest of the message is unchanged. This module handles values only; paired_servicebus.pairing handles messages.

    session_id                    x-ms-sessionid                 string
    time_to_live                  x-ms-timetolive                timespan: 100 ns ticks
    scheduled_enqueue_time_utc    x-ms-scheduledenqueuetimeutc   timestamp
    destination path              x-ms-path                      string
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from paired_servicebus.core.errors import EnvelopeError, ReservedPropertyError
from paired_servicebus.core.text.entity_paths import path_fault

PATH: Final = "x-ms-path"
SESSION_ID: Final = "x-ms-sessionid"
TIME_TO_LIVE: Final = "x-ms-timetolive"
SCHEDULED: Final = "x-ms-scheduledenqueuetimeutc"
RESERVED: Final = frozenset({PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED})
_SPELLINGS: Final = RESERVED | {name.encode() for name in RESERVED}
unreserved: Final = _SPELLINGS.isdisjoint
"""A check that none of the names is reserved."""

PING_CONTENT_TYPE: Final = "application/vnd.ms-servicebus-ping"
PING_SESSION_PREFIX: Final = "x-servicebus-ping-"
"""The reserved beginning of pings' session ids, by which receivers of other programs recognise them."""
TIMESPAN: Final = "com.microsoft:timespan"
"""The descriptor of a `Timespan` on the wire."""
SCHEDULED_ANNOTATION: Final = "x-opt-scheduled-enqueue-time"
BROKERS: Final = frozenset(
    {
        "x-opt-sequence-number",
        "x-opt-enqueue-sequence-number",
        "x-opt-enqueued-time",
        "x-opt-locked-until",
        "x-opt-lock-token",
        "x-opt-message-state",
        "x-opt-deadletter-source",
        SCHEDULED_ANNOTATION,
    }
)
"""Annotations that a namespace adds to the messages it stores; the sender did not set them."""

TICKS_A_SECOND: Final = 10_000_000
_TICKS_A_MICROSECOND: Final = 10
MAX_TICKS: Final = 2**63 - 1
"""TimeSpan.MaxValue: no time-out."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Timespan:
    """The described type `com.microsoft:timespan`: a long of 100 ns ticks."""

    ticks: int


Value = str | int | datetime | Timespan
"""The values of envelope properties: strings, a timespan, a timestamp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeProperties:
    """The four properties as the caller set them; None: not set."""

    path: str
    session_id: str | None = None
    time_to_live: timedelta | None = None
    scheduled: datetime | None = None


def refuse_reserved(names: Collection[object]) -> None:
    """Reject a message that has one of the four properties itself.

    Raises:
        ReservedPropertyError: the first such name.
    """
    if unreserved(names):
        return
    for name in names:
        text = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
        if text in RESERVED:
            raise ReservedPropertyError(str(text))


def wrap(enclosed: EnvelopeProperties) -> dict[str, Value]:
    """Return the application properties to add; the message's own fields are then cleared."""
    added: dict[str, Value] = {PATH: enclosed.path}
    if enclosed.session_id is not None:
        added[SESSION_ID] = enclosed.session_id
    if enclosed.time_to_live is not None:
        added[TIME_TO_LIVE] = Timespan(to_ticks(enclosed.time_to_live))
    if enclosed.scheduled is not None:
        added[SCHEDULED] = _utc(enclosed.scheduled)
    return added


def unwrap(properties: Mapping[object, object]) -> EnvelopeProperties:
    """Read the four properties from a backlog message's application properties (keys may be bytes).

    Raises:
        EnvelopeError: no valid entity path, or a property of the wrong type; the text names it.
    """
    found: dict[str, object] = {}
    for key, value in properties.items():
        name = key.decode("utf-8", "replace") if isinstance(key, bytes) else key
        if isinstance(name, str) and name in RESERVED:
            found[name] = value
    if PATH not in found:
        raise EnvelopeError(f"the application property {PATH!r} is missing: the destination is not known")
    path = _text(PATH, found[PATH])
    fault = path_fault(path)
    if fault:
        raise EnvelopeError(f"the application property {PATH!r} {fault}: it names no destination")
    return EnvelopeProperties(
        path=path,
        session_id=_text(SESSION_ID, found[SESSION_ID]) if SESSION_ID in found else None,
        time_to_live=_timespan(found[TIME_TO_LIVE]) if TIME_TO_LIVE in found else None,
        scheduled=_timestamp(found[SCHEDULED]) if SCHEDULED in found else None,
    )


MAX_PROPERTY_BYTES: Final = 32 * 1024
"""Bytes of the longest application property."""


def find_fault(*, ttl_ms: int | None, properties: Iterable[tuple[str, int]]) -> str:
    """Return why no namespace accepts a message, with the remedy; empty if nothing is wrong with it.

    The service answers such a message as if it had failed itself, with amqp:internal-error (traced).

    Args:
        ttl_ms: its time to live in milliseconds; None: the entity's.
        properties: the names of its application properties, and the bytes of each value.
    """
    if ttl_ms is not None and ttl_ms <= 0:
        return "its time to live is 0: give it at least a millisecond (the SDK cuts fractions of a second)"
    for name, size in properties:
        if size > MAX_PROPERTY_BYTES:
            return f"its property {name!r} has {size:,} bytes, and at most {MAX_PROPERTY_BYTES:,} are accepted"
    return ""


def remaining(time_to_live: timedelta, *, passed: float) -> timedelta | None:
    """Return the time to live after `passed` seconds of it, negative before it begins; None: used up."""
    left = time_to_live - timedelta(seconds=max(0.0, passed))
    return left if left > timedelta(0) else None


def to_ticks(span: timedelta) -> int:
    """Convert a duration to 100 ns ticks, at most TimeSpan.MaxValue."""
    return min(span // timedelta(microseconds=1) * _TICKS_A_MICROSECOND, MAX_TICKS)


def from_ticks(ticks: int) -> timedelta:
    """Convert 100 ns ticks to a duration, to the microsecond."""
    return timedelta(microseconds=ticks // _TICKS_A_MICROSECOND)


def _text(name: str, value: object) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise EnvelopeError(f"the application property {name!r} is not valid UTF-8") from error
    if not isinstance(value, str):
        raise EnvelopeError(f"the application property {name!r} is {_kind(value)}; it must be a string")
    return value


def _timespan(value: object) -> timedelta:
    if isinstance(value, timedelta):
        ticks = to_ticks(value)
    elif isinstance(value, Timespan):
        ticks = value.ticks
    elif isinstance(value, int) and not isinstance(value, bool):
        ticks = value  # a timespan without its descriptor, as the SDK returns it
    else:
        raise EnvelopeError(f"the application property {TIME_TO_LIVE!r} is {_kind(value)}; it must be a timespan")
    if ticks < 0:
        raise EnvelopeError(f"the application property {TIME_TO_LIVE!r} is {ticks} ticks; it cannot be negative")
    return from_ticks(min(ticks, MAX_TICKS))


def _timestamp(value: object) -> datetime:
    try:
        if isinstance(value, datetime):
            return _utc(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return _EPOCH + timedelta(milliseconds=value)
    except OverflowError as error:
        raise EnvelopeError(f"the application property {SCHEDULED!r} is out of range: {value}") from error
    raise EnvelopeError(f"the application property {SCHEDULED!r} is {_kind(value)}; it must be a timestamp")


def _utc(moment: datetime) -> datetime:
    """Convert to UTC. Times without a zone are UTC, as in the SDK."""
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _kind(value: object) -> str:
    return f"of type {type(value).__name__}"
