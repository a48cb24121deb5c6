"""Encoded messages as values: as clients of any language send them, and as all are parked (SPEC.md section 7.2).

Parking changes the header's time to live, the session and both
expiry times in the properties, the annotation of the schedule, and adds the envelope; all else keeps its bytes.
`syphon.envelope_codec` reverses it.

A message without an id gets one. The same bytes get the same id until a namespace has accepted them, but never while
another call has it: two equal messages in flight are two messages, and duplicate detection must not drop one.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from paired_servicebus.core.errors import ReservedPropertyError, UnreadableError
from paired_servicebus.core.model import envelope
from servicebus_amqp.encoding.amqp_types import Described, Symbol, Timestamp, UInt, ULong
from servicebus_amqp.encoding.codec import NULL, decode, encode
from servicebus_amqp.encoding.message_sections import (
    APPLICATION_PROPERTIES,
    BATCH_FORMAT,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    Sections,
    edit_map,
    find_in_map,
    list_items,
    list_section,
    map_values,
    read_header,
    read_properties,
    split,
    unbatch,
    with_message_id,
    write_data,
)
from servicebus_amqp.protocol_errors import DecodeError

PARKED_BYTES: Final = 1024
"""An estimate of the most bytes that the envelope adds, with a long path and session."""
SMALL_BYTES: Final = 64 * 1024
"""Bytes that are far from any limit."""
REMEMBERED_BYTES: Final = 512
"""The longest session and path whose envelope is cached: clients choose their length."""
MAX_GIVEN_IDS: Final = 10_000
MAX_BATCH_MESSAGES: Final = 4_500
"""The service's own limit; a batch of empty messages would stop all others for as long as it is read."""
_MARK: Final = b"x-ms-"
"""The common beginning of the reserved names."""
_RESERVED: Final = frozenset(name.encode() for name in envelope.RESERVED)
_SCHEDULED: Final = envelope.SCHEDULED_ANNOTATION.encode()
_OURS: Final = b"x-opt-"
_BROKERS: Final = frozenset(name.encode() for name in envelope.BROKERS)
_PING: Final = envelope.PING_CONTENT_TYPE.encode()
_PING_HEAD: Final = 512
"""Bytes in which a ping's properties end."""
_STR8, _LIST8 = 0xA1, 0xC0
_ID, _EXPIRY, _CREATION, _GROUP = 0, 8, 9, 10
"""Places in the list of properties."""
_TTL: Final = 2
"""The place in the header."""
MAX_TTL_MS: Final = 2**32 - 1
"""The longest time to live of a header, 49.7 days; of a longer one only both times in the properties have the rest."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class EncodedMessage:
    """One message in its bytes. message_id: as text, regardless of its type."""

    data: bytes
    sections: Sections
    message_id: str


class EncodedPayload(NamedTuple):
    """One transfer of a client. messages: each has an id. given_ids: those that came from here.

    data: the bytes to send with `message_format`, with these ids. as_sent: the client's own bytes.
    """

    data: bytes
    message_format: int
    messages: list[EncodedMessage]
    given_ids: list[str]
    as_sent: bytes


class GivenIds:
    """The ids of messages that came without one, by the digest of their bytes. Bounded; the oldest are forgotten."""

    def __init__(self, most: int = MAX_GIVEN_IDS) -> None:
        self._most = most
        self._free: OrderedDict[bytes, list[str]] = OrderedDict()
        self._taken: dict[str, bytes] = {}

    def take(self, digest: bytes) -> str:
        """Return the id of these bytes: one that an ended call left, else a new one."""
        left = self._free.get(digest)
        given = left.pop(0) if left else str(uuid.uuid4())
        if left is not None and not left:
            del self._free[digest]
        self._taken[given] = digest
        return given

    def release(self, given: str, *, accepted: bool) -> None:
        """End a call's use of an id. accepted: the bytes are a new message when they are sent again."""
        digest = self._taken.pop(given, None)
        if digest is None or accepted:
            return
        self._free.setdefault(digest, []).append(given)
        if len(self._free) > self._most:
            self._free.popitem(last=False)


def read_payload(data: bytes, message_format: int, ids: GivenIds) -> EncodedPayload:
    """Read one transfer: a message, or a batch of them. Release its `given_ids` when its call has ended.

    Raises:
        ReservedPropertyError: a message has a property of the envelope.
        UnreadableError: it is not a message, or has a field of another type than AMQP's.
    """
    try:
        if message_format == BATCH_FORMAT:
            return _read_batch(data, ids)
        message = read_message(data)
        if message.message_id:
            return EncodedPayload(data, message_format, [message], [], data)
        given = ids.take(_digest(data))
        named = _named(message, given)
        return EncodedPayload(named.data, message_format, [named], [given], data)
    except ReservedPropertyError:
        raise
    except Exception as error:  # from an unknown client: any error is its own
        raise _unreadable(error) from error


def read_message(data: bytes) -> EncodedMessage:
    """Read one message. Raises ReservedPropertyError, and any error for bytes that are not a message."""
    sections = split(data)
    mine = sections.application_properties
    if mine is not None and _MARK in mine:
        _refuse_reserved(mine)
    return EncodedMessage(data, sections, message_id_of(sections.properties))


def message_id_of(section: bytes | None) -> str:
    """Return the id in a properties section as text; empty without one. Raises for an id of another type."""
    if section is None:
        return ""
    if section[3] == _LIST8 and len(section) > 8 and section[5] and section[6] == _STR8:
        return section[8 : 8 + section[7]].decode()  # as clients write it; `park` reads the whole list
    found = decode(list_items(section, 1)[_ID])[0]
    if found is None:
        return ""
    if isinstance(found, bytes):
        return found.decode("utf-8", "replace")
    if not isinstance(found, str | UUID | ULong):
        raise UnreadableError(
            f"the message-id is of type {type(found).__name__}; it must be a string, binary, UUID or ulong"
        )
    return str(int(found)) if isinstance(found, ULong) else str(found)


def id_of(message: EncodedMessage) -> str:
    return message.message_id


def is_ping(data: bytes) -> bool:
    """Return whether an encoded message is a ping, by its content type."""
    if _PING not in data[:_PING_HEAD]:  # the only step for other messages
        return False
    try:
        return read_properties(split(data).properties).content_type == envelope.PING_CONTENT_TYPE
    except DecodeError:
        return False


def is_scheduled(message: EncodedMessage) -> bool:
    """Return whether receivers get the message at a later time."""
    annotations = message.sections.message_annotations
    return annotations is not None and _SCHEDULED in annotations


def body_bytes(message: EncodedMessage) -> int:
    """Return the bytes of the body's sections, of any kind."""
    return len(message.sections.body)


def fault_of(message: EncodedMessage) -> str:
    """Return why no namespace accepts the message; empty if nothing is wrong with it, or it cannot be read."""
    header, section = message.sections.header, message.sections.application_properties
    try:
        ttl = None if header is None else read_header(header).ttl
        is_long = section is not None and len(section) > envelope.MAX_PROPERTY_BYTES
        values = map_values(section) if section is not None and is_long else []
    except DecodeError:
        return ""  # the namespace answers it
    return envelope.find_fault(
        ttl_ms=ttl, properties=((name.decode("utf-8", "replace"), len(value)) for name, value in values)
    )


def park(message: EncodedMessage, path: str) -> EncodedMessage:
    """Return the message in its backlog envelope, for the destination `path`.

    Raises:
        UnreadableError: a field that the envelope encloses is malformed.
    """
    try:
        return _parked(message, path)
    except Exception as error:  # as above
        raise _unreadable(error) from error


def is_small(data: bytes) -> bool:
    """Return whether no message of these bytes can come near the limit of a backlog queue."""
    return len(data) <= SMALL_BYTES


def exceeds(message: EncodedMessage, path: str, limit: int) -> bool:
    """Return whether the message would not fit into a backlog queue (SPEC.md section 7.4)."""
    size = len(message.data)
    return size + PARKED_BYTES > limit and (size > limit or len(park(message, path).data) > limit)


# -- inside -----------------------------------------------------------------------------------------------------------


def _read_batch(data: bytes, ids: GivenIds) -> EncodedPayload:
    messages = [read_message(inner) for inner in islice(unbatch(data), MAX_BATCH_MESSAGES + 1)]
    if not 0 < len(messages) <= MAX_BATCH_MESSAGES:
        raise UnreadableError(f"a batch holds 1 to {MAX_BATCH_MESSAGES} messages")
    if all(message.message_id for message in messages):
        return EncodedPayload(data, BATCH_FORMAT, messages, [], data)
    given: list[str] = []
    for index, message in enumerate(messages):
        if not message.message_id:
            name = ids.take(_digest(message.data))
            given.append(name)
            messages[index] = _named(message, name)
    body = b"".join([write_data(message.data) for message in messages])
    whole = split(data)._replace(body=body).join()
    return EncodedPayload(whole, BATCH_FORMAT, messages, given, data)


def _named(message: EncodedMessage, given: str) -> EncodedMessage:
    named = message.sections._replace(properties=with_message_id(message.sections.properties, given))
    return EncodedMessage(named.join(), named, given)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _refuse_reserved(section: bytes) -> None:
    for name, _ in find_in_map(section, _RESERVED):
        raise ReservedPropertyError(name.decode())


def _parked(message: EncodedMessage, path: str) -> EncodedMessage:
    header, delivery, annotations, properties, mine, body, footer = message.sections
    for section in (delivery, annotations, mine):
        if section is not None:
            find_in_map(section, ())  # it raises here, or would on the way back
    ttl, header = _without_ttl(header)
    if ttl == MAX_TTL_MS and properties is not None:
        ttl = max(ttl, _lifetime(properties))
    session, properties = _without_session(properties, expires=ttl is not None)
    scheduled, annotations = _without_schedule(annotations)
    is_short = len(path) + len(session or "") <= REMEMBERED_BYTES
    added, pairs = (_known_envelope if is_short else _envelope)(path, session, ttl, scheduled)
    mine = edit_map(mine, APPLICATION_PROPERTIES, add=pairs, added=added)
    parked = Sections(header, delivery, annotations, properties, mine, body, footer)
    return EncodedMessage(parked.join(), parked, message.message_id)


def _without_ttl(section: bytes | None) -> tuple[int | None, bytes | None]:
    """Return the time to live in milliseconds, and the header without it."""
    if section is None:
        return None, None
    items = list_items(section, _TTL + 1)
    if items[_TTL] == NULL:
        return None, section
    ttl = decode(items[_TTL])[0]
    if not isinstance(ttl, UInt):
        raise UnreadableError(f"the header's ttl is of type {type(ttl).__name__}; it must be a uint")
    items[_TTL] = NULL
    return int(ttl), list_section(HEADER, items)


def _lifetime(section: bytes) -> int:
    """Return the milliseconds between both expiry times; 0 without them."""
    items = list_items(section, _CREATION + 1)
    expiry, creation = decode(items[_EXPIRY])[0], decode(items[_CREATION])[0]
    return expiry - creation if isinstance(expiry, Timestamp) and isinstance(creation, Timestamp) else 0


def _without_session(section: bytes | None, *, expires: bool) -> tuple[str | None, bytes | None]:
    """Return the session, and the properties without it.

    expires: whether both expiry times go too; they are computed again from the restored time to live.
    """
    if section is None:
        return None, None
    items = list_items(section, _GROUP + 1)
    session = decode(items[_GROUP])[0]
    if session is not None and not isinstance(session, str):
        raise UnreadableError(f"the group-id is of type {type(session).__name__}; it must be a string")
    cleared = (_EXPIRY, _CREATION, _GROUP) if expires else (_GROUP,)
    if all(items[place] == NULL for place in cleared):
        return session, section
    for place in cleared:
        items[place] = NULL
    return session, list_section(PROPERTIES, items)


def _without_schedule(section: bytes | None) -> tuple[datetime | None, bytes | None]:
    """Return the time to be enqueued, and the annotations without it and without those of a namespace."""
    if section is None or _OURS not in section:
        return None, section
    found = find_in_map(section, _BROKERS)
    if not found:
        return None, section
    times = [decode(section, at)[0] for name, at in found if name == _SCHEDULED]
    if len(times) > 1 or not isinstance(next(iter(times), None), Timestamp | None):
        raise UnreadableError(f"the annotation {envelope.SCHEDULED_ANNOTATION!r} must be one timestamp")
    rest = edit_map(section, MESSAGE_ANNOTATIONS, drop=_BROKERS)
    return _EPOCH + timedelta(milliseconds=times[0]) if times and times[0] is not None else None, rest


def _envelope(path: str, session: str | None, ttl: int | None, scheduled: datetime | None) -> tuple[int, bytes]:
    """Return the number of the envelope's pairs, and their bytes."""
    enclosed = envelope.EnvelopeProperties(
        path=path,
        session_id=session,
        time_to_live=None if ttl is None else timedelta(milliseconds=ttl),
        scheduled=scheduled,
    )
    pairs = list(_encoded_pairs(envelope.wrap(enclosed)))
    return len(pairs), b"".join(pairs)


_known_envelope: Final = lru_cache(maxsize=1024)(_envelope)


def _encoded_pairs(properties: dict[str, envelope.Value]) -> Iterator[bytes]:
    for name, value in properties.items():
        if isinstance(value, envelope.Timespan):
            yield encode(name) + encode(Described(Symbol(envelope.TIMESPAN), value.ticks))
        elif isinstance(value, datetime):
            yield encode(name) + encode(Timestamp(round(value.timestamp() * 1000)))
        else:
            yield encode(name) + encode(value)


def _unreadable(error: Exception) -> UnreadableError:
    """Return the refusal of a message that caused this error."""
    if isinstance(error, UnreadableError):
        return error
    return UnreadableError(f"the message cannot be read: {error or type(error).__name__}")
