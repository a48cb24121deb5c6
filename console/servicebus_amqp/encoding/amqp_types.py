"""Thin wrappers for the AMQP 1.0 types that plain Python values cannot tell apart.

Rules: every AMQP type decodes to exactly one Python type and encodes to the same AMQP type.

    null  None        ubyte UByte     byte  Byte      float  Float    char       Char       list   list
    bool  bool        ushort UShort   short Short     double float    timestamp  Timestamp  map    dict
    string str        uint  UInt      int   Int       decimal32/64/128 Decimal32/64/128     array  Array
    symbol Symbol     ulong ULong     long  int       binary bytes    uuid       UUID       described Described

Wrappers compare equal to their plain values (`Symbol("a") == "a"`), so that plain names find map entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self
from uuid import UUID

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
            raise ValueError(
                f"no array of {kind.__name__}: use one of the types of servicebus_amqp.encoding.amqp_types"
            )
        return cls(_ELEMENT_CODE[kind], tuple(values))
