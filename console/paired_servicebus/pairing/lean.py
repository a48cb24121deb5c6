"""What the SDK makes of a message before it encodes it, made in fewer steps.

For each message the SDK lists the names of its sections several times, and finds out by an exception, property by
property, that a text is a text. What it makes of a usual message is made here without, the same to the last byte, so
that a healthy send gets back what the pairing takes of it. Whatever is not usual is left to the SDK.

Rules: what it takes to hook in is not part of the SDK's documented interface, so nothing is changed before samples have
come out the same both ways; where they do not, the SDK makes everything. Only senders that are ours are touched.
"""

from __future__ import annotations

import functools
import types
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

_STEP: Final = "to_outgoing_amqp_message"
_NO_HEADER: Final = vars(AmqpMessageHeader())


def hasten(sender: ServiceBusSender) -> None:
    """Have an SDK sender of ours make its messages in fewer steps, where its SDK is as we know it."""
    transport: Any = getattr(sender, "_amqp_transport", None)
    if transport is not None:
        sender._amqp_transport = lean(transport)


@functools.cache
def lean(transport: Any) -> Any:
    """The SDK's transport with fewer steps; `transport` itself where that would not make the same."""
    try:
        made = _with_fewer_steps(transport)
        return made if all(_come_out_the_same(transport, made, message) for message in _samples()) else transport
    except Exception:  # noqa: BLE001 - whatever is different in that SDK, it is used as it is
        return transport


def _with_fewer_steps(transport: Any) -> Any:
    whole = getattr(transport, _STEP)
    step = staticmethod(_step(whole, whole(_samples()[0])))
    return types.new_class("Lean", (transport,), {}, lambda names: names.update({_STEP: step}))


def _step(whole: Callable[[AmqpAnnotatedMessage], Any], made: Any) -> Callable[[AmqpAnnotatedMessage], Any]:
    """The conversion. whole: the SDK's. made: what that makes, for its types."""
    message_type, properties_type = type(made), type(made.properties)

    def converted(message: AmqpAnnotatedMessage) -> Any:
        given, header = message.properties, message.header
        named = _typed(message.application_properties)
        if (
            named is None
            or message.annotations
            or type(given) is not AmqpMessageProperties
            or given.message_id is None
            or given.creation_time
            or given.absolute_expiry_time
            or (header is not None and vars(header) != _NO_HEADER)
        ):
            return whole(message)
        properties = properties_type(
            given.message_id,
            given.user_id,
            given.to,
            given.subject,
            given.reply_to,
            given.correlation_id,
            given.content_type,
            given.content_encoding,
            None,
            None,
            given.group_id,
            given.group_sequence,
            given.reply_to_group_id,
        )
        return message_type(
            None,
            message.delivery_annotations,
            None,
            properties,
            named,
            message._data_body,
            message._sequence_body,
            message._value_body,
            message.footer,
        )

    return converted


def _typed(properties: Mapping[Any, Any] | None) -> dict[Any, Any] | None:
    """Application properties with the texts named as such, which the encoder would have to find out; None: some are
    for the SDK to look at. What tracing adds and reads has bytes for a name, and stays as it is."""
    typed: dict[Any, Any] = {}
    for name, value in properties.items() if properties else ():
        if type(value) is str and type(name) is str:
            typed[name] = {"TYPE": "STRING", "VALUE": value}
        elif isinstance(value, bytes):
            return None
        else:
            typed[name] = value
    return typed


def _come_out_the_same(one: Any, other: Any, message: AmqpAnnotatedMessage) -> bool:
    return _encoded(one, message) == _encoded(other, message)


def _encoded(transport: Any, message: AmqpAnnotatedMessage) -> bytes:
    return bytes(transport.encode_message(types.SimpleNamespace(_message=getattr(transport, _STEP)(message))))


def _samples() -> list[AmqpAnnotatedMessage]:
    """One message of each kind, the first with everything that a usual one can have."""
    names = vars(AmqpMessageProperties()).keys() - {"creation_time", "absolute_expiry_time", "group_sequence"}
    texts: dict[str, Any] = {name: name for name in names}
    everything = AmqpAnnotatedMessage(
        data_body=[b"one", b"x" * 300],
        properties=AmqpMessageProperties(**texts, group_sequence=7),
        application_properties={"text": "täxt", "long": "x" * 300, "none": None, "yes": True, "int": 5, "float": 2.5},
        delivery_annotations={"x-opt-a": "b"},
        footer={"c": "d"},
    )
    return [
        everything,
        ServiceBusMessage("text", message_id="1").raw_amqp_message,
        AmqpAnnotatedMessage(value_body={"a": [1, "b"]}, properties=AmqpMessageProperties(message_id=uuid.UUID(int=1))),
        AmqpAnnotatedMessage(sequence_body=[["a", 2]], properties=AmqpMessageProperties(message_id=b"binary")),
    ]
