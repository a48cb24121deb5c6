"""Links of the nodes `$cbs` and `{entity}/$management` under faults; `servicebus_amqp.nodes` has their protocol.

The token is judged before the entity is looked up, so that names cannot be probed (azure-sdk-for-net issue 44734). A
missing entity gets 404 for `.../$management` too. Reports of the service's users do not show whether that 404 has a
condition; here it has none. A good token that lacks a right is accepted here and refused where the right is needed,
with `amqp:unauthorized-access` (azure-spring-boot 939).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from servicebus_amqp.access.sas_tokens import TokenError, read_token
from servicebus_amqp.node_address import CBS, NodeAddress, NodeKind
from servicebus_amqp.nodes.request_ends import (
    AmqpRefusal,
    NodeReply,
    NodeRequest,
    ReplyEnd,
    ReplyVocabulary,
    RequestEnd,
    bad_token,
    no_such_entity,
    read_put_token,
    refused,
    unauthorized,
    write_reply,
)
from servicebus_amqp.protocol.link_receiver import ReceiverLink
from servicebus_amqp.protocol.link_sender import SenderLink
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived
from servicebus_sandbox.access.authorization import Authorization
from servicebus_sandbox.access.token_issuer import ProvenAccess
from servicebus_sandbox.amqp_server import management_node
from servicebus_sandbox.amqp_server.served_link import ServedLink, ServedLinkOwner
from servicebus_sandbox.broker.broker_errors import BrokerError, EntityNotFound
from servicebus_sandbox.faults import UNKNOWN_CALLER, Caller, Direction, FaultVerdict, InjectionPoint, Operation
from servicebus_sandbox.serving.amqp_conditions import refusal_by, refusal_of

ASSOCIATED_LINK: Final = "associated-link-name"


def judge_token(properties: Mapping[str, Any], token: object, *, judge: Authorization, now: float) -> ProvenAccess:
    """Return the access that a put-token request proves.

    Raises AmqpRefusal: 400 for a malformed request, 401 for a bad token, 404 for a missing entity.
    """
    audience, text = read_put_token(properties, token)
    try:
        access = judge.judge(text, audience, now)
        judge.check_entity(access.path)
    except TokenError as error:
        raise bad_token(error) from error
    except EntityNotFound as error:
        raise no_such_entity(audience) from error
    return access


class ReplyLink(ServedLink):
    """The replies of one node to the client."""

    link: SenderLink
    operations = frozenset({Operation.MANAGE})

    def __init__(self, server: ServedLinkOwner, link: SenderLink, address: NodeAddress) -> None:
        super().__init__(server, link, address.path, address.resource)
        self.replies = ReplyEnd(link, address)

    def send(self, reply: bytes) -> None:
        """Send a reply now, or when the client grants credit."""
        if self.is_slow:
            self.later(partial(self.replies.send, reply), Direction.OUT)
        else:
            self.replies.send(reply)

    def on_disposition(self, event: DispositionReceived) -> None:
        self.replies.on_disposition(event)


class RequestLink(ServedLink):
    """The client's requests to one node. A request is accepted first, then answered on the reply link."""

    link: ReceiverLink
    operations = frozenset({Operation.MANAGE})
    vocabulary: ReplyVocabulary

    def __init__(self, server: ServedLinkOwner, link: ReceiverLink, address: NodeAddress) -> None:
        super().__init__(server, link, address.path, address.resource)
        self.requests = RequestEnd(link, address)

    def on_delivery(self, event: DeliveryReceived) -> None:
        request = self.requests.read(event)
        if request is None:
            return
        verdict = self.verdict_on(request)
        if verdict is FaultVerdict.SWALLOW or self.is_cut_by(verdict):
            return
        associated = request.properties.get(ASSOCIATED_LINK)
        if associated:
            self.server.used(associated)
        self.requests.accept(event)
        reply = self._answer(request, verdict)
        if verdict is FaultVerdict.TAKE_AND_RESET:
            self.server.abort()
        elif verdict is not FaultVerdict.TAKE_SILENTLY:
            self._reply(request, reply)

    def verdict_on(self, request: NodeRequest) -> FaultVerdict:
        """Return the faults' verdict on the request."""
        operations = self.operations | management_node.operations_of(request.operation)
        moment = InjectionPoint.TRANSFER if Operation.SEND in operations else InjectionPoint.REQUEST
        return self.server.node.faults.verdict(moment, self.path, operations, self.caller_of(request))

    def caller_of(self, request: NodeRequest) -> Caller:
        """Return the client with the keys that authorize the request."""
        if not self.server.node.faults.knows_clients:
            return UNKNOWN_CALLER
        return self.server.caller(self.resource, management_node.right_for(request.operation))

    def _answer(self, request: NodeRequest, verdict: FaultVerdict) -> NodeReply:
        try:
            refusal = refusal_by(verdict, self.path)
            if refusal is not None:
                raise refusal
            return self.perform(request)
        except AmqpRefusal as refusal:
            return refused(refusal)
        except BrokerError as error:
            return refused(refusal_of(error))

    def perform(self, request: NodeRequest) -> NodeReply:
        """Perform the request. Raises AmqpRefusal and BrokerError."""
        raise NotImplementedError

    def _reply(self, request: NodeRequest, reply: NodeReply) -> None:
        links = self.server.links
        ends = (link.replies for link in links.values() if isinstance(link, ReplyLink))
        end = self.requests.partner(request.reply_to, ends)
        found = None if end is None else links.get(end.link)
        if not isinstance(found, ReplyLink):
            where = f"{self.resource or CBS} (reply-to {request.reply_to})"
            self.server.node.complaints.about("no reply link", f"has no link for the reply to a request to {where}")
            return
        found.send(write_reply(request, reply, self.vocabulary))


class CbsLink(RequestLink):
    """The tokens of this connection. Faults of entities do not affect it, faults of contact do."""

    vocabulary = ReplyVocabulary.CBS

    def verdict_on(self, request: NodeRequest) -> FaultVerdict:
        return self.server.node.faults.verdict(InjectionPoint.TOKEN, self.path, caller=self.caller_of(request))

    def caller_of(self, request: NodeRequest) -> Caller:
        """Return the client with the key that the token names."""
        try:
            named = read_token(request.body).key_names if isinstance(request.body, str) else ()
        except TokenError:
            named = ()
        return Caller(container_id=self.server.container_id, keys=frozenset(named))

    def perform(self, request: NodeRequest) -> NodeReply:
        node = self.server.node
        today = node.time_of_day()
        access = judge_token(request.properties, request.body, judge=node.authorization, now=today)
        self.server.grant(replace(access, expires_at=access.expires_at + node.clock() - today))
        return NodeReply(status=202, description="Accepted")


class ManagementLink(RequestLink):
    """The operations on one entity."""

    vocabulary = ReplyVocabulary.MANAGEMENT

    def perform(self, request: NodeRequest) -> NodeReply:
        namespace = self.server.node.namespace
        for right in management_node.rights_for(request.operation, namespace.behaves):
            if not self.server.grants.allow(self.resource, right, self.server.node.clock()):
                raise unauthorized(self.resource, right)
        body = management_node.perform(request.operation, namespace, self.path, request.body)
        if management_node.finds_nothing(request.operation, body):
            return NodeReply(status=204, description="No content")
        return NodeReply(status=200, description="OK", body=body)


def request_link(server: ServedLinkOwner, link: ReceiverLink, address: NodeAddress) -> RequestLink:
    kind = CbsLink if address.kind is NodeKind.CBS else ManagementLink
    return kind(server, link, address)
