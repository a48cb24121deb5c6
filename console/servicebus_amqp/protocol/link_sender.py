"""The sending end of a link: messages to transfer frames, within credit and the session's window.

Rules: a message gets its delivery-id with its first frame, since ids must rise on the wire. Messages without credit or
window wait here in order and leave as soon as both allow. A drain is answered in `Connection.data_to_send`, after the
owner's last messages; an owner that relays another's messages answers it itself, with `finish_drain`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Protocol

from servicebus_amqp.encoding.amqp_types import UInt
from servicebus_amqp.encoding.codec import encode
from servicebus_amqp.encoding.messaging_types import DeliveryState
from servicebus_amqp.encoding.performatives import Attach, Flow
from servicebus_amqp.encoding.transfer_codec import TRANSFER_ROOM, write_continuation, write_transfer
from servicebus_amqp.protocol.connection_settings import LinkRole
from servicebus_amqp.protocol.link import Link, LinkOwner, LinkState, advance, distance
from servicebus_amqp.protocol.protocol_events import FlowReceived
from servicebus_amqp.protocol_errors import EncodeError, StateError

MAX_TAG_BYTES: Final = 32
_PLAIN: Final = encode(UInt(0))
"""The encoded format of a single message."""
Piece = bytes | memoryview
Payload = bytes | Sequence[Piece]
"""An encoded message, whole or in pieces. Memory behind a view must not change before it is sent."""


class _Outgoing:
    """A message that is partly sent, or not yet. left: the unsent bytes."""

    __slots__ = ("delivery_id", "format", "has_begun", "left", "settled", "tag")

    def __init__(self, payload: Payload, tag: bytes, message_format: bytes, settled: bool) -> None:
        pieces = (payload,) if isinstance(payload, bytes) else payload
        self.left = deque(memoryview(piece) for piece in pieces if piece)
        self.tag = tag
        self.format = message_format
        self.settled = settled
        self.has_begun = False
        self.delivery_id: int | None = None

    def take(self, room: int) -> list[memoryview]:
        """Return the next bytes, at most `room`, without a copy."""
        left, taken = self.left, []
        while left and room:
            piece = left[0]
            if len(piece) > room:
                left[0], piece = piece[room:], piece[:room]
            else:
                left.popleft()
            taken.append(piece)
            room -= len(piece)
        return taken


class SenderOwner(LinkOwner, Protocol):
    """The session of a link, as a sender uses it."""

    out: list[bytes]
    frame_room: int
    remote_incoming_window: int

    def start_delivery(self, link: SenderLink, tag: bytes, settled: bool) -> int: ...
    def count_outgoing_frame(self) -> None: ...
    def settle(self, link: SenderLink, delivery_id: int, state: DeliveryState | None, *, settled: bool) -> None: ...
    def block(self, link: SenderLink) -> None: ...
    def drains(self, link: SenderLink) -> None: ...


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
    session: SenderOwner

    def __init__(self, session: SenderOwner, name: str, handle: int, state: LinkState) -> None:
        super().__init__(session, name, handle, state)
        self._handle = encode(UInt(handle))
        self._credit = 0
        self._delivery_count = 0
        self._initial_delivery_count = 0
        self._waiting: deque[_Outgoing] = deque()
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

    def send(self, payload: Payload, *, tag: bytes, message_format: int = 0, settled: bool = False) -> int | None:
        """Send one encoded message, whole or in pieces.

        tag: at most 32 bytes, and unique among the link's unsettled deliveries.

        Returns the delivery-id, or None if the first frame has to wait for credit or window. Events name a delivery by
        its tag as well.

        Raises:
            StateError: the link is detached.
            EncodeError: the tag is too long.
        """
        is_attached = self.state is LinkState.ATTACHED
        if not is_attached and self.state in (LinkState.DETACHED, LinkState.DETACHING):
            raise StateError(f"{self!r} is detached: send the message on another link")
        if len(tag) > MAX_TAG_BYTES:
            raise EncodeError(f"a delivery tag of {len(tag)} bytes; {MAX_TAG_BYTES} is the most AMQP allows")
        encoded_format = encode(UInt(message_format)) if message_format else _PLAIN
        session = self.session
        size = len(payload) if isinstance(payload, bytes) else sum(map(len, payload))
        if (
            is_attached
            and self._credit > 0
            and session.remote_incoming_window > 0
            and size <= session.frame_room - TRANSFER_ROOM
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
                )
            )
            if isinstance(payload, bytes):
                out.append(payload)
            else:
                out.extend(payload)  # type: ignore[arg-type] # joined when they leave
            return delivery_id
        message = _Outgoing(payload, tag, encoded_format, settled)
        self._waiting.append(message)
        self.pump()
        return message.delivery_id

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
        self.max_message_size = attach.max_message_size or None
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
        self._delivery_count = (self._delivery_count + 1) & 0xFFFFFFFF
        return self.session.start_delivery(self, tag, settled)

    def _send_frame(self, message: _Outgoing) -> None:
        session = self.session
        pieces: list[Any] = message.take(session.frame_room - TRANSFER_ROOM)  # copied when sent
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
            )
        else:
            session.count_outgoing_frame()
            head = write_continuation(session.channel, self._handle, more=more, payload=size)
        session.out.append(head)
        session.out += pieces

    def _announce(self, *termini: Any, **attach: Any) -> None:
        self._initial_delivery_count = self._delivery_count = attach.get("initial_delivery_count", 0)
        super()._announce(*termini, **attach)
