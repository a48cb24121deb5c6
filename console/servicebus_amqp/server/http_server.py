"""HTTP/1.1 for a port: aiohttp's server with the admission of strangers, and AMQP inside WebSockets.

A connection is unproven until it has sent a whole request that is not answered by 401. After the head, `body_of` limits
the time. The one file of this package that needs aiohttp.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from servicebus_amqp.server.admission import FIRST_REQUEST_SECONDS, Admission, Stay
from servicebus_amqp.server.listener import ProtocolFactory
from servicebus_amqp.transport import CLOSE_SECONDS, SUBPROTOCOL, WEBSOCKET_PATH, WebSocketTransport


class HttpLog(logging.LoggerAdapter[logging.Logger]):
    """An aiohttp server's logger that reports malformed and broken requests by kind; aiohttp logs tracebacks."""

    def __init__(self, logger: logging.Logger, report: Callable[[str, str], object]) -> None:
        super().__init__(logger)
        self._report = report

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        error = options.get("exc_info")
        if isinstance(error, HttpProcessingError | ConnectionError):
            self._report(type(error).__name__, "refused a request")
        else:
            super().log(level, msg, *args, **options)


_IDLE_SECONDS: Final = 60.0
_LINGERING_SECONDS: Final = 1.0  # for the rest of an unread body
_UNAUTHORIZED: Final = 401

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class HttpServer(web.Server):
    """The protocols of HTTP connections, and their end. Needs a running loop."""

    def __init__(
        self,
        serve: Handler,
        *,
        admission: Admission,
        patience: float = FIRST_REQUEST_SECONDS,
        log: logging.Logger,
        report: Callable[[str, str], object],
    ) -> None:
        """Serve requests.

        Args:
            serve: answers a request.
            admission: where connections wait until they are proven.
            patience: seconds for a first request's head, and for a body.
            log: for errors of `serve`.
            report: called with the kind of a malformed or broken request, and a sentence.
        """
        super().__init__(
            self._prove,
            access_log=None,
            logger=cast(logging.Logger, HttpLog(log, report)),
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


# AMQP inside a WebSocket: binary messages carry a stream of bytes in both directions.
#
# aiohttp has the handshake, frames and pings. A WebSocket is a transport for an AMQP protocol.

SUBPROTOCOLS: Final = (SUBPROTOCOL, "amqp")
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024


class WebSocketServer:
    """The WebSockets of one port; `amqp` makes the protocol for each. Close it once."""

    def __init__(self, amqp: ProtocolFactory) -> None:
        self._amqp = amqp
        self._open: set[WebSocketTransport] = set()

    @staticmethod
    def is_for(request: web.BaseRequest) -> bool:
        """Return whether a request has the path of WebSockets."""
        return request.path.rstrip("/").lower() == WEBSOCKET_PATH

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Carry AMQP over the request's connection until either side ends it."""
        offered = request.headers.get("Sec-WebSocket-Protocol", "")
        if not set(SUBPROTOCOLS) & {name.strip() for name in offered.split(",")}:
            refusal = web.HTTPBadRequest(text=f"Open a WebSocket here with the subprotocol {SUBPROTOCOLS[0]}.\n")
            refusal.force_close()
            raise refusal
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
