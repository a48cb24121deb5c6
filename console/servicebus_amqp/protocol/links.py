"""The links of a connection: the events that `Connection.receive_data` returns, and the two ends of a link.

Rules: events have the order of the frames that caused them. Later frames of the same read are already processed then:
a link may be detached after its AttachRequested, and actions on it do nothing (only `send` raises). A link ends with
exactly one Detached, a session with one SessionEnded, a connection with one Closed or ConnectionFailed. The links of
an ended session get a Detached each; a closed connection ends its sessions and links silently.

A peer's link waits for `accept_attach` or `refuse`. A refusal is an attach with null termini, then a detach with the
error: clients read the error in no other form.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from servicebus_amqp.encoding.codec import UInt, encode
from servicebus_amqp.encoding.frames import (
    MAX_STATE_BYTES,
    NO_STATE,
    TRANSFER_ROOM,
    TransferHead,
    new_tuple,
    write_continuation,
    write_transfer,
)
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    Attach,
    Coordinator,
    DeliveryState,
    Detach,
    Error,
    Flow,
    Performative,
    Rejected,
    Source,
    Target,
    TransactionalState,
    write_state,
)
from servicebus_amqp.protocol.connection_settings import ConnectionSettings, LinkRole
from servicebus_amqp.protocol.deliveries import FRAME_COST, MESSAGE_COST, IncomingMessage, OutgoingMessage, Payload
from servicebus_amqp.protocol_errors import Condition, EncodeError, SessionError, StateError


@dataclass(frozen=True, slots=True)
class HeaderReceived:
    """The peer's protocol header. sasl: whether it is that of the SASL layer."""

    sasl: bool


@dataclass(frozen=True, slots=True)
class SaslDone:
    mechanism: str


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer's open; a server has already answered it."""

    hostname: str | None
    container_id: str
    properties: dict[Any, Any] | None


@dataclass(frozen=True, slots=True)
class SessionBegun:
    """A session is open on both sides; a server has already answered its begin."""

    session: LinkSession


@dataclass(frozen=True, slots=True)
class AttachRequested:
    """The peer requests a link; answer with `link.accept_attach` or `link.refuse`. `role` is our end."""

    link: Link
    attach: Attach

    @property
    def name(self) -> str:
        return self.attach.name

    @property
    def role(self) -> LinkRole:
        return self.link.role

    @property
    def source(self) -> Source | None:
        return self.attach.source

    @property
    def target(self) -> Target | Coordinator | None:
        return self.attach.target

    @property
    def properties(self) -> dict[Any, Any]:
        return self.attach.properties or {}


@dataclass(frozen=True, slots=True)
class Attached:
    """The peer answered our attach. A refusal has null termini, and a Detached follows."""

    link: Link
    attach: Attach


@dataclass(frozen=True, slots=True)
class FlowReceived:
    """credit: messages that our sender may send now, or the rest of a peer's sender. properties: of the flow."""

    link: Link
    credit: int
    drain: bool
    echo: bool
    properties: dict[Any, Any] | None


class DeliveryReceived(NamedTuple):
    """A complete message. settled: the sender expects no answer. state: of its first frame, such as a transaction's."""

    link: ReceiverLink
    delivery_id: int
    tag: bytes
    message_format: int
    payload: bytes
    settled: bool
    state: DeliveryState | None = None


@dataclass(frozen=True, slots=True)
class DeliveryTooLarge:
    """A message above its link's max_message_size: dropped, and already rejected unless it came settled.

    state: as of DeliveryReceived.
    """

    link: ReceiverLink
    delivery_id: int
    tag: bytes
    size: int
    settled: bool
    state: DeliveryState | None = None


class DispositionReceived(NamedTuple):
    """The peer's state of one delivery: one of ours on a SenderLink, one of its own on a ReceiverLink."""

    link: SenderLink | ReceiverLink
    delivery_id: int
    tag: bytes
    state: DeliveryState | None
    settled: bool


@dataclass(frozen=True, slots=True)
class Detached:
    """The link has ended; the peer's detach has been answered."""

    link: Link
    closed: bool
    error: Error | None


@dataclass(frozen=True, slots=True)
class SessionEnded:
    session: LinkSession
    error: Error | None


@dataclass(frozen=True, slots=True)
class Closed:
    """The peer closed the connection, or answered our close."""

    error: Error | None


@dataclass(frozen=True, slots=True)
class ConnectionFailed:
    """The connection cannot continue; its close frame is queued. Send it, then close the transport."""

    error: Error


Event = (
    HeaderReceived
    | SaslDone
    | Opened
    | SessionBegun
    | AttachRequested
    | Attached
    | FlowReceived
    | DeliveryReceived
    | DeliveryTooLarge
    | DispositionReceived
    | Detached
    | SessionEnded
    | Closed
    | ConnectionFailed
)


MASK: Final = 0xFFFFFFFF
ANY_SIZE: Final = 2**64 - 1
"""The max-message-size of a link that limits no message, as the service writes it."""


def advance(number: int, steps: int) -> int:
    return (number + steps) & MASK


def distance(start: int, end: int) -> int:
    """Return how far `end` is ahead of `start`, from -2**31 to 2**31 - 1; negative if it is behind."""
    return ((end - start + 0x80000000) & MASK) - 0x80000000


class LinkState(Enum):
    REQUESTED = "requested by the peer, not answered yet"
    ATTACHING = "requested by us, not answered yet"
    ATTACHED = "attached"
    DETACHING = "detached by us, not answered yet"
    DETACHED = "detached"


class LinkConnection(Protocol):
    """The connection of a link, as a receiver uses it."""

    @property
    def product(self) -> str: ...

    events: list[Event]
    unfinished: int


class LinkSession(Protocol):
    """The session of a link, as links and the owner of a connection use it: a `Session`."""

    settings: ConnectionSettings
    channel: int
    out: list[bytes]
    frame_room: int
    remote_incoming_window: int

    @property
    def connection(self) -> LinkConnection: ...
    def end(self, error: Error | None = None) -> None: ...
    def emit(self, event: Event) -> None: ...
    def write(self, performative: Performative) -> None: ...
    def write_flow(self, **link: Any) -> None: ...
    def release_handle(self, link: Link) -> None: ...
    def forget_deliveries(self, link: Link) -> None: ...
    def holds(self, link: Link, delivery_id: int) -> bool: ...
    def flush_dispositions(self) -> None: ...
    def start_delivery(self, link: SenderLink, tag: bytes, settled: bool) -> int: ...
    def hold_delivery(self, link: ReceiverLink, delivery_id: int, tag: bytes) -> None: ...
    def count_outgoing_frame(self) -> None: ...
    def settle(
        self, link: SenderLink | ReceiverLink, delivery_id: int, state: DeliveryState | None, *, settled: bool
    ) -> None: ...
    def block(self, link: SenderLink) -> None: ...
    def drains(self, link: SenderLink) -> None: ...


class Link:
    """One end of a link, made only by a session.

    remote: the peer's attach; None before it.
    max_message_size: of the peer for a sender, of ours for a receiver; None for any.
    """

    __slots__ = ("handle", "max_message_size", "name", "remote", "session", "state")  # a session may have thousands
    role: ClassVar[LinkRole]

    def __init__(self, session: LinkSession, name: str, handle: int, state: LinkState) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        self.state = state
        self.remote: Attach | None = None
        self.max_message_size: int | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} handle {self.handle}, {self.state.value}>"

    @property
    def is_requested(self) -> bool:
        """Return whether the peer's attach is still unanswered."""
        return self.state is LinkState.REQUESTED

    @property
    def is_attached(self) -> bool:
        return self.state is LinkState.ATTACHED

    def accept_attach(
        self,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        *,
        properties: dict[Any, Any] | None = None,
        max_message_size: int | None = None,
        initial_delivery_count: int = 0,
        **passed_on: Any,
    ) -> None:
        """Answer an AttachRequested; omitted termini are echoed. Does nothing if the link has ended.

        max_message_size: bytes; default: that of the settings. The smaller of it and the peer's own applies.
        initial_delivery_count: senders only. passed_on: as of `Session.attach_sender`, with settle_modes: those that
        were negotiated; default: the peer's.

        Raises:
            StateError: the link was answered before, or is our own.
        """
        if self.state in (LinkState.DETACHING, LinkState.DETACHED):
            return
        if self.state is not LinkState.REQUESTED or self.remote is None:
            raise StateError(f"{self!r} has no pending attach")
        self.state = LinkState.ATTACHED
        ours = self._own_limit if max_message_size is None else max_message_size
        self.announce(
            source or self.remote.source,
            target or self.remote.target,
            properties=properties,
            max_message_size=min(ours or ANY_SIZE, self.remote.max_message_size or ANY_SIZE),
            initial_delivery_count=initial_delivery_count,
            **{"settle_modes": (self.remote.snd_settle_mode, self.remote.rcv_settle_mode)} | passed_on,
        )

    def refuse(self, error: Error) -> None:
        """Refuse an AttachRequested. Does nothing if the link has ended.

        Raises:
            StateError: the link was answered before, or is our own.
        """
        if self.state in (LinkState.DETACHING, LinkState.DETACHED):
            return
        if self.state is not LinkState.REQUESTED:
            raise StateError(f"{self!r} has no pending attach")
        self._announce_refusal()
        self._leave(closed=True, error=error)

    def detach(self, *, closed: bool = True, error: Error | None = None) -> None:
        """Detach; a Detached event follows the peer's answer. Does nothing if a detach is under way."""
        if self.state is LinkState.REQUESTED:
            self._announce_refusal()
        if self.state not in (LinkState.DETACHING, LinkState.DETACHED):
            self._leave(closed=closed, error=error)

    def holds(self, delivery_id: int) -> bool:
        """Return whether a delivery of this link is still unsettled."""
        return self.session.holds(self, delivery_id)

    # called by the session

    def on_attach(self, attach: Attach) -> None:
        """Handle the peer's attach, a request or an answer."""
        self.remote = attach
        if self.state is LinkState.ATTACHING:
            self.state = LinkState.ATTACHED
            self.session.emit(Attached(self, attach))

    def on_detach(self, detach: Detach) -> None:
        """Handle the peer's detach; answer it unless it answers ours."""
        silent = self.state is LinkState.DETACHED
        if self.state is LinkState.REQUESTED:
            self._announce_refusal()
        if self.state not in (LinkState.DETACHING, LinkState.DETACHED):
            self.session.write(Detach(handle=self.handle, closed=detach.closed))
        self.session.release_handle(self)
        if not silent:
            self.forget()
            self.session.emit(Detached(self, detach.closed, detach.error))

    def on_flow(self, flow: Flow) -> None:
        raise NotImplementedError

    def forget(self) -> None:
        """Mark the link as ended and drop its state."""
        self.state = LinkState.DETACHED

    def fail(self, condition: str, description: str) -> None:
        """Detach because the peer broke a rule of the link; its answer only frees the handle."""
        error = Error(condition=condition, description=description)
        self._leave(closed=True, error=error)
        self.forget()
        self.session.emit(Detached(self, closed=True, error=error))

    def _leave(self, *, closed: bool, error: Error | None) -> None:
        self.session.flush_dispositions()
        self.state = LinkState.DETACHING
        self.session.write(Detach(handle=self.handle, closed=closed, error=error))

    @property
    def _own_limit(self) -> int | None:
        """Return the bytes of a message by our settings; we limit no peer's receiver."""
        return self.session.settings.max_message_size if self.role is LinkRole.RECEIVER else None

    def _announce_refusal(self) -> None:
        """Answer the peer's attach with null termini, and with no other field, as the service does."""
        role = self.role is LinkRole.RECEIVER
        refusal = Attach(name=self.name, handle=self.handle, role=role, snd_settle_mode=None, rcv_settle_mode=None)
        self.session.write(refusal)

    def announce(
        self,
        source: Source | None,
        target: Target | Coordinator | None,
        *,
        settle_modes: tuple[int | None, int | None] = (2, 0),
        properties: dict[Any, Any] | None = None,
        max_message_size: int | None = None,
        initial_delivery_count: int = 0,
        unsettled: dict[Any, Any] | None = None,
        incomplete_unsettled: bool = False,
        offered_capabilities: tuple[str, ...] = (),
        desired_capabilities: tuple[str, ...] = (),
    ) -> None:
        """Send our attach, a request or an answer."""
        if max_message_size is None:
            max_message_size = self._own_limit
        is_sender = self.role is LinkRole.SENDER
        if not is_sender:
            self.max_message_size = max_message_size
        self.session.write(
            Attach(
                name=self.name,
                handle=self.handle,
                role=not is_sender,
                snd_settle_mode=settle_modes[0],
                rcv_settle_mode=settle_modes[1],
                source=source,
                target=target,
                unsettled=unsettled,
                incomplete_unsettled=incomplete_unsettled,
                initial_delivery_count=initial_delivery_count if is_sender else None,
                max_message_size=max_message_size,
                offered_capabilities=offered_capabilities,
                desired_capabilities=desired_capabilities,
                properties=properties,
            )
        )


# The receiving end of a link: transfer frames to messages, credit out, outcomes out.
#
# Rules: the frames of a message are joined before its delivery; an aborted message is dropped. A message above the
# link's max_message_size is dropped and rejected, and the link stays. A message beyond all credit ever granted ends the
# link. The owner sets credit with `flow`; this module never renews it.

SETTLED_ALONE: Final = ("", "MSGolangClient")
"""Products, by the open, that get refusals settled alone: go-amqp 1.0.5 takes an unsettled one for an acceptance.

A bare go-amqp names no product."""


class ReceiverLink(Link):
    """A link made by `Session.attach_receiver`, or by the peer's attach of a sender."""

    __slots__ = ("_beyond", "_credit", "_delivery_count", "_partial")
    role: ClassVar[LinkRole] = LinkRole.RECEIVER

    def __init__(self, session: LinkSession, name: str, handle: int, state: LinkState) -> None:
        super().__init__(session, name, handle, state)
        self._credit = 0
        self._beyond = 0
        self._delivery_count: int | None = None
        self._partial: IncomingMessage | None = None

    @property
    def credit(self) -> int:
        """Messages that the peer may still send, as far as known here."""
        return max(0, self._credit)

    @property
    def delivery_count(self) -> int | None:
        """The peer's count of messages; None before its attach."""
        return self._delivery_count

    def flow(
        self,
        credit: int,
        *,
        drain: bool = False,
        echo: bool = False,
        properties: dict[Any, Any] | None = None,
    ) -> None:
        """Let the peer send `credit` messages from now on, regardless of earlier grants.

        drain: the peer sends available messages immediately and returns the rest of the credit. Does nothing on an
        ended link.
        """
        if self.state not in (LinkState.ATTACHED, LinkState.ATTACHING):
            return
        # Lower credit cannot recall messages in flight, so the highest grant stays valid.
        self._beyond = max(0, self._beyond + self._credit - credit)
        self._credit = credit
        self.session.write_flow(
            handle=self.handle,
            delivery_count=self._delivery_count,
            link_credit=credit,
            available=0,
            drain=drain,
            echo=echo,
            properties=properties,
        )

    def settle(self, deliveries: int | range, state: DeliveryState | None, *, settled: bool = True) -> None:
        """Report the outcome of one delivery, or of a range of delivery-ids (modulo 2**32), to the sender.

        Neighbours with equal states share a frame. Does nothing for settled deliveries and on an ended link.

        Raises:
            EncodeError: the state does not fit a frame of the peer; errors and annotations are truncated instead.
        """
        if isinstance(deliveries, int):
            self.session.settle(self, deliveries, state, settled=settled)
            return
        for delivery_id in deliveries:
            self.session.settle(self, delivery_id & MASK, state, settled=settled)

    def answer(self, delivery_id: int, outcome: DeliveryState) -> None:
        """Answer a client's message with its outcome. Does nothing for a settled delivery and on an ended link.

        What is no acceptance leaves unsettled, then settled, in one write: .NET replaces a settled outcome by Accepted
        if it arrives before its own write returns, Python ignores an unsettled one, and rhea frees a delivery only
        once it is settled. A client of SETTLED_ALONE gets the settled one alone.

        Raises:
            EncodeError: as `settle`.
        """
        is_refusal = outcome is not ACCEPTED and type(outcome) is not TransactionalState
        if is_refusal and self.session.connection.product not in SETTLED_ALONE:
            self.session.settle(self, delivery_id, outcome, settled=False)
        self.session.settle(self, delivery_id, outcome, settled=True)

    def on_attach(self, attach: Attach) -> None:
        self._delivery_count = attach.initial_delivery_count or 0  # .NET's request links omit it and count from 0
        super().on_attach(attach)

    def on_flow(self, flow: Flow) -> None:
        """Handle the sender's count; after a drain it is ahead of ours."""
        if flow.delivery_count is not None:
            ahead = 0 if self._delivery_count is None else distance(self._delivery_count, flow.delivery_count)
            self._delivery_count = flow.delivery_count
            self._use_up(max(0, ahead))
        if flow.echo:
            self.flow(self.credit)
        self.session.emit(FlowReceived(self, self.credit, flow.drain, flow.echo, flow.properties))

    def on_transfer(self, head: TransferHead, payload: bytes) -> None:
        """Handle one frame of a message. Raises SessionError."""
        if self.state is not LinkState.ATTACHED:
            return
        _, delivery_id, tag, message_format, settled, more, aborted, _, state = head
        if self._partial is not None:
            self._continue(self._partial, head, payload)
            return
        if delivery_id is None or tag is None:
            raise SessionError(
                "the first transfer of a message carries no delivery-id or no tag", Condition.INVALID_FIELD
            )
        if self._credit > 0:
            self._credit -= 1
        elif not self._use_credit_under_way():
            return
        if self._delivery_count is not None:
            self._delivery_count = (self._delivery_count + 1) & MASK
        if more or aborted:
            partial = self._partial = IncomingMessage(delivery_id, tag, message_format or 0, state)
            self.session.connection.unfinished += partial.held
            self._continue(partial, head, payload)
        else:
            self._deliver(delivery_id, tag, message_format or 0, payload, len(payload), settled, state)

    def forget(self) -> None:
        super().forget()
        self._credit = 0
        self._drop_partial()
        self.session.forget_deliveries(self)

    def _use_up(self, credit: int) -> None:
        self._beyond = max(0, self._beyond - max(0, credit - self._credit))
        self._credit = max(0, self._credit - credit)

    def _use_credit_under_way(self) -> bool:
        """Count a message without credit: sent before a lower grant arrived, otherwise end the link."""
        if self._beyond > 0:
            self._beyond -= 1
            return True
        self.fail(Condition.TRANSFER_LIMIT_EXCEEDED, "the peer sent a message without credit")
        return False

    def _continue(self, partial: IncomingMessage, head: TransferHead, payload: bytes) -> None:
        if head.delivery_id is not None and head.delivery_id != partial.delivery_id:
            raise SessionError(
                f"a transfer of delivery {head.delivery_id} came before delivery {partial.delivery_id} was complete",
                Condition.INVALID_FIELD,
            )
        if head.state is not None and head.state != partial.state:
            raise SessionError(
                f"a later transfer of delivery {partial.delivery_id} carries another state than the first",
                Condition.INVALID_FIELD,
            )
        partial.settled = partial.settled or head.settled
        partial.size += len(payload)
        if self.max_message_size and partial.size > self.max_message_size:
            self._hold(partial, MESSAGE_COST)
            partial.frames.clear()
        elif payload:
            self._hold(partial, partial.held + FRAME_COST + len(payload))
            partial.frames.append(payload)
        if head.aborted:
            self._drop_partial()
        elif not head.more:
            self._drop_partial()
            whole, size = b"".join(partial.frames), partial.size
            self._deliver(partial.delivery_id, partial.tag, partial.format, whole, size, partial.settled, partial.state)

    def _hold(self, partial: IncomingMessage, held: int) -> None:
        self.session.connection.unfinished += held - partial.held
        partial.held = held

    def _drop_partial(self) -> None:
        if self._partial is not None:
            self._hold(self._partial, 0)
            self._partial = None

    def _deliver(
        self,
        delivery_id: int,
        tag: bytes,
        message_format: int,
        payload: bytes,
        size: int,
        settled: bool,
        state: DeliveryState | None,
    ) -> None:
        """Deliver a message, or reject it. size: its full size, even if its bytes were dropped."""
        session = self.session
        if not settled:
            session.hold_delivery(self, delivery_id, tag)
        if self.max_message_size and size > self.max_message_size:
            self._refuse(delivery_id, tag, size, settled, state)
            return
        event = new_tuple(DeliveryReceived, (self, delivery_id, tag, message_format, payload, settled, state))
        session.connection.events.append(event)

    def _refuse(self, delivery_id: int, tag: bytes, size: int, settled: bool, state: DeliveryState | None) -> None:
        if not settled:
            error = Error(
                condition=Condition.MESSAGE_SIZE_EXCEEDED,
                description=f"the message has {size} bytes, the link takes {self.max_message_size}: send it in parts",
            )
            self.answer(delivery_id, Rejected(error=error))
        self.session.emit(DeliveryTooLarge(self, delivery_id, tag, size, settled, state))


# The sending end of a link: messages to transfer frames, within credit and the session's window.
#
# Rules: a message gets its delivery-id with its first frame, since ids must rise on the wire. Messages without credit
# or window wait here in order and leave as soon as both allow. A drain is answered in `Connection.data_to_send`, after
# the owner's last messages; an owner that relays another's messages answers it itself, with `finish_drain`.

MAX_TAG_BYTES: Final = 32
_PLAIN: Final = encode(UInt(0))
"""The encoded format of a single message."""


class SenderLink(Link):
    """A link made by `Session.attach_sender`, or by the peer's attach of a receiver.

    answers_drains: whether a drain is answered without the owner.
    """

    __slots__ = (
        "_credit",
        "_delivery_count",
        "_drain",
        "_handle",
        "_initial_delivery_count",
        "_waiting",
        "answers_drains",
    )
    role: ClassVar[LinkRole] = LinkRole.SENDER

    def __init__(self, session: LinkSession, name: str, handle: int, state: LinkState) -> None:
        super().__init__(session, name, handle, state)
        self._handle = encode(UInt(handle))
        self._credit = 0
        self._delivery_count = 0
        self._initial_delivery_count = 0
        self._waiting: deque[OutgoingMessage] = deque()
        self._drain = False
        self.answers_drains = True

    @property
    def credit(self) -> int:
        """Messages that may be sent before others have to wait."""
        if not self._waiting:
            return self._credit
        fresh = len(self._waiting) - (1 if self._waiting[0].has_begun else 0)
        return max(0, self._credit - fresh)

    @property
    def delivery_count(self) -> int:
        return self._delivery_count

    @property
    def waiting(self) -> int:
        """Messages passed to `send` that are not completely sent."""
        return len(self._waiting)

    def send(
        self,
        payload: Payload,
        *,
        tag: bytes,
        message_format: int = 0,
        settled: bool = False,
        state: DeliveryState | None = None,
    ) -> int | None:
        """Send one encoded message, whole or in pieces.

        tag: at most 32 bytes, and unique among the link's unsettled deliveries. state: such as that of a transaction.

        Returns the delivery-id, or None if the first frame has to wait for credit or window. Events name a delivery by
        its tag as well.

        Raises:
            StateError: the link is detached.
            EncodeError: the tag or the state is too long.
        """
        encoded_format = encode(UInt(message_format)) if message_format else _PLAIN
        stated = self._check(tag, state)
        session = self.session
        size = len(payload) if isinstance(payload, bytes) else sum(map(len, payload))
        if (
            self.state is LinkState.ATTACHED
            and self._credit > 0
            and session.remote_incoming_window > 0
            and size <= session.frame_room - TRANSFER_ROOM - len(stated)
        ):
            delivery_id = self._start(tag, settled)
            out = session.out
            out.append(
                write_transfer(
                    session.channel,
                    self._handle,
                    delivery_id,
                    tag,
                    encoded_format,
                    settled=settled,
                    more=False,
                    payload=size,
                    state=stated,
                )
            )
            if isinstance(payload, bytes):
                out.append(payload)
            else:
                out.extend(payload)  # type: ignore[arg-type] # joined when they leave
            return delivery_id
        message = OutgoingMessage(payload, tag, encoded_format, settled, stated)
        self._waiting.append(message)
        self.pump()
        return message.delivery_id

    def _check(self, tag: bytes, state: DeliveryState | None) -> bytes:
        """Return the encoded state of a message to send. Raises StateError and EncodeError."""
        if self.state is not LinkState.ATTACHED and self.state in (LinkState.DETACHED, LinkState.DETACHING):
            raise StateError(f"{self!r} is detached: send the message on another link")
        if len(tag) > MAX_TAG_BYTES:
            raise EncodeError(f"a delivery tag of {len(tag)} bytes; {MAX_TAG_BYTES} is the most AMQP allows")
        stated = NO_STATE if state is None else write_state(state)
        if len(stated) > MAX_STATE_BYTES:
            raise EncodeError(f"a delivery state of {len(stated)} bytes; {MAX_STATE_BYTES} is the most a message has")
        return stated

    def settle(self, delivery_id: int, state: DeliveryState | None, *, settled: bool = True) -> None:
        """Report the state of our delivery to the receiver, usually its own outcome, settled.

        Does nothing for a delivery that is already settled.
        """
        self.session.settle(self, delivery_id, state, settled=settled)

    def finish_drain(self) -> None:
        """Answer the peer's drain, after the messages passed to `send` so far. Does nothing without a drain."""
        if self._drain:
            self.session.drains(self)

    def pump(self) -> None:
        """Send waiting messages within credit and window."""
        waiting, session = self._waiting, self.session
        if self.state is not LinkState.ATTACHED:
            return
        while waiting and (self._credit > 0 or waiting[0].has_begun):
            if session.remote_incoming_window <= 0:
                session.block(self)
                return
            message = waiting[0]
            self._send_frame(message)
            if not message.left:
                waiting.popleft()

    def answer_drain(self) -> bool:
        """Return unused credit once no message waits; return whether the drain is answered."""
        if not self._drain or self.state in (LinkState.DETACHING, LinkState.DETACHED):
            return True
        if self.state is not LinkState.ATTACHED or (self._waiting and self._credit > 0):
            return False
        self._drain = False
        self._delivery_count = advance(self._delivery_count, self._credit)
        self._credit = 0
        self._write_flow(drain=True)
        return True

    def accept_attach(self, *termini: Any, **answer: Any) -> None:
        super().accept_attach(*termini, **answer)
        self.pump()

    def on_attach(self, attach: Attach) -> None:
        self.max_message_size = None if attach.max_message_size in (0, ANY_SIZE) else attach.max_message_size
        super().on_attach(attach)

    def on_flow(self, flow: Flow) -> None:
        count = self._initial_delivery_count if flow.delivery_count is None else flow.delivery_count
        if flow.link_credit is not None:
            self._credit = max(0, flow.link_credit + distance(self._delivery_count, count))
        self._drain = flow.drain
        self.pump()
        if flow.drain and self.answers_drains:
            self.session.drains(self)
        if flow.echo:
            self._write_flow()
        self.session.emit(FlowReceived(self, self.credit, flow.drain, flow.echo, flow.properties))

    def forget(self) -> None:
        super().forget()
        self._credit = 0
        self._waiting.clear()
        self.session.forget_deliveries(self)

    def _write_flow(self, *, drain: bool = False) -> None:
        self.session.write_flow(
            handle=self.handle,
            delivery_count=self._delivery_count,
            link_credit=self._credit,
            available=len(self._waiting),
            drain=drain,
        )

    def _start(self, tag: bytes, settled: bool) -> int:
        self._credit -= 1
        self._delivery_count = (self._delivery_count + 1) & MASK
        return self.session.start_delivery(self, tag, settled)

    def _send_frame(self, message: OutgoingMessage) -> None:
        session = self.session
        pieces: list[Any] = message.take(session.frame_room - TRANSFER_ROOM - len(message.state))  # copied when sent
        size, more = sum(map(len, pieces)), bool(message.left)
        if not message.has_begun:
            message.has_begun = True
            delivery_id = message.delivery_id = self._start(message.tag, message.settled)
            head = write_transfer(
                session.channel,
                self._handle,
                delivery_id,
                message.tag,
                message.format,
                settled=message.settled,
                more=more,
                payload=size,
                state=message.state,
            )
        else:
            session.count_outgoing_frame()
            head = write_continuation(session.channel, self._handle, more=more, payload=size)
        session.out.append(head)
        session.out += pieces

    def announce(self, *termini: Any, **attach: Any) -> None:
        self._initial_delivery_count = self._delivery_count = attach.get("initial_delivery_count", 0)
        super().announce(*termini, **attach)
