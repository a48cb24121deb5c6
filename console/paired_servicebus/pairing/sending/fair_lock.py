"""A fair asyncio lock whose uncontended acquire does not await."""

from __future__ import annotations

import asyncio
from collections import deque


class FairLock:
    """A lock that is acquired in the order of the requests."""

    __slots__ = ("held", "waiting")

    def __init__(self) -> None:
        self.held = False
        self.waiting: deque[asyncio.Future[None]] = deque()
        """The next holders; some may be cancelled."""

    def acquire_nowait(self) -> bool:
        """Acquire it now; return False if it is held."""
        if self.held:
            return False
        self.held = True
        return True

    async def acquire(self) -> None:
        """Acquire it after the earlier requests."""
        if self.acquire_nowait():
            return
        mine = asyncio.get_running_loop().create_future()
        self.waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self.release()  # acquired in the same step as cancelled
            raise

    def release(self) -> None:
        """Release it to the next holder."""
        while self.waiting:
            first = self.waiting.popleft()
            if not first.done():
                first.set_result(None)
                return
        self.held = False
