"""Sockets for a line: TCP, TLS, or a WebSocket made to look like a transport.

An HTTP proxy is used for WebSockets alone, as by the SDK, which turns to them whenever a proxy is set; TCP through a
proxy's CONNECT is not done. The handshakes of WebSocket and proxy are aiohttp's.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final

import aiohttp

from paired_servicebus.core.errors import WireConnectionError, WireUnavailableError
from paired_servicebus.pairing.amqp_client.endpoint import WEBSOCKET_PATH, Endpoint, Proxy, Transport
from paired_servicebus.pairing.amqp_client.wire_errors import SOCKET_ERROR

HIGH_WATER: Final = 512 * 1024
LOW_WATER: Final = 128 * 1024
"""Bytes that may wait to be written before a line's senders are told to pause, and when they may go on."""
SUBPROTOCOL: Final = "AMQPWSB10"
_PIECE_BYTES: Final = 256 * 1024
_GOODBYE_SECONDS: Final = 2.0

ProtocolFactory = Callable[[], asyncio.Protocol]


async def connect(endpoint: Endpoint, protocol: ProtocolFactory) -> None:
    """Connect, and hand the transport to a new protocol.

    Raises:
        WireConnectionError: nobody answers there, or not as the certificates say.
        WireUnavailableError: what answers there is no AMQP over WebSockets.
    """
    try:
        if endpoint.transport is Transport.WEBSOCKET:
            await _websocket(endpoint, protocol)
        else:
            await asyncio.get_running_loop().create_connection(
                protocol,
                endpoint.host,
                endpoint.port,
                ssl=await _tls_context(endpoint),
                server_hostname=endpoint.host if endpoint.tls else None,
            )
    except aiohttp.WSServerHandshakeError as error:  # its own text has the request's headers in it
        raise WireUnavailableError(f"{endpoint} takes no WebSocket: {error.status} {error.message}") from None
    except (OSError, aiohttp.ClientError) as error:
        raise WireConnectionError(f"{endpoint} cannot be connected: {_reason(error)}", SOCKET_ERROR) from error


async def _tls_context(endpoint: Endpoint) -> ssl.SSLContext | None:
    """In a thread, since reading the certificates takes tens of milliseconds."""
    return await asyncio.to_thread(endpoint.tls_context) if endpoint.tls else None


def _reason(error: BaseException) -> str:
    """A proxy's refusal without its headers, which have the password in them."""
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the proxy answered {error.status} {error.message}"
    return str(error) or type(error).__name__


async def _websocket(endpoint: Endpoint, protocol: ProtocolFactory) -> None:
    scheme, proxy = ("wss" if endpoint.tls else "ws"), endpoint.proxy
    session = aiohttp.ClientSession()
    try:
        socket = await session.ws_connect(
            f"{scheme}://{endpoint.host}:{endpoint.port}{WEBSOCKET_PATH}",
            protocols=[SUBPROTOCOL],
            max_msg_size=0,
            compress=0,
            timeout=aiohttp.ClientWSTimeout(ws_close=_GOODBYE_SECONDS),
            ssl=await _tls_context(endpoint) or True,
            proxy=proxy.url if proxy else None,
            proxy_headers=proxy_authorization(proxy) if proxy else None,
        )
    except BaseException:
        await session.close()
        raise
    WebSocketTransport(session, socket, protocol()).start()


def proxy_authorization(proxy: Proxy) -> dict[str, str] | None:
    """Give the header that names the proxy's user; None where it has none."""
    if not (proxy.username or proxy.password):
        return None
    user = f"{proxy.username or ''}:{proxy.password or ''}".encode()
    return {"Proxy-Authorization": f"Basic {b64encode(user).decode()}"}


class WebSocketTransport(asyncio.Transport):
    """A WebSocket as the transport of `protocol`. Two tasks carry the bytes; both end with the WebSocket."""

    def __init__(
        self, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse, protocol: asyncio.Protocol
    ) -> None:
        super().__init__()
        self._session = session
        self._socket = socket
        self._protocol = protocol
        self._pending = bytearray()
        self._something_to_do = asyncio.Event()
        self._is_closing = False
        self._has_paused = False
        self._carrying: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Tell the protocol, and begin to carry."""
        self._protocol.connection_made(self)
        self._carrying = asyncio.create_task(self._carry(), name="carry a WebSocket")

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_closing:
            return
        self._pending += data
        self._something_to_do.set()
        if not self._has_paused and len(self._pending) > HIGH_WATER:
            self._has_paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """Write what is pending, then say goodbye; a peer that does not read is cut after a while."""
        if not self._is_closing:
            self._is_closing = True
            self._something_to_do.set()
            asyncio.get_running_loop().call_later(_GOODBYE_SECONDS, self.abort)

    def abort(self) -> None:
        self._is_closing = True
        if self._carrying is not None:
            self._carrying.cancel()

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The limits are this module's."""

    async def _carry(self) -> None:
        writing = asyncio.create_task(self._write_all(), name="write a WebSocket")
        lost: Exception | None = None
        try:
            await self._read_all()
        except (OSError, aiohttp.ClientError) as error:
            lost = error
        except asyncio.CancelledError:  # by abort alone: nobody else has this task
            pass
        finally:
            self._is_closing = True
            writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writing
            await self._session.close()
            self._protocol.connection_lost(lost)

    async def _read_all(self) -> None:
        while True:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                return  # closed by either side, broken, or text, which AMQP has no use for
            self._protocol.data_received(message.data)

    async def _write_all(self) -> None:
        try:
            while self._pending or not self._is_closing:
                if not self._pending:
                    await self._something_to_do.wait()
                    self._something_to_do.clear()
                    continue
                piece = bytes(memoryview(self._pending)[:_PIECE_BYTES])
                del self._pending[: len(piece)]
                await self._socket.send_bytes(piece)
                self._let_protocol_write()
            await self._socket.close()
        except (OSError, aiohttp.ClientError):  # reading ends by the same, and tells the protocol
            return

    def _let_protocol_write(self) -> None:
        if self._has_paused and len(self._pending) <= LOW_WATER:
            self._has_paused = False
            self._protocol.resume_writing()
