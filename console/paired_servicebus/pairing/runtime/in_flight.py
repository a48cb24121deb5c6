"""How many calls of senders are under way, so that a pairing that ends can wait for them."""

from __future__ import annotations

import asyncio


class InFlight:
    """Counts the calls that are inside of it; one for all, since each send passes it. `empty` is set when the last has
    ended after `closing`."""

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
        """A call has ended."""
        self.count -= 1
        if self.closing and not self.count:
            self.empty.set()

    def close(self) -> None:
        """No call comes any more."""
        self.closing = True
        if not self.count:
            self.empty.set()
