"""The limits of a gateway's connections, above all before their first good token, and lines for the operator."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line
from servicebus_amqp.nodes.request_ends import StrangerLimits
from servicebus_amqp.server.admission import Admission

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


PROMPT_SECONDS: Final = 5.0
"""The time in which a client shows its token. An older stranger leaves a full lobby for a newcomer."""
MAX_CONNECTIONS: Final = 4000
"""Four times the clients that a gateway is made for, at 150 KB each."""
STRANGER_BYTES: Final = 64 * 1024
"""Headers, open, a session, two links and a few tokens, the longest of them of some kilobytes."""
STRANGER_SESSIONS: Final = 100
STRANGER_LINKS: Final = 100
"""Some SDKs attach their other links before the token is answered. Ended ones count too."""
STRANGER_LIMITS: Final = StrangerLimits(octets=STRANGER_BYTES, sessions=STRANGER_SESSIONS, links=STRANGER_LINKS)


def admission_of(lines: OperatorLines, now: Callable[[], float] = time.monotonic) -> Admission:
    """Return the admission of a gateway's port. now: seconds of a monotonic clock."""
    return Admission(
        lambda text: lines.warn("clients", text),
        prompt=PROMPT_SECONDS,
        connections=MAX_CONNECTIONS,
        unproven="not shown a good token",
        now=now,
    )
