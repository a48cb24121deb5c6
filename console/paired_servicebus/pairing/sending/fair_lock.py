"""Whose turn it is with what only one may use at a time: in the order they asked, at once where nobody has it.

`asyncio.Lock` with what it lacks: taking it without an await, which a healthy send has no time for.
"""

from __future__ import annotations

import asyncio
from collections import deque


class FairLock:
    """Taken by one after the other; who takes it gives it back."""

    __slots__ = ("taken", "waiting")

    def __init__(self) -> None:
        self.taken = False
        """Whether somebody has it."""
        self.waiting: deque[asyncio.Future[None]] = deque()
        """Who wants it next; some may have left."""

    def take(self) -> bool:
        """Have it now; False where somebody else has it."""
        if self.taken:
            return False
        self.taken = True
        return True

    async def wait(self) -> None:
        """Have it as soon as those before have given it back."""
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
        """Let the next one have it."""
        while self.waiting:
            first = self.waiting.popleft()
            if not first.done():
                first.set_result(None)
                return
        self.taken = False
