"""The strangers of a listener: the protocol of a new connection, and its time without a token or a whole request.

Whoever can reach a port can connect to it. A stranger gets nowhere, and what strangers cost is bounded, in number and
time. They never cost a client that is served: if places or descriptors are short, strangers are closed first, the
oldest before the others, so that a client that is prompt always gets in.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import re
import resource
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Final

# The protocol of a new connection by its first bytes, and what its client is, for whoever has to mend it.
#
# Pure: sockets and answers belong to the owner. All of it is a stranger's text: what is quoted is short, printable
# ASCII.

_AMQP: Final = b"AMQP"
_VERBS: Final = (b"GET ", b"PUT ", b"POST ", b"DELETE ", b"HEAD ", b"OPTIONS ", b"PATCH ", b"CONNECT ", b"TRACE ")
TLS_HANDSHAKE: Final = b"\x16"
FIRST_BYTES: Final = 8
"""Bytes that always tell the protocols apart: AMQP's header, and the longest verb of HTTP with its blank."""
MAX_QUOTED: Final = 80


class PeerProtocol(Enum):
    """The protocol of a connection; the value is its display name."""

    AMQP = "AMQP"
    HTTP = "HTTP"
    TLS = "TLS"
    GARBAGE = "neither AMQP nor HTTP"
    UNDECIDED = "nothing"


def detect_protocol(seen: bytes) -> PeerProtocol:
    """Return the protocol that `seen` begins, UNDECIDED while it is ambiguous. Eight bytes always decide."""
    if seen.startswith(_AMQP):
        return PeerProtocol.AMQP
    if seen.startswith(_VERBS):
        return PeerProtocol.HTTP
    if seen.startswith(TLS_HANDSHAKE):
        return PeerProtocol.TLS
    if any(opening.startswith(seen) for opening in (_AMQP, *_VERBS)):
        return PeerProtocol.UNDECIDED
    return PeerProtocol.GARBAGE


_OPENINGS: Final[tuple[tuple[bytes, str], ...]] = (
    (rb"AMQP\x00\x00\x09\x01|AMQP\x01\x01", "AMQP 0-9-1, as clients of RabbitMQ do: use a client of AMQP 1.0"),
    (rb"AMQP\x02", "AMQP's own TLS layer: use TLS from the first byte, or none"),
    (rb"PRI \* HTTP/2", "HTTP/2 without TLS"),
    (rb"PROXY |\r\n\r\n\x00\r\nQUIT\n", "the PROXY protocol: switch it off at the load balancer before this port"),
    (rb"\x10[\x00-\xff]{1,4}\x00[\x04\x06]MQ", "MQTT"),
    (rb"\x00\x00[\x00-\xff]{2}\x00\x12\x00", "Kafka"),
    (rb"[\x00-\xff]{4}\x01ActiveMQ", "OpenWire, as clients of ActiveMQ do: use a client of AMQP 1.0"),
    (rb"CONNECT\r?\n|STOMP\r?\n", "STOMP"),
    (rb"SSH-", "SSH"),
    (rb"\*[0-9]+\r\n", "Redis"),
    (rb"\x00\x00\x00[\x00-\xff]\x04\xd2\x16|\x00\x00\x00[\x00-\xff]\x00\x03\x00\x00", "PostgreSQL"),
)
_FOREIGN: Final = tuple((re.compile(opening, re.DOTALL), name) for opening, name in _OPENINGS)
_AGENT: Final = re.compile(rb"\r\nuser-agent:[ \t]*([^\r\n]+)", re.IGNORECASE)
_UPGRADE: Final = re.compile(rb"\r\nupgrade:[ \t]*websocket", re.IGNORECASE)
_WEB: Final = (b"\x02h2", b"\x08http/1.1")
"""What a client of HTTPS offers in its first message of TLS; clients of AMQP offer no protocol there."""


def foreign_protocol(seen: bytes) -> str | None:
    """Return which protocol of others the first bytes begin, in words; None for AMQP 1.0, HTTP, TLS and the unknown."""
    return next((name for opening, name in _FOREIGN if opening.match(seen)), None)


def is_websocket(seen: bytes) -> bool:
    """Return whether a request of HTTP asks for a WebSocket, as far as it has come."""
    return _UPGRADE.search(seen) is not None


def describe_client(seen: bytes) -> str:
    """Return what the client is by its first bytes: one sentence without its full stop."""
    protocol = detect_protocol(seen)
    if protocol is PeerProtocol.HTTP:
        agent = _AGENT.search(seen)
        who = f", it calls itself {_quoted(agent[1])}" if agent is not None else ""
        what = "AMQP over WebSocket" if is_websocket(seen) else "HTTP"
        return f"the client speaks {what}: {_quoted(seen.split(b' HTTP/', 1)[0].split(b'?', 1)[0])}{who}"
    if protocol is PeerProtocol.TLS:
        kind = "HTTPS, as administration clients do" if any(one in seen for one in _WEB) else "TLS"
        return f"the client speaks {kind}"
    foreign = foreign_protocol(seen)
    if foreign is not None:
        return f"the client speaks {foreign}"
    return f"the client's first bytes are {seen[:FIRST_BYTES].hex(' ')}"


def _quoted(text: bytes) -> str:
    """Return a stranger's text in short, without its control characters."""
    return "".join(chr(one) if 0x20 <= one < 0x7F else "?" for one in text[:MAX_QUOTED])


MAX_STRANGERS: Final = 500
"""The limit of one port: many clients may connect in the same moment after an outage or a restart."""
FIRST_REQUEST_SECONDS: Final = 5.0
"""The limit for the first bytes, a TLS handshake or a whole request."""
RESERVED_DESCRIPTORS: Final = 100
"""Descriptors for the rest of the process; a connection that would use one is closed."""
SCARCE_SECONDS: Final = 1.0
"""Until the next attempt to accept where no descriptor is free and no stranger is left to close."""
_FREED_SECONDS: Final = 0.05
CROWD: Final = 100
"""Strangers at a time, after whose end free memory goes back to the system: handshakes of TLS need much."""
_SHORTAGES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def log_once(who: str, log: logging.Logger) -> Callable[[str], None]:
    """Return a function that logs each sentence about `who` once: a flood must not fill a disk."""
    logged: set[str] = set()

    def warn(sentence: str) -> None:
        if sentence not in logged:
            logged.add(sentence)
            log.warning("%s %s (logged once)", who, sentence)

    return warn


def return_free_memory() -> None:
    """Return the memory that is free in this process to the system, where the C library can."""
    import ctypes  # not needed for the first frame

    with suppress(AttributeError, OSError):  # glibc alone has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


def _recover() -> None:
    """Free the memory of a crowd; broken handshakes of TLS are circles with a buffer of 256 KB each."""
    gc.collect()
    return_free_memory()


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
        self._is_crowded = False

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
        elif len(self._stays) >= self.most and not self._make_room():
            self._warn(f"turned one away: {self.most} others have {self._unproven} yet")
        else:
            return True
        return False

    def enter(self, drop: Callable[[], object], seconds: float | None = None) -> Stay:
        """Add a connection for at most this many seconds; `drop` closes it. The oldest stranger may go for it."""
        if len(self._stays) >= self.most:
            self._make_room()
        stay = Stay(self, drop, self._now())
        self._stays[stay] = None
        self._is_crowded |= len(self._stays) >= CROWD
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
        if self._is_crowded and 4 * len(self._stays) < CROWD:
            self._is_crowded = False
            asyncio.get_running_loop().call_later(SCARCE_SECONDS, _recover)

    def drop_oldest(self) -> bool:
        """Close the oldest stranger if its time is over; return whether it was."""
        oldest = next(iter(self._stays), None)
        if oldest is None or self._now() - oldest.since < self._prompt:
            return False
        oldest.drop()
        return True

    def _make_room(self) -> bool:
        is_dropped = self.drop_oldest()
        if is_dropped:
            self._warn(f"turns connections away: more than {self.most} have {self._unproven}")
        return is_dropped

    async def accept(self, server: socket.socket, others: Callable[[], int] = int) -> socket.socket:
        """Return the next connection for which there is room beside `others`. Raises OSError for a closed port."""
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
            if self.admits(connection.fileno(), others()):
                return connection
            connection.close()


def is_scarce(descriptor: int) -> bool:
    """Return whether few descriptors are left: a new one is always the lowest free number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft != resource.RLIM_INFINITY and descriptor >= soft - RESERVED_DESCRIPTORS
