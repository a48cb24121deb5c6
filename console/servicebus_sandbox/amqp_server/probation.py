"""The limits of a connection before its first good token.

A client sends headers, an open, a session, two links and a token; a refused client may retry a few times. Received
bytes are counted, which also limits unfinished messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from servicebus_amqp.nodes.request_ends import StrangerLimits, StrangerUse
from servicebus_amqp.protocol.protocol_events import Event
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

    __slots__ = ("_stay", "_use")

    def __init__(self, lobby: Lobby, drop: Callable[[], None]) -> None:
        self._use = StrangerUse(StrangerLimits(octets=MAX_BYTES, sessions=MAX_SESSIONS, links=MAX_LINKS))
        self._stay = lobby.enter(drop)

    def end(self) -> None:
        """Leave the lobby: the connection is proven or closed."""
        self._stay.leave()

    def count(self, size: int, events: Iterable[Event]) -> AmqpRefusal | None:
        """Count `size` bytes and their events; return a refusal if a limit is exceeded."""
        return self._use.count(size, events)


def no_token_in_time() -> AmqpRefusal:
    """Return the refusal of a client without a token."""
    return AmqpRefusal(
        "amqp:connection:forced", f"no good token came within {TOKEN_SECONDS:g} seconds; put one on $cbs first", 401
    )
