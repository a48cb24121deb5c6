"""The server's two ends of a node's links: requests come in on one, replies leave on its partner.

A request is accepted first, then answered. The reply leaves on the link that its `reply-to` names; a request that names
none, as Microsoft's Python client's, is answered on a link of the same node. A reply waits for credit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from servicebus_amqp.access import NodeAddress, NodeKind, TokenError
from servicebus_amqp.encoding.codec import Described, Int, Symbol
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
from servicebus_amqp.encoding.performatives import ACCEPTED, Error, Rejected
from servicebus_amqp.protocol.links import (
    ANY_SIZE,
    AttachRequested,
    DeliveryReceived,
    DispositionReceived,
    Event,
    ReceiverLink,
    SenderLink,
    SessionBegun,
)
from servicebus_amqp.protocol_errors import DecodeError

# Refusals for clients: a condition and a description for AMQP, a status for the reply of a node.


class AmqpRefusal(Exception):
    """A refusal for a client: condition and description for AMQP, `status` for a management reply."""

    def __init__(self, condition: str, description: str, status: int) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description
        self.status = status


def error_of(refusal: AmqpRefusal) -> Error:
    """Return the refusal as the error of a link or an outcome."""
    return Error(condition=refusal.condition, description=refusal.description)


def rejected(refusal: AmqpRefusal) -> Rejected:
    """Return the refusal as the outcome of a message."""
    return Rejected(error=error_of(refusal))


def bad_argument(description: str) -> AmqpRefusal:
    return AmqpRefusal("com.microsoft:argument-error", description, 400)


def unauthorized(path: str, right: str | None) -> AmqpRefusal:
    """Return the refusal for a missing `right` on the path; None if no token covers the path. Clients match its words.

    The claim has to come from a token that was put on $cbs before, or from SASL PLAIN.
    """
    claims = "Manage,Send,Listen" if right is None else right
    text = f"Unauthorized access. '{claims}' claim(s) are required to perform this operation. Resource: '{path}'."
    return AmqpRefusal("amqp:unauthorized-access", text, 401)


def force_detached(link: str, code: str, details: str) -> AmqpRefusal:
    """Return the forced end of a link, in the service's words. link: its name."""
    text = f"The link '{link}' is force detached. Code: {code}. Details: {details}"
    return AmqpRefusal("amqp:link:detach-forced", text, 500)


def revoked(link: str, path: str, right: str | None) -> AmqpRefusal:
    """Return the end of a link whose token or right has ended (azure-sdk-for-go 16394)."""
    return force_detached(link, "RenewToken", unauthorized(path, right).description)


def unknown_state(state: object) -> AmqpRefusal:
    """Return the refusal of a delivery state that a link cannot handle."""
    name = str(state.descriptor) if isinstance(state, Described) else type(state).__name__
    return AmqpRefusal("amqp:not-implemented", f"this link knows no delivery state '{name[:40]}'; send none", 501)


def too_many_tokens() -> AmqpRefusal:
    return AmqpRefusal("amqp:resource-limit-exceeded", "this connection holds tokens for too many audiences", 403)


def too_many_links() -> AmqpRefusal:
    return AmqpRefusal("amqp:resource-limit-exceeded", "this connection has too many links; detach some first", 403)


def too_many_replies() -> AmqpRefusal:
    text = "too many replies wait for credit; grant some on the link that receives them"
    return AmqpRefusal("amqp:resource-limit-exceeded", text, 403)


# Requests to the nodes `$cbs` and `{entity}/$management`, and their replies.
#
# A request has its operation in the application properties and its arguments in the body. The reply repeats the
# request's message id, in its original type.


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

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


def write_request(message_id: str, reply_to: str, properties: dict[str, Any], body: Any) -> bytes:
    """Return an encoded request. properties: the application properties, with the operation."""
    return Sections(
        properties=write_properties(Properties(message_id=message_id, reply_to=reply_to)),
        application_properties=write_application_properties(properties),
        body=write_value(body),
    ).join()


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


def read_reply(data: bytes) -> NodeReply:
    """Return a node's reply in either vocabulary. Raises DecodeError."""
    found = split(data)
    properties = read_map(found.application_properties)
    status, description, condition = (
        next((properties[name] for name in names if name in properties), None)
        for names in zip(*(vocabulary.value for vocabulary in ReplyVocabulary), strict=True)
    )
    if not isinstance(status, int):
        raise DecodeError(f"it carries no status, only {', '.join(map(str, properties)) or 'nothing'}")
    return NodeReply(
        status=int(status),
        description=str(description or ""),
        condition=None if condition is None else str(condition),
        body=read_value(found.body) if found.body else None,
    )


def refused(refusal: AmqpRefusal) -> NodeReply:
    """Return the reply to a request that is refused."""
    return NodeReply(status=refusal.status, description=refusal.description, condition=refusal.condition)


# The token node `$cbs`: a client puts a token for an audience and gets a verdict.
#
# Kinds of tokens are recognized by their form: clients write `jwt` beside shared access signatures. A bad token gets
# 401, `com.microsoft:auth-failed` and a description that begins with the flaw, as in `ExpiredToken: ` (azure-service-
# bus-java 354) or `InvalidAudience: ` (azure-sdk-for-net 27644). A missing entity gets 404 without a condition: with
# one, the Python SDK hides status and description (azure-service-bus 304 and 451).

PUT_TOKEN: Final = "put-token"
AUTH_FAILED: Final = "com.microsoft:auth-failed"


def read_put_token(properties: Mapping[str, Any], token: object) -> tuple[str, str]:
    """Return the audience and the token of a put-token request. Raises AmqpRefusal: 400 for any other request."""
    operation, audience = properties.get("operation"), properties.get("name")
    if operation != PUT_TOKEN:
        raise bad_argument(f"the token node knows the operation '{PUT_TOKEN}', not '{operation}'")
    if not isinstance(audience, str) or not isinstance(token, str):
        raise bad_argument("a put-token request needs 'name', the audience, and the token as a string value")
    return audience, token


def bad_token(error: TokenError) -> AmqpRefusal:
    """Return the refusal of a token that proves nothing."""
    return AmqpRefusal(AUTH_FAILED, error.reason, 401)


def not_found_text(name: str) -> str:
    """Return the sentence by which every SDK knows a missing entity."""
    return (
        f"The messaging entity '{name}' could not be found. To know more visit https://aka.ms/sbResourceMgrExceptions."
    )


def no_such_entity(audience: str) -> AmqpRefusal:
    """Return the refusal of a good token for an entity that does not exist."""
    return AmqpRefusal("", not_found_text(audience), 404)


def no_reply_link(reply_to: str | None, node: str) -> AmqpRefusal:
    """Return the refusal of a request whose reply has no link (azure-sdk-for-js 25258); its condition is unknown."""
    text = f"The response link '{reply_to or ''}' was not found in the entity management node {node}."
    return AmqpRefusal("amqp:not-found", text, 404)


# What one connection used before its first good token, and the refusal beyond the limits.


@dataclass(frozen=True, slots=True, kw_only=True)
class StrangerLimits:
    """The limits of one connection. Sessions and links are counted when they begin; ended ones count too."""

    octets: int
    """Bytes received, which also limits unfinished messages."""
    sessions: int
    links: int


class StrangerUse:
    """The use of one connection before its first good token."""

    __slots__ = ("_limits", "_links", "_octets", "_sessions")

    def __init__(self, limits: StrangerLimits) -> None:
        self._limits = limits
        self._octets = self._sessions = self._links = 0

    def count(self, size: int, events: Iterable[Event]) -> AmqpRefusal | None:
        """Count `size` bytes and their events; return a refusal if a limit is exceeded."""
        self._octets += size
        for event in events:
            self._sessions += isinstance(event, SessionBegun)
            self._links += isinstance(event, AttachRequested)
        for counted, most, unit in (
            (self._octets, self._limits.octets, "bytes"),
            (self._sessions, self._limits.sessions, "sessions"),
            (self._links, self._limits.links, "links"),
        ):
            if counted > most:
                text = f"more than {most} {unit} came without a good token; put one on $cbs first"
                return AmqpRefusal("amqp:resource-limit-exceeded", text, 403)
        return None


SETTLED_BY_SENDER: Final = 1
REQUEST_CREDIT: Final = 100
MAX_REQUEST_BYTES: Final = 1024 * 1024
MAX_TOKEN_REQUEST_BYTES: Final = 64 * 1024


def accept_requests(link: ReceiverLink, address: NodeAddress) -> None:
    """Answer the attach of a node's requests as the service does, without a size; too large ones are still rejected."""
    link.accept_attach(max_message_size=ANY_SIZE)
    link.max_message_size = MAX_TOKEN_REQUEST_BYTES if address.kind is NodeKind.CBS else MAX_REQUEST_BYTES


NodeKey = tuple[NodeKind, str]


def key_of(address: NodeAddress) -> NodeKey:
    """Return the identity of a node, without regard to case."""
    return address.kind, address.path.lower()


class ReplyEnd:
    """The replies of one node to the client. `names`: those by which a request's `reply-to` may call it."""

    def __init__(self, link: SenderLink, address: NodeAddress) -> None:
        self.link = link
        self.node = key_of(address)
        remote = link.remote
        target = None if remote is None else remote.target
        self.names = {link.name, None if target is None else getattr(target, "address", None)}
        self._settled = remote is not None and remote.snd_settle_mode == SETTLED_BY_SENDER
        self._sent = 0

    def answers(self, node: NodeKey) -> bool:
        """Return whether replies of this node can leave here."""
        return self.node == node and self.link.is_attached

    def send(self, reply: bytes) -> None:
        """Send a reply now, or when the client grants credit. Does nothing on a detached link."""
        if self.link.is_attached:
            self._sent += 1
            self.link.send(reply, tag=self._sent.to_bytes(4, "little"), settled=self._settled)

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
            self.refuse(event, bad_argument(f"the request cannot be read: {error}"))
            return None

    def accept(self, event: DeliveryReceived) -> None:
        """Accept a request; its answer is the reply."""
        if not event.settled:
            self.link.settle(event.delivery_id, ACCEPTED)

    def refuse(self, event: DeliveryReceived, refusal: AmqpRefusal) -> None:
        """Reject a request that cannot be answered."""
        if not event.settled:
            self.link.answer(event.delivery_id, rejected(refusal))

    def partner(self, reply_to: str | None, ends: Iterable[ReplyEnd]) -> ReplyEnd | None:
        """Return the end for a reply among those of the connection; None without one."""
        known = self._partner
        if known is None or reply_to not in known.names or not known.answers(self.node):
            known = self._partner = self._find(reply_to, ends)
        return known

    def _find(self, reply_to: str | None, ends: Iterable[ReplyEnd]) -> ReplyEnd | None:
        """Return the end named `reply_to`; without a name one of the node, of the same session if there is one."""
        fitting = [end for end in ends if end.answers(self.node)]
        session: object = self.link.session
        if reply_to is None:
            found = [end for end in fitting if end.link.session is session] or fitting
        else:
            found = [end for end in fitting if reply_to in end.names]
        return found[-1] if found else None
