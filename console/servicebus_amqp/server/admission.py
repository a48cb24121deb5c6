"""The strangers of a listener: connections that have shown no token and no whole request yet.

Whoever can reach a port can connect to it. A stranger gets nowhere, and what strangers cost is bounded, in number and
time. They never cost a client that is served: if places or descriptors are short, strangers are closed first, the
oldest before the others, so that a client that is prompt always gets in.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import time
from collections.abc import Callable
from typing import Final

MAX_STRANGERS: Final = 500
"""The limit of one port: many clients may connect in the same moment after an outage or a restart."""
FIRST_REQUEST_SECONDS: Final = 5.0
"""The limit for the first bytes, a TLS handshake or a whole request."""
RESERVED_DESCRIPTORS: Final = 100
"""Descriptors for the rest of the process; a connection that would use one is closed."""
SCARCE_SECONDS: Final = 1.0
"""Until the next attempt to accept where no descriptor is free and no stranger is left to close."""
_FREED_SECONDS: Final = 0.05
_SHORTAGES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def log_once(who: str, log: logging.Logger) -> Callable[[str], None]:
    """Return a function that logs each sentence about `who` once: a flood must not fill a disk."""
    logged: set[str] = set()

    def warn(sentence: str) -> None:
        if sentence not in logged:
            logged.add(sentence)
            log.warning("%s %s (logged once)", who, sentence)

    return warn


class Stay:
    """One connection's time as a stranger. `leave` ends it when the connection is proven or closed."""

    __slots__ = ("_admission", "_drop", "_timer", "since")

    def __init__(self, admission: Admission, drop: Callable[[], object], since: float) -> None:
        self._admission = admission
        self._drop = drop
        self._timer: asyncio.TimerHandle | None = None
        self.since = since

    def leave(self) -> None:
        """Leave; a second call does nothing."""
        self._admission.forget(self)
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


class Admission:
    """The strangers of one listener.

    Args:
        warn: called with a sentence for the operator; it limits what it logs.
        most: strangers at a time; None: MAX_STRANGERS.
        prompt: seconds in which a stranger is not closed for another; the newcomer is closed then.
        connections: of the listener, strangers or not; None: any number.
        unproven: what strangers lack, for the operator.
        now: seconds of a monotonic clock.
    """

    def __init__(
        self,
        warn: Callable[[str], object],
        *,
        most: int | None = None,
        prompt: float = 0.0,
        connections: int | None = None,
        unproven: str = "shown no token and no request",
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warn = warn
        self._most = most
        self._prompt = prompt
        self._connections = connections
        self._unproven = unproven
        self._now = now
        self._stays: dict[Stay, None] = {}

    def __len__(self) -> int:
        return len(self._stays)

    @property
    def most(self) -> int:
        return MAX_STRANGERS if self._most is None else self._most

    def admits(self, descriptor: int, others: int) -> bool:
        """Return whether there is room for a connection beside `others`; an old stranger may be closed for it."""
        if self._connections is not None and others >= self._connections:
            self._warn(f"turned one away: {self._connections} connections are open")
        elif is_scarce(descriptor) and not self.drop_oldest():
            self._warn("turned one away: few file descriptors are left (ulimit -n)")
        elif len(self._stays) >= self.most and not self.drop_oldest():
            self._warn(f"turned one away: {self.most} others have {self._unproven} yet")
        else:
            return True
        return False

    def enter(self, drop: Callable[[], object], seconds: float | None = None) -> Stay:
        """Add a connection for at most this many seconds; `drop` closes it. The oldest stranger may go for it."""
        if len(self._stays) >= self.most and self.drop_oldest():
            self._warn(f"turns connections away: more than {self.most} have {self._unproven}")
        stay = Stay(self, drop, self._now())
        self._stays[stay] = None
        if seconds is not None:
            stay.start_timer(seconds)
        return stay

    def follow(self, task: asyncio.Task[None]) -> None:
        """Keep a place for a connection until its task ends; dropping it cancels the task."""
        stay = self.enter(task.cancel)
        task.add_done_callback(lambda _: stay.leave())

    def forget(self, stay: Stay) -> None:
        """Remove a stay."""
        self._stays.pop(stay, None)

    def drop_oldest(self) -> bool:
        """Close the oldest stranger if its time is over; return whether it was."""
        oldest = next(iter(self._stays), None)
        if oldest is None or self._now() - oldest.since < self._prompt:
            return False
        oldest.drop()
        return True

    async def accept(self, server: socket.socket) -> socket.socket:
        """Return the next connection for which there are descriptors. Raises OSError for a closed port."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0)  # accepted connections get their turn, however many more arrive
            try:
                connection, _ = await loop.sock_accept(server)
            except OSError as error:
                if error.errno not in _SHORTAGES:
                    raise
                self._warn(f"cannot accept a connection: {error.strerror}")
                await asyncio.sleep(_FREED_SECONDS if self.drop_oldest() else SCARCE_SECONDS)
                continue
            if not is_scarce(connection.fileno()) or self.drop_oldest():
                return connection
            self._warn(f"turns connections away: {RESERVED_DESCRIPTORS} descriptors are left")
            connection.close()


def is_scarce(descriptor: int) -> bool:
    """Return whether few descriptors are left: a new one is always the lowest free number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft != resource.RLIM_INFINITY and descriptor >= soft - RESERVED_DESCRIPTORS
