"""A port: accepts sockets, detects their protocol and hands them over.

By the first bytes a port serves AMQP and HTTP, both plain and inside TLS; WebSockets are upgrades of HTTP. What is not
served is closed, and the log has advice. The listener peeks at the first byte, because a TLS handshake needs an
untouched socket. Silence, garbage and incomplete handshakes end by a time-out and affect no other connection. The
protocols come from factories, the TLS context from its owner at the first hello.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol, cast

from servicebus_amqp.encoding.frames import SASL_HEADER
from servicebus_amqp.server.admission import (
    FIRST_BYTES,
    FIRST_REQUEST_SECONDS,
    TLS_HANDSHAKE,
    Admission,
    PeerProtocol,
    Stay,
    describe_client,
    detect_protocol,
    foreign_protocol,
)


class ConnectionVerdict(Enum):
    """The fate of a connection, new or existing; later ones are stronger."""

    SERVE = "serve"
    DEAF = "deaf"  # input is swallowed, output leaves
    MUTE = "mute"  # input is processed, output is held
    SWALLOW = "swallow"  # input is swallowed, output is held
    CLOSE = "close"  # ended with a reason
    RESET = "reset"


class ConnectionFaults(Protocol):
    """Faults of a port."""

    def connection_verdict(self) -> ConnectionVerdict:
        """Return the verdict on a new connection."""

    @property
    def refuses_connections(self) -> bool:
        """Return whether the port does not answer."""


class NoFaults:
    """A port that serves every connection."""

    refuses_connections = False

    def connection_verdict(self) -> ConnectionVerdict:
        return ConnectionVerdict.SERVE


# The protocols of a connection until its own is known.
#
# `Sniffer` waits for the bytes that it needs and hands the connection over with them. `Swallower` reads and answers
# nothing. Not here: namespaces, ports and faults.


class _StandIn(asyncio.Protocol):
    """A temporary protocol whose transport is in its owner's set, so that the owner can end it. A stranger."""

    def __init__(self, owned: set[asyncio.Transport], admission: Admission) -> None:
        self._owned = owned
        self._admission = admission
        self._stay: Stay | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._owned.add(self._transport)
        self._stay = self._admission.enter(self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        self._transport = None

    def _let_go(self) -> None:
        if self._transport is not None:
            self._owned.discard(self._transport)
        if self._stay is not None:
            self._stay.leave()


class Swallower(_StandIn):
    """A protocol that reads every byte and answers nothing, like a network that drops packets."""

    def eof_received(self) -> bool:
        return True  # the peer's end stays unanswered too


class Sniffer(_StandIn):
    """A protocol that waits up to `patience` seconds for the first bytes, then calls `choose`.

    `choose` gets the detected protocol (UNDECIDED for a silent peer), the transport and the first bytes. It returns
    the protocol that takes over, or None if it has handled the transport itself.
    """

    def __init__(
        self,
        owned: set[asyncio.Transport],
        admission: Admission,
        choose: Callable[[PeerProtocol, asyncio.Transport, bytes], asyncio.Protocol | None],
        *,
        patience: float,
    ) -> None:
        super().__init__(owned, admission)
        self._choose = choose
        self._patience = patience
        self._timer: asyncio.TimerHandle | None = None
        self._seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._wait(self._patience, PeerProtocol.UNDECIDED)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()

    def data_received(self, data: bytes) -> None:
        self._seen += data
        speech = detect_protocol(self._seen)
        is_short = len(self._seen) < FIRST_BYTES and foreign_protocol(self._seen) is None
        if speech is PeerProtocol.GARBAGE and is_short:
            self._wait(MORE_SECONDS, speech)
        elif speech is not PeerProtocol.UNDECIDED:
            self._decide(speech)

    def _wait(self, seconds: float, speech: PeerProtocol) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._decide, speech)

    def _decide(self, speech: PeerProtocol) -> None:
        self._stop_timer()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        protocol = self._choose(speech, transport, self._seen)
        if protocol is None:
            return
        self._let_go()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(self._seen)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


log = logging.getLogger(__name__)

ProtocolFactory = Callable[[], asyncio.Protocol]

_BACKLOG = 512
_PAUSE_AFTER_FAILURE = 1.0
MORE_SECONDS = 1.0
"""The time for more bytes of a protocol that is not known by the first ones."""
_DESCRIBED_BYTES = 2048
_RECORD_HEAD = 5
_LARGEST_RECORD = 16 * 1024
"""Bytes of a record of TLS: kind, version and length first."""
ADVICE: Mapping[PeerProtocol, str] = {
    PeerProtocol.TLS: "Trust the certificate authority of this port, or add UseDevelopmentEmulator=true.",
    PeerProtocol.GARBAGE: "This port serves AMQP 1.0, HTTP and WebSockets, plain and inside TLS.",
}
TlsSource = Callable[[], Awaitable[ssl.SSLContext]]
"""Returns the context for a TLS hello. Raises OSError."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: the authority's certificate for clients, the server's chain and key for `server_context`."""

    ca_file: Path
    server_file: Path
    key_file: Path

    def server_context(self) -> ssl.SSLContext:
        """Return the server's TLS context: 1.2 or newer, no client certificates, no ALPN."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.server_file, self.key_file)
        return context


NEEDS_CAPABILITY = (
    "ports below 1024 need the capability CAP_NET_BIND_SERVICE, or the setting net.ipv4.ip_unprivileged_port_start=443"
)


class ListenError(Exception):
    """A port that cannot be opened; the message names address, cause and remedy."""


class Listener:
    """A port, such as that of a namespace. Open it once, close it once; `rejected` counts rejections by reason."""

    def __init__(
        self,
        *,
        who: str,
        amqp: ProtocolFactory | None = None,
        http: ProtocolFactory | None = None,
        tls: ssl.SSLContext | TlsSource | None = None,
        admission: Admission,
        faults: ConnectionFaults | None = None,
        patience: float = FIRST_REQUEST_SECONDS,
        advice: Mapping[PeerProtocol, str] = ADVICE,
        report: Callable[[str, str, str], None] | None = None,
        others: Callable[[], int] = int,
    ) -> None:
        """Configure the port.

        Args:
            who: the port, for the operator.
            amqp, http: make the protocol of a connection. None: not served.
            tls: None: the port is plain.
            admission: where connections wait until they are proven.
            faults: decide about each new connection.
            patience: seconds for the first bytes, and for a TLS handshake.
            advice: a sentence for clients of each protocol that is not served, or whose handshake fails.
            report: called with the reason of each rejection, advice and the client; by default the log has each once.
            others: returns the number of connections that are proven.
        """
        self._who = who
        offered = {PeerProtocol.AMQP: amqp, PeerProtocol.HTTP: http}
        self._factories = {speech: factory for speech, factory in offered.items() if factory is not None}
        self._tls = tls
        self._advice = advice
        self._report = self._log if report is None else report
        self._others = others
        self._faults = NoFaults() if faults is None else faults
        self._verdict = self._faults.connection_verdict
        self._last_verdict = self._verdict()
        self._patience = patience
        self._admission = admission
        self._stand_ins: set[asyncio.Transport] = set()
        self._accepting: asyncio.Task[None] | None = None
        self._server: socket.socket | None = None
        self._kept: socket.socket | None = None
        self._answering = asyncio.Event()
        self._answering.set()
        self.rejected: Counter[str] = Counter()

    def offer(self, *, http: ProtocolFactory, tls: ssl.SSLContext) -> None:
        """Serve HTTP and TLS too, from now on."""
        self._factories[PeerProtocol.HTTP] = http
        self._tls = tls

    @property
    def is_serving(self) -> bool:
        """Return whether it accepts connections, or will when a fault ends."""
        return self._accepting is not None and not self._accepting.done()

    async def open(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen on `host`, by default loopback, and return the port. Raises ListenError."""
        server = bind(self._who, host, port)
        self.serve(server)
        return int(server.getsockname()[1])

    def serve(self, server: socket.socket) -> None:
        """Serve the connections of a listening socket, and own it."""
        server.setblocking(False)
        self._server = server
        self._accepting = asyncio.create_task(self._accept(server), name=f"accept for {self._who}")

    async def close(self) -> None:
        """Stop listening and drop connections that are not handed over; the others belong to their owners."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
            self._accepting = None
        for server in (self._server, self._kept):
            if server is not None:
                server.close()  # a task that is cancelled before its first step, or while refusing, does not
        self._server = self._kept = None
        self._drop_stand_ins()

    def faults_changed(self) -> None:
        """Apply changed faults: reset swallowed or undetected connections, refuse new ones or accept them."""
        before, self._last_verdict = self._last_verdict, self._verdict()
        if before is not self._last_verdict:
            self._drop_stand_ins()
        if not self._faults.refuses_connections:
            if self._kept is not None:
                self._kept.listen(_BACKLOG)
            self._answering.set()
        elif self._server is not None:
            self._refuse(self._server)

    def _refuse(self, server: socket.socket) -> None:
        """Refuse connections; the accepting task keeps the port reserved."""
        try:
            server.shutdown(socket.SHUT_RDWR)
        except OSError as error:  # on systems without support connections are reset
            log.info("%s cannot refuse connections, and resets them: %s", self._who, error)
        else:
            self._answering.clear()
            self._server = None

    def _drop_stand_ins(self) -> None:
        for transport in tuple(self._stand_ins):
            transport.abort()

    async def _accept(self, server: socket.socket) -> None:
        with contextlib.ExitStack() as sockets:
            sockets.enter_context(server)
            async with asyncio.TaskGroup() as group:
                while True:
                    try:
                        connection = await self._admission.accept(server, self._others)
                    except OSError as error:
                        if self._server is None:
                            server = sockets.enter_context(await self._open_again(server))
                            continue
                        self._reject(f"it cannot be accepted: {error.strerror or error}")
                        await asyncio.sleep(_PAUSE_AFTER_FAILURE)
                    else:
                        self._admission.follow(group.create_task(self._welcome(connection)))

    async def _open_again(self, server: socket.socket) -> socket.socket:
        """Keep the port of a shut socket without answering on it, until connections are allowed again."""
        address, family = server.getsockname(), server.family
        server.close()
        kept = socket.socket(family)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(address)
        kept.setblocking(False)
        self._kept = kept
        await self._answering.wait()
        kept.listen(_BACKLOG)
        self._server, self._kept = kept, None
        return kept

    async def _welcome(self, connection: socket.socket) -> None:
        """Pass one new connection to a protocol; its errors end only this connection."""
        handed_over = False
        try:
            # asyncio does it for sockets it has opened itself; without it short answers wait 40 ms for the peer's ACK
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            handed_over = await self._bring_in(connection)
        except TimeoutError:
            self._reject("silent")
        except OSError as error:
            advice = self._advice.get(PeerProtocol.TLS, "") if isinstance(error, ssl.SSLError) else ""
            self._reject(f"broken off: {getattr(error, 'reason', None) or error.strerror or error}", advice)
        except Exception:
            log.exception("%s could not serve a connection", self._who)
        finally:
            if not handed_over:
                connection.close()

    async def _bring_in(self, connection: socket.socket) -> bool:
        """Return False if the connection has to be closed. The verdict is checked again at the first byte."""
        first = b""
        if self._verdict() is ConnectionVerdict.SERVE:
            async with asyncio.timeout(self._patience):
                first = await first_bytes(connection)
                if first == TLS_HANDSHAKE and self._tls is not None:
                    await wait_for_hello(connection)
            if not first:
                return False
        match self._verdict():
            case ConnectionVerdict.RESET:
                _reset_on_close(connection)
                return False
            case ConnectionVerdict.SWALLOW:
                await self._hand_over(connection, lambda: Swallower(self._stand_ins, self._admission), tls=None)
            case ConnectionVerdict.SERVE if first == TLS_HANDSHAKE and self._tls is None:
                hello = connection.recv(_DESCRIBED_BYTES, socket.MSG_PEEK)
                self._reject(PeerProtocol.TLS.value, self._advice.get(PeerProtocol.TLS, ""), describe_client(hello))
                return False
            case ConnectionVerdict.SERVE:
                tls = await self._tls_context() if first == TLS_HANDSHAKE else None
                await self._hand_over(connection, self._sniffer, tls=tls)
        return True

    async def _tls_context(self) -> ssl.SSLContext | None:
        return await self._tls() if callable(self._tls) else self._tls

    async def _hand_over(
        self, connection: socket.socket, factory: ProtocolFactory, *, tls: ssl.SSLContext | None
    ) -> None:
        loop = asyncio.get_running_loop()
        limit = None if tls is None else self._patience
        await loop.connect_accepted_socket(factory, connection, ssl=tls, ssl_handshake_timeout=limit)

    def _sniffer(self) -> Sniffer:
        return Sniffer(self._stand_ins, self._admission, self._choose, patience=self._patience)

    def _choose(self, speech: PeerProtocol, transport: asyncio.Transport, seen: bytes) -> asyncio.Protocol | None:
        is_foreign = foreign_protocol(seen) is not None
        if not is_foreign and speech in self._factories:
            return self._factories[speech]()
        advice = self._advice.get(PeerProtocol.GARBAGE if is_foreign else speech, "")
        self._reject(speech.value, advice, describe_client(seen) if seen else "")
        if is_foreign and speech is PeerProtocol.AMQP:
            transport.write(SASL_HEADER)  # the version that is served
            transport.close()
        else:
            transport.abort()
        return None

    def _reject(self, reason: str, advice: str = "", client: str = "") -> None:
        self.rejected[reason] += 1
        self._report(reason, advice, client)

    def _log(self, reason: str, advice: str, client: str) -> None:
        """Log each reason once: a flood of garbage must not fill a disk."""
        if self.rejected[reason] == 1:
            found = f": {client}" if client else ""
            sentence = f". {advice}" if advice else ""
            log.warning("%s turned a connection away: %s%s%s (logged once)", self._who, reason, found, sentence)


def bind(
    who: str, host: str, port: int, *, remedy: str = "choose another port, or 0 for any that is free"
) -> socket.socket:
    """Return a listening, non-blocking socket. Raises ListenError in the name of `who`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        cause = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
        remedy = NEEDS_CAPABILITY if isinstance(error, PermissionError) else remedy
        raise ListenError(f"{who} cannot listen on {host}:{port} ({cause}); {remedy}") from error
    server.setblocking(False)
    return server


async def first_bytes(connection: socket.socket, count: int = 1) -> bytes:
    """Return so many first bytes without consuming them; fewer if the peer has closed."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    return connection.recv(count, socket.MSG_PEEK)


async def wait_for_hello(connection: socket.socket) -> None:
    """Wait for the rest of a client's first record of TLS: half of one costs no handshake, whose buffers are large."""
    head = await first_bytes(connection, _RECORD_HEAD)
    size = int.from_bytes(head[3:_RECORD_HEAD], "big")
    if len(head) == _RECORD_HEAD and size <= _LARGEST_RECORD:
        await first_bytes(connection, _RECORD_HEAD + size)


def _reset_on_close(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def name_remark(host: str, address: str) -> str | None:
    """Return a warning unless clients on this machine find `address` by the name `host`; a resolver is asked."""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        found = set()
    if address in found and len(found) == 1:
        return None
    where = f"resolves to {', '.join(sorted(found))}" if found else "does not resolve"
    return f"{host} {where} on this machine: write the line '{address} {host}' into the hosts file of each client"
