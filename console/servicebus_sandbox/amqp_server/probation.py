"""What a connection may do before its first good token: as much as any client needs for it, and no more.

A client sends headers, an open, a session, two links and a token; one that is refused may try again some times. Bytes
that arrive are counted, and with them all that is held of unfinished messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from servicebus_amqp.protocol.protocol_events import AttachRequested, Event, SessionBegun
from servicebus_sandbox.serving.amqp_conditions import AmqpRefusal
from servicebus_sandbox.serving.lobby import Lobby

OPENING_SECONDS: Final = 15.0
"""For protocol headers, SASL and the open."""
TOKEN_SECONDS: Final = 60.0
"""For the first good token, since a credential may have to ask a slow authority."""
MOST_BYTES: Final = 256 * 1024
MOST_SESSIONS: Final = 100
MOST_LINKS: Final = 100
"""Of each that were ever begun: those that ended count too."""


class Probation:
    """That of one connection, which stays in the `lobby` meanwhile. `end` it with the first good token."""

    __slots__ = ("_bytes", "_links", "_sessions", "_stay")

    def __init__(self, lobby: Lobby, drop: Callable[[], None]) -> None:
        self._bytes = self._sessions = self._links = 0
        self._stay = lobby.enter(drop)

    def end(self) -> None:
        """The connection has proven itself, or is gone."""
        self._stay.leave()

    def count(self, size: int, events: Iterable[Event]) -> AmqpRefusal | None:
        """Take note of `size` bytes and of what came of them; what to say when it is too much."""
        self._bytes += size
        for event in events:
            self._sessions += isinstance(event, SessionBegun)
            self._links += isinstance(event, AttachRequested)
        for counted, most, what in (
            (self._bytes, MOST_BYTES, "bytes"),
            (self._sessions, MOST_SESSIONS, "sessions"),
            (self._links, MOST_LINKS, "links"),
        ):
            if counted > most:
                text = f"more than {most} {what} came without a good token; put one on $cbs first"
                return AmqpRefusal("amqp:resource-limit-exceeded", text, 403)
        return None


def no_token_in_time() -> AmqpRefusal:
    """What a client is told that shows none."""
    return AmqpRefusal(
        "amqp:connection:forced", f"no good token came within {TOKEN_SECONDS:g} seconds; put one on $cbs first", 401
    )
