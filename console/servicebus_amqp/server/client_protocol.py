"""The protocol of a new connection by its first bytes, and what its client is, for whoever has to mend it.

Pure: sockets and answers belong to the owner. All of it is a stranger's text: what is quoted is short, printable ASCII.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

_AMQP: Final = b"AMQP"
_VERBS: Final = (b"GET ", b"PUT ", b"POST ", b"DELETE ", b"HEAD ", b"OPTIONS ", b"PATCH ", b"CONNECT ", b"TRACE ")
TLS_HANDSHAKE: Final = b"\x16"
AMQP_FIRST_BYTE: Final = b"A"
FIRST_BYTES: Final = 8
"""Bytes that always tell the protocols apart: AMQP's header, and the longest verb of HTTP with its blank."""
MAX_QUOTED: Final = 80


class PeerProtocol(Enum):
    """The protocol of a connection; the value is its display name."""

    AMQP = "AMQP"
    HTTP = "HTTP"
    TLS = "TLS"
    GARBAGE = "neither AMQP nor HTTP"
    UNDECIDED = "nothing"


def detect_protocol(seen: bytes) -> PeerProtocol:
    """Return the protocol that `seen` begins, UNDECIDED while it is ambiguous. Eight bytes always decide."""
    if seen.startswith(_AMQP):
        return PeerProtocol.AMQP
    if seen.startswith(_VERBS):
        return PeerProtocol.HTTP
    if seen.startswith(TLS_HANDSHAKE):
        return PeerProtocol.TLS
    if any(opening.startswith(seen) for opening in (_AMQP, *_VERBS)):
        return PeerProtocol.UNDECIDED
    return PeerProtocol.GARBAGE


_OPENINGS: Final[tuple[tuple[bytes, str], ...]] = (
    (rb"AMQP\x00\x00\x09\x01|AMQP\x01\x01", "AMQP 0-9-1, as clients of RabbitMQ do: use a client of AMQP 1.0"),
    (rb"AMQP\x02", "AMQP's own TLS layer: use TLS from the first byte, or none"),
    (rb"PRI \* HTTP/2", "HTTP/2 without TLS"),
    (rb"PROXY |\r\n\r\n\x00\r\nQUIT\n", "the PROXY protocol: switch it off at the load balancer before this port"),
    (rb"\x10[\x00-\xff]{1,4}\x00[\x04\x06]MQ", "MQTT"),
    (rb"\x00\x00[\x00-\xff]{2}\x00\x12\x00", "Kafka"),
    (rb"[\x00-\xff]{4}\x01ActiveMQ", "OpenWire, as clients of ActiveMQ do: use a client of AMQP 1.0"),
    (rb"CONNECT\r?\n|STOMP\r?\n", "STOMP"),
    (rb"SSH-", "SSH"),
    (rb"\*[0-9]+\r\n", "Redis"),
    (rb"\x00\x00\x00[\x00-\xff]\x04\xd2\x16|\x00\x00\x00[\x00-\xff]\x00\x03\x00\x00", "PostgreSQL"),
)
_FOREIGN: Final = tuple((re.compile(opening, re.DOTALL), name) for opening, name in _OPENINGS)
_AGENT: Final = re.compile(rb"\r\nuser-agent:[ \t]*([^\r\n]+)", re.IGNORECASE)
_UPGRADE: Final = re.compile(rb"\r\nupgrade:[ \t]*websocket", re.IGNORECASE)
_WEB: Final = (b"\x02h2", b"\x08http/1.1")
"""What a client of HTTPS offers in its first message of TLS; clients of AMQP offer no protocol there."""


def foreign_protocol(seen: bytes) -> str | None:
    """Return which protocol of others the first bytes begin, in words; None for AMQP 1.0, HTTP, TLS and the unknown."""
    return next((name for opening, name in _FOREIGN if opening.match(seen)), None)


def is_websocket(seen: bytes) -> bool:
    """Return whether a request of HTTP asks for a WebSocket, as far as it has come."""
    return _UPGRADE.search(seen) is not None


def describe_client(seen: bytes) -> str:
    """Return what the client is by its first bytes: one sentence without its full stop."""
    protocol = detect_protocol(seen)
    if protocol is PeerProtocol.HTTP:
        agent = _AGENT.search(seen)
        who = f", it calls itself {_quoted(agent[1])}" if agent is not None else ""
        what = "AMQP over WebSocket" if is_websocket(seen) else "HTTP"
        return f"the client speaks {what}: {_quoted(seen.split(b' HTTP/', 1)[0].split(b'?', 1)[0])}{who}"
    if protocol is PeerProtocol.TLS:
        kind = "HTTPS, as administration clients do" if any(one in seen for one in _WEB) else "TLS"
        return f"the client speaks {kind}"
    foreign = foreign_protocol(seen)
    if foreign is not None:
        return f"the client speaks {foreign}"
    return f"the client's first bytes are {seen[:FIRST_BYTES].hex(' ')}"


def _quoted(text: bytes) -> str:
    """Return a stranger's text in short, without its control characters."""
    return "".join(chr(one) if 0x20 <= one < 0x7F else "?" for one in text[:MAX_QUOTED])
