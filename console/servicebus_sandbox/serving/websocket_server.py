"""AMQP inside a WebSocket: binary messages carry a stream of bytes in both directions.

aiohttp has the handshake, frames and pings. A WebSocket is a transport for the namespace's AMQP protocol.
`https_server` chooses the requests.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from servicebus_amqp.transport import CLOSE_SECONDS, SUBPROTOCOL, WebSocketTransport
from servicebus_sandbox.serving.listener import ProtocolFactory

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
