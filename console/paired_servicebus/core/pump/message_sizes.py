"""The bytes of a pump's messages: how many more messages its queue may send, and how many one request receives."""

from __future__ import annotations

from typing import Final

FIRST_SIZE: Final = 256 * 1024
"""Assumed bytes of a message before the first."""
LEAST_SIZE: Final = 1024.0
"""Bytes of a message that are foreseen at least."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of messages in hand and in flight from the queue, by their foreseen size."""
CREDIT: Final = 2500
"""Messages in flight from the queue, at most."""
PORTION: Final = 250
"""Messages received again by one request, at most."""
PORTION_BYTES: Final = 256 * 1024


class MessageSizes:
    """The sizes that a pump has seen. in_hand: bytes of messages received and not settled."""

    def __init__(self) -> None:
        self.in_hand = 0
        self._largest = float(FIRST_SIZE)
        """Bytes of the largest recent message."""
        self._largest_recalled = 0
        """Bytes of the largest message that arrived since a request for deferred ones began."""

    def add(self, size: int) -> None:
        """Count a message that is now in hand."""
        self.in_hand += size
        if size > self._largest:
            self._largest = float(size)

    def add_recalled(self, size: int) -> None:
        """Note the size of a deferred message that was received again."""
        self._largest_recalled = max(self._largest_recalled, size)

    def recall_ended(self) -> None:
        """Foresee smaller messages after smaller ones came, so that the next request is for more."""
        if self._largest_recalled:
            self._largest = max(LEAST_SIZE, self._largest_recalled, self._largest / 2)
            self._largest_recalled = 0

    def credit(self, granted: int, *, room: int) -> int | None:
        """Return the number of messages that the queue may send next; None: as granted before."""
        wanted = max(0, min(CREDIT, room, int((MAX_BYTES - self.in_hand) / self._largest)))
        if wanted >= granted:
            if wanted <= 2 * granted:
                return None
            self._largest = max(LEAST_SIZE, self._largest / 2)  # the next portion shows their present size
        return wanted

    def portion(self) -> int:
        """Return how many deferred messages one request may receive."""
        return min(PORTION, max(1, int(PORTION_BYTES / self._largest)))
