"""A message's properties into a backlog queue and out again (SPEC.md section 7.2).

Messages for many entities lie in one backlog queue, so four properties are cleared and kept as application
properties; nothing else of the message changes. Values only: what carries them (an SDK message, encoded sections)
belongs to paired_servicebus.pairing.

    session_id                    x-ms-sessionid                 string
    time_to_live                  x-ms-timetolive                timespan: 100 ns ticks
    scheduled_enqueue_time_utc    x-ms-scheduledenqueuetimeutc   timestamp
    destination path              x-ms-path                      string
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
"""Whether none of the names is reserved."""

PING_CONTENT_TYPE: Final = "application/vnd.ms-servicebus-ping"
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
"""Annotations that a namespace puts on a message it holds; they are not the sender's."""

TICKS_A_SECOND: Final = 10_000_000
_TICKS_A_MICROSECOND: Final = 10
MAX_TICKS: Final = 2**63 - 1
"""TimeSpan.MaxValue: no time-out at all."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Timespan:
    """The described type `com.microsoft:timespan`: a long of 100 ns ticks."""

    ticks: int


Value = str | int | datetime | Timespan
"""What an envelope property is written as: strings, a timespan, a timestamp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeProperties:
    """The four properties, as the caller set them; None where it did not."""

    path: str
    session_id: str | None = None
    time_to_live: timedelta | None = None
    scheduled: datetime | None = None


def refuse_reserved(names: Collection[object]) -> None:
    """A message may carry none of the four names itself.

    Raises:
        ReservedPropertyError: it does; the first such name.
    """
    if unreserved(names):
        return
    for name in names:
        text = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
        if text in RESERVED:
            raise ReservedPropertyError(str(text))


def wrap(enclosed: EnvelopeProperties) -> dict[str, Value]:
    """The application properties to add; the message's own fields are then cleared."""
    added: dict[str, Value] = {PATH: enclosed.path}
    if enclosed.session_id is not None:
        added[SESSION_ID] = enclosed.session_id
    if enclosed.time_to_live is not None:
        added[TIME_TO_LIVE] = Timespan(to_ticks(enclosed.time_to_live))
    if enclosed.scheduled is not None:
        added[SCHEDULED] = _utc(enclosed.scheduled)
    return added


def unwrap(properties: Mapping[object, object]) -> EnvelopeProperties:
    """The four properties out of a backlog message's application properties (keys may be bytes).

    Raises:
        EnvelopeError: no path or one that no entity has, or a property of the wrong type; the text says which.
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


def remaining(time_to_live: timedelta, *, parked_for: float) -> timedelta | None:
    """What `parked_for` seconds in the backlog left of a time to live; None when it is used up (ttl_policy elapsed)."""
    left = time_to_live - timedelta(seconds=max(0.0, parked_for))
    return left if left > timedelta(0) else None


def to_ticks(span: timedelta) -> int:
    """A duration as 100 ns ticks; durations beyond TimeSpan.MaxValue become it."""
    return min(span // timedelta(microseconds=1) * _TICKS_A_MICROSECOND, MAX_TICKS)


def from_ticks(ticks: int) -> timedelta:
    """100 ns ticks as a duration (to the microsecond, as Python keeps it)."""
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
        ticks = value  # what an SDK leaves of a timespan: its descriptor is lost
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
    """In UTC; a time without a zone is UTC already, as it is to the SDK, whatever the machine's zone."""
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _kind(value: object) -> str:
    return f"of type {type(value).__name__}"
