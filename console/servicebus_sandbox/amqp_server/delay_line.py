"""Delayed calls that keep their order; injected latency uses them. Times are the event loop's."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

Act = Callable[[], None]


class DelayLine:
    """A first-in, first-out queue of calls with one timer; `afterwards` runs after each batch of calls."""

    __slots__ = ("_acts", "_afterwards", "_timer")

    def __init__(self, afterwards: Act) -> None:
        self._acts: deque[tuple[float, Act]] = deque()
        self._afterwards = afterwards
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._acts)

    def put(self, act: Act, delay: float) -> None:
        """Call `act` in `delay` seconds, but not before the calls that were put earlier."""
        due = asyncio.get_running_loop().time() + delay
        if self._acts:
            due = max(due, self._acts[-1][0])
        self._acts.append((due, act))
        self._set_timer()

    def hurry(self) -> None:
        """Make all calls now."""
        while self._acts:
            self._acts.popleft()[1]()

    def clear(self) -> None:
        """Cancel all calls."""
        self._acts.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        if self._timer is None and self._acts:
            self._timer = asyncio.get_running_loop().call_at(self._acts[0][0], self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._acts and self._acts[0][0] <= now:
            self._acts.popleft()[1]()
        self._afterwards()
        self._set_timer()
