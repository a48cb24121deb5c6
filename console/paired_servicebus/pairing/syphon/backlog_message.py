"""A backlog message in a pump's hand, out of its envelope, and what a pump is to the courier."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from paired_servicebus.pairing.amqp_client import WireReceiver
from servicebus_amqp.protocol.link_sender import Payload


class BacklogMessage:
    """One message on its way.

    payload: as its destination gets it. key: the destination's path, casefolded. number: in the backlog queue.
    was_aside: it was deferred, and received again by its number. receiver, delivery_id: how it is settled while its
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
        """The lock token, by which it can be settled without its link; a delivery's tag holds it."""
        return self._token if isinstance(self._token, UUID) else UUID(bytes_le=self._token)

    def relocked(self, token: UUID | bytes, lock_ends: float, receiver: WireReceiver | None, delivery_id: int) -> None:
        """It was received once more, since its lock had ended."""
        self._token, self.lock_ends = token, lock_ends
        self.receiver, self.delivery_id = receiver, delivery_id


class DeliveryOwner(Protocol):
    """A pump as the courier knows it. None of these waits."""

    def moved(self, parcels: list[BacklogMessage]) -> None:
        """Their destinations accepted them."""

    def doubt(self, parcel: BacklogMessage) -> None:
        """It was sent, and nobody knows whether it arrived; it is given back next."""

    def set_aside(self, parcel: BacklogMessage) -> None:
        """Its destination takes nothing now."""

    def bury(self, parcel: BacklogMessage, reason: str) -> None:
        """It can never be delivered."""
