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

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum
from typing import Any, Final, TypeVar

from servicebus_amqp.encoding.codec import UINT_MAX
from servicebus_amqp.encoding.frames import (
    AMQP_FRAME,
    DISPOSITION_PREFIX,
    EMPTY_FRAME,
    HEADER_SIZE,
    MIN_MAX_FRAME_SIZE,
    TRANSFER_PREFIX,
    DispositionHead,
    ReceiveBuffer,
    TransferHead,
    build_frame,
    head_of_disposition,
    head_of_transfer,
    new_tuple,
    read_disposition,
    read_frame_header,
    read_transfer,
    unpack_frame_header,
    write_disposition,
)
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Coordinator,
    DeliveryState,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Performative,
    Source,
    Target,
    Transfer,
    error_of,
    fit_error,
    fit_state,
    read_performative,
    write_performative,
)
from servicebus_amqp.protocol.connection_settings import (
    ConnectionRole,
    ConnectionSettings,
    IdleVerdict,
    IdleWatch,
    LinkRole,
)
from servicebus_amqp.protocol.handshake import Handshake, HandshakeState
from servicebus_amqp.protocol.links import (
    MASK,
    AttachRequested,
    Closed,
    ConnectionFailed,
    Detached,
    DispositionReceived,
    Event,
    Link,
    LinkState,
    Opened,
    ReceiverLink,
    SenderLink,
    SessionBegun,
    SessionEnded,
    distance,
)
from servicebus_amqp.protocol_errors import (
    AmqpError,
    Condition,
    DecodeError,
    EncodeError,
    ProtocolError,
    SessionError,
    StateError,
)

# One session: its windows, its two counters, its handles and its unsettled deliveries.
#
# Rules: delivery-ids count messages, outgoing ids count frames, and both wrap. Every transfer frame uses one of the
# peer's window; our window opens again at half. Outcomes form ranges of equal state and leave with the connection's
# next bytes. A peer's mistake in a session ends the session; the connection continues.

L = TypeVar("L", SenderLink, ReceiverLink)
_Held = dict[int, tuple[SenderLink | ReceiverLink, bytes]]


class SessionState(Enum):
    BEGINNING = "begun by us, not answered yet"
    OPEN = "open"
    ENDING = "ended by us, not answered yet"
    ENDED = "ended"


class _Outcome:
    """The state of neighbouring deliveries; the range may still grow."""

    __slots__ = ("first", "is_receiver", "last", "settled", "state")

    def __init__(self, is_receiver: bool, delivery_id: int, settled: bool, state: DeliveryState | None) -> None:
        self.is_receiver = is_receiver
        self.first = self.last = delivery_id
        self.settled = settled
        self.state = state


class Session:
    """A session made by `Connection.begin`, or by the peer's begin.

    channel: ours. out: the connection's queued frames. frame_room: the most bytes of a frame for the peer.
    """

    def __init__(self, connection: Connection, channel: int) -> None:
        self.connection = connection
        self.settings: ConnectionSettings = connection.settings
        self.channel = channel
        self.state = SessionState.BEGINNING
        self.out = connection.out
        self.frame_room = connection.remote_max_frame_size
        self.remote: Begin | None = None
        self.next_delivery_id = self.settings.first_delivery_id & MASK
        self.remote_incoming_window = 0
        self._next_outgoing_id = self.settings.first_outgoing_id & MASK
        self._next_incoming_id: int | None = None
        self._incoming_window = self.settings.incoming_window
        self._links: dict[int, Link] = {}
        self._links_of_peer: dict[int, Link] = {}
        self._free_handles: list[int] = []
        self._requested: dict[tuple[LinkRole, str], Link] = {}
        self._sent: _Held = {}
        self._received: _Held = {}
        self._outcomes: list[_Outcome | None] = [None, None]
        self._blocked: dict[SenderLink, None] = {}
        self._draining: dict[SenderLink, None] = {}

    def __repr__(self) -> str:
        return f"<Session channel {self.channel}, {self.state.value}>"

    @property
    def links(self) -> list[Link]:
        """The links with a handle of ours."""
        return list(self._links.values())

    @property
    def link_count(self) -> int:
        return len(self._links)

    # actions

    def attach_sender(
        self, name: str, source: Source | None, target: Target | Coordinator | None, **attach: Any
    ) -> SenderLink:
        """Request a link that we send on; Attached or Detached follows.

        attach: settle_modes (numbers of AMQP, default (2, 0)), properties, max_message_size, initial_delivery_count,
        unsettled, incomplete_unsettled, offered_capabilities, desired_capabilities.

        Raises:
            StateError: the session accepts no more links.
        """
        return self._request(SenderLink(self, name, self._take_handle(), LinkState.ATTACHING), source, target, attach)

    def attach_receiver(
        self, name: str, source: Source | None, target: Target | Coordinator | None, **attach: Any
    ) -> ReceiverLink:
        """Request a link that we receive on, as `attach_sender`."""
        return self._request(ReceiverLink(self, name, self._take_handle(), LinkState.ATTACHING), source, target, attach)

    def end(self, error: Error | None = None) -> None:
        """End the session; SessionEnded follows the peer's answer. Does nothing if an end is under way."""
        if self.state in (SessionState.ENDING, SessionState.ENDED):
            return
        self.flush_dispositions()
        self.write(End(error=error))
        self.state = SessionState.ENDING

    # called by the connection

    def start(self, remote: Begin | None = None, remote_channel: int | None = None) -> None:
        """Send our begin: a request, or the answer to the peer's."""
        self.write(
            Begin(
                remote_channel=remote_channel,
                next_outgoing_id=self._next_outgoing_id,
                incoming_window=self.settings.incoming_window,
                outgoing_window=self.settings.outgoing_window if remote is None else remote.incoming_window,
                handle_max=self.settings.handle_max,
            )
        )
        if remote is not None:
            self.on_begin(remote)

    def on_begin(self, begin: Begin) -> None:
        self.remote = begin
        self.state = SessionState.OPEN
        self.frame_room = self.connection.remote_max_frame_size
        self._next_incoming_id = begin.next_outgoing_id
        self.remote_incoming_window = begin.incoming_window

    def on_attach(self, attach: Attach) -> None:
        if attach.handle > self.settings.handle_max:
            raise ProtocolError(
                f"handle {attach.handle} is above the highest, {self.settings.handle_max}",
                Condition.FRAMING_ERROR,
            )
        if attach.handle in self._links_of_peer:
            raise SessionError(f"handle {attach.handle} is in use already", Condition.HANDLE_IN_USE)
        link = self._requested.pop((LinkRole.SENDER if attach.role else LinkRole.RECEIVER, attach.name), None)
        if link is None:
            link = self._link_for(attach)
            self.emit(AttachRequested(link, attach))
        self._links_of_peer[attach.handle] = link
        link.on_attach(attach)

    def on_flow(self, flow: Flow) -> None:
        acknowledged = self.settings.first_outgoing_id if flow.next_incoming_id is None else flow.next_incoming_id
        self.remote_incoming_window = flow.incoming_window + distance(self._next_outgoing_id, acknowledged)
        if flow.handle is not None:
            link = self._link(flow.handle)
            if link.state not in (LinkState.DETACHING, LinkState.DETACHED):
                link.on_flow(flow)
        elif flow.echo:
            self.write_flow()
        if self._blocked:
            self._unblock()

    def on_transfer(self, head: TransferHead, payload: bytes) -> None:
        if self._incoming_window <= 0:
            raise SessionError("more transfers than the session's window allows", Condition.WINDOW_VIOLATION)
        self._incoming_window -= 1
        self._next_incoming_id = ((self._next_incoming_id or 0) + 1) & MASK
        handle = head[0]
        link = self._links_of_peer.get(handle)
        if type(link) is not ReceiverLink:
            link = self._receiver(handle)
        link.on_transfer(head, payload)
        if self._incoming_window * 2 <= self.settings.incoming_window:
            self.connection.mark(self)

    def on_disposition(self, head: DispositionHead) -> None:
        span = distance(head.first, head.last)
        if span < 0:
            raise SessionError(f"a disposition of {head.first} to {head.last} runs backwards", Condition.INVALID_FIELD)
        held = self._sent if head.is_receiver else self._received
        deliveries: Iterable[int] = range(head.first, head.first + span + 1)
        if span > len(held):
            deliveries = [number for number in held if (number - head.first) & MASK <= span]
        emit, settled, state = self.connection.events.append, head.settled, head.state
        find: Callable[..., tuple[Link, bytes] | None] = held.pop if settled else held.get
        for delivery in deliveries:
            number = delivery & MASK
            found = find(number, None)
            if found is not None:
                emit(new_tuple(DispositionReceived, (found[0], number, found[1], state, settled)))

    def on_detach(self, detach: Detach) -> None:
        link = self._links_of_peer.pop(detach.handle, None)
        if link is not None:
            link.on_detach(detach)

    def on_end(self, end: End) -> None:
        if self.state is SessionState.OPEN:
            self.write(End())
        was_reported = self.state is SessionState.ENDED
        self._drop(end.error)
        if not was_reported:
            self.emit(SessionEnded(self, end.error))

    def fail(self, failure: SessionError) -> None:
        """End the session because the peer broke a rule of it; its answer only frees the channel."""
        error = error_of(failure)
        self.end(error)
        self._drop(error)
        self.emit(SessionEnded(self, error))

    def abandon(self) -> None:
        """End the session silently; it can send nothing more."""
        self.state = SessionState.ENDED
        self._sent.clear()
        self._received.clear()
        self._outcomes = [None, None]
        for link in self._links.values():
            link.forget()
        for held in (self._links, self._links_of_peer, self._requested, self._blocked, self._draining):
            held.clear()

    def flush(self) -> None:
        """Write collected outcomes, answers to drains and a reopened window."""
        if self.state is not SessionState.OPEN:
            return
        self.flush_dispositions()
        for link in list(self._draining):
            if link.answer_drain():
                del self._draining[link]
        if self._draining:
            self.connection.mark(self)
        if self._incoming_window * 2 <= self.settings.incoming_window:
            self.write_flow()

    # called by links

    def emit(self, event: Event) -> None:
        self.connection.events.append(event)

    def write(self, performative: Performative) -> None:
        """Queue a frame, unless the session has ended."""
        if self.state not in (SessionState.ENDING, SessionState.ENDED):
            self.connection.write(self.channel, performative)

    def write_flow(self, **link: Any) -> None:
        """Queue a flow with the session's windows, ours fully open, and with a link's fields."""
        self._incoming_window = self.settings.incoming_window
        self.write(
            Flow(
                next_incoming_id=self._next_incoming_id,
                incoming_window=self._incoming_window,
                next_outgoing_id=self._next_outgoing_id,
                outgoing_window=self.settings.outgoing_window,
                **link,
            )
        )

    def start_delivery(self, link: SenderLink, tag: bytes, settled: bool) -> int:
        """Return the delivery-id of a message whose first frame is sent now."""
        delivery_id = self.next_delivery_id
        self.next_delivery_id = (delivery_id + 1) & MASK
        self.count_outgoing_frame()
        if not settled:
            self._sent[delivery_id] = (link, tag)
        return delivery_id

    def count_outgoing_frame(self) -> None:
        self._next_outgoing_id = (self._next_outgoing_id + 1) & MASK
        self.remote_incoming_window -= 1

    def hold_delivery(self, link: ReceiverLink, delivery_id: int, tag: bytes) -> None:
        """Remember an unsettled message of the peer.

        A duplicate id replaces the earlier one: Microsoft's Python client gives one id to several messages of
        concurrent callers, the service accepts them all, and the first outcome then counts for each.
        """
        self._received[delivery_id] = (link, tag)

    def settle(
        self, link: SenderLink | ReceiverLink, delivery_id: int, state: DeliveryState | None, *, settled: bool
    ) -> None:
        """Collect a delivery's state; ranges never span the wrap, which some peers misread.

        Raises:
            EncodeError: the state is larger than a frame of the peer and cannot be truncated.
        """
        is_receiver = type(link) is ReceiverLink
        held = self._received if is_receiver else self._sent
        found = held.get(delivery_id)
        if found is None or found[0] is not link:
            return
        if state is not ACCEPTED and state is not None:
            state = self.connection.fitted_state(state)
        if settled:
            del held[delivery_id]
        pending = self._outcomes[is_receiver]
        if pending is not None:
            if (
                pending.last + 1 == delivery_id
                and pending.settled is settled
                and (pending.state is state or pending.state == state)
            ):
                pending.last = delivery_id
                return
            self._write_disposition(pending)
        else:
            self.connection.mark(self)
        self._outcomes[is_receiver] = _Outcome(is_receiver, delivery_id, settled, state)

    def flush_dispositions(self) -> None:
        for side, pending in enumerate(self._outcomes):
            if pending is not None:
                self._outcomes[side] = None
                self._write_disposition(pending)

    def forget_deliveries(self, link: Link) -> None:
        for held in (self._sent, self._received):
            for number in [number for number, (owner, _) in held.items() if owner is link]:
                del held[number]

    def holds(self, link: Link, delivery_id: int) -> bool:
        found = (self._received if link.role is LinkRole.RECEIVER else self._sent).get(delivery_id)
        return found is not None and found[0] is link

    def release_handle(self, link: Link) -> None:
        if self._links.pop(link.handle, None) is not None:
            self._free_handles.append(link.handle)

    def block(self, link: SenderLink) -> None:
        """Register a link whose frames wait for the peer's window."""
        self._blocked[link] = None

    def drains(self, link: SenderLink) -> None:
        """Register a link that has to answer a drain."""
        self._draining[link] = None
        self.connection.mark(self)

    # internal

    def _write_disposition(self, outcome: _Outcome) -> None:
        if self.state is not SessionState.OPEN:
            return
        head = DispositionHead(outcome.is_receiver, outcome.first, outcome.last, outcome.settled, outcome.state)
        self.connection.write_body(self.channel, write_disposition(head))

    def _unblock(self) -> None:
        blocked, self._blocked = self._blocked, {}
        for link in blocked:
            link.pump()

    def _take_handle(self) -> int:
        if self.state in (SessionState.ENDING, SessionState.ENDED):
            raise StateError(f"{self!r} has ended: begin another session")
        most = self.remote.handle_max if self.remote else MASK
        handle = self._free_handles.pop() if self._free_handles else len(self._links)
        if handle > most:
            raise StateError(f"{self!r} has no handle left: the peer allows {most + 1}; begin another session")
        return handle

    def _request(
        self, link: L, source: Source | None, target: Target | Coordinator | None, attach: dict[str, Any]
    ) -> L:
        self._links[link.handle] = link
        self._requested[link.role, link.name] = link
        link.announce(source, target, **attach)
        return link

    def _link_for(self, attach: Attach) -> Link:
        """Make a link for the peer's attach."""
        kind: type[SenderLink | ReceiverLink] = SenderLink if attach.role else ReceiverLink
        try:
            link = kind(self, attach.name, self._take_handle(), LinkState.REQUESTED)
        except StateError as error:
            raise SessionError(str(error), Condition.RESOURCE_LIMIT_EXCEEDED) from error
        self._links[link.handle] = link
        return link

    def _link(self, handle: int) -> Link:
        link = self._links_of_peer.get(handle)
        if link is None:
            raise SessionError(f"handle {handle} is attached to no link", Condition.UNATTACHED_HANDLE)
        return link

    def _receiver(self, handle: int) -> ReceiverLink:
        link = self._link(handle)
        if not isinstance(link, ReceiverLink):
            raise SessionError(f"a transfer came on handle {handle}, where we send", Condition.ERRANT_LINK)
        return link

    def _drop(self, error: Error | None) -> None:
        """End the session and its links."""
        links = [link for link in self._links.values() if link.state is not LinkState.DETACHED]
        self.abandon()
        for link in links:
            self.emit(Detached(link, closed=False, error=error))


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
                    self._on_transfer(channel, transfer, buffer[transfer.payload : at])
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

    @property
    def product(self) -> str:
        """Return the product that the peer's open names; "" for none."""
        properties = self.remote.properties if self.remote is not None else None
        return str((properties or {}).get("product", ""))

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
        self._early.append(build_frame(0, write_performative(self.settings.to_open(self.remote))))
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
