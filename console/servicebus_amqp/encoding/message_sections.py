"""An encoded message as its raw sections: split, read in part, changed in part, joined again.

Rules: a section keeps its original bytes, descriptor included, so that unchanged sections stay equal bit for bit. The
body, of any kind, is one raw tail that is skipped and never decoded. Malformed messages are DecodeErrors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from math import inf
from typing import Any, Final, NamedTuple
from uuid import UUID

from servicebus_amqp.encoding.codec import (
    NULL,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    decode,
    described,
    encode,
    encode_fields,
    encode_list,
    encode_map,
    skip,
)
from servicebus_amqp.encoding.frames import new_tuple
from servicebus_amqp.encoding.performatives import read_descriptor, read_list
from servicebus_amqp.protocol_errors import DecodeError

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES = 0x70, 0x71, 0x72, 0x73
APPLICATION_PROPERTIES, DATA, SEQUENCE, VALUE, FOOTER = 0x74, 0x75, 0x76, 0x77, 0x78
BATCH_FORMAT: Final = 0x80013700
"""The message-format of a batch: each data section contains an encoded message."""

_NAMES: Final = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
_REPEATED: Final = (DATA, SEQUENCE)
_BEFORE, _AFTER = HEADER - 1, FOOTER + 1
_SYMBOLS: Final = (0xA3, 0xB3)
_SMALL: Final = (0xA0, 0xC0, 0xC1)
_WIDE: Final = (0xB0, 0xD0, 0xD1)
_unpack32: Final = struct.Struct(">I").unpack_from
_PLACES: Final = {
    bytes((0x00, 0x53, code, constructor)): (min(code - HEADER, 5) + (code == FOOTER), constructor in _SMALL)
    for code in range(HEADER, FOOTER + 1)
    for constructor in _SMALL + _WIDE
}
"""Usual beginnings of sections: the place in `Sections`, and whether the size has one byte or four."""
_BODY: Final = 5
_LARGE: Final = 16 * 1024


class Sections(NamedTuple):
    """A message's sections, each as raw bytes or None. Change one with `_replace`, then call `join`."""

    header: bytes | None = None
    delivery_annotations: bytes | None = None
    message_annotations: bytes | None = None
    properties: bytes | None = None
    application_properties: bytes | None = None
    body: bytes = b""
    footer: bytes | None = None

    def join(self) -> bytes:
        """Return the encoded message."""
        return b"".join([section for section in self if section])

    @property
    def size(self) -> int:
        return sum([len(section) for section in self if section])


def split(message: bytes) -> Sections:
    """Split an encoded message. Raises DecodeError for an unknown, repeated or misplaced section.

    Delivery annotations may come last, as Microsoft's Python client writes them.
    """
    return _split_plain(message) or _split_any(message)


def split_for_joining(message: bytes) -> Sections:
    """Split as `split`, but without a copy of a large body: it is a view of the message."""
    return _split_plain(message, _LARGE) or _split_any(message)


def _split_plain(message: bytes, large: float = inf) -> Sections | None:
    """Split sections with usual beginnings, in order and each once; None for all others."""
    found: list[Any] = [None, None, None, None, None, b"", None]
    length, at, last = len(message), 0, -1
    try:
        while at < length:
            place, is_small = _PLACES[message[at : at + 4]]
            end = at + 5 + message[at + 4] if is_small else at + 8 + _unpack32(message, at + 4)[0]
            if end > length or place <= last:
                return None
            found[place] = memoryview(message)[at:end] if end - at >= large and place == _BODY else message[at:end]
            at, last = end, place
    except (LookupError, struct.error):
        return None
    sections: Sections = new_tuple(Sections, found)
    return sections


def _split_any(message: bytes) -> Sections:
    found: list[bytes | None] = [None, None, None, None, None, b"", None]
    length = len(message)
    at, last, body_from, body_to = 0, _BEFORE, -1, length
    while at < length:
        start = at
        code, value = _section(message, at)
        at = skip(message, value)
        if code <= last or (code < FOOTER and last >= DATA):
            if code == DELIVERY_ANNOTATIONS and last >= DATA and found[1] is None:
                body_to = min(body_to, start)
                last = _AFTER
            elif code != last or code not in _REPEATED:
                raise DecodeError(f"section 0x{code:x} cannot follow section 0x{last:x} (byte {start})")
        else:
            last = code
        if code < DATA:
            found[code - HEADER] = message[start:at]
        elif code == FOOTER:
            found[6] = message[start:at]
            body_to = start
        elif body_from < 0:
            body_from = start
    if body_from >= 0:
        found[5] = message[body_from:body_to]
    return Sections._make(found)


def first_section(message: bytes, code: int) -> bytes | None:
    """Return the first section of this number; None without one. Raises DecodeError."""
    at = 0
    while at < len(message):
        start = at
        found, value = _section(message, at)
        at = skip(message, value)
        if found == code:
            return message[start:at]
    return None


def _section(message: bytes, at: int) -> tuple[int, int]:
    """Return the number of the section at `at` and the offset of its value."""
    if message.startswith(b"\x00\x53", at) and at + 2 < len(message):
        code, behind = message[at + 2], at + 3
    else:
        code, behind = _generic_section(message, at)
    if not HEADER <= code <= FOOTER:
        raise DecodeError(f"0x{code:x} is not a message section (byte {at})")
    return code, behind


def _generic_section(message: bytes, at: int) -> tuple[int, int]:
    code, behind = read_descriptor(message, at)
    if code is None and message[at + 1] in _SYMBOLS:
        descriptor, behind = decode(message, at + 1)
        code = _NAMES.get(descriptor, -1) if isinstance(descriptor, Symbol) else -1
    if code is None or code < 0:
        raise DecodeError(f"unknown section at byte {at}")
    return code, behind


class Header(NamedTuple):
    """ttl: milliseconds. delivery_count: unsuccessful tries before this one."""

    durable: bool | None = None
    priority: int | None = None
    ttl: int | None = None
    first_acquirer: bool | None = None
    delivery_count: int | None = None


class Properties(NamedTuple):
    """Times are milliseconds since 1970; ids keep their type (string, binary, UUID, ULong)."""

    message_id: Any = None
    user_id: bytes | None = None
    to: Any = None
    subject: str | None = None
    reply_to: Any = None
    correlation_id: Any = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


_ID: Final = (str, bytes, UUID, ULong)
_HEADER_KINDS: Final = ((bool, bool), (int, UByte), (int, UInt), (bool, bool), (int, UInt))
_PROPERTY_KINDS: Final = (
    (_ID, None), (bytes, bytes), (str, None), (str, str), (str, None), (_ID, None), (str, Symbol), (str, Symbol),
    (int, Timestamp), (int, Timestamp), (str, str), (int, UInt), (str, str),
)  # fmt: skip
"""The type of each field when read, and when written (None: its own type)."""
_Kinds = tuple[tuple[type | tuple[type, ...], type | None], ...]


def _read_list(section: bytes, kinds: _Kinds, names: tuple[str, ...]) -> list[Any]:
    """Return the items of a list section, with nulls for missing fields; unknown trailing items are skipped."""
    count, at, end = read_list(section, _section(section, 0)[1])
    values: list[Any] = [None] * len(kinds)
    for index in range(count):
        if section[at : at + 1] == NULL:  # most fields are
            at += 1
        elif index >= len(kinds):
            at = skip(section, at)
        else:
            value, at = decode(section, at)
            if not isinstance(value, kinds[index][0]):
                raise DecodeError(f"{names[index]} is a {type(value).__name__}, not a {_called(kinds[index][0])}")
            values[index] = value
    if not at == end == len(section):
        raise DecodeError(f"the list ends at byte {at}, its size field gives {end}, the section has {len(section)}")
    return values


def _called(kind: type | tuple[type, ...]) -> str:
    return " or ".join(one.__name__ for one in kind) if isinstance(kind, tuple) else kind.__name__


def _write_list(code: int, values: tuple[Any, ...], kinds: _Kinds) -> bytes:
    items = [
        NULL if value is None else encode(value if kind is None else kind(value))
        for value, (_, kind) in zip(values, kinds, strict=True)
    ]
    while items and items[-1] == NULL:
        items.pop()
    return described(code, encode_list(items))


def read_header(section: bytes | None) -> Header:
    """Return the header's fields; all None without a header. Raises DecodeError."""
    if section is None:
        return Header()
    return Header._make(_read_list(section, _HEADER_KINDS, Header._fields))


def write_header(header: Header) -> bytes:
    """Return the header's section."""
    return _write_list(HEADER, header, _HEADER_KINDS)


def read_properties(section: bytes | None) -> Properties:
    """Return the properties; all None without such a section. Raises DecodeError."""
    if section is None:
        return Properties()
    return Properties._make(_read_list(section, _PROPERTY_KINDS, Properties._fields))


def write_properties(properties: Properties) -> bytes:
    """Return the properties' section."""
    return _write_list(PROPERTIES, properties, _PROPERTY_KINDS)


def with_message_id(section: bytes | None, message_id: str) -> bytes:
    """Replace the id in a properties section; all other fields keep their bytes. Raises DecodeError."""
    count, rest = 1, b""
    if section is not None:
        found, at, end = read_list(section, _section(section, 0)[1])
        count, rest = max(1, found), section[skip(section, at) if found else at : end]
    return described(PROPERTIES, encode_fields(count, encode(message_id) + rest))


def read_map(section: bytes | None) -> dict[Any, Any]:
    """Return the map of an annotations, application properties or footer section, {} for None. Raises DecodeError."""
    if section is None:
        return {}
    value, end = decode(section, _section(section, 0)[1])
    if not isinstance(value, dict) or end != len(section):
        raise DecodeError("the section is not a single map")
    return value


def write_application_properties(properties: dict[str, Any]) -> bytes:
    return described(APPLICATION_PROPERTIES, encode(properties))


def write_data(data: bytes) -> bytes:
    """Return a body of one data section."""
    return described(DATA, encode(data))


def write_value(value: Any) -> bytes:
    """Return a body of one value."""
    return described(VALUE, encode(value))


def read_value(body: bytes, read: Callable[[bytes, int], tuple[Any, int]] = decode) -> Any:
    """Return the value of a body of one value section, as in requests to $cbs. Raises DecodeError.

    read: reads the value at an offset, and returns it with the offset after it.
    """
    code, at = _section(body, 0)
    if code != VALUE:
        raise DecodeError(f"the body is of section 0x{code:x}, not a value")
    value, end = read(body, at)
    if end != len(body):
        raise DecodeError(f"{len(body) - end} bytes follow the value")
    return value


def body_parts(body: bytes) -> Iterator[tuple[int, Any]]:
    """Yield each section of a body: its number (DATA, SEQUENCE or VALUE) and decoded content. Raises DecodeError."""
    at = 0
    while at < len(body):
        code, at = _section(body, at)
        content, at = decode(body, at)
        yield code, content


def list_bounds(section: bytes) -> tuple[int, int, int]:
    """Return the number of items of a list section, the offset of the first and the end of the list."""
    return read_list(section, _section(section, 0)[1])


def list_items(section: bytes, least: int) -> list[bytes]:
    """Return the encoded items of a list section, with nulls up to `least`. Raises DecodeError."""
    count, at, end = list_bounds(section)
    items: list[bytes] = []
    for _ in range(count):
        if section[at : at + 1] == NULL:  # most are
            items.append(NULL)
            at += 1
        else:
            start, at = at, skip(section, at)
            items.append(section[start:at])
    if at != end or end != len(section):
        raise DecodeError(f"a list ends at byte {at}, its size field gives {end}")
    return items + [NULL] * (least - count)


def list_section(code: int, items: list[bytes]) -> bytes | None:
    """Return a list section without its trailing nulls; None if nothing is left."""
    while items and items[-1] == NULL:
        items.pop()
    return described(code, encode_list(items)) if items else None


def edit_map(
    section: bytes | None, code: int, *, drop: Collection[bytes] = (), add: bytes = b"", added: int = 0
) -> bytes | None:
    """Return a map section without some keys and with others appended; all else keeps its bytes.

    drop: keys, as the bytes of their names (strings and symbols alike). add: encoded keys and values in turn, `added`
    pairs of them. None if nothing remains. Raises DecodeError.
    """
    count, pairs = 0, b""
    if section is not None:
        count, pairs = _kept(section, drop)
    if count + added == 0:
        return None
    return described(code, encode_map(2 * (count + added), pairs + add))


def find_in_map(section: bytes, names: Collection[bytes]) -> list[tuple[bytes, int]]:
    """Return the pairs of a map section whose keys are among `names`, in order: key bytes and offset of the value.

    names: the bytes of keys (strings and symbols alike). No value is decoded. Raises DecodeError.
    """
    return [(name, value) for name, _, value, _ in _pairs(section) if name is not None and name in names]


def map_values(section: bytes) -> list[tuple[bytes, bytes]]:
    """Return the pairs of a map section, in order: key bytes and encoded value. Keys of other types are left out.

    No value is decoded. Raises DecodeError.
    """
    return [(name, section[value:end]) for name, _, value, end in _pairs(section) if name is not None]


def _kept(section: bytes, drop: Collection[bytes]) -> tuple[int, bytes]:
    """Return the number of remaining pairs, and their bytes."""
    if not drop:
        count, at, end = _map_bounds(section, _section(section, 0)[1])
        return count // 2, section[at:end]
    kept = [section[start:end] for name, start, _, end in _pairs(section) if name not in drop]
    return len(kept), b"".join(kept)


def _pairs(section: bytes) -> Iterator[tuple[bytes | None, int, int, int]]:
    """Yield a map section's pairs: the bytes of the key's name, the offsets of key and value, and the value's end."""
    count, at, end = _map_bounds(section, _section(section, 0)[1])
    for _ in range(count // 2):
        start = at
        value = skip(section, at)
        at = skip(section, value)
        yield _name(section, start, value), start, value, at
    if at != end:
        raise DecodeError(f"the map ends at byte {at}, its size field gives {end}")


def _name(section: bytes, key: int, end: int) -> bytes | None:
    """Return the bytes of a key's name; None for a key of another type."""
    code = section[key]
    if code in (0xA3, 0xA1):
        return section[key + 2 : end]
    return section[key + 5 : end] if code in (0xB3, 0xB1) else None


def _map_bounds(section: bytes, at: int) -> tuple[int, int, int]:
    """Return the number of items of the map at `at`, the offset of the first and the end of the map."""
    if section[at : at + 1] == b"\xc1" and at + 3 <= len(section):
        count, first, end = section[at + 2], at + 3, at + 2 + section[at + 1]
    elif section[at : at + 1] == b"\xd1" and at + 9 <= len(section):
        count, first, end = _unpack32(section, at + 5)[0], at + 9, at + 5 + _unpack32(section, at + 1)[0]
    else:
        raise DecodeError(f"a map was expected at byte {at}")
    if end != len(section) or count % 2:
        raise DecodeError(f"a map of {count} items that ends at byte {end} of {len(section)}")
    return count, first, end


def encode_pair(key: str, value: Any) -> bytes:
    """Return an annotation for `edit_map`: the key as a symbol, and its value."""
    return encode(Symbol(key)) + encode(value)


def unbatch(message: bytes) -> Iterator[bytes]:
    """Yield the encoded messages of a batch, in order. Raises DecodeError for any section but data."""
    body = split(message).body
    at = 0
    while at < len(body):
        code, at = _section(body, at)
        if code != DATA:
            raise DecodeError(f"a batch holds data sections only, not section 0x{code:x}")
        inner, at = decode(body, at)
        if not isinstance(inner, bytes):
            raise DecodeError("a data section holds no binary")
        yield inner


def batch(messages: Iterable[bytes], *, properties: bytes | None = None, annotations: bytes | None = None) -> bytes:
    """Join encoded messages into one message of BATCH_FORMAT; the envelope's sections are raw bytes."""
    body = b"".join([write_data(message) for message in messages])
    return Sections(message_annotations=annotations, properties=properties, body=body).join()
