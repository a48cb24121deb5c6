"""Clients that speak AMQP as nobody does and anybody may: other encodings, other channels, smaller frames."""

import struct
from uuid import UUID

from tests.sandbox.amqp_server.conftest import Peer

from servicebus_amqp.encoding.codec import (
    Array,
    Described,
    Symbol,
    Timestamp,
    UInt,
    ULong,
    UShort,
    _Ranged,
    decode,
    encode,
    skip,
)
from servicebus_amqp.encoding.frames import build_frame, unpack_frame_header

AMQP_FRAME, OPEN, BEGIN = 0, 0x10, 0x11


def widest(value) -> bytes:
    """The value in the longest encoding of its type, throughout."""
    match value:
        case Described():
            return b"\0" + widest(value.descriptor) + widest(value.value)
        case bool():
            return b"\x56" + bytes([value])
        case ULong():
            return b"\x80" + value.to_bytes(8, "big")
        case UInt():
            return b"\x70" + value.to_bytes(4, "big")
        case Timestamp() | _Ranged() | UUID() | float() | None | Array():
            return encode(value)
        case int():
            return b"\x81" + value.to_bytes(8, "big", signed=True)
        case Symbol():
            return _sized(0xB3, value.encode())
        case str():
            return _sized(0xB1, value.encode())
        case bytes():
            return _sized(0xB0, value)
        case list():
            return _compound(0xD0, [widest(item) for item in value])
        case dict():
            return _compound(0xD1, [widest(item) for pair in value.items() for item in pair])
    raise TypeError(f"no encoding for {type(value).__name__}")


def _sized(code: int, data: bytes) -> bytes:
    return struct.pack(">BI", code, len(data)) + data


def _compound(code: int, items: list[bytes]) -> bytes:
    return struct.pack(">BII", code, 4 + sum(map(len, items)), len(items)) + b"".join(items)


def widest_message(data: bytes) -> bytes:
    """An encoded message with every section in its longest encoding."""
    found, at = [], 0
    while at < len(data):
        found.append(widest(decode(data, at)[0]))
        at = skip(data, at)
    return b"".join(found)


class RewritingPeer(Peer):
    """Writes each frame of AMQP as `rewrite` makes it."""

    def rewrite(self, channel: int, body: bytes) -> bytes:
        raise NotImplementedError

    def flush(self) -> None:
        data = self.amqp.data_to_send()
        at = 0
        while at < len(data):
            if data[at : at + 4] == b"AMQP":
                self.transport.write(data[at : at + 8])
                at += 8
                continue
            size, offset, kind, channel = unpack_frame_header(data, at)
            body = data[at + 4 * offset : at + size]
            is_plain = kind == AMQP_FRAME and body
            self.transport.write(self.rewrite(channel, body) if is_plain else data[at : at + size])
            at += size


class WidePeer(RewritingPeer):
    """Writes everything in the longest encodings there are; messages have to fit one frame."""

    def rewrite(self, channel: int, body: bytes) -> bytes:
        performative, at = decode(body)
        payload = body[at:]
        return build_frame(channel, widest(performative) + (widest_message(payload) if payload else b""))


class ShiftedPeer(RewritingPeer):
    """Numbers its channels from 1000 on, and so answers on others than the namespace does."""

    shift = 1000

    def rewrite(self, channel: int, body: bytes) -> bytes:
        return build_frame(channel + (0 if decode(body)[0].descriptor == OPEN else self.shift), body)

    def connection_made(self, transport) -> None:
        self.rest = b""
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """What answers a begin names our channel, which our own AMQP knows by another number."""
        data, at, out = self.rest + data, 0, b""
        while len(data) - at >= 8:
            is_header = data[at : at + 4] == b"AMQP"
            size, _, kind, channel = (8, 2, AMQP_FRAME, 0) if is_header else unpack_frame_header(data, at)
            if len(data) - at < size:
                break
            body = b"" if is_header or kind != AMQP_FRAME else data[at + 8 : at + size]
            begin = decode(body)[0] if body else None
            if begin is not None and begin.descriptor == BEGIN:
                assert channel < self.shift, "the namespace numbers its channels itself"
                begin.value[0] = UShort(begin.value[0] - self.shift)
                out += build_frame(channel, encode(begin))
            else:
                out += data[at : at + size]
            at += size
        self.rest = data[at:]
        super().data_received(out)
