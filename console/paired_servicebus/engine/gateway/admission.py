"""The limits for connections, and above all for strangers: those that have not shown a good token yet.

Clients on this host share the port with everything else on it. A stranger gets nowhere, and what it costs is bounded:
in number, bytes, sessions, links and time. A full lobby never costs a client that is served.
"""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import Callable
from typing import Final, Protocol

from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line
from servicebus_amqp.nodes.request_ends import StrangerLimits

# Lines for the operator about clients: one of each kind a minute, the others counted. A flood must not fill a disk.

QUIET_SECONDS: Final = 60.0
MAX_TEXT: Final = 300

log = logging.getLogger(__name__)


class OperatorLines:
    """now: seconds of a monotonic clock."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._latest: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}

    def warn(self, kind: str, text: str) -> None:
        """Log a line unless one of its kind was logged within a minute.

        kind: one of a few, such as a condition, and never a client's own word. text: may quote the client.
        """
        latest, now = self._latest.get(kind), self._now()
        if latest is not None and now - latest < QUIET_SECONDS:
            self._unlogged[kind] = self._unlogged.get(kind, 0) + 1
            return
        self._latest[kind] = now
        more = self._unlogged.pop(kind, 0)
        before = f" ({more} more of this kind since the last line)" if more else ""
        log.warning("%s: %s%s", kind, one_line(masked(text), most=MAX_TEXT), before)


MAX_STRANGERS: Final = 500
"""All clients of a gateway connect in the same moment after its start; further ones are closed and try again."""
PROMPT_SECONDS: Final = 5.0
"""The time in which a client shows its token. An older stranger leaves a full lobby for a newcomer."""
MAX_CONNECTIONS: Final = 4000
"""Four times the clients that a gateway is made for, at 150 KB each."""
RESERVED_DESCRIPTORS: Final = 100
"""Descriptors for the rest of the engine: its links upstream, journal and control socket."""
STRANGER_BYTES: Final = 64 * 1024
"""Headers, open, a session, two links and a few tokens, the longest of them of some kilobytes."""
STRANGER_SESSIONS: Final = 100
STRANGER_LINKS: Final = 100
"""Some SDKs attach their other links before the token is answered. Ended ones count too."""
STRANGER_LIMITS: Final = StrangerLimits(octets=STRANGER_BYTES, sessions=STRANGER_SESSIONS, links=STRANGER_LINKS)


class Guest(Protocol):
    """A connection, as the lobby uses it."""

    def abort(self) -> None: ...


class Admission:
    """The strangers among the connections of a gateway. now: seconds of a monotonic clock."""

    def __init__(self, lines: OperatorLines, now: Callable[[], float] = time.monotonic) -> None:
        self._lines = lines
        self._now = now
        self._entered: dict[Guest, float] = {}

    def enter(self, guest: Guest, others: int, descriptor: int) -> bool:
        """Admit a connection beside `others`; False: close it. An old stranger may be closed for it."""
        if others >= MAX_CONNECTIONS:
            self._lines.warn("clients", f"turned one away: {MAX_CONNECTIONS} connections are open")
            return False
        if is_scarce(descriptor) and not self._make_room():
            self._lines.warn("clients", "turned one away: few file descriptors are left (ulimit -n)")
            return False
        if len(self._entered) >= MAX_STRANGERS and not self._make_room():
            self._lines.warn("clients", f"turned one away: {MAX_STRANGERS} others have not shown a good token yet")
            return False
        self._entered[guest] = self._now()
        return True

    def leave(self, guest: Guest) -> None:
        """Forget a connection: it has shown a good token, or ended."""
        self._entered.pop(guest, None)

    def _make_room(self) -> bool:
        """Close the oldest stranger if its time is over; return whether it was."""
        oldest = next(iter(self._entered), None)
        if oldest is None or self._now() - self._entered[oldest] < PROMPT_SECONDS:
            return False
        del self._entered[oldest]
        oldest.abort()
        return True


def is_scarce(descriptor: int) -> bool:
    """Return whether few descriptors are left: a new one is always the lowest free number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft != resource.RLIM_INFINITY and descriptor >= soft - RESERVED_DESCRIPTORS
