"""The broker's links to one client: those that carry messages, those of nodes, and the answers to attaches.

What they have in common: entity, rights, and their end by faults and idleness.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final, Protocol

from servicebus_amqp.access import (
    CBS,
    MANAGEMENT,
    Grants,
    NodeAddress,
    NodeKind,
    ProvenAccess,
    TokenError,
    parse_address,
    read_token,
)
from servicebus_amqp.encoding.codec import Described, Symbol, ULong
from servicebus_amqp.encoding.message_sections import BATCH_FORMAT
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    Accepted,
    DeliveryState,
    Error,
    Modified,
    Rejected,
    Released,
    Source,
)
from servicebus_amqp.nodes.request_ends import (
    SETTLED_BY_SENDER,
    AmqpRefusal,
    NodeReply,
    NodeRequest,
    ReplyEnd,
    ReplyVocabulary,
    RequestEnd,
    accept_requests,
    bad_argument,
    bad_token,
    error_of,
    no_reply_link,
    no_such_entity,
    read_put_token,
    refused,
    rejected,
    too_many_links,
    unauthorized,
    write_reply,
)
from servicebus_amqp.protocol.links import (
    AttachRequested,
    DeliveryReceived,
    DispositionReceived,
    FlowReceived,
    Link,
    ReceiverLink,
    SenderLink,
)
from servicebus_amqp.protocol_errors import DecodeError
from servicebus_amqp.server.server_connection import MAX_LINKS, ServedLink
from servicebus_sandbox.access.authorization import Authorization
from servicebus_sandbox.amqp_server import management_node
from servicebus_sandbox.amqp_server.message_codec import (
    TICKS_AT_EPOCH,
    TICKS_PER_SECOND,
    read_batch,
    read_message,
    write_message,
)
from servicebus_sandbox.broker.broker_errors import (
    BrokerError,
    EntityDisabled,
    EntityNotFound,
    MessageTooLarge,
    SessionLockLost,
    Throttled,
)
from servicebus_sandbox.broker.entity_settings import Right
from servicebus_sandbox.broker.message import StoredMessage
from servicebus_sandbox.broker.queues.message_queue import DESCRIPTION, REASON, Consumer, MessageQueue
from servicebus_sandbox.broker.queues.session_queue import MessageSession, SessionQueue
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace, SendTarget
from servicebus_sandbox.faults import (
    UNKNOWN_CALLER,
    Caller,
    CaseKey,
    Direction,
    FaultBoard,
    FaultVerdict,
    InjectionPoint,
    Operation,
)
from servicebus_sandbox.serving.amqp_conditions import (
    GATEWAY,
    RefusalLog,
    closed,
    end_by,
    no_session_in_time,
    refusal_by,
    refusal_of,
    session_not_allowed,
    tracked,
)

Act = Callable[[], None]


class DelayLine:
    """A first-in, first-out queue of calls with one timer; `afterwards` runs after each batch of calls."""

    __slots__ = ("_acts", "_afterwards", "_timer")

    def __init__(self, afterwards: Act) -> None:
        self._acts: deque[tuple[float, Act]] = deque()
        self._afterwards = afterwards
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._acts)

    def put(self, act: Act, delay: float) -> None:
        """Call `act` in `delay` seconds, but not before the calls that were put earlier."""
        due = asyncio.get_running_loop().time() + delay
        if self._acts:
            due = max(due, self._acts[-1][0])
        self._acts.append((due, act))
        self._set_timer()

    def hurry(self) -> None:
        """Make all calls now."""
        while self._acts:
            self._acts.popleft()[1]()

    def clear(self) -> None:
        """Cancel all calls."""
        self._acts.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        if self._timer is None and self._acts:
            self._timer = asyncio.get_running_loop().call_at(self._acts[0][0], self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._acts and self._acts[0][0] <= now:
            self._acts.popleft()[1]()
        self._afterwards()
        self._set_timer()


SETTLING: Final = frozenset({Operation.SETTLE})


class ServedNamespace(Protocol):
    """A link's view of the server of its namespace."""

    clock: Callable[[], float]
    time_of_day: Callable[[], float]
    namespace: BrokerNamespace
    authorization: Authorization
    faults: FaultBoard
    complaints: RefusalLog
    woken_at: float

    def flush_soon(self, connection: BrokerLinkOwner) -> None:
        """Have the connection write at the end of this turn."""


class BrokerLinkOwner(Protocol):
    """A link's view of its connection."""

    @property
    def node(self) -> ServedNamespace: ...

    links: dict[Link, BrokerLink]
    grants: Grants
    read_at: float
    is_holding: bool
    largest: int

    @property
    def container_id(self) -> str | None:
        """Return the client's container id; None before its open."""

    def caller(self, resource: str, right: Right | None) -> Caller:
        """Return the client, with the keys that give this right on the resource."""

    def abort(self) -> None: ...
    def disconnect(self, path: str | None) -> None: ...
    def flush(self) -> None: ...
    def forget(self, link: BrokerLink) -> None: ...
    def stir(self) -> None: ...
    def serve(self, link: BrokerLink) -> None: ...
    def used(self, name: object) -> None: ...
    def grant(self, access: ProvenAccess) -> None: ...
    def count_outgoing(self, size: int) -> None: ...


class BrokerLink(ServedLink):
    """A link in service.

    `path` is its entity's, `resource` the audience that its token has to cover, `right` the required right (None: any).
    Faults find it by `operations`. `used_at` is its last use by the namespace's clock, None for links without idle end.
    """

    right: Right | None = None
    operations: ClassVar[frozenset[Operation]] = frozenset()

    def __init__(self, server: BrokerLinkOwner, link: Link, path: str, resource: str) -> None:
        self.server = server
        self.link = link
        self.path = path
        self.resource = resource
        self.used_at: float | None = None
        self.is_slow = False
        self.is_untouched = False  # by faults: the healthy path checks only this
        self._stands_still = False
        self._met: dict[CaseKey, FaultVerdict] = {}
        self._lines: dict[Direction, DelayLine] = {}

    def on_end(self) -> None:
        """Handle the end of the link, after the peer's earlier messages."""
        self.hurry()
        self.gone()

    def gone(self) -> None:
        """Clean up after the link's detach or the connection's loss."""
        for line in self._lines.values():
            line.clear()

    def pause(self) -> None:
        """Deliver nothing until `resume`."""

    def resume(self) -> None:
        """Undo `pause`."""

    def detach(self, refusal: AmqpRefusal) -> None:
        """Detach from our side with an error."""
        self.gone()
        self.link.detach(error=error_of(tracked(refusal, self.tracker)))
        self.server.forget(self)

    @property
    def tracker(self) -> str:
        """Return the entity, as refusals about it name it for the service's support."""
        return self.server.node.namespace.tracker(self.path) if self.path else GATEWAY

    def rejected(self, refusal: AmqpRefusal) -> Rejected:
        """Return a refusal as the outcome of a message, or of its settlement."""
        return rejected(tracked(refusal, self.tracker))

    # ------------------------------------------------------------------ faults

    def verdict(self, moment: InjectionPoint) -> FaultVerdict:
        """Return the faults' verdict on an event of this link."""
        faults = self.server.node.faults
        if faults.is_quiet:
            return FaultVerdict.SERVE
        return faults.verdict(moment, self.path, self.operations, self.caller)

    @property
    def caller(self) -> Caller:
        """Return the client, for faults."""
        return self.server.caller(self.resource, self.right)

    def refusal_by(self, verdict: FaultVerdict) -> AmqpRefusal | None:
        """Return the refusal for the faults' verdict; None if it sends none."""
        return refusal_by(verdict, self.server.node.namespace.name, self.path, self.right)

    def is_cut_by(self, verdict: FaultVerdict) -> bool:
        """Cut the link or its connection if the verdict demands it; return whether it did."""
        match verdict:
            case FaultVerdict.DETACH:
                self.detach(closed(self.link))
            case FaultVerdict.DISCONNECT:
                self.server.disconnect(self.path)
            case FaultVerdict.RESET:
                self.server.abort()
            case _:
                return False
        return True

    def begin(self) -> None:
        """Put the link in service; active faults were applied at the attach."""
        self._follow(is_new=True)

    def follow_faults(self) -> None:
        """Apply faults that have begun or ended: detach, pause, resume, slow down."""
        if self.path:  # the token node belongs to no entity
            self._follow(is_new=False)

    def _follow(self, *, is_new: bool) -> None:
        faults = self.server.node.faults
        self.is_untouched = False
        for verdict in faults.met_by_link(self._met, self.path, self.operations, self.caller, is_new=is_new):
            end = end_by(verdict, self.server.node.namespace.name, self.link, self.path, self.right)
            if end is not None:
                self.detach(end)
            if end is not None or self.is_cut_by(verdict):
                return
        self.is_slow = faults.slows(self.path, self.operations | SETTLING, self.caller) or any(self._lines.values())
        self.is_untouched = faults.is_quiet and not self.is_slow
        stands_still = FaultVerdict.SWALLOW in self._met.values()
        if stands_still and not self._stands_still:
            self.pause()
        was_still, self._stands_still = self._stands_still, stands_still
        if was_still and not stands_still:
            self.resume()

    # ------------------------------------------------------------------ latency

    def later(
        self, act: Callable[[], None], direction: Direction, operations: frozenset[Operation] | None = None
    ) -> None:
        """Call `act` after the latency of faults, behind the earlier calls in this direction.

        `operations` replace the link's own.
        """
        line = self._lines.get(direction)
        if line is None:
            line = self._lines[direction] = DelayLine(self.server.stir)
        faults = self.server.node.faults
        line.put(act, faults.latency(self.path, operations or self.operations, direction, self.caller))

    def hurry(self) -> None:
        """Process the peer's earlier messages before its detach."""
        line = self._lines.get(Direction.IN)
        if line is not None:
            line.hurry()


# Links that carry messages into an entity, or out of a queue or subscription.
#
# A link holds no queue state. The broker owns an incoming message immediately, and an outgoing one until it is settled.

INCOMING_CREDIT: Final = 1000
MAX_BATCH_BYTES: Final = 1024 * 1024
"""The limit of a batch, even where single messages may be larger."""
DEAD_LETTER: Final = "com.microsoft:dead-letter"


class IncomingLink(BrokerLink):
    """A link into a queue or topic."""

    link: ReceiverLink
    right = Right.SEND
    operations = frozenset({Operation.SEND})

    def __init__(
        self, server: BrokerLinkOwner, link: ReceiverLink, path: str, resource: str, target: SendTarget
    ) -> None:
        super().__init__(server, link, path, resource)
        self.used_at = server.node.clock()
        self._intake = target.intake
        self._taken = 0
        link.flow(INCOMING_CREDIT)

    def on_delivery(self, event: DeliveryReceived) -> None:
        self.used_at = self.server.read_at
        self._taken += 1
        if self.is_untouched:
            outcome = self._take_in(event)
            if outcome is None:
                return
            if not event.settled:
                self.link.answer(event.delivery_id, outcome)
        elif not self._take_in_through_faults(event):
            return
        if 2 * self._taken >= INCOMING_CREDIT:
            self.resume()

    def _take_in_through_faults(self, event: DeliveryReceived) -> bool:
        """Accept the message as far as faults allow; return False if the link is cut or stands still."""
        verdict = self.verdict(InjectionPoint.TRANSFER)
        if verdict is FaultVerdict.SWALLOW or self.is_cut_by(verdict):
            return False
        refusal = self.refusal_by(verdict)
        late = self.server.node.faults.lateness(self.path, self.caller)
        outcome = self.rejected(refusal) if refusal is not None else self._take_in(event, late)
        if verdict is FaultVerdict.TAKE_AND_RESET:
            self.server.abort()
            return False
        if outcome is None:
            return False
        is_told = verdict is not FaultVerdict.TAKE_SILENTLY or outcome is not ACCEPTED
        if is_told and not event.settled:
            if self.is_slow:
                self.later(partial(self.link.answer, event.delivery_id, outcome), Direction.OUT)
            else:
                self.link.answer(event.delivery_id, outcome)
        return True

    def end_if_closed(self, path: str) -> None:
        """Detach if `path` is this link's entity and it accepts no messages."""
        if self.path.lower() == path.lower():
            try:
                self._intake.check_open()
            except EntityDisabled:
                self.detach(closed(self.link))

    def resume(self) -> None:
        """Grant credit for the messages that were accepted or swallowed."""
        if self._taken:
            self._taken = 0
            self.link.flow(INCOMING_CREDIT)

    def _take_in(self, event: DeliveryReceived, late: float = 0.0) -> DeliveryState | None:
        """Return the outcome for the sender; None if the link was detached instead."""
        payload = event.payload
        try:
            if event.message_format != BATCH_FORMAT:
                self._intake.send((read_message(payload),), late=late)
            elif len(payload) > MAX_BATCH_BYTES:
                refusal = refusal_of(MessageTooLarge(self.path, len(payload), MAX_BATCH_BYTES))
                is_large = self._intake.max_message_bytes > MAX_BATCH_BYTES
                if not is_large or not self.server.node.namespace.behaves.oversize_batch_detaches:
                    return self.rejected(refusal)
                self.detach(refusal)
                return None
            else:
                self._intake.send(read_batch(payload), late=late)
        except BrokerError as error:
            return self.rejected(refusal_of(error))
        except DecodeError as error:
            return self.rejected(bad_argument(f"the message cannot be read: {error}"))
        return ACCEPTED


class OutgoingLink(BrokerLink):
    """A link out of a queue, a subscription, or one of their sub-queues."""

    link: SenderLink
    right = Right.LISTEN
    operations = frozenset({Operation.RECEIVE})

    def __init__(
        self, server: BrokerLinkOwner, link: SenderLink, path: str, resource: str, messages: MessageQueue
    ) -> None:
        super().__init__(server, link, path, resource)
        self.used_at = server.node.clock()
        self.messages = messages
        remote = link.remote
        settled = remote is not None and remote.snd_settle_mode == SETTLED_BY_SENDER
        self.consumer = Consumer(self._deliver, self._lost, settles_on_delivery=settled)
        self._paused = False

    def begin(self) -> None:
        super().begin()
        if self.link.credit and not self._paused and self.link in self.server.links:
            self.messages.grant(self.consumer, self.link.credit)  # granted before the attach was answered

    def _deliver(self, stored: StoredMessage) -> None:
        if not self.is_untouched:
            verdict = self.verdict(InjectionPoint.DELIVERY)
            if verdict is FaultVerdict.TAKE_AND_RESET:
                self.server.abort()
                return
            if self.is_cut_by(verdict):
                return
        data, token = write_message(stored), stored.lock_token
        tag = token or b""  # settled on delivery: the service sends an empty tag
        if self.is_slow:
            self.later(partial(self._transfer, data, tag, token is None), Direction.OUT)
        else:
            self._transfer(data, tag, token is None)

    def _transfer(self, data: bytes, tag: bytes, settled: bool) -> None:
        if self.link.is_attached:
            self.used_at = self.server.node.woken_at
            self.link.send(data, tag=tag, settled=settled)
            self.server.count_outgoing(len(data))

    def _lost(self, error: BrokerError) -> None:
        """End a link whose entity or session is gone; the reason comes with an attach: with the next, or with this."""
        says_why = self.link.is_requested or isinstance(error, SessionLockLost | Throttled)
        refusal = refusal_of(error) if says_why else closed(self.link)
        self.link.detach(error=error_of(tracked(refusal, self.tracker)))
        self.server.forget(self)

    def on_flow(self, event: FlowReceived) -> None:
        self.used_at = self.server.read_at
        if not self._paused:
            self.messages.grant(self.consumer, self.link.credit)

    def pause(self) -> None:
        self._paused = True
        self.messages.grant(self.consumer, 0)

    def resume(self) -> None:
        if self._paused and not self._stands_still and not self.server.is_holding:
            self._paused = False
            self.messages.grant(self.consumer, self.link.credit)

    def gone(self) -> None:
        super().gone()
        self.messages.detach(self.consumer)

    def on_disposition(self, event: DispositionReceived) -> None:
        self.used_at = self.server.read_at
        if self.is_untouched:
            answer = self._settled_as(event)
            if not event.settled:
                self.link.settle(event.delivery_id, answer)
            return
        verdict = self.verdict(InjectionPoint.SETTLE)
        if verdict is FaultVerdict.SWALLOW or self.is_cut_by(verdict):
            return
        refusal = self.refusal_by(verdict)
        answer = self.rejected(refusal) if refusal is not None else self._settled_as(event)
        if verdict is FaultVerdict.TAKE_AND_RESET:
            self.server.abort()
        elif event.settled or verdict is FaultVerdict.TAKE_SILENTLY:
            return
        elif self.is_slow:
            self.later(partial(self.link.settle, event.delivery_id, answer), Direction.OUT, SETTLING)
        else:
            self.link.settle(event.delivery_id, answer)

    def _settled_as(self, event: DispositionReceived) -> DeliveryState | None:
        """Settle the delivery and return the outcome for the receiver."""
        try:
            self._settle(event.tag, event.state)
        except BrokerError as error:
            return self.rejected(refusal_of(error))
        if isinstance(event.state, Rejected):
            return Rejected()  # without the error, which clients read as a failure
        return event.state

    def _settle(self, token: bytes, state: DeliveryState | None) -> None:
        """Apply an outcome. Raises BrokerError."""
        messages = self.messages
        match state:
            case Accepted():
                messages.complete(token)
            case Modified(undeliverable_here=True):
                messages.defer(token, _as_properties(state.message_annotations))
            case Modified():
                messages.abandon(token, _as_properties(state.message_annotations))
            case Rejected():
                self._dead_letter(token, state.error)
            case Released() | None:
                messages.release(token)

    def _dead_letter(self, token: bytes, error: Error | None) -> None:
        if error is None:
            self.messages.dead_letter(token)
            return
        info = dict(_as_properties(error.info) or {})
        reason = "" if REASON in info or error.condition == DEAD_LETTER else error.condition
        description = "" if DESCRIPTION in info else error.description
        self.messages.dead_letter(token, reason, description, info)


def _as_properties(given: dict[object, object] | None) -> dict[str, object] | None:
    return {str(name): value for name, value in given.items()} if given else None


# Attaches: the requested node, authorization, and the link that serves it.
#
# An attach is answered in full or refused with null termini. A receiver that requests a session is answered when a
# session is available. An attach that a fault swallows gets no answer.

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


class ReplyLink(BrokerLink):
    """The replies of one node to the client."""

    link: SenderLink
    operations = frozenset({Operation.MANAGE})

    def __init__(self, server: BrokerLinkOwner, link: SenderLink, address: NodeAddress) -> None:
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


class RequestLink(BrokerLink):
    """The client's requests to one node. A request is accepted first, then answered on the reply link."""

    link: ReceiverLink
    operations = frozenset({Operation.MANAGE})
    vocabulary: ReplyVocabulary
    needs_reply: ClassVar[bool] = True

    def __init__(self, server: BrokerLinkOwner, link: ReceiverLink, address: NodeAddress) -> None:
        super().__init__(server, link, address.path, address.resource)
        self.requests = RequestEnd(link, address)

    def on_delivery(self, event: DeliveryReceived) -> None:
        request = self.requests.read(event)
        if request is None:
            return
        verdict = self.verdict_on(request)
        if verdict is FaultVerdict.SWALLOW or self.is_cut_by(verdict):
            return
        replies = self._replies_to(request)
        if replies is None and self.needs_reply:
            self.requests.refuse(event, tracked(no_reply_link(request.reply_to, MANAGEMENT[1:]), self.tracker))
            return
        associated = request.properties.get(ASSOCIATED_LINK)
        if associated:
            self.server.used(associated)
        self.requests.accept(event)
        reply = self._answer(request, verdict)
        if verdict is FaultVerdict.TAKE_AND_RESET:
            self.server.abort()
        elif verdict is not FaultVerdict.TAKE_SILENTLY and replies is not None:
            replies.send(write_reply(request, reply, self.vocabulary))

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
            refusal = self.refusal_by(verdict)
            if refusal is not None:
                raise refusal
            return self.perform(request)
        except AmqpRefusal as refusal:
            return refused(tracked(refusal, self.tracker))
        except BrokerError as error:
            return refused(tracked(refusal_of(error), self.tracker))

    def perform(self, request: NodeRequest) -> NodeReply:
        """Perform the request. Raises AmqpRefusal and BrokerError."""
        raise NotImplementedError

    def _replies_to(self, request: NodeRequest) -> ReplyLink | None:
        links = self.server.links
        ends = (link.replies for link in links.values() if isinstance(link, ReplyLink))
        end = self.requests.partner(request.reply_to, ends)
        found = None if end is None else links.get(end.link)
        if isinstance(found, ReplyLink):
            return found
        where = f"{self.resource or CBS} (reply-to {request.reply_to})"
        self.server.node.complaints.about("no reply link", f"has no link for the reply to a request to {where}")
        return None


class CbsLink(RequestLink):
    """The tokens of this connection. Faults of entities do not affect it, faults of contact do."""

    vocabulary = ReplyVocabulary.CBS
    needs_reply = False

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


def request_link(server: BrokerLinkOwner, link: ReceiverLink, address: NodeAddress) -> RequestLink:
    kind = CbsLink if address.kind is NodeKind.CBS else ManagementLink
    return kind(server, link, address)


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
    operations = _operations_of(event.link, address) | {Operation.ATTACH}
    caller = server.caller(address.resource, _right_for(event.link, address))
    return sum(server.node.faults.latency(address.path, operations, direction, caller) for direction in Direction)


def _serve(server: BrokerLinkOwner, event: AttachRequested) -> None:
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


def _is_cut(server: BrokerLinkOwner, link: Link, address: NodeAddress) -> bool:
    """Return whether a fault leaves the attach unanswered. Raises AmqpRefusal if the fault refuses it."""
    faults = server.node.faults
    if faults.is_quiet:
        return False
    right = _right_for(link, address)
    caller = server.caller(address.resource, right)
    verdict = faults.verdict(InjectionPoint.ATTACH, address.path, _operations_of(link, address), caller)
    refusal = refusal_by(verdict, server.node.namespace.name, address.path, right)
    if refusal is not None:
        raise refusal
    if verdict is FaultVerdict.RESET:
        server.abort()
    elif verdict is FaultVerdict.DISCONNECT:
        server.disconnect(address.path)
    return verdict is not FaultVerdict.SERVE


def _operations_of(link: Link, address: NodeAddress) -> frozenset[Operation]:
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


def _right_for(link: Link, address: NodeAddress) -> Right | None:
    """Return the right that opens the link. A management node opens with any right and checks each request."""
    if address.kind is NodeKind.MANAGEMENT:
        return None
    return IncomingLink.right if isinstance(link, ReceiverLink) else OutgoingLink.right


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
