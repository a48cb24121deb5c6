"""The steps before the first AMQP frame: protocol headers, and SASL between them.

Rules: a server waits for the client's header, since some clients reject an early one. It accepts clients with and
without SASL, and with or without an initial response. PLAIN authenticates, by the name of a key and the key; the other
mechanisms do not: tokens on the open connection do. A client uses ANONYMOUS and waits for each step.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from servicebus_amqp.encoding.frames import (
    AMQP_HEADER,
    HEADER_SIZE,
    MIN_MAX_FRAME_SIZE,
    SASL_FRAME,
    SASL_HEADER,
    build_frame,
    read_frame_header,
)
from servicebus_amqp.encoding.performatives import (
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslPerformative,
    read_sasl,
    write_performative,
)
from servicebus_amqp.protocol.connection_settings import ConnectionRole, PlainJudge, SaslCode
from servicebus_amqp.protocol.links import Event, HeaderReceived, SaslDone
from servicebus_amqp.protocol_errors import Condition, DecodeError, FramingError, ProtocolError

ANONYMOUS: Final = "ANONYMOUS"
PLAIN: Final = "PLAIN"
OFFERED: Final = ("MSSBCBS", PLAIN, ANONYMOUS, "EXTERNAL")
"""Mechanisms of the service, in its order. Microsoft's .NET client knows only MSSBCBS."""
WELCOME: Final = b"Welcome!"
"""The service's additional data to every client that goes on to open."""


def read_plain(response: bytes | None) -> tuple[str, str]:
    """Return the name and the key in PLAIN's initial response; two empty texts if they are not there.

    A response is an identity to act as, the name and the key, between NULs (RFC 4616). The identity has to be empty or
    the name.
    """
    parts = (response or b"").split(b"\0")
    if len(parts) != 3 or parts[0] not in (b"", parts[1]):
        return "", ""
    try:
        return parts[1].decode(), parts[2].decode()
    except UnicodeDecodeError:
        return "", ""


class HandshakeState(Enum):
    HEADER = "a protocol header"
    SASL_FRAME = "a frame of the SASL layer"
    AMQP_HEADER = "the AMQP header after SASL"
    FRAMES = "AMQP frames"


class Handshake:
    """One side's steps up to AMQP frames. out: bytes to send. events: emptied by the owner."""

    __slots__ = ("_plain", "_role", "_sasl", "events", "expecting", "is_amqp_header_sent", "out")

    def __init__(self, role: ConnectionRole, *, sasl: bool, plain: PlainJudge | None = None) -> None:
        self._role = role
        self._sasl = sasl
        self._plain = plain
        self.expecting = HandshakeState.HEADER
        self.is_amqp_header_sent = False
        self.out: list[bytes] = []
        self.events: list[Event] = []

    def begin(self) -> None:
        """Send a client's first header."""
        self._write_header(SASL_HEADER if self._sasl else AMQP_HEADER)

    def read(self, buffer: bytes, at: int) -> int:
        """Read one header or SASL frame if it is complete; return its size. Raises ProtocolError."""
        if self.expecting is not HandshakeState.SASL_FRAME:
            self.on_header(buffer[at : at + HEADER_SIZE])
            return HEADER_SIZE
        header = read_frame_header(buffer, at, kind=SASL_FRAME, most=MIN_MAX_FRAME_SIZE)
        if header.size <= len(buffer) - at:
            body = buffer[at + header.body : at + header.size]
            frame, end = read_sasl(body, 0)
            if end != len(body):
                raise DecodeError(f"{len(body) - end} extra bytes after a {type(frame).__name__}")
            self.on_sasl(frame)
        return header.size

    def on_header(self, header: bytes) -> None:
        """Handle the peer's eight header bytes. Raises FramingError for an unknown or unexpected header."""
        wanted = {AMQP_HEADER, SASL_HEADER} if self.expecting is HandshakeState.HEADER else {AMQP_HEADER}
        if self._role is ConnectionRole.CLIENT and self.expecting is HandshakeState.HEADER:
            wanted = {SASL_HEADER if self._sasl else AMQP_HEADER}
        if header not in wanted:
            if self._role is ConnectionRole.SERVER:
                self.out.append(SASL_HEADER)
            raise FramingError(f"{header!r} is not a protocol header of AMQP 1.0 or its SASL layer")
        is_sasl = header == SASL_HEADER
        self.expecting = HandshakeState.SASL_FRAME if is_sasl else HandshakeState.FRAMES
        self.events.append(HeaderReceived(is_sasl))
        if self._role is ConnectionRole.SERVER:
            self._write_header(header)
            if is_sasl:
                self._write(SaslMechanisms(sasl_server_mechanisms=self._offered))

    def on_sasl(self, frame: SaslPerformative) -> None:
        """Handle a SASL frame of the peer. Raises ProtocolError for an unexpected frame or a refusal."""
        if self._role is ConnectionRole.SERVER and isinstance(frame, SaslInit):
            self._choose(frame)
        elif self._role is ConnectionRole.CLIENT and isinstance(frame, SaslMechanisms):
            if ANONYMOUS not in frame.sasl_server_mechanisms:
                offered = ", ".join(frame.sasl_server_mechanisms)
                raise ProtocolError(f"the server offers no ANONYMOUS, only {offered}", Condition.NOT_IMPLEMENTED)
            self._write(SaslInit(mechanism=ANONYMOUS, initial_response=b""))
        elif self._role is ConnectionRole.CLIENT and isinstance(frame, SaslOutcome):
            if frame.code != SaslCode.OK:
                raise ProtocolError(
                    f"the server refused SASL ANONYMOUS with code {frame.code}", Condition.UNAUTHORIZED_ACCESS
                )
            self._done(ANONYMOUS)
            self._write_header(AMQP_HEADER)
        else:
            raise ProtocolError(f"{type(frame).__name__} came out of turn", Condition.NOT_ALLOWED)

    @property
    def _offered(self) -> tuple[str, ...]:
        return tuple(one for one in OFFERED if one != PLAIN or self._plain is not None)

    def _choose(self, init: SaslInit) -> None:
        if init.mechanism not in self._offered:
            self._write(SaslOutcome(code=SaslCode.AUTH))
            raise ProtocolError(
                f"SASL mechanism {str(init.mechanism)!r} was not offered; use one of {', '.join(self._offered)}",
                Condition.UNAUTHORIZED_ACCESS,
            )
        judge = self._plain if init.mechanism == PLAIN else None
        code = SaslCode.OK if judge is None else judge(*read_plain(init.initial_response))
        if code is None:
            return
        self._write(SaslOutcome(code=code, additional_data=WELCOME if code is SaslCode.OK else None))
        if code is not SaslCode.OK:
            raise ProtocolError("SASL PLAIN: no key has this name and this value", Condition.UNAUTHORIZED_ACCESS)
        self._done(init.mechanism)

    def _done(self, mechanism: str) -> None:
        self.expecting = HandshakeState.AMQP_HEADER
        self.events.append(SaslDone(mechanism))

    def _write_header(self, header: bytes) -> None:
        self.out.append(header)
        self.is_amqp_header_sent = header == AMQP_HEADER

    def _write(self, frame: SaslPerformative) -> None:
        self.out.append(build_frame(0, write_performative(frame), SASL_FRAME))
