"""The bytes of a connection, of either role: a WebSocket as its transport, and long reads in pieces.

A library of the owner has the handshake, frames and pings of a WebSocket: binary messages carry a stream of bytes in
both directions.

A long read is handled in pieces, one for each turn of the event loop. A socket hands over up to 256 KB together,
hundreds of messages, whose handling takes many milliseconds. In a loop that serves clients, a drain or a flood must not
delay the others' sends: they get their turn between two pieces. Pieces cost a tenth to a third more CPU for a message,
so other loops handle a read together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

SUBPROTOCOL: Final = "AMQPWSB10"
WEBSOCKET_PATH: Final = "/$servicebus/websocket"
HIGH_WATER: Final = 256 * 1024
LOW_WATER: Final = 64 * 1024
"""Unwritten bytes at which a protocol is paused, and at which it continues, unless it sets others."""
CLOSE_SECONDS: Final = 2.0
"""Seconds in which a closed WebSocket has to write its last bytes."""
_PIECE_BYTES: Final = 256 * 1024
_TEXT, _BINARY = 1, 2
"""Kinds of a message, by RFC 6455."""
_UNSUPPORTED_DATA: Final = 1003


class WebSocket(Protocol):
    """A WebSocket after its handshake, as aiohttp has it."""

    async def receive(self) -> Any:
        """Return the next message: its type, and its data."""

    async def send_bytes(self, data: bytes) -> None:
        """Send a binary message."""

    async def close(self, *, code: int = 1000, message: bytes = b"") -> Any:
        """Close it, with a code and a reason."""


async def _nothing() -> None:
    """Await nothing."""


class WebSocketTransport(asyncio.Transport):
    """A WebSocket as the transport of `protocol`; `run` moves its bytes.

    Args:
        cut: ends the connection below at once, so that `receive` ends or is cancelled; called once.
        errors: those that `receive` and `send_bytes` raise on a broken connection.
        release: awaited before the protocol gets `connection_lost`.
        info: the `get_extra_info` of the connection below.
    """

    def __init__(
        self,
        socket: WebSocket,
        protocol: asyncio.Protocol,
        cut: Callable[[], object],
        *,
        errors: tuple[type[Exception], ...] = (OSError,),
        release: Callable[[], Awaitable[object]] = _nothing,
        info: Callable[[str, Any], Any] = lambda _, default: default,
    ) -> None:
        super().__init__()
        self._socket = socket
        self._protocol = protocol
        self._cut = cut
        self._errors = errors
        self._release = release
        self._info = info
        self._high, self._low = HIGH_WATER, LOW_WATER
        self._pending = bytearray()
        self._wake = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._is_closing = self._is_cut = self._has_paused = False

    async def run(self) -> None:
        """Move bytes both ways until the WebSocket ends; then call `connection_lost` of the protocol."""
        self._protocol.connection_made(self)
        writing = asyncio.create_task(self._write_all(), name="write a WebSocket")
        lost: Exception | None = None
        try:
            await self._read_all()
        except self._errors as error:
            lost = error
        finally:
            self._is_closing = self._is_cut = True
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await self._release()
            self._protocol.connection_lost(lost)

    async def _read_all(self) -> None:
        while True:
            await self._may_read.wait()
            message = await self._socket.receive()
            if message.type == _BINARY:
                self._protocol.data_received(message.data)
                continue
            if message.type == _TEXT:
                await self._socket.close(code=_UNSUPPORTED_DATA, message=b"AMQP comes in binary messages")
            return  # else it was closed by either side, or is broken

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
        except self._errors:
            self.abort()  # the reader ends too

    def _let_protocol_write(self) -> None:
        if self._has_paused and len(self._pending) <= self._low:
            self._has_paused = False
            self._protocol.resume_writing()

    # -- asyncio.Transport --------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_closing:
            return
        self._pending += data
        self._wake.set()
        if not self._has_paused and len(self._pending) > self._high:
            self._has_paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """Write the pending bytes, then close; a peer that does not read is cut after CLOSE_SECONDS."""
        if not self._is_closing:
            self._is_closing = True
            self._wake.set()
            self._may_read.set()
            asyncio.get_running_loop().call_later(CLOSE_SECONDS, self.abort)

    def abort(self) -> None:
        self._is_closing = True
        self._may_read.set()
        if not self._is_cut:
            self._is_cut = True
            self._cut()

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high, self._low = high or HIGH_WATER, low or LOW_WATER

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol


# -- reads in pieces --------------------------------------------------------------------------------------------------


PIECE: Final = 8 * 1024
"""Bytes of a piece: some six messages of 1 KB, or a thousand outcomes: one or two milliseconds of a drain."""

_clients: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, int]] = WeakKeyDictionary()
"""The number of clients that each loop serves."""


def count_clients(change: int) -> None:
    """Count clients of the running loop that come or go."""
    loop = asyncio.get_running_loop()
    _clients[loop] = _clients.get(loop, 0) + change


def serves_clients() -> bool:
    """Return whether the running loop serves clients, so that long work is done in portions."""
    return bool(_clients.get(asyncio.get_running_loop()))


class Pieces:
    """One connection's reads.

    Args:
        handle: gets the pieces in order.
        pause: stops the socket's reads, also twice.
        resume: allows them again.
        size: bytes of a piece.
    """

    __slots__ = ("_handle", "_is_held", "_pause", "_rest", "_resume", "_size")

    def __init__(
        self,
        handle: Callable[[bytes], None],
        *,
        pause: Callable[[], None],
        resume: Callable[[], None],
        size: int = PIECE,
    ) -> None:
        self._handle = handle
        self._pause = pause
        self._resume = resume
        self._size = size
        self._rest = b""
        self._is_held = False

    def hold(self, held: bool) -> None:
        """Stop the socket's reads for another reason than a turn, or allow them again."""
        self._is_held = held
        if held:
            self._pause()
        elif not self._rest:
            self._resume()

    def feed(self, data: bytes) -> None:
        """Handle a read; a long one beside clients in several turns."""
        if self._rest:
            self._rest += data  # a read that was under way when reading was paused
        elif len(data) <= self._size or not serves_clients():
            self._handle(data)
        else:
            self._rest = data
            self._pause()
            self._next()

    def finish(self) -> None:
        """Handle the rest now: the connection has ended, but what it brought counts."""
        rest, self._rest = self._rest, b""
        if rest:
            self._handle(rest)

    def _next(self) -> None:
        rest = self._rest
        if not rest:
            return
        self._rest = rest[self._size :]
        if self._rest:
            asyncio.get_running_loop().call_soon(self._next)
        elif not self._is_held:
            self._resume()
        self._handle(rest[: self._size])
