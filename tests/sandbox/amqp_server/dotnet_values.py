"""Values as Microsoft's .NET client writes them: composites, outcomes, messages. See `dotnet` for their origin.

All composites are written with all their fields, nulls too (amqp: Framing/DescribedList.cs, EncodeValue).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from servicebus_amqp.encoding.codec import Symbol, decode, described, encode, encode_fields
from servicebus_amqp.encoding.message_sections import Properties


def composite(code: int, *fields: Any) -> bytes:
    """A described list with all its fields; those that are Raw are encoded already."""
    return described(code, encode_fields(len(fields), b"".join(map(_field, fields))))


class Raw(bytes):
    """Encoded already."""


def _field(value: Any) -> bytes:
    return bytes(value) if isinstance(value, Raw) else encode(value)


ACCEPTED = Raw(described(0x24, b"\x45"))
ABANDONED = Raw(composite(0x27, None, None, None))
"""sdk: Amqp/AmqpReceiver.cs, GetModifiedOutcome: delivery-failed is not set."""
DEFERRED = Raw(composite(0x27, None, True, None))


def dead_lettered(reason: str, description: str) -> Raw:
    """sdk: Amqp/AmqpReceiver.cs, GetRejectedOutcome."""
    info = {Symbol("DeadLetterReason"): reason, Symbol("DeadLetterErrorDescription"): description}
    return Raw(composite(0x25, Raw(composite(0x1D, Symbol("com.microsoft:dead-letter"), None, info))))


def message(body: bytes, annotations: dict[Any, Any] | None = None, **fields: Any) -> bytes:
    """sdk: Amqp/AmqpMessageConverter.cs, SBMessageToAmqpMessage: properties are there though all of them be null."""
    first = described(0x72, encode(annotations)) if annotations else b""
    return first + composite(0x73, *[fields.get(name) for name in Properties._fields]) + described(0x75, encode(body))


def batch(messages: Iterable[bytes]) -> bytes:
    """sdk: Amqp/AmqpMessageConverter.cs, BuildAmqpBatchFromMessages."""
    return b"".join(described(0x75, encode(one)) for one in messages)


def source_of(address: str | None, filters: dict[Any, Any] | None = None) -> Raw:
    return Raw(composite(0x28, address, None, None, None, None, None, None, filters, None, None, None))


def target_of(address: str) -> Raw:
    return Raw(composite(0x29, address, None, None, None, None, None, None))


def sections_of(payload: bytes) -> dict[int, Any]:
    """A message's sections by their codes."""
    found, at = {}, 0
    while at < len(payload):
        section, at = decode(payload, at)
        found[int(section.descriptor)] = section.value
    return found


def lock_token(tag: bytes) -> UUID:
    """sdk: Amqp/AmqpMessageConverter.cs, AmqpMessageToSBMessage: the delivery tag is the lock token."""
    return UUID(bytes_le=tag)
