"""The transactions of one client: the gateway is their coordinator, and the primary's is another one behind it.

A transaction has an id of the gateway's own, and one of the primary's from its first act that goes there. An act is a
send, a settlement or a request. Sends to an entity that has failed over are held here; the commit sends them to one
backlog queue first, all or none, then commits at the primary. So a refused commit may leave messages that come twice,
and never loses one.

A transaction ends once every act is answered. It is lost if acts that the primary had are gone or unknown: it accepts
no more acts, and its commit is refused.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from azure.servicebus.exceptions import MessageSizeExceededError

from paired_servicebus.core.errors import WireError, WireOutcomeError, WireRequestError
from paired_servicebus.core.model.verdict import DOUBTFUL, kind_of
from paired_servicebus.engine.gateway.front_socket import FrontLink, FrontSocket
from paired_servicebus.engine.gateway.relay_connection import RelayConnection
from paired_servicebus.engine.gateway.send_refusals import SEND_SECONDS, TIMEOUT
from paired_servicebus.pairing.amqp_client.client_connection import (
    OURS,
    AttachFields,
    ClientConnection,
    WireSender,
)
from paired_servicebus.pairing.amqp_client.endpoint import failure_of
from paired_servicebus.pairing.sending.amqp_link import AmqpLink
from paired_servicebus.pairing.sending.encoded_sender import EncodedSender, SendAct
from servicebus_amqp.access import NodeAddress
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
from servicebus_amqp.nodes.coordination import (
    MAX_MESSAGES,
    CoordinatorEnd,
    EntityScope,
    OpenTransactions,
    beyond_limit,
)
from servicebus_amqp.nodes.request_ends import AmqpRefusal, NodeReply, rejected
from servicebus_amqp.protocol.connection import Session, SessionState
from servicebus_amqp.protocol.links import DeliveryReceived, DispositionReceived, LinkSession, ReceiverLink
from servicebus_amqp.protocol_errors import Condition

COORDINATOR_SECONDS: Final = 10.0
"""The limit for an answer of the primary's coordinator."""
ROLLBACK: Final = "amqp:transaction:rollback"
_COORDINATOR: Final = "$coordinator"
_DESCRIBED_VALUE: Final = b"\x00\x53\x77"
_SEES_REFUSALS: Final = frozenset({".NET"})
"""SDKs that raise a refused send to the application. Java's treats it as accepted: there the commit has to fail."""
T = TypeVar("T")
SessionOpener = Callable[[ClientConnection], Awaitable[Session]]
"""Returns a session of the primary's for links of one session of a client. Raises WireError."""
_PART: Final = re.compile(r"/subscriptions/|/\$", re.IGNORECASE)


def top_level(path: str) -> str:
    """Return the queue or topic to which a path belongs, in lower case."""
    return _PART.split(path, maxsplit=1)[0].lower()


class PrimaryCoordinator:
    """The primary's coordinator, the first link of a session of its own there. It lives once."""

    def __init__(self, relay: RelayConnection, line: ClientConnection) -> None:
        self.session: Session = line.begin()
        self.is_named = False
        """Whether a link to the session's first entity was attached."""
        self._relay = relay
        self._line = line
        self._link: WireSender | None = None
        self._pending: dict[bytes, asyncio.Future[DeliveryState | WireError | None]] = {}
        self._sent = 0

    async def attach(self) -> None:
        """Attach; once. Raises WireError."""
        source, target = Source(address="paired-gateway"), Coordinator(capabilities=("amqp:local-transactions",))
        fields = AttachFields(opener=self._own_session, source=source, target=target)
        try:
            self._link = await self._line.attach_sender(
                _COORDINATOR, on_outcome=self._on_outcome, on_lost=self._on_lost, fields=fields
            )
        except BaseException:
            self.session.end()
            raise

    @property
    def is_up(self) -> bool:
        return self._link is not None and self._link.is_up and self.session.state is SessionState.OPEN

    def is_on(self, line: ClientConnection) -> bool:
        return line is self._line and self.is_up

    async def ask(self, body: Declare | Discharge) -> DeliveryState | None:
        """Return the answer to a message. Raises WireError: there is none."""
        if not self.is_up or self._link is None:
            raise WireOutcomeError("the primary's coordinator is gone")
        self._sent += 1
        tag, answered = self._sent.to_bytes(8, "big"), asyncio.get_running_loop().create_future()
        self._pending[tag] = answered
        self._link.send(_DESCRIBED_VALUE + write_composite(body), tag)
        try:
            found: DeliveryState | WireError | None = await self._relay.run(
                lambda _: _awaited(answered), COORDINATOR_SECONDS, "a transaction's end"
            )
        finally:
            del self._pending[tag]
        if isinstance(found, WireError):
            raise found
        return found

    def end(self) -> None:
        """End the session."""
        self.session.end()
        self._line.touch()

    async def _own_session(self, _: ClientConnection) -> Session:
        return self.session

    def _on_outcome(self, event: DispositionReceived) -> None:
        self._end(event.tag, event.state)

    def _on_lost(self, error: WireError) -> None:
        for tag in self._pending:
            self._end(tag, error)

    def _end(self, tag: bytes, answer: DeliveryState | WireError | None) -> None:
        answered = self._pending.get(tag)
        if answered is not None and not answered.done():
            answered.set_result(answer)


async def _awaited(answered: asyncio.Future[Any]) -> Any:
    return await answered


class PrimarySession:
    """The primary's counterpart of one session of a client: its coordinator, and the senders of its acts.

    A session that begins with a coordinator has a session of its own at the primary, which begins with the primary's.
    Links of all others share theirs.
    """

    def __init__(self, relay: RelayConnection, scope: EntityScope) -> None:
        self._relay = relay
        self._scope = scope
        self._coordinator: PrimaryCoordinator | None = None
        self._links: dict[str, AmqpLink] = {}
        self._opening = asyncio.Lock()

    async def coordinator(self, line: ClientConnection) -> PrimaryCoordinator:
        """Return the coordinator; begin its session if necessary. Raises WireError."""
        async with self._opening:
            found = self._coordinator
            if found is None or not found.is_on(line):
                found = PrimaryCoordinator(self._relay, line)
                await found.attach()
                self._coordinator = found
            return found

    async def join(self, line: ClientConnection) -> Session:
        """Return the session for a receiver, which is of its first entity. Raises WireError."""
        found = await self.coordinator(line)
        found.is_named = True
        return found.session

    def link_to(self, address: NodeAddress) -> AmqpLink:
        """Return the sender of an entity; it is attached at its first act."""
        found = self._links.get(address.path.lower())
        if found is None:
            opener = partial(self._open_for, top_level(address.path))
            fields = AttachFields(opener=opener) if self._scope.spans_entities else OURS
            found = self._links[address.path.lower()] = AmqpLink(self._relay, address.path, fields)
        return found

    async def _open_for(self, entity: str, line: ClientConnection) -> Session:
        """Return the session for a sender. For the primary, the first link names the first entity. Raises WireError."""
        found, first = await self.coordinator(line), self._scope.entity
        if not found.is_named:
            found.is_named = True
            if first is not None and first != entity:
                with suppress(WireError):
                    await line.authorizer.authorize(first)
                    await line.attach_sender(
                        first, on_outcome=_ignore, on_lost=_ignore, fields=AttachFields(opener=found._own_session)
                    )
        return found.session

    async def declare(self) -> tuple[PrimaryCoordinator, bytes]:
        """Declare a transaction; return its coordinator and its id. Raises WireError."""
        found = await self._relay.run(self.coordinator, COORDINATOR_SECONDS, "the primary's coordinator")
        state = await found.ask(Declare())
        if isinstance(state, Declared):
            return found, state.txn_id
        raise failure_of(state, "the primary's coordinator") or WireOutcomeError("it declared no transaction")

    def end(self) -> None:
        """End the session: the client's has ended."""
        if self._coordinator is not None:
            self._coordinator.end()


def _ignore(_: object) -> None:
    """For a link that only names its entity."""


class Transaction:
    """The acts of an open transaction, here and at the primary."""

    def __init__(self, owner: FrontSocket, primary: PrimarySession) -> None:
        self.order = asyncio.Lock()
        """Held while an act is sent to the primary: acts leave in their order."""
        self._owner = owner
        self._primary = primary
        self._declared: tuple[PrimaryCoordinator, TransactionalState] | None = None
        self._sends: dict[SendAct, None] = {}
        self._running: set[object] = set()
        self._straight = 0
        self._idle = asyncio.Event()
        self._held = 0
        self._lost = ""
        self._refused = ""

    # -- acts -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise AmqpRefusal if it is lost."""
        if not self._lost and self._declared is not None and not self._declared[0].is_up:
            self.lose("the primary's coordinator is gone")
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
        """Run an act; the end waits for it."""
        task = self._owner.start(work)
        self._running.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: object) -> None:
        self._running.discard(task)
        self._idle.set()

    def count(self, straight: int) -> None:
        """Count acts that run without a task; the end waits for them."""
        self._straight += straight
        self._idle.set()

    @property
    def ready_state(self) -> TransactionalState | None:
        if self._declared is None or self._running or self._lost or not self._declared[0].is_up:
            return None
        return self._declared[1]

    async def declare(self) -> TransactionalState:
        self.check()
        if self._declared is None:
            coordinator, name = await self._primary.declare()
            self._declared = coordinator, TransactionalState(txn_id=name)
        self.check()
        return self._declared[1]

    def add(self, act: SendAct) -> None:
        if sum(len(each.messages) for each in self._sends) + len(act.messages) > MAX_MESSAGES:
            text = f"Can't send more than {MAX_MESSAGES} messages in a single transaction"
            raise beyond_limit(f"{text}; commit it, and begin another")
        self._sends[act] = None

    def drop(self, act: SendAct) -> None:
        self._sends.pop(act, None)

    def hold(self, size: int) -> None:
        assert self._owner.budget is not None, "the client is admitted"
        self._owner.budget.hold(size)
        self._held += size

    async def request(self, path: str, operation: str, body: dict[str, Any], timeout: float) -> NodeReply:
        return await self._asked(
            lambda state: self._owner.relay.request(path, operation, body, timeout=timeout, state=state)
        )

    async def exchange(self, path: str, operation: str, request: Callable[[str], bytes]) -> bytes:
        """Forward a request in it. As of `ReconnectingConnection.exchange`. Raises WireError, AmqpRefusal."""
        return await self._asked(lambda state: self._owner.relay.exchange(path, operation, request, state=state))

    async def _asked(self, ask: Callable[[TransactionalState], Coroutine[Any, Any, T]]) -> T:
        """Make a request; without an answer the transaction is lost. Raises WireError, AmqpRefusal."""
        async with self.order:
            state = await self.declare()
        try:
            return await ask(state)
        except WireRequestError:
            raise
        except WireError as error:
            self.lose(str(error))
            raise

    # -- its end ----------------------------------------------------------------------------------------------

    async def end(self, *, fail: bool) -> AmqpRefusal | None:
        """Commit, or roll back, once every act is answered; return the refusal of a commit."""
        while self._running or self._straight:
            self._idle.clear()
            await self._idle.wait()
        is_committed = False
        try:
            refusal = await (self._roll_back() if fail else self._commit())
            is_committed = not fail and refusal is None
        finally:
            for act in self._sends:
                act.sender.conclude(act, is_committed=is_committed)
            if self._held and self._owner.budget is not None:
                self._owner.budget.hold(-self._held)
        return refusal

    async def _commit(self) -> AmqpRefusal | None:
        held = [act for act in self._sends if act.is_held]
        if self._refused and self._owner.tally.name.sdk not in _SEES_REFUSALS:
            return await self._refuse(ROLLBACK, f"the transaction was rolled back, a send was refused: {self._refused}")
        came = ""
        try:
            self.check()
            if held:
                await self._park(held)
                came = f"; {len(held)} of its sends are in the backlog already and may come twice"
                self.check()
        except AmqpRefusal as refusal:
            if not self._lost:
                return await self._refuse(refusal.condition, refusal.description)
            return await self._refuse(ROLLBACK, f"the transaction was rolled back: {self._lost}{came}")
        return await self._commit_at_primary(came)

    async def _commit_at_primary(self, came: str) -> AmqpRefusal | None:
        """Commit at the primary, after the backlog. came: for a refusal, what is in the backlog."""
        try:
            failure = await self._discharge(fail=False)
        except WireError as error:
            reason = f"the primary has not answered the commit, which is in doubt: {error}"
            for act in self._sends:
                if act.is_sent:
                    act.sender.doubt(act, reason)
            return AmqpRefusal(TIMEOUT, reason + came, 408)
        return None if failure is None else AmqpRefusal(failure.condition or ROLLBACK, f"{failure}{came}", 400)

    async def _park(self, held: list[SendAct]) -> None:
        """Send what is held to the backlog. Raises AmqpRefusal: that of the commit."""
        try:
            await held[0].sender.park(held, SEND_SECONDS)
        except MessageSizeExceededError as error:
            text = f"the {self._held:,} bytes for failed over entities are too many for one batch of the backlog"
            text = f"{text}; commit fewer sends at once: {error}"
            raise AmqpRefusal(Condition.MESSAGE_SIZE_EXCEEDED, text, 403) from error
        except Exception as error:
            doubt = "; they are in doubt" if kind_of(error.__cause__ or error) in DOUBTFUL else ""
            text = f"its sends for failed over entities failed{doubt}: {self._owner.refusal(error).description}"
            raise AmqpRefusal(ROLLBACK, text, 400) from error

    async def _refuse(self, condition: str, text: str) -> AmqpRefusal:
        await self._roll_back()
        return AmqpRefusal(condition, text, 400)

    async def _roll_back(self) -> None:
        """Roll back at the primary."""
        with suppress(WireError):  # what it does not answer, it ends by itself within two minutes
            await self._discharge(fail=True)

    async def _discharge(self, *, fail: bool) -> WireError | None:
        """End it at the primary; return the refusal. Raises WireError: there was no answer."""
        if self._declared is None:
            return None
        coordinator, state = self._declared
        answer = await coordinator.ask(Discharge(txn_id=state.txn_id, fail=fail))
        return failure_of(answer, "the primary's coordinator")


@dataclass(slots=True, eq=False)
class FrontAct(SendAct):
    """A client's send in its transaction."""

    transaction: Transaction


class FrontTransactions:
    """The open transactions of one client's connection, and the primary's counterparts of its sessions."""

    def __init__(self, owner: FrontSocket) -> None:
        loop = asyncio.get_running_loop()
        self._owner = owner
        self._open: OpenTransactions[Transaction] = OpenTransactions(
            self._begin, self._roll_back, loop.time, self._call_at
        )
        self._sessions: dict[LinkSession, PrimarySession] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._ending = 0
        """Transactions that are discharged, but not ended."""
        self._is_draining = False
        self._ended = asyncio.Event()

    def session_of(self, session: LinkSession) -> PrimarySession:
        """Return the primary's counterpart of a session."""
        found = self._sessions.get(session)
        if found is None:
            found = self._sessions[session] = PrimarySession(self._owner.relay, self._owner.sessions[session])
        return found

    def opener_of(self, session: LinkSession) -> SessionOpener | None:
        """Return how the primary's session for a receiver is opened; None: it shares one."""
        scope = self._owner.sessions.get(session)
        return self.session_of(session).join if scope is not None and scope.spans_entities else None

    def find(self, state: DeliveryState | None) -> Transaction:
        """Return the open transaction of a state. Raises AmqpRefusal."""
        return self._open.find(state).acts

    def enlist(self, event: DeliveryReceived | DispositionReceived, path: str, *, is_send: bool) -> Transaction:
        """Return the transaction of an act on an entity. Raises AmqpRefusal."""
        found = self._open.find(event.state)
        try:
            found.acts.check()
            found.admit(top_level(path), is_send=is_send)
        except AmqpRefusal as refusal:
            if is_send:
                found.acts.note_refusal(refusal.description)
            raise
        return found.acts

    def send_act(self, event: DeliveryReceived, address: NodeAddress, sender: EncodedSender) -> FrontAct:
        """Return a send's part in the transaction of its state. Raises AmqpRefusal."""
        return self.act_of(event, self.enlist(event, address.path, is_send=True), address, sender)

    def act_of(
        self, event: DeliveryReceived, transaction: Transaction, address: NodeAddress, sender: EncodedSender
    ) -> FrontAct:
        """Return a send's part in its transaction, over the primary's counterpart of its link's session."""
        return FrontAct(transaction, sender, self.session_of(event.link.session).link_to(address))

    def declare(self, coordinator: CoordinatorEnd) -> bytes:
        """Open a transaction; return its id. Raises AmqpRefusal."""
        if self._is_draining:
            raise AmqpRefusal(TIMEOUT, "the gateway ends: connect again", 408)
        return self._open.declare(coordinator)

    def discharge(self, body: Discharge) -> Coroutine[Any, Any, AmqpRefusal | None]:
        """End a transaction; return the wait for the refusal of a commit. Raises AmqpRefusal: it is not open."""
        acts = self._open.discharge(body.txn_id)
        self._ending += 1
        return self._end(acts, fail=body.fail)

    def end_those_of(self, coordinator: CoordinatorEnd) -> None:
        """Roll back the transactions of a coordinator that is gone."""
        self._open.end_those_of(coordinator)

    def end_session(self, session: LinkSession) -> None:
        """End the counterpart of a session that has ended."""
        found = self._sessions.pop(session, None)
        if found is not None:
            found.end()

    async def drain(self) -> None:
        """Declare no more, and return when no transaction is open."""
        self._is_draining = True
        while len(self._open) or self._ending:
            self._ended.clear()
            await self._ended.wait()

    def _begin(self, coordinator: CoordinatorEnd) -> Transaction:
        return Transaction(self._owner, self.session_of(coordinator.link.session))

    def _roll_back(self, acts: Transaction) -> None:
        """Roll back a transaction that its client did not discharge."""
        acts.lose("its coordinator is gone, or its time is over")
        self._ending += 1
        self._owner.start(_finished(self._end(acts, fail=True)))

    async def _end(self, acts: Transaction, *, fail: bool) -> AmqpRefusal | None:
        try:
            return await acts.end(fail=fail)
        finally:
            self._ending -= 1
            self._ended.set()
            if not len(self._open) and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _call_at(self, when: float, _: object) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(when, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        following = self._open.run_due(asyncio.get_running_loop().time())
        if following is not None:
            self._call_at(following, self._open)


async def _finished(end: Coroutine[Any, Any, object]) -> None:
    await end


class FrontCoordinator(FrontLink):
    """A client's coordinator."""

    def __init__(self, owner: FrontSocket, link: ReceiverLink, transactions: FrontTransactions) -> None:
        super().__init__(owner, "", None)
        self._link = link
        self._end = CoordinatorEnd(link, owner.sessions[link.session])
        self._transactions = transactions

    def on_end(self) -> None:
        self._transactions.end_those_of(self._end)

    def on_delivery(self, event: DeliveryReceived) -> None:
        body = self._end.read(event)
        try:
            if isinstance(body, AmqpRefusal):
                raise body
            if isinstance(body, Discharge):
                self.owner.start(self._discharge(event, self._transactions.discharge(body)))
            else:
                self._answer(event, Declared(txn_id=self._transactions.declare(self._end)))
        except Exception as error:  # noqa: BLE001 - any error is the answer to this message alone
            self._answer(event, rejected(self.owner.refusal(error)))

    async def _discharge(self, event: DeliveryReceived, end: Coroutine[Any, Any, AmqpRefusal | None]) -> None:
        refusal: AmqpRefusal | None
        try:
            refusal = await end
        except Exception as error:  # noqa: BLE001 - any error is the answer to this discharge alone
            refusal = self.owner.refusal(error)
        if refusal is not None:
            self.owner.warn(f"refused a client's commit, {refusal.condition}", refusal.description)
        self._answer(event, ACCEPTED if refusal is None else rejected(refusal))

    def _answer(self, event: DeliveryReceived, answer: DeliveryState) -> None:
        if not event.settled:
            self._link.answer(event.delivery_id, answer)
        self.owner.touch()
