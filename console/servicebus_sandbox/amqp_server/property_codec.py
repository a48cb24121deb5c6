"""Message properties for subscription rules: read from raw sections and written back.

Unchanged properties keep their bytes or at least their AMQP type. Times become datetimes in UTC, time spans timedeltas.
Properties of types that SQL lacks (lists, maps, decimals) exist but are null.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from servicebus_amqp.encoding.amqp_types import Decimal32, Decimal64, Decimal128, Described, Symbol, Timestamp, UInt
from servicebus_amqp.encoding.message_sections import (
    MESSAGE_ANNOTATIONS,
    Properties,
    Sections,
    edit_map,
    encode_pair,
    read_header,
    read_map,
    read_properties,
    with_message_id,
    write_application_properties,
    write_header,
    write_properties,
)
from servicebus_amqp.protocol_errors import DecodeError
from servicebus_sandbox.broker.broker_errors import EvaluationError
from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.broker.subscription_rules.message_properties import (
    MessageProperties,
    Value,
    as_text,
    system_fields,
    with_fields,
)

_PARTITION_KEY: Final = "x-opt-partition-key"
_TIME_SPAN: Final = Symbol("com.microsoft:timespan")
_DATE_TIME_OFFSET: Final = Symbol("com.microsoft:datetime-offset")
_URI: Final = Symbol("com.microsoft:uri")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY: Final = datetime(1, 1, 1, tzinfo=UTC)
TICKS_PER_SECOND: Final = 10_000_000
TICKS_AT_EPOCH: Final = (_EPOCH - _FIRST_DAY) // timedelta(seconds=1) * TICKS_PER_SECOND
"""A .NET tick is 100 ns, counted from year 1."""
_TICKS: Final = TICKS_PER_SECOND // 1_000_000
""".NET ticks of a microsecond."""
_MOST_TTL_MS: Final = 2**32 - 1

_FIELDS: Final = {
    "label": "subject",
    "to": "to",
    "replyto": "reply_to",
    "replytosessionid": "reply_to_group_id",
    "correlationid": "correlation_id",
    "messageid": "message_id",
    "sessionid": "group_id",
    "contenttype": "content_type",
}
"""System properties and the fields of the AMQP properties that hold them."""


class AmqpPropertyCodec:
    """The property codec for messages that came over AMQP."""

    def read(self, message: Message) -> MessageProperties:
        """Return the message's properties. Raises EvaluationError if they are malformed."""
        sections = _sections(message)
        try:
            properties = read_properties(sections.properties)
            user = {_name(key): value_of(value) for key, value in read_map(sections.application_properties).items()}
        except DecodeError as error:
            raise EvaluationError(f"the message's properties are malformed: {error}") from error
        return MessageProperties(system_fields(message) | _system(properties), user)

    def write(self, message: Message, properties: MessageProperties) -> Message:
        """Return the message with these properties and its new size."""
        sections, before = _sections(message), self.read(message)
        changed = with_fields(message, properties)
        if properties.user != before.user:
            sections = sections._replace(application_properties=_user_section(sections, properties.user))
        if properties.system != before.system:
            sections = _with_system(sections, before.system, properties.system)
        return replace(changed, payload=sections, size=sections.size)

    def identify(self, message: Message, message_id: str) -> Message:
        """Return the message with this id; its size stays that of the sender's bytes."""
        sections = _sections(message)
        named = sections._replace(properties=with_message_id(sections.properties, message_id))
        return replace(message, message_id=message_id, payload=named)


def _sections(message: Message) -> Sections:
    if not isinstance(message.payload, Sections):
        raise TypeError(f"the message was not read from the wire: {type(message.payload).__name__}")
    return message.payload


def _name(key: object) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


def value_of(raw: Any) -> Value:
    """Return a property's value for SQL; None for a type that SQL lacks."""
    try:
        match raw:
            case Timestamp():
                return _EPOCH + timedelta(milliseconds=raw)
            case Described(descriptor=descriptor, value=int() as ticks) if descriptor == _TIME_SPAN:
                return timedelta(microseconds=ticks / _TICKS)
            case Described(descriptor=descriptor, value=int() as ticks) if descriptor == _DATE_TIME_OFFSET:
                return _FIRST_DAY + timedelta(microseconds=ticks // _TICKS)
            case Described(descriptor=descriptor, value=str() as uri) if descriptor == _URI:
                return uri
            case bool() | bytes() | UUID() if not isinstance(raw, Decimal32 | Decimal64 | Decimal128):
                return raw
            case int():
                return int(raw)
            case float():
                return float(raw)
            case str():
                return str(raw)
    except OverflowError:
        return None  # a time outside the calendar
    return None


def _system(properties: Properties) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name, field in _FIELDS.items():
        value = value_of(getattr(properties, field))
        found[name] = None if value is None else as_text(value)
    return found


def _user_section(sections: Sections, user: dict[str, Value]) -> bytes | None:
    raw = read_map(sections.application_properties)
    kept = {_name(key): (key, value) for key, value in raw.items()}
    written: dict[Any, Any] = {}
    for name, value in user.items():
        key, old = kept.get(name, (name, None))
        before = value_of(old)
        is_kept = name in kept and type(before) is type(value) and before == value
        written[key] = old if is_kept else raw_of(value)
    return write_application_properties(written) if written else None


def raw_of(value: Value) -> Any:
    """Return a value in AMQP types."""
    match value:
        case datetime():
            return Timestamp((value.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1))
        case timedelta():
            return Described(_TIME_SPAN, value // timedelta(microseconds=1) * _TICKS)
        case _:
            return value


def _with_system(sections: Sections, before: dict[str, Value], after: dict[str, Value]) -> Sections:
    changed: dict[str, Any] = {
        field: after.get(name) for name, field in _FIELDS.items() if before.get(name) != after.get(name)
    }
    if changed:
        properties = read_properties(sections.properties)._replace(**changed)
        sections = sections._replace(properties=write_properties(properties))
    ttl, key = after.get("timetolive"), after.get("partitionkey")
    if ttl != before.get("timetolive"):
        length = min(max(0, ttl // timedelta(milliseconds=1)), _MOST_TTL_MS) if isinstance(ttl, timedelta) else None
        header = read_header(sections.header)._replace(ttl=None if length is None else UInt(length))
        sections = sections._replace(header=write_header(header))
    if key != before.get("partitionkey"):
        pair = b"" if key is None else encode_pair(_PARTITION_KEY, key)
        sections = sections._replace(
            message_annotations=edit_map(
                sections.message_annotations,
                MESSAGE_ANNOTATIONS,
                drop=(_PARTITION_KEY.encode(),),
                add=pair,
                added=0 if key is None else 1,
            )
        )
    return sections
