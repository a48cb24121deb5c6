"""Declare, read and write AMQP's composite types: described lists such as performatives, outcomes and termini.

A composite is a frozen dataclass whose fields name their encodings, in the order of the specification:

    @composite(0x1D, "amqp:error:list")
    class Error:
        condition: str = wire(SYMBOL)
        description: str | None = wire(STRING, default=None)

Rules: absent and null fields get their default; unknown trailing fields are skipped. A missing mandatory field or a
value of the wrong kind is a DecodeError. All fields are written, nulls too, because some peers index into the list
without a length check.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, dataclass_transform

from servicebus_amqp.encoding.amqp_types import Array, Symbol, UByte, UInt, ULong, UShort
from servicebus_amqp.encoding.codec import NULL, decode, described, encode, encode_list, skip
from servicebus_amqp.protocol_errors import DecodeError

T = TypeVar("T")
Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[[Any], bytes]

_unpack32: Final = struct.Struct(">I").unpack_from
_WIRE: Final = "wire"
_NULL: Final = NULL[0]


@dataclass(frozen=True, slots=True)
class FieldCodec:
    """The encoding of one kind of field. Nulls never reach `read` or `write`."""

    read: Reader
    write: Writer = encode


@dataclass(frozen=True, slots=True)
class _Shape:
    """readers, writers: of each field, by its name, in order. mandatory: names."""

    code: int
    name: str
    readers: tuple[tuple[str, Reader], ...]
    writers: tuple[tuple[str, Writer], ...]
    mandatory: tuple[str, ...]


_SHAPES: Final[dict[type, _Shape]] = {}
_CLASS_OF_CODE: Final[dict[int, type]] = {}
_CODE_OF_NAME: Final[dict[str, int]] = {}


def wire(kind: FieldCodec, *, default: Any = dataclasses.MISSING, factory: Any = dataclasses.MISSING) -> Any:
    """Declare a field of a composite; it is mandatory without `default` or `factory`."""
    field: Any = dataclasses.field
    return field(default=default, default_factory=factory, metadata={_WIRE: kind})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(wire, dataclasses.field))
def composite(code: int, name: str) -> Callable[[type[T]], type[T]]:
    """Make a class a composite with AMQP's numeric and symbolic descriptor."""

    def declare(plain: type[T]) -> type[T]:
        made = dataclass(frozen=True, slots=True, kw_only=True)(plain)
        fields = [field for field in dataclasses.fields(made) if _WIRE in field.metadata]  # type: ignore[arg-type]
        _SHAPES[made] = _Shape(
            code,
            name,
            tuple((field.name, field.metadata[_WIRE].read) for field in fields),
            tuple((field.name, field.metadata[_WIRE].write) for field in fields),
            tuple(
                field.name
                for field in fields
                if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            ),
        )
        _CLASS_OF_CODE[code] = made
        _CODE_OF_NAME[name] = code
        return made

    return declare


_DESCRIPTORS: Final = frozenset((0x44, 0x53, 0x80, 0xA3, 0xB3))
"""Format codes of ulongs and symbols."""


def read_descriptor(buffer: bytes, at: int) -> tuple[int | None, int]:
    """Return the numeric descriptor of the described value at `at` (None: unknown) and the value's offset."""
    if buffer[at : at + 2] == b"\x00\x53":
        return _byte(buffer, at + 2), at + 3
    if buffer[at : at + 1] != b"\x00":
        raise DecodeError(f"a described type was expected at byte {at}")
    if _byte(buffer, at + 1) not in _DESCRIPTORS:  # of another type, which none of ours has and which may be large
        return None, skip(buffer, at + 1)
    descriptor, at = decode(buffer, at + 1)
    if isinstance(descriptor, Symbol):
        return _CODE_OF_NAME.get(descriptor), at
    return (int(descriptor) if isinstance(descriptor, ULong) else None), at


def read_list(buffer: bytes, at: int) -> tuple[int, int, int]:
    """Return the number of items of the list at `at`, the offset of the first and the end of the list."""
    code = _byte(buffer, at)
    if code == 0x45:
        return 0, at + 1, at + 1
    if code == 0xC0:
        return _byte(buffer, at + 2), at + 3, at + 2 + _byte(buffer, at + 1)
    if code != 0xD0 or at + 9 > len(buffer):
        raise DecodeError(f"a list was expected at byte {at}")
    return int(_unpack32(buffer, at + 5)[0]), at + 9, at + 5 + int(_unpack32(buffer, at + 1)[0])


def _byte(buffer: bytes, at: int) -> int:
    if at >= len(buffer):
        raise DecodeError(f"the data ends at byte {len(buffer)}, in the middle of a value")
    return buffer[at]


def read_composite(buffer: bytes, at: int) -> tuple[Any, int]:
    """Return the composite at `at` and the offset after it; an unknown described value stays a Described."""
    code, body = read_descriptor(buffer, at)
    kind = None if code is None else _CLASS_OF_CODE.get(code)
    if kind is None:
        return decode(buffer, at)
    shape = _SHAPES[kind]
    count, at, end = read_list(buffer, body)
    values, at = _read_fields(shape, count, buffer, at)
    for _ in range(count - len(shape.readers)):
        at = skip(buffer, at)
    if at != end:
        raise DecodeError(f"{shape.name} ends at byte {at}, its size field gives {end}")
    for name in shape.mandatory:
        if name not in values:
            raise DecodeError(f"{shape.name} came without its {name}, which is mandatory")
    return kind(**values), end


def _read_fields(shape: _Shape, count: int, buffer: bytes, at: int) -> tuple[dict[str, Any], int]:
    """Return the first `count` fields that are not null, and the offset after them."""
    values: dict[str, Any] = {}
    name = shape.name
    try:
        for name, read in shape.readers[:count]:
            if buffer[at] == _NULL:  # most are
                at += 1
            else:
                values[name], at = read(buffer, at)
    except IndexError as error:
        raise DecodeError(f"the data ends at byte {len(buffer)}, in the middle of {shape.name}") from error
    except DecodeError as error:
        raise DecodeError(f"{name} of {shape.name}: {error.description}") from error
    return values, at


def write_composite(value: Any) -> bytes:
    """Write a composite with all its fields. Raises EncodeError."""
    shape = _SHAPES[type(value)]
    items = []
    for name, write in shape.writers:
        item = getattr(value, name)
        items.append(NULL if item is None else write(item))
    return described(shape.code, encode_list(items))


# kinds of fields


def _checked(kind: type, what: str) -> Reader:
    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        value, end = decode(buffer, at)
        if not isinstance(value, kind):
            raise DecodeError(f"{what} was expected, not {type(value).__name__}")
        return value, end

    return read


def _integer(kind: type[UByte | UShort | UInt | ULong]) -> FieldCodec:
    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        value, end = decode(buffer, at)
        if type(value) is not kind and (
            not isinstance(value, int) or isinstance(value, bool) or not kind.LOWEST <= value <= kind.HIGHEST
        ):
            raise DecodeError(f"a {kind.__name__.lower()} was expected, not {_shown(value)}")
        return int(value), end

    return FieldCodec(read, lambda value: encode(kind(value)))


def _shown(value: object) -> str:
    """Return a peer's value for an error's text: numbers as they are, otherwise only the type."""
    return repr(value) if isinstance(value, int) else f"a value of type {type(value).__name__}"


def _read_symbols(buffer: bytes, at: int) -> tuple[tuple[str, ...], int]:
    value, end = decode(buffer, at)
    names = value.values if isinstance(value, Array) else (value,)
    if not all(isinstance(name, str) for name in names):
        raise DecodeError("symbols were expected")
    return tuple(names), end


def _write_symbols(names: tuple[str, ...]) -> bytes:
    return encode(Array.of(Symbol, map(Symbol, names))) if names else NULL


def _write_fields(fields: dict[Any, Any]) -> bytes:
    return encode({Symbol(key) if type(key) is str else key: value for key, value in fields.items()})


ANY: Final = FieldCodec(decode)
BOOLEAN: Final = FieldCodec(_checked(bool, "a boolean"))
BINARY: Final = FieldCodec(_checked(bytes, "a binary"))
STRING: Final = FieldCodec(_checked(str, "a string"))
SYMBOL: Final = FieldCodec(_checked(str, "a symbol"), lambda name: encode(Symbol(name)))
SYMBOLS: Final = FieldCodec(_read_symbols, _write_symbols)
MAP: Final = FieldCodec(_checked(dict, "a map"))
UBYTE: Final = _integer(UByte)
USHORT: Final = _integer(UShort)
UINT: Final = _integer(UInt)
ULONG: Final = _integer(ULong)
FIELDS: Final = FieldCodec(MAP.read, _write_fields)


def one_of(*kinds: type) -> FieldCodec:
    """Return the codec of a field that contains one of these composites, or a Described if that is among them."""

    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        value, end = read_composite(buffer, at)
        if not isinstance(value, kinds):
            raise DecodeError(f"{type(value).__name__} came where {kinds[0].__name__} or its like was expected")
        return value, end

    return FieldCodec(read, lambda value: write_composite(value) if type(value) in _SHAPES else encode(value))
