"""A backlog message in the AMQP pump's hand: its bytes, and the lock that settles it."""

from __future__ import annotations

from typing import Final, Protocol
from uuid import UUID

from paired_servicebus.core.pump.pump_events import PumpEvent, PumpMessage
from paired_servicebus.pairing.amqp_client import WireReceiver
from paired_servicebus.pairing.runtime import tracing
from servicebus_amqp.encoding.codec import decode
from servicebus_amqp.encoding.message_sections import find_in_map, split
from servicebus_amqp.protocol.link_sender import Payload
from servicebus_amqp.protocol_errors import DecodeError

USUAL_LOCK_SECONDS: Final = 60.0
"""Seconds of a lock, used if the namespace's clock and ours differ too much."""
_CONTEXT_NAMES: Final = frozenset(name.encode() for name in tracing.CONTEXT_NAMES)


def lock_ends(until_ms: float, now: float) -> float:
    """Return a lock's end in seconds since 1970. until_ms: by the namespace's clock, in milliseconds."""
    left = until_ms / 1000 - now
    return now + (left if 0 < left <= 5 * USUAL_LOCK_SECONDS else USUAL_LOCK_SECONDS)


def context_in(payload: Payload) -> tracing.Headers:
    """Return the trace context that an encoded message carries; empty without a readable one."""
    try:
        section = split(payload if isinstance(payload, bytes) else b"".join(payload)).application_properties
        if section is None:
            return {}
        return tracing.context_of({name: decode(section, at)[0] for name, at in find_in_map(section, _CONTEXT_NAMES)})
    except DecodeError:  # a stranger's property
        return {}


class BacklogMessage(PumpMessage):
    """One message on its way.

    payload: in its destination's form. receiver, delivery_id: for its settlement while the link lives; without a
    receiver it was received by its number.
    """

    __slots__ = ("_token", "delivery_id", "payload", "pump", "receiver")

    def __init__(
        self,
        pump: DeliveryOwner,
        path: str,
        number: int,
        message_id: str,
        payload: Payload,
        token: UUID | bytes,
        locked_until_ms: int,
        at: float,
        receiver: WireReceiver | None = None,
        delivery_id: int = 0,
    ) -> None:
        # As PumpMessage's own, without the call: each message makes one.
        self.path = path
        self.key = path.casefold()
        self.number = number
        self.message_id = message_id
        self.size = len(payload) if isinstance(payload, bytes) else sum(map(len, payload))
        self.lock_ends = lock_ends(locked_until_ms, at)
        self.is_recalled = receiver is None
        self.deferred_as = None
        self.sent_at = 0.0
        self.pump = pump
        self.payload = payload
        self._token = token
        self.receiver = receiver
        self.delivery_id = delivery_id

    @property
    def token(self) -> UUID:
        """The lock token, which settles a message without its link; a delivery's tag contains it."""
        return self._token if isinstance(self._token, UUID) else UUID(bytes_le=self._token)

    def relock(self, again: BacklogMessage) -> None:
        """Use the lock of another delivery of this message."""
        self._token, self.receiver, self.delivery_id = again._token, again.receiver, again.delivery_id


class DeliveryOwner(Protocol):
    """The pump of a message, as deliveries use it."""

    def apply(self, event: PumpEvent[BacklogMessage]) -> None:
        """Step the pump's machine and perform its effects, without waiting."""
