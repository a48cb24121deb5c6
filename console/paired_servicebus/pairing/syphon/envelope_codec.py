"""Turns a backlog message back into its original, on raw sections (SPEC.md section 7.2).

Changed: the header's time to live and delivery count, the session and both expiry times in the properties, the
namespace's annotations, the four names of the envelope. All else keeps its bytes: body and footer of any kind,
properties of any AMQP type, longer encodings.

Rules: pure functions of bytes and times. Each section has a fast reader for its usual form and a general one; both give
equal results. Unreadable messages raise an `EnvelopeError` with the reason for the dead letter.
"""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from paired_servicebus.core.errors import EnvelopeError
from paired_servicebus.core.model.envelope import (
    BROKERS,
    RESERVED,
    SCHEDULED_ANNOTATION,
    TIMESPAN,
    EnvelopeProperties,
    Timespan,
    unwrap,
)
from paired_servicebus.core.pump.dead_letter_rules import time_left
from paired_servicebus.pairing.sending.encoded_messages import MAX_TTL_MS
from servicebus_amqp.encoding.amqp_types import Array, Described, Symbol, Timestamp, UInt, ULong
from servicebus_amqp.encoding.codec import NULL, decode, described, encode, skip
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
    split,
    split_for_joining,
)
from servicebus_amqp.encoding.transfer_codec import new_tuple
from servicebus_amqp.protocol.link_sender import Payload
from servicebus_amqp.protocol_errors import AmqpError

MAX_EXPIRY_MS: Final = 253_402_243_199_000
"""The latest expiry that SDKs write, in milliseconds since 1970: a day before the year 10000."""
REMEMBERED_BYTES: Final = 512
"""The longest cached envelope or header: senders choose their length, and a cache has many."""
_MILLISECOND: Final = timedelta(milliseconds=1)

_NAMES: Final = frozenset(name.encode() for name in RESERVED)
_LENGTHS: Final = frozenset(map(len, _NAMES))
_BROKERS: Final = frozenset(name.encode() for name in BROKERS)
_LOCK_TOKEN: Final = (b"x-opt-lock-token",)
_DEAD: Final = (b"DeadLetterReason", b"DeadLetterErrorDescription")
_SCHEDULED_KEY: Final = encode(Symbol(SCHEDULED_ANNOTATION))

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


class BrokerProperties(NamedTuple):
    """The namespace's annotations of a message. Times are milliseconds since 1970; 0 if absent."""

    sequence_number: int = 0
    enqueued_ms: int = 0
    locked_until_ms: int = 0
    state: int = 0
    """0 active, 1 deferred, 2 scheduled."""


class OpenedEnvelope(NamedTuple):
    """A backlog message out of its envelope. enclosed: the sender's values."""

    enclosed: EnvelopeProperties
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
        found: OpenedEnvelope = new_tuple(OpenedEnvelope, (enclosed, held, _message_id(properties), kept))
        return found
    except Exception as error:  # from an unknown sender: any error is its own
        raise _unreadable(error) from error


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
        ttl = _time_to_live(message, now_ms) if elapsed else _milliseconds(enclosed.time_to_live)
        header = _header(sections.header, ttl)
        properties = _properties(sections.properties, enclosed.session_id, ttl, now_ms)
        annotations = sections.message_annotations
        if enclosed.scheduled is not None:
            pair = _SCHEDULED_KEY + encode(Timestamp(round(enclosed.scheduled.timestamp() * 1000)))
            annotations = edit_map(annotations, MESSAGE_ANNOTATIONS, add=pair, added=1)
    except Exception as error:
        raise _unreadable(error) from error
    _, delivery, _, _, mine, body, footer = sections
    pieces = [part for part in (header, delivery, annotations, properties, mine, body, footer) if part]
    return b"".join(pieces) if type(body) is bytes else pieces


class ParkedMessage(NamedTuple):
    """A backlog message as the pump takes it. path: ""; payload: empty, if there is a fault that hides them."""

    path: str
    held: BrokerProperties
    message_id: str
    payload: Payload
    fault: str
    """Why it cannot be delivered, or ""."""


def read_parked(data: bytes, *, now_ms: int, elapsed: bool) -> ParkedMessage:
    """Read a backlog message and restore the original, as `open_envelope` and `restore_message` do; never raises."""
    path = ""
    try:
        found = open_envelope(data)
        enclosed, held, message_id, _ = found
        path = enclosed.path
        payload = restore_message(found, now_ms=now_ms, elapsed=elapsed)
        read: ParkedMessage = new_tuple(ParkedMessage, (path, held, message_id, payload, ""))
        return read
    except EnvelopeError as error:
        return ParkedMessage(path, broker_properties(data), read_message_id(data), b"", str(error))


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
        raise _unreadable(error) from error


def broker_properties(data: bytes) -> BrokerProperties:
    """Return the namespace's annotations of a message, even an unreadable one; all 0 if they are unreadable."""
    try:
        return _annotations(first_section(data, MESSAGE_ANNOTATIONS))[0]
    except Exception:  # noqa: BLE001 - as above
        return BrokerProperties()


def read_message_id(data: bytes) -> str:
    """Return the id of an unreadable message as text; empty without one."""
    try:
        return _message_id(split(data).properties)
    except Exception:  # noqa: BLE001 - as above
        return ""


def _unreadable(error: Exception) -> EnvelopeError:
    """Return the refusal of a message that caused this error; for errors outside AMQP it has only the type."""
    if isinstance(error, EnvelopeError):
        return error
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


def _message_id(section: bytes | None) -> str:
    if section is None:
        return ""
    if section[3] == _LIST8 and len(section) > 8 and section[5] and section[6] == _STR8:
        return section[8 : 8 + section[7]].decode()
    count, at, _ = list_bounds(section)
    found = _flat(section, at) if count else None
    if found is None:
        return ""
    if isinstance(found, bytes):
        return found.decode("utf-8", "replace")
    if not isinstance(found, str | UUID | ULong):
        raise EnvelopeError(
            f"the message-id is of type {type(found).__name__}; it must be a string, binary, UUID or ulong"
        )
    return str(int(found)) if isinstance(found, ULong) else str(found)


def _application_properties(section: bytes | None) -> tuple[EnvelopeProperties, bytes | None]:
    """Return the envelope, and the sender's own section."""
    if section is None:
        return unwrap({}), None
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
    enclosed = _enclosed(b"".join([section[key:after] for key, after in places]))
    return enclosed, described(APPLICATION_PROPERTIES, _map(kept, _cut(section, first, end, places))) if kept else None


def _enclosed(pairs: bytes) -> EnvelopeProperties:
    """Return the envelope in these pairs; those of one destination are usually equal."""
    return _known_envelope(pairs) if len(pairs) <= REMEMBERED_BYTES else _read_envelope(pairs)


def _read_envelope(pairs: bytes) -> EnvelopeProperties:
    found: list[tuple[bytes, object]] = []
    at = 0
    while at < len(pairs):
        name, at = decode(pairs, at)
        found.append((name.encode(), _flat(pairs, at)))
        at = skip(pairs, at)
    return _unwrapped(found)


_known_envelope: Final = lru_cache(maxsize=1024)(_read_envelope)


def _any_application_properties(section: bytes) -> tuple[EnvelopeProperties, bytes | None]:
    """Read any encoding, such as keys that are long strings or symbols."""
    enclosed = _unwrapped([(name, _flat(section, at)) for name, at in find_in_map(section, _NAMES)])
    return enclosed, edit_map(section, APPLICATION_PROPERTIES, drop=_NAMES)


def _unwrapped(pairs: list[tuple[bytes, object]]) -> EnvelopeProperties:
    found: dict[object, object] = dict(pairs)
    if len(found) != len(pairs):
        raise EnvelopeError("an application property of the envelope occurs twice: the destination is unknown")
    return unwrap(found)


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
    if isinstance(value, Described) and value.descriptor == TIMESPAN and isinstance(value.value, int):
        return Timespan(int(value.value))
    return value


# -- writing ---------------------------------------------------------------------------------------------------------


def _milliseconds(span: timedelta | None) -> int | None:
    return None if span is None else span // _MILLISECOND


def _time_to_live(message: OpenedEnvelope, now_ms: int) -> int | None:
    """Return the time to live that the backlog left."""
    parked_at = message.held.enqueued_ms / 1000
    return _milliseconds(time_left(message.enclosed, parked_at=parked_at, now=now_ms / 1000, elapsed=parked_at > 0))


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
    if section is None:
        if session_id is None and ttl is None:
            return None
        items = [NULL] * (_GROUP + 1)
    else:
        if session_id is None and ttl is None and section[3] == _LIST8 and section[5] <= _GROUP:
            return section
        items = list_items(section, _GROUP + 1)
    if session_id is None and ttl is None and section is not None and items[_GROUP] == NULL:
        return section
    items[_GROUP] = NULL if session_id is None else encode(session_id)
    if ttl is not None:
        items[_CREATION] = encode(Timestamp(now_ms))
        items[_EXPIRY] = encode(Timestamp(min(now_ms + ttl, MAX_EXPIRY_MS)))
    return list_section(PROPERTIES, items)
