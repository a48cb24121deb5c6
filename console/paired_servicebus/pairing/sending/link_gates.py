"""The order of callers on one link, and the limit of links that open concurrently, with priority for callers.

Opening one link through the SDK takes half a second and 23 ms of CPU. Hundreds open in the same instant when an outage
begins or ends. The limiter admits them in groups, applications' links before pings and standby links.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final


class FairLock:
    """A lock that is acquired in the order of the requests. An uncontended acquire does not await."""

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


MAX_OPENING: Final = 24
"""Links that open concurrently: about one core's work in the half second that each takes."""
LEASE_SECONDS: Final = 1.0
"""Seconds after which a link that is still opening releases its slot: it waits for an answer, at little cost."""


class OpenLimiter:
    """A priority semaphore of `width` slots, each held for `lease` seconds at most."""

    def __init__(self, width: int = MAX_OPENING, lease: float = LEASE_SECONDS) -> None:
        self._free = width
        self._lease = lease
        self._callers: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def slot(self, *, urgent: bool) -> AsyncIterator[None]:
        """Hold a slot; urgent requests are admitted first."""
        await self._enter(self._callers if urgent else self._others)
        held = _Slot(self)
        timer = asyncio.get_running_loop().call_later(self._lease, held.release)
        try:
            yield
        finally:
            timer.cancel()
            held.release()

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
                self.release()  # admitted in the same step as cancelled
            raise

    def release(self) -> None:
        """Admit the next request."""
        for line in (self._callers, self._others):
            while line:
                turn = line.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self._free += 1


class _Slot:
    """A slot that is released once."""

    __slots__ = ("_gate",)

    def __init__(self, gate: OpenLimiter) -> None:
        self._gate: OpenLimiter | None = gate

    def release(self) -> None:
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.release()
