"""AMQP inside a WebSocket: binary messages carry a stream of bytes in both directions.

aiohttp has the handshake, frames and pings. Here a WebSocket becomes a transport for the namespace's AMQP protocol.
`https_server` chooses the requests.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, cast

from aiohttp import WSCloseCode, WSMsgType, web

from servicebus_sandbox.serving.listener import ProtocolFactory

log = logging.getLogger(__name__)

PATH: Final = "/$servicebus/websocket"
SUBPROTOCOLS: Final = ("AMQPWSB10", "amqp")
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
_PIECE_BYTES: Final = 256 * 1024
_HIGH_WATER: Final = 256 * 1024
_LOW_WATER: Final = 64 * 1024
_GOODBYE_SECONDS: Final = 2.0


class WebSocketServer:
    """The WebSockets of one namespace; `amqp` makes the protocol for each. Close it once."""

    def __init__(self, amqp: ProtocolFactory) -> None:
        self._amqp = amqp
        self._open: set[WebSocketServerTransport] = set()

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Carry AMQP over the request's connection until either side ends it."""
        offered = request.headers.get("Sec-WebSocket-Protocol", "")
        if not set(SUBPROTOCOLS) & {name.strip() for name in offered.split(",")}:
            raise web.HTTPBadRequest(text=f"Open a WebSocket here with the subprotocol {SUBPROTOCOLS[0]}.\n")
        below = request.transport
        socket = web.WebSocketResponse(
            protocols=SUBPROTOCOLS, max_msg_size=MAX_MESSAGE_BYTES, timeout=_GOODBYE_SECONDS, compress=False
        )
        await socket.prepare(request)
        if below is not None:
            transport = WebSocketServerTransport(socket, below, self._amqp())
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


class WebSocketServerTransport(asyncio.Transport):
    """A WebSocket as the transport of `protocol`; `below` is its connection."""

    def __init__(self, socket: web.WebSocketResponse, below: asyncio.Transport, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._socket = socket
        self._below = below
        self._protocol = protocol
        self._pending = bytearray()
        self._something_to_do = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._closing = False
        self._paused_protocol = False

    async def run(self) -> None:
        """Carry bytes both ways until the WebSocket ends; then report the loss to the protocol."""
        self._protocol.connection_made(self)
        writing = asyncio.create_task(self._write_all(), name="write a WebSocket")
        try:
            await self._read_all()
        finally:
            self._closing = True
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            self._protocol.connection_lost(None)

    async def _read_all(self) -> None:
        while True:
            await self._may_read.wait()
            message = await self._socket.receive()
            if message.type is WSMsgType.BINARY:
                self._protocol.data_received(message.data)
            elif message.type is WSMsgType.TEXT:
                await self._socket.close(code=WSCloseCode.UNSUPPORTED_DATA, message=b"AMQP comes in binary messages")
                return
            else:
                return  # closed by either side, or broken

    async def _write_all(self) -> None:
        try:
            while self._pending or not self._closing:
                if not self._pending:
                    await self._something_to_do.wait()
                    self._something_to_do.clear()
                    continue
                piece = bytes(memoryview(self._pending)[:_PIECE_BYTES])
                del self._pending[: len(piece)]
                await self._socket.send_bytes(piece)
                self._let_protocol_write()
            await self._socket.close()
        except ConnectionError as error:
            log.debug("a WebSocket broke off: %s", error)  # the reader ends too, and reports it to the protocol
            self.abort()

    def _let_protocol_write(self) -> None:
        if self._paused_protocol and len(self._pending) <= _LOW_WATER:
            self._paused_protocol = False
            self._protocol.resume_writing()

    # ------------------------------------------------------------------ asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._closing:
            return
        self._pending += data
        self._something_to_do.set()
        if not self._paused_protocol and len(self._pending) > _HIGH_WATER:
            self._paused_protocol = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """Write the pending output, then close the WebSocket; a peer that does not read is cut after a while."""
        if not self._closing:
            self._closing = True
            self._something_to_do.set()
            self._may_read.set()
            asyncio.get_running_loop().call_later(_GOODBYE_SECONDS, self.abort)

    def abort(self) -> None:
        self._closing = True
        self._may_read.set()
        self._below.abort()

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._protocol)
