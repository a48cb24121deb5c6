"""A message as the broker sees it: the few fields its rules read, and a payload it never opens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

PING_CONTENT_TYPE = "application/vnd.ms-servicebus-ping"
"""Senders probe an entity with messages of this content type. See `settings.Pings`."""

MessageId = str | int | bytes | object | None
"""Ids are compared, never read; AMQP allows string, ulong, uuid and binary."""


class MessageState(IntEnum):
    """Where a message stands; the numbers are those clients read in `x-opt-message-state`."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Travel:
    """What a message that was forwarded brings along: how often, its number where it entered first, what was added.

    `dead_letter_source` is the path of the entity it failed in, if it comes from a dead-letter queue.
    """

    hops: int = 0
    first_number: int | None = None
    dead_letter_source: str | None = None
    added: dict[str, object] | None = None


@dataclass(slots=True)
class Message:
    """A message as it was sent. Nobody changes one: a topic's subscriptions share it.

    Not frozen only because tens of thousands are made in a second and a frozen class is made three times slower.
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
    """A message inside one message queue. Times are epoch seconds.

    `delivery_count` is the number of deliveries that failed before. `lock_token` is 16 bytes, the little-endian form
    of the UUID clients see. `added` holds application properties the broker or a receiver put on top of the payload:
    dead-letter reason and description, and what abandon, defer and dead-letter may carry.
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
