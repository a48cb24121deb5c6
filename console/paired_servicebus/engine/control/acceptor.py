"""Accepts connections for a server of the engine, and limits those without a complete request.

A connection is pending until its conversation calls `AcceptedConnection.known`. Beyond MAX_PENDING_CONNECTIONS the
oldest pending one is rejected, so a client that sends its request immediately is always served. Conversations limit the
time of the first request by FIRST_REQUEST_TIMEOUT.

Without free descriptors the acceptor rejects pending connections, then waits. It neither spins nor floods the log. The
limits leave enough descriptors for a journal and a syphon.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Final

from paired_servicebus.engine.instance.task_supervisor import TaskSupervisor

MAX_PENDING_CONNECTIONS: Final = 64
FIRST_REQUEST_TIMEOUT: Final = 5.0
"""For a first request, from its connection on, however slowly its bytes arrive."""
BACKLOG: Final = 512
"""Connections that the kernel keeps until they are accepted."""
NO_DESCRIPTOR_PAUSE: Final = 1.0
"""Seconds until the next attempt where no descriptor is free and no stranger is left to turn away."""
FREED_PAUSE: Final = 0.05
WARNING_INTERVAL: Final = 60.0
"""Between two lines of the log about the same door."""

log = logging.getLogger(__name__)


class AcceptedConnection:
    """One connection. `known` ends its time as a stranger."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pending: dict[AcceptedConnection, None]
    ):
        self.reader = reader
        self.writer = writer
        self._pending = pending
        pending[self] = None

    def known(self) -> None:
        """Mark the connection as no longer pending: a whole request has arrived, or the connection has ended."""
        self._pending.pop(self, None)

    def reject(self, refusal: bytes) -> None:
        """End the connection without waiting for its peer."""
        self.known()
        self.writer.write(refusal)
        self.writer.transport.abort()


ServeConnection = Callable[[AcceptedConnection], Awaitable[None]]
"""Holds one conversation to its end. OSError and EOFError end it in silence, TimeoutError too."""


class ConnectionAcceptor:
    """Accepts connections for one server.

    Args:
        name: of the server, for the log.
        converse: see ServeConnection.
        limit: bytes of a request that are buffered.
        refusal: sent to a stranger that is turned away.
    """

    def __init__(self, name: str, converse: ServeConnection, *, limit: int, refusal: bytes) -> None:
        self._name = name
        self._converse = converse
        self._limit = limit
        self._refusal = refusal
        self._pending: dict[AcceptedConnection, None] = {}
        self._crew = TaskSupervisor()
        self._accepting: asyncio.Task[None] | None = None
        self._warned_at: float | None = None

    def open(self, listening: socket.socket) -> None:
        """Accept connections from now on; the acceptor closes the socket."""
        listening.setblocking(False)
        self._accepting = self._crew.start(self._accept(listening), name=f"accepting at {self._name}")

    async def stop_accepting(self) -> None:
        """Close the socket; conversations continue."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)

    async def close(self) -> None:
        """Close the socket and end every conversation."""
        await self._crew.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                await asyncio.sleep(0)  # accepted connections get their turn, however many more arrive
                try:
                    connection, _ = await loop.sock_accept(listening)
                except OSError as error:
                    self._warn(f"cannot accept a connection: {error.strerror or error}")
                    await asyncio.sleep(FREED_PAUSE if self._reject_oldest() else NO_DESCRIPTOR_PAUSE)
                else:
                    self._crew.start(self._serve_connection(connection), name=f"serving {self._name}")

    async def _serve_connection(self, connection: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=connection, limit=self._limit)
        except OSError as error:
            connection.close()
            log.debug("%s: a connection broke off: %s", self._name, error)
            return
        caller = AcceptedConnection(reader, writer, self._pending)
        if len(self._pending) > MAX_PENDING_CONNECTIONS and self._reject_oldest():
            self._warn(f"turns connections away: more than {MAX_PENDING_CONNECTIONS} have asked for nothing")
        try:
            await self._converse(caller)
        except (OSError, EOFError) as error:
            log.debug("%s: a connection ended: %s", self._name, error)
        finally:
            caller.known()
            writer.transport.abort()

    def _reject_oldest(self) -> bool:
        oldest = next(iter(self._pending), None)
        if oldest is not None:
            oldest.reject(self._refusal)
        return oldest is not None

    def _warn(self, text: str) -> None:
        now = time.monotonic()
        if self._warned_at is None or now - self._warned_at >= WARNING_INTERVAL:
            self._warned_at = now
            log.warning("%s %s", self._name, text)
