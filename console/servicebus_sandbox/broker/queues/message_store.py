"""Messages by sequence number, with their order for peeks and their sums for counts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from servicebus_sandbox.broker.message import StoredMessage


class MessageStore:
    """The messages of one queue. Removal leaves a hole; holes are closed when they are the greater part."""

    __slots__ = ("_messages", "_order", "size_bytes")

    def __init__(self) -> None:
        self._messages: dict[int, StoredMessage] = {}
        self._order: list[int] = []
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def get(self, number: int) -> StoredMessage | None:
        return self._messages.get(number)

    def add(self, stored: StoredMessage) -> None:
        number = stored.sequence_number
        self._messages[number] = stored
        self.size_bytes += stored.message.size
        if not self._order or number > self._order[-1]:
            self._order.append(number)
        else:  # a dead-letter queue takes numbers in the order in which messages fail
            self._order.insert(bisect_left(self._order, number), number)

    def remove(self, stored: StoredMessage) -> None:
        del self._messages[stored.sequence_number]
        self.size_bytes -= stored.message.size
        if len(self._order) > 2 * len(self._messages) + 64:
            self._order = sorted(self._messages)

    def starting_at(self, number: int) -> Iterator[StoredMessage]:
        """Yield messages from this sequence number on, ascending. Do not add or remove any meanwhile."""
        order, messages = self._order, self._messages
        for index in range(bisect_left(order, number), len(order)):
            stored = messages.get(order[index])
            if stored is not None:
                yield stored
