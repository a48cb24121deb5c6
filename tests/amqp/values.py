"""Hypothesis strategies for every AMQP value, and equality that tells AMQP's types apart."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from servicebus_amqp.encoding.codec import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    described,
    encode,
)

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=300)
SYMBOLS = st.text(st.characters(max_codepoint=127), max_size=300).map(Symbol)


def _ranged(kind: Any) -> st.SearchStrategy[Any]:
    return st.integers(kind.LOWEST, kind.HIGHEST).map(kind)


_SCALARS: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    **{kind: _ranged(kind) for kind in (UByte, UShort, UInt, ULong, Byte, Short, Int, Timestamp)},
    int: st.integers(-(2**63), 2**63 - 1),
    Float: st.floats(width=32, allow_nan=False).map(Float),
    float: st.floats(allow_nan=False),
    Decimal32: st.binary(min_size=4, max_size=4).map(Decimal32),
    Decimal64: st.binary(min_size=8, max_size=8).map(Decimal64),
    Decimal128: st.binary(min_size=16, max_size=16).map(Decimal128),
    Char: st.characters(exclude_categories=("Cs",)).map(Char),
    UUID: st.uuids(),
    bytes: st.binary(max_size=300),
    str: TEXT,
    Symbol: SYMBOLS,
}
SCALARS = st.one_of(st.none(), *_SCALARS.values())
_KEYS = st.one_of(TEXT, SYMBOLS, _SCALARS[ULong])


def _arrays(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    of_scalars = [
        st.lists(values, max_size=20).map(lambda found, kind=kind: Array.of(kind, found))
        for kind, values in _SCALARS.items()
    ]
    lists = st.lists(st.lists(items, max_size=3), max_size=3).map(lambda found: Array.of(list, found))
    described = st.lists(TEXT, max_size=3).map(lambda found: Array(0xB1, tuple(found), Symbol("a:b")))
    nested = st.lists(st.lists(st.integers(-9, 9), max_size=3), max_size=3).map(
        lambda found: Array(0xF0, tuple(Array.of(int, inner) for inner in found))
    )
    return st.one_of(*of_scalars, lists, described, nested)


VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda items: st.one_of(
        st.lists(items, max_size=6),
        st.dictionaries(_KEYS, items, max_size=6),
        st.builds(Described, st.one_of(_SCALARS[ULong], SYMBOLS), items),
        _arrays(items),
    ),
    max_leaves=25,
)


def typed(value: Any) -> Any:
    """The value with its types written out, for comparing what `==` takes for equal."""
    if isinstance(value, list):
        return ("list", [typed(item) for item in value])
    if isinstance(value, dict):
        return ("map", [(typed(key), typed(item)) for key, item in value.items()])
    if isinstance(value, Described):
        return ("described", typed(value.descriptor), typed(value.value))
    if isinstance(value, Array):
        return ("array", value.code, typed(value.descriptor), [typed(item) for item in value.values])
    return (type(value).__name__, repr(value) if isinstance(value, float) else value)


# An annotations section as a client writes it.


def write_annotations(code: int, annotations: dict[str, Any]) -> bytes:
    """Return an annotations section; its keys are written as symbols."""
    return described(code, encode({Symbol(key): value for key, value in annotations.items()}))
