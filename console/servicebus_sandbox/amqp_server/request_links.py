"""Links of the nodes `$cbs` and `{entity}/$management`: requests come in on one, replies leave on its partner.

A request has its operation in the application properties and its arguments in the body. The reply repeats the
request's message id, in its original type. To `$cbs` a client puts a token for an audience and gets a verdict. Kinds of
tokens are recognized by their form: clients write `jwt` beside shared access signatures.

Sources are reports of the service's users. The token is judged before the entity is looked up, so that names cannot be
probed (azure-sdk-for-net issue 44734). A bad token gets 401, `com.microsoft:auth-failed` and a description that begins
with the flaw, as in `ExpiredToken: ` (azure-service-bus-java 354) or `InvalidAudience: ` (azure-sdk-for-net 27644). A
missing entity gets 404 and the sentence below (azure-service-bus 304 and 451), for `.../$management` too. Reports do
not show whether that 404 has a condition; here it has none. A good token that lacks a right is accepted here and
refused where the right is needed, with `amqp:unauthorized-access` (azure-spring-boot 939).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, Final

from servicebus_amqp.encoding.amqp_types import Int, Symbol
from servicebus_amqp.encoding.message_sections import (
    Properties,
    Sections,
    read_map,
    read_properties,
    read_value,
    split,
    write_application_properties,
    write_properties,
    write_value,
)
from servicebus_amqp.encoding.messaging_types import ACCEPTED
from servicebus_amqp.node_address import CBS, NodeAddress, NodeKind
from servicebus_amqp.protocol.link_receiver import ReceiverLink
from servicebus_amqp.protocol.link_sender import SenderLink
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived
from servicebus_amqp.protocol_errors import DecodeError
from servicebus_sandbox.access.authorization import Authorization, read_token
from servicebus_sandbox.access.grants import ProvenAccess, TokenError
from servicebus_sandbox.amqp_server import management_node
from servicebus_sandbox.amqp_server.message_links import SETTLED_BY_SENDER
from servicebus_sandbox.amqp_server.served_link import ServedLink, ServedLinkOwner, rejected
from servicebus_sandbox.broker.broker_errors import BrokerError, EntityNotFound
from servicebus_sandbox.faults import UNKNOWN_CALLER, Caller, Direction, FaultVerdict, InjectionPoint, Operation
from servicebus_sandbox.serving.amqp_conditions import AmqpRefusal, bad_argument, refusal_by, refusal_of, unauthorized

PUT_TOKEN: Final = "put-token"
AUTH_FAILED: Final = "com.microsoft:auth-failed"
REQUEST_CREDIT: Final = 100
ASSOCIATED_LINK: Final = "associated-link-name"


def judge_token(properties: Mapping[str, Any], token: object, *, judge: Authorization, now: float) -> ProvenAccess:
    """Return the access that a put-token request proves.

    Raises AmqpRefusal: 400 for a malformed request, 401 for a bad token, 404 for a missing entity.
    """
    operation, audience = properties.get("operation"), properties.get("name")
    if operation != PUT_TOKEN:
        raise bad_argument(f"the token node knows the operation '{PUT_TOKEN}', not '{operation}'")
    if not isinstance(audience, str) or not isinstance(token, str):
        raise bad_argument("a put-token request needs 'name', the audience, and the token as a string value")
    try:
        access = judge.judge(token, audience, now)
        judge.check_entity(access.path)
    except TokenError as error:
        raise AmqpRefusal(AUTH_FAILED, error.reason, 401) from error
    except EntityNotFound as error:
        # no condition: with one, the SDK hides status and description
        raise AmqpRefusal("", f"The messaging entity '{audience}' could not be found.", 404) from error
    return access


class ReplyVocabulary(Enum):
    """A node's names for status, description and error condition in its replies."""

    CBS = ("status-code", "status-description", "error-condition")
    MANAGEMENT = ("statusCode", "statusDescription", "errorCondition")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequest:
    """message_id: echoed in its original type. properties: the application properties."""

    message_id: Any
    reply_to: str | None
    properties: Mapping[str, Any]
    body: Any

    @property
    def operation(self) -> str:
        return str(self.properties.get("operation", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReply:
    """status: as in HTTP. condition: present with most failures. body: the value; None for an empty one."""

    status: int
    description: str
    condition: str | None = None
    body: Any = None


def read_request(data: bytes) -> NodeRequest:
    """Read a request from its encoded message. Raises DecodeError."""
    found = split(data)
    properties = read_properties(found.properties)
    return NodeRequest(
        message_id=properties.message_id,
        reply_to=properties.reply_to if isinstance(properties.reply_to, str) else None,
        properties=read_map(found.application_properties),
        body=read_value(found.body) if found.body else None,
    )


def write_reply(request: NodeRequest, reply: NodeReply, vocabulary: ReplyVocabulary) -> bytes:
    """Return the encoded reply to a request."""
    status, description, condition = vocabulary.value
    outcome: dict[str, Any] = {status: Int(reply.status), description: reply.description}
    if reply.condition:
        outcome[condition] = Symbol(reply.condition)
    return Sections(
        properties=write_properties(Properties(correlation_id=request.message_id)),
        application_properties=write_application_properties(outcome),
        body=write_value(reply.body),
    ).join()


class ReplyLink(ServedLink):
    """The replies of one node to the client."""

    link: SenderLink
    operations = frozenset({Operation.MANAGE})

    def __init__(self, server: ServedLinkOwner, link: SenderLink, address: NodeAddress) -> None:
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

    def __init__(self, server: ServedLinkOwner, link: ReceiverLink, address: NodeAddress) -> None:
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
        right = management_node.right_for(request.operation)
        if not self.server.grants.allow(self.resource, right, self.server.node.clock()):
            raise unauthorized(self.resource, right)
        namespace = self.server.node.namespace
        body = management_node.perform(request.operation, namespace, self.path, request.body)
        if management_node.finds_nothing(request.operation, body):
            return NodeReply(status=204, description="No content")
        return NodeReply(status=200, description="OK", body=body)


def request_link(server: ServedLinkOwner, link: ReceiverLink, address: NodeAddress) -> RequestLink:
    kind = CbsLink if address.kind is NodeKind.CBS else ManagementLink
    return kind(server, link, address)
