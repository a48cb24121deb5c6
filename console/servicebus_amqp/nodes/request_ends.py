"""The server's two ends of a node's links: requests come in on one, replies leave on its partner.

A request is accepted first, then answered. The reply leaves on the link that its `reply-to` names, else on one of the
same node: Microsoft's Python client names none, JavaScript's has a session for each link. A reply waits for credit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from servicebus_amqp.encoding.messaging_types import ACCEPTED
from servicebus_amqp.node_address import NodeAddress, NodeKind
from servicebus_amqp.nodes.node_messages import NodeRequest, read_request
from servicebus_amqp.nodes.refusals import bad_argument, rejected
from servicebus_amqp.protocol.link_receiver import ReceiverLink
from servicebus_amqp.protocol.link_sender import SenderLink
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived
from servicebus_amqp.protocol_errors import DecodeError

SETTLED_BY_SENDER: Final = 1
REQUEST_CREDIT: Final = 100

NodeKey = tuple[NodeKind, str]


def key_of(address: NodeAddress) -> NodeKey:
    """Return the identity of a node, without regard to case."""
    return address.kind, address.path.lower()


class ReplyEnd:
    """The replies of one node to the client. `names`: those by which a request's `reply-to` may call it.

    tag_prefix: tells these replies from others that leave on the same link.
    """

    def __init__(self, link: SenderLink, address: NodeAddress) -> None:
        self.link = link
        self.node = key_of(address)
        remote = link.remote
        target = None if remote is None else remote.target
        self.names = {link.name, None if target is None else getattr(target, "address", None)}
        self.tag_prefix = b""
        self._settled = remote is not None and remote.snd_settle_mode == SETTLED_BY_SENDER
        self._sent = 0

    def answers(self, node: NodeKey) -> bool:
        """Return whether replies of this node can leave here."""
        return self.node == node and self.link.is_attached

    def send(self, reply: bytes) -> None:
        """Send a reply now, or when the client grants credit. Does nothing on a detached link."""
        if self.link.is_attached:
            self._sent += 1
            self.link.send(reply, tag=self.tag_prefix + self._sent.to_bytes(4, "big"), settled=self._settled)

    def on_disposition(self, event: DispositionReceived) -> None:
        """Settle a reply that the client leaves to us."""
        if not event.settled:
            self.link.settle(event.delivery_id, event.state)


class RequestEnd:
    """The client's requests to one node, with their credit and their partner."""

    def __init__(self, link: ReceiverLink, address: NodeAddress) -> None:
        self.link = link
        self.node = key_of(address)
        self._taken = 0
        self._partner: ReplyEnd | None = None  # the link of the last reply
        link.flow(REQUEST_CREDIT)

    def read(self, event: DeliveryReceived) -> NodeRequest | None:
        """Read a request and renew the credit; None if it is unreadable, and rejected."""
        self._taken += 1
        if 2 * self._taken >= REQUEST_CREDIT:
            self._taken = 0
            self.link.flow(REQUEST_CREDIT)
        try:
            return read_request(event.payload)
        except DecodeError as error:
            if not event.settled:
                self.link.answer(event.delivery_id, rejected(bad_argument(f"the request cannot be read: {error}")))
            return None

    def accept(self, event: DeliveryReceived) -> None:
        """Accept a request; its answer is the reply."""
        if not event.settled:
            self.link.settle(event.delivery_id, ACCEPTED)

    def partner(self, reply_to: str | None, ends: Iterable[ReplyEnd]) -> ReplyEnd | None:
        """Return the end for a reply among those of the connection; None without one."""
        known = self._partner
        if known is None or reply_to not in known.names or not known.answers(self.node):
            known = self._partner = self._find(reply_to, ends)
        return known

    def _find(self, reply_to: str | None, ends: Iterable[ReplyEnd]) -> ReplyEnd | None:
        """Return the end named `reply_to`, else one from the same node, of the same session if there is one."""
        fitting = [end for end in ends if end.answers(self.node)]
        named = [end for end in fitting if reply_to is not None and reply_to in end.names]
        session: object = self.link.session
        beside = [end for end in fitting if end.link.session is session]
        found = named or beside or fitting
        return found[-1] if found else None
