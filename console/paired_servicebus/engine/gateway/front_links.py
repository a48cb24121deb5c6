"""The links of one client of the gateway: senders to entities, `$cbs`, and `$management`.

Accepted means that a namespace has it: a message is settled with the outcome of its paired send, not before. Schedule
and cancel go through the pairing; every other request to `$management` goes to the primary as it is, but for the ids
that lead its reply back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from paired_servicebus.core.errors import ScheduledInBacklogError, WireError, WireRequestError
from paired_servicebus.core.model.gateway_view import LinkDirection, TurnedAway
from paired_servicebus.engine.gateway.front_socket import FrontLink, FrontSocket
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight
from paired_servicebus.engine.gateway.relay_connection import WaitingMessages, refusal_of_relay
from paired_servicebus.engine.gateway.send_refusals import SEND_SECONDS, TIMEOUT, rejection_of
from paired_servicebus.engine.gateway.transactions import FrontAct, FrontTransactions, Transaction
from paired_servicebus.pairing.envelope_codec import is_ping
from paired_servicebus.pairing.sending.encoded_sender import CANCEL, SCHEDULE, EncodedSender
from servicebus_amqp.access import Flaw, NodeAddress, TokenError
from servicebus_amqp.encoding.codec import Array
from servicebus_amqp.encoding.message_sections import read_properties, split, write_properties
from servicebus_amqp.encoding.performatives import ACCEPTED, DeliveryState, Error, Rejected, TransactionalState
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
    no_reply_link,
    read_put_token,
    refused,
    too_many_replies,
    unauthorized,
    write_reply,
)
from servicebus_amqp.protocol.links import (
    DeliveryReceived,
    DeliveryTooLarge,
    DispositionReceived,
    ReceiverLink,
    SenderLink,
)
from servicebus_amqp.protocol_errors import Condition

PING_SECONDS: Final = 10.0
"""For a client's ping, such as that of `paired check`: it is never parked, and its failure fails nothing over."""
SENDER_CREDIT: Final = 500
"""The most unsettled messages of one link: more than a client has in flight at any round trip to a region."""
REPLY_SECONDS: Final = 9.5
"""Seconds for a relayed request; a client has its answer within ten."""
MAX_WAITING_REPLIES: Final = 100
"""The most replies that wait for a client's credit: it has as many requests under way, and no more."""

_SERVER_TIMEOUT: Final = "com.microsoft:server-timeout"
_SHARE: Final = 0.9
_OVERTIME: Final = 1.05
"""Of a request's time, for a call that has not ended by itself; its own end names the reason."""

_VENDOR: Final = "com.microsoft:"

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

SenderFinder = Callable[[], Awaitable[EncodedSender]]
"""Returns an entity's sender once the entity is known to exist. Raises AmqpRefusal, PairedError."""


class FrontSender(FrontLink):
    """A client's sender: each transfer becomes a paired send, without a task of its own while all is well."""

    direction = LinkDirection.SENDS
    has_transactions = True

    def __init__(
        self,
        owner: FrontSocket,
        link: ReceiverLink,
        address: NodeAddress,
        sender: EncodedSender,
        transactions: FrontTransactions,
    ) -> None:
        super().__init__(owner, address.resource, GatewayRight.SEND)
        self._address = address
        self._transactions = transactions
        self.tally = owner.tally.sends_to(address.path)
        self.link = link
        self._sender = sender
        assert owner.budget is not None, "the client is admitted"
        self._budget = owner.budget
        self._taken = 0
        self._is_draining = False
        link.flow(SENDER_CREDIT)

    def drain(self) -> None:
        self._is_draining = True
        self.link.flow(0)

    def on_delivery(self, event: DeliveryReceived) -> None:
        owner, sender, data, form = self.owner, self._sender, event.payload, event.message_format
        self._budget.add(len(data), owner)
        self.tally.bytes_in_hand += len(data)
        act: FrontAct | None = None
        if event.state is None and is_ping(data):
            owner.start(self._finish(event, sender.ping(data, timeout=PING_SECONDS)))
            return
        try:
            if event.state is not None:
                act = self._transactions.send_act(event, self._address, sender)
            on_end = partial(self._on_straight_end, event, act)
            goes = sender.go_straight(data, form, on_end, timeout=SEND_SECONDS, act=act)
        except Exception as error:  # noqa: BLE001 - any error is the outcome of this message alone
            self._refuse(event, error, act)
            return
        if goes and act is not None:
            act.transaction.count(1)
        elif not goes:
            self._start(event, sender.send(data, form, timeout=SEND_SECONDS, act=act), act)

    def _start(self, event: DeliveryReceived, work: Coroutine[Any, Any, None], act: FrontAct | None) -> None:
        (self.owner if act is None else act.transaction).start(self._finish(event, work, act))

    def _on_straight_end(
        self, event: DeliveryReceived, act: FrontAct | None, rest: Coroutine[Any, Any, None] | None
    ) -> None:
        if rest is not None:
            self._start(event, rest, act)
        else:  # in a read of the primary
            self._settle(event, _accepted_in(event.state))
        if act is not None:  # in a read of the client's own connection to it, which ends with a write
            act.transaction.count(-1)
        elif rest is None:
            self.owner.touch_after_read()

    async def _finish(
        self, event: DeliveryReceived, work: Coroutine[Any, Any, None], act: FrontAct | None = None
    ) -> None:
        """Complete a send, and settle its message with the outcome."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - as above
            self._refuse(event, error, act)
        except BaseException:
            self._remove(event)
            raise
        else:
            self._end(event, _accepted_in(event.state))

    def _refuse(self, event: DeliveryReceived, error: Exception, act: FrontAct | None = None) -> None:
        refusal = self.owner.refusal(error)
        if act is not None:
            act.transaction.note_refusal(refusal.description)
        self.owner.warn(f"refused a client's message, {refusal.condition}", refusal.description)
        self._end(event, rejection_of(error))

    def _end(self, event: DeliveryReceived, outcome: DeliveryState) -> None:
        """Settle a message whose send has ended, outside a read of the primary."""
        self._settle(event, outcome)
        self.owner.touch()

    def _settle(self, event: DeliveryReceived, outcome: DeliveryState) -> None:
        self._remove(event)
        if isinstance(outcome, Rejected):
            self.tally.refuse(outcome, self.owner.now())
        else:
            self.tally.accepted += 1
        if not event.settled:
            self.link.answer(event.delivery_id, outcome)
        self._renew()

    def on_too_large(self, event: DeliveryTooLarge) -> None:
        text = f"a message for {self.resource} has {event.size} bytes, the link takes {self.link.max_message_size}"
        self.owner.warn(f"refused a client's message, {Condition.MESSAGE_SIZE_EXCEEDED}", text)
        error = Error(condition=Condition.MESSAGE_SIZE_EXCEEDED, description=text)
        self.tally.refuse(Rejected(error=error), self.owner.now())
        if event.state is not None:
            with suppress(AmqpRefusal):  # of no open transaction
                self._transactions.find(event.state).note_refusal(text)
        self._renew()

    def _renew(self) -> None:
        self._taken += 1
        if 2 * self._taken >= SENDER_CREDIT and not self._is_draining:
            # credit for settled messages only: a slow primary slows its clients
            self.link.flow(self.link.credit + self._taken)
            self._taken = 0

    def _remove(self, event: DeliveryReceived) -> None:
        size = len(event.payload)
        self._budget.remove(size)
        self.tally.bytes_in_hand -= size


def _accepted_in(state: DeliveryState | None) -> DeliveryState:
    """Return the outcome of an accepted message with this state."""
    return replace(state, outcome=ACCEPTED) if isinstance(state, TransactionalState) else ACCEPTED


class FrontReplies(FrontLink):
    """The replies of one node."""

    def __init__(self, owner: FrontSocket, link: SenderLink, address: NodeAddress) -> None:
        super().__init__(owner, address.resource, None)
        self.end = ReplyEnd(link, address)
        self._waiting = WaitingMessages(link, lambda: owner.relay)

    def send(self, reply: bytes) -> None:
        """Send a reply now, or when the client grants credit."""
        self.end.send(reply)
        self._waiting.count(len(reply))

    def on_disposition(self, event: DispositionReceived) -> None:
        self.end.on_disposition(event)


class FrontRequests(FrontLink):
    """The requests to one node. A request is accepted in one write with its reply, as the service does.

    Python's blocking client waits 0.2 s too long in one thread if the two come apart and others wait beside it.
    """

    vocabulary: ReplyVocabulary

    def __init__(self, owner: FrontSocket, link: ReceiverLink, address: NodeAddress) -> None:
        super().__init__(owner, address.resource, None)
        self.link = link
        self._requests = RequestEnd(link, address)

    def on_delivery(self, event: DeliveryReceived) -> None:
        request = self._requests.read(event)
        if request is None:
            return
        try:
            self.handle(request, event)
        except Exception as error:  # noqa: BLE001 - any error is the answer to this request alone
            self.reply(request, event, refused(self.owner.refusal(error)))

    def handle(self, request: NodeRequest, event: DeliveryReceived) -> None:
        """Perform a request, now or in a task, and reply."""
        raise NotImplementedError

    def replies_to(self, request: NodeRequest) -> FrontReplies | None:
        """Return the link for the reply, which the request names; None: there is none."""
        ends = [link.end for link in self.owner.links.values() if isinstance(link, FrontReplies)]
        end = self._requests.partner(request.reply_to, ends)
        found = None if end is None else self.owner.links.get(end.link)
        return found if isinstance(found, FrontReplies) else None

    def reply(self, request: NodeRequest, event: DeliveryReceived, reply: NodeReply | bytes) -> None:
        """Accept a request and reply to it; without a link for it the reply is dropped."""
        if self.link.is_attached:
            self._requests.accept(event)
        replies = self.replies_to(request)
        if replies is not None and replies.end.link.waiting >= MAX_WAITING_REPLIES:
            refusal = too_many_replies()
            self.owner.warn(f"ended a client's link, {refusal.condition}", refusal.description)
            self.link.detach(error=error_of(refusal))
        elif replies is not None:
            replies.send(reply if isinstance(reply, bytes) else write_reply(request, reply, self.vocabulary))
        self.owner.touch()


class FrontTokens(FrontRequests):
    """The client's tokens, by the gateway's own keys."""

    vocabulary = ReplyVocabulary.CBS

    def handle(self, request: NodeRequest, event: DeliveryReceived) -> None:
        try:
            audience, token = read_put_token(request.properties, request.body)
            self.owner.grant(self.owner.keys.judge(token, audience, self.owner.now()))
        except TokenError as error:
            self.owner.warn("refused a client's token", error.reason)
            wrong = error.flaw in (Flaw.SIGNATURE, Flaw.MALFORMED)
            self.owner.turn_away(TurnedAway.WRONG_KEY if wrong else TurnedAway.BAD_TOKEN, error.reason)
            self.reply(request, event, refused(bad_token(error)))
        else:
            self.reply(request, event, NodeReply(status=202, description="Accepted"))


class FrontManagement(FrontRequests):
    """`$management` of an entity. A request that has no link for its reply is refused."""

    vocabulary = ReplyVocabulary.MANAGEMENT
    direction = LinkDirection.MANAGES
    has_transactions = True

    def __init__(
        self,
        owner: FrontSocket,
        link: ReceiverLink,
        address: NodeAddress,
        find_sender: SenderFinder,
        transactions: FrontTransactions,
    ) -> None:
        super().__init__(owner, link, address)
        self._address = address
        self._find_sender = find_sender
        self._transactions = transactions
        self._sender: EncodedSender | None = None

    def handle(self, request: NodeRequest, event: DeliveryReceived) -> None:
        if self.replies_to(request) is None:
            self._requests.refuse(event, no_reply_link(request.reply_to, "$management"))
            return
        is_ours = request.operation in (SCHEDULE, CANCEL)
        right = RIGHTS.get(request.operation, GatewayRight.MANAGE)
        if not self.owner.grants.allow(self.resource, right, self.owner.now()):
            raise unauthorized(self.resource, right)
        transaction = None
        if event.state is not None and is_ours:
            transaction = self._transactions.enlist(event, self._address.path, is_send=True)
        elif event.state is not None:
            transaction = self._transactions.find(event.state)
        work = self._perform(request, event, transaction) if is_ours else self._relay(request, event, transaction)
        start = self.owner.relay.start if not is_ours else self.owner.start
        (start if transaction is None else transaction.start)(self._answer(request, event, work))

    async def _answer(
        self, request: NodeRequest, event: DeliveryReceived, work: Coroutine[Any, Any, NodeReply | bytes]
    ) -> None:
        reply: NodeReply | bytes
        try:
            reply = await work
        except ScheduledInBacklogError as error:
            reply = refused(bad_argument(str(error)))
        except Exception as error:  # noqa: BLE001 - as above
            reply = refused(self.owner.refusal(error))
        self.reply(request, event, reply)

    async def _relay(self, request: NodeRequest, event: DeliveryReceived, transaction: Transaction | None) -> bytes:
        """Return the bytes of the primary's reply. Raises AmqpRefusal, WireError."""
        path, relay, operation = self._address.path, self.owner.relay, request.operation
        seconds = seconds_for(request.properties, REPLY_SECONDS)
        forwarded = partial(_forwarded, event.payload, self._address.resource)
        try:
            async with asyncio.timeout(seconds):
                await relay.persist(
                    lambda left: relay.run(partial(relay.management, path=path), left, operation), seconds, seconds
                )
                if transaction is None:
                    answer = await relay.exchange(path, operation, forwarded)
                else:
                    answer = await transaction.exchange(path, operation, forwarded)
        except TimeoutError as error:
            raise AmqpRefusal(TIMEOUT, f"the primary has not answered {operation} in time", 408) from error
        except WireError as error:
            raise refusal_of_relay(error) from error
        return _returned(answer, request)

    async def _perform(
        self, request: NodeRequest, event: DeliveryReceived, transaction: Transaction | None
    ) -> NodeReply:
        """Schedule or cancel. Raises AmqpRefusal, PairedError, ServiceBusError."""
        seconds = seconds_for(request.properties, SEND_SECONDS)
        ends = asyncio.get_running_loop().time() + seconds
        body = request.body if isinstance(request.body, dict) else {}
        async with asyncio.timeout(seconds * _OVERTIME):
            sender = self._sender = self._sender or await self._find_sender()
            act = None if transaction is None else self._transactions.act_of(event, transaction, self._address, sender)
            if request.operation == SCHEDULE:
                entries = _listed(body, "messages")
                numbers = await sender.schedule(entries, timeout=_left(ends), act=act)
                found = {"sequence-numbers": Array.of(int, numbers)}
                return NodeReply(status=200, description="OK", body=found)
            await _cancel(sender, _listed(body, "sequence-numbers"), _left(ends), act)
            return NodeReply(status=200, description="OK")


def _forwarded(payload: bytes, node: str, number: str) -> bytes:
    """Return a client's request for the primary: all of it, with an id and a link of ours for the reply."""
    found = split(payload)
    properties = read_properties(found.properties)._replace(message_id=number, reply_to=node)
    return found._replace(properties=write_properties(properties)).join()


def _returned(payload: bytes, request: NodeRequest) -> bytes:
    """Return the primary's reply for a client: all of it, with the id of the client's request."""
    found = split(payload)
    properties = read_properties(found.properties)._replace(correlation_id=request.message_id)
    return found._replace(properties=write_properties(properties)).join()


def seconds_for(properties: Mapping[Any, Any], most: float) -> float:
    """Return the seconds for a request: at most nine tenths of the client's own limit, if it names one."""
    given = properties.get(_SERVER_TIMEOUT)
    return min(most, _SHARE * given / 1000) if isinstance(given, int) and given > 0 else most


def _left(ends: float) -> float:
    """Return the seconds until `ends`. Raises TimeoutError: there is none left."""
    left = ends - asyncio.get_running_loop().time()
    if left <= 0:
        raise TimeoutError("the client's time for this request is over")
    return left


async def _cancel(sender: EncodedSender, numbers: list[Any], seconds: float, act: FrontAct | None) -> None:
    """Cancel scheduled messages. Raises AmqpRefusal: a number is none, is unknown, or its message was sent."""
    if not all(isinstance(number, int) for number in numbers):
        raise bad_argument("'sequence-numbers' holds something else than numbers")
    try:
        await sender.cancel(numbers, timeout=seconds, act=act)
    except WireRequestError as error:  # the primary's own answer
        raise AmqpRefusal(error.condition or "", str(error), error.status) from error


def _listed(body: dict[Any, Any], name: str) -> list[Any]:
    found = body.get(name)
    if isinstance(found, Array):
        return list(found.values)
    if not isinstance(found, list):
        raise bad_argument(f"the request has no list '{name}'")
    return found
