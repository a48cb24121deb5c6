"""Duplicate detection by message id within a window of time."""

from __future__ import annotations

from collections import deque
from uuid import UUID

from servicebus_sandbox.broker.message import MessageId


class DuplicateWindow:
    """The ids of the last `seconds`, counted from the first use; a repetition does not extend it."""

    __slots__ = ("_arrivals", "_known", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._known: set[MessageId] = set()
        self._arrivals: deque[tuple[float, MessageId]] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def is_new(self, message_id: MessageId, now: float) -> bool:
        """Remember an id and return whether it is new in the window. A message without id is always new."""
        self._forget(now - self.seconds)
        if message_id is None:
            return True
        if isinstance(message_id, UUID):
            message_id = ("uuid", message_id.bytes)  # a sender can choose a UUID's hash, but not that of its bytes
        if message_id in self._known:
            return False
        self._known.add(message_id)
        self._arrivals.append((now, message_id))
        return True

    def _forget(self, until: float) -> None:
        while self._arrivals and self._arrivals[0][0] <= until:
            self._known.discard(self._arrivals.popleft()[1])
