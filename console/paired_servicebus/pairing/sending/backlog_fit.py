"""Messages that would not survive a failover (SPEC.md section 7.4).

The primary accepts them, but with the envelope's four properties they are too large for a backlog queue.

This runs on every healthy send, so it is cheap. A batch's size is known; a message's is estimated from its body and
properties. Only messages near the limit are encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from azure.servicebus import ServiceBusMessageBatch

from paired_servicebus.pairing.sending.encoded_messages import exceeds
from paired_servicebus.pairing.sending.sdk_messages import Sendable, body_bytes, encoded, raw_of
from paired_servicebus.pairing.sending.sender_link import STANDARD_LIMIT

NEAR_LIMIT: Final = 0.9
"""The share of the limit from which a message is encoded for its exact size."""
_SAFE: Final = int(NEAR_LIMIT * STANDARD_LIMIT)
"""Bytes that every tier accepts."""
SMALL_BODY_BYTES: Final = 64 * 1024
"""Bytes of a body that is far from any limit."""
_FRAME: Final = 1024
"""Usual maximum of the bytes of header, properties and annotations."""
_SCALAR: Final = 16
_NAME: Final = 7
"""Maximum of the bytes that encoding adds to a name or text."""
_TEXTS: Final = (str, bytes)


def too_large(
    messages: Sequence[Sendable],
    batch: ServiceBusMessageBatch | None,
    path: str,
    limit: Callable[[], int],
    *,
    bodies: int | None = None,
) -> int:
    """Return the number of messages that would not fit into a backlog queue.

    Args:
        batch: the batch of these messages; None: they were sent singly.
        path: their entity's, for the envelope.
        limit: returns the bytes of the largest message that the backlog accepts; called for large messages only.
        bodies: bytes of their bodies (`body_bytes`); None: not counted yet.
    """
    if batch is not None and batch.size_in_bytes <= _SAFE:
        return 0
    if len(messages) == 1 and 0 < (body_bytes(messages[0]) if bodies is None else bodies) <= SMALL_BODY_BYTES:
        return 0  # an entity that accepted it limits its properties to 64 KB in total
    return sum(1 for message in messages if rough_size(message) > _SAFE and _exceeds(message, path, limit()))


def _exceeds(message: Sendable, path: str, limit: int) -> bool:
    rough = rough_size(message)
    if rough <= NEAR_LIMIT * limit:
        return False
    return rough - _FRAME > limit or exceeds(encoded(message), path, limit)


def rough_size(message: Sendable) -> int:
    """Estimate a message's bytes, within some percent for large ones."""
    raw = raw_of(message)
    size = _FRAME
    body: Any = raw.body
    if raw.body_type.value == "data":
        for part in body:
            size += len(part)
    else:
        size += _rough(body if raw.body_type.value == "value" else list(body))
    properties = raw.application_properties
    if properties:
        size += sum(map(len, properties)) + 2 * _NAME * len(properties)
        for value in properties.values():
            size += len(value) if value.__class__ in _TEXTS else _rough(value)
    return size


def _rough(value: Any) -> int:
    if isinstance(value, bytes | str):
        return len(value) + _NAME
    if isinstance(value, dict):
        return sum(_rough(key) + _rough(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return sum(map(_rough, value))
    return _SCALAR
