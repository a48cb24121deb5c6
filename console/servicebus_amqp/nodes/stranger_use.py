"""What one connection used before its first good token, and the refusal beyond the limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from servicebus_amqp.nodes.refusals import AmqpRefusal
from servicebus_amqp.protocol.protocol_events import AttachRequested, Event, SessionBegun


@dataclass(frozen=True, slots=True, kw_only=True)
class StrangerLimits:
    """The limits of one connection. Sessions and links are counted when they begin; ended ones count too."""

    octets: int
    """Bytes received, which also limits unfinished messages."""
    sessions: int
    links: int


class StrangerUse:
    """The use of one connection before its first good token."""

    __slots__ = ("_limits", "_links", "_octets", "_sessions")

    def __init__(self, limits: StrangerLimits) -> None:
        self._limits = limits
        self._octets = self._sessions = self._links = 0

    def count(self, size: int, events: Iterable[Event]) -> AmqpRefusal | None:
        """Count `size` bytes and their events; return a refusal if a limit is exceeded."""
        self._octets += size
        for event in events:
            self._sessions += isinstance(event, SessionBegun)
            self._links += isinstance(event, AttachRequested)
        for counted, most, unit in (
            (self._octets, self._limits.octets, "bytes"),
            (self._sessions, self._limits.sessions, "sessions"),
            (self._links, self._limits.links, "links"),
        ):
            if counted > most:
                text = f"more than {most} {unit} came without a good token; put one on $cbs first"
                return AmqpRefusal("amqp:resource-limit-exceeded", text, 403)
        return None
