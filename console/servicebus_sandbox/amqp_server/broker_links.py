"""The broker's links to one client: those that carry messages, those of nodes, and the answers to attaches.

What they have in common: entity, rights, and their end by faults and idleness.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final, Protocol

from servicebus_amqp.access import CBS, MANAGEMENT, Grants, NodeAddress, NodeKind, ProvenAccess, TokenError, read_token
from servicebus_amqp.encoding.message_sections import BATCH_FORMAT
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    Accepted,
    DeliveryState,
    Error,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from servicebus_amqp.nodes.coordination import EntityScope, OpenTransaction, OpenTransactions
from servicebus_amqp.nodes.request_ends import (
    SETTLED_BY_SENDER,
    AmqpRefusal,
    NodeReply,
    NodeRequest,
    ReplyEnd,
    ReplyVocabulary,
    RequestEnd,
    bad_argument,
    bad_token,
    error_of,
    no_reply_link,
    no_such_entity,
    read_put_token,
    refused,
    rejected,
    unauthorized,
    unknown_state,
    write_reply,
)
from servicebus_amqp.protocol.links import (
    DeliveryReceived,
    DispositionReceived,
    FlowReceived,
    Link,
    LinkSession,
    ReceiverLink,
    SenderLink,
)
from servicebus_amqp.protocol_errors import DecodeError
from servicebus_amqp.server.server_connection import ServedLink
from servicebus_sandbox.access.authorization import Authorization
from servicebus_sandbox.amqp_server import management_node
from servicebus_sandbox.amqp_server.message_codec import read_batch, read_message, write_message
from servicebus_sandbox.broker.broker_errors import (
    BrokerError,
    EntityDisabled,
    EntityNotFound,
    MessageTooLarge,
    SessionLockLost,
    Throttled,
)
from servicebus_sandbox.broker.entity_settings import Right
from servicebus_sandbox.broker.message import Message, StoredMessage
from servicebus_sandbox.broker.queues.message_queue import (
    COMPLETE,
    DESCRIPTION,
    REASON,
    RELEASE,
    Consumer,
    MessageQueue,
    Settlement,
    Settling,
)
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace, SendTarget
from servicebus_sandbox.broker.transaction import Transaction
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
    refusal_by,
    refusal_of,
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
    sessions: dict[LinkSession, EntityScope]
    transactions: OpenTransactions[Transaction]

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

    def _transaction_of(self, state: TransactionalState) -> OpenTransaction[Transaction]:
        """Return the client's open transaction. Raises AmqpRefusal."""
        self.server.node.namespace.agenda.run_due()  # locks and transactions that have ended on the clock end first
        return self.server.transactions.find(state)

    def _enlist(self, state: TransactionalState, *, is_send: bool) -> Transaction:
        """Return the transaction of an act on this entity. Raises AmqpRefusal: unknown, or an entity too many."""
        found = self._transaction_of(state)
        found.admit(self.server.node.namespace.top_level(self.path), is_send=is_send)
        return found.acts

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
    has_transactions = True
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
        is_told = verdict is not FaultVerdict.TAKE_SILENTLY or isinstance(outcome, Rejected)
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
                return self._accept((read_message(payload),), event.state, late)
            if len(payload) > MAX_BATCH_BYTES:
                refusal = refusal_of(MessageTooLarge(self.path, len(payload), MAX_BATCH_BYTES))
                is_large = self._intake.max_message_bytes > MAX_BATCH_BYTES
                if not is_large or not self.server.node.namespace.behaves.oversize_batch_detaches:
                    return self.rejected(refusal)
                self.detach(refusal)
                return None
            return self._accept(read_batch(payload), event.state, late)
        except BrokerError as error:
            return self.rejected(refusal_of(error))
        except AmqpRefusal as refusal:
            return self.rejected(refusal)
        except DecodeError as error:
            return self.rejected(bad_argument(f"the message cannot be read: {error}"))

    def _accept(self, messages: Sequence[Message], state: DeliveryState | None, late: float) -> DeliveryState:
        """Put messages into the entity, or into their transaction. Raises BrokerError, AmqpRefusal."""
        if not isinstance(state, TransactionalState):
            self._intake.send(messages, late=late)
            return ACCEPTED
        self._enlist(state, is_send=True).include(partial(self._intake.hold, messages, late=late))
        return TransactionalState(txn_id=state.txn_id, outcome=ACCEPTED)


class OutgoingLink(BrokerLink):
    """A link out of a queue, a subscription, or one of their sub-queues."""

    link: SenderLink
    right = Right.LISTEN
    has_transactions = True
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
        token, state, messages = event.tag, event.state, self.messages
        try:
            if not isinstance(state, TransactionalState):
                messages.settle(token, _settlement_of(state))
                return _as_answer(state)
            settlement = _settlement_of(state.outcome or state)
            self._enlist(state, is_send=False).include(partial(messages.hold, token, settlement))
            return TransactionalState(txn_id=state.txn_id, outcome=_as_answer(state.outcome))
        except BrokerError as error:
            return self.rejected(refusal_of(error))
        except AmqpRefusal as refusal:
            return self.rejected(refusal)


def _settlement_of(state: DeliveryState | None) -> Settlement:
    """Return the settlement of an outcome; None releases. Raises AmqpRefusal: it is none."""
    match state:
        case Accepted():
            return COMPLETE
        case Modified():
            kind = Settling.DEFER if state.undeliverable_here else Settling.ABANDON
            return Settlement(kind, _as_properties(state.message_annotations))
        case Rejected(error=None):
            return Settlement(Settling.DEAD_LETTER)
        case Rejected(error=Error() as error):
            info = dict(_as_properties(error.info) or {})
            reason = "" if REASON in info or error.condition == DEAD_LETTER else error.condition
            description = "" if DESCRIPTION in info else error.description
            return Settlement(Settling.DEAD_LETTER, info, reason, description)
        case Released() | None:
            return RELEASE
    raise unknown_state(state)


def _as_answer(state: DeliveryState | None) -> DeliveryState | None:
    """Return the outcome for its receiver: a rejection without the error, which clients read as a failure."""
    return Rejected() if isinstance(state, Rejected) else state


def _as_properties(given: dict[object, object] | None) -> dict[str, object] | None:
    return {str(name): value for name, value in given.items()} if given else None


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
        reply = self._answer(request, verdict, event.state)
        if verdict is FaultVerdict.TAKE_AND_RESET:
            self.server.abort()
        elif verdict is not FaultVerdict.TAKE_SILENTLY and replies is not None:
            replies.send(write_reply(request, reply, self.vocabulary))

    def verdict_on(self, request: NodeRequest) -> FaultVerdict:
        """Return the faults' verdict on the request."""
        operations = self.operations | management_node.operation_called(request.operation).operations
        moment = InjectionPoint.TRANSFER if Operation.SEND in operations else InjectionPoint.REQUEST
        return self.server.node.faults.verdict(moment, self.path, operations, self.caller_of(request))

    def caller_of(self, request: NodeRequest) -> Caller:
        """Return the client with the keys that authorize the request."""
        if not self.server.node.faults.knows_clients:
            return UNKNOWN_CALLER
        return self.server.caller(self.resource, management_node.operation_called(request.operation).right)

    def _answer(self, request: NodeRequest, verdict: FaultVerdict, state: DeliveryState | None) -> NodeReply:
        try:
            refusal = self.refusal_by(verdict)
            if refusal is not None:
                raise refusal
            return self.perform(request, self._transaction_of(state) if isinstance(state, TransactionalState) else None)
        except AmqpRefusal as refusal:
            return refused(tracked(refusal, self.tracker))
        except BrokerError as error:
            return refused(tracked(refusal_of(error), self.tracker))

    def perform(self, request: NodeRequest, transaction: OpenTransaction[Transaction] | None) -> NodeReply:
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

    def perform(self, request: NodeRequest, transaction: OpenTransaction[Transaction] | None) -> NodeReply:
        node = self.server.node
        today = node.time_of_day()
        access = judge_token(request.properties, request.body, judge=node.authorization, now=today)
        self.server.grant(replace(access, expires_at=access.expires_at + node.clock() - today))
        return NodeReply(status=202, description="Accepted")


class ManagementLink(RequestLink):
    """The operations on one entity."""

    vocabulary = ReplyVocabulary.MANAGEMENT
    has_transactions = True

    def perform(self, request: NodeRequest, transaction: OpenTransaction[Transaction] | None) -> NodeReply:
        namespace = self.server.node.namespace
        for right in management_node.rights_for(request.operation, namespace.behaves):
            if not self.server.grants.allow(self.resource, right, self.server.node.clock()):
                raise unauthorized(self.resource, right)
        body = management_node.perform(request.operation, namespace, self.path, request.body, transaction)
        if body is None and management_node.operation_called(request.operation).may_find_nothing:
            return NodeReply(status=204, description="No content")
        return NodeReply(status=200, description="OK", body=body)


def request_link(server: BrokerLinkOwner, link: ReceiverLink, address: NodeAddress) -> RequestLink:
    kind = CbsLink if address.kind is NodeKind.CBS else ManagementLink
    return kind(server, link, address)
