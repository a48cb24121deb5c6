"""The limits of a connection before its first good token.

A client sends headers, an open, a session, two links and a token; a refused client may retry a few times. Received
bytes are counted, which also limits unfinished messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from servicebus_amqp.protocol.protocol_events import AttachRequested, Event, SessionBegun
from servicebus_sandbox.serving.amqp_conditions import AmqpRefusal
from servicebus_sandbox.serving.lobby import Lobby

OPENING_SECONDS: Final = 15.0
"""The limit for protocol headers, SASL and the open."""
TOKEN_SECONDS: Final = 60.0
"""The limit for the first good token; a credential may have to wait for a slow authority."""
MAX_BYTES: Final = 256 * 1024
MAX_SESSIONS: Final = 100
MAX_LINKS: Final = 100
"""Sessions and links are counted when they begin; ended ones count too."""


class Probation:
    """The probation of one connection, which waits in the `lobby` meanwhile. `end` it at the first good token."""

    __slots__ = ("_bytes", "_links", "_sessions", "_stay")

    def __init__(self, lobby: Lobby, drop: Callable[[], None]) -> None:
        self._bytes = self._sessions = self._links = 0
        self._stay = lobby.enter(drop)

    def end(self) -> None:
        """Leave the lobby: the connection is proven or closed."""
        self._stay.leave()

    def count(self, size: int, events: Iterable[Event]) -> AmqpRefusal | None:
        """Count `size` bytes and their events; return a refusal if a limit is exceeded."""
        self._bytes += size
        for event in events:
            self._sessions += isinstance(event, SessionBegun)
            self._links += isinstance(event, AttachRequested)
        for counted, most, unit in (
            (self._bytes, MAX_BYTES, "bytes"),
            (self._sessions, MAX_SESSIONS, "sessions"),
            (self._links, MAX_LINKS, "links"),
        ):
            if counted > most:
                text = f"more than {most} {unit} came without a good token; put one on $cbs first"
                return AmqpRefusal("amqp:resource-limit-exceeded", text, 403)
        return None


def no_token_in_time() -> AmqpRefusal:
    """Return the refusal of a client without a token."""
    return AmqpRefusal(
        "amqp:connection:forced", f"no good token came within {TOKEN_SECONDS:g} seconds; put one on $cbs first", 401
    )
