"""Attaches: the requested node, authorization, and the link that serves it.

An attach is answered in full or refused with null termini. A receiver that requests a session is answered when a
session is available. An attach that a fault swallows gets no answer.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from servicebus_amqp.access import CBS, NodeAddress, NodeKind, parse_address
from servicebus_amqp.encoding.codec import Described, Symbol, ULong
from servicebus_amqp.encoding.performatives import Coordinator, Source
from servicebus_amqp.nodes.request_ends import (
    AmqpRefusal,
    accept_requests,
    bad_argument,
    error_of,
    too_many_links,
    unauthorized,
)
from servicebus_amqp.protocol.links import AttachRequested, Link, ReceiverLink, SenderLink
from servicebus_amqp.server.server_connection import MAX_LINKS
from servicebus_sandbox.amqp_server.broker_links import (
    MAX_BATCH_BYTES,
    BrokerLink,
    BrokerLinkOwner,
    CbsLink,
    IncomingLink,
    OutgoingLink,
    ReplyLink,
    request_link,
)
from servicebus_sandbox.amqp_server.coordinator import serve_coordinator
from servicebus_sandbox.amqp_server.message_codec import TICKS_AT_EPOCH, TICKS_PER_SECOND
from servicebus_sandbox.broker.broker_errors import BrokerError
from servicebus_sandbox.broker.queues.session_queue import MessageSession, SessionQueue
from servicebus_sandbox.faults import Direction, FaultVerdict, InjectionPoint, Operation
from servicebus_sandbox.serving.amqp_conditions import (
    no_session_in_time,
    refusal_by,
    refusal_of,
    session_not_allowed,
    tracked,
)

SESSION_FILTER: Final = "com.microsoft:session-filter"
SHARED_SESSION_FILTER: Final = "com.microsoft:non-exclusive-session-filter"
LOCKED_UNTIL: Final = "com.microsoft:locked-until-utc"
TIMEOUT: Final = "com.microsoft:timeout"
BATCH_SIZE: Final = "com.microsoft:max-message-batch-size"
SESSION_WAIT_SECONDS: Final = 60.0
_ORDINARY: Final = ("com.microsoft:timeout", "com.microsoft:session-cannot-be-locked", "com.microsoft:entity-disabled")
"""Refusals that are not a mistake of the client."""


def attach(server: BrokerLinkOwner, event: AttachRequested) -> None:
    """Answer one attach: serve the link, refuse it or, by a fault, stay silent."""
    try:
        _serve(server, event)
    except AmqpRefusal as refusal:
        _refuse(server, event.link, refusal)
    except BrokerError as error:
        _refuse(server, event.link, refusal_of(error))


def _refuse(server: BrokerLinkOwner, link: Link, refusal: AmqpRefusal) -> None:
    link.refuse(error_of(tracked(refusal)))
    if server.node.faults.is_quiet and refusal.condition not in _ORDINARY:
        server.node.complaints.about(refusal.condition, f"refused a link: {refusal.description}")


def attach_latency(server: BrokerLinkOwner, event: AttachRequested) -> float:
    """Return the seconds by which faults of the entity delay the answer."""
    try:
        address = _address_of(event)
    except AmqpRefusal:
        return 0.0
    operations = _kind_of(event.link, address).operations | {Operation.ATTACH}
    caller = server.caller(address.resource, _kind_of(event.link, address).right)
    return sum(server.node.faults.latency(address.path, operations, direction, caller) for direction in Direction)


def _serve(server: BrokerLinkOwner, event: AttachRequested) -> None:
    link = event.link
    if not link.is_requested:
        return  # the client detached while its answer was delayed
    if len(server.links) >= MAX_LINKS:
        raise too_many_links()
    if isinstance(link, ReceiverLink) and isinstance(event.target, Coordinator):
        serve_coordinator(server, link)
        return
    address = _address_of(event)
    if address.kind is not NodeKind.CBS:
        right = _kind_of(link, address).right
        if not server.grants.allow(address.resource, right, server.node.clock()):
            raise unauthorized(address.resource, right)
        if _is_cut(server, link, address):
            return
    _admit_to_session(server, link, address)
    if isinstance(link, ReceiverLink):
        _serve_sender(server, link, address)
    elif isinstance(link, SenderLink):
        _serve_receiver(server, link, address, event)


def _admit_to_session(server: BrokerLinkOwner, link: Link, address: NodeAddress) -> None:
    """Note the link in its session. Raises AmqpRefusal beside a coordinator, EntityNotFound."""
    session = server.sessions[link.session]
    session.begin(with_coordinator=False)
    if session.spans_entities and address.kind is NodeKind.ENTITY:
        session.admit(server.node.namespace.top_level(address.path), is_send=isinstance(link, ReceiverLink))


def _is_cut(server: BrokerLinkOwner, link: Link, address: NodeAddress) -> bool:
    """Return whether a fault leaves the attach unanswered. Raises AmqpRefusal if the fault refuses it."""
    faults = server.node.faults
    if faults.is_quiet:
        return False
    right = _kind_of(link, address).right
    caller = server.caller(address.resource, right)
    verdict = faults.verdict(InjectionPoint.ATTACH, address.path, _kind_of(link, address).operations, caller)
    refusal = refusal_by(verdict, server.node.namespace.name, address.path, right)
    if refusal is not None:
        raise refusal
    if verdict is FaultVerdict.RESET:
        server.abort()
    elif verdict is FaultVerdict.DISCONNECT:
        server.disconnect(address.path)
    return verdict is not FaultVerdict.SERVE


def _kind_of(link: Link, address: NodeAddress) -> type[BrokerLink]:
    """Return the class with the right that opens a link, and the operations under which faults find it.

    A management node opens with any right and checks each request.
    """
    if address.kind is NodeKind.MANAGEMENT:
        return ReplyLink
    return IncomingLink if isinstance(link, ReceiverLink) else OutgoingLink


def _address_of(event: AttachRequested) -> NodeAddress:
    """Return the node that a client requests: the target of its sender or the source of its receiver."""
    terminus = event.target if isinstance(event.link, ReceiverLink) else event.source
    address = getattr(terminus, "address", None)
    if not isinstance(address, str):
        raise AmqpRefusal("amqp:not-implemented", "a link needs an address; dynamic nodes are not served", 501)
    return parse_address(address)


def _serve_sender(server: BrokerLinkOwner, link: ReceiverLink, address: NodeAddress) -> None:
    """Serve a client that sends messages to an entity or requests to a node."""
    if address.kind is NodeKind.ENTITY:
        target = server.node.namespace.send_target(address.path)
        target.intake.check_open()
        limit = target.intake.max_message_bytes
        batch = {Symbol(BATCH_SIZE): ULong(min(limit, MAX_BATCH_BYTES))}
        link.accept_attach(
            properties=batch if server.node.namespace.behaves.tell_batch_size else None, max_message_size=limit
        )
        server.largest = max(server.largest, limit)
        server.serve(IncomingLink(server, link, address.path, address.resource, target))
        return
    if address.kind is NodeKind.MANAGEMENT:
        server.node.namespace.owner(address.path)
    elif any(isinstance(each, CbsLink) for each in server.links.values()):
        raise AmqpRefusal("amqp:not-allowed", f"a connection has one sender to {CBS}: close the present one first", 400)
    accept_requests(link, address)
    server.serve(request_link(server, link, address))


def _serve_receiver(server: BrokerLinkOwner, link: SenderLink, address: NodeAddress, event: AttachRequested) -> None:
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
        raise session_not_allowed(address.path)
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
            if name == SHARED_SESSION_FILTER:
                raise AmqpRefusal("amqp:not-implemented", "a session has one receiver: accept it exclusively", 501)
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
        served.link.refuse(error_of(tracked(no_session_in_time(self._timeout), served.tracker)))
        served.server.forget(served)

    def _confirm(self, served: OutgoingLink, session: MessageSession) -> None:
        given = Described(self._value.descriptor, session.id) if isinstance(self._value, Described) else session.id
        ticks = TICKS_AT_EPOCH + round(session.locked_until * TICKS_PER_SECOND)
        served.link.accept_attach(
            self._source.with_filter({**(self._source.filter or {}), self._name: given}),
            properties={Symbol(LOCKED_UNTIL): ticks},
        )
        served.server.node.flush_soon(served.server)
