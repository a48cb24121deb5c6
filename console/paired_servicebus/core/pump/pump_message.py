"""A backlog message as a pump's rules see it; an adapter's subclass adds its bytes and its lock."""

from __future__ import annotations

from paired_servicebus.core.pump.deferred_messages import DeferredMessages


class PumpMessage:
    """One message out of its envelope.

    number: in the backlog queue, or a negative placeholder. message_id: as text; "" without one. path: its destination;
    "" if it is unreadable. key: the path, casefolded. size: bytes. lock_ends, sent_at: seconds since 1970; sent_at is
    the start of the latest try. is_recalled: it is deferred in its queue, and was received by its number.
    deferred_as: the deferred messages of its destination, while it counts as one of them in hand.
    """

    __slots__ = ("deferred_as", "is_recalled", "key", "lock_ends", "message_id", "number", "path", "sent_at", "size")

    def __init__(
        self,
        path: str,
        key: str,
        number: int,
        message_id: str,
        size: int,
        lock_ends: float,
        *,
        is_recalled: bool = False,
    ) -> None:
        self.path = path
        self.key = key
        self.number = number
        self.message_id = message_id
        self.size = size
        self.lock_ends = lock_ends
        self.is_recalled = is_recalled
        self.deferred_as: DeferredMessages | None = None
        self.sent_at = 0.0
