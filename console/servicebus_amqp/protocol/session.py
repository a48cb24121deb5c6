"""One session: its windows, its two counters, its handles and its unsettled deliveries.

Rules: delivery-ids count messages, outgoing ids count frames, and both wrap. Every transfer frame uses one of the
peer's window; our window opens again at half. Outcomes form ranges of equal state and leave with the connection's
next bytes. A peer's mistake in a session ends the session; the connection continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Protocol

from servicebus_amqp.encoding.messaging_types import (
    ACCEPTED,
    Coordinator,
    DeliveryState,
    Error,
    Source,
    Target,
    error_of,
)
from servicebus_amqp.encoding.performatives import Attach, Begin, Detach, End, Flow, Performative
from servicebus_amqp.encoding.transfer_codec import DispositionHead, TransferHead, new_tuple, write_disposition
from servicebus_amqp.protocol.connection_settings import ConnectionSettings, LinkRole
from servicebus_amqp.protocol.link import MASK, Link, LinkState, distance
from servicebus_amqp.protocol.link_receiver import ReceiverLink
from servicebus_amqp.protocol.link_sender import SenderLink
from servicebus_amqp.protocol.protocol_events import AttachRequested, Detached, DispositionReceived, Event, SessionEnded
from servicebus_amqp.protocol_errors import Condition, ProtocolError, SessionError, StateError

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


class SessionOwner(Protocol):
    """The connection of a session, as the session uses it."""

    settings: ConnectionSettings
    events: list[Event]
    out: list[bytes]
    remote_max_frame_size: int
    unfinished: int

    def mark(self, session: Session) -> None: ...
    def write(self, channel: int, performative: Performative) -> None: ...
    def write_body(self, channel: int, body: bytes) -> None: ...
    def fitted_state(self, state: DeliveryState) -> DeliveryState: ...


class Session:
    """A session made by `Connection.begin`, or by the peer's begin.

    channel: ours. out: the connection's queued frames. frame_room: the most bytes of a frame for the peer.
    """

    def __init__(self, connection: SessionOwner, channel: int) -> None:
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
        link = SenderLink(self, name, self._take_handle(), LinkState.ATTACHING)
        self._register(link)
        link.request(source, target, **attach)
        return link

    def attach_receiver(
        self, name: str, source: Source | None, target: Target | Coordinator | None, **attach: Any
    ) -> ReceiverLink:
        """Request a link that we receive on, as `attach_sender`."""
        link = ReceiverLink(self, name, self._take_handle(), LinkState.ATTACHING)
        self._register(link)
        link.request(source, target, **attach)
        return link

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
                outgoing_window=self.settings.outgoing_window,
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

    def _register(self, link: Link) -> None:
        self._links[link.handle] = link
        self._requested[link.role, link.name] = link

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
