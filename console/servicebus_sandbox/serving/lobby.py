"""Unproven connections: limited in number and time, and never at the cost of proven ones.

A connection is here from its acceptance until it has sent a good token or a whole request. Beyond MAX_UNPROVEN the
oldest one is dropped, so that a prompt client always gets in. If descriptors are short, connections are dropped from
here first.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

MAX_UNPROVEN: Final = 500
"""The limit of one port: many clients may reconnect in the same moment after an outage."""
FIRST_REQUEST_SECONDS: Final = 5.0
"""The limit for the first bytes, a TLS handshake or a whole request."""
RESERVED_DESCRIPTORS: Final = 100
"""Descriptors reserved for the rest of the process; a connection that takes one is closed."""
_SHORTAGES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SCARCE_SECONDS: Final = 1.0
_FREED_SECONDS: Final = 0.05


class Stay:
    """One connection's time in the lobby. `leave` ends it when the connection is proven or closed."""

    __slots__ = ("_drop", "_lobby", "_timer")

    def __init__(self, lobby: Lobby, drop: Callable[[], object], seconds: float | None) -> None:
        self._lobby = lobby
        self._drop = drop
        self._timer: asyncio.TimerHandle | None = None
        if seconds is not None:
            self.start_timer(seconds)

    def leave(self) -> None:
        """Leave; a second call does nothing."""
        self._lobby.forget(self)
        self.stop_timer()

    def start_timer(self, seconds: float) -> None:
        """Limit the stay to this many seconds from now."""
        self.stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.drop)

    def stop_timer(self) -> None:
        """Remove the limit."""
        if self._timer is not None:
            self._timer.cancel()

    def drop(self) -> None:
        """Leave, and close the connection."""
        self.leave()
        self._drop()


class Lobby:
    """The unproven connections of the port of `who`."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._stays: dict[Stay, None] = {}
        self._told: set[str] = set()

    def __len__(self) -> int:
        return len(self._stays)

    def enter(self, drop: Callable[[], object], seconds: float | None = None) -> Stay:
        """Add a connection for at most this many seconds; `drop` closes it. The oldest stay may end for it."""
        if len(self._stays) >= MAX_UNPROVEN and self.drop_oldest():
            self._tell_once(f"drops connections: more than {MAX_UNPROVEN} have shown no token and no request")
        stay = Stay(self, drop, seconds)
        self._stays[stay] = None
        return stay

    def follow(self, task: asyncio.Task[None]) -> None:
        """Keep a place for a connection until its task ends; dropping it cancels the task."""
        stay = self.enter(task.cancel)
        task.add_done_callback(lambda _: stay.leave())

    def forget(self, stay: Stay) -> None:
        """Remove a stay."""
        self._stays.pop(stay, None)

    def drop_oldest(self) -> bool:
        """Drop the oldest stay; return whether there was one."""
        oldest = next(iter(self._stays), None)
        if oldest is not None:
            oldest.drop()
        return oldest is not None

    async def accept(self, server: socket.socket) -> socket.socket:
        """Return the next connection for which there are descriptors. Raises OSError for a closed port."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0)  # give accepted connections a turn during a flood
            try:
                connection, _ = await loop.sock_accept(server)
            except OSError as error:
                if error.errno not in _SHORTAGES:
                    raise
                self._tell_once(f"cannot accept a connection: {error.strerror}")
                await asyncio.sleep(_FREED_SECONDS if self.drop_oldest() else _SCARCE_SECONDS)
                continue
            if not is_scarce(connection.fileno()) or self.drop_oldest():
                return connection
            self._tell_once(f"turns connections away: {RESERVED_DESCRIPTORS} descriptors are left")
            connection.close()

    def _tell_once(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            log.warning("%s %s (logged once)", self._who, sentence)


def is_scarce(descriptor: int) -> bool:
    """Return whether few descriptors are left: a new one is always the lowest free number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft != resource.RLIM_INFINITY and descriptor >= soft - RESERVED_DESCRIPTORS
