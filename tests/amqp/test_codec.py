from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_amqp.encoding.codec import (
    MAX_EMPTY_ELEMENTS,
    MAX_NESTING,
    Array,
    Byte,
    Char,
    Decimal64,
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
    decode,
    encode,
    encode_map,
    skip,
)
from servicebus_amqp.encoding.frames import AMQP_FRAME, ReceiveBuffer, build_frame, read_frame_header
from servicebus_amqp.protocol.links import advance, distance
from servicebus_amqp.protocol_errors import DecodeError, EncodeError, FramingError
from tests.amqp.values import VALUES, typed


@given(VALUES, st.binary(max_size=9), st.binary(max_size=9))
def test_what_is_encoded_decodes_to_the_same_value_of_the_same_type(value: Any, before: bytes, behind: bytes) -> None:
    encoded = encode(value)
    found, end = decode(before + encoded + behind, len(before))
    assert typed(found) == typed(value)
    assert end == len(before) + len(encoded)


@given(VALUES, st.binary(max_size=9))
def test_skip_ends_where_decode_ends(value: Any, behind: bytes) -> None:
    encoded = encode(value)
    assert skip(encoded + behind) == decode(encoded + behind)[1]


@given(VALUES, st.data())
def test_a_value_cut_short_is_a_decode_error(value: Any, data: st.DataObject) -> None:
    encoded = encode(value)
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    for read in (decode, skip):
        with pytest.raises(DecodeError):
            read(cut)


@given(st.binary(min_size=1, max_size=60))
def test_any_bytes_decode_or_are_a_decode_error(data: bytes) -> None:
    try:
        value, end = decode(data)
    except DecodeError:
        return
    assert skip(data) == end <= len(data)
    assert typed(decode(encode(value))[0]) == typed(value)


ENCODINGS: list[tuple[str, Any]] = [
    ("40", None),
    ("41", True),
    ("42", False),
    ("5601", True),
    ("5600", False),
    ("50ff", UByte(255)),
    ("60ffff", UShort(65535)),
    ("43", UInt(0)),
    ("5207", UInt(7)),
    ("7000000007", UInt(7)),
    ("44", ULong(0)),
    ("5307", ULong(7)),
    ("800000000000000007", ULong(7)),
    ("51ff", Byte(-1)),
    ("61ffff", Short(-1)),
    ("54ff", Int(-1)),
    ("71ffffffff", Int(-1)),
    ("55ff", -1),
    ("81ffffffffffffffff", -1),
    ("723fc00000", Float(1.5)),
    ("823ff8000000000000", 1.5),
    ("840000000000000001", Decimal64(bytes(7) + b"\x01")),
    ("730001f600", Char("😀")),
    ("8300000000000003e8", Timestamp(1000)),
    ("98" + "0f" * 16, UUID(bytes=b"\x0f" * 16)),
    ("a0020102", b"\x01\x02"),
    ("b0000000020102", b"\x01\x02"),
    ("a102c3a9", "é"),
    ("b100000002c3a9", "é"),
    ("a3026162", Symbol("ab")),
    ("b3000000026162", Symbol("ab")),
    ("45", []),
    ("c00100", []),
    ("c0020141", [True]),
    ("d0000000050000000141", [True]),
    ("c10502a1016141", {"a": True}),
    ("d10000000800000002a1016141", {"a": True}),
    ("e00402550102", Array(0x55, (1, 2))),
    ("f00000000700000002550102", Array(0x55, (1, 2))),
    ("005307a10161", Described(ULong(7), "a")),
    ("00a3016143", Described(Symbol("a"), UInt(0))),
]


@pytest.mark.parametrize(("encoded", "value"), ENCODINGS)
def test_every_encoding_of_the_specification_is_read(encoded: str, value: Any) -> None:
    data = bytes.fromhex(encoded)
    found, end = decode(data)
    assert typed(found) == typed(value)
    assert end == len(data) == skip(data)


@pytest.mark.parametrize("value", [value for _, value in ENCODINGS])
def test_the_smallest_encoding_is_written(value: Any) -> None:
    known = [encoded for encoded, same in ENCODINGS if typed(same) == typed(value)]
    assert len(encode(value)) == min(len(encoded) for encoded in known) // 2


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "01",
        "5602",
        "730000d800",
        "7300110000",
        "a101ff",
        "a301ff",
        "c00000",
        "c0ff01",
        "c0024041",
        "c10301a101",
        "c1020140",
        "c10502a10161",
        "c10904a1016141a1016142",
        "d0ffffffff0000000140",
        "e003024100",
        "00",
        "0053",
    ],
)
def test_malformed_values_are_decode_errors(encoded: str) -> None:
    with pytest.raises(DecodeError):
        decode(bytes.fromhex(encoded))


@pytest.mark.parametrize("opening", ["c0ff01", "e0ff01c0", "005307"])
def test_nesting_without_end_is_a_decode_error(opening: str) -> None:
    data = bytes.fromhex(opening) * 100_000
    with pytest.raises(DecodeError):
        decode(data)


def nested(levels: int) -> bytes:
    """A string, described so many times."""
    return b"\x00\x53\x07" * levels + encode("x")


def test_values_are_read_to_the_deepest_nesting_and_no_deeper() -> None:
    value, end = decode(nested(MAX_NESTING))
    assert encode(value) == nested(MAX_NESTING)
    assert end == len(nested(MAX_NESTING))
    with pytest.raises(DecodeError, match=f"more than {MAX_NESTING} levels"):
        decode(nested(MAX_NESTING + 1))


def test_the_limit_counts_lists_maps_and_descriptors_together() -> None:
    value: Any = "x"
    for level in range(MAX_NESTING):
        value = ([value], {"k": value}, Described(ULong(7), value))[level % 3]
    assert typed(decode(encode(value))[0]) == typed(value)
    with pytest.raises(DecodeError, match="levels deep"):
        decode(encode([value]))


def test_descriptors_are_stepped_over_to_the_deepest_nesting_and_no_deeper() -> None:
    assert skip(nested(MAX_NESTING)) == len(nested(MAX_NESTING))
    with pytest.raises(DecodeError, match="levels deep"):
        skip(nested(MAX_NESTING + 1))


def test_nested_descriptors_without_end_cannot_be_skipped() -> None:
    with pytest.raises(DecodeError):
        skip(b"\x00" * 100_000)


COLLIDING: dict[str, list[Any]] = {
    "uuid": [UUID(int=number * (2**61 - 1)) for number in range(3)],
    "list": [[0], [1]],
    "described": [Described(ULong(1), 1), Described(ULong(1), 2)],
    "array": [Array.of(int, [1]), Array.of(int, [2])],
    "double": [1.0, 2.0],
    "null": [None],
}


@pytest.mark.parametrize("kind", COLLIDING)
def test_a_map_has_no_keys_whose_hashes_a_peer_can_choose(kind: str) -> None:
    """Nothing that a message holds may stop, slow or crash more than itself."""
    pairs = b"".join(encode(key) + encode(True) for key in COLLIDING[kind])
    with pytest.raises(DecodeError, match="keys are strings, symbols, binaries or ulongs"):
        decode(encode_map(2 * len(COLLIDING[kind]), pairs))


@pytest.mark.parametrize("code", [0x40, 0x41, 0x43, 0x44, 0x45])
def test_a_few_bytes_cannot_become_gigabytes(code: int) -> None:
    with pytest.raises(DecodeError, match=str(MAX_EMPTY_ELEMENTS)):
        decode(b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff" + bytes([code]))


@pytest.mark.parametrize(
    "value",
    [2**63, -(2**63) - 1, "\ud800", Symbol("é"), object(), {1, 2}, [object()], Array(0x01, ()), Float(1e300)],
)
def test_what_has_no_amqp_form_is_an_encode_error(value: Any) -> None:
    with pytest.raises(EncodeError):
        encode(value)


@pytest.mark.parametrize(
    ("make", "value"), [(UByte, 256), (UInt, -1), (ULong, 2**64), (Int, 2**31), (Char, "ab"), (Decimal64, b"")]
)
def test_a_value_outside_its_type_is_a_value_error(make: Any, value: Any) -> None:
    with pytest.raises(ValueError, match=f"(?i){make.__name__}"):
        make(value)


def test_maps_are_looked_up_by_plain_names() -> None:
    found, _ = decode(encode({Symbol("x-opt-sequence-number"): 5}))
    assert found["x-opt-sequence-number"] == 5
    assert type(next(iter(found))) is Symbol


@given(st.lists(st.text(max_size=300), max_size=4), st.sampled_from([0xA1, 0xB1]))
def test_elements_are_as_wide_as_their_array_says(texts: list[str], code: int) -> None:
    array = Array(code, tuple(texts))
    if code == 0xA1 and any(len(text.encode("utf-8", "surrogatepass")) > 255 for text in texts):
        with pytest.raises(EncodeError):
            encode(array)
    else:
        assert decode(encode(array))[0] == array


def test_a_frame_is_read_as_it_was_built() -> None:
    header = read_frame_header(build_frame(258, b"body"), 0, kind=AMQP_FRAME, most=512)
    assert (header.size, header.body, header.channel) == (12, 8, 258)


def test_an_extended_header_moves_the_body() -> None:
    frame = b"\x00\x00\x00\x10\x03\x00\x00\x00" + b"more" + b"body"
    assert read_frame_header(frame, 0, kind=AMQP_FRAME, most=512).body == 12


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("0000000702000000", "shorter than its own header"),
        ("0000020102000000", "the most taken is 512"),
        ("0000000801000000", "body at byte 4"),
        ("0000000803000000", "body at byte 12"),
        ("0000000802010000", "type 1"),
    ],
)
def test_a_header_that_cannot_be_is_a_framing_error(header: str, why: str) -> None:
    with pytest.raises(FramingError, match=why):
        read_frame_header(bytes.fromhex(header), 0, kind=AMQP_FRAME, most=512)


@given(st.lists(st.binary(min_size=1, max_size=5), min_size=1, max_size=30), st.integers(8, 60))
def test_the_buffer_gives_back_what_was_cut_once_there_is_enough(chunks: list[bytes], needed: int) -> None:
    buffer = ReceiveBuffer()
    buffer.keep(chunks[0], needed)
    held = len(chunks[0])
    for index, chunk in enumerate(chunks[1:], start=1):
        found = list(buffer.add(chunk))
        missing, held = needed - held, held + len(chunk)
        if held >= needed:
            assert found[0] == (b"".join(chunks[: index + 1])[:needed], 0)
            assert found[1:] == ([(chunk, missing)] if held > needed else [])
            return
        assert found == []


def test_what_is_kept_comes_first_the_next_time() -> None:
    buffer = ReceiveBuffer()
    assert list(buffer.add(b"12345678ab")) == [(b"12345678ab", 0)]
    buffer.keep(b"ab", 8)
    assert list(buffer.add(b"cdefg")) == []
    assert list(buffer.add(b"hi")) == [(b"abcdefgh", 0), (b"hi", 1)]


def test_of_a_frame_the_header_may_be_made_whole_first_and_then_the_rest() -> None:
    buffer = ReceiveBuffer()
    buffer.keep(b"ab", 8)
    pieces = buffer.add(b"cdefghijkl")
    assert next(pieces) == (b"abcdefgh", 0)
    buffer.keep(b"abcdefgh", 10)
    assert next(pieces) == (b"abcdefghij", 0)
    assert list(pieces) == [(b"cdefghijkl", 8)]


@pytest.mark.parametrize(
    ("start", "end", "steps"),
    [(5, 8, 3), (8, 5, -3), (2**32 - 1, 1, 2), (1, 2**32 - 1, -2), (7, 7, 0), (0, 2**31 - 1, 2**31 - 1)],
)
def test_serial_numbers_wrap(start: int, end: int, steps: int) -> None:
    assert distance(start, end) == steps
    assert advance(start, steps) == end
