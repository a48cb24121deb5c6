"""HTTP/1.1 for the sandbox: aiohttp's server with the admission of strangers, a port for HTTP only, WebSockets.

A connection is unproven until it has sent a whole request that is not answered by 401. After the head, `body_of` limits
the time.

A fault delays, refuses or swallows a management request, or resets its connection. A fault that ends releases the
requests that it held. The servers write answers and refusals.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from servicebus_amqp.server.admission import FIRST_REQUEST_SECONDS, Admission, PeerProtocol, Stay, log_once
from servicebus_amqp.transport import CLOSE_SECONDS, SUBPROTOCOL, WebSocketTransport
from servicebus_sandbox.faults import ConnectionVerdict, Direction, FaultBoard, FaultVerdict, InjectionPoint, Operation
from servicebus_sandbox.serving.amqp_conditions import RefusalLog, refusal_by
from servicebus_sandbox.serving.listener import Listener, ProtocolFactory

# The logger of aiohttp's servers. Apart from `refusal_log`, because AMQP works without aiohttp.


class HttpLog(logging.LoggerAdapter[logging.Logger]):
    """An aiohttp server's logger that counts malformed and broken requests as refusals; aiohttp logs tracebacks."""

    def __init__(self, logger: logging.Logger, who: str) -> None:
        super().__init__(logger)
        self._refusals = RefusalLog(who, logger)

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        error = options.get("exc_info")
        if isinstance(error, HttpProcessingError | ConnectionError):
            self._refusals.about(type(error).__name__, "refused a request")
        else:
            super().log(level, msg, *args, **options)


_IDLE_SECONDS: Final = 60.0
_LINGERING_SECONDS: Final = 1.0  # for the rest of an unread body
_SHUTDOWN_SECONDS: Final = 1.0
_UNAUTHORIZED: Final = 401

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class HttpServer(web.Server):
    """The protocols of HTTP connections, and their end. Needs a running loop."""

    def __init__(self, who: str, serve: Handler, *, admission: Admission, patience: float, log: logging.Logger) -> None:
        """Log as `who`; `patience` is the limit in seconds for a first request's head, and for a body."""
        super().__init__(
            self._prove,
            access_log=None,
            logger=cast(logging.Logger, HttpLog(log, who)),
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=_LINGERING_SECONDS,
        )
        self._serve_request = serve
        self._admission = admission
        self._patience = patience
        self._stays: dict[RequestHandler, Stay] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._stays[handler] = self._admission.enter(transport.abort, self._patience)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._leave(handler)

    async def body_of(self, request: web.BaseRequest) -> bytes:
        """Return the request's body. Raises HTTPRequestTimeout."""
        try:
            async with asyncio.timeout(self._patience):
                return await request.read()
        except TimeoutError as error:
            raise web.HTTPRequestTimeout(text="The request's body did not arrive in time.\n") from error

    def prove(self, request: web.BaseRequest) -> None:
        """End its time as a stranger: the upgraded connection has one of its own."""
        self._leave(request.protocol)

    async def _prove(self, request: web.BaseRequest) -> web.StreamResponse:
        stay = self._stays.get(request.protocol)
        if stay is not None:
            stay.stop_timer()
        answer = await self._serve_request(request)
        if answer.status != _UNAUTHORIZED:
            self._leave(request.protocol)
        elif stay is not None and request.protocol in self._stays:
            stay.start_timer(self._patience)
        return answer

    def _leave(self, handler: RequestHandler) -> None:
        stay = self._stays.pop(handler, None)
        if stay is not None:
            stay.leave()


_ADVICE: Final = {
    PeerProtocol.AMQP: "It serves HTTP; AMQP has the port of a namespace's connection string.",
    PeerProtocol.TLS: "It serves plain HTTP; use http:// instead of https://.",
}


class HttpPort:
    """One port with HTTP and, with `tls`, HTTPS."""

    def __init__(
        self,
        who: str,
        serve: Handler,
        *,
        log: logging.Logger,
        tls: ssl.SSLContext | None = None,
        patience: float = FIRST_REQUEST_SECONDS,
    ) -> None:
        """Serve; `patience` is the limit in seconds for the first bytes, a TLS handshake and a request."""
        admission = Admission(log_once(who, log))
        self.http = HttpServer(who, serve, admission=admission, patience=patience, log=log)
        self._listener = Listener(
            who=who,
            https=self.http,
            tls=tls,
            plain_http=True,
            faults=FaultBoard(who, tuple),
            admission=admission,
            patience=patience,
            advice=_ADVICE,
        )

    async def open(self, host: str, port: int = 0) -> int:
        """Listen and return the port. Raises ListenError."""
        return await self._listener.open(host, port)

    async def close(self) -> None:
        """Stop listening and end every connection; an answer in progress has a second to leave."""
        await self._listener.close()
        self.http.pre_shutdown()  # ends idle connections
        await self.http.shutdown(_SHUTDOWN_SECONDS)


Answer = TypeVar("Answer")

_MANAGING: Final = frozenset({Operation.MANAGE})
_TAKING: Final = (FaultVerdict.SERVE, FaultVerdict.TAKE_SILENTLY, FaultVerdict.TAKE_AND_RESET)


class FaultGate:
    """The gate of every request. It watches `faults` until it is closed; then it holds nothing.

    `connections` returns the present ones, which die when connections become half-open.
    """

    def __init__(self, faults: FaultBoard, *, connections: Callable[[], Iterable[object]] = tuple) -> None:
        self._faults = faults
        self._connections = connections
        self._dead: dict[str, frozenset[object]] = {}
        self._changed = asyncio.Event()
        self._closed = False
        faults.watch(self._let_go)

    def close(self) -> None:
        self._closed = True
        self._let_go()

    async def loses_connection(self, connection: object = None) -> bool:
        """Return whether a fault cuts the connection, now or after it has swallowed the request for a while."""
        verdict = self._verdict(connection)
        if verdict is ConnectionVerdict.SERVE:
            return False
        while verdict is ConnectionVerdict.SWALLOW and not self._closed:
            await self._changed.wait()
            verdict = self._verdict(connection)
        return True

    async def pass_through(
        self,
        path: str,
        serve: Callable[[], Awaitable[Answer]],
        refuse: Callable[[FaultVerdict, str, int], Answer],
    ) -> Answer | None:
        """Return the answer; None for a connection to reset, now or when the fault that holds it changes.

        `path` is the entity's or anything below it. `refuse` makes an answer from a verdict, one sentence and Atom's
        status.
        """
        faults = self._faults
        if faults.is_quiet:
            return await serve()
        if await self.loses_connection():
            return None
        verdict = faults.verdict(InjectionPoint.HTTP, path)
        for direction in Direction:
            await asyncio.sleep(faults.latency(path, _MANAGING, direction) + faults.connection_latency(direction))
        refusal = None if verdict is FaultVerdict.REFUSE else refusal_by(verdict, path)
        if refusal is not None:
            return refuse(verdict, refusal.description, refusal.status)
        answer = await serve() if verdict in _TAKING else None
        if verdict in (FaultVerdict.SWALLOW, FaultVerdict.TAKE_SILENTLY) and not self._closed:
            await self._changed.wait()
        return answer if verdict is FaultVerdict.SERVE else None

    def _verdict(self, connection: object) -> ConnectionVerdict:
        is_dead = any(connection in those for those in self._dead.values())
        return ConnectionVerdict.SWALLOW if is_dead else self._faults.connection_verdict()

    def _let_go(self) -> None:
        begun = (fault_id for fault_id in self._faults.half_open if fault_id not in self._dead)
        living = {fault_id: frozenset(self._connections()) for fault_id in begun}
        self._dead = {key: those for key, those in (self._dead | living).items() if key in self._faults.half_open}
        self._changed.set()
        self._changed = asyncio.Event()


def reset(request: web.BaseRequest) -> web.Response:
    """Cut the request's connection; the response, which a handler has to return, never leaves."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


# AMQP inside a WebSocket: binary messages carry a stream of bytes in both directions.
#
# aiohttp has the handshake, frames and pings. A WebSocket is a transport for the namespace's AMQP protocol.
# `management_api` chooses the requests.

SUBPROTOCOLS: Final = (SUBPROTOCOL, "amqp")
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024


class WebSocketServer:
    """The WebSockets of one namespace; `amqp` makes the protocol for each. Close it once."""

    def __init__(self, amqp: ProtocolFactory) -> None:
        self._amqp = amqp
        self._open: set[WebSocketTransport] = set()

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Carry AMQP over the request's connection until either side ends it."""
        offered = request.headers.get("Sec-WebSocket-Protocol", "")
        if not set(SUBPROTOCOLS) & {name.strip() for name in offered.split(",")}:
            raise web.HTTPBadRequest(text=f"Open a WebSocket here with the subprotocol {SUBPROTOCOLS[0]}.\n")
        below = request.transport
        socket = web.WebSocketResponse(
            protocols=SUBPROTOCOLS, max_msg_size=MAX_MESSAGE_BYTES, timeout=CLOSE_SECONDS, compress=False
        )
        await socket.prepare(request)
        if below is not None:
            transport = WebSocketTransport(socket, self._amqp(), below.abort, info=below.get_extra_info)
            self._open.add(transport)
            try:
                await transport.run()
            finally:
                self._open.discard(transport)
        return socket

    def close(self) -> None:
        """Drop every connection."""
        for transport in tuple(self._open):
            transport.abort()
