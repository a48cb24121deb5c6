"""Sockets of a connection: TCP, TLS, or a WebSocket with the interface of a transport.

An HTTP proxy serves only WebSockets, as in the SDK, which uses them whenever a proxy is set. TCP through a proxy's
CONNECT is not supported. aiohttp does the handshakes of WebSocket and proxy.
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
"""Unwritten bytes at which a connection's senders pause, and at which they continue."""
SUBPROTOCOL: Final = "AMQPWSB10"
_PIECE_BYTES: Final = 256 * 1024
_CLOSE_SECONDS: Final = 2.0

ProtocolFactory = Callable[[], asyncio.Protocol]


async def connect(endpoint: Endpoint, protocol: ProtocolFactory) -> None:
    """Connect, and pass the transport to a new protocol.

    Raises:
        WireConnectionError: no answer, or an answer that contradicts the certificates.
        WireUnavailableError: the answer is not AMQP over WebSockets.
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
    except aiohttp.WSServerHandshakeError as error:  # its own text contains the request's headers
        raise WireUnavailableError(f"{endpoint} takes no WebSocket: {error.status} {error.message}") from None
    except (OSError, aiohttp.ClientError) as error:
        raise WireConnectionError(f"{endpoint} cannot be connected: {_reason(error)}", SOCKET_ERROR) from error


async def _tls_context(endpoint: Endpoint) -> ssl.SSLContext | None:
    """Read the TLS context in a thread, since certificates take tens of milliseconds."""
    return await asyncio.to_thread(endpoint.tls_context) if endpoint.tls else None


def _reason(error: BaseException) -> str:
    """Return a proxy's refusal without its headers, which contain the password."""
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
            timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
            ssl=await _tls_context(endpoint) or True,
            proxy=proxy.url if proxy else None,
            proxy_headers=proxy_authorization(proxy) if proxy else None,
        )
    except BaseException:
        await session.close()
        raise
    WebSocketTransport(session, socket, protocol()).start()


def proxy_authorization(proxy: Proxy) -> dict[str, str] | None:
    """Return the header that names the proxy's user; None without one."""
    if not (proxy.username or proxy.password):
        return None
    user = f"{proxy.username or ''}:{proxy.password or ''}".encode()
    return {"Proxy-Authorization": f"Basic {b64encode(user).decode()}"}


class WebSocketTransport(asyncio.Transport):
    """A WebSocket as the transport of `protocol`. Two tasks move the bytes; both end with the WebSocket."""

    def __init__(
        self, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse, protocol: asyncio.Protocol
    ) -> None:
        super().__init__()
        self._session = session
        self._socket = socket
        self._protocol = protocol
        self._pending = bytearray()
        self._wake = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._is_closing = False
        self._has_paused = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Call `connection_made`, and start the tasks."""
        self._protocol.connection_made(self)
        self._task = asyncio.create_task(self._carry(), name="carry a WebSocket")

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_closing:
            return
        self._pending += data
        self._wake.set()
        if not self._has_paused and len(self._pending) > HIGH_WATER:
            self._has_paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """Write the pending bytes, then close; a peer that does not read is cut after a while."""
        if not self._is_closing:
            self._is_closing = True
            self._wake.set()
            asyncio.get_running_loop().call_later(_CLOSE_SECONDS, self.abort)

    def abort(self) -> None:
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits: this module has its own."""

    async def _carry(self) -> None:
        writing = asyncio.create_task(self._write_all(), name="write a WebSocket")
        lost: Exception | None = None
        try:
            await self._read_all()
        except (OSError, aiohttp.ClientError) as error:
            lost = error
        except asyncio.CancelledError:  # only abort cancels this task
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
            await self._may_read.wait()
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                return  # closed, broken, or text, which AMQP never uses
            self._protocol.data_received(message.data)

    async def _write_all(self) -> None:
        try:
            while self._pending or not self._is_closing:
                if not self._pending:
                    await self._wake.wait()
                    self._wake.clear()
                    continue
                piece = bytes(memoryview(self._pending)[:_PIECE_BYTES])
                del self._pending[: len(piece)]
                await self._socket.send_bytes(piece)
                self._let_protocol_write()
            await self._socket.close()
        except (OSError, aiohttp.ClientError):  # the reader ends for the same reason and reports it
            return

    def _let_protocol_write(self) -> None:
        if self._has_paused and len(self._pending) <= LOW_WATER:
            self._has_paused = False
            self._protocol.resume_writing()
