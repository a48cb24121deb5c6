"""The server of one namespace: broker, keys, faults and AMQP connections.

It drives the broker: after any input and at each deadline it runs the broker, then each connection writes its output.
The broker is a backend of a client's connection: its links, idle ends, faults, and one write for each read.
`ServerConnection` has the protocol, access, time-outs and limits. Connections pause when the client does not read or a
fault demands it. The listener accepts sockets, detects protocols, and gets its AMQP protocols from `protocol`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, cast

from servicebus_amqp.access import TokenError, covers
from servicebus_amqp.nodes.coordination import OpenTransactions
from servicebus_amqp.nodes.request_ends import AmqpRefusal, StrangerLimits, error_of
from servicebus_amqp.protocol import links as e
from servicebus_amqp.protocol.connection_settings import SaslCode
from servicebus_amqp.server.admission import Admission, log_once
from servicebus_amqp.server.listener import Listener, ProtocolFactory
from servicebus_amqp.server.server_connection import (
    DEFAULT_LIMITS,
    STRANGER,
    KeyBudget,
    KeyBudgets,
    ServerConnection,
    knows_outcome,
    knows_state,
)
from servicebus_sandbox.access.authorization import Authorization, Issuer
from servicebus_sandbox.amqp_server.broker_links import (
    SETTLING,
    BrokerLink,
    BrokerLinkOwner,
    DelayLine,
    IncomingLink,
)
from servicebus_sandbox.amqp_server.link_attach import attach as attach_link
from servicebus_sandbox.amqp_server.link_attach import attach_latency
from servicebus_sandbox.amqp_server.message_codec import AmqpPropertyCodec
from servicebus_sandbox.broker.entity_settings import Right
from servicebus_sandbox.broker.queues.agenda import earliest
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace
from servicebus_sandbox.broker.transaction import Transaction
from servicebus_sandbox.faults import (
    UNKNOWN_CALLER,
    Caller,
    CaseKey,
    ConnectionVerdict,
    Direction,
    FaultBoard,
    FaultVerdict,
    InjectionPoint,
)
from servicebus_sandbox.serving.amqp_conditions import RefusalLog, closed, closed_by_fault, idle, tracked, unlinked
from servicebus_sandbox.specs import NamespaceSpec

# The limits of a connection before its first good token.
#
# A client sends headers, an open, a session, two links and a token; a refused client may retry a few times. Received
# bytes are counted, which also limits unfinished messages.

OPENING_SECONDS: Final = 15.0
"""The limit for protocol headers, SASL and the open."""
TOKEN_SECONDS: Final = 60.0
"""The limit for the first good token; a credential may have to wait for a slow authority."""
MAX_BYTES: Final = 256 * 1024
MAX_SESSIONS: Final = 100
MAX_UNPROVEN_LINKS: Final = 100
"""Sessions and links are counted when they begin; ended ones count too."""


STRANGER_LIMITS: Final = StrangerLimits(octets=MAX_BYTES, sessions=MAX_SESSIONS, links=MAX_UNPROVEN_LINKS)


def no_token_in_time() -> AmqpRefusal:
    """Return the refusal of a client without a token."""
    return AmqpRefusal(
        "amqp:connection:forced", f"no good token came within {TOKEN_SECONDS:g} seconds; put one on $cbs first", 401
    )


log = logging.getLogger(__name__)

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_CUTTING: Final = (FaultVerdict.RESET, FaultVerdict.TAKE_AND_RESET, FaultVerdict.DISCONNECT, FaultVerdict.DETACH)
_UNANSWERED: Final = (*_CUTTING, FaultVerdict.SWALLOW, FaultVerdict.TAKE_SILENTLY)
_DEAF: Final = (ConnectionVerdict.SWALLOW, ConnectionVerdict.DEAF)
_MUTE: Final = (ConnectionVerdict.SWALLOW, ConnectionVerdict.MUTE)
IDLE_LINK_SECONDS: Final = 600.0
"""The service detaches links that were unused for ten minutes."""
UNLINKED_SECONDS: Final = (60.0, 300.0)
"""It closes connections without links to entities, before the first one and after the last."""
_NOT_READING: Final = "the client does not read"
TURN_BYTES: Final = 64 * 1024
"""The limit of messages for one connection in a turn of the event loop; the others' requests come before the rest."""


class AmqpServerProtocol(ServerConnection[BrokerLink], asyncio.Protocol, asyncio.BufferedProtocol):
    """The protocol of an AMQP connection; `NamespaceServer.protocol` makes it.

    It is buffered so that the server limits each read: other connections wait for that long.
    """

    def __init__(self, node: NamespaceServer) -> None:
        super().__init__(node.container_id, STRANGER_LIMITS)
        self.node = node
        self.container_id: str | None = None
        agenda = node.namespace.agenda
        self.transactions: OpenTransactions[Transaction] = OpenTransactions(
            lambda _: Transaction(), Transaction.roll_back, agenda.clock, agenda.call_at
        )
        self._verdict = ConnectionVerdict.SERVE
        self._met: dict[CaseKey, ConnectionVerdict] = {}
        self._lines = {direction: DelayLine(self.stir) for direction in Direction}
        self._attaches = DelayLine(self.stir)
        self._is_slow = False
        self.read_at = self._linked_at = node.clock()
        self._had_links = False
        self._missed_something = False
        self._unwritten = 0
        self._writable = True
        self.is_holding = False

    # ------------------------------------------------------------------ transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.node.connections.add(self)
        self._stay = self.node.admission.enter(self.abort)
        self._call_later("opening", OPENING_SECONDS, self._give_up_opening)
        self._follow_faults(is_new=True)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.node.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self.node.read_buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        if self._verdict in _DEAF:
            self._missed_something = True
        elif self._is_slow:
            delay = self.node.faults.connection_latency(Direction.IN, self._as_caller)
            self._lines[Direction.IN].put(partial(self._take_in, data), delay)
        else:
            self._take_in(data)
            self.stir()

    def connection_lost(self, exc: Exception | None) -> None:
        self.node.connections.discard(self)
        for line in self._lines.values():
            line.clear()
        self.lose()
        self.node.wake()

    def pause_writing(self) -> None:
        """Deliver nothing and read nothing while the client reads too slowly."""
        self._writable = False
        self._hold()
        self.pause(_NOT_READING)

    def resume_writing(self) -> None:
        self._writable = True
        self.resume(_NOT_READING)
        self.node.flush_soon(self)
        self.node.wake()

    def abort(self) -> None:
        """Reset the connection."""
        self._is_over = True
        if self._transport is not None:
            connection = self._transport.get_extra_info("socket")
            if connection is not None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._transport.abort()

    # ------------------------------------------------------------------ calls of the server

    def flush(self) -> None:
        """Write the pending output in one piece, then resume deliveries if the client keeps up."""
        if self._transport is None or self._verdict in _MUTE or self._is_over or not self._writable:
            return
        data = self._amqp.data_to_send()
        self._unwritten = 0
        if data and self._is_slow:
            delay = self.node.faults.connection_latency(Direction.OUT, self._as_caller)
            self._lines[Direction.OUT].put(partial(self._transport.write, data), delay)
        elif data:
            self._transport.write(data)
        if self.is_holding and self._writable:
            asyncio.get_running_loop().call_soon(self._release)

    def faults_changed(self) -> None:
        """Apply the namespace's faults: reset, pause or resume."""
        self._follow_faults(is_new=False)
        for link in list(self.links.values()):
            link.follow_faults()
        self.node.flush_soon(self)

    def _follow_faults(self, *, is_new: bool) -> None:
        faults = self.node.faults
        caller = self._as_caller
        self._is_slow = faults.slows_connections(caller) or any(self._lines.values())
        before, self._verdict = self._verdict, faults.met_by_connection(self._met, caller, is_new=is_new)
        match self._verdict:
            case ConnectionVerdict.RESET:
                self.abort()
            case ConnectionVerdict.CLOSE:
                self.disconnect(None)
            case ConnectionVerdict.SWALLOW:
                self._hold()
            case ConnectionVerdict.SERVE if self._missed_something or (
                before is ConnectionVerdict.MUTE and self._amqp.data_to_send()
            ):
                self.abort()  # the stream lacks the swallowed bytes

    def disconnect(self, path: str | None) -> None:
        """Close the connection because of the entity at `path`; None means the namespace."""
        if not self._is_over:
            self._amqp.close(error_of(tracked(closed_by_fault(path or self.node.name))))
            self.end()

    def entity_removed(self, path: str) -> None:
        """Detach the links of a deleted entity."""
        for link in list(self.links.values()):
            if link.path and covers(path, link.path):
                link.detach(closed(link.link))
        self.node.flush_soon(self)

    def entity_closed(self, path: str) -> None:
        """Detach the links into an entity that accepts no messages; the broker ends the links out of it."""
        for link in list(self.links.values()):
            if isinstance(link, IncomingLink):
                link.end_if_closed(path)
        self.node.flush_soon(self)

    def cut(self, end: e.Link, link: BrokerLink, refusal: AmqpRefusal) -> None:
        link.detach(refusal)

    def end_idle_links(self) -> None:
        """Detach the idle links, and check again when the next one may be idle."""
        now = self.node.clock()
        used = [(link.used_at, link) for link in list(self.links.values()) if link.used_at is not None]
        for at, link in used:
            if now - at >= IDLE_LINK_SECONDS:
                link.detach(idle(link.link, IDLE_LINK_SECONDS))
        left = [at for at, _ in used if now - at < IDLE_LINK_SECONDS]
        if left:
            self._call_later("idle", min(left) + IDLE_LINK_SECONDS - now, self._on_idle_link)

    def end_if_unlinked(self) -> None:
        """Close a connection that has had no link to an entity for too long; else check again at that time."""
        now, limit = self.node.clock(), UNLINKED_SECONDS[self._had_links]
        is_watched = self.node.namespace.behaves.close_unlinked_connections and self._probation is None
        if not is_watched or self._is_over or any(link.path for link in self.links.values()):
            return
        if now - self._linked_at < limit:
            self._call_later("links", self._linked_at + limit - now, self.end_if_unlinked)
        elif self._verdict is ConnectionVerdict.SERVE:
            self._amqp.close(error_of(tracked(unlinked(self.node.container_id, limit))))
            self.end()

    # ------------------------------------------------------------------ calls of links

    def count_outgoing(self, size: int) -> None:
        """Count `size` bytes of an outgoing message; schedule the write, and pause above the limit."""
        if not self._unwritten:
            self.node.flush_soon(self)
        self._unwritten += size
        if self._unwritten > TURN_BYTES:
            self._hold()

    def serve(self, link: BrokerLink) -> None:
        """Put a link that is attached, or waits for its session, in service."""
        self.links[link.link] = link
        self._had_links |= bool(link.path)
        link.begin()
        if "idle" not in self._timers and link.used_at is not None:
            self._call_later("idle", IDLE_LINK_SECONDS, self._on_idle_link)
        if self.is_holding:
            link.pause()

    def forget(self, link: BrokerLink) -> None:
        """Remove a link that was detached from our side."""
        self.links.pop(link.link, None)
        self._lost_link(link)
        self.node.flush_soon(self)

    def _lost_link(self, link: BrokerLink) -> None:
        if link.path:
            self._linked_at = self.node.clock()
            self.end_if_unlinked()

    def used(self, name: object) -> None:
        """Note a use of the link called `name`, such as the renewal of a lock: it is not idle."""
        for link in self.links.values():
            if link.used_at is not None and link.link.name == name:
                link.used_at = self.read_at

    def caller(self, resource: str, right: Right | None) -> Caller:
        """Return the client, with the keys that give this right on the resource."""
        if not self.node.faults.knows_clients:
            return UNKNOWN_CALLER
        return Caller(container_id=self.container_id, keys=self.grants.keys(resource, right, self.node.clock()))

    @property
    def _as_caller(self) -> Caller:
        return Caller(container_id=self.container_id)

    def now(self) -> float:
        return self.node.clock()

    @property
    def is_held(self) -> bool:
        return self._verdict is not ConnectionVerdict.SERVE  # swallowed bytes are no silence

    def on_admitted(self, key: str) -> KeyBudget:
        return self.node.budgets.budget_of(key, DEFAULT_LIMITS)

    def _leave_strangers(self) -> None:
        was_stranger = self._probation is not None
        super()._leave_strangers()
        if was_stranger:
            self.end_if_unlinked()

    def report(self, kind: str, refusal: AmqpRefusal) -> None:
        self.node.complaints.about(refusal.condition, f"ended a connection: {refusal.description}")

    def touch(self) -> None:
        self.stir()

    def judge_key(self, name: str, key: str) -> SaslCode | None:
        """Judge SASL PLAIN's name and key, as far as the faults of contact let them through."""
        caller = Caller(container_id=None, keys=frozenset({name}))
        verdict = self.node.faults.verdict(InjectionPoint.TOKEN, "", caller=caller)
        if verdict in _CUTTING:
            self.abort()
        if verdict in _UNANSWERED:
            return None
        if verdict not in (FaultVerdict.SERVE, FaultVerdict.UNAUTHORIZED):
            return SaslCode.TEMPORARY
        try:
            proven = self.node.authorization.prove(name, key) if verdict is FaultVerdict.SERVE else ()
        except TokenError:
            proven = ()
        for access in proven:
            self.grants.put(access)
        return SaslCode.OK if proven else SaslCode.AUTH

    def stir(self) -> None:
        """Write the output, and let the broker act on the change."""
        self.node.flush_soon(self)
        self.node.wake()

    # ------------------------------------------------------------------ events

    def _take_in(self, data: bytes) -> None:
        self.read_at = self.node.clock()
        self.process(data)

    def _on_delivery(self, event: e.DeliveryReceived) -> None:
        link = self.links.get(event.link)
        if link is None or (event.state is not None and not knows_state(link, event)):
            return
        if link.is_slow:
            link.later(partial(link.on_delivery, event), Direction.IN)
        else:
            link.on_delivery(event)

    def _on_disposition(self, event: e.DispositionReceived) -> None:
        link = self.links.get(event.link)
        if link is None or not knows_outcome(link, event):
            return
        if link.is_slow:
            link.later(partial(link.on_disposition, event), Direction.IN, SETTLING)
        else:
            link.on_disposition(event)

    def attach(self, event: e.AttachRequested) -> None:
        delay = 0.0 if self.node.faults.is_quiet else attach_latency(self, event)
        if delay:
            self._attaches.put(partial(attach_link, self, event), delay)
        else:
            attach_link(self, event)

    def _on_detached(self, event: e.Detached) -> None:
        link = self.links.pop(event.link, None)
        if link is not None:
            link.on_end()
            self._lost_link(link)

    def on_opened(self, event: e.Opened) -> None:
        self.container_id = event.container_id
        if self.node.faults.knows_clients:
            self._follow_faults(is_new=True)
        self._call_later("opening", TOKEN_SECONDS, self._give_up_opening)

    # ------------------------------------------------------------------ inside

    def finish(self) -> None:
        self.drop_links()
        transport = self._transport
        if transport is not None and not transport.is_closing():
            self._lines[Direction.OUT].hurry()
            transport.write(self._amqp.data_to_send())
            transport.close()

    def drop_links(self) -> None:
        self._attaches.clear()
        for link in list(self.links.values()):
            link.gone()
        self.links.clear()

    def _hold(self) -> None:
        if not self.is_holding:
            self.is_holding = True
            for link in self.links.values():
                link.pause()

    def _release(self) -> None:
        """Continue deliveries, in the turn after a write."""
        if self.is_holding and self._writable:
            self.is_holding = False
            for link in self.links.values():
                link.resume()
            self.node.wake()

    def _give_up_opening(self) -> None:
        """Close a connection that sent no open or no token in time; faults that hold it stop that time."""
        if self._probation is None:
            return
        if self._verdict is not ConnectionVerdict.SERVE or self._is_slow:
            self._call_later("opening", TOKEN_SECONDS, self._give_up_opening)
        elif self.container_id is not None:
            self.end_with(STRANGER, no_token_in_time())
        else:
            self.abort()

    def _on_idle_link(self) -> None:
        del self._timers["idle"]
        self.end_idle_links()
        self.stir()


_READ_BYTES = 64 * 1024  # per turn and connection: asyncio's 256 KB delay the others by nearly 300 messages
_MIN_SLEEP_SECONDS = 0.001  # timers may fire a moment early by another clock; never spin on that


class NamespaceServer:
    """A namespace that clients can connect to, with the entities, rules and behavior of its specification.

    `issuer` signs its bearer tokens. `clock` returns epoch seconds; call `clock_jumped` after setting it forward.
    `time_of_day` judges new tokens, because clients date tokens by it; afterwards they age by `clock`. Call `wake`
    after changing entities outside AMQP. Raises as `NamespaceSpec.fill` does.
    """

    def __init__(
        self,
        spec: NamespaceSpec,
        *,
        issuer: Issuer | None = None,
        clock: Callable[[], float] = time.time,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        name = self.name = spec.name
        self.region = spec.region
        self.container_id = f"{secrets.token_hex(16)}_G0"
        self.clock = clock
        self.time_of_day = time_of_day
        self.namespace = BrokerNamespace(
            name,
            clock=clock,
            tier=spec.tier,
            salt=secrets.token_bytes(8),
            codec=AmqpPropertyCodec(),
            pings=spec.pings,
            expiry=spec.expiry,
            credits_per_second=spec.credits_per_second,
            behaves=spec.behaves,
        )
        spec.fill(self.namespace)
        self.authorization = Authorization(self.namespace, spec.rules, issuer=issuer)
        self.faults = FaultBoard(name, self.namespace.paths, clock=clock)
        self.complaints = RefusalLog(f"namespace '{name}'")
        self.admission = Admission(log_once(f"namespace '{name}'", log))
        self.budgets = KeyBudgets()
        self.connections: set[AmqpServerProtocol] = set()
        self._to_flush: set[BrokerLinkOwner] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_for: float | None = None
        self.read_buffer = memoryview(bytearray(_READ_BYTES))
        self._waking = False
        self.woken_at = clock()
        self.faults.watch(self._faults_changed)
        self.namespace.on_removal(lambda entity: self._entity_removed(entity.path))
        self.namespace.on_closing(lambda entity: self._entity_closed(entity.path))

    def protocol(self) -> AmqpServerProtocol:
        """Return a protocol for a new AMQP connection."""
        return AmqpServerProtocol(self)

    def listener(
        self, stack: AsyncExitStack, *, http: ProtocolFactory | None = None, tls: ssl.SSLContext | None = None
    ) -> Listener:
        """Return a port of the namespace, under its faults; `stack` closes it."""
        listener = Listener(
            who=f"namespace '{self.name}'",
            amqp=self.protocol,
            http=http,
            tls=tls,
            faults=self.faults,
            admission=self.admission,
        )
        stack.push_async_callback(listener.close)
        self.faults.watch(listener.faults_changed)
        return listener

    def flush_soon(self, connection: BrokerLinkOwner) -> None:
        """Have the connection write at the end of this turn."""
        self._to_flush.add(connection)

    def wake(self) -> None:
        """Let the broker do what is due and possible, then write. Cheap when there is nothing to do."""
        if self._waking:
            return  # called from inside: the current turn does it
        self.faults.run_due()
        self.woken_at = self.clock()
        self._waking = True
        try:
            self.namespace.run()
            while self._to_flush:
                flushing, self._to_flush = self._to_flush, set()
                for connection in flushing:
                    connection.flush()
                self.namespace.run()
        finally:
            self._waking = False
        self._set_timer()

    def clock_jumped(self) -> None:
        """Do everything that has become due on the clock, and set the other timers again."""
        self._cancel_timer()
        for connection in list(self.connections):
            connection.end_expired_tokens()
            connection.end_idle_links()
            connection.end_if_unlinked()
        self.wake()

    def close(self) -> None:
        """End every connection and all timers; the messages stay."""
        for connection in list(self.connections):
            connection.abort()
        self._cancel_timer()

    def _set_timer(self) -> None:
        deadline = earliest(self.namespace.next_deadline(), self.faults.next_change())
        if deadline == self._timer_for:
            return
        self._cancel_timer()
        if deadline is not None:
            delay = max(_MIN_SLEEP_SECONDS, deadline - self.clock())
            self._timer_for = deadline
            self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._cancel_timer()
        self.wake()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timer_for = None

    def _faults_changed(self) -> None:
        for connection in list(self.connections):
            connection.faults_changed()
        self.wake()

    def _entity_removed(self, path: str) -> None:
        for connection in list(self.connections):
            connection.entity_removed(path)

    def _entity_closed(self, path: str) -> None:
        for connection in list(self.connections):
            connection.entity_closed(path)
