"""A client's encoded message into its backlog envelope and back: bit for bit, and as the SDK's path does it."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError
from hypothesis import given, settings
from hypothesis import strategies as st

from paired_servicebus.core.errors import ReservedPropertyError, UnreadableError
from paired_servicebus.core.model.envelope import PATH, RESERVED
from paired_servicebus.pairing import envelope_codec, sdk_internals
from paired_servicebus.pairing.sending.encoded_sender import MAX_BATCH_MESSAGES, GivenIds, read_payload
from paired_servicebus.pairing.sending.sdk_messages import EncodedBatch, Sendable
from servicebus_amqp.encoding.amqp_types import Symbol, Timestamp, UInt
from servicebus_amqp.encoding.codec import described, encode
from servicebus_amqp.encoding.message_sections import (
    APPLICATION_PROPERTIES,
    BATCH_FORMAT,
    MESSAGE_ANNOTATIONS,
    Properties,
    Sections,
    batch,
    read_map,
    read_properties,
    split,
    unbatch,
    write_data,
    write_properties,
)

from .test_rewrite import NOW, cases, held, read_or_refused, section

BODY = write_data(b"hello")


def named(name: str = "1", **sections: Any) -> bytes:
    return Sections(properties=write_properties(Properties(message_id=name)), **{"body": BODY} | sections).join()


def parked(data: bytes, path: str = "orders/EU") -> bytes:
    return envelope_codec.park(envelope_codec.read_message(data), path).data


def in_backlog(data: bytes) -> bytes:
    """As the backlog queue hands it over."""
    sections = split(data)
    return sections._replace(message_annotations=held(sections.message_annotations)).join()


@settings(max_examples=settings.default.max_examples // 3)
@given(case=cases())
def test_what_is_parked_comes_back_bit_for_bit(case: tuple[Sections, bytes]) -> None:
    """Body and its kind [...] and every application property survive the round trip [...] bit for bit."""
    original, _ = case
    found = envelope_codec.open_envelope(in_backlog(parked(original.join())))
    assert found.enclosed.path == "orders/EU"
    moved = split(envelope_codec.restore_message(found, now_ms=NOW))
    assert moved._replace(message_annotations=None) == original._replace(message_annotations=None)
    assert read_map(moved.message_annotations) == read_map(original.message_annotations)


@settings(max_examples=settings.default.max_examples // 3)
@given(case=cases(), at=st.floats(0, 1), flipped=st.integers(1, 255))
def test_what_is_parked_can_be_opened_again_however_damaged_it_came(
    case: tuple[Sections, bytes], at: float, flipped: int
) -> None:
    """A message that a queue took and nobody can open would be lost to its sender."""
    data = bytearray(case[0].join())
    data[int(at * (len(data) - 1))] ^= flipped
    try:
        found = read_payload(bytes(data), 0, GivenIds())
        data_ = envelope_codec.park(found.messages[0], "orders").data
    except (UnreadableError, ReservedPropertyError):
        return
    assert read_or_refused(in_backlog(data_)) == "orders"


@given(data=st.binary(max_size=200), message_format=st.sampled_from([0, BATCH_FORMAT]))
def test_anything_is_either_read_or_refused_in_words(data: bytes, message_format: int) -> None:
    try:
        words = read_payload(data, message_format, GivenIds()).messages[0].message_id
    except (UnreadableError, ReservedPropertyError) as error:
        words = str(error)
    assert words


HOSTILE = [
    (b"\x00\x53", "the message cannot be read"),
    (named(header=b"\x00\x53\x70\xc0\x04\x03\x40\x40\x41"), "ttl is of type bool"),
    (Sections(properties=described(0x73, encode([None] * 10 + [7])), body=BODY).join(), "group-id is of type"),
    (Sections(properties=described(0x73, encode([7.5])), body=BODY).join(), "message-id is of type float"),
    (named(message_annotations=section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-scheduled-enqueue-time"): "now"})), "one"),
    (named(application_properties=b"\x00\x53\x74\xc1\x05\x02\xa1\x09a"), "the message cannot be read"),
    (named(message_annotations=b"\x00\x53\x72\xc1\x05\x02\xa3\x09a"), "the message cannot be read"),
    (
        named(
            message_annotations=section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(2**62)})
        ),
        "the message cannot be read",
    ),
]


@pytest.mark.parametrize(("data", "words"), HOSTILE)
def test_a_section_that_cannot_be_translated_is_refused_in_words(data: bytes, words: str) -> None:
    with pytest.raises(UnreadableError, match=words):
        envelope_codec.park(read_payload(data, 0, GivenIds()).messages[0], "orders")


@pytest.mark.parametrize("name", sorted(RESERVED))
@pytest.mark.parametrize("key", [str, Symbol])
def test_a_message_with_a_reserved_name_is_refused_alone_and_in_a_batch(name: str, key: Any) -> None:
    """A message that already carries one of the four names is refused with a ValueError at any time."""
    data = named(application_properties=section(APPLICATION_PROPERTIES, {key(name): "x"}))
    for payload, message_format in ((data, 0), (batch([named(), data]), BATCH_FORMAT)):
        with pytest.raises(ReservedPropertyError, match=name):
            read_payload(payload, message_format, GivenIds())


def test_a_reserved_name_elsewhere_in_a_message_is_nobodys_business() -> None:
    data = named(application_properties=section(APPLICATION_PROPERTIES, {"note": PATH}), body=write_data(PATH.encode()))
    assert read_payload(data, 0, GivenIds()).data == data


def test_a_batch_that_holds_nothing_or_too_much_is_refused() -> None:
    for count in (0, MAX_BATCH_MESSAGES + 1):
        with pytest.raises(UnreadableError, match="a batch holds 1 to"):
            read_payload(batch([named()] * count), BATCH_FORMAT, GivenIds())


def test_messages_with_ids_are_sent_as_they_came() -> None:
    data = batch([named("1"), named("2")], annotations=section(MESSAGE_ANNOTATIONS, {Symbol("k"): UInt(1)}))
    found = read_payload(data, BATCH_FORMAT, GivenIds())
    assert found.data is data
    assert [message.message_id for message in found.messages] == ["1", "2"]
    assert found.given_ids == []


def test_a_message_without_an_id_gets_one_and_keeps_all_else() -> None:
    bare = Sections(properties=write_properties(Properties(subject="s")), body=BODY).join()
    outer = section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-partition-key"): "p"})
    single = read_payload(bare, 0, GivenIds())
    whole = read_payload(batch([named("1"), bare], annotations=outer), BATCH_FORMAT, GivenIds())
    for data, given_id in ((single.data, single.given_ids[0]), (list(unbatch(whole.data))[1], whole.given_ids[0])):
        assert read_properties(split(data).properties) == Properties(message_id=given_id, subject="s")
        assert split(data).body == BODY
    assert split(whole.data).message_annotations == outer
    assert next(unbatch(whole.data)) == named("1")


def test_the_same_bytes_keep_their_id_until_they_are_accepted() -> None:
    ids, bare = GivenIds(), Sections(body=BODY).join()

    def given_for(data: bytes) -> str:
        return read_payload(data, 0, ids).given_ids[0]

    first = given_for(bare)
    beside = given_for(bare)
    assert beside != first, "two in flight are two messages"
    ids.release(first, accepted=False)
    assert given_for(Sections(body=write_data(b"other")).join()) != first
    assert given_for(bare) == first
    ids.release(first, accepted=True)
    assert given_for(bare) not in (first, beside)


def test_no_more_ids_are_kept_than_the_limit() -> None:
    ids = GivenIds(most=2)
    taken = [(digest, ids.take(digest)) for digest in (b"1", b"2", b"3")]
    for _, given_id in taken:
        ids.release(given_id, accepted=False)
    assert [ids.take(digest) == given_id for digest, given_id in taken] == [False, True, True]


def test_a_message_too_large_for_the_backlog_is_found_before_the_wire() -> None:
    message = envelope_codec.read_message(named(body=write_data(bytes(1000))))
    size = len(envelope_codec.park(message, "orders").data)
    assert not envelope_codec.exceeds(message, "orders", size)
    assert envelope_codec.exceeds(message, "orders", size - 1)


# -- A batch that encodes once is, byte for byte, what the SDK makes of the same messages.


def several() -> list[Sendable]:
    first = ServiceBusMessage(b"x" * 300, message_id="1", session_id="s", application_properties={"a": 1, "b": "two"})
    return [
        first,
        AmqpAnnotatedMessage(data_body=[b"y"], properties={"message_id": "2"}),
        ServiceBusMessage(b"z", message_id="3", partition_key="p"),
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
