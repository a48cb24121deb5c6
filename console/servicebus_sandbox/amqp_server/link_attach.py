"""Attaches: the requested node, authorization, and the link that serves it.

An attach is answered in full or refused with null termini. A receiver that requests a session is answered when a
session is available. An attach that a fault swallows gets no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from servicebus_amqp.access.sas_tokens import TokenError, read_token
from servicebus_amqp.encoding.amqp_types import Described, Symbol, ULong
from servicebus_amqp.encoding.messaging_types import Source
from servicebus_amqp.node_address import CBS, NodeAddress, NodeKind, parse_address
from servicebus_amqp.nodes.request_ends import (
    AmqpRefusal,
    NodeReply,
    NodeRequest,
    ReplyEnd,
    ReplyVocabulary,
    RequestEnd,
    bad_argument,
    bad_token,
    error_of,
    no_such_entity,
    read_put_token,
    refused,
    too_many_links,
    unauthorized,
    write_reply,
)
from servicebus_amqp.protocol.link_receiver import ReceiverLink
from servicebus_amqp.protocol.link_sender import SenderLink
from servicebus_amqp.protocol.protocol_events import AttachRequested, DeliveryReceived, DispositionReceived, LinkEnd
from servicebus_amqp.server.server_connection import MAX_LINKS
from servicebus_sandbox.access.authorization import Authorization
from servicebus_sandbox.access.token_issuer import ProvenAccess
from servicebus_sandbox.amqp_server import management_node
from servicebus_sandbox.amqp_server.message_links import MAX_BATCH_BYTES, IncomingLink, OutgoingLink
from servicebus_sandbox.amqp_server.property_codec import TICKS_AT_EPOCH, TICKS_PER_SECOND
from servicebus_sandbox.amqp_server.served_link import ServedLink, ServedLinkOwner
from servicebus_sandbox.broker.broker_errors import BrokerError, EntityNotFound
from servicebus_sandbox.broker.entity_settings import Right
from servicebus_sandbox.broker.queues.session_queue import MessageSession, SessionQueue
from servicebus_sandbox.faults import UNKNOWN_CALLER, Caller, Direction, FaultVerdict, InjectionPoint, Operation
from servicebus_sandbox.serving.amqp_conditions import no_session_in_time, refusal_by, refusal_of

# Links of the nodes `$cbs` and `{entity}/$management` under faults; `servicebus_amqp.nodes` has their protocol.
#
# The token is judged before the entity is looked up, so that names cannot be probed (azure-sdk-for-net issue 44734). A
# missing entity gets 404 for `.../$management` too. Reports of the service's users do not show whether that 404 has a
# condition; here it has none. A good token that lacks a right is accepted here and refused where the right is needed,
# with `amqp:unauthorized-access` (azure-spring-boot 939).

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


SESSION_FILTER: Final = "com.microsoft:session-filter"
LOCKED_UNTIL: Final = "com.microsoft:locked-until-utc"
TIMEOUT: Final = "com.microsoft:timeout"
BATCH_SIZE: Final = "com.microsoft:max-message-batch-size"
SESSION_WAIT_SECONDS: Final = 60.0
_ORDINARY: Final = ("com.microsoft:timeout", "com.microsoft:session-cannot-be-locked", "com.microsoft:entity-disabled")
"""Refusals that are not a mistake of the client."""
MAX_REQUEST_BYTES: Final = 1024 * 1024
MAX_TOKEN_REQUEST_BYTES: Final = 64 * 1024


def attach(server: ServedLinkOwner, event: AttachRequested) -> None:
    """Answer one attach: serve the link, refuse it or, by a fault, stay silent."""
    try:
        _serve(server, event)
    except AmqpRefusal as refusal:
        _refuse(server, event.link, refusal)
    except BrokerError as error:
        _refuse(server, event.link, refusal_of(error))


def _refuse(server: ServedLinkOwner, link: LinkEnd, refusal: AmqpRefusal) -> None:
    link.refuse(error_of(refusal))
    if server.node.faults.is_quiet and refusal.condition not in _ORDINARY:
        server.node.complaints.about(refusal.condition, f"refused a link: {refusal.description}")


def attach_latency(server: ServedLinkOwner, event: AttachRequested) -> float:
    """Return the seconds by which faults of the entity delay the answer."""
    try:
        address = _address_of(event)
    except AmqpRefusal:
        return 0.0
    operations = _operations_of(event.link, address) | {Operation.ATTACH}
    caller = server.caller(address.resource, _right_for(event.link, address))
    return sum(server.node.faults.latency(address.path, operations, direction, caller) for direction in Direction)


def _serve(server: ServedLinkOwner, event: AttachRequested) -> None:
    link = event.link
    if not link.is_requested:
        return  # the client detached while its answer was delayed
    if len(server.links) >= MAX_LINKS:
        raise too_many_links()
    address = _address_of(event)
    if address.kind is not NodeKind.CBS:
        right = _right_for(link, address)
        if not server.grants.allow(address.resource, right, server.node.clock()):
            raise unauthorized(address.resource, right)
        if _is_cut(server, link, address):
            return
    if isinstance(link, ReceiverLink):
        _serve_sender(server, link, address)
    elif isinstance(link, SenderLink):
        _serve_receiver(server, link, address, event)


def _is_cut(server: ServedLinkOwner, link: LinkEnd, address: NodeAddress) -> bool:
    """Return whether a fault leaves the attach unanswered. Raises AmqpRefusal if the fault refuses it."""
    faults = server.node.faults
    if faults.is_quiet:
        return False
    caller = server.caller(address.resource, _right_for(link, address))
    verdict = faults.verdict(InjectionPoint.ATTACH, address.path, _operations_of(link, address), caller)
    refusal = refusal_by(verdict, address.path)
    if refusal is not None:
        raise refusal
    if verdict is FaultVerdict.RESET:
        server.abort()
    elif verdict is FaultVerdict.DISCONNECT:
        server.disconnect(address.path)
    return verdict is not FaultVerdict.SERVE


def _operations_of(link: LinkEnd, address: NodeAddress) -> frozenset[Operation]:
    """Return the operations under which faults find the link."""
    if address.kind is NodeKind.MANAGEMENT:
        return ReplyLink.operations
    return IncomingLink.operations if isinstance(link, ReceiverLink) else OutgoingLink.operations


def _address_of(event: AttachRequested) -> NodeAddress:
    """Return the node that a client requests: the target of its sender or the source of its receiver."""
    terminus = event.target if isinstance(event.link, ReceiverLink) else event.source
    address = getattr(terminus, "address", None)
    if not isinstance(address, str):
        raise AmqpRefusal(
            "amqp:not-implemented", "a link needs an address; transactions and dynamic nodes are not served", 501
        )
    return parse_address(address)


def _right_for(link: LinkEnd, address: NodeAddress) -> Right | None:
    """Return the right that opens the link. A management node opens with any right and checks each request."""
    if address.kind is NodeKind.MANAGEMENT:
        return None
    return IncomingLink.right if isinstance(link, ReceiverLink) else OutgoingLink.right


def _serve_sender(server: ServedLinkOwner, link: ReceiverLink, address: NodeAddress) -> None:
    """Serve a client that sends messages to an entity or requests to a node."""
    if address.kind is NodeKind.ENTITY:
        target = server.node.namespace.send_target(address.path)
        target.intake.check_open()
        limit = target.intake.max_message_bytes
        properties = {Symbol(BATCH_SIZE): ULong(min(limit, MAX_BATCH_BYTES))}
        link.accept_attach(properties=properties, max_message_size=limit)
        server.largest = max(server.largest, limit)
        server.serve(IncomingLink(server, link, address.path, address.resource, target))
        return
    if address.kind is NodeKind.MANAGEMENT:
        server.node.namespace.owner(address.path)
    limit = MAX_TOKEN_REQUEST_BYTES if address.kind is NodeKind.CBS else MAX_REQUEST_BYTES
    link.accept_attach(max_message_size=limit)
    server.serve(request_link(server, link, address))


def _serve_receiver(server: ServedLinkOwner, link: SenderLink, address: NodeAddress, event: AttachRequested) -> None:
    """Serve a client that receives messages of a queue or session, or replies of a node."""
    if address.kind is not NodeKind.ENTITY:
        if address.kind is NodeKind.MANAGEMENT:
            server.node.namespace.owner(address.path)
        link.accept_attach()
        server.serve(ReplyLink(server, link, address))
        return
    messages = server.node.namespace.message_queue(address.path)
    served = OutgoingLink(server, link, address.path, address.resource, messages)
    wanted = _SessionWanted.of(event)
    if wanted is None:
        messages.attach(served.consumer)
        link.accept_attach()
    elif isinstance(messages, SessionQueue):
        wanted.accept(served, messages)
    else:
        raise AmqpRefusal("amqp:not-allowed", f"'{address.path}' has no sessions; attach without a session filter", 400)
    server.serve(served)


class _SessionWanted:
    """A receiver's session filter, and the answer to it."""

    def __init__(self, source: Source, name: str, value: Any, timeout_ms: object) -> None:
        self._source = source
        self._name = name
        self._value = value
        self._timeout = timeout_ms / 1000 if isinstance(timeout_ms, int) else SESSION_WAIT_SECONDS
        self._id = value.value if isinstance(value, Described) else value

    @classmethod
    def of(cls, event: AttachRequested) -> _SessionWanted | None:
        source = event.source
        for name, value in ((source and source.filter) or {}).items():
            if source is not None and name == SESSION_FILTER:
                return cls(source, name, value, event.properties.get(TIMEOUT))
        return None

    def accept(self, served: OutgoingLink, messages: SessionQueue) -> None:
        """Attach to the session now, or wait for the next available one. Raises BrokerError, AmqpRefusal."""
        if self._id is None:
            until = served.server.node.clock() + self._timeout
            messages.attach_to_next_session(served.consumer, until, partial(self._answer, served))
        elif isinstance(self._id, str):
            self._confirm(served, messages.attach_to_session(served.consumer, self._id))
        else:
            raise bad_argument(f"the session filter is {self._id!r}; it has to be a string or null")

    def _answer(self, served: OutgoingLink, session: MessageSession | None) -> None:
        if session is not None:
            self._confirm(served, session)
            return
        served.gone()
        served.link.refuse(error_of(no_session_in_time(served.path)))
        served.server.forget(served)

    def _confirm(self, served: OutgoingLink, session: MessageSession) -> None:
        given = Described(self._value.descriptor, session.id) if isinstance(self._value, Described) else session.id
        ticks = TICKS_AT_EPOCH + round(session.locked_until * TICKS_PER_SECOND)
        served.link.accept_attach(
            self._source.with_filter({**(self._source.filter or {}), self._name: given}),
            properties={Symbol(LOCKED_UNTIL): ticks},
        )
        served.server.node.flush_soon(served.server)
