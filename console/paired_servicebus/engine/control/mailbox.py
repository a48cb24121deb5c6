"""A bounded buffer between one who tells and one who may be slow to listen.

Of states only the newest is worth anything: it replaces an untaken one. Of events the newest `capacity` are kept; the
older ones are counted, and the listener is told how many before it gets the next. Telling never waits, so a listener
that stalls costs a bounded amount of memory and no time. The state is taken before the events that led to it: a slow
listener has the truth first.
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
        """The newest state; an untaken one is forgotten."""
        self._state = state
        self._filled.set()

    def put_event(self, event: Event | Skipped) -> None:
        """One more event, or a number of missing ones; the oldest gives way when there is no room."""
        if len(self._events) >= self._capacity:
            oldest = self._events.popleft()
            self._skipped += oldest.count if isinstance(oldest, Skipped) else 1
        self._events.append(event)
        self._filled.set()

    def close(self) -> None:
        """Nothing more will be put in; what is there can still be taken."""
        self._closed = True
        self._filled.set()

    async def take(self) -> State | Event | Skipped | None:
        """The next thing, waiting for one if there is none; None when closed and empty."""
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
