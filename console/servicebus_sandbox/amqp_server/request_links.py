"""Links of the nodes `$cbs` and `{entity}/$management`: requests come in on one, replies leave on its partner.

The nodes are in `cbs_node` and `management_node`, the encoding is in `servicebus_amqp.request_reply`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from servicebus_amqp.encoding.delivery_states import ACCEPTED
from servicebus_amqp.node_address import CBS, NodeAddress, NodeKind
from servicebus_amqp.protocol.link_receiver import ReceiverLink
from servicebus_amqp.protocol.link_sender import SenderLink
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived
from servicebus_amqp.protocol_errors import DecodeError
from servicebus_amqp.request_reply import NodeReply, NodeRequest, ReplyVocabulary, read_request, write_reply
from servicebus_sandbox.amqp_server import cbs_node, management_node
from servicebus_sandbox.amqp_server.message_links import SETTLED_BY_SENDER
from servicebus_sandbox.amqp_server.served_link import LinkOwner, ServedLink, rejected
from servicebus_sandbox.broker.broker_errors import BrokerError
from servicebus_sandbox.faults import Direction, FaultVerdict, InjectionPoint, Operation
from servicebus_sandbox.serving.amqp_conditions import AmqpRefusal, bad_argument, refusal_by, refusal_of, unauthorized

REQUEST_CREDIT: Final = 100
ASSOCIATED_LINK: Final = "associated-link-name"


class ReplyLink(ServedLink):
    """The replies of one node to the client."""

    link: SenderLink
    operations = frozenset({Operation.MANAGE})

    def __init__(self, server: LinkOwner, link: SenderLink, address: NodeAddress) -> None:
        super().__init__(server, link, address.path, address.resource)
        self.node = (address.kind, address.path.lower())
        remote = link.remote
        target = None if remote is None else remote.target
        self.names = {link.name, None if target is None else getattr(target, "address", None)}
        self._settled = remote is not None and remote.snd_settle_mode == SETTLED_BY_SENDER
        self._sent = 0

    def answers(self, node: tuple[NodeKind, str]) -> bool:
        """Return whether replies of this node can leave here."""
        return self.node == node and self.link.is_attached

    def send(self, reply: bytes) -> None:
        """Send a reply now, or when the client grants credit."""
        if self.is_slow:
            self.later(partial(self._send, reply), Direction.OUT)
        else:
            self._send(reply)

    def _send(self, reply: bytes) -> None:
        if self.link.is_attached:
            self._sent += 1
            self.link.send(reply, tag=self._sent.to_bytes(4, "big"), settled=self._settled)

    def on_disposition(self, event: DispositionReceived) -> None:
        if not event.settled:
            self.link.settle(event.delivery_id, event.state)


class RequestLink(ServedLink):
    """The client's requests to one node. A request is accepted first, then answered on the reply link."""

    link: ReceiverLink
    operations = frozenset({Operation.MANAGE})
    vocabulary: ReplyVocabulary

    def __init__(self, server: LinkOwner, link: ReceiverLink, address: NodeAddress) -> None:
        super().__init__(server, link, address.path, address.resource)
        self.node = (address.kind, address.path.lower())
        self._taken = 0
        self._partner: ReplyLink | None = None  # the link of the last reply
        link.flow(REQUEST_CREDIT)

    def on_delivery(self, event: DeliveryReceived) -> None:
        self._taken += 1
        if 2 * self._taken >= REQUEST_CREDIT:
            self._taken = 0
            self.link.flow(REQUEST_CREDIT)
        try:
            request = read_request(event.payload)
        except DecodeError as error:
            self._refuse(event, error)
            return
        verdict = self.verdict_on(request)
        if verdict is FaultVerdict.SWALLOW or self.is_cut_by(verdict):
            return
        associated = request.properties.get(ASSOCIATED_LINK)
        if associated:
            self.server.used(associated)
        if not event.settled:
            self.link.settle(event.delivery_id, ACCEPTED)
        reply = self._answer(request, verdict)
        if verdict is FaultVerdict.TAKE_AND_RESET:
            self.server.abort()
        elif verdict is not FaultVerdict.TAKE_SILENTLY:
            self._reply(request, reply)

    def _refuse(self, event: DeliveryReceived, error: DecodeError) -> None:
        if not event.settled:
            outcome = rejected(bad_argument(f"the request cannot be read: {error}"))
            self.link.settle(event.delivery_id, outcome)

    def verdict_on(self, request: NodeRequest) -> FaultVerdict:
        """Return the faults' verdict on the request."""
        operations = self.operations | management_node.operations_of(request.operation)
        moment = InjectionPoint.TRANSFER if Operation.SEND in operations else InjectionPoint.REQUEST
        return self.server.node.faults.verdict(moment, self.path, operations)

    def _answer(self, request: NodeRequest, verdict: FaultVerdict) -> NodeReply:
        try:
            refusal = refusal_by(verdict, self.path)
            if refusal is not None:
                raise refusal
            return self.perform(request)
        except AmqpRefusal as refusal:
            return _refused(refusal)
        except BrokerError as error:
            return _refused(refusal_of(error))

    def perform(self, request: NodeRequest) -> NodeReply:
        """Perform the request. Raises AmqpRefusal and BrokerError."""
        raise NotImplementedError

    def _reply(self, request: NodeRequest, reply: NodeReply) -> None:
        link = self._partner
        if link is None or request.reply_to not in link.names or not link.answers(self.node):
            link = self._partner = self._find_reply_link(request.reply_to)
        if link is None:
            where = f"{self.resource or CBS} (reply-to {request.reply_to})"
            self.server.node.complaints.about("no reply link", f"has no link for the reply to a request to {where}")
            return
        link.send(write_reply(request, reply, self.vocabulary))

    def _find_reply_link(self, reply_to: str | None) -> ReplyLink | None:
        """Return the link named `reply_to`, else one from the same node, of the same session if there is one."""
        links = [link for link in self.server.links.values() if isinstance(link, ReplyLink) and link.answers(self.node)]
        named = [link for link in links if reply_to is not None and reply_to in link.names]
        session: object = self.link.session
        beside = [link for link in links if link.link.session is session]
        found = named or beside or links
        return found[-1] if found else None


def _refused(refusal: AmqpRefusal) -> NodeReply:
    return NodeReply(status=refusal.status, description=refusal.description, condition=refusal.condition)


class CbsLink(RequestLink):
    """The tokens of this connection. Faults of entities do not affect it, faults of contact do."""

    vocabulary = ReplyVocabulary.CBS

    def verdict_on(self, request: NodeRequest) -> FaultVerdict:
        return self.server.node.faults.verdict(InjectionPoint.TOKEN, self.path)

    def perform(self, request: NodeRequest) -> NodeReply:
        node = self.server.node
        today = node.time_of_day()
        access = cbs_node.judge_token(request.properties, request.body, judge=node.authorization, now=today)
        self.server.grant(replace(access, expires_at=access.expires_at + node.clock() - today))
        return NodeReply(status=202, description="Accepted")


class ManagementLink(RequestLink):
    """The operations on one entity."""

    vocabulary = ReplyVocabulary.MANAGEMENT

    def perform(self, request: NodeRequest) -> NodeReply:
        right = management_node.right_for(request.operation)
        if not self.server.grants.allow(self.resource, right, self.server.node.clock()):
            raise unauthorized(self.resource, right)
        namespace = self.server.node.namespace
        body = management_node.perform(request.operation, namespace, self.path, request.body)
        if management_node.finds_nothing(request.operation, body):
            return NodeReply(status=204, description="No content")
        return NodeReply(status=200, description="OK", body=body)


def request_link(server: LinkOwner, link: ReceiverLink, address: NodeAddress) -> RequestLink:
    kind = CbsLink if address.kind is NodeKind.CBS else ManagementLink
    return kind(server, link, address)
