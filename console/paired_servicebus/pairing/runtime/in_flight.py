"""The count of senders' calls under way, which a pairing awaits at its end."""

from __future__ import annotations

import asyncio


class InFlight:
    """The counter of all calls under way. `empty` is set when the last has ended after `close`."""

    __slots__ = ("closing", "count", "empty")

    def __init__(self) -> None:
        self.count = 0
        self.closing = False
        self.empty = asyncio.Event()

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Count the end of a call."""
        self.count -= 1
        if self.closing and not self.count:
            self.empty.set()

    def close(self) -> None:
        """Expect no further calls."""
        self.closing = True
        if not self.count:
            self.empty.set()
