"""Bytes to frames and back: protocol headers, frame headers, and the buffer that waits for the rest of a frame.

Rules: nothing is copied twice; a frame that trickles in byte by byte costs time in proportion to its length;
a size that the negotiated maximum does not allow is a FramingError before anything is stored for it. What a
frame's body says does not belong here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from servicebus_amqp.protocol_errors import FramingError

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
HEADER_SIZE: Final = 8
"""Of a protocol header, and of the smallest frame."""

AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1
MIN_MAX_FRAME_SIZE: Final = 512
"""What every peer takes, and the most it may be sent before its open has said more."""

_FRAME: Final = struct.Struct(">IBBH")
unpack_frame_header: Final = _FRAME.unpack_from
"""(size, data offset in words of four bytes, frame type, channel)"""


def build_frame(channel: int, body: bytes, kind: int = AMQP_FRAME) -> bytes:
    """A whole frame around a body; an empty body makes the empty frame that keeps a connection alive."""
    return _FRAME.pack(HEADER_SIZE + len(body), 2, kind, channel) + body


EMPTY_FRAME: Final = build_frame(0, b"")


@dataclass(frozen=True, slots=True)
class FrameHeader:
    size: int
    body: int
    """Where the body begins, counted from the frame's first byte."""
    channel: int


def read_frame_header(buffer: bytes, at: int, *, kind: int, most: int) -> FrameHeader:
    """The header of the frame at `at`, checked; eight bytes must be there.

    Raises:
        FramingError: the frame is shorter than its header, longer than `most` bytes, or not of this kind.
    """
    size, words, found, channel = unpack_frame_header(buffer, at)
    if size < HEADER_SIZE:
        raise FramingError(f"a frame of {size} bytes is shorter than its own header")
    if size > most:
        raise FramingError(f"a frame of {size} bytes; the most taken is {most}")
    if words < 2 or 4 * words > size:
        raise FramingError(f"a frame of {size} bytes cannot have its body at byte {4 * words}")
    if found != kind:
        raise FramingError(f"a frame of type {found} where type {kind} was expected")
    return FrameHeader(size, 4 * words, channel)


class ReceiveBuffer:
    """Bytes that wait for the rest of a header or frame."""

    __slots__ = ("_chunks", "_held", "_needed")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._held = 0
        self._needed = HEADER_SIZE

    def add(self, data: bytes) -> Iterator[tuple[bytes, int]]:
        """Bytes, and where in them to read on: what was cut, made whole, and then what of `data` is behind it.

        Whoever leaves something of a piece unread says so by `keep` before the next piece.
        """
        at = 0
        while self._chunks and at < len(data):
            chunk = data[at : at + self._needed - self._held]
            self._chunks.append(chunk)
            self._held += len(chunk)
            at += len(chunk)
            if self._held == self._needed:
                whole = b"".join(self._chunks)
                self._chunks.clear()
                yield whole, 0
        if at < len(data):
            yield data, at

    def keep(self, rest: bytes, needed: int) -> None:
        """Hold what is left of a piece until there are `needed` bytes of it."""
        self._needed = max(needed, HEADER_SIZE)
        self._held = len(rest)
        if rest:
            self._chunks.append(rest)
