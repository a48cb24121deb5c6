"""The answers to clients that speak something else than AMQP, and a line about each for the operator."""

from __future__ import annotations

from typing import Final, NamedTuple

FIRST_BYTES: Final = 8
"""Bytes that tell the protocols apart: AMQP's header, and the longest verb of HTTP with its blank."""
_TLS_HANDSHAKE: Final = b"\x16\x03"
_VERBS: Final = (b"GET ", b"PUT ", b"POST ", b"DELETE ", b"HEAD ", b"OPTIONS ", b"PATCH ", b"CONNECT ")
_WEBSOCKET: Final = b"websocket"
_SENTENCE: Final = (
    "The gateway speaks AMQP only. Point administration clients, and AMQP over WebSocket, at the namespace's own "
    "connection string.\n"
)
_HTTP: Final = (
    "HTTP/1.1 501 Not Implemented\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    f"Content-Length: {len(_SENTENCE)}\r\n\r\n{_SENTENCE}"
).encode("ascii")


class WrongProtocol(NamedTuple):
    """name: of the protocol. answer: bytes before the end of the connection. remark: for the log."""

    name: str
    answer: bytes
    remark: str


_TLS: Final = WrongProtocol(
    "TLS",
    b"",
    "a client speaks TLS: its connection string lacks UseDevelopmentEmulator=true, or its SDK is too old for it",
)
_PLAIN_HTTP: Final = WrongProtocol(
    "HTTP", _HTTP, "a client speaks HTTP: administration clients need the namespace's own connection string"
)
_OVER_WEBSOCKET: Final = WrongProtocol(
    "WebSocket", _HTTP, "a client speaks AMQP over WebSocket: set its transport to plain AMQP, which is the default"
)


def wrong_protocol(first: bytes) -> WrongProtocol | None:
    """Return the answer to a client's first bytes; None for AMQP, and for others that AMQP itself answers."""
    if first.startswith(_TLS_HANDSHAKE):
        return _TLS
    if first.startswith(_VERBS):
        return _OVER_WEBSOCKET if _WEBSOCKET in first.lower() else _PLAIN_HTTP
    return None
