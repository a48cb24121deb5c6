"""The gateway's side of one client's connection: its socket, its writes, and what its links use of it.

Its sends may outlive it: a message that a client handed over before it vanished is still sent. Everything else of a
connection ends with it. A connection has a time for its open and for its first good token. A client that does not read
is not read, and is reset when the connection ends: it can hold nothing here for long.

When bytes leave: one write for each read of the primary to each client, and one to the primary for many clients. A
write in the loop's next turn costs a lone send a turn each way. So answers leave at the end of the read that brought
them, and a send that is alone leaves at the end of the read that brought it. Others share the next turn's write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, cast

from paired_servicebus.core.model.gateway_view import LinkDirection, TurnedAway
from paired_servicebus.engine.gateway.admission import STRANGER_LIMITS, OperatorLines
from paired_servicebus.engine.gateway.gateway_census import GatewayCensus
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing
from paired_servicebus.engine.gateway.known_entities import KnownEntities
from paired_servicebus.engine.gateway.relay_connection import RelayConnection
from paired_servicebus.engine.gateway.send_refusals import TIMEOUT, is_unknown, refusal_of_send
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.amqp_client.client_connection import ClientConnection
from paired_servicebus.pairing.amqp_client.endpoint import Endpoint
from paired_servicebus.pairing.paired_receiver import DeliveryReceipts
from paired_servicebus.pairing.sending.encoded_sender import EncodedSender
from servicebus_amqp.access import ProvenAccess, TokenError, parse_address
from servicebus_amqp.encoding.performatives import Error
from servicebus_amqp.nodes.request_ends import AmqpRefusal, error_of
from servicebus_amqp.protocol import links as e
from servicebus_amqp.protocol.connection import Session
from servicebus_amqp.protocol.connection_settings import SaslCode
from servicebus_amqp.protocol.links import SenderLink
from servicebus_amqp.server.admission import Admission
from servicebus_amqp.server.server_connection import STRANGER, KeyBudget, KeyBudgets, ServedLink, ServerConnection
from servicebus_amqp.transport import Pieces, count_clients

OPENING_SECONDS: Final = 60.0
"""The limit for headers, open and the first good token."""
CLOSING_SECONDS: Final = 5.0
"""The time for a client to read the last bytes."""
PIECE: Final = 32 * 1024
"""Bytes of a client that are handled before others have their turn: some 25 messages of 1 KB, a millisecond."""
_NOT_READING: Final = "the client does not read"
_IN_TURN: Final = "others have their turn"
_ENDED_BY_SESSION: Final = frozenset({".NET"})
"""SDKs that go on faster from the end of a receiver's AMQP session than from a detach: .NET after 3 s instead of 60.
Java's receivers do not come back from it; Go's and Python's come back within 4 s."""
_ORDINARY: Final = (TIMEOUT, "com.microsoft:session-cannot-be-locked")
"""No mistake of a client. The primary answers idle receivers of the next session so, about once a minute each."""


class WriteTurns:
    """The turns of a gateway's writes."""

    def __init__(self) -> None:
        self._primaries: list[ReconnectingConnection] = []
        self._answered: list[FrontSocket] = []

    def join(self, primary: ReconnectingConnection) -> None:
        """Follow the reads of a connection to the primary, which many clients share."""
        if primary not in self._primaries:
            self._primaries.append(primary)
            primary.after_read.append(self._write_answers)

    def leave(self) -> None:
        for primary in self._primaries:
            primary.after_read.remove(self._write_answers)
        self._primaries.clear()

    def write_after_read(self, client: FrontSocket) -> None:
        """Write to a client when the present read of the primary ends."""
        self._answered.append(client)

    def hold(self) -> list[ClientConnection]:
        """Collect writes to the primary until `release`; return the connections that would not write anyway."""
        return [held for primary in self._primaries if (held := primary.hold()) is not None]

    @staticmethod
    def release(held: list[ClientConnection], *, now: bool) -> None:
        """Write what was collected: now, or in the loop's next turn."""
        for line in held:
            if now:
                line.flush()
            else:
                line.will_write = False
                line.touch()

    def _write_answers(self) -> None:
        answered, self._answered = self._answered, []
        for client in answered:
            client.write()


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
    connections: set[FrontSocket]
    clock: Callable[[], float]
    census: GatewayCensus
    holding: float

    @property
    def pairing(self) -> SendingPairing: ...
    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...


class FrontLink(ServedLink):
    """A link in service. `resource`: the path that a token has to cover; empty for $cbs."""

    direction: LinkDirection | None = None
    """Its use, for the operator; None: it is not counted."""

    def __init__(self, owner: FrontSocket, resource: str, right: GatewayRight | None) -> None:
        self.owner = owner
        self.resource = resource
        self.right = right

    def drain(self) -> None:
        """Grant no more credit: the gateway ends."""


class FrontSocket(ServerConnection[FrontLink], asyncio.Protocol):
    """The protocol of one accepted socket; its subclass answers attaches."""

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
        held, relayed = self._front.turns.hold(), None if self._relay is None else self._relay.hold()
        try:
            self.process(data)
        finally:
            self._front.turns.release(held, now=self._front.budgets.whole.sends <= 1)
            if relayed is not None:
                relayed.flush()
        self.write()
        if self._relay is not None:
            self._relay.relieve()

    def drain(self) -> None:
        """Grant its senders no more credit; messages under way are still sent."""
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
        """Return the time of day, in epoch seconds."""
        return self._front.clock()

    def count_links(self) -> int:
        return len(self.links) + self._pending_links

    def touch_after_read(self) -> None:
        """Write at the end of the present read of the primary."""
        if not self._will_write:
            self._will_write = True
            self._front.turns.write_after_read(self)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task, which may outlive the connection."""
        return self._front.start(work)

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
        """The connection to the primary for what is relayed."""
        if self._relay is None:
            self._relay = RelayConnection(self._front.pairing.primary_endpoint(), holding=self._front.holding)
            self._relay.after_read.append(self.write)
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

    def end_lost(self, link: SenderLink, error: Error | None, *, with_connection: bool) -> None:
        """Detach a receiver that the primary has ended, with its connection or alone."""
        session: object = link.session
        by_session = with_connection and self.tally.name.sdk in _ENDED_BY_SESSION
        if by_session and isinstance(session, Session) and session.link_count == 1:
            session.end(error)
        else:
            link.detach(error=error)
        self.touch()

    def refuse(
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
