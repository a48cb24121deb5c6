"""`$management` of an entity: schedule and cancel go through the pairing, every other request to the primary as it is.

A client's pair of links is answered here, so that schedules work while the primary is away; the primary's pair, with
the same names, is opened with the first request for it, and again after a loss. A request that is not answered within
ten seconds gets 408; the primary's late reply is dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from paired_servicebus.core.errors import WireError
from paired_servicebus.engine.gateway.front_links import (
    FrontManagement,
    FrontOwner,
    FrontReplies,
    SenderFinder,
    seconds_for,
)
from paired_servicebus.engine.gateway.keys.gateway_keys import GatewayRight
from paired_servicebus.engine.gateway.relay_connection import closed_by_client, refusal_of_relay
from paired_servicebus.engine.gateway.relayed.relayed_links import DeliveryPassage, fields_of
from paired_servicebus.engine.gateway.send_refusals import TIMEOUT
from paired_servicebus.pairing.amqp_client.client_links import WireSender
from paired_servicebus.pairing.amqp_client.wire_errors import failure_of
from paired_servicebus.pairing.sending.encoded_sender import CANCEL, SCHEDULE
from servicebus_amqp.encoding.message_sections import read_properties, split
from servicebus_amqp.node_address import NodeAddress
from servicebus_amqp.nodes.node_messages import NodeRequest, refused
from servicebus_amqp.nodes.refusals import AmqpRefusal, unauthorized
from servicebus_amqp.protocol.link_receiver import ReceiverLink
from servicebus_amqp.protocol.link_sender import SenderLink
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived, FlowReceived
from servicebus_amqp.protocol_errors import DecodeError

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

    def end(self) -> None:
        """Accept the request, in one write with its answer as the service does.

        Python's blocking client waits 0.2 s too long in one thread if the two come apart and others wait beside it.
        """
        self.expiry.cancel()
        self.management.accept(self.event)


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
        if request.operation in (SCHEDULE, CANCEL):
            self.accept(event)
            self.handle(request)
            return
        right = RIGHTS.get(request.operation, GatewayRight.MANAGE)
        if not self.owner.grants.allow(self.resource, right, self.owner.today()):
            self.accept(event)
            self.reply(request, refused(unauthorized(self.resource, right)))
            return
        self._relay(request, event)

    def accept(self, event: DeliveryReceived) -> None:
        """Accept a request, unless its link is gone."""
        if self._link.is_attached:
            self._requests.accept(event)

    def on_end(self) -> None:
        self._waiting.clear()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.drop(closed_by_client(upstream.path))

    def _relay(self, request: NodeRequest, event: DeliveryReceived) -> None:
        """Pass a request on in its order."""
        replies = self.owner.replies_of(self._requests.partner(request.reply_to, self.owner.reply_ends()))
        if not isinstance(replies, RelayedReplies):
            self.accept(event)
            return  # there is nowhere to answer it
        seconds = seconds_for(request.properties, REPLY_SECONDS)
        expiry = asyncio.get_running_loop().call_later(seconds, replies.give_up_on, request)
        asked = _Asked(self, request, event, expiry)
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
                    self._send(upstream, asked, replies)
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

    def _send(self, upstream: WireSender, asked: _Asked, replies: RelayedReplies) -> None:
        self._sent += 1
        if upstream.is_up and replies.is_expected(asked):
            tag = self._sent.to_bytes(4, "big")
            upstream.send(asked.event.payload, tag, message_format=asked.event.message_format)
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
