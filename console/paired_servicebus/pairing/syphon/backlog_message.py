"""A backlog message in a pump's hand, out of its envelope, and the pump's interface for deliveries."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from paired_servicebus.pairing.amqp_client import WireReceiver
from servicebus_amqp.protocol.link_sender import Payload


class BacklogMessage:
    """One message on its way.

    payload: in its destination's form. key: the destination's path, casefolded. number: in the backlog queue.
    was_aside: it was deferred, and received again by its number. receiver, delivery_id: for its settlement while the
    link lives. lock_ends: seconds since 1970. round: the destination's count of failures when it was sent.
    """

    __slots__ = (
        "_token",
        "delivery_id",
        "key",
        "lock_ends",
        "message_id",
        "number",
        "path",
        "payload",
        "pump",
        "receiver",
        "round",
        "size",
        "was_aside",
    )

    def __init__(
        self,
        pump: DeliveryOwner,
        path: str,
        key: str,
        number: int,
        message_id: str,
        payload: Payload,
        token: UUID | bytes,
        lock_ends: float,
        receiver: WireReceiver | None = None,
        delivery_id: int = 0,
    ) -> None:
        self.pump = pump
        self.path = path
        self.key = key
        self.number = number
        self.message_id = message_id
        self.payload = payload
        self.size = len(payload) if isinstance(payload, bytes) else sum(map(len, payload))
        self._token = token
        self.lock_ends = lock_ends
        self.receiver = receiver
        self.delivery_id = delivery_id
        self.was_aside = receiver is None
        self.round = 0

    @property
    def token(self) -> UUID:
        """The lock token, which settles a message without its link; a delivery's tag contains it."""
        return self._token if isinstance(self._token, UUID) else UUID(bytes_le=self._token)

    def relock(self, token: UUID | bytes, lock_ends: float, receiver: WireReceiver | None, delivery_id: int) -> None:
        """Store the lock of another delivery, since the first lock ended."""
        self._token, self.lock_ends = token, lock_ends
        self.receiver, self.delivery_id = receiver, delivery_id


class DeliveryOwner(Protocol):
    """The pump of a message, as deliveries use it. No method waits."""

    def moved(self, messages: list[BacklogMessage]) -> None:
        """Handle messages that their destinations accepted."""

    def doubt(self, message: BacklogMessage) -> None:
        """Handle a message whose outcome is unknown; its return follows."""

    def set_aside(self, message: BacklogMessage) -> None:
        """Defer a message whose destination accepts nothing now."""

    def dead_letter(self, message: BacklogMessage, reason: str) -> None:
        """Dead-letter a message that can never be delivered."""
