"""The gateway's port, and the tasks of its clients.

Only loopback is bound unless its owner asks for more: the connection is not encrypted, and a key opens the primary.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from types import TracebackType
from typing import Any, Final, Self

from aiohttp import web

from paired_servicebus.core.errors import ConfigurationError, PairedError
from paired_servicebus.core.gateway.gateway_sentences import with_gateway
from paired_servicebus.core.model.gateway_view import GatewayView, TurnedAway
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import EntityView, Snapshot, Trouble, TroubleKind
from paired_servicebus.engine.gateway import front_socket
from paired_servicebus.engine.gateway.administration import Administration, PrimaryAdministration, client_of
from paired_servicebus.engine.gateway.admission import OperatorLines, admission_of
from paired_servicebus.engine.gateway.front_connection import FrontConnection
from paired_servicebus.engine.gateway.front_socket import FrontSocket, SendingPairing, WriteTurns
from paired_servicebus.engine.gateway.gateway_census import GatewayCensus, GatewayPlace
from paired_servicebus.engine.gateway.gateway_keys import (
    LOOK_SECONDS,
    KeyRing,
    KeysInForce,
    LocalKey,
    connection_string,
)
from paired_servicebus.engine.gateway.gateway_tls import certificates_of
from paired_servicebus.engine.gateway.known_entities import KnownEntities
from paired_servicebus.engine.gateway.relay_connection import HOLDING_SECONDS
from paired_servicebus.engine.gateway.seen_answers import SeenAnswers
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.listening import listen
from paired_servicebus.engine.instance.task_supervisor import TaskSupervisor
from paired_servicebus.pairing.opening import SendAvailabilityPairedNamespaceOptions
from paired_servicebus.pairing.paired_client import PairedServiceBusClient
from paired_servicebus.sections.gateway_options import GatewayOptions
from servicebus_amqp.server.admission import PeerProtocol
from servicebus_amqp.server.http_server import HttpServer, WebSocketServer
from servicebus_amqp.server.listener import Listener, TlsSource
from servicebus_amqp.server.server_connection import MAX_BYTES, KeyBudgets

LOOPBACK: Final = "127.0.0.1"

READ_SECONDS: Final = 600.0
"""Between two reads of the configured entities, which answer administration while the primary is away."""
BACKLOG: Final = 1024
"""Connections that wait in the port: after a restart all clients connect again together, and an engine may start while
the primary is silent."""


log = logging.getLogger(__name__)


def bind_port(port: int, *, host: str = LOOPBACK, allow_other_hosts: bool = False) -> socket.socket:
    """Listen on a port: clients connect at once, and wait in it until `Gateway.serve`. port: 0 for any free one.

    Raises:
        ConfigurationError: it cannot be had, or other hosts reach the address and may not.
    """
    address = ipaddress.ip_address(host)
    if not (address.is_loopback or allow_other_hosts):
        raise ConfigurationError(f"the gateway's address {host} is not on loopback: its connections are plain TCP")
    try:
        return listen(host, port, backlog=BACKLOG)
    except OSError as error:
        raise _not_listening(host, port, error) from error


def _not_listening(host: str, port: int, error: OSError) -> ConfigurationError:
    what = (
        "choose the address in [gateway]" if error.errno == errno.EADDRNOTAVAIL else "choose another port in [gateway]"
    )
    if error.errno == errno.EACCES:
        what = "give the engine the capability CAP_NET_BIND_SERVICE, or leave standard_ports out"
    return ConfigurationError(f"the gateway cannot listen on {host}:{port} ({error.strerror or error}): {what}")


PATIENCE: Final = 10.0
"""Seconds for the head of a first request, and for a body."""
SHUTDOWN_SECONDS: Final = 1.0
_ADVICE: Final = {
    PeerProtocol.TLS: "it lacks TLS 1.2, trust in what 'paired gateway --ca' prints, or in its connection "
    "string UseDevelopmentEmulator=true",
    PeerProtocol.GARBAGE: "this port serves AMQP 1.0, administration and WebSockets, plain and inside TLS",
    PeerProtocol.AMQP: "this port serves AMQP 1.0",
}


class Gateway:
    """One gateway of one pairing.

    Args:
        pairing: a client made by `pair_namespaces`; not closed here.
        keys: those that clients may sign with.
        max_bytes: of sends in hand, over all connections.
        clock: the time of day in epoch seconds, by which tokens expire.
        known: the primary's entities that were seen before; None: none.
        primary: the primary's management, closed with the gateway; None: administration is off.
        tls: returns the context for clients that begin with TLS; None: TLS is not served.
    """

    def __init__(
        self,
        pairing: SendingPairing,
        keys: KeyRing,
        *,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.time,
        known: KnownEntities | None = None,
        primary: PrimaryAdministration | None = None,
        tls: TlsSource | None = None,
    ) -> None:
        self.pairing = pairing
        self.keys = keys
        self.clock = clock
        self.lines = OperatorLines()
        self.admission = admission_of(self.lines)
        self.budgets = KeyBudgets(max_bytes)
        self.in_hand = self.budgets.whole
        self.known = KnownEntities() if known is None else known
        self.turns = WriteTurns()
        self.connections: set[FrontSocket] = set()
        self.census = GatewayCensus()
        self.holding = HOLDING_SECONDS
        self.port = 0
        self.administration = Administration(
            keys, primary, seen=SeenAnswers(), clock=clock, refused=self._refuse_request
        )
        self._primary = primary
        self._tls = tls
        self._host = LOOPBACK
        self._since: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[Listener] = []
        self._http: HttpServer | None = None
        self._websockets = WebSocketServer(lambda: FrontConnection(self))

    async def listen(self, port: int, *, host: str = LOOPBACK) -> None:
        """Accept clients. port: 0 for any free one. Raises ConfigurationError as `bind_port`."""
        self.serve(bind_port(port, host=host))

    def serve(self, bound: socket.socket) -> None:
        """Accept clients on a port of `bind_port`, which is closed with the gateway; the first one names it."""
        if self._http is None:
            self._host, self.port = bound.getsockname()[:2]
            self._since = time.time()
            self._http = HttpServer(
                self._answer, admission=self.admission, patience=PATIENCE, log=log, report=self.lines.warn
            )
        listener = Listener(
            who="the gateway",
            amqp=lambda: FrontConnection(self),
            http=self._http,
            tls=self._tls,
            admission=self.admission,
            patience=front_socket.OPENING_SECONDS,
            advice=_ADVICE,
            report=self._turn_away,
            others=self._count,
        )
        listener.serve(bound)
        self._listeners.append(listener)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        assert self._http is not None, "it serves"
        try:
            if self._websockets.is_for(request) and "Upgrade" in request.headers:
                self._http.prove(request)  # the AMQP inside begins as a stranger of its own
                return await self._websockets.serve(request)
            return await self.administration.answer(request, self._http)
        except web.HTTPException as refusal:
            self._refuse_request((refusal.text or refusal.reason).strip(), client_of(request))
            raise
        except Exception as error:  # noqa: BLE001 - any error is the answer to this request alone
            self.census.count_unknown(error)
            raise web.HTTPInternalServerError(text="the gateway could not serve it\n") from None

    def _count(self) -> int:
        return len(self.connections) + (0 if self._http is None else len(self._http.connections))

    def _turn_away(self, reason: str, advice: str, client: str) -> None:
        """Report a client of another protocol; not one that is silent, or leaves."""
        if advice:
            is_tls = reason not in {each.value for each in PeerProtocol}
            kind = "TLS" if is_tls else reason
            text = f"{reason if is_tls else client or reason}: {advice}"
            self.lines.warn(f"turned a client away, {kind}", text)
            self.census.turn_away(TurnedAway.WRONG_PROTOCOL, text)

    def _refuse_request(self, sentence: str, client: str) -> None:
        self.lines.warn("refused a request", f"{client}: {sentence}")
        self.census.turn_away(TurnedAway.REFUSED_REQUEST, f"{client}: {sentence}")

    def connection_string(self, key: LocalKey) -> str:
        """Return the whole connection string for applications with this key: a secret."""
        return connection_string(key, self.port)

    def revoke(self, names: frozenset[str]) -> None:
        """End what clients opened with the keys of these names."""
        for connection in tuple(self.connections):
            connection.drop_keys(names)

    def view(self, entities: Iterable[EntityView]) -> GatewayView:
        """Return the gateway and its clients now; `entities` have where sends go."""
        in_hand = self.in_hand
        paused = frozenset(one.tally for one in self.budgets.paused() if isinstance(one, FrontSocket))
        lost = self._since is not None and not all(each.is_serving for each in self._listeners)
        since, trouble = (None, "its port was closed; restart the engine") if lost else (self._since, "")
        place = GatewayPlace(self._host, self.port, since, trouble)
        return self.census.view(self.connections, entities, place, in_hand=(in_hand.size, in_hand.most), paused=paused)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task of a client, which may outlive its connection."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self, grace: float) -> None:
        """Accept no more clients and grant no credit; sends under way have `grace` seconds, then connections close."""
        self._since = None
        for listener in self._listeners:
            await listener.close()
        for connection in tuple(self.connections):
            connection.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while self._tasks or self.in_hand.size:  # what was sent before the credit ended may still arrive
                    await self.in_hand.wait_empty()
                    if self._tasks:
                        await asyncio.wait(tuple(self._tasks))
        connections = tuple(self.connections)
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.end_relay() for connection in connections))
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.turns.leave()
        if self._http is not None:
            self._http.pre_shutdown()
            await self._http.shutdown(SHUTDOWN_SECONDS)
        if self._primary is not None:
            await self._primary.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.census.count_unknown(error)


# An engine's gateway, from its configuration to its end.
#
# The port listens before the pairing opens: clients connect, and wait in it. They are served once the pairing is
# adopted: standing orders hold for their first send. A port that another program has, and keys that cannot be made in
# the engine's own folder, are alarms until they are there.


class _RetriedPolicy(Policy):
    """A policy whose callers send again what was not accepted in time, as every SDK does behind a gateway."""

    @property
    def remarks(self) -> tuple[str, ...]:
        return ()


class GatewayPairingOptions(SendAvailabilityPairedNamespaceOptions):
    """The options of a pairing behind a gateway: a short send_timeout beside a long failover_interval is right."""

    def policy(self) -> Policy:
        policy = super().policy()
        return _RetriedPolicy(**{field.name: getattr(policy, field.name) for field in fields(policy)})


class NoGateway:
    """The part of an engine without a gateway."""

    troubles: tuple[Trouble, ...] = ()
    """What keeps it from serving."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing."""

    async def serve(self, paired: PairedServiceBusClient, primary: PrimaryAdministration | None = None) -> None:
        """Do nothing."""

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot."""
        return snapshot

    async def close(self, grace: float) -> None:
        """Do nothing."""


class GatewayPart(NoGateway):
    """The gateway of one engine. An asynchronous context manager; entering it listens on the port.

    Args:
        options: as pairing.toml's [gateway] has them.
        places: the engine's files.
        primary: the host of the primary namespace.
        entities: the configured ones.
        warn: called with a sentence for the operator.
    """

    def __init__(
        self,
        options: GatewayOptions,
        places: EnginePaths,
        *,
        primary: str,
        entities: Sequence[str] = (),
        warn: Callable[[str], object],
    ) -> None:
        self._options = options
        self._warn = warn
        self._keys_file: Final = options.keys or places.gateway_keys
        self._keys: KeysInForce | None = None
        self._known = KnownEntities(places.gateway_entities, primary=primary, warn=warn)
        self._entities = entities
        self._certificates = certificates_of(options, places, warn=warn)
        self._crew = TaskSupervisor()
        self._bound: dict[int, socket.socket] = {}
        self._left = list(options.ports)
        """Ports that are not bound yet."""
        self._bound_at: float | None = None
        self.gateway: Gateway | None = None
        """None before `serve`."""

    async def __aenter__(self) -> Self:
        """Read the keys, or make them, and listen on the port. A port or a folder that cannot be had is tried again.

        Raises:
            ConfigurationError: the file of keys that the configuration names cannot be read.
        """
        self._open()
        if self._keys is None and self._options.keys is not None:
            raise ConfigurationError(self.troubles[0].reason)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(0.0)

    def _open(self) -> bool:
        """Do what is left of reading the keys and listening; return whether clients can be served."""
        found = [*self._open_keys(), *filter(None, map(self._bind, tuple(self._left)))]
        self.troubles = tuple(found)
        return self._keys is not None and self._options.port not in self._left

    def _open_keys(self) -> Iterator[Trouble]:
        try:
            if self._keys is None:
                self._keys = KeysInForce(
                    self._keys_file, revoked=self._revoke, warn=self._warn, rules=self._options.key_rules
                )
        except (OSError, PairedError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            text = f"the gateway's keys {self._keys_file} cannot be read or made: {why or error}"
            reason = f"{text}; or name another file as keys in [gateway]"
            yield Trouble(kind=TroubleKind.GATEWAY_CLOSED, reason=reason)

    def _bind(self, port: int) -> Trouble | None:
        """Listen on a port. The gateway serves without any other port than that of its connection strings."""
        try:
            self._bound[port] = bind_port(port, host=self._options.address, allow_other_hosts=True)  # checked
        except ConfigurationError as error:
            if port == self._options.port:
                return Trouble(kind=TroubleKind.GATEWAY_CLOSED, reason=str(error))
            return Trouble(kind=TroubleKind.PORT_IN_USE, what=f"port {port} of the gateway", reason=str(error))
        self._left.remove(port)
        self._bound_at = self._bound_at or time.time()
        return None

    async def serve(self, paired: PairedServiceBusClient, primary: PrimaryAdministration | None = None) -> None:
        """Accept clients, whose sends go through `paired`, as soon as there are keys and a port.

        primary: the primary's management, used and closed here if the options have administration.
        """
        if self._open():
            await self._serve(paired, primary)
        else:
            self._crew.start(self._serve_later(paired, primary), name="the gateway's start")

    async def _serve_later(self, paired: PairedServiceBusClient, primary: PrimaryAdministration | None) -> None:
        is_open = False
        while not is_open:
            await asyncio.sleep(LOOK_SECONDS)
            is_open = self._open()
        await self._serve(paired, primary)

    async def _serve(self, paired: PairedServiceBusClient, primary: PrimaryAdministration | None) -> None:
        assert self._keys is not None, "opened"
        await asyncio.to_thread(self._known.read)
        relayed = primary if self._options.administration else None
        self.gateway = Gateway(paired, self._keys, known=self._known, primary=relayed, tls=self._certificates.context)
        self._serve_bound(self.gateway)
        self._crew.start(self._follow_files(self._keys), name="the gateway's files")
        if relayed is not None:
            self._crew.start(self._read_entities(self.gateway), name="the entities for administration")

    def _serve_bound(self, gateway: Gateway) -> None:
        for port in self._options.ports:
            if port in self._bound:
                gateway.serve(self._bound.pop(port))

    async def _read_entities(self, gateway: Gateway) -> None:
        while True:
            for entity in self._entities:
                await gateway.administration.read(entity)
            await asyncio.sleep(READ_SECONDS)

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """Return the engine's snapshot with the gateway."""
        if self.gateway is not None:
            view = self.gateway.view(snapshot.entities)
        else:
            view = GatewayView(address=self._options.address, port=self._options.port, since=self._bound_at)
        return with_gateway(snapshot, view)

    async def close(self, grace: float) -> None:
        """End it: sends under way have `grace` seconds, then connections close. A second call does nothing."""
        await self._crew.close()
        for bound in self._bound.values():
            bound.close()
        self._bound.clear()
        if self.gateway is not None:
            await self.gateway.close(grace)
            await asyncio.to_thread(self._known.write)

    def _revoke(self, names: frozenset[str]) -> None:
        if self.gateway is not None:
            self.gateway.revoke(names)

    async def _follow_files(self, keys: KeysInForce) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            keys.refresh()
            if self._known.is_changed:
                await asyncio.to_thread(self._known.write)
            if self._left and self.gateway is not None:
                self._open()
                self._serve_bound(self.gateway)


def open_gateway(
    options: GatewayOptions | None,
    places: EnginePaths,
    *,
    primary: str,
    entities: Sequence[str] = (),
    warn: Callable[[str], object],
) -> NoGateway:
    """Return an engine's gateway, to be entered."""
    if options is None:
        return NoGateway()
    return GatewayPart(options, places, primary=primary, entities=entities, warn=warn)
