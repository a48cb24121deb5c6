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
from typing import Any, Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.gateway_view import GatewayView
from paired_servicebus.core.model.snapshot import EntityView
from paired_servicebus.engine.gateway.admission import Admission
from paired_servicebus.engine.gateway.bytes_in_hand import MAX_BYTES, BytesInHand
from paired_servicebus.engine.gateway.front_connection import FrontConnection, SendingPairing
from paired_servicebus.engine.gateway.gateway_census import GatewayCensus, GatewayPlace
from paired_servicebus.engine.gateway.keys.gateway_keys import KeyRing, LocalKey, connection_string
from paired_servicebus.engine.gateway.known_entities import KnownEntities
from paired_servicebus.engine.gateway.operator_lines import OperatorLines
from paired_servicebus.engine.gateway.relay_connection import HOLDING_SECONDS
from paired_servicebus.engine.gateway.write_turns import WriteTurns

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
    family = socket.AF_INET if isinstance(address, ipaddress.IPv4Address) else socket.AF_INET6
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY for this alone
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise _not_listening(host, port, error) from error
    return bound


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
        self.admission = Admission(self.lines)
        self.in_hand = BytesInHand(max_bytes)
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

    @property
    def open_sockets(self) -> int:
        return len(self.connections)

    def revoke(self, names: frozenset[str]) -> None:
        """End what clients opened with the keys of these names."""
        for connection in tuple(self.connections):
            connection.drop_keys(names)

    def view(self, entities: Iterable[EntityView]) -> GatewayView:
        """Return the gateway and its clients now; `entities` have where sends go."""
        in_hand = self.in_hand
        paused = frozenset(one.tally for one in in_hand.paused if isinstance(one, FrontConnection))
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
