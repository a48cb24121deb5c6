from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_amqp.encoding.frames import AMQP_FRAME, ReceiveBuffer, build_frame, read_frame_header
from servicebus_amqp.protocol.link import advance, distance
from servicebus_amqp.protocol_errors import FramingError


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
