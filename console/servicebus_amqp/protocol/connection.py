"""One AMQP connection, either side: bytes in, events out; actions in, bytes out.

    conn = Connection(role=ConnectionRole.SERVER, settings=ConnectionSettings(container_id="contoso"))
    for event in conn.receive_data(data): ...      # the peer's mistakes are events, never exceptions
    transport.write(conn.data_to_send())           # once after each read, and after the owner's actions
    if conn.is_finished: transport.close()

Rules: there is no socket, clock or wait here. A server answers open, begin, detach, end and close by itself; the owner
answers attaches. The owner calls `data_to_send` after a read's events: collected outcomes and answers to drains leave
then. `SenderLink.send` returns None for a message that has to wait, since delivery-ids follow the order of the wire.
`tick` returns no events; check `is_finished` and `failure` after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from servicebus_amqp.encoding.amqp_types import UINT_MAX
from servicebus_amqp.encoding.frames import (
    AMQP_FRAME,
    EMPTY_FRAME,
    HEADER_SIZE,
    MIN_MAX_FRAME_SIZE,
    ReceiveBuffer,
    build_frame,
    read_frame_header,
    unpack_frame_header,
)
from servicebus_amqp.encoding.messaging_types import DeliveryState, Error, error_of, fit_error, fit_state
from servicebus_amqp.encoding.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Performative,
    Transfer,
    read_performative,
    write_performative,
)
from servicebus_amqp.encoding.transfer_codec import (
    DISPOSITION_PREFIX,
    TRANSFER_PREFIX,
    DispositionHead,
    TransferHead,
    head_of_disposition,
    head_of_transfer,
    read_disposition,
    read_transfer,
)
from servicebus_amqp.protocol.connection_settings import ConnectionRole, ConnectionSettings, IdleVerdict, IdleWatch
from servicebus_amqp.protocol.handshake import Handshake, HandshakeState
from servicebus_amqp.protocol.protocol_events import Closed, ConnectionFailed, Event, Opened, SessionBegun
from servicebus_amqp.protocol.session import Session, SessionState
from servicebus_amqp.protocol_errors import (
    AmqpError,
    Condition,
    DecodeError,
    EncodeError,
    ProtocolError,
    SessionError,
    StateError,
)

MAX_OPEN_FRAME_BYTES: Final = 8192
"""Bytes of a frame before the peer's open: AMQP guarantees 512, peers send more properties."""
BODY_ROOM: Final = 48
"""Bytes of a frame's body besides its error or state, at most."""


class Connection:
    """One side of a connection.

    remote: the peer's open; None before it. failure: the reason of a failed connection, otherwise None.
    unfinished: bytes that incomplete messages of the peer hold here, what their frames cost included.
    """

    def __init__(self, *, role: ConnectionRole, settings: ConnectionSettings) -> None:
        self.role = role
        self.settings = settings
        self.remote: Open | None = None
        self.failure: Error | None = None
        self.is_finished = False
        self.unfinished = 0
        self.events: list[Event] = []
        self.out: list[bytes] = []
        self.remote_max_frame_size = MIN_MAX_FRAME_SIZE
        self._early: list[bytes] = []  # our open: it follows the AMQP header, all else follows the peer's open
        self._handshake = Handshake(role, sasl=settings.sasl, plain=settings.plain)
        self._handshake.events = self.events
        self._buffer = ReceiveBuffer()
        self._idle = IdleWatch(settings.idle_timeout_ms / 1000 if settings.idle_timeout_ms else None)
        self._open_sent = False
        self._closing = False
        self._sessions: dict[int, Session] = {}
        self._sessions_of_peer: dict[int, Session] = {}
        self._free_channels: list[int] = []
        self._marked: dict[Session, None] = {}
        self._handlers: dict[type, Callable[[int, Any], None]] = {
            Open: self._on_open,
            Begin: self._on_begin,
            End: self._on_end,
            Close: self._on_close,
        }

    # actions

    def open(self) -> None:
        """Send a client's protocol headers and open. A server opens by itself and ignores this."""
        if self.role is ConnectionRole.CLIENT and not self._open_sent:
            self._handshake.begin()
            self._send_open()

    def begin(self) -> Session:
        """Begin a session; SessionBegun follows. Links may be requested immediately.

        Raises:
            StateError: the connection is not open, is closed, or the peer allows no further session.
        """
        if not self._open_sent or self._closing or self.is_finished:
            raise StateError("a session needs an open connection: call open first, or connect again")
        session = self._new_session()
        session.start()
        return session

    def close(self, error: Error | None = None) -> None:
        """Close; Closed follows the peer's answer. Sessions end silently, and their waiting messages are dropped."""
        if self._closing or self.is_finished:
            return
        self._flush_sessions()
        if self._open_sent:
            self._send_close(error)
        else:
            self.is_finished = True
        self._abandon_sessions()

    def receive_data(self, data: bytes) -> list[Event]:
        """Process bytes from the transport; return their events."""
        self._idle.heard = True
        try:
            if not self.is_finished:
                self._consume(data)
        except ProtocolError as error:
            self._fail(error_of(error))
        except AmqpError as error:
            self._fail(Error(condition=Condition.INTERNAL_ERROR, description=str(error)))
        events = self.events
        self.events = self._handshake.events = []
        return events

    def data_to_send(self) -> bytes:
        """Return all bytes to send, b"" for none. They count as sent."""
        self._flush_sessions()
        parts: list[bytes] = []
        handshake = self._handshake
        for held, may_leave in (
            (handshake.out, True),
            (self._early, handshake.is_amqp_header_sent),
            (self.out, self.remote is not None),
        ):
            if may_leave and held:
                parts += held
                held.clear()
        if parts:
            self._idle.sent = True
        return b"".join(parts)

    def tick(self, now: float) -> float | None:
        """Apply the idle time-outs: queue an empty frame, or fail the connection if the peer is silent.

        now: seconds of any monotonic clock. Call it once after Opened, then at each returned time, until None.
        """
        if self.is_finished:
            return None
        verdict, deadline = self._idle.tick(now)
        if verdict is IdleVerdict.SEND and self.remote is not None and not self._closing:
            self.out.append(EMPTY_FRAME)
        elif verdict is IdleVerdict.GONE:
            silence = self.settings.idle_timeout_ms
            self._fail(
                Error(
                    condition=Condition.RESOURCE_LIMIT_EXCEEDED,
                    description=f"nothing was received for the idle time-out of {silence} ms",
                )
            )
            return None
        return deadline

    # called by sessions

    def mark(self, session: Session) -> None:
        """Register a session with collected frames; they leave with the next bytes."""
        self._marked[session] = None

    def write(self, channel: int, performative: Performative) -> None:
        """Queue a frame. Raises EncodeError if it is too large for the peer; errors are truncated instead."""
        if isinstance(performative, Detach | End | Close) and performative.error:
            performative = replace(performative, error=self.fitted(performative.error))
        self.write_body(channel, write_performative(performative))

    def fitted(self, error: Error) -> Error:
        """Return the error, truncated to the peer's frame size."""
        return fit_error(error, self._room() - BODY_ROOM)

    def fitted_state(self, state: DeliveryState) -> DeliveryState:
        """Return the state, truncated to the peer's frame size. Raises EncodeError if that is impossible."""
        return fit_state(state, self._room() - BODY_ROOM)

    def write_body(self, channel: int, body: bytes) -> None:
        """Queue a frame around a body. Raises EncodeError if it is too large for the peer."""
        if self._closing or self.is_finished:
            return
        if len(body) > self._room():
            raise EncodeError(
                f"a frame of {HEADER_SIZE + len(body)} bytes; the peer allows {self.remote_max_frame_size}"
            )
        self.out.append(build_frame(channel, body))

    def _room(self) -> int:
        """Return the most bytes of a frame's body; unlimited before the peer's open, when frames are held back."""
        return UINT_MAX if self.remote is None else self.remote_max_frame_size - HEADER_SIZE

    # reading

    def _consume(self, data: bytes) -> None:
        for buffer, start in self._buffer.add(data):
            at, needed = start, HEADER_SIZE
            while len(buffer) - at >= HEADER_SIZE and self._handshake.expecting is not HandshakeState.FRAMES:
                step = self._handshake.read(buffer, at)
                if step > len(buffer) - at:
                    needed = step
                    break
                at += step
            if self._handshake.expecting is HandshakeState.FRAMES:
                at, needed = self._read_frames(buffer, at)
            if self.is_finished:
                break
            if at < len(buffer):
                self._buffer.keep(buffer[at:], needed)

    def _read_frames(self, buffer: bytes, at: int) -> tuple[int, int]:
        """Read all whole frames from `at` on; return the offset of the rest and the size of the next frame."""
        length, most = len(buffer), self._longest_frame()
        while length - at >= HEADER_SIZE:
            size, words, kind, channel = unpack_frame_header(buffer, at)
            start = at + HEADER_SIZE
            if words != 2 or kind != AMQP_FRAME or not HEADER_SIZE <= size <= most:
                start = at + read_frame_header(buffer, at, kind=AMQP_FRAME, most=self._longest_frame()).body
            at += size
            if at > length:
                return at - size, size
            if start == at:
                continue
            if buffer.startswith(TRANSFER_PREFIX, start):
                transfer = read_transfer(buffer, start, at)
                if transfer is not None:
                    self._on_transfer(channel, transfer, buffer[transfer[-1] : at])
                    continue
            self._on_frame(buffer, start, at, channel)
            if self.is_finished:
                break
        return at, HEADER_SIZE

    def _longest_frame(self) -> int:
        """Return the most bytes of a frame at present."""
        most = self.settings.max_frame_size
        return most if self.remote is not None else min(most, MAX_OPEN_FRAME_BYTES)

    def _on_frame(self, buffer: bytes, start: int, stop: int, channel: int) -> None:
        if buffer.startswith(DISPOSITION_PREFIX, start):
            disposition = read_disposition(buffer, start, stop)
            if disposition is not None:
                self._on_disposition(channel, disposition)
                return
        body = buffer[start:stop]
        performative, end = read_performative(body, 0)
        if isinstance(performative, Transfer):
            self._on_transfer(channel, head_of_transfer(performative, end), body[end:])
        elif end != len(body):
            raise DecodeError(f"{len(body) - end} extra bytes after a {type(performative).__name__}")
        elif isinstance(performative, Disposition):
            self._on_disposition(channel, head_of_disposition(performative))
        else:
            self._dispatch(channel, performative)

    def _on_transfer(self, channel: int, head: TransferHead, payload: bytes) -> None:
        session = self._sessions_of_peer.get(channel)
        if session is None or session.state is not SessionState.OPEN or self._closing:
            self._check_channel(channel, "transfer")
            return
        try:
            session.on_transfer(head, payload)
        except SessionError as failure:
            session.fail(failure)

    def _on_disposition(self, channel: int, head: DispositionHead) -> None:
        session = self._sessions_of_peer.get(channel)
        if session is None or session.state is not SessionState.OPEN or self._closing:
            self._check_channel(channel, "disposition")
            return
        try:
            session.on_disposition(head)
        except SessionError as failure:
            session.fail(failure)

    def _dispatch(self, channel: int, performative: Performative) -> None:
        if self.remote is None and not isinstance(performative, Open):
            raise ProtocolError(f"a {type(performative).__name__.lower()} came before the open")
        if self._closing and not isinstance(performative, Close):
            return
        handler = self._handlers.get(type(performative))
        if handler is not None:
            handler(channel, performative)
            return
        session = self._sessions_of_peer.get(channel)
        if session is None or session.state is not SessionState.OPEN:
            if not isinstance(performative, Detach):  # some clients detach again after their end
                self._check_channel(channel, type(performative).__name__.lower())
            return
        try:
            if isinstance(performative, Attach):
                session.on_attach(performative)
            elif isinstance(performative, Flow):
                session.on_flow(performative)
            elif isinstance(performative, Detach):
                session.on_detach(performative)
        except SessionError as failure:
            session.fail(failure)

    def _check_channel(self, channel: int, frame: str) -> None:
        """Raise for a frame on a channel that never had a session; ignore late frames of an ending session."""
        if self.remote is None:
            raise ProtocolError(f"a {frame} came before the open")
        if not self._closing and channel not in self._sessions_of_peer:
            raise ProtocolError(f"a {frame} came on channel {channel}, which has no session")

    def _on_open(self, _channel: int, remote: Open) -> None:
        if self.remote is not None:
            raise ProtocolError("a second open came")
        if remote.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise ProtocolError(
                f"the open asks for frames of {remote.max_frame_size} bytes at most; AMQP allows no less than "
                f"{MIN_MAX_FRAME_SIZE}",
                Condition.INVALID_FIELD,
            )
        self.remote = remote
        self.remote_max_frame_size = remote.max_frame_size
        self._idle.peers = remote.idle_time_out / 1000 if remote.idle_time_out else None
        if not self._open_sent:
            self._send_open()
        longest = max(map(len, self.out), default=0)
        if longest > remote.max_frame_size:
            raise EncodeError(f"a frame of {longest} bytes is queued; the peer allows {remote.max_frame_size}")
        self.events.append(Opened(remote.hostname, remote.container_id, remote.properties))

    def _on_begin(self, channel: int, remote: Begin) -> None:
        if channel > self.settings.channel_max:
            raise ProtocolError(
                f"channel {channel} is above the highest, {self.settings.channel_max}",
                Condition.FRAMING_ERROR,
            )
        if channel in self._sessions_of_peer:
            raise ProtocolError(f"a begin came on channel {channel}, which has a session")
        if remote.remote_channel is None:
            session = self._new_session()
            session.start(remote, channel)
        else:
            session = self._answered(remote.remote_channel)
            session.on_begin(remote)
        self._sessions_of_peer[channel] = session
        self.events.append(SessionBegun(session))

    def _answered(self, channel: int) -> Session:
        """Return our session whose begin was answered."""
        session = self._sessions.get(channel)
        if session is None or session.remote is not None:
            raise ProtocolError(f"a begin answers channel {channel}, where none was requested")
        return session

    def _on_end(self, channel: int, end: End) -> None:
        session = self._sessions_of_peer.pop(channel, None)
        if session is not None:
            session.on_end(end)
            del self._sessions[session.channel]
            self._free_channels.append(session.channel)
            self._marked.pop(session, None)

    def _on_close(self, _channel: int, close: Close) -> None:
        if not self._closing:
            self._flush_sessions()
            self._send_close(None)
        self._abandon_sessions()
        self.is_finished = True
        self.events.append(Closed(close.error))

    # writing

    def _new_session(self) -> Session:
        most = 0xFFFF if self.remote is None else self.remote.channel_max
        channel = self._free_channels.pop() if self._free_channels else len(self._sessions)
        if channel > most:
            raise StateError(f"no channel is left: the peer allows {most + 1} sessions; make another connection")
        session = self._sessions[channel] = Session(self, channel)
        return session

    def _send_open(self) -> None:
        self._early.append(build_frame(0, write_performative(self.settings.to_open())))
        self._open_sent = True

    def _send_close(self, error: Error | None) -> None:
        self.write(0, Close(error=error))
        self._closing = True

    def _flush_sessions(self) -> None:
        if self._marked:
            marked, self._marked = self._marked, {}
            for session in marked:
                session.flush()

    def _abandon_sessions(self) -> None:
        for session in self._sessions.values():
            session.abandon()
        self._marked.clear()

    def _fail(self, error: Error) -> None:
        """Stop reading, and report the error if the peer has sent its AMQP header."""
        error = self.failure = fit_error(error, self.remote_max_frame_size - HEADER_SIZE - BODY_ROOM)
        if self._handshake.is_amqp_header_sent and not self._closing:
            if not self._open_sent:
                self._send_open()
            self._flush_sessions()
            self._send_close(error)
            if self.remote is None:
                self._early.append(self.out[-1])
        self._abandon_sessions()
        self.is_finished = True
        self.events.append(ConnectionFailed(error))
