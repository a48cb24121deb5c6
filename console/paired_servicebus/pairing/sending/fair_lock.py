"""A fair asyncio lock whose uncontended acquire does not await."""

from __future__ import annotations

import asyncio
from collections import deque


class FairLock:
    """A lock that is acquired in the order of the requests."""

    __slots__ = ("taken", "waiting")

    def __init__(self) -> None:
        self.taken = False
        """Whether it is held."""
        self.waiting: deque[asyncio.Future[None]] = deque()
        """The next holders; some may be cancelled."""

    def take(self) -> bool:
        """Acquire it now; return False if it is held."""
        if self.taken:
            return False
        self.taken = True
        return True

    async def wait(self) -> None:
        """Acquire it after the earlier requests."""
        if self.take():
            return
        mine = asyncio.get_running_loop().create_future()
        self.waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self.give_back()  # the turn came together with the cancellation
            raise

    def give_back(self) -> None:
        """Release it to the next holder."""
        while self.waiting:
            first = self.waiting.popleft()
            if not first.done():
                first.set_result(None)
                return
        self.taken = False
