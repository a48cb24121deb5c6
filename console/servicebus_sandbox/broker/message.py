"""Messages of the broker: the few fields that its rules need, and an opaque payload."""

from __future__ import annotations

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
