"""SDK messages in and out of their envelope, through the SDK's own encoder and decoder."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.errors import EnvelopeError, ReservedPropertyError
from paired_servicebus.pairing.envelope_codec import park
from paired_servicebus.pairing.sending import sdk_messages
from tests.approval import Approve

WORD = st.text(min_size=1, max_size=40)
MOMENT = st.datetimes(min_value=datetime(2027, 1, 1), max_value=datetime(2090, 1, 1)).map(
    lambda moment: moment.replace(tzinfo=UTC, microsecond=moment.microsecond // 1000 * 1000)
)
FIELDS = st.fixed_dictionaries(
    {"message_id": WORD},
    optional={
        "session_id": WORD,
        "time_to_live": st.integers(0, 2**21).map(lambda seconds: timedelta(seconds=seconds)),
        "scheduled_enqueue_time_utc": MOMENT,
        "correlation_id": WORD,
        "subject": WORD,
        "to": WORD,
        "reply_to": WORD,
        "reply_to_session_id": WORD,
        "content_type": WORD,
        "application_properties": st.dictionaries(
            WORD, st.one_of(WORD, st.integers(-(2**31), 2**31 - 1), st.booleans(), st.uuids()), min_size=1, max_size=4
        ),
    },
)


def over_the_wire(message: AmqpAnnotatedMessage) -> AmqpAnnotatedMessage:
    """As a receiver of the SDK gets what a sender of the SDK sent."""
    out = bytearray()
    encode_payload(out, PyamqpTransport.to_outgoing_amqp_message(message))
    return AmqpAnnotatedMessage(message=decode_payload(memoryview(out)))


def in_backlog(message: sdk_messages.Sendable) -> AmqpAnnotatedMessage:
    """As a receiver of the SDK gets what was parked for orders."""
    return AmqpAnnotatedMessage(message=decode_payload(memoryview(park(sdk_messages.encoded(message), "orders").data)))


def seen(message: AmqpAnnotatedMessage) -> dict[str, Any]:
    """What an application can see of a message, in the types it was sent in."""
    raw = ServiceBusMessage(None, message=None, raw_amqp_message=message)
    properties = message.properties
    assert properties is not None
    told = {name: getattr(properties, name) for name in (*sdk_messages._TEXTS, "content_type")}
    return {
        **{name: None if value is None else sdk_messages.text(value) for name, value in told.items()},
        "ttl": message.header.time_to_live if message.header else None,
        "scheduled": (message.annotations or {}).get(sdk_messages.SCHEDULED_ANNOTATION),
        "application": {
            sdk_messages.text(key): sdk_messages.text(value) if isinstance(value, bytes) else value
            for key, value in (message.application_properties or {}).items()
        },
        "body": b"".join(message.body),
        "raw": raw is not None,
    }


@given(body=st.binary(max_size=200), fields=FIELDS)
def test_nothing_else_may_change_through_the_sdk(body: bytes, fields: dict[str, Any]) -> None:
    """Nothing else may change: body and its kind, message_id, correlation_id, subject, to, reply_to, content_type."""
    original = ServiceBusMessage(body, **fields)
    direct = over_the_wire(original.raw_amqp_message)
    parked = in_backlog(original)
    enclosed = sdk_messages.destination_of(parked)
    moved = over_the_wire(sdk_messages.unpark(parked, enclosed))
    assert enclosed.path == "orders"
    assert seen(moved) == seen(direct)


VALUE = st.one_of(WORD, st.integers(-(2**31), 2**31 - 1), st.booleans(), st.uuids())
"""Not binary: the SDK makes a string of it, or fails (LOST_IN_THE_SDK of tests.pairing.test_amqp_pump)."""
BODIES = st.one_of(
    st.builds(lambda body: {"data_body": body}, st.lists(st.binary(max_size=50), min_size=1, max_size=3)),
    st.builds(lambda body: {"value_body": body}, st.one_of(VALUE, st.lists(st.integers(0, 9), min_size=1, max_size=3))),
    st.builds(
        lambda body: {"sequence_body": body}, st.lists(st.lists(VALUE, min_size=1, max_size=3), min_size=1, max_size=2)
    ),
)
ANNOTATED = st.fixed_dictionaries(
    {"properties": st.fixed_dictionaries({"message_id": WORD}, optional={"group_id": WORD, "subject": WORD})},
    optional={
        "header": st.fixed_dictionaries(
            {}, optional={"time_to_live": st.integers(0, 2**31), "priority": st.integers(0, 9)}
        ),
        "annotations": st.dictionaries(st.sampled_from(["x-opt-partition-key", "x-mine"]), WORD, min_size=1),
        "application_properties": st.dictionaries(WORD, VALUE, min_size=1, max_size=3),
        "footer": st.dictionaries(WORD, WORD, min_size=1, max_size=2),
    },
)


def sections(message: AmqpAnnotatedMessage) -> dict[str, Any]:
    """A received annotated message's sections; what the SDK computes from others is left out."""
    header, properties = message.header, message.properties
    assert properties is not None
    plain = dict(properties.items())
    plain.pop("absolute_expiry_time"), plain.pop("creation_time")
    return {
        "body": list(message.body) if message.body_type.value != "value" else message.body,
        "kind": message.body_type,
        "properties": {name: value.encode() if isinstance(value, str) else value for name, value in plain.items()},
        "header": (header.time_to_live, header.priority) if header is not None else (None, None),
        "annotations": dict(message.annotations or {}),
        "application": {
            key: value.encode() if isinstance(value, str) else value
            for key, value in (message.application_properties or {}).items()
        },
        "footer": dict(message.footer or {}),
    }


@given(body=BODIES, fields=ANNOTATED)
def test_nothing_else_may_change_of_an_annotated_message_either(body: dict[str, Any], fields: dict[str, Any]) -> None:
    """Section 7.2: "body and its kind, … partition key and every application property survive the round trip"; through
    an SDK pump what the SDK can carry: it makes bytes of strings in a body, and strings of bytes in properties."""
    original = AmqpAnnotatedMessage(**body, **fields)
    direct = over_the_wire(original)
    parked = in_backlog(sdk_messages.outgoing(original)[0])
    moved = over_the_wire(sdk_messages.unpark(parked, sdk_messages.destination_of(parked)))
    assert sections(moved) == sections(direct)
    assert sections(over_the_wire(original)) == sections(direct)


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**62, -(2**63), 2**63, 2**64 - 1])
def test_a_large_integer_survives_the_sdk(number: int) -> None:
    """Through an SDK pump what the SDK can carry."""
    kind = "LONG" if number < 2**63 else "ULONG"
    original = AmqpAnnotatedMessage(
        data_body=b"", application_properties={"n": {"TYPE": kind, "VALUE": number}}, properties={"message_id": "1"}
    )
    parked = in_backlog(original)
    moved = over_the_wire(sdk_messages.unpark(parked, sdk_messages.destination_of(parked)))
    assert moved.application_properties == {b"n": number}


@given(fields=FIELDS)
def test_a_parked_message_has_neither_session_nor_expiry_nor_schedule(fields: dict[str, Any]) -> None:
    """The message is changed so that messages for many entities coexist in one queue."""
    parked = in_backlog(ServiceBusMessage(b"x", **fields))
    assert parked.properties is not None
    assert parked.properties.group_id is None
    assert parked.properties.absolute_expiry_time is None
    assert parked.header is None or parked.header.time_to_live is None
    assert sdk_messages.SCHEDULED_ANNOTATION not in (parked.annotations or {})


@given(fields=FIELDS)
def test_the_callers_message_is_never_changed(fields: dict[str, Any]) -> None:
    """The caller's message object is never changed."""
    message = ServiceBusMessage(b"x", **fields)
    before = repr(message), dict(message.application_properties or {})
    in_backlog(sdk_messages.outgoing(message)[0])
    assert (repr(message), dict(message.application_properties or {})) == before


def test_a_timespan_is_described_on_the_wire() -> None:
    """timespan = described type com.microsoft:timespan, long, 100 ns ticks."""
    message = ServiceBusMessage(b"x", message_id="1", time_to_live=timedelta(seconds=90))
    parked = park(sdk_messages.encoded(message), "orders")
    ticks = (900_000_000).to_bytes(8, "big")
    assert b"\x00\xa3\x16com.microsoft:timespan\x81" + ticks in parked.data


@pytest.mark.parametrize(
    "name", ["x-ms-path", "x-ms-sessionid", "x-ms-timetolive", "x-ms-scheduledenqueuetimeutc", b"x-ms-path"]
)
def test_a_reserved_property_is_refused(name: str | bytes) -> None:
    """A message that already carries one of the four names is refused with a ValueError at any time."""
    with pytest.raises(ValueError, match="is reserved") as refused:
        sdk_messages.outgoing(ServiceBusMessage(b"x", application_properties={name: "mine"}))
    assert isinstance(refused.value, ReservedPropertyError)


def test_a_message_without_an_id_gets_one_and_the_same_for_every_try() -> None:
    """A message without message_id gets one before the first attempt."""
    message = AmqpAnnotatedMessage(data_body=b"x")
    first, again = sdk_messages.outgoing(message)[0], sdk_messages.outgoing(message)[0]
    assert sdk_messages.id_of(first) == sdk_messages.id_of(again) != ""
    assert sdk_messages.id_of(message) == ""


def test_a_message_is_copied_as_it_is() -> None:
    """What is sent, at any try, is the message as it was at the call."""
    message = ServiceBusMessage(b"x", message_id="mine", application_properties={"a": 1})
    (copied,) = sdk_messages.outgoing(message)
    assert (type(copied), str(copied)) == (ServiceBusMessage, str(message))
    message.application_properties["a"] = 2  # type: ignore[index]
    assert copied.application_properties == {"a": 1}


def test_a_list_and_a_batch_become_their_messages() -> None:
    singles = [ServiceBusMessage(b"x", message_id=str(number)) for number in range(3)]
    batch = ServiceBusMessageBatch()
    for single in singles:
        batch.add_message(single)
    assert [sdk_messages.id_of(message) for message in sdk_messages.outgoing(singles)] == ["0", "1", "2"]
    assert [sdk_messages.id_of(message) for message in sdk_messages.outgoing(batch)] == ["0", "1", "2"]


def test_an_annotated_message_is_a_message() -> None:
    annotated = AmqpAnnotatedMessage(value_body={"a": 1}, properties={"message_id": "v"})
    parked = in_backlog(sdk_messages.outgoing(annotated)[0])
    assert sdk_messages.destination_of(parked).path == "orders"
    assert parked.body == {b"a": 1}


@pytest.mark.parametrize("wrong", [7, "text", b"bytes", None])
def test_what_is_no_message_is_a_type_error(wrong: object) -> None:
    with pytest.raises(TypeError, match="a message is a ServiceBusMessage"):
        sdk_messages.outgoing(wrong)


def test_a_message_without_a_destination_says_so(approve: Approve) -> None:
    with pytest.raises(EnvelopeError) as refused:
        sdk_messages.destination_of(over_the_wire(ServiceBusMessage(b"x", message_id="1").raw_amqp_message))
    approve.part(refused.value, "errors of the library")


def test_a_ping_is_known_by_its_content_type_and_only_by_it() -> None:
    """Ping: empty body, content type application/vnd.ms-servicebus-ping, TTL 1 s, a random session id."""
    ping, other = sdk_messages.ping(), sdk_messages.ping()
    assert sdk_messages.is_ping(ping)
    assert ping.time_to_live == timedelta(seconds=1)
    assert ping.session_id != other.session_id
    assert b"".join(ping.body) == b""  # type: ignore[arg-type]
    assert not sdk_messages.is_ping(ServiceBusMessage(b""))
