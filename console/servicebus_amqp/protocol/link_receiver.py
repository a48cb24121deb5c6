"""The receiving end of a link: transfer frames to messages, credit out, outcomes out.

Rules: the frames of a message are joined before its delivery; an aborted message is dropped. A message above the
link's max_message_size is dropped and rejected, and the link stays. A message beyond all credit ever granted ends the
link. The owner sets credit with `flow`; this module never renews it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Protocol

from servicebus_amqp.encoding.messaging_types import ACCEPTED, DeliveryState, Error, Rejected
from servicebus_amqp.encoding.performatives import Attach, Flow
from servicebus_amqp.encoding.transfer_codec import TransferHead, new_tuple
from servicebus_amqp.protocol.connection_settings import LinkRole
from servicebus_amqp.protocol.link import MASK, Link, LinkOwner, LinkState, distance
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DeliveryTooLarge, Event, FlowReceived
from servicebus_amqp.protocol_errors import Condition, SessionError

MESSAGE_COST: Final = 512
FRAME_COST: Final = 64
"""Bytes that an incomplete message, and each of its frames, cost beside their content."""


class _Incoming:
    """A message with missing frames. size: of what came. held: bytes that it costs now."""

    __slots__ = ("delivery_id", "format", "frames", "held", "settled", "size", "tag")

    def __init__(self, delivery_id: int, tag: bytes, message_format: int) -> None:
        self.delivery_id = delivery_id
        self.tag = tag
        self.format = message_format
        self.settled = False
        self.frames: list[bytes] = []
        self.size = 0
        self.held = MESSAGE_COST + len(tag)


class EventQueue(Protocol):
    """The connection of a link, as a receiver uses it."""

    events: list[Event]
    unfinished: int


class ReceiverOwner(LinkOwner, Protocol):
    """The session of a link, as a receiver uses it."""

    @property
    def connection(self) -> EventQueue: ...

    def hold_delivery(self, link: ReceiverLink, delivery_id: int, tag: bytes) -> None: ...
    def settle(self, link: ReceiverLink, delivery_id: int, state: DeliveryState | None, *, settled: bool) -> None: ...


class ReceiverLink(Link):
    """A link made by `Session.attach_receiver`, or by the peer's attach of a sender."""

    __slots__ = ("_beyond", "_credit", "_delivery_count", "_partial")
    role: ClassVar[LinkRole] = LinkRole.RECEIVER
    session: ReceiverOwner

    def __init__(self, session: ReceiverOwner, name: str, handle: int, state: LinkState) -> None:
        super().__init__(session, name, handle, state)
        self._credit = 0
        self._beyond = 0
        self._delivery_count: int | None = None
        self._partial: _Incoming | None = None

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

        What is not Accepted leaves unsettled, then settled, in one write: .NET replaces a settled outcome by Accepted
        if it arrives before its own write returns, Python ignores an unsettled one, and rhea frees a delivery only
        once it is settled.

        Raises:
            EncodeError: as `settle`.
        """
        if outcome is not ACCEPTED:
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
        _, delivery_id, tag, message_format, settled, more, aborted, _ = head
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
            partial = self._partial = _Incoming(delivery_id, tag, message_format or 0)
            self.session.connection.unfinished += partial.held
            self._continue(partial, head, payload)
        else:
            self._deliver(delivery_id, tag, message_format or 0, payload, len(payload), settled)

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

    def _continue(self, partial: _Incoming, head: TransferHead, payload: bytes) -> None:
        if head.delivery_id is not None and head.delivery_id != partial.delivery_id:
            raise SessionError(
                f"a transfer of delivery {head.delivery_id} came before delivery {partial.delivery_id} was complete",
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
            whole = b"".join(partial.frames)
            self._deliver(partial.delivery_id, partial.tag, partial.format, whole, partial.size, partial.settled)

    def _hold(self, partial: _Incoming, held: int) -> None:
        self.session.connection.unfinished += held - partial.held
        partial.held = held

    def _drop_partial(self) -> None:
        if self._partial is not None:
            self._hold(self._partial, 0)
            self._partial = None

    def _deliver(
        self, delivery_id: int, tag: bytes, message_format: int, payload: bytes, size: int, settled: bool
    ) -> None:
        """Deliver a message, or reject it. size: its full size, even if its bytes were dropped."""
        session = self.session
        if not settled:
            session.hold_delivery(self, delivery_id, tag)
        if self.max_message_size and size > self.max_message_size:
            self._refuse(delivery_id, tag, size, settled)
            return
        event = new_tuple(DeliveryReceived, (self, delivery_id, tag, message_format, payload, settled))
        session.connection.events.append(event)

    def _refuse(self, delivery_id: int, tag: bytes, size: int, settled: bool) -> None:
        if not settled:
            error = Error(
                condition=Condition.MESSAGE_SIZE_EXCEEDED,
                description=f"the message has {size} bytes, the link takes {self.max_message_size}: send it in parts",
            )
            self.answer(delivery_id, Rejected(error=error))
        self.session.emit(DeliveryTooLarge(self, delivery_id, tag, size, settled))
