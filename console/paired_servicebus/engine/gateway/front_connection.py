"""The pairing as a backend of one client's connection: what answers its attaches, and knows its entities' limits."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from paired_servicebus.core.errors import WireError
from paired_servicebus.core.gateway.gateway_sentences import client_name
from paired_servicebus.core.model.verdict import CREDENTIALS, FailureKind, kind_of
from paired_servicebus.core.text.entity_paths import path_fault
from paired_servicebus.engine.gateway.front_links import FrontManagement, FrontReplies, FrontSender, FrontTokens
from paired_servicebus.engine.gateway.front_socket import Front, FrontSocket
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight
from paired_servicebus.engine.gateway.relayed_links import RelayedReceiver
from paired_servicebus.engine.gateway.transactions import FrontCoordinator, FrontTransactions, top_level
from paired_servicebus.pairing.sending.encoded_sender import EncodedSender
from servicebus_amqp.access import NodeAddress, NodeKind, parse_address
from servicebus_amqp.encoding.codec import Symbol, ULong
from servicebus_amqp.encoding.performatives import Coordinator
from servicebus_amqp.nodes.request_ends import (
    AmqpRefusal,
    accept_requests,
    bad_argument,
    not_found_text,
    too_many_links,
    unauthorized,
)
from servicebus_amqp.protocol import links as e
from servicebus_amqp.protocol.links import ReceiverLink, SenderLink
from servicebus_amqp.server.server_connection import MAX_LINKS

ASKING_SECONDS: Final = 5.0
"""The limit for asking the primary about an entity that was not seen before."""
BATCH_SIZE: Final = "com.microsoft:max-message-batch-size"
UNKNOWN_LIMITS: Final = (262_144, 262_144)
"""The Standard tier's limits, until the primary has told its own."""
_SUB_QUEUE: Final = re.compile(r"(/\$transfer)?/\$deadletterqueue$", re.IGNORECASE)
_NO_SEND_VIA: Final = "send-via is not served: let the client enable cross-entity transactions instead"


class FrontConnection(FrontSocket):
    """One client: its attaches are answered with links of the pairing, of the relay and of the gateway itself."""

    def __init__(self, front: Front) -> None:
        super().__init__(front)
        self.transactions = FrontTransactions(self)

    def drain(self) -> None:
        """Grant its senders no more credit once no transaction is open; messages under way are still sent."""
        self.start(self._drain())

    async def _drain(self) -> None:
        await self.transactions.drain()
        super().drain()

    def attach(self, event: e.AttachRequested) -> None:
        try:
            if self.count_links() >= MAX_LINKS:
                raise too_many_links()
            if self.budget is not None:
                self.budget.check_links()
            if isinstance(event.target, Coordinator) and isinstance(event.link, ReceiverLink):
                self.links[event.link] = FrontCoordinator(self, event.link, self.transactions)
                return
            address = _address_of(event)
            self._check_access(event.link, address)
            self._admit_to_session(event.link, address)
            if address.kind is not NodeKind.ENTITY:
                self._attach_node(event.link, address)
            elif isinstance(event.link, ReceiverLink):
                self._pending_links += 1
                self.start(self._attach_sender(event.link, address))
            elif isinstance(event.link, SenderLink):
                receipts = self._front.pairing.delivery_receipts(address.path)
                self.links[event.link] = RelayedReceiver(self, event.link, address, self.transactions, receipts)
        except Exception as error:  # noqa: BLE001 - any error is the answer to this attach alone
            self.refuse(event.link, self.refusal(error))

    def _admit_to_session(self, link: e.Link, address: NodeAddress) -> None:
        """Note the link in its session. Raises AmqpRefusal beside a coordinator."""
        session = self.sessions[link.session]
        session.begin(with_coordinator=False)
        if session.spans_entities and address.kind is NodeKind.ENTITY:
            session.admit(top_level(address.path), is_send=isinstance(link, ReceiverLink))

    def _on_ended(self, event: e.SessionEnded) -> None:
        super()._on_ended(event)
        self.transactions.end_session(event.session)

    def _check_access(self, link: e.Link, address: NodeAddress) -> None:
        if address.kind is NodeKind.CBS:
            return
        is_sender = address.kind is NodeKind.ENTITY and isinstance(link, ReceiverLink)
        fault = path_fault(address.path if is_sender else _SUB_QUEUE.sub("", address.path))
        if fault:
            raise bad_argument(f"the address of the link {fault}")
        right = None
        if address.kind is NodeKind.ENTITY:
            right = GatewayRight.SEND if is_sender else GatewayRight.LISTEN
        if not self.grants.allow(address.resource, right, self.now()):
            raise unauthorized(address.resource, right)

    def _attach_node(self, link: e.Link, address: NodeAddress) -> None:
        is_cbs = address.kind is NodeKind.CBS
        if isinstance(link, ReceiverLink):
            accept_requests(link, address)
        else:
            link.accept_attach()
        if isinstance(link, SenderLink):
            self.links[link] = FrontReplies(self, link, address)
        elif isinstance(link, ReceiverLink) and is_cbs:
            self.links[link] = FrontTokens(self, link, address)
        elif isinstance(link, ReceiverLink):
            finder = partial(self._find_sender, address)
            self.links[link] = FrontManagement(self, link, address, finder, self.transactions)

    async def _find_sender(self, address: NodeAddress) -> EncodedSender:
        await self._limits(address.path)
        return self._sender_to(address)

    def _sender_to(self, address: NodeAddress) -> EncodedSender:
        sender = self._front.pairing.get_encoded_sender(address.path)
        sender.key = self._key_names(address)
        return sender

    async def _attach_sender(self, link: ReceiverLink, address: NodeAddress) -> None:
        """Attach a sender once the entity is known to exist."""
        try:
            limits = await self._limits(address.path)
            sender = self._sender_to(address)
        except Exception as error:  # noqa: BLE001 - as above
            self.refuse(link, self.refusal(error), by_primary=kind_of(error) in CREDENTIALS)
        else:
            if link.is_requested:  # else the client has left meanwhile
                self._serve(link, address, sender, limits)
        finally:
            self._pending_links -= 1
        self.touch()

    def _serve(self, link: ReceiverLink, address: NodeAddress, sender: EncodedSender, limits: tuple[int, int]) -> None:
        largest, batch = limits
        self.largest = max(self.largest, largest)
        told = {Symbol(BATCH_SIZE): ULong(batch)} if batch < largest else None
        link.accept_attach(properties=told, max_message_size=largest)
        self._front.turns.join(sender.wire)
        self.links[link] = FrontSender(self, link, address, sender, self.transactions)

    def _key_names(self, address: NodeAddress) -> str:
        """Return the key that opened the address, for the journal; several if the client signed with more than one."""
        return ", ".join(sorted(self.grants.keys(address.resource, GatewayRight.SEND, self.now())))

    async def _limits(self, path: str) -> tuple[int, int]:
        """Return an entity's limits; ask the primary unless its sends go to the backlog. Raises AmqpRefusal."""
        pairing, known = self._front.pairing, self._front.known
        diverting = pairing.is_diverting(path)
        assumed = known.limits(path) or UNKNOWN_LIMITS
        if diverting:
            return pairing.get_encoded_sender(path).limits or assumed
        try:
            limits = await pairing.find_entity(path, ASKING_SECONDS)
        except WireError as error:
            kind = kind_of(error)
            if kind is FailureKind.NOT_FOUND:
                known.forget(path)
                raise AmqpRefusal("amqp:not-found", not_found_text(path), 404) from error
            is_known = diverting is not None or known.limits(path) is not None
            if not is_known or kind in CREDENTIALS:
                raise
            return assumed
        known.note(path, limits)
        return limits

    # -- events -----------------------------------------------------------------------------------------------

    def on_opened(self, event: e.Opened) -> None:
        self.tally.name = client_name(event.container_id, event.properties)


def _address_of(event: e.AttachRequested) -> NodeAddress:
    """Return the node that a client requests. Raises AmqpRefusal."""
    terminus = event.target if isinstance(event.link, ReceiverLink) else event.source
    address = getattr(terminus, "address", None)
    if not isinstance(address, str):
        raise AmqpRefusal("amqp:not-implemented", "a link needs an address; dynamic nodes are not served", 501)
    if event.properties.get("com.microsoft:transfer-destination-address") is not None:
        raise AmqpRefusal("amqp:not-implemented", _NO_SEND_VIA, 501)
    return parse_address(address)
