"""Messages of the broker: the few fields that its rules need, and an opaque payload."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

PING_CONTENT_TYPE = "application/vnd.ms-servicebus-ping"
"""The content type of messages with which senders probe an entity; see `entity_settings.Pings`."""

MessageId = str | int | bytes | object | None
"""Ids are only compared; AMQP allows string, ulong, uuid and binary."""


class MessageState(IntEnum):
    """The state of a message, by its number in `x-opt-message-state`."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Travel:
    """The history of a forwarded message: hops, first sequence number, added properties.

    `dead_letter_source` is the path of the entity where it failed, if it comes from a dead-letter queue.
    """

    hops: int = 0
    first_number: int | None = None
    dead_letter_source: str | None = None
    added: dict[str, object] | None = None


@dataclass(slots=True)
class Message:
    """A message as it was sent. Immutable by convention, because a topic's subscriptions share it.

    It is not frozen because that makes construction three times slower, and tens of thousands are made each second.
    `size` is in bytes as encoded by the sender, `ttl` in seconds, `scheduled_at` in epoch seconds.
    """

    payload: object
    size: int
    message_id: MessageId = None
    session_id: str | None = None
    partition_key: str | None = None
    content_type: str | None = None
    ttl: float | None = None
    scheduled_at: float | None = None
    travel: Travel | None = None


@dataclass(slots=True, eq=False)
class StoredMessage:
    """A message in one message queue. Times are epoch seconds.

    `delivery_count` counts the failed deliveries. `lock_token` is 16 bytes, the little-endian form of the UUID that
    clients get. `added` holds application properties from the broker or a receiver: dead-letter reason and description,
    and those of abandon, defer and dead-letter.
    """

    message: Message
    sequence_number: int
    enqueued_at: float
    expires_at: float | None = None
    state: MessageState = MessageState.ACTIVE
    delivery_count: int = 0
    enqueued_sequence_number: int | None = None
    lock_token: bytes | None = None
    locked_until: float = 0.0
    added: dict[str, object] | None = None
    dead_letter_source: str | None = None

    def add_properties(self, properties: dict[str, object] | None) -> None:
        if properties:
            self.added = {**(self.added or {}), **properties}


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
