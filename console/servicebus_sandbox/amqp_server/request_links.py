"""Links to nodes that answer, `$cbs` and `{entity}/$management`: requests come in on one, replies leave on its partner.

What the nodes do is in `cbs` and `entity_management`, how requests and replies look in `requests`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from servicebus_amqp.errors import DecodeError
from servicebus_amqp.events import DeliveryReceived, DispositionReceived
from servicebus_amqp.outcomes import ACCEPTED
from servicebus_amqp.receiver import ReceiverLink
from servicebus_amqp.sender import SenderLink
from servicebus_sandbox.access.addresses import CBS, Address, NodeKind
from servicebus_sandbox.amqp_server import cbs, entity_management
from servicebus_sandbox.amqp_server.links import SETTLED_BY_SENDER
from servicebus_sandbox.amqp_server.requests import Reply, Request, Vocabulary, read_request, write_reply
from servicebus_sandbox.amqp_server.served_link import ServedLink, rejected
from servicebus_sandbox.broker.errors import BrokerError
from servicebus_sandbox.faults import Direction, Moment, Operation, Verdict
from servicebus_sandbox.serving.conditions import Refusal, bad_argument, refusal_by, refusal_of, unauthorized

if TYPE_CHECKING:
    from servicebus_sandbox.amqp_server.connection import AmqpServerProtocol

REQUEST_CREDIT: Final = 100
ASSOCIATED_LINK: Final = "associated-link-name"


class ReplyLink(ServedLink):
    """Replies of one node to the client."""

    link: SenderLink
    operations = frozenset({Operation.MANAGE})

    def __init__(self, server: AmqpServerProtocol, link: SenderLink, address: Address) -> None:
        super().__init__(server, link, address.path, address.resource)
        self.node = (address.kind, address.path.lower())
        remote = link.remote
        target = None if remote is None else remote.target
        self.names = {link.name, None if target is None else getattr(target, "address", None)}
        self._settled = remote is not None and remote.snd_settle_mode == SETTLED_BY_SENDER
        self._sent = 0

    def answers(self, node: tuple[NodeKind, str]) -> bool:
        """Whether replies of this node can leave here."""
        return self.node == node and self.link.is_attached

    def send(self, reply: bytes) -> None:
        """Send it now, or as soon as the client grants credit."""
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
    """Requests of the client to one node. A request is accepted first and answered on the reply link then."""

    link: ReceiverLink
    operations = frozenset({Operation.MANAGE})
    vocabulary: Vocabulary

    def __init__(self, server: AmqpServerProtocol, link: ReceiverLink, address: Address) -> None:
        super().__init__(server, link, address.path, address.resource)
        self.node = (address.kind, address.path.lower())
        self._taken = 0
        self._partner: ReplyLink | None = None  # where replies went last
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
        if verdict is Verdict.SWALLOW or self.is_cut_by(verdict):
            return
        associated = request.properties.get(ASSOCIATED_LINK)
        if associated:
            self.server.used(associated)
        if not event.settled:
            self.link.settle(event.delivery_id, ACCEPTED)
        reply = self._answer(request, verdict)
        if verdict is Verdict.TAKE_AND_RESET:
            self.server.abort()
        elif verdict is not Verdict.TAKE_SILENTLY:
            self._reply(request, reply)

    def _refuse(self, event: DeliveryReceived, error: DecodeError) -> None:
        if not event.settled:
            outcome = rejected(bad_argument(f"the request cannot be read: {error}"))
            self.link.settle(event.delivery_id, outcome)

    def verdict_on(self, request: Request) -> Verdict:
        """What faults make of the request."""
        operations = self.operations | entity_management.operations_of(request.operation)
        moment = Moment.TRANSFER if Operation.SEND in operations else Moment.REQUEST
        return self.server.node.faults.verdict(moment, self.path, operations)

    def _answer(self, request: Request, verdict: Verdict) -> Reply:
        try:
            refusal = refusal_by(verdict, self.path)
            if refusal is not None:
                raise refusal
            return self.perform(request)
        except Refusal as refusal:
            return _refused(refusal)
        except BrokerError as error:
            return _refused(refusal_of(error))

    def perform(self, request: Request) -> Reply:
        """Do what is asked. Raises Refusal and BrokerError."""
        raise NotImplementedError

    def _reply(self, request: Request, reply: Reply) -> None:
        link = self._partner
        if link is None or request.reply_to not in link.names or not link.answers(self.node):
            link = self._partner = self.server.reply_link(self, request.reply_to)
        if link is None:
            where = f"{self.resource or CBS} (reply-to {request.reply_to})"
            self.server.node.complaints.about("no reply link", f"has no link for the reply to a request to {where}")
            return
        link.send(write_reply(request, reply, self.vocabulary))


def _refused(refusal: Refusal) -> Reply:
    return Reply(status=refusal.status, description=refusal.description, condition=refusal.condition)


class CbsLink(RequestLink):
    """Tokens for this connection. Faults of entities do not reach it, those of contact do."""

    vocabulary = Vocabulary.CBS

    def verdict_on(self, request: Request) -> Verdict:
        return self.server.node.faults.verdict(Moment.TOKEN, self.path)

    def perform(self, request: Request) -> Reply:
        node = self.server.node
        today = node.time_of_day()
        access = cbs.judge_token(request.properties, request.body, judge=node.authorization, now=today)
        self.server.grant(replace(access, expires_at=access.expires_at + node.clock() - today))
        return Reply(status=202, description="Accepted")


class ManagementLink(RequestLink):
    """Operations on one entity."""

    vocabulary = Vocabulary.MANAGEMENT

    def perform(self, request: Request) -> Reply:
        right = entity_management.right_for(request.operation)
        if not self.server.grants.allow(self.resource, right, self.server.node.clock()):
            raise unauthorized(self.resource, right)
        namespace = self.server.node.namespace
        body = entity_management.perform(request.operation, namespace, self.path, request.body)
        if entity_management.finds_nothing(request.operation, body):
            return Reply(status=204, description="No content")
        return Reply(status=200, description="OK", body=body)


def request_link(server: AmqpServerProtocol, link: ReceiverLink, address: Address) -> RequestLink:
    kind = CbsLink if address.kind is NodeKind.CBS else ManagementLink
    return kind(server, link, address)
