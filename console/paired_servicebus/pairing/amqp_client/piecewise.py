"""A long read handled in pieces, one for each turn of the event loop.

A socket hands over up to 256 KB together, hundreds of messages, whose handling takes many milliseconds. In a loop that
serves clients, a drain or a flood must not delay the others' sends: they get their turn between two pieces. Pieces cost
a tenth to a third more CPU for a message, so other loops handle a read together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

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
