"""The pairing as a backend of one client's connection: its socket, its links, one write for each turn of the loop.

Its sends may outlive it: a message that a client handed over before it vanished is still sent. Everything else of a
connection ends with it. A connection has a time for its open and for its first good token.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Protocol, cast

from paired_servicebus.core.errors import WireError
from paired_servicebus.core.gateway.gateway_sentences import client_name
from paired_servicebus.core.model.gateway_view import LinkDirection, TurnedAway
from paired_servicebus.core.model.verdict import CREDENTIALS, FailureKind, kind_of
from paired_servicebus.core.text.entity_paths import path_fault
from paired_servicebus.engine.gateway.admission import STRANGER_LIMITS, OperatorLines
from paired_servicebus.engine.gateway.front_links import (
    FrontLink,
    FrontReplies,
    FrontSender,
    FrontTokens,
    RelayConnection,
    SessionOpener,
)
from paired_servicebus.engine.gateway.gateway_census import GatewayCensus
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing
from paired_servicebus.engine.gateway.known_entities import KnownEntities
from paired_servicebus.engine.gateway.relayed_links import RelayedManagement, RelayedReceiver, RelayedReplies
from paired_servicebus.engine.gateway.send_refusals import TIMEOUT, is_unknown, refusal_of_send
from paired_servicebus.engine.gateway.transactions import FrontTransactions, serve_coordinator, top_level
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.amqp_client.client_connection import ClientConnection
from paired_servicebus.pairing.amqp_client.endpoint import Endpoint
from paired_servicebus.pairing.paired_receiver import DeliveryReceipts
from paired_servicebus.pairing.sending.encoded_sender import EncodedSender
from servicebus_amqp.access import NodeAddress, NodeKind, ProvenAccess, TokenError, parse_address
from servicebus_amqp.encoding.codec import Symbol, ULong
from servicebus_amqp.encoding.performatives import Coordinator, Error
from servicebus_amqp.nodes.coordination import admit_entity
from servicebus_amqp.nodes.request_ends import (
    AmqpRefusal,
    ReplyEnd,
    accept_requests,
    bad_argument,
    error_of,
    not_found_text,
    too_many_links,
    unauthorized,
)
from servicebus_amqp.protocol import links as e
from servicebus_amqp.protocol.connection import Session
from servicebus_amqp.protocol.connection_settings import SaslCode
from servicebus_amqp.protocol.links import ReceiverLink, SenderLink
from servicebus_amqp.server.admission import Admission
from servicebus_amqp.server.server_connection import MAX_LINKS, STRANGER, KeyBudget, KeyBudgets, ServerConnection
from servicebus_amqp.transport import Pieces, count_clients

# When bytes leave: one write for each read of the primary to each client, and one to the primary for many clients.
#
# A write in the loop's next turn costs a lone send a turn each way. So answers leave at the end of the read that
# brought them, and a send that is alone leaves at the end of the read that brought it. Others share the next turn's
# write.


class WriteTurns:
    """The turns of a gateway's writes."""

    def __init__(self) -> None:
        self._primary: ReconnectingConnection | None = None
        self._answered: list[FrontConnection] = []

    def join(self, primary: ReconnectingConnection) -> None:
        """Follow the reads of the primary's connection, the same for all clients."""
        if self._primary is None:
            self._primary = primary
            primary.after_read.append(self._write_answers)

    def leave(self) -> None:
        if self._primary is not None:
            self._primary.after_read.remove(self._write_answers)
            self._primary = None

    def write_after_read(self, client: FrontConnection) -> None:
        """Write to a client when the present read of the primary ends."""
        self._answered.append(client)

    def hold(self) -> ClientConnection | None:
        """Collect writes to the primary until `release`; None without a connection, or if it will write anyway."""
        return None if self._primary is None else self._primary.hold()

    @staticmethod
    def release(held: ClientConnection, *, now: bool) -> None:
        """Write what was collected: now, or in the loop's next turn."""
        if now:
            held.flush()
        else:
            held.will_write = False
            held.touch()

    def _write_answers(self) -> None:
        answered, self._answered = self._answered, []
        for client in answered:
            client.write()


# One connection of AMQP, on a socket or in a WebSocket: its pauses, its timers and its end.
#
# A client that does not read is not read, and is reset when the connection ends: it can hold nothing here for long.

OPENING_SECONDS: Final = 60.0
"""The limit for headers, open and the first good token."""
CLOSING_SECONDS: Final = 5.0
"""The time for a client to read the last bytes."""
PIECE: Final = 32 * 1024
"""Bytes of a client that are handled before others have their turn: some 25 messages of 1 KB, a millisecond."""
_NOT_READING: Final = "the client does not read"
_IN_TURN: Final = "others have their turn"


ASKING_SECONDS: Final = 5.0
"""The limit for asking the primary about an entity that was not seen before."""
BATCH_SIZE: Final = "com.microsoft:max-message-batch-size"
UNKNOWN_LIMITS: Final = (262_144, 262_144)
"""The Standard tier's limits, until the primary has told its own."""
_ENDED_BY_SESSION: Final = frozenset({".NET"})
"""SDKs that go on faster from the end of a receiver's AMQP session than from a detach: .NET after 3 s instead of 60.
Java's receivers do not come back from it; Go's and Python's come back within 4 s."""
_ORDINARY: Final = (TIMEOUT, "com.microsoft:session-cannot-be-locked")
"""No mistake of a client. The primary answers idle receivers of the next session so, about once a minute each."""
_SUB_QUEUE: Final = re.compile(r"(/\$transfer)?/\$deadletterqueue$", re.IGNORECASE)
_NO_SEND_VIA: Final = "send-via is not served: let the client enable cross-entity transactions instead"


class SendingPairing(Protocol):
    """The pairing, as the gateway uses it."""

    async def find_entity(self, path: str, timeout: float) -> tuple[int, int]: ...
    def is_diverting(self, path: str) -> bool | None: ...
    def get_encoded_sender(self, path: str) -> EncodedSender: ...
    def primary_endpoint(self) -> Endpoint: ...
    def delivery_receipts(self, path: str) -> DeliveryReceipts | None: ...


class Front(Protocol):
    """The gateway, as its connections use it."""

    admission: Admission
    lines: OperatorLines
    keys: KeyRing
    budgets: KeyBudgets
    known: KnownEntities
    turns: WriteTurns
    connections: set[FrontConnection]
    clock: Callable[[], float]
    census: GatewayCensus
    holding: float

    @property
    def pairing(self) -> SendingPairing: ...
    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...


class FrontConnection(ServerConnection[FrontLink], asyncio.Protocol):
    """The protocol of one accepted socket."""

    def __init__(self, front: Front) -> None:
        super().__init__("paired-gateway", STRANGER_LIMITS)
        self._front = front
        self.tally = front.census.enter()
        self._is_deaf = False
        self._pieces = Pieces(
            self._read, pause=lambda: self.pause(_IN_TURN), resume=lambda: self.resume(_IN_TURN), size=PIECE
        )
        self._will_write = False
        self._pending_links = 0
        self._relay: RelayConnection | None = None
        self.transactions = FrontTransactions(self)

    # -- transport --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        count_clients(1)
        self._stay = self._front.admission.enter(self.abort)
        self._front.connections.add(self)
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        self.tally.address = f"{peer[0]}:{peer[1]}"
        self._call_later("opening", OPENING_SECONDS, self.abort)

    def data_received(self, data: bytes) -> None:
        if not self._is_deaf:
            self._pieces.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pieces.finish()
        count_clients(-1)
        self.lose()
        self._front.connections.discard(self)
        self._front.census.leave(self.tally)
        self._front.budgets.whole.forget(self)
        if self._relay is not None:
            self._front.start(self.end_relay())

    def pause_writing(self) -> None:
        """Read nothing from a client that does not read, and nothing for it."""
        self.pause(_NOT_READING)
        if self._relay is not None:
            self._relay.hold_back(self.is_full)

    def resume_writing(self) -> None:
        self.resume(_NOT_READING)
        if self._relay is not None:
            self._relay.relieve()

    def is_full(self) -> bool:
        """Return whether the client leaves too many bytes unread."""
        return _NOT_READING in self._pauses

    def abort(self) -> None:
        """Reset the connection."""
        if self._transport is not None:
            self._transport.abort()

    def touch(self) -> None:
        """Schedule a write."""
        if not self._will_write:
            self._will_write = True
            asyncio.get_running_loop().call_soon(self.write)

    def write(self) -> None:
        """Write what is ready."""
        self._will_write = False
        if self._transport is not None and not self._transport.is_closing():
            data = self._amqp.data_to_send()
            if data:
                self._transport.write(data)

    def finish(self) -> None:
        """Write the last output, then close the socket."""
        self.write()
        self._is_deaf = True
        if self._transport is not None:
            self._transport.close()
            self._call_later("closing", CLOSING_SECONDS, self.abort)

    def _read(self, data: bytes) -> None:
        """Handle bytes of the client."""
        if self._is_deaf:
            return
        try:
            self._process_and_write(data)
        except Exception as error:  # noqa: BLE001 - any error ends this connection alone
            self._front.census.count_unknown(error)
            self.abort()

    def _process_and_write(self, data: bytes) -> None:
        held = self._front.turns.hold()
        try:
            self.process(data)
        finally:
            if held is not None:
                self._front.turns.release(held, now=self._front.budgets.whole.sends <= 1)
        self.write()
        if self._relay is not None:
            self._relay.relieve()

    def drain(self) -> None:
        """Grant its senders no more credit once no transaction is open; messages under way are still sent."""
        self.transactions.drain(self._drain_links)

    def _drain_links(self) -> None:
        for link in self.links.values():
            link.drain()
        self.touch()

    def close(self) -> None:
        """Close it without a condition: every SDK connects again."""
        self._amqp.close()
        self.end()

    def warn(self, kind: str, text: str) -> None:
        """Log a line for the operator, at most one of its kind a minute."""
        self._front.lines.warn(kind, text)

    # -- calls of links ---------------------------------------------------------------------------------------

    @property
    def keys(self) -> KeyRing:
        return self._front.keys

    def now(self) -> float:
        return self._front.clock()

    def count_links(self) -> int:
        return len(self.links) + self._pending_links

    def touch_after_read(self) -> None:
        """Write at the end of the present read of the primary."""
        if not self._will_write:
            self._will_write = True
            self._front.turns.write_after_read(self)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._front.start(work)

    def opener_of(self, link: e.Link) -> SessionOpener | None:
        session = self.sessions.get(link.session)
        return self.transactions.session_of(link.session).join if session and session.spans_entities else None

    def grant(self, access: ProvenAccess) -> None:
        """Store proven access, and end links when it expires. Raises AmqpRefusal."""
        self.tally.key = access.key or ""
        super().grant(access)

    def on_admitted(self, key: str) -> KeyBudget:
        return self._front.budgets.budget_of(key, self.keys.limits_of(key))

    def end_beyond(self, refusal: AmqpRefusal) -> None:
        self.tally.note_refusal("", self.now(), refusal.condition, refusal.description)
        super().end_beyond(refusal)

    def report(self, kind: str, refusal: AmqpRefusal) -> None:
        self.warn(kind if kind == STRANGER else f"{kind}, {refusal.condition}", refusal.description)

    def judge_key(self, name: str, key: str) -> SaslCode:
        """Judge SASL PLAIN's name and key."""
        try:
            self.grants.put(self.keys.prove(name, key))
        except TokenError as error:
            self.warn("refused a client's key", error.reason)
            self.turn_away(TurnedAway.WRONG_KEY, error.reason)
            return SaslCode.AUTH
        self.tally.key = name
        return SaslCode.OK

    def drop_keys(self, names: frozenset[str]) -> None:
        """Forget what the keys of these names have proven, and detach the links that no token covers any more."""
        if self.grants.drop_keys(names):
            self.end_uncovered()

    def turn_away(self, why: TurnedAway, text: str) -> None:
        """Count a refusal of what the client may not do, for the operator."""
        self._front.census.turn_away(why, text, self.tally)

    def served_links(self) -> list[tuple[str, LinkDirection]]:
        """Return the entity and the use of each link, without those to $cbs."""
        links = ((link.resource, link.direction) for link in self.links.values())
        return [(parse_address(path).path, direction) for path, direction in links if direction is not None]

    @property
    def relay(self) -> RelayConnection:
        if self._relay is None:
            self._relay = RelayConnection(self._front.pairing.primary_endpoint(), holding=self._front.holding)
        return self._relay

    async def end_relay(self) -> None:
        """Close the connection to the primary."""
        if self._relay is not None:
            await self._relay.close()

    def refusal(self, error: Exception) -> AmqpRefusal:
        """Return the answer to what ended with `error`; a kind that no table knows is counted, and logged once."""
        if is_unknown(error):
            self._front.census.count_unknown(error)
        return refusal_of_send(error)

    def refused(self, link: e.Link, error: Error, *, by_primary: bool) -> None:
        self._refuse(link, AmqpRefusal(error.condition, error.description, 0), error, by_primary=by_primary)

    def end_lost(self, link: SenderLink, error: Error | None, *, with_connection: bool) -> None:
        session: object = link.session
        by_session = with_connection and self.tally.name.sdk in _ENDED_BY_SESSION
        if by_session and isinstance(session, Session) and session.link_count == 1:
            session.end(error)
        else:
            link.detach(error=error)
        self.touch()

    def replies_of(self, end: ReplyEnd | None) -> FrontReplies | None:
        found = None if end is None else self.links.get(end.link)
        return found if isinstance(found, FrontReplies) else None

    def reply_ends(self) -> list[ReplyEnd]:
        return [link.end for link in self.links.values() if isinstance(link, FrontReplies)]

    # -- attaches ---------------------------------------------------------------------------------------------

    def attach(self, event: e.AttachRequested) -> None:
        try:
            if self.count_links() >= MAX_LINKS:
                raise too_many_links()
            if self.budget is not None:
                self.budget.check_links()
            if isinstance(event.target, Coordinator) and isinstance(event.link, ReceiverLink):
                self.links[event.link] = serve_coordinator(self, event.link, self.transactions)
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
                self.links[event.link] = RelayedReceiver(self, event.link, address, receipts)
        except Exception as error:  # noqa: BLE001 - any error is the answer to this attach alone
            self._refuse(event.link, self.refusal(error))

    def _admit_to_session(self, link: e.Link, address: NodeAddress) -> None:
        """Note the link in its session. Raises AmqpRefusal beside a coordinator."""
        session = self.sessions[link.session]
        if session.spans_entities is None:
            session.spans_entities = False
        if session.spans_entities and address.kind is NodeKind.ENTITY:
            admit_entity(session, top_level(address.path), is_send=isinstance(link, ReceiverLink))

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
            self.links[link] = (FrontReplies if is_cbs else RelayedReplies)(self, link, address)
        elif isinstance(link, ReceiverLink) and is_cbs:
            self.links[link] = FrontTokens(self, link, address)
        elif isinstance(link, ReceiverLink):
            self.links[link] = RelayedManagement(self, link, address, partial(self._find_sender, address))

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
            self._refuse(link, self.refusal(error), by_primary=kind_of(error) in CREDENTIALS)
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
        self.links[link] = FrontSender(self, link, address, sender)

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

    def _refuse(
        self, link: e.Link, refusal: AmqpRefusal, error: Error | None = None, *, by_primary: bool = False
    ) -> None:
        """Refuse a link. by_primary: the refusal is the primary's."""
        if not (by_primary and refusal.condition in _ORDINARY):
            self.warn(f"refused a client's link, {refusal.condition}", refusal.description)
        if refusal.condition not in _ORDINARY:
            denied = TurnedAway.ENGINE_REFUSED if by_primary else TurnedAway.MISSING_RIGHT
            is_denied = refusal.condition == "amqp:unauthorized-access"
            self.turn_away(denied if is_denied else TurnedAway.REFUSED_LINK, refusal.description)
        self.tally.note_refusal("", self.now(), refusal.condition, refusal.description)
        self.links.pop(link, None)
        link.refuse(error or error_of(refusal))
        self.touch()

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
