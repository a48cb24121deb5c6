"""Against Microsoft's own encoder and decoder: what either side writes, the other reads.

They are private to azure-servicebus; used here as an independent opinion, nowhere else.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from azure.servicebus._pyamqp import endpoints, outcomes, performatives
from azure.servicebus._pyamqp._decode import decode_frame, decode_payload
from azure.servicebus._pyamqp._encode import encode_frame, encode_payload
from azure.servicebus._pyamqp.error import AMQPError
from azure.servicebus._pyamqp.message import Header as SdkHeader
from azure.servicebus._pyamqp.message import Message as SdkMessage
from azure.servicebus._pyamqp.message import Properties as SdkProperties
from azure.servicebus._pyamqp.types import AMQPTypes
from hypothesis import given
from hypothesis import strategies as st

from servicebus_amqp.encoding.codec import Timestamp, UInt
from servicebus_amqp.encoding.frames import (
    DispositionHead,
    TransferHead,
    read_disposition,
    read_transfer,
    write_disposition,
)
from servicebus_amqp.encoding.message_sections import (
    DELIVERY_ANNOTATIONS,
    MESSAGE_ANNOTATIONS,
    Header,
    Properties,
    Sections,
    read_header,
    read_map,
    read_properties,
    split,
    unbatch,
    write_application_properties,
    write_data,
    write_header,
    write_properties,
)
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    Attach,
    Close,
    Detach,
    End,
    Error,
    Modified,
    Rejected,
    Target,
    read_performative,
    write_performative,
)
from servicebus_amqp.protocol_errors import DecodeError
from tests.amqp.values import write_annotations

UINTS = st.integers(0, 2**32 - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=300)


def _by_sdk(frame: Any) -> bytes:
    """The frame's body, as the SDK writes it."""
    _, body = encode_frame(frame)
    return bytes(body or b"")


def _read_by_sdk(body: bytes) -> tuple[int, list[Any]]:
    code, fields = decode_frame(memoryview(body))
    return code, [bytes(field) if isinstance(field, memoryview) else field for field in fields]


@pytest.mark.parametrize("session", ["id-7", None])
def test_an_attach_of_the_sdk_is_read_with_its_session_filter(session: str | None) -> None:
    source = endpoints.Source(
        address="amqps://contoso/orders",
        durable=0,
        expiry_policy=None,
        timeout=0,
        dynamic=False,
        dynamic_node_properties=None,
        distribution_mode=None,
        filters={b"com.microsoft:session-filter": session},
        default_outcome=None,
        outcomes=None,
        capabilities=None,
    )
    target = endpoints.Target("receiver-link", 0, None, 0, False, None, None)
    properties = {b"com.microsoft:timeout": {"TYPE": AMQPTypes.uint, "VALUE": 5000}}
    sent = performatives.AttachFrame(
        "name", 4, True, 0, 1, source, target, None, False, None, 1048576, None, None, properties
    )
    found, _ = read_performative(_by_sdk(sent), 0)
    assert isinstance(found, Attach)
    assert (found.name, found.handle, found.role, found.max_message_size) == ("name", 4, True, 1048576)
    assert (found.snd_settle_mode, found.rcv_settle_mode) == (0, 1)
    assert found.source is not None
    assert found.source.address == "amqps://contoso/orders"
    assert found.source.filter == {"com.microsoft:session-filter": session}
    assert isinstance(found.target, Target)
    assert found.target.address == "receiver-link"
    assert found.properties == {"com.microsoft:timeout": UInt(5000)}


@given(UINTS, UINTS, st.binary(min_size=1, max_size=32), UINTS, st.booleans(), st.booleans(), st.binary(max_size=50))
def test_a_transfer_of_the_sdk_is_read_quickly(
    handle: int, delivery_id: int, tag: bytes, message_format: int, settled: bool, more: bool, payload: bytes
) -> None:
    sent = performatives.TransferFrame(
        handle, delivery_id, tag, message_format, settled, more, None, None, None, None, None, payload
    )
    body = _by_sdk(sent)
    start = len(body) - len(payload)
    expected = TransferHead(handle, delivery_id, tag, message_format, settled, more, False, start)
    assert read_transfer(body, 0, len(body)) == expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (outcomes.Accepted(), ACCEPTED),
        (outcomes.Modified(True, False, None), Modified(delivery_failed=True)),
        (outcomes.Modified(None, True, {b"k": 1}), Modified(undeliverable_here=True, message_annotations={"k": 1})),
        (
            outcomes.Rejected(AMQPError("com.microsoft:dead-letter", "why", {b"Reason": "r"})),
            Rejected(error=Error(condition="com.microsoft:dead-letter", description="why", info={"Reason": "r"})),
        ),
    ],
)
def test_a_disposition_of_the_sdk_is_read_quickly(state: Any, expected: Any) -> None:
    body = _by_sdk(performatives.DispositionFrame(True, 3, 5, False, state, None))
    assert read_disposition(body, 0, len(body)) == DispositionHead(True, 3, 5, False, expected)


ERRORS = [Error(condition="amqp:not-found"), Error(condition="c", description="d", info={"k": 1})]


def _error_in(found: Any) -> Error:
    condition, description, info = found
    told = {key.decode(): value for key, value in info.items()}
    return Error(condition=condition.decode(), description=description.decode(), info=told)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("make", [Close, End, lambda error: Detach(handle=1, error=error)])
def test_the_sdk_finds_condition_description_and_info_in_what_ends(make: Any, error: Error) -> None:
    _, fields = _read_by_sdk(write_performative(make(error=error)))
    assert _error_in(fields[-1]) == error


@pytest.mark.parametrize("error", ERRORS)
def test_the_sdk_finds_condition_description_and_info_in_a_rejection(error: Error) -> None:
    _, fields = _read_by_sdk(write_disposition(DispositionHead(True, 1, 2, True, Rejected(error=error))))
    assert fields[:4] == [True, 1, 2, True]
    assert _error_in(fields[4]["rejected"][0]) == error


def test_a_message_of_the_sdk_is_split() -> None:
    identity = uuid.uuid4()
    message = SdkMessage(
        header=SdkHeader(durable=True, priority=4, ttl=60000, first_acquirer=None, delivery_count=0),
        message_annotations={b"x-opt-partition-key": "key"},
        properties=SdkProperties(
            message_id=identity,
            user_id=b"user",
            to="to",
            subject="subject",
            reply_to="reply",
            correlation_id="correlation",
            content_type="text/plain",
            content_encoding="utf-8",
            absolute_expiry_time=5,
            creation_time=6,
            group_id="session",
            group_sequence=7,
            reply_to_group_id="other",
        ),
        application_properties={"one": 1, b"raw": 2.5},
        data=[b"first", b"second"],
        footer={b"f": "f"},
        delivery_annotations={b"d": "late"},
    )
    raw = bytes(encode_payload(bytearray(), message))
    found = split(raw)
    assert read_header(found.header) == Header(durable=True, priority=4, ttl=60000, delivery_count=0)
    assert read_map(found.message_annotations) == {"x-opt-partition-key": "key"}
    assert read_properties(found.properties) == Properties(
        identity, b"user", "to", "subject", "reply", "correlation", "text/plain", "utf-8", 5, 6, "session", 7, "other"
    )
    assert read_map(found.application_properties) == {"one": 1, "raw": 2.5}
    assert list(unbatch(found.body)) == [b"first", b"second"]
    assert read_map(found.footer) == {"f": "f"}
    assert read_map(found.delivery_annotations) == {"d": "late"}
    assert found.size == len(raw)


def test_delivery_annotations_that_come_last_come_once() -> None:
    late = write_annotations(DELIVERY_ANNOTATIONS, {"d": 1})
    body = write_data(b"x")
    assert split(body + late) == Sections(delivery_annotations=late, body=body)
    for wrong in (late + body + late, body + late + late, body + late + body):
        with pytest.raises(DecodeError, match="cannot follow"):
            split(wrong)


def test_the_sdk_reads_a_message_of_ours() -> None:
    sections = Sections(
        header=write_header(Header(durable=True, ttl=5000, delivery_count=3)),
        message_annotations=write_annotations(
            MESSAGE_ANNOTATIONS, {"x-opt-sequence-number": 9, "x-opt-enqueued-time": Timestamp(1000)}
        ),
        properties=write_properties(Properties(message_id="id", content_type="text/plain", group_id="session")),
        application_properties=write_application_properties({"k": "v"}),
        body=write_data(b"body"),
    )
    found = decode_payload(memoryview(sections.join()))
    assert (found.header.durable, found.header.ttl, found.header.delivery_count) == (True, 5000, 3)
    assert found.message_annotations == {b"x-opt-sequence-number": 9, b"x-opt-enqueued-time": 1000}
    assert (found.properties.message_id, found.properties.group_id) == (b"id", b"session")
    assert found.application_properties == {b"k": b"v"}
    assert [bytes(part) for part in found.data] == [b"body"]
