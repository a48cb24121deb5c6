"""Messages between AMQP and the broker: the few fields that its rules need, and raw sections.

The sender's sections keep their bytes: properties, application properties, body, footer, and delivery annotations,
which the service forwards although AMQP ends them at the next node. The broker's own annotations are stripped from an
incoming message, because a received message that is sent again has them. An outgoing message gets them, the lock token
and a header with the delivery count.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from servicebus_amqp.encoding.codec import (
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Int,
    Symbol,
    Timestamp,
    UInt,
    ULong,
    decode,
    described,
    encode,
    encode_map,
    skip,
)
from servicebus_amqp.encoding.frames import new_tuple
from servicebus_amqp.encoding.message_sections import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    MESSAGE_ANNOTATIONS,
    Properties,
    Sections,
    edit_map,
    encode_pair,
    find_in_map,
    map_values,
    read_header,
    read_map,
    read_properties,
    split,
    unbatch,
    with_message_id,
    write_application_properties,
    write_header,
    write_properties,
)
from servicebus_amqp.protocol_errors import DecodeError
from servicebus_sandbox.broker.broker_errors import EvaluationError, Unprocessable
from servicebus_sandbox.broker.message import PING_CONTENT_TYPE, Message, MessageId, MessageState, StoredMessage
from servicebus_sandbox.broker.subscription_rules.message_properties import (
    MessageProperties,
    Value,
    as_text,
    system_fields,
    with_fields,
)

_SEQUENCE_NUMBER: Final = "x-opt-sequence-number"
_ENQUEUED_TIME: Final = "x-opt-enqueued-time"
_LOCKED_UNTIL: Final = "x-opt-locked-until"
_ENQUEUED_NUMBER: Final = "x-opt-enqueue-sequence-number"
_STATE: Final = "x-opt-message-state"
_DEAD_LETTER_SOURCE: Final = "x-opt-deadletter-source"
PING: Final = "x-opt-ping"
"""True on a delivered ping, so that a receiver that does not read content types recognizes it."""
_OURS: Final = frozenset(
    name.encode()
    for name in (_SEQUENCE_NUMBER, _ENQUEUED_TIME, _LOCKED_UNTIL, _ENQUEUED_NUMBER, _STATE, _DEAD_LETTER_SOURCE, PING)
)
_LOCK_TOKEN: Final = b"x-opt-lock-token"
_SCHEDULED_TIME: Final = "x-opt-scheduled-enqueue-time"
_PARTITION_KEY: Final = "x-opt-partition-key"
_READ: Final = _OURS | {_SCHEDULED_TIME.encode(), _PARTITION_KEY.encode()}

_MESSAGE_ID, _CONTENT_TYPE, _GROUP_ID = 0, 6, 10
_SMALL_ULONG, _STRING8, _SYMBOL8, _LIST8, _MAP8 = 0x53, 0xA1, 0xA3, 0xC0, 0xC1
_LONG, _TIMESTAMP = b"\x81", b"\x83"
_EIGHT_BYTES: Final = (_LONG[0], _TIMESTAMP[0])
_TOKEN_PAIR: Final = encode_pair(_LOCK_TOKEN.decode(), UUID(int=0))[:-16]
_TOKEN_ALONE: Final = described(DELIVERY_ANNOTATIONS, encode_map(2, _TOKEN_PAIR + bytes(16)))[:-16]
_NO_ANNOTATIONS: Final = described(DELIVERY_ANNOTATIONS, encode_map(0, b""))
"""The service's section on messages that are settled on delivery; to clients it differs from none."""
_REMEMBERED: Final = 512
"""Bytes of the longest cached section. Senders choose the length, and a cache holds many."""
_TOKEN_ALONE_SIZE: Final = len(_TOKEN_ALONE) + 16
_NUMBER_KEY: Final = encode(Symbol(_SEQUENCE_NUMBER)) + _LONG
_ENQUEUED_KEY: Final = encode(Symbol(_ENQUEUED_TIME)) + _TIMESTAMP
_LOCKED_KEY: Final = encode(Symbol(_LOCKED_UNTIL)) + _TIMESTAMP
_PAIRS: Final = f">{len(_NUMBER_KEY)}sq{len(_ENQUEUED_KEY)}sq"
_UNLOCKED: Final = struct.Struct(_PAIRS).pack
_LOCKED: Final = struct.Struct(f"{_PAIRS}{len(_LOCKED_KEY)}sq").pack
_TWO_PAIRS, _THREE_PAIRS = (
    described(MESSAGE_ANNOTATIONS, encode_map(2 * count, bytes(struct.calcsize(pairs))))[: -struct.calcsize(pairs)]
    for count, pairs in ((2, _PAIRS), (3, f"{_PAIRS}{len(_LOCKED_KEY)}sq"))
)
"""How annotations begin that hold nothing else."""


MAX_PROPERTY: Final = 32 * 1024
"""Bytes of the longest application property."""


def read_batch(data: bytes) -> list[Message]:
    """Return the messages of a delivery whose format is BATCH_FORMAT. Raises DecodeError."""
    return [read_message(inner) for inner in unbatch(data)]


def read_message(data: bytes) -> Message:
    """Return one decoded message. Raises DecodeError; Unprocessable for what the service can never accept."""
    found = split(data)
    header, delivery, annotations, properties, own = found[:5]
    message = Message(found, len(data))
    if properties is not None:
        message.message_id, message.content_type, message.session_id = _identity(properties)
    if header is not None:
        message.ttl = _time_to_live(header)
        if message.ttl == 0:
            raise Unprocessable
    if own is not None and len(own) > MAX_PROPERTY and any(len(value) > MAX_PROPERTY for _, value in map_values(own)):
        raise Unprocessable
    if annotations is not None and not _is_all_ours(annotations):
        _read_annotations(message, annotations)
        annotations = edit_map(annotations, MESSAGE_ANNOTATIONS, drop=_OURS)
    else:
        annotations = None
    if delivery is not None and len(delivery) == _TOKEN_ALONE_SIZE and delivery.startswith(_TOKEN_ALONE):
        delivery = None
    elif delivery is not None:
        delivery = edit_map(delivery, DELIVERY_ANNOTATIONS, drop=(_LOCK_TOKEN,))
    if annotations is not found.message_annotations or delivery is not found.delivery_annotations:
        message.payload = new_tuple(Sections, (header, delivery, annotations, properties, *found[4:]))
    return message


def _identity(section: bytes) -> tuple[MessageId, str | None, str | None]:
    """Return message id, content type and session id of a properties section. Raises DecodeError."""
    found = _leading_identity(section)
    if found is not None:
        return found
    properties = read_properties(section)
    return properties.message_id, properties.content_type, properties.group_id


def _leading_identity(section: bytes) -> tuple[MessageId, str | None, str | None] | None:
    """Return `_identity` of a section in its usual encoding, reading only what is needed; None for any other."""
    try:
        if section[1] != _SMALL_ULONG or section[3] != _LIST8 or section[5] == 0:
            return None
        if section[6] == _STRING8:
            end = 8 + section[7]
            message_id: MessageId = section[8:end].decode()
        else:
            message_id, end = decode(section, 6)
            if not isinstance(message_id, str | bytes | UUID | ULong | None):
                return None  # the general reader names the flaw
    except (IndexError, ValueError, DecodeError):
        return None  # malformed: the general reader names the flaw
    behind = _behind_message_id(section[end:], section[5] - 1) if end <= len(section) else None
    return (message_id, *behind) if behind is not None else None


def _behind_message_id(fields: bytes, count: int) -> tuple[str | None, str | None] | None:
    read = _known_behind_message_id if len(fields) <= _REMEMBERED else _read_behind_message_id
    return read(fields, count)


def _read_behind_message_id(fields: bytes, count: int) -> tuple[str | None, str | None] | None:
    """Return content type and session id from the `count` fields behind the message id; most messages share them."""
    content_type, group_id, at = None, None, 0
    try:
        for index in range(_MESSAGE_ID + 1, min(_MESSAGE_ID + count, _GROUP_ID) + 1):
            end = skip(fields, at)
            if index == _CONTENT_TYPE:
                content_type, _ = decode(fields, at)
            elif index == _GROUP_ID:
                group_id, _ = decode(fields, at)
            at = end
    except DecodeError:
        return None
    if not isinstance(content_type, str | None) or not isinstance(group_id, str | None):
        return None
    return content_type, group_id


_known_behind_message_id: Final = lru_cache(maxsize=1024)(_read_behind_message_id)


def _is_all_ours(section: bytes) -> bool:
    """Return whether message annotations hold only the broker's own, as on a message that is sent again."""
    if section[1] != _SMALL_ULONG or section[3] != _MAP8:
        return False
    names, at = [], 6
    try:
        while at < len(section):
            name_ends = at + 2 + section[at + 1]
            name = section[at + 2 : name_ends]
            if section[at] != _SYMBOL8 or name not in _OURS or section[name_ends] not in _EIGHT_BYTES:
                return False
            names.append(name)
            at = name_ends + 9
    except IndexError:
        return False
    return at == len(section) == section[4] + 5 and section[5] == 2 * len(names) and len({*names}) == len(names)


def _time_to_live(header: bytes) -> float | None:
    """Return the time to live in seconds; cached, since headers are much alike. Raises DecodeError."""
    return _known_time_to_live(header) if len(header) <= _REMEMBERED else _read_time_to_live(header)


def _read_time_to_live(header: bytes) -> float | None:
    ttl = read_header(header).ttl
    return None if ttl is None else ttl / 1000


_known_time_to_live: Final = lru_cache(maxsize=256)(_read_time_to_live)


def _read_annotations(message: Message, section: bytes) -> None:
    pairs = find_in_map(section, _READ)
    found = {name: decode(section, at)[0] for name, at in pairs}
    if len(found) != len(pairs):
        raise DecodeError("message annotations have two keys of one name")
    scheduled, key = found.get(_SCHEDULED_TIME.encode()), found.get(_PARTITION_KEY.encode())
    if scheduled is not None:
        if not isinstance(scheduled, int):
            raise DecodeError(f"{_SCHEDULED_TIME} is no timestamp")
        message.scheduled_at = scheduled / 1000
    if isinstance(key, str):
        message.partition_key = key


def write_message(stored: StoredMessage) -> bytes:
    """Return the message for a receiver, with its lock, the broker's annotations and the delivery count."""
    kept, token = sections_of(stored.message), stored.lock_token
    if token is None:
        return _write(stored, kept, kept.delivery_annotations or _NO_ANNOTATIONS, None)
    return _write(stored, kept, _with_token(token, kept.delivery_annotations), stored.locked_until)


def show_message(stored: StoredMessage) -> bytes:
    """Return the message for a peek, without the lock of another receiver."""
    kept = sections_of(stored.message)
    return _write(stored, kept, kept.delivery_annotations, None)


def _write(stored: StoredMessage, kept: Sections, delivery: bytes | None, locked_until: float | None) -> bytes:
    application_properties = kept.application_properties
    if stored.added:
        application_properties = _with_properties(application_properties, stored.added)
    parts = (
        _header(kept.header, stored.delivery_count),
        delivery,
        _annotations(stored, kept.message_annotations, locked_until),
        kept.properties,
        application_properties,
        kept.body,
        kept.footer,
    )
    return b"".join([part for part in parts if part])


def _with_properties(section: bytes | None, added: dict[str, object]) -> bytes | None:
    """Return application properties with `added`; only `added` if the sender's cannot be read."""
    pairs = b"".join([encode(name) + encode(value) for name, value in added.items()])
    drop = [name.encode() for name in added]
    try:
        return edit_map(section, APPLICATION_PROPERTIES, drop=drop, add=pairs, added=len(added))
    except DecodeError:
        return edit_map(None, APPLICATION_PROPERTIES, add=pairs, added=len(added))


def _header(kept: bytes | None, delivery_count: int) -> bytes:
    """Return the sender's header with another delivery count and without first acquirer."""
    write = _known_header if kept is None or len(kept) <= _REMEMBERED else _written_header
    return write(kept, delivery_count)


def _written_header(kept: bytes | None, delivery_count: int) -> bytes:
    return write_header(read_header(kept)._replace(first_acquirer=None, delivery_count=delivery_count))


_known_header: Final = lru_cache(maxsize=256)(_written_header)


def _with_token(token: bytes, kept: bytes | None) -> bytes | None:
    """Return the sender's annotations with the lock token as a UUID, which has another byte order."""
    uuid = token[3::-1] + token[5:3:-1] + token[7:5:-1] + token[8:]
    if kept is None:
        return _TOKEN_ALONE + uuid
    return edit_map(kept, DELIVERY_ANNOTATIONS, add=_TOKEN_PAIR + uuid, added=1)


def _annotations(stored: StoredMessage, kept: bytes | None, locked_until: float | None) -> bytes | None:
    number, enqueued_ms = stored.sequence_number, int(stored.enqueued_at * 1000)
    rare = _rare_annotations(stored)
    if locked_until is None:
        add, added = _UNLOCKED(_NUMBER_KEY, number, _ENQUEUED_KEY, enqueued_ms), 2
    else:
        locked_ms = int(locked_until * 1000)
        add, added = _LOCKED(_NUMBER_KEY, number, _ENQUEUED_KEY, enqueued_ms, _LOCKED_KEY, locked_ms), 3
    if kept is None and not rare:
        return (_THREE_PAIRS if added == 3 else _TWO_PAIRS) + add
    for name, value in rare:
        add += encode_pair(name, value)
    return edit_map(kept, MESSAGE_ANNOTATIONS, add=add, added=added + len(rare))


def _rare_annotations(stored: StoredMessage) -> list[tuple[str, object]]:
    rare: list[tuple[str, object]] = []
    if stored.state is not MessageState.ACTIVE:
        rare.append((_STATE, Int(stored.state)))
    if stored.enqueued_sequence_number is not None:
        rare.append((_ENQUEUED_NUMBER, stored.enqueued_sequence_number))
    if stored.dead_letter_source is not None:
        rare.append((_DEAD_LETTER_SOURCE, stored.dead_letter_source))
    if stored.message.content_type == PING_CONTENT_TYPE:
        rare.append((PING, True))
    return rare


# Message properties for subscription rules: read from raw sections and written back.
#
# Unchanged properties keep their bytes or at least their AMQP type. Times become datetimes in UTC, time spans
# timedeltas. Properties of types that SQL lacks (lists, maps, decimals) exist but are null.

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
        sections = sections_of(message)
        try:
            properties = read_properties(sections.properties)
            user = {_name(key): value_of(value) for key, value in read_map(sections.application_properties).items()}
        except DecodeError as error:
            raise EvaluationError(f"the message's properties are malformed: {error}") from error
        return MessageProperties(system_fields(message) | _system(properties), user)

    def write(self, message: Message, properties: MessageProperties) -> Message:
        """Return the message with these properties and its new size."""
        sections, before = sections_of(message), self.read(message)
        changed = with_fields(message, properties)
        if properties.user != before.user:
            sections = sections._replace(application_properties=_user_section(sections, properties.user))
        if properties.system != before.system:
            sections = _with_system(sections, before.system, properties.system)
        return replace(changed, payload=sections, size=sections.size)

    def identify(self, message: Message, message_id: str) -> Message:
        """Return the message with this id; its size stays that of the sender's bytes."""
        sections = sections_of(message)
        named = sections._replace(properties=with_message_id(sections.properties, message_id))
        return replace(message, message_id=message_id, payload=named)


def sections_of(message: Message) -> Sections:
    """Return the raw sections of a message that came over AMQP. Raises TypeError for any other."""
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
