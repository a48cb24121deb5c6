"""The gateway's port, and the tasks of its clients.

Only loopback is bound unless its owner asks for more: the connection is not encrypted, and a key opens the primary.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import fields
from types import TracebackType
from typing import Any, Final, Self

from paired_servicebus.core.errors import ConfigurationError, PairedError
from paired_servicebus.core.gateway.gateway_sentences import with_gateway
from paired_servicebus.core.model.gateway_view import GatewayView
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import EntityView, Snapshot, Trouble, TroubleKind
from paired_servicebus.engine.gateway.admission import OperatorLines, admission_of
from paired_servicebus.engine.gateway.front_connection import FrontConnection, SendingPairing, WriteTurns
from paired_servicebus.engine.gateway.front_links import HOLDING_SECONDS
from paired_servicebus.engine.gateway.gateway_census import GatewayCensus, GatewayPlace
from paired_servicebus.engine.gateway.gateway_keys import (
    LOOK_SECONDS,
    KeyRing,
    KeysInForce,
    LocalKey,
    connection_string,
)
from paired_servicebus.engine.gateway.known_entities import KnownEntities
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.listening import listen
from paired_servicebus.engine.instance.task_supervisor import TaskSupervisor
from paired_servicebus.pairing.opening import SendAvailabilityPairedNamespaceOptions
from paired_servicebus.pairing.paired_client import PairedServiceBusClient
from paired_servicebus.sections.gateway_options import GatewayOptions
from servicebus_amqp.server.server_connection import MAX_BYTES, KeyBudgets

LOOPBACK: Final = "127.0.0.1"

BACKLOG: Final = 1024
"""Connections that wait in the port: after a restart all clients connect again together, and an engine may start while
the primary is silent."""


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
    what = "the address" if error.errno == errno.EADDRNOTAVAIL else "another port"
    return ConfigurationError(
        f"the gateway cannot listen on {host}:{port} ({error.strerror or error}): choose {what} in [gateway]"
    )


class Gateway:
    """One gateway of one pairing.

    Args:
        pairing: a client made by `pair_namespaces`; not closed here.
        keys: those that clients may sign with.
        max_bytes: of sends in hand, over all connections.
        clock: the time of day in epoch seconds, by which tokens expire.
        known: the primary's entities that were seen before; None: none.
    """

    def __init__(
        self,
        pairing: SendingPairing,
        keys: KeyRing,
        *,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.time,
        known: KnownEntities | None = None,
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
        self.connections: set[FrontConnection] = set()
        self.census = GatewayCensus()
        self.holding = HOLDING_SECONDS
        self.port = 0
        self._host = LOOPBACK
        self._since: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, port: int, *, host: str = LOOPBACK) -> None:
        """Accept clients. port: 0 for any free one. Raises ConfigurationError as `bind_port`."""
        await self.serve(bind_port(port, host=host))

    async def serve(self, bound: socket.socket) -> None:
        """Accept clients on a port of `bind_port`, which is closed with the gateway."""
        self._host, self.port = bound.getsockname()[:2]
        self._server = await asyncio.get_running_loop().create_server(
            lambda: FrontConnection(self), sock=bound, backlog=BACKLOG
        )
        self._since = time.time()

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
        paused = frozenset(one.tally for one in self.budgets.paused() if isinstance(one, FrontConnection))
        lost = self._since is not None and self._server is not None and not self._server.is_serving()
        since, trouble = (None, "its port was closed; restart the engine") if lost else (self._since, "")
        place = GatewayPlace(self._host, self.port, since, trouble)
        return self.census.view(self.connections, entities, place, in_hand=(in_hand.size, in_hand.most), paused=paused)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task of a client, which may outlive its connection."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def close(self, grace: float) -> None:
        """Accept no more clients and grant no credit; sends under way have `grace` seconds, then connections close."""
        self._since = None
        if self._server is not None:
            self._server.close()
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

    async def serve(self, paired: PairedServiceBusClient) -> None:
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
        warn: called with a sentence for the operator.
    """

    def __init__(
        self, options: GatewayOptions, places: EnginePaths, *, primary: str, warn: Callable[[str], object]
    ) -> None:
        self._options = options
        self._warn = warn
        self._keys_file: Final = options.keys or places.gateway_keys
        self._keys: KeysInForce | None = None
        self._known = KnownEntities(places.gateway_entities, primary=primary, warn=warn)
        self._crew = TaskSupervisor()
        self._bound: socket.socket | None = None
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
        """Do what is left of reading the keys and listening; return whether all is done."""
        found = []
        try:
            if self._keys is None:
                self._keys = KeysInForce(
                    self._keys_file, revoked=self._revoke, warn=self._warn, rules=self._options.key_rules
                )
        except (OSError, PairedError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            text = f"the gateway's keys {self._keys_file} cannot be read or made: {why or error}"
            found.append(f"{text}; or name another file as keys in [gateway]")
        try:
            if self._bound is None:
                port, address = self._options.port, self._options.address
                self._bound = bind_port(port, host=address, allow_other_hosts=True)  # the options were checked for it
                self._bound_at = time.time()
        except ConfigurationError as error:
            found.append(str(error))
        self.troubles = tuple(Trouble(kind=TroubleKind.GATEWAY_CLOSED, reason=reason) for reason in found)
        return not found

    async def serve(self, paired: PairedServiceBusClient) -> None:
        """Accept clients, whose sends go through `paired`, as soon as there are keys and a port."""
        if self._open():
            await self._serve(paired)
        else:
            self._crew.start(self._serve_later(paired), name="the gateway's start")

    async def _serve_later(self, paired: PairedServiceBusClient) -> None:
        is_open = False
        while not is_open:
            await asyncio.sleep(LOOK_SECONDS)
            is_open = self._open()
        await self._serve(paired)

    async def _serve(self, paired: PairedServiceBusClient) -> None:
        assert self._bound is not None, "opened"
        assert self._keys is not None, "opened"
        await asyncio.to_thread(self._known.read)
        self.gateway = Gateway(paired, self._keys, known=self._known)
        bound, self._bound = self._bound, None
        await self.gateway.serve(bound)
        self._crew.start(self._follow_files(self._keys), name="the gateway's files")

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
        if self._bound is not None:
            self._bound.close()
            self._bound = None
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


def open_gateway(
    options: GatewayOptions | None, places: EnginePaths, *, primary: str, warn: Callable[[str], object]
) -> NoGateway:
    """Return an engine's gateway, to be entered."""
    return NoGateway() if options is None else GatewayPart(options, places, primary=primary, warn=warn)
