"""The framing of AMQP 1.0: protocol headers, frame headers, incomplete frames, and the two frequent bodies.

Rules: nothing is copied twice. A frame that arrives byte by byte costs time in proportion to its length. A size above
the negotiated maximum is a FramingError before anything is stored for it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple

from servicebus_amqp.encoding.codec import described, encode_list
from servicebus_amqp.encoding.performatives import (
    DeliveryState,
    Disposition,
    Transfer,
    read_state,
    write_state,
)
from servicebus_amqp.protocol_errors import DecodeError, FramingError

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


# Transfers and dispositions, read and written by hand, since they accompany every message.
#
# Rules: a fast reader returns None for unusual shapes and for malformed bytes; the general reader
# (servicebus_amqp.encoding.performatives) then decides. Tests ensure that both give equal results.

TRANSFER_PREFIX: Final = b"\x00\x53\x14\xc0"
DISPOSITION_PREFIX: Final = b"\x00\x53\x15\xc0"
TRANSFER_ROOM: Final = 8 + 6 + 5 + 5 + 34 + 5 + 1 + 1 + 5
"""Bytes of frame header and performative of our largest transfer without a state; the rest of a frame is payload."""
NO_STATE: Final = b"\x40"
MAX_STATE_BYTES: Final = 128

_NULL, _TRUE, _FALSE, _BOOLEAN = 0x40, 0x41, 0x42, 0x56
_UINT0, _UINT8, _UINT32, _BINARY8 = 0x43, 0x52, 0x70, 0xA0
_unpack32: Final = struct.Struct(">I").unpack_from
_pack32: Final = struct.Struct(">I").pack
_pack_start: Final = struct.Struct(">IBBHIBB").pack
_TRANSFER_WORD: Final = 0x005314C0

_FLAGS: Final = {_FALSE: False, _NULL: False, _TRUE: True}
_ALL_FIELDS: Final = 11
_TAIL: Final = b"\x40\x40\x42\x42\x42"
"""The last five fields of a transfer. These defaults are written because azure-servicebus below 7.15 counts the fields
to find the payload after them."""
_MORE_TAIL, _LAST_TAIL = b"\x41" + _TAIL, b"\x42" + _TAIL
_SETTLED_MORE, _SETTLED_LAST = b"\x41" + _MORE_TAIL, b"\x41" + _LAST_TAIL
_UNSETTLED_MORE, _UNSETTLED_LAST = b"\x42" + _MORE_TAIL, b"\x42" + _LAST_TAIL
new_tuple: Final[Any] = tuple.__new__
"""Build a named tuple without its Python constructor, which is the slowest part of it."""
_PLAIN_TAILS: Final = frozenset(
    bytes(tail[:length])
    for tail in product((_NULL,), (_NULL,), (_NULL, _FALSE), (_NULL, _FALSE), (_NULL, _FALSE, _TRUE))
    for length in range(6)
)
"""Usual values of a transfer's last five fields: no settle mode, no state, not resumed, not aborted."""


class TransferHead(NamedTuple):
    """The fields of a transfer that matter here; a plain tuple, since every frame needs one."""

    handle: int
    delivery_id: int | None
    tag: bytes | None
    message_format: int | None
    settled: bool
    more: bool
    aborted: bool
    payload: int
    """Offset of the payload in the buffer."""
    state: DeliveryState | None = None


class DispositionHead(NamedTuple):
    is_receiver: bool
    first: int
    last: int
    settled: bool
    state: DeliveryState | None


def head_of_transfer(transfer: Transfer, payload: int) -> TransferHead:
    return TransferHead(
        transfer.handle,
        transfer.delivery_id,
        transfer.delivery_tag,
        transfer.message_format,
        bool(transfer.settled),
        transfer.more,
        transfer.aborted,
        payload,
        transfer.state,
    )


def head_of_disposition(disposition: Disposition) -> DispositionHead:
    last = disposition.first if disposition.last is None else disposition.last
    return DispositionHead(disposition.role, disposition.first, last, disposition.settled, disposition.state)


def _uint(buffer: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned integer and the offset after it. Raises LookupError for any other type."""
    code = buffer[at]
    if code == _UINT8:
        return buffer[at + 1], at + 2
    if code == _UINT0:
        return 0, at + 1
    if code == _UINT32:
        return _unpack32(buffer, at + 1)[0], at + 5
    raise LookupError(at)


def read_transfer(buffer: bytes, at: int, stop: int) -> TransferHead | None:
    """Read the transfer whose TRANSFER_PREFIX is at `at`, in a frame that ends at `stop`."""
    try:
        end = at + 5 + buffer[at + 4]
        count = buffer[at + 5]
        if end > stop or count < 5:
            return None
        at += 6
        handle, at = (0, at + 1) if buffer[at] == _UINT0 else _uint(buffer, at)
        delivery_id: int | None = None
        if buffer[at] == _UINT32:
            (delivery_id,) = _unpack32(buffer, at + 1)
            at += 5
        elif buffer[at] == _NULL:
            at += 1
        else:
            delivery_id, at = _uint(buffer, at)
        tag: bytes | None = None
        if buffer[at] == _BINARY8:
            start = at + 2
            at = start + buffer[at + 1]
            tag = buffer[start:at]
        elif buffer[at] == _NULL:
            at += 1
        else:
            return None
        message_format: int | None = None
        if buffer[at] == _UINT0:
            message_format = 0
            at += 1
        elif buffer[at] == _NULL:
            at += 1
        else:
            message_format, at = _uint(buffer, at)
        settled, at = (False, at + 1) if buffer[at] == _FALSE else _flag(buffer, at)
        more = False
        if count != _ALL_FIELDS or buffer[at:end] != _LAST_TAIL:
            if count > 5:
                more, at = _flag(buffer, at)
            if end - at != max(0, count - 6) or (count > 6 and buffer[at:end] not in _PLAIN_TAILS):
                return None
    except (LookupError, struct.error):
        return None
    head: TransferHead = new_tuple(
        TransferHead, (handle, delivery_id, tag, message_format, settled, more, False, end, None)
    )
    return head


def _flag(buffer: bytes, at: int) -> tuple[bool, int]:
    """Return a boolean (null is False) and the offset after it. Raises LookupError for any other type."""
    code = buffer[at]
    if code == _BOOLEAN and buffer[at + 1] < 2:
        return buffer[at + 1] == 1, at + 2
    return _FLAGS[code], at + 1


def read_disposition(buffer: bytes, at: int, stop: int) -> DispositionHead | None:
    """Read the disposition whose DISPOSITION_PREFIX is at `at`, in a frame that ends at `stop`."""
    try:
        end = at + 5 + buffer[at + 4]
        count = buffer[at + 5]
        if end > stop or not 5 <= count <= 6 or buffer[at + 6] == _NULL:
            return None
        is_receiver, at = _flag(buffer, at + 6)
        first, at = _uint(buffer, at)
        last, at = (first, at + 1) if buffer[at] == _NULL else _uint(buffer, at)
        settled, at = _flag(buffer, at)
        state, at = read_state(buffer, at)
        if count == 6:
            _, at = _flag(buffer, at)
    except (LookupError, struct.error, DecodeError):
        return None
    return DispositionHead(is_receiver, first, last, settled, state) if at == end else None


def write_transfer(
    channel: int,
    handle: bytes,
    delivery_id: int,
    tag: bytes,
    message_format: bytes,
    *,
    settled: bool,
    more: bool,
    payload: int,
    state: bytes = NO_STATE,
) -> bytes:
    """Return a message's first transfer frame up to its payload.

    handle, message_format, state: encoded, the state in MAX_STATE_BYTES. payload: its size in bytes. tag: 32 bytes at
    most.
    """
    tail = (_SETTLED_MORE if settled else _UNSETTLED_MORE) if more else (_SETTLED_LAST if settled else _UNSETTLED_LAST)
    if state is not NO_STATE:
        tail = tail[:-4] + state + tail[-3:]
    body = b"%b\x70%b\xa0%c%b%b%b" % (handle, _pack32(delivery_id), len(tag), tag, message_format, tail)
    size = len(body)
    return _pack_start(14 + size + payload, 2, 0, channel, _TRANSFER_WORD, 1 + size, _ALL_FIELDS) + body


def write_continuation(channel: int, handle: bytes, *, more: bool, payload: int) -> bytes:
    """Return a message's further transfer frame up to its payload."""
    body = handle + b"\x40\x40\x40\x40" + (_MORE_TAIL if more else _LAST_TAIL)
    size = len(body)
    return _pack_start(14 + size + payload, 2, 0, channel, _TRANSFER_WORD, 1 + size, _ALL_FIELDS) + body


def write_disposition(head: DispositionHead) -> bytes:
    """Return the body of a disposition frame. Raises EncodeError."""
    return described(
        0x15,
        encode_list(
            (
                b"\x41" if head.is_receiver else b"\x42",
                b"\x70" + _pack32(head.first),
                b"\x70" + _pack32(head.last),
                b"\x41" if head.settled else b"\x42",
                write_state(head.state),
                b"\x42",
            )
        ),
    )
