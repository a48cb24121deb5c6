"""SDK messages as values: as callers send them, and as they leave the backlog. envelope_codec.py parks them.

A caller's object is never changed; copies share bodies. A received SDK message has bytes for the wire's strings; they
become strings again, so that ids compare equal. Types of properties that the SDK loses on re-sending (SPEC.md section
7.2, "what the SDK can carry") are lost here too.

At the end are batches with a single encoding, and the count of messages that would not survive a failover (SPEC.md
section 7.4): the primary accepts them, but with the envelope's four properties they are too large for a backlog queue.
That runs on every healthy send, so only messages with large bodies are encoded for it.
"""

from __future__ import annotations

import sys
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar, cast

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from paired_servicebus.core.model import envelope
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.envelope_codec import EncodedMessage, exceeds, read_message
from paired_servicebus.pairing.runtime import tracing

SCHEDULED_ANNOTATION: Final = envelope.SCHEDULED_ANNOTATION.encode()
BROKERS: Final = frozenset(name.encode() for name in envelope.BROKERS)
"""As keys of annotations in the SDK."""
_DEAD: Final = ("DeadLetterReason", "DeadLetterErrorDescription")
_PARTITION_KEYS: Final = (b"x-opt-partition-key", "x-opt-partition-key", b"x-opt-via-partition-key")
_MAX_TTL: Final = timedelta(milliseconds=2**32 - 1)
_TEXTS: Final = ("message_id", "correlation_id", "to", "subject", "reply_to", "group_id", "reply_to_group_id")

STANDARD_LIMIT: Final = 256 * 1024
_SAFE_BYTES: Final = 9 * STANDARD_LIMIT // 10
"""Bytes of a batch whose messages every tier accepts in an envelope."""
SMALL_BODY_BYTES: Final = 64 * 1024
"""Bytes of a body that is far from any limit."""

T = TypeVar("T")
Sendable = ServiceBusMessage | AmqpAnnotatedMessage
OneMessage = Sendable | Mapping[str, Any]
Messages = OneMessage | Iterable[OneMessage] | ServiceBusMessageBatch
"""The argument of `send_messages`, as of the SDK's sender."""
Carried = Sendable | EncodedMessage
"""A message that a link to the backlog may carry."""
_MESSAGES: Final = (ServiceBusMessage, AmqpAnnotatedMessage)
_DATA: Final = AmqpMessageBodyType.DATA
_given_ids: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def outgoing(message: object) -> list[Sendable]:
    """Return the messages of a `send_messages` call as they are now: the caller may change its objects later.

    Each has a message_id, which is the same on each try of one object. Those of a batch were copied when they were
    added.

    Raises:
        ReservedPropertyError: a message has a property of the envelope.
        TypeError: a value is not a message.
    """
    if isinstance(message, _MESSAGES):
        return [_copied(message)]
    if isinstance(message, ServiceBusMessageBatch):
        return [_ensure_id(single) for single in sdk_internals.batch_messages(message)]
    if isinstance(message, Iterable) and not isinstance(message, Mapping | str | bytes):
        return [_copied(single) for single in message]
    return [_copied(message)]


def has_own_id(message: object) -> bool:
    """Return whether it is one message with a message_id, which a sender may hand to the SDK as it is.

    Raises:
        ReservedPropertyError: it has a property of the envelope.
    """
    if not isinstance(message, _MESSAGES):
        return False
    raw = message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message
    names, properties = raw.application_properties, raw.properties
    if names and not envelope.unreserved(names):
        envelope.refuse_reserved(names)
    return properties is not None and bool(properties.message_id)


def forget(message: object) -> None:
    """Forget the ids of messages that a namespace has accepted: sent again, they are new messages.

    A destination with duplicate detection would drop a new message with an old id.
    """
    if not _given_ids:
        return
    if isinstance(message, ServiceBusMessageBatch):
        message = sdk_internals.batch_messages(message)
    for single in message if isinstance(message, Sequence) else (message,):
        if isinstance(single, _MESSAGES):
            _given_ids.pop(single, None)


def _copied(message: object) -> Sendable:
    if isinstance(message, Mapping):
        message = ServiceBusMessage(**message)
    if not isinstance(message, _MESSAGES):
        raise TypeError(f"a message is a ServiceBusMessage or an AmqpAnnotatedMessage, not {type(message).__name__}")
    found = _ensure_id(message)
    if found is not message:
        return found
    copied = copy(raw_of(message))
    return copied if isinstance(message, AmqpAnnotatedMessage) else sdk_internals.message_of(copied)


def _ensure_id(message: Sendable) -> Sendable:
    if has_own_id(message):
        return message
    raw = raw_of(message)
    if raw.properties is not None and raw.properties.message_id is not None:
        return message
    given = _given_ids.get(message)
    if given is None:
        given = _given_ids[message] = str(uuid.uuid4())
    copied = copy(raw)
    cast(AmqpMessageProperties, copied.properties).message_id = given
    return copied


def raw_of(message: Sendable) -> AmqpAnnotatedMessage:
    """Return the annotated message inside of either kind."""
    return message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message


def body_bytes(message: Sendable) -> int:
    """Return the bytes of a data body; 0 for other kinds, which need encoding."""
    raw = message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message
    return sum(map(len, raw.body)) if raw.body_type is _DATA else 0


def id_of(message: Sendable) -> str:
    """Return the message's id as text; empty without one."""
    properties = raw_of(message).properties
    return text(properties.message_id) if properties is not None and properties.message_id is not None else ""


def is_scheduled(message: Sendable) -> bool:
    """Return whether receivers get the message at a later time."""
    annotations = raw_of(message).annotations or {}
    return envelope.SCHEDULED_ANNOTATION in annotations or SCHEDULED_ANNOTATION in annotations


def seconds_to_live(message: Sendable) -> float | None:
    """Return the message's own time to live in seconds; None: it has none."""
    header = raw_of(message).header
    ttl = None if header is None else header.time_to_live
    return ttl / 1000 if isinstance(ttl, int) else None


def batch_key(message: Sendable) -> object:
    """Return the key of messages to one entity that may share a batch: session and partition key."""
    raw = raw_of(message)
    session = None if raw.properties is None else raw.properties.group_id
    if not raw.annotations:
        return session
    return (session, *(raw.annotations.get(key) for key in _PARTITION_KEYS))


def text(value: object) -> str:
    """Return a string as on the wire; the SDK may have left it bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def context_of(message: Sendable) -> tracing.Headers:
    """Return the trace context that a message carries; empty without one."""
    return tracing.context_of(raw_of(message).application_properties)


def with_context(message: Sendable, host: str, entity: str, context: tracing.Headers | None = None) -> Sendable:
    """Return the message with a trace context: its own, `context`, or that of a new message in the caller's trace.

    host, entity: where it goes, for the new message's span.
    """
    raw = raw_of(message)
    if tracing.context_of(raw.application_properties):
        return message
    copied = copy(raw)
    added: dict[Any, Any] = {**tracing.properties_of(context or tracing.new_message_context(host, entity))}
    copied.application_properties = {**(copied.application_properties or {}), **added} or None
    return copied


def copy(raw: AmqpAnnotatedMessage) -> AmqpAnnotatedMessage:
    """Copy a message: header, properties and annotations are new, the bytes of the body are shared."""
    copied = _twin(raw)
    copied.header = AmqpMessageHeader() if raw.header is None else _twin(raw.header)
    copied.properties = AmqpMessageProperties() if raw.properties is None else _twin(raw.properties)
    copied.application_properties = dict(raw.application_properties) if raw.application_properties else None
    copied.annotations = dict(raw.annotations) if raw.annotations else None
    copied.delivery_annotations = dict(raw.delivery_annotations) if raw.delivery_annotations else None
    copied.footer = dict(raw.footer) if raw.footer else None
    return copied


def _twin(section: T) -> T:
    """Return a shallow copy, in a tenth of `copy.copy`'s time. A section's truth value counts all of its keys."""
    twin: T = object.__new__(type(section))
    twin.__dict__ = section.__dict__.copy()
    return twin


def encoded(message: Sendable) -> EncodedMessage:
    """Return the message as the SDK encodes it. Raises ServiceBusError: the SDK cannot."""
    try:
        return read_message(sdk_internals.encode(message))
    except ServiceBusError:
        raise
    except Exception as error:
        raise ServiceBusError(message=f"the message cannot be encoded: {error}", error=error) from error


def destination_of(received: AmqpAnnotatedMessage) -> envelope.EnvelopeProperties:
    """Return a backlog message's destination and original properties.

    Raises:
        EnvelopeError: its properties cannot be translated back.
    """
    return envelope.unwrap(cast(Mapping[object, object], received.application_properties or {}))


def unpark(received: AmqpAnnotatedMessage, enclosed: envelope.EnvelopeProperties) -> AmqpAnnotatedMessage:
    """Return the original message out of its envelope."""
    restored = _sendable(received, envelope.RESERVED)
    properties = cast(AmqpMessageProperties, restored.properties)
    for name in _TEXTS:
        value = getattr(properties, name)
        if isinstance(value, bytes):
            setattr(properties, name, value.decode("utf-8", "replace"))
    properties.group_id = enclosed.session_id
    ttl = enclosed.time_to_live
    milliseconds = None if ttl is None else int(min(ttl, _MAX_TTL) / timedelta(milliseconds=1))
    cast(AmqpMessageHeader, restored.header).time_to_live = milliseconds
    if enclosed.scheduled is not None:
        restored.annotations = {**(restored.annotations or {}), SCHEDULED_ANNOTATION: enclosed.scheduled}
    return restored


def as_parked(received: AmqpAnnotatedMessage) -> AmqpAnnotatedMessage:
    """Return a dead letter of a backlog queue as it was parked: in its envelope, without dead-letter properties."""
    return _sendable(received, _DEAD)


def _sendable(received: AmqpAnnotatedMessage, dropped: Collection[str]) -> AmqpAnnotatedMessage:
    """Return a received message without what its namespace added, and without the properties of these names."""
    restored = copy(received)
    properties, annotations = restored.application_properties or {}, restored.annotations or {}
    mine = {key: _carried(value) for key, value in properties.items() if text(key) not in dropped}
    kept = {key: value for key, value in annotations.items() if text(key).encode() not in BROKERS}
    restored.application_properties, restored.annotations = mine or None, kept or None
    restored.delivery_annotations = None
    cast(AmqpMessageHeader, restored.header).delivery_count = None
    return restored


def _carried(value: object) -> object:
    """Return a received value that can be sent again: the SDK encodes integers with 32 bits."""
    if isinstance(value, int) and not -(2**31) <= value < 2**31:
        return {"TYPE": "LONG" if value < 2**63 else "ULONG", "VALUE": value}
    return value


def ping() -> ServiceBusMessage:
    """Make a ping: empty body, its own content type, one second to live, a session of its own (SPEC.md section 8)."""
    return ServiceBusMessage(
        b"",
        content_type=envelope.PING_CONTENT_TYPE,
        time_to_live=timedelta(seconds=1),
        session_id=f"{envelope.PING_SESSION_PREFIX}{uuid.uuid4()}",
        message_id=str(uuid.uuid4()),
    )


def is_ping(message: ServiceBusMessage) -> bool:
    """Return whether a received message is a pairing's ping, which no application should see."""
    return message.content_type is not None and text(message.content_type) == envelope.PING_CONTENT_TYPE


def is_pings_session(session_id: object) -> bool:
    """Return whether a session belongs to a ping."""
    return isinstance(session_id, str | bytes) and text(session_id).startswith(envelope.PING_SESSION_PREFIX)


def scheduled(message: Sendable, when: datetime) -> Sendable:
    """Return a copy of the message with its time to be enqueued, as the SDK would write it."""
    timed = copy(raw_of(message))
    timed.annotations = {**(timed.annotations or {}), SCHEDULED_ANNOTATION: when}
    return timed


# -- batches and sizes ------------------------------------------------------------------------------------------------


class EncodedBatch(ServiceBusMessageBatch):
    """The SDK's batch with a single encoding. sender: the SDK sender that will send it; None: unknown."""

    def __init__(self, max_size_in_bytes: int | None = None, *, sender: ServiceBusSender | None = None) -> None:
        super().__init__(max_size_in_bytes, **sdk_internals.batch_options(sender))
        self.address = ("", "")
        """The namespace's host and the entity, for the spans of its messages."""
        self.contexts: list[tracing.Headers] = []
        """The trace contexts of its messages; empty without a tracer."""

    def add_message(self, message: Any) -> None:
        """Add an application's message, in the caller's trace. Raises MessageSizeExceededError if it does not fit.

        What is added is kept as it is now, as the SDK has encoded it; an object without an id stays the id's holder.
        """
        if isinstance(message, Mapping):
            message = ServiceBusMessage(**message)
        if not isinstance(message, ServiceBusMessage | AmqpAnnotatedMessage):
            super().add_message(message)  # the SDK refuses it
            return
        single = copy(raw_of(message)) if has_own_id(message) else message
        if tracing.is_on():
            traced = with_context(single, *self.address)
            self.append(traced)
            self.contexts.append(context_of(traced))
            if single is message and isinstance(message, ServiceBusMessage):
                sdk_internals.batch_messages(self)[-1] = message
        else:
            self.append(single)

    def append(self, message: Carried) -> None:
        """Add a message as it is. Raises MessageSizeExceededError if it does not fit."""
        if isinstance(message, EncodedMessage):
            sdk_internals.append_bytes(self, message.data)
        else:
            sdk_internals.append(self, message)

    def filled(self, messages: Iterable[Carried]) -> EncodedBatch:
        """Return it with these messages. Raises MessageSizeExceededError if they do not fit."""
        for message in messages:
            self.append(message)
        return self


def packed(messages: Sequence[Sendable], limit: int) -> list[list[Sendable]]:
    """Pack the messages, in order, into batches of at most `limit` bytes; a single message may exceed it."""
    packs: list[list[Sendable]] = []
    batch = EncodedBatch(max_size_in_bytes=limit)
    for message in messages:
        try:
            batch.append(message)
        except MessageSizeExceededError:
            size = EncodedBatch(sys.maxsize).filled([message]).size_in_bytes
            batch = EncodedBatch(max_size_in_bytes=max(limit, size)).filled([message])
            packs.append([])
        if not packs:
            packs.append([])
        packs[-1].append(message)
    return packs


def too_large(
    messages: Sequence[Sendable], batch: ServiceBusMessageBatch | None, path: str, limit: Callable[[], int]
) -> int:
    """Return the number of messages that would not fit into a backlog queue.

    Args:
        batch: the batch of these messages; None: they were sent singly.
        path: their entity's, for the envelope.
        limit: returns the bytes of the largest message that the backlog accepts; called for large messages only.
    """
    if batch is not None and batch.size_in_bytes <= _SAFE_BYTES:
        return 0
    return sum(
        (body_bytes(message) > limit() or exceeds(encoded(message), path, limit()))
        for message in messages
        # an entity that accepted a small body limits its properties to 64 KB
        if raw_of(message).body_type is not _DATA or body_bytes(message) > SMALL_BODY_BYTES
    )
