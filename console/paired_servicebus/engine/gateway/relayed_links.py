"""A client's receiver, relayed one to one: its attach, flows and outcomes to the primary, messages and answers back.

Rules: the same name, tag, bytes, filters and modes on both sides; no credit but the client's; the attach is answered
when the primary's answer is in, since that carries the session and its lock. A drain is answered when the primary has.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf
from typing import Any, Final

from paired_servicebus.core.errors import WireConnectionError, WireError, WireLinkError, WireTimeoutError
from paired_servicebus.core.model.gateway_view import LinkDirection
from paired_servicebus.engine.gateway.front_socket import FrontLink, FrontSocket
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight
from paired_servicebus.engine.gateway.relay_connection import (
    ATTACHING_SECONDS,
    LAST_TRY_SECONDS,
    WaitingMessages,
    closed_by_client,
    error_of_end,
    error_of_refusal,
    is_answer,
)
from paired_servicebus.engine.gateway.transactions import FrontTransactions, Transaction
from paired_servicebus.pairing.amqp_client.client_connection import AttachFields, WireReceiver
from paired_servicebus.pairing.paired_receiver import DeliveryReceipts
from servicebus_amqp.access import NodeAddress
from servicebus_amqp.encoding.performatives import Attach, DeliveryState, Target, TransactionalState
from servicebus_amqp.nodes.request_ends import AmqpRefusal, rejected
from servicebus_amqp.protocol.links import DeliveryReceived, DispositionReceived, FlowReceived, SenderLink

SETTLING_SECONDS: Final = 9.5
"""The limit for the primary's answer to a settlement in a transaction."""
SESSION_FILTER: Final = "com.microsoft:session-filter"
_TIMEOUT: Final = "com.microsoft:timeout"
_SESSION_SECONDS: Final = 65.0
"""The service waits this long for a session with messages, unless the client asks for less."""
_GRACE_SECONDS: Final = 5.0


class RelayedReceiver(FrontLink):
    """A client's receiver; it is refused, or detached, with the primary's own error.

    receipts: written for each message before it is passed on; None: none.
    """

    direction = LinkDirection.RECEIVES
    has_transactions = True

    def __init__(
        self,
        owner: FrontSocket,
        link: SenderLink,
        address: NodeAddress,
        transactions: FrontTransactions,
        receipts: DeliveryReceipts | None = None,
    ) -> None:
        super().__init__(owner, address.resource, GatewayRight.LISTEN)
        self._link = link
        self._address = address
        self._transactions = transactions
        self._receipts = receipts
        self._upstream: WireReceiver | None = None
        self._held: dict[bytes, tuple[int, int | None]] = {}
        """Unsettled deliveries by tag: the primary's id, and ours once the first frame has left."""
        self._waiting = WaitingMessages(link, lambda: owner.relay)
        self._last_flow: FlowReceived | None = None
        self._acts: dict[bytes, asyncio.Future[DeliveryState | WireError | None]] = {}
        """Settlements in transactions that the primary has not answered, by tag."""
        link.answers_drains = False
        self._attaching = owner.relay.start(self._attach())

    async def _attach(self) -> None:
        """Attach to the primary, and answer the client."""
        asked, link = self._link.remote, self._link
        assert asked is not None, "the client has asked"
        try:
            upstream = await self._open(asked)
        except WireError as error:
            theirs = error_of_refusal(error)
            refusal = AmqpRefusal(theirs.condition, theirs.description or "", 0)
            self.owner.refuse(link, refusal, theirs, by_primary=is_answer(error))
            return
        except Exception as error:  # noqa: BLE001 - any error is the answer to this attach alone
            self.owner.refuse(link, self.owner.refusal(error))
            return
        if link.is_requested:
            _answer(link, upstream, asked)
            if self._last_flow is not None or link.credit:  # it came before the primary's answer
                self._grant(self._last_flow)
        else:  # the client has left meanwhile
            self._leave()
        self.owner.touch()

    async def _open(self, asked: Attach) -> WireReceiver:
        """Attach to the primary. Raises WireError."""
        relay, fields = self.owner.relay, _fields_of(asked, self._address)
        fields = replace(fields, opener=self._transactions.opener_of(self._link.session))

        async def attach(seconds: float) -> WireReceiver:
            return await relay.receiver(
                self._address.path,
                on_delivery=self._on_delivery,
                on_settled=self._on_settled,
                on_lost=self._on_lost,
                fields=fields,
                timeout=seconds,
            )

        upstream = self._upstream = await relay.persist(attach, _seconds(asked), _patience(asked))
        upstream.passes_flow = self._on_primary_flow
        upstream.link.max_message_size = None  # the primary keeps the client's limit, and nothing is dropped here
        return upstream

    def on_end(self) -> None:
        self._attaching.cancel()
        self._leave()

    def _leave(self) -> None:
        """Detach from the primary because the client's link has ended."""
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            closed = closed_by_client(upstream.path)
            self._forget(closed)
            upstream.drop(closed)

    # -- from the client --------------------------------------------------------------------------------------

    def on_flow(self, event: FlowReceived) -> None:
        self._last_flow = event
        if self._upstream is not None:
            self._grant(event)

    def on_disposition(self, event: DispositionReceived) -> None:
        held = self._held.get(event.tag)
        if held is None or self._upstream is None:
            return
        if isinstance(event.state, TransactionalState):
            self._include(event, event.state, held[0])
            return
        if event.settled:
            del self._held[event.tag]
        elif held[1] is None:
            self._held[event.tag] = (held[0], event.delivery_id)
        self._upstream.settle(held[0], event.state, settled=event.settled)  # type: ignore[arg-type] # None is passed on

    def _grant(self, event: FlowReceived | None) -> None:
        upstream = self._upstream
        if upstream is not None and upstream.is_up:
            drain, properties = (False, None) if event is None else (event.drain, event.properties)
            upstream.grant(self._link.credit, drain=drain, properties=properties)

    # -- settlements in a transaction -------------------------------------------------------------------------

    def _include(self, event: DispositionReceived, state: TransactionalState, number: int) -> None:
        """Make a settlement an act of its transaction. number: the primary's id of the delivery."""
        try:
            transaction = self._transactions.enlist(event, self._address.path, is_send=False)
        except AmqpRefusal as refusal:
            self._settle(event, rejected(refusal))
        else:
            transaction.start(self._settle_in(transaction, event, state, number))

    async def _settle_in(
        self, transaction: Transaction, event: DispositionReceived, state: TransactionalState, number: int
    ) -> None:
        try:
            async with transaction.order:
                there = await transaction.declare()
                if self._upstream is None:
                    raise WireConnectionError("the primary's link has ended")
                answered = self._acts[event.tag] = asyncio.get_running_loop().create_future()
                self._upstream.settle(number, replace(there, outcome=state.outcome), settled=False)
            await asyncio.wait((answered,), timeout=SETTLING_SECONDS)
            del self._acts[event.tag]
            answer = answered.result() if answered.done() else WireTimeoutError("the primary did not answer it")
            if isinstance(answer, WireError):
                transaction.lose(str(answer))
                raise answer
        except Exception as error:  # noqa: BLE001 - any error is the answer to this settlement alone
            self._settle(event, rejected(self.owner.refusal(error)))
        else:
            is_act = isinstance(answer, TransactionalState)
            self._settle(event, replace(answer, txn_id=state.txn_id) if is_act else answer)

    def _settle(self, event: DispositionReceived, answer: DeliveryState | None) -> None:
        self._held.pop(event.tag, None)
        self._link.settle(event.delivery_id, answer)
        self.owner.touch()

    # -- from the primary -------------------------------------------------------------------------------------

    def _on_delivery(self, event: DeliveryReceived) -> None:
        link = self._link
        if not link.is_attached:
            return
        if self._receipts is not None:
            self._receipts.write_encoded(event.payload)
        number = link.send(event.payload, tag=event.tag, message_format=event.message_format, settled=event.settled)
        if not event.settled:
            self._held[event.tag] = (event.delivery_id, number)
        self._waiting.count(len(event.payload))
        self.owner.touch()

    def _on_settled(self, event: DispositionReceived) -> None:
        """Pass on the primary's state of a delivery: the answer to the client's, mostly."""
        act = self._acts.get(event.tag)
        if act is not None:
            if not event.settled and self._upstream is not None:
                self._upstream.settle(event.delivery_id, event.state)  # type: ignore[arg-type] # as it came
            if not act.done():
                act.set_result(event.state)
            return
        held = self._held.pop(event.tag, None) if event.settled else self._held.get(event.tag)
        if held is not None and held[1] is not None:
            self._link.settle(held[1], event.state, settled=event.settled)
            self.owner.touch()

    def _on_primary_flow(self, event: FlowReceived) -> None:
        if event.drain:
            self._link.finish_drain()
            self.owner.touch()

    def _on_lost(self, error: WireError) -> None:
        self._forget(error)
        if self._upstream is not None:
            self._upstream = None
            with_connection = not isinstance(error, WireLinkError)
            self.owner.end_lost(self._link, error_of_end(error), with_connection=with_connection)

    def _forget(self, error: WireError) -> None:
        """Forget the deliveries of an ended link; their settlements have no answer any more."""
        self._held.clear()
        for act in self._acts.values():
            if not act.done():
                act.set_result(error)


def _fields_of(asked: Attach, address: NodeAddress) -> AttachFields:
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


def _answer(link: SenderLink, upstream: WireReceiver, asked: Attach) -> None:
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
