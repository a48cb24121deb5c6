"""One accepted socket of the gateway: which protocol it speaks, its pauses, its timers and its end.

A client that does not read is not read, and is reset when the connection ends: it can hold nothing here for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from paired_servicebus.engine.gateway.admission import Admission
from paired_servicebus.engine.gateway.operator_lines import OperatorLines
from paired_servicebus.engine.gateway.wrong_protocols import FIRST_BYTES, WrongProtocol, wrong_protocol
from paired_servicebus.pairing.amqp_client.piecewise import Pieces, count_clients

OPENING_SECONDS: Final = 60.0
"""The limit for headers, open and the first good token."""
CLOSING_SECONDS: Final = 5.0
"""The time for a client to read the last bytes."""
PIECE: Final = 32 * 1024
"""Bytes of a client that are handled before others have their turn: some 25 messages of 1 KB, a millisecond."""
_NOT_READING: Final = "the client does not read"
_BYTES_IN_HAND: Final = "bytes in hand"
_IN_TURN: Final = "others have their turn"


class Door(Protocol):
    """The gateway, as its sockets use it."""

    admission: Admission
    lines: OperatorLines

    @property
    def open_sockets(self) -> int: ...


class ClientSocket(asyncio.Protocol):
    """The socket below one client's connection. `receive` gets AMQP's bytes, `unwritten` returns the answers."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._first: bytes | None = b""  # the client's first bytes, until they tell its protocol
        self._is_deaf = False
        self._pauses: set[str] = set()
        self._pieces = Pieces(
            self._read, pause=lambda: self.pause(_IN_TURN), resume=lambda: self.resume(_IN_TURN), size=PIECE
        )
        self._will_write = False

    # -- the connection's part ------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Handle bytes of a client that speaks AMQP."""
        raise NotImplementedError

    def unwritten(self) -> bytes:
        """Return all bytes to write; they count as written."""
        raise NotImplementedError

    def on_made(self) -> None:
        """Handle the begin of an admitted connection."""

    def on_turned_away(self, wrong: WrongProtocol) -> None:
        """Handle a client that speaks another protocol; it gets its answer."""

    def on_failure(self, error: Exception) -> None:
        """Handle an error of `receive`, which ends the connection."""

    def on_lost(self) -> None:
        """Handle the end of the connection."""

    # -- transport ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        count_clients(1)
        descriptor = transport.get_extra_info("socket").fileno()
        if not self._door.admission.enter(self, self._door.open_sockets, descriptor):
            self.abort()
            return
        self.on_made()
        self._call_later("opening", OPENING_SECONDS, self.abort)

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        if self._first is not None:
            data = self._recognize(self._first + data)
            if not data:
                return
        self._pieces.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pieces.finish()
        self._transport = None
        count_clients(-1)
        self._door.admission.leave(self)
        self.on_lost()
        for timer in self._timers.values():
            timer.cancel()

    def pause_writing(self) -> None:
        self.pause(_NOT_READING)

    def resume_writing(self) -> None:
        self.resume(_NOT_READING)

    def is_full(self) -> bool:
        """Return whether the client leaves too many bytes unread."""
        return _NOT_READING in self._pauses

    def pause(self, reason: str = _BYTES_IN_HAND) -> None:
        """Read nothing until each reason is over."""
        self._pauses.add(reason)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self, reason: str = _BYTES_IN_HAND) -> None:
        self._pauses.discard(reason)
        if not self._pauses and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def abort(self) -> None:
        """Reset the connection."""
        if self._transport is not None:
            self._transport.abort()

    def touch(self) -> None:
        """Schedule a write."""
        if not self._will_write:
            self._will_write = True
            asyncio.get_running_loop().call_soon(self.write)

    def warn(self, kind: str, text: str) -> None:
        """Log a line for the operator, at most one of its kind a minute."""
        self._door.lines.warn(kind, text)

    def prove(self) -> None:
        """Leave the lobby: the client has shown a good token."""
        self._door.admission.leave(self)
        opening = self._timers.pop("opening", None)
        if opening is not None:
            opening.cancel()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _read(self, data: bytes) -> None:
        if self._is_deaf:
            return
        try:
            self.receive(data)
        except Exception as error:  # noqa: BLE001 - any error ends this connection alone
            self.on_failure(error)
            self.abort()

    def write(self) -> None:
        """Write what is ready."""
        self._will_write = False
        if self._transport is not None and not self._transport.is_closing():
            data = self.unwritten()
            if data:
                self._transport.write(data)

    def _end(self) -> None:
        """Write the last output, then close the socket."""
        self.write()
        self._is_deaf = True
        if self._transport is not None:
            self._transport.close()
            self._call_later("closing", CLOSING_SECONDS, self.abort)

    def _recognize(self, first: bytes) -> bytes:
        """Return the first bytes of a client that speaks AMQP; b"" while they are too few, or another protocol's."""
        self._first = first
        wrong = wrong_protocol(first)
        if wrong is not None:
            self._turn_away(wrong)
            return b""
        if len(first) < FIRST_BYTES:
            return b""
        self._first = None
        return first

    def _turn_away(self, wrong: WrongProtocol) -> None:
        """Answer, and read on unheard: a reset for unread bytes would destroy the answer on its way."""
        self._is_deaf = True
        self.warn(f"turned a client away, {wrong.name}", wrong.remark)
        self.on_turned_away(wrong)
        if self._transport is not None:
            self._transport.write(wrong.answer)
            self._transport.write_eof()
            self._call_later("closing", CLOSING_SECONDS, self.abort)

    def _call_later(self, name: str, delay: float, act: Callable[[], None]) -> None:
        previous = self._timers.pop(name, None)
        if previous is not None:
            previous.cancel()
        self._timers[name] = asyncio.get_running_loop().call_later(delay, act)
