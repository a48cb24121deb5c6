"""A batch that encodes once is, byte for byte, what the SDK makes of the same messages."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.sending.sdk_messages import Sendable, park
from paired_servicebus.pairing.sending.sender_link import EncodedBatch


def several() -> list[Sendable]:
    first = ServiceBusMessage(b"x" * 300, message_id="1", session_id="s", application_properties={"a": 1, "b": "two"})
    return [
        first,
        AmqpAnnotatedMessage(data_body=[b"y"], properties={"message_id": "2"}),
        park(ServiceBusMessage(b"z", message_id="3", partition_key="p"), "orders"),
    ]


def filled(batch: ServiceBusMessageBatch) -> ServiceBusMessageBatch:
    for message in several():
        batch.add_message(message)
    return batch


def test_it_is_what_the_sdk_makes() -> None:
    ours, theirs = filled(EncodedBatch()), filled(ServiceBusMessageBatch())
    assert ours._message == theirs._message
    assert ours.size_in_bytes == theirs.size_in_bytes
    assert len(ours) == len(theirs) == 3
    assert ours._amqp_transport is theirs._amqp_transport


async def test_one_that_was_made_for_a_sender_is_not_made_once_more() -> None:
    """The SDK compares whose batch it is."""
    text = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=djE="
    async with ServiceBusClient.from_connection_string(text) as client:
        sender = client.get_queue_sender("orders")
        assert EncodedBatch(sender=sender)._amqp_transport is sender._amqp_transport


def test_each_message_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails with an SDK that has changed there: then the batch is right, and slow."""
    batch = EncodedBatch()
    count = 0
    encode = batch._amqp_transport.encode_message

    def counted(message: object) -> object:
        nonlocal count
        count += 1
        return encode(message)

    def never(*_: object) -> None:
        pytest.fail("encoded once more")

    monkeypatch.setattr(batch._amqp_transport, "encode_message", staticmethod(counted))
    monkeypatch.setattr(batch._amqp_transport, "add_batch", staticmethod(never))
    filled(batch)
    assert count == 3


def test_what_does_not_fit_leaves_it_as_it_was() -> None:
    batch = EncodedBatch(max_size_in_bytes=200)
    batch.add_message(ServiceBusMessage(b"x"))
    before = batch.size_in_bytes
    with pytest.raises(MessageSizeExceededError):
        batch.add_message(ServiceBusMessage(b"x" * 500))
    assert (len(batch), batch.size_in_bytes, len(batch._message[5])) == (1, before, 1)


def test_where_the_hooks_are_missing_the_sdk_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_internals, "TRANSPORT_HOOKS", ("not_there",))
    assert filled(EncodedBatch())._message == filled(ServiceBusMessageBatch())._message
