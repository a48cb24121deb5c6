"""The bound of the gateway's memory: bytes of sends under way, over all connections.

Credit counts messages and not bytes, so it cannot bound them. Above the limit, the connections that send are not read.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

MAX_BYTES: Final = 64 * 1024 * 1024


class PausableReader(Protocol):
    """A connection whose reading may pause."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


class BytesInHand:
    """most: bytes from which readers pause; they resume below its half. sends: the number of those in hand."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._most = most
        self._paused: dict[PausableReader, None] = {}
        self._emptied: asyncio.Event | None = None
        self.size = 0
        self.sends = 0

    @property
    def most(self) -> int:
        return self._most

    @property
    def paused(self) -> tuple[PausableReader, ...]:
        """Return the connections that are not read now."""
        return tuple(self._paused)

    def add(self, size: int, reader: PausableReader) -> None:
        """Count a send of `reader`, which pauses if there are too many."""
        self.size += size
        self.sends += 1
        if self.size >= self._most and reader not in self._paused:
            self._paused[reader] = None
            reader.pause()

    def remove(self, size: int) -> None:
        """Count the end of a send; resume the readers if there is room again."""
        self.size -= size
        self.sends -= 1
        if self._paused and 2 * self.size < self._most:
            paused, self._paused = self._paused, {}
            for reader in paused:
                reader.resume()
        if self._emptied is not None and not self.size:
            self._emptied.set()

    async def wait_empty(self) -> None:
        """Return when no send is in hand."""
        while self.size:
            self._emptied = asyncio.Event()
            await self._emptied.wait()

    def forget(self, reader: PausableReader) -> None:
        """Forget a connection that has ended."""
        self._paused.pop(reader, None)
