"""The settings that one side of a connection announces to the other, the two roles, and both sides' idle time-outs.

Idle time-outs have no clock: times are seconds of the caller's monotonic one. Received bytes count from the later of
two ticks, so that the connection never fails too early. Ticks are frequent enough that an empty frame is never late.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final

from servicebus_amqp.encoding.codec import UINT_MAX
from servicebus_amqp.encoding.frames import MIN_MAX_FRAME_SIZE
from servicebus_amqp.encoding.performatives import Open


class ConnectionRole(Enum):
    CLIENT = "client"
    SERVER = "server"


class LinkRole(Enum):
    """Our end of a link."""

    SENDER = "sender"
    RECEIVER = "receiver"


class SaslCode(IntEnum):
    """A server's answer to a client's credentials."""

    OK = 0
    AUTH = 1
    """The credentials are wrong."""
    TEMPORARY = 4
    """They could not be judged now: another try may help."""


PlainJudge = Callable[[str, str], SaslCode | None]
"""Judges the name of a key and the key, both empty if a client sent something else. None: no answer at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Settings of our side of a connection.

    hostname: the namespace that a client connects to.
    max_frame_size: bytes; larger frames are refused.
    channel_max, handle_max: the peer's highest channel of a connection and handle of a session.
    idle_timeout_ms: the peer must send within this time, None for no limit; see Connection.tick.
    incoming_window, outgoing_window: transfer frames of a session in flight.
    max_message_size: bytes of one message for our receivers, None for any; a link may override it.
    sasl: a client begins with SASL ANONYMOUS; a server accepts clients with and without.
    plain: judges what SASL PLAIN brings to a server; None: the server does not offer PLAIN.
    properties: of the open.
    first_outgoing_id, first_delivery_id: initial values of a session's two counters.
    """

    container_id: str
    hostname: str | None = None
    max_frame_size: int = 65536
    channel_max: int = 65535
    handle_max: int = 65535
    idle_timeout_ms: int | None = None
    incoming_window: int = 5000
    outgoing_window: int = 65536
    max_message_size: int | None = 1024 * 1024
    sasl: bool = True
    plain: PlainJudge | None = None
    properties: dict[Any, Any] | None = None
    first_outgoing_id: int = 0
    first_delivery_id: int = 0

    def __post_init__(self) -> None:
        if self.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise ValueError(f"max_frame_size is {self.max_frame_size}; AMQP requires at least {MIN_MAX_FRAME_SIZE}")
        if self.incoming_window < 1:
            raise ValueError(f"incoming_window is {self.incoming_window}; it must be at least 1")

    def to_open(self, peers: Open | None = None) -> Open:
        """Return the open for these settings. peers: the open that it answers, whose frames may be smaller."""
        return Open(
            container_id=self.container_id,
            hostname=self.hostname,
            max_frame_size=min(self.max_frame_size, UINT_MAX if peers is None else peers.max_frame_size),
            channel_max=self.channel_max,
            idle_time_out=self.idle_timeout_ms,
            properties=self.properties,
        )


_TICKS_PER_TIMEOUT: Final = 4
"""Ticks during one time-out."""


class IdleVerdict(Enum):
    FINE = "fine"
    SEND = "send an empty frame"
    GONE = "the peer has been silent too long"


class IdleWatch:
    """ours, peers: the two time-outs in seconds, None for none. Set `heard` and `sent` when bytes move."""

    __slots__ = ("_last_heard", "_last_sent", "heard", "ours", "peers", "sent")

    def __init__(self, ours: float | None) -> None:
        self.ours = ours
        self.peers: float | None = None
        self.heard = True
        self.sent = True
        self._last_heard = 0.0
        self._last_sent = 0.0

    def tick(self, now: float) -> tuple[IdleVerdict, float | None]:
        """Return the present verdict and the time of the next tick (None: never)."""
        if self.heard:
            self._last_heard = now
        if self.sent:
            self._last_sent = now
        self.heard = self.sent = False
        verdict = IdleVerdict.FINE
        if self.peers is not None and now - self._last_sent >= self.peers / _TICKS_PER_TIMEOUT:
            verdict = IdleVerdict.SEND
            self._last_sent = now
        if self.ours is not None and now - self._last_heard >= self.ours:
            verdict = IdleVerdict.GONE
        running = [limit for limit in (self.ours, self.peers) if limit is not None]
        return verdict, now + min(running) / _TICKS_PER_TIMEOUT if running else None
