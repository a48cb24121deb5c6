"""Parks an encoded message, and restores it, on raw sections (SPEC.md section 7.2).

Parking changes the header's time to live, the session and both expiry times in the properties, the annotation of the
schedule, and adds the envelope. Restoring reverses it, and also clears the delivery count and the namespace's
annotations. All else keeps its bytes: body and footer of any kind, properties of any AMQP type, longer encodings.

Rules: pure functions of bytes and times. Each section of a backlog message has a fast reader for its usual form and a
general one; both give equal results. An unreadable message raises an `UnreadableError` to its sender, and an
`EnvelopeError` with the reason for the dead letter at its pump.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from paired_servicebus.core.errors import EnvelopeError, ReservedPropertyError, UnreadableError
from paired_servicebus.core.model import envelope
from paired_servicebus.core.pump.dead_letter_rules import time_left
from servicebus_amqp.encoding.codec import (
    NULL,
    Array,
    Described,
    Symbol,
    Timestamp,
    UInt,
    ULong,
    decode,
    described,
    encode,
    skip,
)
from servicebus_amqp.encoding.frames import new_tuple
from servicebus_amqp.encoding.message_sections import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    Sections,
    edit_map,
    find_in_map,
    first_section,
    list_bounds,
    list_items,
    list_section,
    map_values,
    read_header,
    read_properties,
    split,
    split_for_joining,
)
from servicebus_amqp.protocol.deliveries import Payload
from servicebus_amqp.protocol_errors import AmqpError, DecodeError

PARKED_BYTES: Final = 1024
"""An estimate of the most bytes that the envelope adds, with a long path and session."""
_MARK: Final = b"x-ms-"
"""The common beginning of the reserved names."""
_SCHEDULED: Final = envelope.SCHEDULED_ANNOTATION.encode()
_OURS: Final = b"x-opt-"
_PING: Final = envelope.PING_CONTENT_TYPE.encode()
_PING_HEAD: Final = 512
"""Bytes in which a ping's properties end."""
MAX_TTL_MS: Final = 2**32 - 1
"""The longest time to live of a header, 49.7 days; of a longer one only both times in the properties have the rest."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_EXPIRY_MS: Final = 253_402_243_199_000
"""The latest expiry that SDKs write, in milliseconds since 1970: a day before the year 10000."""
REMEMBERED_BYTES: Final = 512
"""The longest cached envelope or header: senders choose their length, and a cache has many."""
_MILLISECOND: Final = timedelta(milliseconds=1)

_NAMES: Final = frozenset(name.encode() for name in envelope.RESERVED)
_LENGTHS: Final = frozenset(map(len, _NAMES))
_BROKERS: Final = frozenset(name.encode() for name in envelope.BROKERS)
_LOCK_TOKEN: Final = (b"x-opt-lock-token",)
_DEAD: Final = (b"DeadLetterReason", b"DeadLetterErrorDescription")
_SCHEDULED_KEY: Final = encode(Symbol(envelope.SCHEDULED_ANNOTATION))

_EXPIRY, _CREATION, _GROUP = 8, 9, 10
"""Places in the list of properties."""
_TTL, _DELIVERY_COUNT = 2, 4
"""Places in the header."""

_DESCRIBED: Final = 0x00
_LONGEST_TIMESPAN: Final = 64
"""Bytes of the longest decoded described value: a timespan is never longer, in any encoding."""
_HOLLOW: Final[dict[int, object]] = {
    0xC0: [],
    0xD0: [],
    0xC1: {},
    0xD1: {},
    0xE0: Array(0x40, ()),
    0xF0: Array(0x40, ()),
}
"""Placeholders for lists, maps and arrays: a sender can make them expensive to read, and envelopes have none."""
_STR8, _MAP8, _MAP32, _LIST8 = 0xA1, 0xC1, 0xD1, 0xC0
_DESCRIBED_SMALL: Final = 0x53
_WIDTHS: Final = [
    {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16, 0xA: -1, 0xC: -1, 0xE: -1}.get(code >> 4, -2) for code in range(256)
]
"""Bytes after a format code: a number, one byte of size (-1), or as found by `skip` (-2)."""

_PLACES: Final = (
    (b"x-opt-sequence-number", 0, ((0x81, 8), (0x55, 1))),
    (b"x-opt-enqueued-time", 1, ((0x83, 8),)),
    (b"x-opt-locked-until", 2, ((0x83, 8),)),
    (b"x-opt-message-state", 3, ((0x54, 1), (0x71, 4))),
    (b"x-opt-enqueue-sequence-number", 4, ((0x81, 8), (0x55, 1))),
)
"""A namespace's annotations: the place in `BrokerProperties` (4: unused), usual format codes and their widths."""
_USUAL_ANNOTATIONS: Final = {
    b"\xa3" + bytes((len(name),)) + name + bytes((code,)): (place, width)
    for name, place, codes in _PLACES
    for code, width in codes
}
_HELD: Final = {name: place for name, place, _ in _PLACES}
_LONE_LOCK_TOKEN: Final = re.compile(rb"\x00\x53\x71\xc1..\xa3\x10x-opt-lock-token\x98.{16}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class EncodedMessage:
    """One message in its bytes. message_id: as text, regardless of its type."""

    data: bytes
    sections: Sections
    message_id: str


def read_message(data: bytes) -> EncodedMessage:
    """Read one message. Raises ReservedPropertyError, and any error for bytes that are not a message."""
    sections = split(data)
    mine = sections.application_properties
    if mine is not None and _MARK in mine:
        for name, _ in find_in_map(mine, _NAMES):
            raise ReservedPropertyError(name.decode())
    return EncodedMessage(data, sections, message_id_of(sections.properties))


def message_id_of(section: bytes | None) -> str:
    """Return the id in a properties section as text; empty without one. Raises for an id of another type."""
    if section is None:
        return ""
    if section[3] == _LIST8 and len(section) > 8 and section[5] and section[6] == _STR8:
        return section[8 : 8 + section[7]].decode()  # as clients write it; `park` reads the whole list
    count, at, _ = list_bounds(section)
    found = _flat(section, at) if count else None
    if found is None:
        return ""
    if isinstance(found, bytes):
        return found.decode("utf-8", "replace")
    if not isinstance(found, str | UUID | ULong):
        raise UnreadableError(
            f"the message-id is of type {type(found).__name__}; it must be a string, binary, UUID or ulong"
        )
    return str(int(found)) if isinstance(found, ULong) else str(found)


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


def seconds_to_live(message: EncodedMessage) -> float | None:
    """Return the message's own time to live in seconds; None: it has none, or it cannot be read."""
    header = message.sections.header
    try:
        ttl = None if header is None else read_header(header).ttl
    except DecodeError:
        return None
    return None if ttl is None else ttl / 1000


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
        raise unreadable(error) from error


def exceeds(message: EncodedMessage, path: str, limit: int) -> bool:
    """Return whether the message would not fit into a backlog queue (SPEC.md section 7.4)."""
    size = len(message.data)
    return size + PARKED_BYTES > limit and (size > limit or len(park(message, path).data) > limit)


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
    added, pairs = (_known_pairs if is_short else _envelope_pairs)(path, session, ttl, scheduled)
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


def _envelope_pairs(path: str, session: str | None, ttl: int | None, scheduled: datetime | None) -> tuple[int, bytes]:
    """Return the number of the envelope's pairs, and their bytes."""
    enclosed = envelope.EnvelopeProperties(
        path=path,
        session_id=session,
        time_to_live=None if ttl is None else timedelta(milliseconds=ttl),
        scheduled=scheduled,
    )
    pairs = list(_encoded_pairs(envelope.wrap(enclosed)))
    return len(pairs), b"".join(pairs)


_known_pairs: Final = lru_cache(maxsize=1024)(_envelope_pairs)


def _encoded_pairs(properties: dict[str, envelope.Value]) -> Iterator[bytes]:
    for name, value in properties.items():
        if isinstance(value, envelope.Timespan):
            yield encode(name) + encode(Described(Symbol(envelope.TIMESPAN), value.ticks))
        elif isinstance(value, datetime):
            yield encode(name) + encode(Timestamp(round(value.timestamp() * 1000)))
        else:
            yield encode(name) + encode(value)


def unreadable(error: Exception) -> UnreadableError:
    """Return the refusal of a message that caused this error."""
    if isinstance(error, UnreadableError):
        return error
    return UnreadableError(f"the message cannot be read: {error or type(error).__name__}")


# -- restoring --------------------------------------------------------------------------------------------------------


class BrokerProperties(NamedTuple):
    """The namespace's annotations of a message. Times are milliseconds since 1970; 0 if absent."""

    sequence_number: int = 0
    enqueued_ms: int = 0
    locked_until_ms: int = 0
    state: int = 0
    """0 active, 1 deferred, 2 scheduled."""


class OpenedEnvelope(NamedTuple):
    """A backlog message out of its envelope. enclosed: the sender's values."""

    enclosed: envelope.EnvelopeProperties
    held: BrokerProperties
    message_id: str
    """As text, regardless of its type; empty without one."""
    sections: Sections
    """Unchanged but for annotations and application properties, which contain only the sender's."""


def open_envelope(data: bytes) -> OpenedEnvelope:
    """Read and remove the envelope of an encoded backlog message.

    Raises:
        EnvelopeError: it is not a message, or its envelope cannot be translated; the text gives the reason.
    """
    try:
        header, delivery, annotations, properties, mine, body, footer = split_for_joining(data)
        held, annotations = _annotations(annotations)
        enclosed, mine = _application_properties(mine)
        if delivery is not None:
            delivery = None if _LONE_LOCK_TOKEN.fullmatch(delivery) else _without(delivery, DELIVERY_ANNOTATIONS)
        kept = new_tuple(Sections, (header, delivery, annotations, properties, mine, body, footer))
        found: OpenedEnvelope = new_tuple(OpenedEnvelope, (enclosed, held, message_id_of(properties), kept))
        return found
    except Exception as error:  # from an unknown sender: any error is its own
        raise _refused(error) from error


def restore_message(message: OpenedEnvelope, *, now_ms: int, elapsed: bool = False) -> Payload:
    """Return the original message, encoded: whole, or in pieces if a large body is a view.

    Args:
        now_ms: milliseconds since 1970, when the time to live begins again.
        elapsed: whether the time in the backlog counts against the time to live (ttl_policy).

    Raises:
        EnvelopeError: the time to live is used up, or a section to be changed is malformed.
    """
    enclosed, sections = message.enclosed, message.sections
    try:
        left, parked_at = enclosed.time_to_live, message.held.enqueued_ms / 1000
        if elapsed:
            left = time_left(enclosed, parked_at=parked_at, now=now_ms / 1000, elapsed=parked_at > 0)
        ttl = None if left is None else left // _MILLISECOND
        header = _header(sections.header, ttl)
        properties = _properties(sections.properties, enclosed.session_id, ttl, now_ms)
        annotations = sections.message_annotations
        if enclosed.scheduled is not None:
            pair = _SCHEDULED_KEY + encode(Timestamp(round(enclosed.scheduled.timestamp() * 1000)))
            annotations = edit_map(annotations, MESSAGE_ANNOTATIONS, add=pair, added=1)
    except Exception as error:
        raise _refused(error) from error
    _, delivery, _, _, mine, body, footer = sections
    pieces = [part for part in (header, delivery, annotations, properties, mine, body, footer) if part]
    return b"".join(pieces) if type(body) is bytes else pieces


def strip_dead_letter(data: bytes) -> bytes:
    """Return a dead-lettered backlog message as before: with its envelope, without the additions of dead-lettering.

    Raises:
        EnvelopeError: it is not a message.
    """
    try:
        sections = split(data)
        _, annotations = _annotations(sections.message_annotations)
        delivery = sections.delivery_annotations
        return sections._replace(
            header=_header(sections.header, _header_ttl(sections.header)),
            delivery_annotations=delivery and _without(delivery, DELIVERY_ANNOTATIONS),
            message_annotations=annotations,
            application_properties=edit_map(sections.application_properties, APPLICATION_PROPERTIES, drop=_DEAD),
        ).join()
    except Exception as error:
        raise _refused(error) from error


def broker_properties(data: bytes) -> BrokerProperties:
    """Return the namespace's annotations of a message, even an unreadable one; all 0 if they are unreadable."""
    try:
        return _annotations(first_section(data, MESSAGE_ANNOTATIONS))[0]
    except Exception:  # noqa: BLE001 - as above
        return BrokerProperties()


def read_message_id(data: bytes) -> str:
    """Return the id of an unreadable message as text; empty without one."""
    try:
        return message_id_of(split(data).properties)
    except Exception:  # noqa: BLE001 - as above
        return ""


def _refused(error: Exception) -> EnvelopeError:
    """Return the refusal of a message that caused this error; for errors outside AMQP it has only the type."""
    if isinstance(error, EnvelopeError):
        return error
    if isinstance(error, UnreadableError):
        return EnvelopeError(str(error))
    reason = str(error) if isinstance(error, AmqpError | UnicodeDecodeError) else type(error).__name__
    return EnvelopeError(f"the message cannot be read: {reason}")


# -- reading ---------------------------------------------------------------------------------------------------------


def _annotations(section: bytes | None) -> tuple[BrokerProperties, bytes | None]:
    """Return the namespace's annotations, and the rest of the section, which is the sender's."""
    if section is None:
        return BrokerProperties(), None
    if section[1] == _DESCRIBED_SMALL and section[3] == _MAP8:
        values = [0, 0, 0, 0, 0]
        at, end = 6, len(section)
        try:
            while at < end:
                value = at + 3 + section[at + 1]
                place, width = _USUAL_ANNOTATIONS[section[at:value]]
                at = value + width
                values[place] = int.from_bytes(section[value:at], "big", signed=True)
            if at == end:
                return new_tuple(BrokerProperties, values[:4]), None
        except LookupError:
            pass  # the sender has annotations too
    return _any_annotations(section)


def _any_annotations(section: bytes) -> tuple[BrokerProperties, bytes | None]:
    values = [0, 0, 0, 0, 0]
    for name, at in find_in_map(section, _HELD):
        value = _flat(section, at)
        values[_HELD[name]] = int(value) if isinstance(value, int) else 0
    return BrokerProperties._make(values[:4]), edit_map(section, MESSAGE_ANNOTATIONS, drop=_BROKERS)


def _without(section: bytes, code: int) -> bytes | None:
    return edit_map(section, code, drop=_LOCK_TOKEN)


def _application_properties(section: bytes | None) -> tuple[envelope.EnvelopeProperties, bytes | None]:
    """Return the envelope, and the sender's own section."""
    if section is None:
        return envelope.unwrap({}), None
    if section[1] == _DESCRIBED_SMALL and section[3] == _MAP8 and len(section) > 5:
        at, count = 6, section[5]
    elif section[1] == _DESCRIBED_SMALL and section[3] == _MAP32:
        at, count = 12, int.from_bytes(section[8:12], "big")
    else:
        return _any_application_properties(section)
    first, end, widths = at, len(section), _WIDTHS
    places: list[tuple[int, int]] = []
    try:
        for _ in range(count // 2):
            key = at
            if section[at] == _STR8:
                at += 2 + section[at + 1]
            else:
                at = skip(section, at)
            length = at - key - 2
            is_ours = length in _LENGTHS and section[key + 2 : at] in _NAMES
            width = widths[section[at]]
            at = at + 2 + section[at + 1] if width == -1 else at + 1 + width if width >= 0 else skip(section, at)
            if is_ours:
                places.append((key, at))
    except IndexError:
        at = -1
    if at != end or count % 2 or not places:
        return _any_application_properties(section)
    kept = count - 2 * len(places)
    pairs = b"".join([section[key:after] for key, after in places])
    enclosed = (_known_envelope if len(pairs) <= REMEMBERED_BYTES else _read_envelope)(pairs)
    return enclosed, described(APPLICATION_PROPERTIES, _map(kept, _cut(section, first, end, places))) if kept else None


def _read_envelope(pairs: bytes) -> envelope.EnvelopeProperties:
    """Return the envelope in these pairs; those of one destination are usually equal."""
    found: list[tuple[bytes, object]] = []
    at = 0
    while at < len(pairs):
        name, at = decode(pairs, at)
        found.append((name.encode(), _flat(pairs, at)))
        at = skip(pairs, at)
    return _unwrapped(found)


_known_envelope: Final = lru_cache(maxsize=1024)(_read_envelope)


def _any_application_properties(section: bytes) -> tuple[envelope.EnvelopeProperties, bytes | None]:
    """Read any encoding, such as keys that are long strings or symbols."""
    enclosed = _unwrapped([(name, _flat(section, at)) for name, at in find_in_map(section, _NAMES)])
    return enclosed, edit_map(section, APPLICATION_PROPERTIES, drop=_NAMES)


def _unwrapped(pairs: list[tuple[bytes, object]]) -> envelope.EnvelopeProperties:
    found: dict[object, object] = dict(pairs)
    if len(found) != len(pairs):
        raise EnvelopeError("an application property of the envelope occurs twice: the destination is unknown")
    return envelope.unwrap(found)


def _cut(section: bytes, first: int, end: int, places: list[tuple[int, int]]) -> bytes:
    """Return the section's pairs without those at `places`."""
    if len(places) == 1 and places[0][1] == end:
        return section[first : places[0][0]]
    kept: list[bytes] = []
    for key, after in places:
        kept.append(section[first:key])
        first = after
    kept.append(section[first:end])
    return b"".join(kept)


def _map(count: int, pairs: bytes) -> bytes:
    size = len(pairs) + 1
    if size < 256 and count < 256:
        return bytes((_MAP8, size, count)) + pairs
    return b"\xd1" + (len(pairs) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + pairs


def _flat(buffer: bytes, at: int) -> object:
    """Return the value at `at` in the core's types; of a compound, which the core never uses, only the type."""
    code = buffer[at]
    if code in _HOLLOW:
        return _HOLLOW[code]
    if code == _DESCRIBED and skip(buffer, at) - at > _LONGEST_TIMESPAN:
        return Described(None, None)
    value = decode(buffer, at)[0]
    if isinstance(value, Described) and value.descriptor == envelope.TIMESPAN and isinstance(value.value, int):
        return envelope.Timespan(int(value.value))
    return value


# -- writing ---------------------------------------------------------------------------------------------------------


def _header(section: bytes | None, ttl: int | None) -> bytes | None:
    """Return the header for another first delivery; headers are usually equal."""
    is_usual = section is None or len(section) <= REMEMBERED_BYTES
    return _known_header(section, ttl) if is_usual else _new_header(section, ttl)


def _new_header(section: bytes | None, ttl: int | None) -> bytes | None:
    items = list_items(section, _DELIVERY_COUNT + 1) if section is not None else [NULL] * (_DELIVERY_COUNT + 1)
    items[_TTL] = NULL if ttl is None else encode(UInt(min(ttl, MAX_TTL_MS)))
    items[_DELIVERY_COUNT] = NULL
    return list_section(HEADER, items)


_known_header: Final = lru_cache(maxsize=512)(_new_header)


def _header_ttl(section: bytes | None) -> int | None:
    if section is None:
        return None
    ttl = decode(list_items(section, _TTL + 1)[_TTL])[0]
    return int(ttl) if isinstance(ttl, int) else None


def _properties(section: bytes | None, session_id: str | None, ttl: int | None, now_ms: int) -> bytes | None:
    """Return the properties with the session and, for a time to live, its begin and end."""
    is_same = session_id is None and ttl is None
    if is_same and (section is None or (section[3] == _LIST8 and section[5] <= _GROUP)):
        return section
    items = [NULL] * (_GROUP + 1) if section is None else list_items(section, _GROUP + 1)
    if is_same and items[_GROUP] == NULL:
        return section
    items[_GROUP] = NULL if session_id is None else encode(session_id)
    if ttl is not None:
        items[_CREATION] = encode(Timestamp(now_ms))
        items[_EXPIRY] = encode(Timestamp(min(now_ms + ttl, MAX_EXPIRY_MS)))
    return list_section(PROPERTIES, items)
