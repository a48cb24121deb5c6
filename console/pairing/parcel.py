"""A backlog message in a pump's hand, out of its envelope, and what a pump is to the courier."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from console.pairing.wire import WireReceiver


class Parcel:
    """One message on its way.

    payload: as its destination gets it. key: the destination's path, casefolded. number: in the backlog queue.
    was_aside: it was deferred, and received again by its number.
    receiver, delivery_id: how it is settled while its link lives; token: how it is settled otherwise.
    lock_ends: seconds since 1970. round: the destination's count of failures when it was sent.
    """

    __slots__ = (
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
        "sent_at",
        "size",
        "token",
        "was_aside",
    )

    def __init__(
        self,
        pump: Shipper,
        path: str,
        key: str,
        number: int,
        message_id: str,
        payload: bytes,
        token: UUID,
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
        self.size = len(payload)
        self.token = token
        self.lock_ends = lock_ends
        self.receiver = receiver
        self.delivery_id = delivery_id
        self.was_aside = receiver is None
        self.round = 0
        self.sent_at = 0.0


class Shipper(Protocol):
    """A pump as the courier knows it. None of these waits."""

    def moved(self, parcels: list[Parcel]) -> None:
        """Their destinations accepted them."""

    def set_aside(self, parcel: Parcel) -> None:
        """Its destination takes nothing now."""

    def bury(self, parcel: Parcel, reason: str) -> None:
        """It can never be delivered."""
