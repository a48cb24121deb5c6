"""What is made of a message in fewer steps is, byte for byte, what the SDK makes of it, and leaves it as it was."""

from __future__ import annotations

import copy
import types
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.pairing import lean as room
from paired_servicebus.pairing.lean import hasten, lean

TEXT = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=djE="
NAMES = sorted(vars(AmqpMessageProperties()).keys() - {"creation_time", "absolute_expiry_time", "group_sequence"})
TIMES = st.none() | st.integers(1, 2**40)
texts = st.text(st.characters(codec="utf-8"), max_size=300)
keys = st.text(st.characters(codec="utf-8"), max_size=300) | st.sampled_from([b"traceparent", b"Diagnostic-Id"])
simple = (
    st.none() | st.booleans() | st.integers(-(2**31), 2**31 - 1) | st.floats(allow_nan=False) | texts | st.uuids()
) | st.datetimes(datetime(1980, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
bodies = (
    st.fixed_dictionaries({"data_body": st.lists(st.binary(max_size=300), max_size=3)})
    | st.fixed_dictionaries({"value_body": st.dictionaries(texts, simple, max_size=3)})
    | st.fixed_dictionaries({"sequence_body": st.lists(st.lists(simple, max_size=3), max_size=2)})
)
properties = st.builds(
    AmqpMessageProperties,
    **{name: st.none() | texts | st.binary(max_size=20) for name in NAMES},
    creation_time=TIMES,
    absolute_expiry_time=TIMES,
    group_sequence=st.none() | st.integers(0, 2**32 - 1),
)
headers = st.none() | st.builds(
    AmqpMessageHeader,
    durable=st.none() | st.booleans(),
    priority=st.none() | st.integers(0, 9),
    delivery_count=st.none() | st.integers(0, 9),
)
messages = st.builds(
    lambda body, rest: AmqpAnnotatedMessage(**body, **rest),
    bodies,
    st.fixed_dictionaries(
        {
            "properties": st.none() | properties,
            "header": headers,
            "application_properties": st.none() | st.dictionaries(keys, simple | st.just(b"bytes"), max_size=6),
            "annotations": st.none() | st.dictionaries(texts.filter(bool), texts | st.integers(0, 9), max_size=3),
            "delivery_annotations": st.none() | st.dictionaries(texts.filter(bool), texts, max_size=2),
            "footer": st.none() | st.dictionaries(texts.filter(bool), texts, max_size=2),
        }
    ),
)


def the_sdks() -> Any:
    return ServiceBusClient.from_connection_string(TEXT).get_queue_sender("orders")._amqp_transport


def encoded(transport: Any, message: AmqpAnnotatedMessage) -> bytes:
    made = types.SimpleNamespace(_message=transport.to_outgoing_amqp_message(message))
    return bytes(transport.encode_message(made))


@given(message=messages)
def test_it_is_what_the_sdk_makes(message: AmqpAnnotatedMessage) -> None:
    theirs = the_sdks()
    assert encoded(lean(theirs), copy.deepcopy(message)) == encoded(theirs, message)


def test_a_message_of_the_sdk_is_as_it_was_afterwards() -> None:
    message = ServiceBusMessage("x", message_id="1", application_properties={"a": "b", "n": 1})
    before = copy.deepcopy(vars(message.raw_amqp_message))
    encoded(lean(the_sdks()), message.raw_amqp_message)
    assert vars(message.raw_amqp_message) == before


def test_with_the_sdk_that_is_installed_it_takes_fewer_steps() -> None:
    """Fails with an SDK that has changed there: then everything is right, and slower."""
    assert lean(the_sdks()) is not the_sdks()


def test_a_senders_own_transport_is_replaced_and_no_other() -> None:
    client = ServiceBusClient.from_connection_string(TEXT)
    ours, another = client.get_queue_sender("orders"), client.get_queue_sender("orders")
    hasten(ours)
    assert ours._amqp_transport is lean(the_sdks())
    assert another._amqp_transport is the_sdks()


def test_a_transport_that_makes_something_else_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a release of the SDK in which a field has moved."""
    monkeypatch.setattr(room, "_typed", lambda given: {**(given or {}), "more": 1})
    assert lean.__wrapped__(the_sdks()) is the_sdks()


@pytest.mark.parametrize("missing", ["to_outgoing_amqp_message", "encode_message"])
def test_a_transport_that_lacks_what_is_known_stays(missing: str) -> None:
    class Other(the_sdks()):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            if name == missing:
                raise AttributeError(name)
            return super().__getattribute__(name)

    other = Other.__new__(Other)
    assert lean.__wrapped__(other) is other


def test_what_tracing_reads_is_plain() -> None:
    """The SDK's tracing looks at properties whose names are bytes, and wants their values as they are."""
    message = AmqpAnnotatedMessage(
        data_body=b"x", properties={"message_id": "1"}, application_properties={b"traceparent": "00-1-2-01", "a": "b"}
    )
    made = lean(the_sdks()).to_outgoing_amqp_message(message)
    assert made.application_properties[b"traceparent"] == "00-1-2-01"
