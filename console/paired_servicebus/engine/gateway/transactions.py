"""The transactions of one client: the gateway is their coordinator, and the primary's is another one behind it.

A transaction has an id of the gateway's own, and one of the primary's from its first act that goes there. An act is a
send, a settlement or a request. Sends to an entity that has failed over are held here; the commit sends them to one
backlog queue first, all or none, then commits at the primary. So a refused commit may leave messages that come twice,
and never loses one.

An open transaction ends with its discharge, with its two minutes or with its coordinator, once every act is answered.
It is lost if acts that the primary had are gone or unknown: it takes no act, and its commit is refused.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from azure.servicebus.exceptions import MessageSizeExceededError

from paired_servicebus.core.errors import WireConnectionError, WireError, WireOutcomeError, WireRequestError
from paired_servicebus.core.model.verdict import DOUBTFUL, kind_of
from paired_servicebus.engine.gateway.front_links import SEND_SECONDS, FrontLink, FrontOwner, RelayConnection
from paired_servicebus.engine.gateway.send_refusals import TIMEOUT
from paired_servicebus.pairing.amqp_client.client_connection import AttachFields, ClientConnection, WireSender
from paired_servicebus.pairing.amqp_client.endpoint import failure_of
from paired_servicebus.pairing.sending.encoded_sender import EncodedPayload, SendAct
from servicebus_amqp.access import NodeAddress, parse_address
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    Coordinator,
    Declare,
    Declared,
    DeliveryState,
    Discharge,
    Source,
    TransactionalState,
    write_composite,
)
from servicebus_amqp.nodes.coordination import CREDIT, MAX_BYTES, admit_entity, read_coordination
from servicebus_amqp.nodes.request_ends import AmqpRefusal, NodeReply, rejected
from servicebus_amqp.protocol.connection import Session, SessionState
from servicebus_amqp.protocol.links import DeliveryReceived, DispositionReceived, Link, LinkSession, ReceiverLink
from servicebus_amqp.protocol_errors import Condition, StateError
from servicebus_amqp.server.server_connection import ServedSession

SECONDS: Final = 120.0
"""The life of a transaction, as of the service's."""
MAX_OPEN: Final = 1000
"""Transactions of one connection."""
MAX_MESSAGES: Final = 100
"""The service's quota of messages sent in one transaction."""
COORDINATOR_SECONDS: Final = 10.0
"""The limit for an answer of the primary's coordinator."""
ROLLBACK: Final = "amqp:transaction:rollback"
_COORDINATOR: Final = "$coordinator"
_DESCRIBED_VALUE: Final = b"\x00\x53\x77"
_SEES_REFUSALS: Final = frozenset({".NET"})
"""SDKs that raise a refused send to the application. Java's treats it as accepted: there the commit has to fail."""
_PART: Final = re.compile(r"/subscriptions/|/\$", re.IGNORECASE)


def unknown_transaction() -> AmqpRefusal:
    text = (
        "Transaction hasn't been declared yet, or has already been discharged. It may have timed out: the server "
        "Transaction timeout is: 00:02:00"
    )
    return AmqpRefusal("amqp:transaction:unknown-id", text, 400)


def top_level(path: str) -> str:
    """Return the queue or topic to which a path belongs, in lower case."""
    return _PART.split(path, maxsplit=1)[0].lower()


class AnsweredLink:
    """A sender to the primary whose messages get one answer each."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._link: WireSender | None = None
        self._pending: dict[bytes, asyncio.Future[DeliveryState | WireError | None]] = {}
        self._sent = 0
        self.users: set[Transaction] = set()
        """Those that are lost with the link."""

    @property
    def is_up(self) -> bool:
        return self._link is not None and self._link.is_up

    def is_on(self, line: ClientConnection) -> bool:
        return self._link is not None and self._link.line is line and self._link.is_up

    @property
    def largest(self) -> int:
        """Bytes of the largest message that the primary accepts here."""
        assert self._link is not None, "it is attached"
        return self._link.max_message_size

    async def attach(self, line: ClientConnection, fields: AttachFields) -> None:
        """Attach; once. Raises WireError."""
        self._link = await line.attach_sender(
            self.path, on_outcome=self._on_outcome, on_lost=self._on_lost, fields=fields
        )

    def send(self, data: bytes, message_format: int = 0, state: DeliveryState | None = None) -> bytes:
        """Send a message; return its tag. Raises WireError."""
        assert self._link is not None, "it is attached"
        self._sent += 1
        tag = self._sent.to_bytes(8, "big")
        try:
            self._link.send(data, tag, message_format=message_format, state=state)
        except StateError as error:
            raise WireConnectionError(f"{self.path}: {error}") from error
        self._pending[tag] = asyncio.get_running_loop().create_future()
        return tag

    async def answer(self, tag: bytes) -> DeliveryState | None:
        """Return the answer to a message. Raises WireError: there is none any more."""
        try:
            found = await self._pending[tag]
        finally:
            self._pending.pop(tag, None)
        if isinstance(found, WireError):
            raise found
        return found

    def _on_outcome(self, event: DispositionReceived) -> None:
        self._end(event.tag, event.state)

    def _on_lost(self, error: WireError) -> None:
        for tag in tuple(self._pending):
            self._end(tag, error)
        for user in tuple(self.users):
            user.lose(str(error))

    def _end(self, tag: bytes, answer: DeliveryState | WireError | None) -> None:
        answered = self._pending.get(tag)
        if answered is not None and not answered.done():
            answered.set_result(answer)


class PrimarySession:
    """The primary's counterpart of one session of a client: its coordinator, and the senders of its acts.

    A session that begins with a coordinator has a session of its own at the primary, which begins with the primary's.
    Links of all others share theirs.
    """

    def __init__(self, relay: RelayConnection, scope: ServedSession) -> None:
        self._relay = relay
        self._scope = scope
        self._session: Session | None = None
        self._line: ClientConnection | None = None
        self._coordinator = AnsweredLink(_COORDINATOR)
        self._senders: dict[str, AnsweredLink] = {}
        self._opening = asyncio.Lock()
        self._is_named = False
        """Whether a link to its first entity is attached at the primary."""

    async def begin(self, line: ClientConnection) -> Session:
        """Return the session; begin it with its coordinator if necessary. Raises WireError."""
        async with self._opening:
            found = self._session
            usable = (SessionState.BEGINNING, SessionState.OPEN)
            if found is not None and found.state in usable and self._coordinator.is_on(line):
                return found
            session, coordinator = line.begin(), AnsweredLink(_COORDINATOR)
            target = Coordinator(capabilities=("amqp:local-transactions",))
            try:
                await coordinator.attach(
                    line, AttachFields(session=session, source=Source(address="paired-gateway"), target=target)
                )
            except BaseException:
                session.end()
                raise
            self._session, self._line, self._coordinator, self._is_named = session, line, coordinator, False
            return session

    async def join(self, line: ClientConnection) -> Session:
        """Return the session for a receiver, which is of its first entity. Raises WireError."""
        session = await self.begin(line)
        self._is_named = True
        return session

    async def sender_to(self, line: ClientConnection, address: NodeAddress) -> AnsweredLink:
        """Return the sender of an entity; attach it at its first act. Raises WireError."""
        session = await self.begin(line) if self._scope.spans_entities else None
        found, first = self._senders.get(address.path.lower()), self._scope.entity
        if found is not None and found.is_on(line):
            return found
        if session is not None and not self._is_named and first not in (None, top_level(address.path)):
            self._is_named = True
            with suppress(WireError):  # for the primary, the first link names the first entity
                await self._attach(line, parse_address(first), session)
        return await self._attach(line, address, session)

    async def _attach(self, line: ClientConnection, address: NodeAddress, session: Session | None) -> AnsweredLink:
        await line.authorizer.authorize(address.path)
        made = AnsweredLink(address.resource)
        await made.attach(line, AttachFields(session=session))
        self._senders[address.path.lower()] = made
        return made

    async def declare(self) -> tuple[AnsweredLink, bytes]:
        """Declare a transaction; return its coordinator and its id. Raises WireError."""

        async def declare(line: ClientConnection) -> tuple[AnsweredLink, bytes]:
            await self.begin(line)
            coordinator = self._coordinator
            state = await coordinator.answer(coordinator.send(_body_of(Declare())))
            if isinstance(state, Declared):
                return coordinator, state.txn_id
            raise failure_of(state, "the primary's coordinator") or WireOutcomeError("it declared no transaction")

        return await self._relay.run(declare, COORDINATOR_SECONDS, "the declaration of a transaction")

    async def discharge(self, coordinator: AnsweredLink, discharge: Discharge) -> AmqpRefusal | None:
        """End a transaction; return the primary's refusal. Raises WireError: it did not answer."""
        tag = coordinator.send(_body_of(discharge))
        state = await self._relay.run(
            lambda _: coordinator.answer(tag), COORDINATOR_SECONDS, "the end of a transaction"
        )
        failure = failure_of(state, "the primary's coordinator")
        return None if failure is None else AmqpRefusal(failure.condition or ROLLBACK, str(failure), 400)

    def end(self) -> None:
        """End the session: the client's has ended."""
        if self._session is not None and self._line is not None:
            self._session.end()
            self._line.touch()


def _body_of(body: Declare | Discharge) -> bytes:
    return _DESCRIBED_VALUE + write_composite(body)


class Transaction:
    """An open transaction. declared: the primary's coordinator of it, and its id there; None before the first act.

    spans_entities, entity: as of `EntityScope`, unless its session has the rule.
    """

    def __init__(self, owner: FrontOwner, coordinator: FrontCoordinator, primary: PrimarySession) -> None:
        self.id = b"paired:" + uuid4().hex.encode()
        self.coordinator = coordinator
        self.spans_entities: bool | None = False
        self.entity: str | None = None
        self.order = asyncio.Lock()
        """Held while an act is sent to the primary: acts leave in their order."""
        self._owner = owner
        self._primary = primary
        self._declared: tuple[AnsweredLink, bytes] | None = None
        self._sends: dict[SendAct, None] = {}
        self._acts: set[asyncio.Future[Any]] = set()
        self._held = 0
        self._lost = ""
        self._refused = ""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- acts -------------------------------------------------------------------------------------------------

    def admit(self, entity: str, *, is_send: bool) -> None:
        """Note the entity of an act. Raises AmqpRefusal: it is one too many, or the transaction is lost."""
        session = self.coordinator.scope
        try:
            self.check()
            admit_entity(self if session is None or session.entity is None else session, entity, is_send=is_send)
        except AmqpRefusal as refusal:
            if is_send:
                self.note_refusal(refusal.description)
            raise

    def check(self) -> None:
        """Raise AmqpRefusal if it is lost."""
        if self._lost:
            text = f"the transaction accepts no more acts, roll it back and begin another one: {self._lost}"
            raise AmqpRefusal(TIMEOUT, text, 408)

    def lose(self, why: str) -> None:
        """Note that acts which the primary had are gone or unknown."""
        self._lost = self._lost or why

    def note_refusal(self, text: str) -> None:
        """Note a refused send."""
        self._refused = self._refused or text

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run an act; the discharge waits for it."""
        self.wait_for(self._owner.start(work))

    def wait_for(self, act: asyncio.Future[Any]) -> None:
        self._acts.add(act)
        act.add_done_callback(self._acts.discard)

    async def state_at_primary(self) -> TransactionalState:
        """Return the primary's state; declare the transaction there first. The caller has `order`. Raises WireError."""
        self.check()
        if self._declared is None:
            self._declared = await self._primary.declare()
            self._declared[0].users.add(self)
        self.check()
        return TransactionalState(txn_id=self._declared[1])

    def add(self, act: SendAct) -> None:
        """Count a send. Raises AmqpRefusal: it is one too many."""
        count = sum(len(each.messages) for each in self._sends) + len(act.messages)
        if count > MAX_MESSAGES:
            text = f"Can't send more than {MAX_MESSAGES} messages in a single transaction; commit it, and begin another"
            raise AmqpRefusal("amqp:resource-limit-exceeded", text, 403)
        self._sends[act] = None

    def drop(self, act: SendAct) -> None:
        self._sends.pop(act, None)

    def hold(self, act: SendAct) -> None:
        """Hold a send for the backlog. Raises AmqpRefusal: the key's budget has no room for it."""
        assert self._owner.budget is not None, "the client is admitted"
        self._owner.budget.hold(act.size)
        self._held += act.size

    # -- its end ----------------------------------------------------------------------------------------------

    async def discharge(self, *, fail: bool) -> AmqpRefusal | None:
        """Commit, or roll back, once every act is answered; return the refusal of a commit."""
        while self._acts:
            await asyncio.wait(self._acts)
        is_committed = False
        try:
            refusal = await (self._roll_back() if fail else self._commit())
            is_committed = not fail and refusal is None
        finally:
            for act in self._sends:
                act.sender.conclude(act, is_committed=is_committed)
            if self._held and self._owner.budget is not None:
                self._owner.budget.release(self._held)
            if self._declared is not None:
                self._declared[0].users.discard(self)
            if not self.ended.done():
                self.ended.set_result(None)
        return refusal

    async def _commit(self) -> AmqpRefusal | None:
        if self._lost:
            return await self._refuse(ROLLBACK, f"the transaction was rolled back: {self._lost}")
        if self._refused and self._owner.tally.name.sdk not in _SEES_REFUSALS:
            return await self._refuse(ROLLBACK, f"the transaction was rolled back, a send was refused: {self._refused}")
        held = [act for act in self._sends if act.is_held]
        if held:
            refusal = await self._park(held)
            if refusal is not None:
                return await self._refuse(refusal.condition, refusal.description)
        came = f"; {len(held)} of its sends are in the backlog already and may come twice" if held else ""
        return None if self._declared is None else await self._commit_at_primary(*self._declared, came)

    async def _commit_at_primary(self, coordinator: AnsweredLink, name: bytes, came: str) -> AmqpRefusal | None:
        """Commit at the primary, after the backlog. came: for a refusal, what is in the backlog."""
        if self._lost:  # meanwhile
            return await self._refuse(ROLLBACK, f"the transaction was rolled back: {self._lost}{came}")
        try:
            refusal = await self._primary.discharge(coordinator, Discharge(txn_id=name))
        except WireError as error:
            reason = f"the primary has not answered the commit, which is in doubt: {error}"
            for act in self._sends:
                if act.is_sent:
                    act.sender.doubt(act, reason)
            return AmqpRefusal(TIMEOUT, reason + came, 408)
        return refusal and AmqpRefusal(refusal.condition, refusal.description + came, refusal.status)

    async def _park(self, held: list[SendAct]) -> AmqpRefusal | None:
        """Send what is held to the backlog; return the refusal of the commit."""
        try:
            await held[0].sender.park(held, SEND_SECONDS)
        except MessageSizeExceededError as error:
            text = f"the {self._held:,} bytes for failed over entities are too many for one batch of the backlog"
            return AmqpRefusal(Condition.MESSAGE_SIZE_EXCEEDED, f"{text}; commit fewer sends at once: {error}", 403)
        except Exception as error:  # noqa: BLE001 - any error is the answer to this commit alone
            doubt = "; they are in doubt" if kind_of(error.__cause__ or error) in DOUBTFUL else ""
            refusal = self._owner.refusal(error)
            return AmqpRefusal(
                ROLLBACK, f"its sends for failed over entities failed{doubt}: {refusal.description}", 400
            )
        return None

    async def _refuse(self, condition: str, text: str) -> AmqpRefusal:
        await self._roll_back()
        return AmqpRefusal(condition, text, 400)

    async def _roll_back(self) -> AmqpRefusal | None:
        """Roll back at the primary."""
        if self._declared is not None and self._declared[0].is_up:
            with suppress(WireError):  # what it does not answer, it ends by itself within two minutes
                await self._primary.discharge(self._declared[0], Discharge(txn_id=self._declared[1], fail=True))
        return None


class Enlistment:
    """One link's part in a transaction, as the pairing's senders use it.

    session: the primary's counterpart of the link's session.
    """

    def __init__(
        self, transaction: Transaction, relay: RelayConnection, session: PrimarySession, address: NodeAddress
    ) -> None:
        self.transaction = transaction
        self.check = transaction.check
        self.add = transaction.add
        self.drop = transaction.drop
        self.hold = transaction.hold
        self._relay = relay
        self._session = session
        self._address = address

    async def send(self, payload: EncodedPayload, timeout: float) -> None:
        """Send an act to the primary. Raises WireError, AmqpRefusal."""
        sent: list[bytes] = []

        async def send(line: ClientConnection) -> DeliveryState | None:
            async with self.transaction.order:
                link = await self._session.sender_to(line, self._address)
                data = payload.data if len(payload.data) <= link.largest else payload.as_sent
                if len(data) > link.largest:
                    text = f"the message has {len(data)} bytes, {link.path} accepts {link.largest}"
                    raise WireOutcomeError(text, Condition.MESSAGE_SIZE_EXCEEDED)
                state = await self.transaction.state_at_primary()
                sent.append(link.send(data, payload.message_format, state))
            return await link.answer(sent[0])

        path = self._address.path
        state = await self._answer(send, sent, timeout, f"a send to {path} in a transaction")
        failure = failure_of(state.outcome if isinstance(state, TransactionalState) else state, path)
        if failure is not None:
            raise failure

    async def request(self, operation: str, body: dict[str, Any], timeout: float) -> NodeReply:
        """Send a request in the transaction to the primary. Raises WireError, AmqpRefusal."""
        async with self.transaction.order:
            state = await self.transaction.state_at_primary()
        try:
            return await self._relay.request(self._address.path, operation, body, timeout=timeout, state=state)
        except WireRequestError:
            raise
        except WireError as error:
            self.transaction.lose(str(error))
            raise

    async def _answer(self, act: Any, sent: list[bytes], timeout: float, name: str) -> DeliveryState | None:
        """Return the answer to an act; without one the transaction is lost. Raises WireError."""
        try:
            return await self._relay.run(act, timeout, name)
        except WireError as error:
            if sent:
                self.transaction.lose(str(error))
            raise


class FrontTransactions:
    """The open transactions of one client's connection, and the primary's counterparts of its sessions."""

    def __init__(self, owner: FrontOwner) -> None:
        self._owner = owner
        self._open: dict[bytes, Transaction] = {}
        self._sessions: dict[LinkSession, PrimarySession] = {}
        self._on_last_end: Callable[[], None] | None = None
        """Called when none is open any more: the gateway ends."""

    def session_of(self, session: LinkSession) -> PrimarySession:
        """Return the primary's counterpart of a session."""
        found = self._sessions.get(session)
        if found is None:
            found = self._sessions[session] = PrimarySession(self._owner.relay, self._owner.sessions[session])
        return found

    def declare(self, coordinator: FrontCoordinator) -> bytes:
        """Open a transaction; return its id. Raises AmqpRefusal."""
        if self._on_last_end is not None:
            raise AmqpRefusal(TIMEOUT, "the gateway ends: connect again", 408)
        if len(self._open) >= MAX_OPEN:
            text = f"this connection has {MAX_OPEN} open transactions; discharge some first"
            raise AmqpRefusal("amqp:resource-limit-exceeded", text, 403)
        made = Transaction(self._owner, coordinator, self.session_of(coordinator.link.session))
        self._open[made.id] = made
        self._owner.start(self._time(made))
        return made.id

    def find(self, state: DeliveryState | None) -> Transaction:
        """Return the open transaction of a state. Raises AmqpRefusal."""
        found = self._open.get(state.txn_id or b"") if isinstance(state, TransactionalState) else None
        if found is None:
            raise unknown_transaction()
        return found

    def enlist(self, state: DeliveryState | None, link: Link, address: NodeAddress, *, is_send: bool) -> Enlistment:
        """Return a link's part in the transaction of an act. Raises AmqpRefusal."""
        found = self.find(state)
        found.admit(top_level(address.path), is_send=is_send)
        return Enlistment(found, self._owner.relay, self.session_of(link.session), address)

    def discharge(self, name: bytes | None) -> Transaction:
        """Return a transaction that ends now. Raises AmqpRefusal."""
        found = self._open.pop(name or b"", None)
        if found is None:
            raise unknown_transaction()
        return found

    def end_those_of(self, coordinator: FrontCoordinator) -> None:
        """Roll back the transactions of a coordinator that is gone."""
        for found in [each for each in self._open.values() if each.coordinator is coordinator]:
            del self._open[found.id]
            found.lose("its coordinator is gone")
            self._owner.start(_end(found))

    def end_session(self, session: LinkSession) -> None:
        """End the counterpart of a session that has ended."""
        found = self._sessions.pop(session, None)
        if found is not None:
            found.end()

    def drain(self, on_last_end: Callable[[], None]) -> None:
        """Declare no more. on_last_end: called when no transaction is open."""
        self._on_last_end = on_last_end
        if not self._open:
            on_last_end()

    async def _time(self, made: Transaction) -> None:
        """Wait for the end of a transaction; roll it back after its time."""
        await asyncio.wait((made.ended,), timeout=SECONDS)
        if self._open.pop(made.id, None) is not None:
            await _end(made)
        await asyncio.wait((made.ended,))
        if not self._open and self._on_last_end is not None:
            self._on_last_end()


async def _end(transaction: Transaction) -> None:
    await transaction.discharge(fail=True)


class FrontCoordinator(FrontLink):
    """A client's coordinator. scope: its session, if it may span entities."""

    def __init__(
        self, owner: FrontOwner, link: ReceiverLink, transactions: FrontTransactions, scope: ServedSession | None
    ) -> None:
        super().__init__(owner, "", None)
        self.link = link
        self.scope = scope
        self._transactions = transactions
        self._taken = 0
        link.flow(CREDIT)

    def on_end(self) -> None:
        self._transactions.end_those_of(self)

    def on_delivery(self, event: DeliveryReceived) -> None:
        self._taken += 1
        if 2 * self._taken >= CREDIT:
            self._taken = 0
            self.link.flow(CREDIT)
        body = read_coordination(event.payload)
        try:
            if isinstance(body, AmqpRefusal):
                raise body
            if isinstance(body, Discharge):
                ending = self._transactions.discharge(body.txn_id)
                self.owner.start(self._discharge(event, ending, fail=body.fail))
            else:
                self._answer(event, Declared(txn_id=self._transactions.declare(self)))
        except Exception as error:  # noqa: BLE001 - any error is the answer to this message alone
            self._answer(event, rejected(self.owner.refusal(error)))

    async def _discharge(self, event: DeliveryReceived, ending: Transaction, *, fail: bool) -> None:
        refusal: AmqpRefusal | None
        try:
            refusal = await ending.discharge(fail=fail)
        except Exception as error:  # noqa: BLE001 - any error is the answer to this discharge alone
            refusal = self.owner.refusal(error)
        if refusal is not None:
            self.owner.warn(f"refused a client's commit, {refusal.condition}", refusal.description)
        self._answer(event, ACCEPTED if refusal is None else rejected(refusal))

    def _answer(self, event: DeliveryReceived, answer: DeliveryState) -> None:
        if not event.settled:
            self.link.answer(event.delivery_id, answer)
        self.owner.touch()


def serve_coordinator(owner: FrontOwner, link: ReceiverLink, transactions: FrontTransactions) -> FrontCoordinator:
    """Serve a coordinator, also before a token: each act needs rights of its own."""
    session = owner.sessions[link.session]
    if session.spans_entities is None:
        session.spans_entities = True
    link.accept_attach(max_message_size=MAX_BYTES)
    return FrontCoordinator(owner, link, transactions, session if session.spans_entities else None)
