"""The gate that links open through: so many at once, callers first.

Opening one link through the SDK takes half a second and 23 ms of CPU. When an outage ends, or begins, hundreds want to
open in the same instant; through the gate they come one group after the other, and what an application waits for goes
before pings and links that only stand by.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

WIDTH: Final = 24
"""Links that open at once: about what one core can do in the half second each takes."""
LEASE: Final = 1.0
"""Seconds after which a link that still opens makes way for others: it waits for an answer and costs little."""


class OpenLimiter:
    """Lets `width` through at a time, each for `lease` seconds at most."""

    def __init__(self, width: int = WIDTH, lease: float = LEASE) -> None:
        self._free = width
        self._lease = lease
        self._callers: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def passage(self, *, urgent: bool) -> AsyncIterator[None]:
        """Wait for one's turn; those who are urgent go first."""
        await self._enter(self._callers if urgent else self._others)
        slot = _Slot(self)
        timer = asyncio.get_running_loop().call_later(self._lease, slot.give_back)
        try:
            yield
        finally:
            timer.cancel()
            slot.give_back()

    async def _enter(self, line: deque[asyncio.Future[None]]) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # the turn came together with the cancellation
            raise

    def leave(self) -> None:
        """Let the next one in."""
        for line in (self._callers, self._others):
            while line:
                turn = line.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self._free += 1


class _Slot:
    """A place in the gate, given back once."""

    __slots__ = ("_gate",)

    def __init__(self, gate: OpenLimiter) -> None:
        self._gate: OpenLimiter | None = gate

    def give_back(self) -> None:
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.leave()
