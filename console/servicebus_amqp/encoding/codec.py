"""Encode and decode AMQP 1.0 values; `skip` steps over a value without decoding it.

Rules: `decode` accepts every encoding of AMQP; `encode` writes the smallest. Malformed bytes raise DecodeError, values
without an AMQP form raise EncodeError. Every AMQP type decodes to exactly one Python type, which encodes to the same
AMQP type; thin wrappers stand for the types that plain Python values cannot tell apart:

    null  None        ubyte UByte     byte  Byte      float  Float    char       Char       list   list
    bool  bool        ushort UShort   short Short     double float    timestamp  Timestamp  map    dict
    string str        uint  UInt      int   Int       decimal32/64/128 Decimal32/64/128     array  Array
    symbol Symbol     ulong ULong     long  int       binary bytes    uuid       UUID       described Described

Wrappers compare equal to their plain values (`Symbol("a") == "a"`), so that plain names find map entries.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, Self
from uuid import UUID

from servicebus_amqp.protocol_errors import DecodeError, EncodeError

UINT_MAX: Final = 0xFFFFFFFF


class _Ranged(int):
    """An integer of one AMQP type. Raises ValueError outside the type's range."""

    __slots__ = ()
    LOWEST: ClassVar[int]
    HIGHEST: ClassVar[int]

    def __new__(cls, value: int = 0) -> Self:
        if not cls.LOWEST <= value <= cls.HIGHEST:
            raise ValueError(f"{value} is not a {cls.__name__}: the range is {cls.LOWEST} to {cls.HIGHEST}")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"


class UByte(_Ranged):
    __slots__ = ()
    LOWEST, HIGHEST = 0, 0xFF


class UShort(_Ranged):
    __slots__ = ()
    LOWEST, HIGHEST = 0, 0xFFFF


class UInt(_Ranged):
    __slots__ = ()
    LOWEST, HIGHEST = 0, UINT_MAX


class ULong(_Ranged):
    __slots__ = ()
    LOWEST, HIGHEST = 0, 2**64 - 1


class Byte(_Ranged):
    __slots__ = ()
    LOWEST, HIGHEST = -(2**7), 2**7 - 1


class Short(_Ranged):
    __slots__ = ()
    LOWEST, HIGHEST = -(2**15), 2**15 - 1


class Int(_Ranged):
    __slots__ = ()
    LOWEST, HIGHEST = -(2**31), 2**31 - 1


class Timestamp(_Ranged):
    """Milliseconds since 1970-01-01 UTC."""

    __slots__ = ()
    LOWEST, HIGHEST = -(2**63), 2**63 - 1


class Symbol(str):
    """A name from a vocabulary; ASCII only."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Symbol({str.__repr__(self)})"


class Char(str):
    """One Unicode scalar value."""

    __slots__ = ()

    def __new__(cls, value: str) -> Self:
        if len(value) != 1 or 0xD800 <= ord(value) <= 0xDFFF:
            raise ValueError(f"{value!r} is no char: it must be one Unicode scalar value")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"Char({str.__repr__(self)})"


class Float(float):
    """A 32-bit IEEE 754 number (a plain float is AMQP's 64-bit double)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Float({float.__repr__(self)})"


class _Decimal(bytes):
    """An IEEE 754 decimal as its bytes, never used in arithmetic."""

    __slots__ = ()
    WIDTH: ClassVar[int]

    def __new__(cls, value: bytes) -> Self:
        if len(value) != cls.WIDTH:
            raise ValueError(f"a {cls.__name__} has {cls.WIDTH} bytes, not {len(value)}")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({bytes.__repr__(self)})"


class Decimal32(_Decimal):
    __slots__ = ()
    WIDTH = 4


class Decimal64(_Decimal):
    __slots__ = ()
    WIDTH = 8


class Decimal128(_Decimal):
    __slots__ = ()
    WIDTH = 16


@dataclass(frozen=True, slots=True)
class Described:
    """A value with the descriptor of its meaning, usually a ULong or a Symbol."""

    descriptor: Any
    value: Any


_ELEMENT_CODE: Final[dict[type, int]] = {
    bool: 0x56, UByte: 0x50, UShort: 0x60, UInt: 0x70, ULong: 0x80, Byte: 0x51, Short: 0x61, Int: 0x71, int: 0x81,
    Float: 0x72, float: 0x82, Decimal32: 0x74, Decimal64: 0x84, Decimal128: 0x94, Char: 0x73, Timestamp: 0x83,
    UUID: 0x98, bytes: 0xB0, str: 0xB1, Symbol: 0xB3, list: 0xD0, dict: 0xD1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Array:
    """Values that share one constructor.

    code: the format code of every element (`0x98` for uuid), which also gives its width.
    descriptor: of every element, or None.
    """

    code: int
    values: tuple[Any, ...]
    descriptor: Any = None

    @classmethod
    def of(cls, kind: type, values: Iterable[Any]) -> Array:
        """Return an array of one of the Python types above. Raises ValueError for a type without a code."""
        if kind not in _ELEMENT_CODE:
            raise ValueError(f"no array of {kind.__name__}: use one of the types of servicebus_amqp.encoding.codec")
        return cls(_ELEMENT_CODE[kind], tuple(values))


Decoder = Callable[[bytes, int], tuple[Any, int]]

NULL: Final = b"\x40"
MAX_NESTING: Final = 64
"""Levels of compounds and descriptors, the SDK's own limit. Deeper values would end in RecursionError."""
MAX_EMPTY_ELEMENTS: Final = 128
"""Elements of width 0. They cost no bytes to send, so a few bytes could ask for gigabytes."""
_LONGEST_KNOWN: Final = 128
"""Bytes of a cached symbol: a peer chooses their length, and the cache has many."""

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_unpack32: Final = _U32.unpack_from
_new_int: Any = int.__new__
_MALFORMED: Final = (IndexError, struct.error, UnicodeDecodeError, ValueError, TypeError)
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


def decode(buffer: bytes, offset: int = 0) -> tuple[Any, int]:
    """Return the value at `offset` and the offset after it. Raises DecodeError."""
    try:
        value, end = _DECODERS[buffer[offset]](buffer, offset + 1)
    except _MALFORMED as error:
        raise DecodeError(f"malformed value at byte {offset}: {error}") from error
    if end > len(buffer):
        raise DecodeError(f"the value at byte {offset} ends {end - len(buffer)} bytes after the end of the data")
    return value, end


def skip(buffer: bytes, offset: int = 0) -> int:
    """Return the offset after the value at `offset`; its content is not checked. Raises DecodeError."""
    try:
        width = _WIDTHS[buffer[offset]]
        if width >= 0:
            end = offset + 1 + width
        elif width == _SIZED8:
            end = offset + 2 + buffer[offset + 1]
        elif width == _SIZED32:
            end = offset + 5 + int(_unpack32(buffer, offset + 1)[0])
        elif width == _DESCRIBED:
            end = _behind_described(buffer, offset)
        else:
            raise DecodeError(f"no AMQP type has the format code 0x{buffer[offset]:02x} (byte {offset})")
    except (IndexError, struct.error) as error:
        raise DecodeError(f"malformed value at byte {offset}: {error}") from error
    if end > len(buffer):
        raise DecodeError(f"the value at byte {offset} ends {end - len(buffer)} bytes after the end of the data")
    return end


def _behind_described(buffer: bytes, at: int) -> int:
    pending, levels = 1, 0
    while pending:  # a loop, since a peer chooses how deep descriptors are nested
        if buffer[at] == 0x00:
            at += 1
            pending += 1  # a descriptor and a value in the place of one value
            levels += 1
            if levels > MAX_NESTING:
                _too_deep(buffer, at)
        else:
            at = skip(buffer, at)
            pending -= 1
    return at


def encode(value: Any) -> bytes:
    """Return the smallest encoding of a value. Raises EncodeError."""
    try:
        kind = type(value)
        return (_ENCODERS.get(kind) or _encoder(kind))(value)
    except (struct.error, ValueError, OverflowError, RecursionError) as error:
        raise EncodeError(f"{type(value).__name__} cannot be written as AMQP: {error}") from error


# decoding: one function per format code; each gets the offset behind the code


def _fixed(form: str, kind: type | None = None) -> Decoder:
    unpack = struct.Struct(form).unpack_from
    width = struct.calcsize(form)
    make: Any = kind
    if kind is None:
        return lambda buffer, at: (unpack(buffer, at)[0], at + width)
    if issubclass(kind, int):  # the width ensures the range
        return lambda buffer, at: (_new_int(make, unpack(buffer, at)[0]), at + width)
    return lambda buffer, at: (make(unpack(buffer, at)[0]), at + width)


def _constant(value: Any) -> Decoder:
    return lambda buffer, at: (value, at)


def _cut(buffer: bytes, start: int, end: int) -> bytes:
    if end > len(buffer):
        raise DecodeError(f"a value of {end - start} bytes at byte {start} is cut off after {len(buffer) - start}")
    return buffer[start:end]


def _symbol(name: bytes) -> Symbol:
    return _known_symbol(name) if len(name) <= _LONGEST_KNOWN else Symbol(name.decode("ascii"))


@lru_cache(maxsize=2048)
def _known_symbol(name: bytes) -> Symbol:
    return Symbol(name.decode("ascii"))


def _sized8(make: Callable[[bytes], Any]) -> Decoder:
    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        end = at + 1 + buffer[at]
        return make(_cut(buffer, at + 1, end)), end

    return read


def _sized32(make: Callable[[bytes], Any]) -> Decoder:
    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        end = at + 4 + int(_unpack32(buffer, at)[0])
        return make(_cut(buffer, at + 4, end)), end

    return read


def _read_boolean(buffer: bytes, at: int) -> tuple[bool, int]:
    if buffer[at] > 1:
        raise DecodeError(f"a boolean is 0 or 1, not {buffer[at]} (byte {at})")
    return buffer[at] == 1, at + 1


def _read_char(buffer: bytes, at: int) -> tuple[Char, int]:
    (point,) = _unpack32(buffer, at)
    if point > 0x10FFFF:
        raise DecodeError(f"0x{point:x} is no Unicode scalar value (byte {at})")
    return Char(chr(point)), at + 4


def _described_reader(level: int) -> Decoder:
    def read(buffer: bytes, at: int) -> tuple[Described, int]:
        inner = _DECODERS_AT[level + 1]
        descriptor, at = inner[buffer[at]](buffer, at + 1)
        value, at = inner[buffer[at]](buffer, at + 1)
        return Described(descriptor, value), at

    return read


def _items(level: int, buffer: bytes, at: int, count: int, end: int) -> list[Any]:
    values = []
    decoders = _DECODERS_AT[level]
    for _ in range(count):
        value, at = decoders[buffer[at]](buffer, at + 1)
        values.append(value)
    if at != end:
        raise DecodeError(f"a compound of {count} items ends at byte {at}, its size field gives {end}")
    return values


def _map(level: int, buffer: bytes, at: int, count: int, end: int) -> dict[Any, Any]:
    """Build a map; keys whose hashes a peer can choose are refused, since equal hashes cost quadratic time."""
    values = _items(level, buffer, at, count, end)
    if len(values) % 2:
        raise DecodeError(f"a map has as many keys as values, so {len(values)} items make none")
    keys = values[::2]
    for kind in set(map(type, keys)):
        if kind not in _KEY_TYPES:
            raise DecodeError(f"a map's key is a {kind.__name__}; keys are strings, symbols, binaries or ulongs")
    pairs = dict(zip(keys, values[1::2], strict=True))
    if 2 * len(pairs) != len(values):
        raise DecodeError("a map has two keys that are equal")
    return pairs


def _compound_readers(level: int, read: Callable[[int, bytes, int, int, int], Any]) -> tuple[Decoder, Decoder]:
    """Return a compound's decoders: for size and count of one byte each, and of four."""

    def small(buffer: bytes, at: int) -> tuple[Any, int]:
        end = at + 1 + buffer[at]
        return read(level + 1, buffer, at + 2, buffer[at + 1], end), end

    def wide(buffer: bytes, at: int) -> tuple[Any, int]:
        end = at + 4 + int(_unpack32(buffer, at)[0])
        return read(level + 1, buffer, at + 8, _unpack32(buffer, at + 4)[0], end), end

    return small, wide


def _array(level: int, buffer: bytes, at: int, count: int, end: int) -> Array:
    decoders = _DECODERS_AT[level]
    descriptor = None
    code = buffer[at]
    if code == 0x00:
        descriptor, at = decoders[buffer[at + 1]](buffer, at + 2)
        code = buffer[at]
        if code == 0x00:
            raise DecodeError(f"array elements described twice (byte {at}) are not supported")
    at += 1
    read = decoders[code]
    if _WIDTHS[code] == 0 and count > MAX_EMPTY_ELEMENTS:
        raise DecodeError(f"an array of {count} elements without width; {MAX_EMPTY_ELEMENTS} is the most taken")
    values = []
    for _ in range(count):
        value, at = read(buffer, at)
        values.append(value)
    if at != end:
        raise DecodeError(f"an array of {count} elements ends at byte {at}, its size field gives {end}")
    return Array(code, tuple(values), descriptor)


def _too_deep(buffer: bytes, at: int) -> tuple[Any, int]:
    raise DecodeError(f"values are nested more than {MAX_NESTING} levels deep (byte {at - 1})")


def _unknown(code: int) -> Decoder:
    def refuse(buffer: bytes, at: int) -> tuple[Any, int]:
        raise DecodeError(f"no AMQP type has the format code 0x{code:02x} (byte {at - 1})")

    return refuse


_KEY_TYPES: Final = frozenset((str, Symbol, bytes, ULong))
"""The types of keys in AMQP's own maps. Their hashes are salted, or differ for all but a few."""

_DECODER_OF: Final[dict[int, Decoder]] = {
    0x40: _constant(None), 0x41: _constant(True), 0x42: _constant(False), 0x56: _read_boolean,
    0x50: _fixed(">B", UByte), 0x60: _fixed(">H", UShort),
    0x43: _constant(UInt(0)), 0x52: _fixed(">B", UInt), 0x70: _fixed(">I", UInt),
    0x44: _constant(ULong(0)), 0x53: _fixed(">B", ULong), 0x80: _fixed(">Q", ULong),
    0x51: _fixed(">b", Byte), 0x61: _fixed(">h", Short),
    0x54: _fixed(">b", Int), 0x71: _fixed(">i", Int),
    0x55: _fixed(">b"), 0x81: _fixed(">q"),
    0x72: _fixed(">f", Float), 0x82: _fixed(">d"),
    0x74: _fixed(">4s", Decimal32), 0x84: _fixed(">8s", Decimal64), 0x94: _fixed(">16s", Decimal128),
    0x73: _read_char, 0x83: _fixed(">q", Timestamp),
    0x98: lambda buffer, at: (UUID(bytes=buffer[at : at + 16]), at + 16),
    0xA0: _sized8(bytes), 0xB0: _sized32(bytes),
    0xA1: _sized8(bytes.decode), 0xB1: _sized32(bytes.decode),
    0xA3: _sized8(_symbol), 0xB3: _sized32(_symbol),
    0x45: lambda buffer, at: ([], at),
}  # fmt: skip
_COMPOUND_CODES: Final = (0x00, 0xC0, 0xD0, 0xC1, 0xD1, 0xE0, 0xF0)
_PLAIN_DECODERS: Final[Sequence[Decoder]] = [_DECODER_OF.get(code) or _unknown(code) for code in range(256)]


def _decoders_at(level: int) -> list[Decoder]:
    """Return the decoders of values `level` compounds deep; one table a level bounds the depth without a check."""
    decoders = list(_PLAIN_DECODERS)
    readers: list[Decoder] = [_too_deep] * len(_COMPOUND_CODES)
    if level < MAX_NESTING:
        readers = [_described_reader(level)]
        for read in (_items, _map, _array):
            readers += _compound_readers(level, read)
    for code, reader in zip(_COMPOUND_CODES, readers, strict=True):
        decoders[code] = reader
    return decoders


_DECODERS_AT: Final = [_decoders_at(level) for level in range(MAX_NESTING + 1)]
_DECODERS: Final = _DECODERS_AT[0]

_SIZED8, _SIZED32, _DESCRIBED, _INVALID = -1, -2, -3, -4
_WIDTH_OF_FAMILY: Final = {
    0x0: _DESCRIBED, 0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16,
    0xA: _SIZED8, 0xB: _SIZED32, 0xC: _SIZED8, 0xD: _SIZED32, 0xE: _SIZED8, 0xF: _SIZED32,
}  # fmt: skip
_WIDTHS: Final[Sequence[int]] = [
    _WIDTH_OF_FAMILY[code >> 4] if code in (*_DECODER_OF, *_COMPOUND_CODES) else _INVALID for code in range(256)
]


# encoding: one function per Python type


def _encoder(kind: type) -> Callable[[Any], bytes]:
    for ancestor in kind.__mro__:
        if ancestor in _ENCODERS:
            return _ENCODERS[ancestor]
    raise EncodeError(f"{kind.__name__} has no AMQP type: use one of servicebus_amqp.encoding.codec or a plain value")


def _write_uint(value: int) -> bytes:
    if value == 0:
        return b"\x43"
    return bytes((0x52, value)) if value < 256 else b"\x70" + _U32.pack(value)


def _write_ulong(value: int) -> bytes:
    if value == 0:
        return b"\x44"
    return bytes((0x53, value)) if value < 256 else b"\x80" + _U64.pack(value)


def _write_int(value: int) -> bytes:
    return bytes((0x54, value & 0xFF)) if -128 <= value < 128 else b"\x71" + value.to_bytes(4, "big", signed=True)


def _write_long(value: int) -> bytes:
    if -128 <= value < 128:
        return bytes((0x55, value & 0xFF))
    if not _LONG_MIN <= value <= _LONG_MAX:
        raise EncodeError(f"{value} does not fit an AMQP long (64 bits)")
    return b"\x81" + value.to_bytes(8, "big", signed=True)


def _sized(small: int, wide: int, data: bytes) -> bytes:
    size = len(data)
    return (bytes((small, size)) if size < 256 else bytes((wide,)) + _U32.pack(size)) + data


def _compound(small: int, wide: int, count: int, body: bytes) -> bytes:
    size = len(body) + 1
    if size < 256 and count < 256:
        return bytes((small, size, count)) + body
    return bytes((wide,)) + _U32.pack(len(body) + 4) + _U32.pack(count) + body


def encode_list(items: Sequence[bytes]) -> bytes:
    """Return a list of encoded items."""
    return _compound(0xC0, 0xD0, len(items), b"".join(items)) if items else b"\x45"


def encode_fields(count: int, fields: bytes) -> bytes:
    """Return a list of `count` items, encoded one after the other."""
    return _compound(0xC0, 0xD0, count, fields)


def encode_map(count: int, pairs: bytes) -> bytes:
    """Return a map of `count` keys and values together, encoded one after the other."""
    return _compound(0xC1, 0xD1, count, pairs)


def described(descriptor: int, encoded: bytes) -> bytes:
    """Return an encoded value with one of AMQP's numeric descriptors (below 256)."""
    return bytes((0x00, 0x53, descriptor)) + encoded


def _pairs(value: dict[Any, Any]) -> bytes:
    return b"".join(encode(key) + encode(item) for key, item in value.items())


def _write_array(value: Array) -> bytes:
    constructor = bytes((value.code,))
    if value.descriptor is not None:
        constructor = b"\x00" + encode(value.descriptor) + constructor
    return _compound(0xE0, 0xF0, len(value.values), constructor + _elements(value))


def _elements(value: Array) -> bytes:
    code, values = value.code, value.values
    if code in _FIXED_ELEMENTS:
        form, take = _FIXED_ELEMENTS[code]
        return b"".join(struct.pack(form, take(item)) for item in values)
    if code in _CONSTANT_ELEMENTS:
        if any(item != _CONSTANT_ELEMENTS[code] for item in values):
            raise EncodeError(f"an array of code 0x{code:02x} holds {_CONSTANT_ELEMENTS[code]!r} only")
        return b""
    if code not in _COMPOUND_ELEMENTS:
        raise EncodeError(f"no AMQP type has the format code 0x{code:02x}")
    return b"".join(_resized(code, encode(item)) for item in values)


def _resized(code: int, encoded: bytes) -> bytes:
    """Return an encoded variable-width item without its code, with size and count as wide as in `code`."""
    if encoded == b"\x45":
        encoded = b"\xc0\x01\x00"
    own = encoded[0]
    if own | 0x10 != code | 0x10:
        raise EncodeError(f"an array of code 0x{code:02x} cannot hold an item of code 0x{own:02x}")
    if own == code:
        return encoded[1:]
    if own & 0x10:
        raise EncodeError(f"an item of {len(encoded)} bytes is too long for an array of code 0x{code:02x}")
    if code < 0xC0:
        return _U32.pack(encoded[1]) + encoded[2:]
    return _U32.pack(encoded[1] + 3) + _U32.pack(encoded[2]) + encoded[3:]


_FIXED_ELEMENTS: Final[dict[int, tuple[str, Callable[[Any], Any]]]] = {
    0x56: (">B", int), 0x50: (">B", int), 0x60: (">H", int),
    0x52: (">B", int), 0x70: (">I", int), 0x53: (">B", int), 0x80: (">Q", int),
    0x51: (">b", int), 0x61: (">h", int), 0x54: (">b", int), 0x71: (">i", int), 0x55: (">b", int), 0x81: (">q", int),
    0x72: (">f", float), 0x82: (">d", float), 0x73: (">I", ord), 0x83: (">q", int),
    0x74: (">4s", bytes), 0x84: (">8s", bytes), 0x94: (">16s", bytes), 0x98: (">16s", lambda item: item.bytes),
}  # fmt: skip
_CONSTANT_ELEMENTS: Final[dict[int, Any]] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0, 0x45: []}
_COMPOUND_ELEMENTS: Final = frozenset((0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0))

_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda value: NULL,
    bool: lambda value: b"\x41" if value else b"\x42",
    UByte: lambda value: bytes((0x50, value)),
    UShort: lambda value: b"\x60" + _U16.pack(value),
    UInt: _write_uint,
    ULong: _write_ulong,
    Byte: lambda value: b"\x51" + struct.pack(">b", value),
    Short: lambda value: b"\x61" + struct.pack(">h", value),
    Int: _write_int,
    int: _write_long,
    Float: lambda value: b"\x72" + struct.pack(">f", value),
    float: lambda value: b"\x82" + struct.pack(">d", value),
    Decimal32: lambda value: b"\x74" + value,
    Decimal64: lambda value: b"\x84" + value,
    Decimal128: lambda value: b"\x94" + value,
    Char: lambda value: b"\x73" + _U32.pack(ord(value)),
    Timestamp: lambda value: b"\x83" + value.to_bytes(8, "big", signed=True),
    UUID: lambda value: b"\x98" + value.bytes,
    bytes: lambda value: _sized(0xA0, 0xB0, value),
    str: lambda value: _sized(0xA1, 0xB1, value.encode("utf-8")),
    Symbol: lambda value: _sized(0xA3, 0xB3, value.encode("ascii")),
    list: lambda value: encode_list([encode(item) for item in value]),
    dict: lambda value: encode_map(2 * len(value), _pairs(value)),
    Described: lambda value: b"\x00" + encode(value.descriptor) + encode(value.value),
    Array: _write_array,
}
