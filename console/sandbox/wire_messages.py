"""Messages between the wire and the broker: read for the few fields its rules need, kept in raw sections, written anew.

What a sender wrote stays as it came, byte for byte: properties, application properties, body, footer, and delivery
annotations, which the service hands on although AMQP lets them end at the next node. The broker's own annotations
are stripped when a message comes in (a received message that is sent again carries them) and written when it goes
out, the lock token among them, together with a header that has the delivery count.
"""

from __future__ import annotations

import struct
from typing import Final
from uuid import UUID

from console.amqp.codec import NULL, decode, described, encode, encoded_list, encoded_map, skip
from console.amqp.errors import DecodeError
from console.amqp.message import (
    BATCH_FORMAT,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    Sections,
    edit_map,
    encoded_pair,
    read_header,
    read_map,
    read_properties,
    split,
    unbatch,
    write_application_properties,
    write_header,
)
from console.amqp.types import Int, Symbol, UInt
from console.sandbox.broker.message import Message, MessageId, MessageState, StoredMessage

_SEQUENCE_NUMBER: Final = "x-opt-sequence-number"
_ENQUEUED_TIME: Final = "x-opt-enqueued-time"
_LOCKED_UNTIL: Final = "x-opt-locked-until"
_ENQUEUED_NUMBER: Final = "x-opt-enqueue-sequence-number"
_STATE: Final = "x-opt-message-state"
_DEAD_LETTER_SOURCE: Final = "x-opt-deadletter-source"
_OURS: Final = frozenset(
    name.encode()
    for name in (_SEQUENCE_NUMBER, _ENQUEUED_TIME, _LOCKED_UNTIL, _ENQUEUED_NUMBER, _STATE, _DEAD_LETTER_SOURCE)
)
_LOCK_TOKEN: Final = b"x-opt-lock-token"
_SCHEDULED_TIME: Final = "x-opt-scheduled-enqueue-time"
_PARTITION_KEY: Final = "x-opt-partition-key"

_MESSAGE_ID, _CONTENT_TYPE, _GROUP_ID = 0, 6, 10
_TTL: Final = 2
_SMALL_ULONG, _LIST8, _NULL_CODE = 0x53, 0xC0, 0x40
_NONE_FAILED: Final = encode(UInt(0))
_LONG: Final = struct.Struct(">Bq").pack
_LONG_CODE, _TIMESTAMP_CODE = 0x81, 0x83
_TOKEN_PAIR: Final = encoded_pair(_LOCK_TOKEN.decode(), UUID(int=0))[:-16]
_TOKEN_ALONE: Final = described(DELIVERY_ANNOTATIONS, encoded_map(2, _TOKEN_PAIR + bytes(16)))[:-16]
_NUMBER_KEY, _ENQUEUED_KEY, _LOCKED_KEY = (
    encode(Symbol(name)) for name in (_SEQUENCE_NUMBER, _ENQUEUED_TIME, _LOCKED_UNTIL)
)


def read_delivery(data: bytes, message_format: int) -> list[Message]:
    """The messages of one delivery: a batch holds several. Raises DecodeError."""
    if message_format == BATCH_FORMAT:
        return [read_message(inner) for inner in unbatch(data)]
    return [read_message(data)]


def read_message(data: bytes) -> Message:
    """One encoded message. Raises DecodeError."""
    found = split(data)
    message = Message(found, len(data))
    if found.properties is not None:
        message.message_id, message.content_type, message.session_id = _identity(found.properties)
    if found.header is not None:
        ttl = _time_to_live(found.header)
        message.ttl = None if ttl is None else ttl / 1000
    if found.message_annotations is not None:
        _read_annotations(message, found.message_annotations)
        found = found._replace(message_annotations=edit_map(found.message_annotations, MESSAGE_ANNOTATIONS, drop=_OURS))
    if found.delivery_annotations is not None:
        kept = edit_map(found.delivery_annotations, DELIVERY_ANNOTATIONS, drop=(_LOCK_TOKEN,))
        found = found._replace(delivery_annotations=kept)
    message.payload = found
    return message


def _leading_fields(section: bytes, most: int) -> list[bytes] | None:
    """The first fields, encoded, of a list section in its usual encoding; None for any other.

    Two lists are read for each message, and all that is wanted of them is three fields and one.
    """
    if section[1] != _SMALL_ULONG or section[3] != _LIST8:
        return None
    found, at = [], 6
    try:
        for _ in range(min(section[5], most)):
            end = at + 1 if section[at] == _NULL_CODE else skip(section, at)
            found.append(section[at:end])
            at = end
    except (IndexError, DecodeError):
        return None  # malformed: the general reader says how
    return found


def _identity(section: bytes) -> tuple[MessageId, str | None, str | None]:
    """Message id, content type and session id of a properties section. Raises DecodeError."""
    found = _leading_fields(section, _GROUP_ID + 1)
    if found is not None:
        found += [NULL] * (_GROUP_ID + 1 - len(found))
        message_id, content_type, group_id = (decode(found[at])[0] for at in (_MESSAGE_ID, _CONTENT_TYPE, _GROUP_ID))
        if isinstance(content_type, str | None) and isinstance(group_id, str | None):
            return message_id, content_type, group_id
    properties = read_properties(section)
    return properties.message_id, properties.content_type, properties.group_id


def _time_to_live(section: bytes) -> int | None:
    """In milliseconds. Raises DecodeError."""
    found = _leading_fields(section, _TTL + 1)
    if found is not None:
        ttl = decode(found[_TTL])[0] if len(found) > _TTL else None
        if isinstance(ttl, int | None):
            return ttl
    return read_header(section).ttl


def _read_annotations(message: Message, section: bytes) -> None:
    annotations = read_map(section)
    scheduled, key = annotations.get(_SCHEDULED_TIME), annotations.get(_PARTITION_KEY)
    if scheduled is not None:
        if not isinstance(scheduled, int):
            raise DecodeError(f"{_SCHEDULED_TIME} is no timestamp")
        message.scheduled_at = scheduled / 1000
    if isinstance(key, str):
        message.partition_key = key


def write_message(stored: StoredMessage) -> bytes:
    """The message as a receiver gets it, with the broker's annotations and the delivery count."""
    kept = stored.message.payload
    if not isinstance(kept, Sections):
        raise TypeError(f"message {stored.sequence_number} was not read from the wire: {type(kept).__name__}")
    application_properties = kept.application_properties
    if stored.added:
        application_properties = write_application_properties({**read_map(application_properties), **stored.added})
    return Sections(
        _header(kept.header, stored.delivery_count),
        _delivery_annotations(stored.lock_token, kept.delivery_annotations),
        _annotations(stored, kept.message_annotations),
        kept.properties,
        application_properties,
        kept.body,
        kept.footer,
    ).join()


def _header(kept: bytes | None, delivery_count: int) -> bytes:
    """The sender's header with another delivery count."""
    found = [] if kept is None else _leading_fields(kept, _TTL + 1)
    if found is None:
        return write_header(read_header(kept)._replace(first_acquirer=None, delivery_count=delivery_count))
    found += [NULL] * (_TTL + 2 - len(found))  # the last one is "first acquirer", which is nobody's
    found.append(_NONE_FAILED if delivery_count == 0 else encode(UInt(delivery_count)))
    return described(HEADER, encoded_list(found))


def _delivery_annotations(token: bytes | None, kept: bytes | None) -> bytes | None:
    """The sender's, and the lock token as a UUID, whose bytes stand in another order in the token."""
    if token is None:
        return kept
    uuid = token[3::-1] + token[5:3:-1] + token[7:5:-1] + token[8:]
    if kept is None:
        return _TOKEN_ALONE + uuid
    return edit_map(kept, DELIVERY_ANNOTATIONS, add=_TOKEN_PAIR + uuid, added=1)


def _annotations(stored: StoredMessage, kept: bytes | None) -> bytes | None:
    pairs = [
        _NUMBER_KEY,
        _LONG(_LONG_CODE, stored.sequence_number),
        _ENQUEUED_KEY,
        _LONG(_TIMESTAMP_CODE, int(stored.enqueued_at * 1000)),
    ]
    count = 2
    if stored.lock_token is not None:
        pairs += (_LOCKED_KEY, _LONG(_TIMESTAMP_CODE, int(stored.locked_until * 1000)))
        count += 1
    for name, value in _rare_annotations(stored):
        pairs.append(encoded_pair(name, value))
        count += 1
    return edit_map(kept, MESSAGE_ANNOTATIONS, add=b"".join(pairs), added=count)


def _rare_annotations(stored: StoredMessage) -> list[tuple[str, object]]:
    rare: list[tuple[str, object]] = []
    if stored.state is not MessageState.ACTIVE:
        rare.append((_STATE, Int(stored.state)))
    if stored.enqueued_sequence_number is not None:
        rare.append((_ENQUEUED_NUMBER, stored.enqueued_sequence_number))
    if stored.dead_letter_source is not None:
        rare.append((_DEAD_LETTER_SOURCE, stored.dead_letter_source))
    return rare
