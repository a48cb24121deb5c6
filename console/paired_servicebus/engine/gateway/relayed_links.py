"""A client's receiver, relayed one to one: its attach, flows and outcomes to the primary, messages and answers back.

Rules: the same name, tag, bytes, filters and modes on both sides; no credit but the client's; the attach is answered
when the primary's answer is in, since that carries the session and its lock. A drain is answered when the primary has.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

from paired_servicebus.core.errors import WireConnectionError, WireError, WireLinkError, WireTimeoutError
from paired_servicebus.core.model.gateway_view import LinkDirection
from paired_servicebus.engine.gateway.front_links import (
    ATTACHING_SECONDS,
    LAST_TRY_SECONDS,
    FrontLink,
    FrontManagement,
    FrontOwner,
    FrontReplies,
    OpenAct,
    OpenTransaction,
    RelayConnection,
    SenderFinder,
    closed_by_client,
    error_of_end,
    error_of_refusal,
    is_answer,
    refusal_of_relay,
    seconds_for,
)
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight
from paired_servicebus.engine.gateway.send_refusals import TIMEOUT
from paired_servicebus.pairing.amqp_client.client_connection import AttachFields, WireReceiver, WireSender
from paired_servicebus.pairing.amqp_client.endpoint import failure_of
from paired_servicebus.pairing.paired_receiver import DeliveryReceipts
from paired_servicebus.pairing.sending.encoded_sender import CANCEL, SCHEDULE
from servicebus_amqp.access import NodeAddress
from servicebus_amqp.encoding.message_sections import read_properties, split
from servicebus_amqp.encoding.performatives import ACCEPTED, Attach, DeliveryState, Target, TransactionalState
from servicebus_amqp.nodes.request_ends import (
    AmqpRefusal,
    NodeRequest,
    error_of,
    no_reply_link,
    refused,
    rejected,
    unauthorized,
)
from servicebus_amqp.protocol.links import DeliveryReceived, DispositionReceived, FlowReceived, ReceiverLink, SenderLink
from servicebus_amqp.protocol_errors import DecodeError

MAX_WAITING_BYTES: Final = 1024 * 1024
"""Bytes that wait for the window of a client's session before nothing more is read from the primary."""
SESSION_FILTER: Final = "com.microsoft:session-filter"
_TIMEOUT: Final = "com.microsoft:timeout"
_SESSION_SECONDS: Final = 65.0
"""The service waits this long for a session with messages, unless the client asks for less."""
_GRACE_SECONDS: Final = 5.0


class DeliveryPassage:
    """Messages from the primary to one link of a client, and their outcomes both ways.

    admits: whether a message is passed on; the others are accepted here. on_lost: gets the end of the primary's link.
    receipts: written for each message before it is passed on; None: none.
    """

    def __init__(
        self,
        owner: FrontOwner,
        link: SenderLink,
        on_lost: Callable[[WireError], None],
        admits: Callable[[bytes], bool] | None = None,
        receipts: DeliveryReceipts | None = None,
    ) -> None:
        self.upstream: WireReceiver | None = None
        self._address: NodeAddress | None = None
        self._owner = owner
        self._link = link
        self._on_lost = on_lost
        self._admits = admits
        self._receipts = receipts
        self._held: dict[bytes, tuple[int, int | None]] = {}
        """Unsettled deliveries by tag: the primary's id, and ours once the first frame has left."""
        self._waiting_bytes = 0
        self._last_flow: FlowReceived | None = None
        self._acts: dict[bytes, asyncio.Future[DeliveryState | WireError | None]] = {}
        """Settlements in transactions that the primary has not answered, by tag."""

    async def open(
        self,
        relay: RelayConnection,
        address: NodeAddress,
        fields: AttachFields,
        timeout: float = ATTACHING_SECONDS,
        patience: float = inf,
    ) -> WireReceiver:
        """Attach to the primary. patience: seconds for which the client waits. Raises WireError."""
        upstream = await relay.relayed_receiver(
            address,
            fields,
            on_delivery=self._on_delivery,
            on_settled=self._on_settled,
            on_lost=self._lost,
            timeout=timeout,
            patience=patience,
            opener=self._owner.opener_of(self._link),
        )
        self._address = address
        upstream.passes_flow = self._on_primary_flow
        upstream.link.max_message_size = None  # the primary keeps the client's limit, and nothing is dropped here
        self.upstream = upstream
        return upstream

    def begin(self) -> None:
        """Pass on the flow that came before the primary's answer."""
        if self._last_flow is not None or self._link.credit:
            self._grant(self._last_flow)

    def end(self) -> None:
        """Detach from the primary because the client's link has ended."""
        upstream, self.upstream = self.upstream, None
        self._held.clear()
        if upstream is not None:
            self._lost(closed_by_client(upstream.path))
            upstream.drop(closed_by_client(upstream.path))

    def holds(self, tag: bytes) -> bool:
        return tag in self._held

    # -- from the client --------------------------------------------------------------------------------------

    def on_flow(self, event: FlowReceived) -> None:
        self._last_flow = event
        if self.upstream is not None:
            self._grant(event)

    def on_disposition(self, event: DispositionReceived) -> None:
        held = self._held.get(event.tag)
        if held is None or self.upstream is None:
            return
        if isinstance(event.state, TransactionalState):
            self._include(event, event.state, held[0])
            return
        if event.settled:
            del self._held[event.tag]
        elif held[1] is None:
            self._held[event.tag] = (held[0], event.delivery_id)
        self.upstream.settle(held[0], event.state, settled=event.settled)  # type: ignore[arg-type] # None is passed on

    # -- settlements in a transaction -------------------------------------------------------------------------

    def _include(self, event: DispositionReceived, state: TransactionalState, number: int) -> None:
        """Make a settlement an act of its transaction. number: the primary's id of the delivery."""
        assert self._address is not None, "it is attached to the primary"
        try:
            act = self._owner.transactions.enlist(state, self._link, self._address, is_send=False)
        except AmqpRefusal as refusal:
            self._answer(event, rejected(refusal))
        else:
            act.transaction.start(self._settle_in(act.transaction, event, state, number))

    async def _settle_in(
        self, transaction: OpenTransaction, event: DispositionReceived, state: TransactionalState, number: int
    ) -> None:
        try:
            async with transaction.order:
                there = await transaction.state_at_primary()
                if self.upstream is None:
                    raise WireConnectionError("the primary's link has ended")
                answered = self._acts[event.tag] = asyncio.get_running_loop().create_future()
                self.upstream.settle(number, replace(there, outcome=state.outcome), settled=False)
            answer = await self._answer_to(event.tag, answered, transaction)
        except Exception as error:  # noqa: BLE001 - any error is the answer to this settlement alone
            self._answer(event, rejected(self._owner.refusal(error)))
        else:
            if isinstance(answer, TransactionalState):
                answer = replace(answer, txn_id=transaction.id)
            self._answer(event, answer)

    async def _answer_to(
        self,
        tag: bytes,
        answered: asyncio.Future[DeliveryState | WireError | None],
        transaction: OpenTransaction,
    ) -> DeliveryState | None:
        """Return the primary's answer to a settlement; without one the transaction is lost. Raises WireError."""
        await asyncio.wait((answered,), timeout=REPLY_SECONDS)
        self._acts.pop(tag, None)
        answer = answered.result() if answered.done() else WireTimeoutError("the primary did not answer a settlement")
        if isinstance(answer, WireError):
            transaction.lose(str(answer))
            raise answer
        return answer

    def _answer(self, event: DispositionReceived, answer: DeliveryState | None) -> None:
        self._held.pop(event.tag, None)
        self._link.settle(event.delivery_id, answer)
        self._owner.touch()

    def _grant(self, event: FlowReceived | None) -> None:
        upstream = self.upstream
        if upstream is not None and upstream.is_up:
            drain, properties = (False, None) if event is None else (event.drain, event.properties)
            upstream.grant(self._link.credit, drain=drain, properties=properties)

    # -- from the primary -------------------------------------------------------------------------------------

    def _on_delivery(self, event: DeliveryReceived) -> None:
        link, upstream = self._link, self.upstream
        if self._admits is not None and not self._admits(event.payload):
            if upstream is not None and not event.settled:
                upstream.settle(event.delivery_id, ACCEPTED)
            return
        if not link.is_attached:
            return
        if self._receipts is not None:
            self._receipts.write_encoded(event.payload)
        number = link.send(event.payload, tag=event.tag, message_format=event.message_format, settled=event.settled)
        if not event.settled:
            self._held[event.tag] = (event.delivery_id, number)
        if link.waiting:
            self._count_waiting(len(event.payload))
        self._owner.touch()

    def _on_settled(self, event: DispositionReceived) -> None:
        """Pass on the primary's state of a delivery: the answer to the client's, mostly."""
        act = self._acts.get(event.tag)
        if act is not None:
            if not event.settled and self.upstream is not None:
                self.upstream.settle(event.delivery_id, event.state)  # type: ignore[arg-type] # as it came
            if not act.done():
                act.set_result(event.state)
            return
        held = self._held.pop(event.tag, None) if event.settled else self._held.get(event.tag)
        if held is not None and held[1] is not None:
            self._link.settle(held[1], event.state, settled=event.settled)
            self._owner.touch()

    def _on_primary_flow(self, event: FlowReceived) -> None:
        if event.drain:
            self._link.finish_drain()
            self._owner.touch()

    def _lost(self, error: WireError) -> None:
        self._held.clear()
        for act in self._acts.values():
            if not act.done():
                act.set_result(error)
        if self.upstream is not None:
            self.upstream = None
            self._on_lost(error)

    # -- room -------------------------------------------------------------------------------------------------

    def _count_waiting(self, size: int) -> None:
        self._waiting_bytes = size if self._link.waiting == 1 else self._waiting_bytes + size
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._owner.relay.hold_back(self.is_full)

    def is_full(self) -> bool:
        """Return whether messages still wait for the client's window."""
        return self._link.is_attached and self._link.waiting > 0


class RelayedReceiver(FrontLink):
    """A client's receiver; it is refused, or detached, with the primary's own error."""

    direction = LinkDirection.RECEIVES
    has_transactions = True

    def __init__(
        self, owner: FrontOwner, link: SenderLink, address: NodeAddress, receipts: DeliveryReceipts | None = None
    ) -> None:
        super().__init__(owner, address.resource, GatewayRight.LISTEN)
        self.link = link
        self._address = address
        self._passage = DeliveryPassage(owner, link, self._on_lost, receipts=receipts)
        link.answers_drains = False
        self._attaching = owner.relay.start(self._attach())

    async def _attach(self) -> None:
        """Attach to the primary, and answer the client."""
        asked, link = self.link.remote, self.link
        assert asked is not None, "the client has asked"
        try:
            upstream = await self._passage.open(
                self.owner.relay, self._address, fields_of(asked, self._address), _seconds(asked), _patience(asked)
            )
        except WireError as error:
            self.owner.refused(link, error_of_refusal(error), by_primary=is_answer(error))
            return
        except Exception as error:  # noqa: BLE001 - any error is the answer to this attach alone
            self.owner.refused(link, error_of(self.owner.refusal(error)), by_primary=False)
            return
        if link.is_requested:
            answer(link, upstream, asked)
            self._passage.begin()
        else:  # the client has left meanwhile
            self._passage.end()
        self.owner.touch()

    def on_flow(self, event: FlowReceived) -> None:
        self._passage.on_flow(event)

    def on_disposition(self, event: DispositionReceived) -> None:
        self._passage.on_disposition(event)

    def on_end(self) -> None:
        self._attaching.cancel()
        self._passage.end()

    def _on_lost(self, error: WireError) -> None:
        self.owner.end_lost(self.link, error_of_end(error), with_connection=not isinstance(error, WireLinkError))


def fields_of(asked: Attach, address: NodeAddress) -> AttachFields:
    """Return a client's attach for the primary: all of it, with the address of the primary's node."""
    source, target = asked.source, asked.target
    if asked.role and source is not None:
        source = replace(source, address=address.resource, raw=None)
    elif not asked.role and isinstance(target, Target):
        target = replace(target, address=address.resource, raw=None)
    passed_on: dict[str, Any] = {
        "settle_modes": (asked.snd_settle_mode, asked.rcv_settle_mode),
        "properties": asked.properties,
        "max_message_size": asked.max_message_size,
        "unsettled": asked.unsettled,
        "incomplete_unsettled": asked.incomplete_unsettled,
        "offered_capabilities": asked.offered_capabilities,
        "desired_capabilities": asked.desired_capabilities,
    }
    return AttachFields(name=asked.name, source=source, target=target, passed_on=passed_on)


def answer(link: SenderLink, upstream: WireReceiver, asked: Attach) -> None:
    """Answer a client's attach as the primary has; addresses stay the client's."""
    got = upstream.link.remote
    assert got is not None, "the primary has attached"
    assert got.source is not None, "it has not refused"
    assert asked.source is not None, "the client has named the entity"
    link.accept_attach(
        replace(got.source, address=asked.source.address, raw=None),
        asked.target,
        settle_modes=(got.snd_settle_mode, got.rcv_settle_mode),
        properties=got.properties,
        max_message_size=got.max_message_size,
        initial_delivery_count=got.initial_delivery_count or 0,
        unsettled=got.unsettled,
        incomplete_unsettled=got.incomplete_unsettled,
        offered_capabilities=got.offered_capabilities,
        desired_capabilities=got.desired_capabilities,
    )


def _seconds(asked: Attach) -> float:
    """Return the seconds that an attach may take: the next session with messages may be a minute away."""
    filters = getattr(asked.source, "filter", None) or {}
    given = _patience(asked)
    if filters.get(SESSION_FILTER, "") is not None:
        return min(ATTACHING_SECONDS, max(LAST_TRY_SECONDS, given))
    return _GRACE_SECONDS + (_SESSION_SECONDS if given == inf else given)


def _patience(asked: Attach) -> float:
    """Return the seconds for which the client waits, as its attach states; infinite: it states none."""
    given = (asked.properties or {}).get(_TIMEOUT)
    return given / 1000 if isinstance(given, int) and given >= 0 else inf


# `$management` of an entity: schedule and cancel go through the pairing, every other request to the primary as it is.
#
# A client's pair of links is answered here, so that schedules work while the primary is away; the primary's pair, with
# the same names, is opened with the first request for it, and again after a loss. A request that is not answered within
# ten seconds gets 408; the primary's late reply is dropped.

REPLY_SECONDS: Final = 9.5
"""Seconds for a relayed request; a client has its answer within ten."""
_VENDOR: Final = "com.microsoft:"
_OWN_TAGS: Final = b"paired-"

RIGHTS: Final[dict[str, GatewayRight]] = {
    f"{_VENDOR}{operation}": right
    for right, operations in {
        GatewayRight.SEND: ("schedule-message", "cancel-scheduled-message"),
        GatewayRight.LISTEN: (
            "peek-message",
            "renew-lock",
            "receive-by-sequence-number",
            "update-disposition",
            "set-session-state",
            "get-session-state",
            "renew-session-lock",
            "get-message-sessions",
            "batch-delete-messages",
            "add-rule",
            "remove-rule",
            "enumerate-rules",
        ),
    }.items()
    for operation in operations
}
"""The right of each operation, as of the namespace itself; any other may do anything and needs Manage."""


@dataclass(slots=True)
class _Asked:
    """A request under way."""

    management: RelayedManagement
    request: NodeRequest
    event: DeliveryReceived
    expiry: asyncio.TimerHandle
    transaction: OpenTransaction | None = None
    answered: asyncio.Future[None] | None = None
    """For the transaction, which waits for it."""

    def lose(self, why: str) -> None:
        """Note that the primary has not answered it."""
        if self.transaction is not None:
            self.transaction.lose(why)

    def end(self) -> None:
        """Accept the request, in one write with its answer as the service does.

        Python's blocking client waits 0.2 s too long in one thread if the two come apart and others wait beside it.
        """
        self.expiry.cancel()
        self.management.accept(self.event)
        if self.answered is not None and not self.answered.done():
            self.answered.set_result(None)


class RelayedReplies(FrontReplies):
    """The replies of an entity's `$management`: the pairing's own, and the primary's."""

    def __init__(self, owner: FrontOwner, link: SenderLink, address: NodeAddress) -> None:
        super().__init__(owner, link, address)
        self.end.tag_prefix = _OWN_TAGS
        self._address = address
        self._passage = DeliveryPassage(owner, link, self._on_lost, self._admits)
        self._opening = asyncio.Lock()
        self._asked: dict[Any, _Asked] = {}

    async def open(self) -> None:
        """Attach to the primary unless attached. Raises WireError."""
        async with self._opening:
            asked = self.end.link.remote
            if self._passage.upstream is None and asked is not None and self.end.link.is_attached:
                await self._passage.open(self.owner.relay, self._address, fields_of(asked, self._address))
                self._passage.begin()

    def expect(self, asked: _Asked) -> None:
        """Wait for the reply; a request of the same id is forgotten: one reply cannot be told from the other."""
        before = self._asked.pop(asked.request.message_id, None)
        if before is not None:
            before.end()
        self._asked[asked.request.message_id] = asked

    def is_expected(self, asked: _Asked) -> bool:
        return self._asked.get(asked.request.message_id) is asked

    def give_up(self, asked: _Asked, refusal: AmqpRefusal) -> None:
        """Answer a request that the primary has not answered."""
        if self.is_expected(asked):
            del self._asked[asked.request.message_id]
            asked.lose(refusal.description)
            asked.end()
            asked.management.reply(asked.request, refused(refusal))

    def give_up_on(self, request: NodeRequest) -> None:
        """Answer a request whose time is over."""
        asked = self._asked.get(request.message_id)
        if asked is not None and asked.request is request:
            self.give_up(asked, _late(request))

    def give_up_those_of(self, management: RelayedManagement, error: WireError) -> None:
        for asked in [each for each in self._asked.values() if each.management is management]:
            self.give_up(asked, refusal_of_relay(error))

    def on_flow(self, event: FlowReceived) -> None:
        self._passage.on_flow(event)

    def on_disposition(self, event: DispositionReceived) -> None:
        if self._passage.holds(event.tag):
            self._passage.on_disposition(event)
        else:
            super().on_disposition(event)

    def on_end(self) -> None:
        for asked in self._asked.values():
            asked.lose("its client's link ended")
            asked.end()
        self._asked.clear()
        self._passage.end()

    def _admits(self, payload: bytes) -> bool:
        """Return whether a reply is still waited for."""
        try:
            name = read_properties(split(payload).properties).correlation_id
        except DecodeError:
            return True
        asked = self._asked.pop(name, None)
        if asked is not None:
            asked.end()
        return asked is not None

    def _on_lost(self, error: WireError) -> None:
        """Answer what was under way; the next request attaches again."""
        for asked in list(self._asked.values()):
            self.give_up(asked, refusal_of_relay(error))


class RelayedManagement(FrontManagement):
    """The requests to an entity's `$management`."""

    has_transactions = True

    def __init__(self, owner: FrontOwner, link: ReceiverLink, address: NodeAddress, find_sender: SenderFinder) -> None:
        super().__init__(owner, link, address, find_sender)
        self._link = link
        self._address = address
        self._upstream: WireSender | None = None
        self._waiting: deque[tuple[_Asked, RelayedReplies]] = deque()
        self._replies: set[RelayedReplies] = set()
        self._is_forwarding = False
        self._sent = 0

    def on_delivery(self, event: DeliveryReceived) -> None:
        request = self._requests.read(event)
        if request is None:
            return
        if self._requests.partner(request.reply_to, self.owner.reply_ends()) is None:
            self._requests.refuse(event, no_reply_link(request.reply_to, "$management"))
            return
        if request.operation in (SCHEDULE, CANCEL):
            self.accept(event)
            try:
                act = None if event.state is None else self._enlist(event)
            except AmqpRefusal as refusal:
                self.reply(request, refused(refusal))
            else:
                self.handle(request, act)
            return
        right = RIGHTS.get(request.operation, GatewayRight.MANAGE)
        if not self.owner.grants.allow(self.resource, right, self.owner.now()):
            self.accept(event)
            self.reply(request, refused(unauthorized(self.resource, right)))
            return
        try:
            transaction = None if event.state is None else self.owner.transactions.find(event.state)
        except AmqpRefusal as refusal:
            self.accept(event)
            self.reply(request, refused(refusal))
        else:
            self._relay(request, event, transaction)

    def _enlist(self, event: DeliveryReceived) -> OpenAct:
        """Return the part of a schedule or cancel in its transaction. Raises AmqpRefusal."""
        return self.owner.transactions.enlist(event.state, self._link, self._address, is_send=True)

    def accept(self, event: DeliveryReceived) -> None:
        """Accept a request, unless its link is gone."""
        if self._link.is_attached:
            self._requests.accept(event)

    def on_end(self) -> None:
        self._waiting.clear()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.drop(closed_by_client(upstream.path))

    def _relay(self, request: NodeRequest, event: DeliveryReceived, transaction: OpenTransaction | None) -> None:
        """Pass a request on in its order."""
        replies = self.owner.replies_of(self._requests.partner(request.reply_to, self.owner.reply_ends()))
        if not isinstance(replies, RelayedReplies):
            self.accept(event)
            return  # there is nowhere to answer it
        seconds = seconds_for(request.properties, REPLY_SECONDS)
        expiry = asyncio.get_running_loop().call_later(seconds, replies.give_up_on, request)
        asked = _Asked(self, request, event, expiry, transaction)
        if transaction is not None:
            asked.answered = asyncio.get_running_loop().create_future()
            transaction.wait_for(asked.answered)
        replies.expect(asked)
        self._replies.add(replies)
        self._waiting.append((asked, replies))
        if not self._is_forwarding:
            try:
                self.owner.relay.start(self._forward())
            except WireError as error:  # our own AMQP cannot reach this primary at all
                replies.give_up(asked, refusal_of_relay(error))
            else:
                self._is_forwarding = True

    async def _forward(self) -> None:
        try:
            while self._waiting:
                asked, replies = self._waiting.popleft()
                if not replies.is_expected(asked):
                    continue
                try:
                    await replies.open()
                    upstream = self._upstream or await self._open()
                    if asked.transaction is None:
                        self._send(upstream, asked, replies)
                    else:
                        async with asked.transaction.order:
                            self._send(upstream, asked, replies, await asked.transaction.state_at_primary())
                except WireError as error:
                    replies.give_up(asked, refusal_of_relay(error))
                except Exception as error:  # noqa: BLE001 - any error is the answer to this request alone
                    replies.give_up(asked, self.owner.refusal(error))
        finally:
            self._is_forwarding = False

    async def _open(self) -> WireSender:
        """Attach to the primary. Raises WireError."""
        asked = self._link.remote
        assert asked is not None, "the client has attached"
        self._upstream = upstream = await self.owner.relay.relayed_sender(
            self._address, fields_of(asked, self._address), on_outcome=self._on_outcome, on_lost=self._on_lost
        )
        return upstream

    def _send(
        self, upstream: WireSender, asked: _Asked, replies: RelayedReplies, state: TransactionalState | None = None
    ) -> None:
        self._sent += 1
        if upstream.is_up and replies.is_expected(asked):
            tag = self._sent.to_bytes(4, "big")
            upstream.send(asked.event.payload, tag, message_format=asked.event.message_format, state=state)
        else:
            replies.give_up(asked, _late(asked.request))

    def _on_outcome(self, event: DispositionReceived) -> None:
        failure = failure_of(event.state, self._address.resource)
        if failure is not None:
            self._give_up(failure)

    def _on_lost(self, error: WireError) -> None:
        if self._upstream is not None:
            self._upstream = None
            self._give_up(error)

    def _give_up(self, error: WireError) -> None:
        for replies in self._replies:
            replies.give_up_those_of(self, error)


def _late(request: NodeRequest) -> AmqpRefusal:
    return AmqpRefusal(TIMEOUT, f"the primary has not answered {request.operation} in time", 408)
