"""Protocol headers, frame headers, and the buffer for incomplete frames.

Rules: nothing is copied twice. A frame that arrives byte by byte costs time in proportion to its length. A size above
the negotiated maximum is a FramingError before anything is stored for it.
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
"""Bytes of a protocol header, and of the smallest frame."""

AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1
MIN_MAX_FRAME_SIZE: Final = 512
"""Bytes that every peer accepts, and the most before its open has set another limit."""

_FRAME: Final = struct.Struct(">IBBH")
unpack_frame_header: Final = _FRAME.unpack_from
"""(size, data offset in words of four bytes, frame type, channel)"""


def build_frame(channel: int, body: bytes, kind: int = AMQP_FRAME) -> bytes:
    """Return a frame around a body; an empty body makes the empty frame that keeps a connection alive."""
    return _FRAME.pack(HEADER_SIZE + len(body), 2, kind, channel) + body


EMPTY_FRAME: Final = build_frame(0, b"")


@dataclass(frozen=True, slots=True)
class FrameHeader:
    size: int
    body: int
    """Offset of the body from the frame's first byte."""
    channel: int


def read_frame_header(buffer: bytes, at: int, *, kind: int, most: int) -> FrameHeader:
    """Read and check the header of the frame at `at`; eight bytes must be available.

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
    """Bytes of an incomplete header or frame."""

    __slots__ = ("_chunks", "_held", "_needed")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._held = 0
        self._needed = HEADER_SIZE

    def add(self, data: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield bytes and the offset to read from: first the completed piece, then the rest of `data`.

        The reader calls `keep` with the unread rest of a piece before it asks for the next piece.
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
        """Store the rest of a piece until `needed` bytes of it are available."""
        self._needed = max(needed, HEADER_SIZE)
        self._held = len(rest)
        if rest:
            self._chunks.append(rest)
