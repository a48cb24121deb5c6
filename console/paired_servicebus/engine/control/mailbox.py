"""A bounded buffer between a publisher and a possibly slow subscriber.

Only the newest state is kept; it replaces an untaken one. The newest `capacity` events are kept; older ones are
counted, and the subscriber receives the count before the next event. Publishing never waits, so a stalled subscriber
costs bounded memory and no time. The state precedes the events that led to it, so a slow subscriber sees the current
state first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

from paired_servicebus.engine.control.protocol import Skipped

State = TypeVar("State")
Event = TypeVar("Event")


class Mailbox(Generic[State, Event]):
    """One listener's buffer, for one event loop."""

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._state: State | None = None
        self._events: deque[Event | Skipped] = deque()
        self._skipped = 0
        self._closed = False
        self._filled = asyncio.Event()

    def put_state(self, state: State) -> None:
        """Put the newest state; an untaken one is dropped."""
        self._state = state
        self._filled.set()

    def put_event(self, event: Event | Skipped) -> None:
        """Put an event, or a number of missing ones; the oldest gives way if there is no room."""
        if len(self._events) >= self._capacity:
            oldest = self._events.popleft()
            self._skipped += oldest.count if isinstance(oldest, Skipped) else 1
        self._events.append(event)
        self._filled.set()

    def close(self) -> None:
        """Accept no more items; buffered ones can still be taken."""
        self._closed = True
        self._filled.set()

    async def take(self) -> State | Event | Skipped | None:
        """Return the next item, waiting if there is none; None when closed and empty."""
        while True:
            item = self._next()
            if item is not None or self._closed:
                return item
            self._filled.clear()
            await self._filled.wait()

    def _next(self) -> State | Event | Skipped | None:
        if self._state is not None:
            state, self._state = self._state, None
            return state
        if self._skipped:
            count, self._skipped = self._skipped, 0
            return Skipped(count)
        return self._events.popleft() if self._events else None
