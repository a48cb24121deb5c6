"""Messages in and out of their envelope, by the SDK's codec and ours: every type, bit for bit (SPEC.md section 7.2)."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.errors import EnvelopeError, ReservedPropertyError
from paired_servicebus.core.model.envelope import BROKERS, PATH, RESERVED, SCHEDULED, SESSION_ID, TIME_TO_LIVE
from paired_servicebus.pairing import envelope_codec
from paired_servicebus.pairing.envelope_codec import MAX_TTL_MS, park
from paired_servicebus.pairing.sending import sdk_messages
from servicebus_amqp.encoding.codec import (
    Described,
    Int,
    Symbol,
    Timestamp,
    ULong,
    described,
    encode,
    encode_list,
)
from servicebus_amqp.encoding.message_sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    SEQUENCE,
    VALUE,
    Header,
    Properties,
    Sections,
    edit_map,
    encode_pair,
    list_items,
    read_header,
    read_map,
    read_properties,
    split,
    write_header,
    write_properties,
)
from tests.approval import Approve

from ..amqp.values import SYMBOLS, TEXT, VALUES

NOW = 1_800_000_000_000
NAMES = TEXT.filter(lambda name: name not in RESERVED)
TICKS = st.integers(0, 2**45).map(lambda ms: ms * 10_000)
MAPS = st.dictionaries(NAMES, VALUES, max_size=5)
ANNOTATIONS = st.dictionaries(SYMBOLS.filter(lambda name: name not in BROKERS), VALUES, max_size=3)
BODIES = st.one_of(
    st.binary(max_size=300).map(lambda data: described(DATA, encode(data))),
    st.lists(st.binary(max_size=9), min_size=2, max_size=3).map(
        lambda parts: b"".join(described(DATA, encode(part)) for part in parts)
    ),
    VALUES.map(lambda value: described(VALUE, encode(value))),
    st.lists(VALUES, max_size=3).map(lambda values: described(SEQUENCE, encode(values))),
)
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "message_id": st.one_of(TEXT, st.uuids(), st.binary(max_size=9), st.integers(0, 2**64 - 1).map(ULong)),
        "user_id": st.binary(max_size=9),
        "to": TEXT,
        "subject": TEXT,
        "correlation_id": st.one_of(TEXT, st.uuids()),
        "content_type": SYMBOLS,
        "group_sequence": st.integers(0, 2**32 - 1),
        "reply_to_group_id": TEXT,
    },
).map(lambda fields: Properties(**fields))


def section(code: int, values: dict[Any, Any]) -> bytes | None:
    return described(code, encode(values)) if values else None


def named(path: str, session: str | None, ticks: int | None, scheduled: int | None) -> dict[str, Any]:
    """The four properties, as they are on the wire."""
    found: dict[str, Any] = {PATH: path}
    if session is not None:
        found[SESSION_ID] = session
    if ticks is not None:
        found[TIME_TO_LIVE] = Described(Symbol("com.microsoft:timespan"), ticks)
    if scheduled is not None:
        found[SCHEDULED] = Timestamp(scheduled)
    return found


def put_in(own: dict[Any, Any], added: dict[str, Any], draw: Any) -> dict[Any, Any]:
    """Both maps in one, in any order."""
    pairs = draw(st.permutations([*own.items(), *added.items()]))
    return dict(pairs)


def held(annotations: bytes | None, *, number: int = 7, enqueued: int = NOW, usual: bool = True) -> bytes:
    """Annotations as a namespace hands them over."""
    add = [
        encode_pair("x-opt-sequence-number", number if usual else Int(7)),
        encode_pair("x-opt-enqueued-time", Timestamp(enqueued)),
        encode_pair("x-opt-locked-until", Timestamp(NOW + 60_000)),
    ]
    found = edit_map(annotations, MESSAGE_ANNOTATIONS, add=b"".join(add), added=3)
    assert found is not None
    return found


LOCK_TOKEN = encode_pair("x-opt-lock-token", uuid.UUID(int=5))


@st.composite
def cases(draw: Any) -> tuple[Sections, bytes]:
    """What a sender meant, and how it comes out of a backlog queue."""
    session, ticks = draw(st.one_of(st.none(), TEXT)), draw(st.one_of(st.none(), TICKS))
    scheduled = draw(st.one_of(st.none(), st.integers(0, 4 * 10**12)))
    own, annotations = draw(MAPS), draw(ANNOTATIONS)
    header = Header(*draw(st.tuples(st.none() | st.booleans(), st.none() | st.integers(0, 9))))
    properties = draw(PROPERTIES)
    delivery = section(DELIVERY_ANNOTATIONS, draw(ANNOTATIONS))
    body, footer = draw(BODIES), section(FOOTER, draw(ANNOTATIONS))
    meant: dict[str, Any] = {"group_id": session}
    ms = None if ticks is None else ticks // 10_000
    if ms is not None:
        meant |= {"creation_time": NOW, "absolute_expiry_time": min(NOW + ms, envelope_codec.MAX_EXPIRY_MS)}
    at = {} if scheduled is None else {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(scheduled)}
    original = Sections(
        written(write_header, header._replace(ttl=None if ms is None else min(ms, MAX_TTL_MS))),
        delivery,
        section(MESSAGE_ANNOTATIONS, {**annotations, **at}),
        written(write_properties, properties._replace(**meant)),
        section(APPLICATION_PROPERTIES, own),
        body,
        footer,
    )
    backlog = Sections(
        write_header(header._replace(delivery_count=draw(st.integers(0, 9)))),
        edit_map(delivery, DELIVERY_ANNOTATIONS, add=LOCK_TOKEN, added=1),
        held(section(MESSAGE_ANNOTATIONS, annotations), usual=draw(st.booleans())),
        written(write_properties, properties),
        section(APPLICATION_PROPERTIES, put_in(own, named("orders/EU", session, ticks, scheduled), draw)),
        body,
        footer,
    )
    return original, backlog.join()


def written(write: Any, fields: Any) -> bytes | None:
    """A list section, none where all its fields are null."""
    return write(fields) if any(field is not None for field in fields) else None


@given(case=cases())
def test_whatever_its_sender_wrote_comes_back_bit_for_bit(case: tuple[Sections, bytes]) -> None:
    """Nothing else may change: [...] every application property survive the round trip: of any AMQP type and bit for
    bit through our own AMQP pump. Dead-lettered ones can be re-driven: without what dead-lettering added."""
    original, backlog = case
    found = envelope_codec.open_envelope(backlog)
    assert found.enclosed.path == "orders/EU"
    assert (found.held.sequence_number, found.held.enqueued_ms) == (7, NOW)
    moved = split(envelope_codec.restore_message(found, now_ms=NOW))
    assert moved._replace(application_properties=None) == original._replace(application_properties=None)
    pairs = [pairs_of(one.application_properties) for one in (moved, original)]
    assert pairs[0] == pairs[1]
    lying = split(backlog)
    reasons = encode("DeadLetterReason") + encode("Undeliverable")
    dead = edit_map(lying.application_properties, APPLICATION_PROPERTIES, add=reasons, added=1)
    again = split(envelope_codec.strip_dead_letter(lying._replace(application_properties=dead).join()))
    assert again.application_properties == lying.application_properties
    assert read_header(again.header).delivery_count is None
    home = envelope_codec.restore_message(envelope_codec.open_envelope(again.join()), now_ms=NOW)
    assert split(home).body == original.body


def pairs_of(encoded: bytes | None) -> list[bytes]:
    """The pairs of a map section, each as its bytes, sorted: their order says nothing."""
    from servicebus_amqp.encoding.codec import skip
    from servicebus_amqp.encoding.message_sections import _map_bounds

    if encoded is None:
        return []
    count, at, _ = _map_bounds(encoded, 3)
    found = []
    for _ in range(count // 2):
        start, at = at, skip(encoded, skip(encoded, at))
        found.append(encoded[start:at])
    return sorted(found)


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
            WORD, st.one_of(WORD, st.integers(-(2**31), 2**31 - 1), st.booleans(), st.uuids(), st.floats(0, 1))
        ),
    },
)


def sent(message: AmqpAnnotatedMessage) -> bytes:
    out = bytearray()
    encode_payload(out, PyamqpTransport.to_outgoing_amqp_message(message))
    return bytes(out)


@given(body=st.binary(max_size=200), fields=FIELDS)
def test_what_the_sdk_parked_comes_out_as_the_sdk_would_have_sent_it(body: bytes, fields: dict[str, Any]) -> None:
    message = ServiceBusMessage(body, **fields)
    direct = split(sent(message.raw_amqp_message))
    parked_ = envelope_codec.park(sdk_messages.encoded(message), "orders").sections
    backlog = parked_._replace(message_annotations=held(parked_.message_annotations)).join()
    found = envelope_codec.open_envelope(backlog)
    moved = split(envelope_codec.restore_message(found, now_ms=NOW))
    assert found.message_id == fields["message_id"]
    assert moved.body == direct.body
    assert pairs_of(moved.application_properties) == pairs_of(direct.application_properties)
    assert read_map(moved.message_annotations) == read_map(direct.message_annotations)
    assert read_header(moved.header).ttl == read_header(direct.header).ttl
    kept = [fields_of(one.properties) for one in (moved, direct)]
    assert kept[0] == kept[1]


def fields_of(properties: bytes | None) -> list[bytes]:
    """The properties, each as its bytes, without the two times that say when a message was sent."""
    assert properties is not None
    found = list_items(properties, 13)
    return found[:8] + found[10:]


# -- the envelope of others ------------------------------------------------------------------------------------------


def backlog(added: dict[Any, Any], **sections: Any) -> bytes:
    properties = write_properties(Properties(message_id="1"))
    return Sections(
        **{
            "message_annotations": held(None),
            "properties": properties,
            "application_properties": section(APPLICATION_PROPERTIES, added),
            "body": described(DATA, encode(b"x")),
            **sections,
        }
    ).join()


def test_encodings_that_are_not_the_smallest_are_read_and_left_as_they_are() -> None:
    """The general reader stays for encodings that are not the smallest."""
    wide = b"\xb1\x00\x00\x00\x09" + PATH.encode() + b"\xb3\x00\x00\x00\x06orders"
    mine = b"\xb1\x00\x00\x00\x01n\x80\x00\x00\x00\x00\x00\x00\x00\x07"
    pairs = mine + wide
    size = len(pairs) + 4
    described_by = b"\x00\x80\x00\x00\x00\x00\x00\x00\x00"
    properties = described_by + b"\x74\xd1" + size.to_bytes(4, "big") + b"\x00\x00\x00\x04" + pairs
    listed = described_by + b"\x73\xd0\x00\x00\x00\x0b\x00\x00\x00\x01\xb1\x00\x00\x00\x02id"
    data = backlog({}, application_properties=properties, properties=listed)
    found = envelope_codec.open_envelope(data)
    moved = split(envelope_codec.restore_message(found, now_ms=NOW))
    assert (found.enclosed.path, found.message_id) == ("orders", "id")
    assert mine in (moved.application_properties or b"")
    assert moved.properties == listed


def test_a_name_inside_of_another_propertys_value_is_no_destination() -> None:
    """The destination is what stands under x-ms-path, whatever bytes a sender puts elsewhere."""
    bait = b"\xa1\x09x-ms-path\xa1\x05bogus"
    data = backlog({PATH: "orders", "last": bait})
    found = envelope_codec.open_envelope(data)
    assert found.enclosed.path == "orders"
    assert read_map(split(envelope_codec.restore_message(found, now_ms=NOW)).application_properties) == {"last": bait}


MALFORMED: list[tuple[bytes, str]] = [
    (b"", "'x-ms-path' is missing"),
    (b"\x00\x53", "the message cannot be read"),
    (b"\x00\x53\x79\xc0\x01\x00", "the message cannot be read"),
    (backlog({}), "'x-ms-path' is missing"),
    (backlog({PATH: 7}), "'x-ms-path' is of type int"),
    (backlog({PATH: ""}), "'x-ms-path' is empty"),
    (backlog({PATH: "orders", SESSION_ID: 7}), "'x-ms-sessionid' is of type int"),
    (backlog({PATH: "orders", TIME_TO_LIVE: "1 h"}), "'x-ms-timetolive' is of type str"),
    (backlog({PATH: "orders", TIME_TO_LIVE: Described(Symbol("a:b"), 7)}), "'x-ms-timetolive' is of type Described"),
    (backlog({PATH: "orders", SCHEDULED: 2**63 - 1}), "is out of range"),
    (backlog({}, application_properties=b"\x00\x53\x74\xc1\x0e\x02\xa1\x09x-ms-path\xa1\x01\xff"), "cannot be read"),
    (
        backlog({}, application_properties=b"\x00\x53\x74\xc1\x1d\x04" + 2 * b"\xa1\x09x-ms-path\xa1\x01a"),
        "twice",
    ),
    (backlog({PATH: "orders"}, properties=b"\x00\x53\x73\xc0\x03\x01\xa1\xff"), "cannot be read"),
]


@pytest.mark.parametrize(("data", "words"), MALFORMED)
def test_what_cannot_be_translated_back_says_why(data: bytes, words: str) -> None:
    """No x-ms-path, or a property of the wrong type: dead-letter in the backlog queue with a reason that says which."""
    with pytest.raises(EnvelopeError, match=words):
        envelope_codec.restore_message(envelope_codec.open_envelope(data), now_ms=NOW)


def read_or_refused(data: bytes) -> str:
    """Where it goes, or why it cannot; nothing else may be raised."""
    try:
        found = envelope_codec.open_envelope(data)
        envelope_codec.restore_message(found, now_ms=NOW)
    except EnvelopeError as error:
        return str(error)
    return found.enclosed.path


@given(st.binary(max_size=200))
def test_anything_is_either_read_or_refused_in_words(data: bytes) -> None:
    assert read_or_refused(data)
    envelope_codec.broker_properties(data)
    envelope_codec.read_message_id(data)


@given(case=cases(), cut=st.floats(0, 1), flipped=st.integers(0, 255))
def test_a_damaged_message_is_either_read_or_refused_in_words(
    case: tuple[Sections, bytes], cut: float, flipped: int
) -> None:
    data = bytearray(case[1])
    data[int(cut * (len(data) - 1))] ^= flipped
    assert read_or_refused(bytes(data))


# -- time to live ----------------------------------------------------------------------------------------------------


def test_restart_gives_the_full_time_to_live_and_elapsed_what_is_left() -> None:
    """TTL restored: the full original value ("restart") or what is left ("elapsed"; used up: dead-lettered)."""
    span = Described(Symbol("com.microsoft:timespan"), 60 * 10_000_000)
    found = envelope_codec.open_envelope(backlog({PATH: "orders", TIME_TO_LIVE: span}))
    now = NOW + 20_000
    assert read_header(split(envelope_codec.restore_message(found, now_ms=now)).header).ttl == 60_000
    assert read_header(split(envelope_codec.restore_message(found, now_ms=now, elapsed=True)).header).ttl == 40_000
    with pytest.raises(EnvelopeError, match="expired: its time to live of 0:01:00 passed in the backlog"):
        envelope_codec.restore_message(found, now_ms=NOW + 60_000, elapsed=True)


@given(
    ttl=st.integers(1, 10**11),
    enqueued=st.integers(1, NOW),
    scheduled=st.none() | st.integers(0, 2 * NOW),
    now=st.integers(0, 2 * NOW),
)
def test_elapsed_counts_from_the_later_of_enqueued_and_scheduled(
    ttl: int, enqueued: int, scheduled: int | None, now: int
) -> None:
    """Time to live counts from the later of enqueued and scheduled, in the backlog as at the destination."""
    parked = backlog(named("orders", None, ttl * 10_000, scheduled), message_annotations=held(None, enqueued=enqueued))
    found = envelope_codec.open_envelope(parked)
    left = ttl - max(0, now - max(enqueued, scheduled or 0))
    if left <= 0:
        with pytest.raises(EnvelopeError, match="expired"):
            envelope_codec.restore_message(found, now_ms=now, elapsed=True)
        return
    restored = split(envelope_codec.restore_message(found, now_ms=now, elapsed=True))
    properties = read_properties(restored.properties)
    assert properties.creation_time == now
    assert properties.absolute_expiry_time is not None
    assert abs(properties.absolute_expiry_time - now - left) <= 1  # times in seconds are floats
    assert read_header(restored.header).ttl == min(properties.absolute_expiry_time - now, MAX_TTL_MS)


DAY_MS = 86_400_000


@pytest.mark.parametrize("days", [49, 60, 3000])
def test_a_time_to_live_beyond_the_headers_longest_comes_back_whole(days: int) -> None:
    """One above 49.7 days, the most that a header can say, comes back whole in the expiry times of the properties."""
    ttl = min(days * DAY_MS, MAX_TTL_MS)
    times = Properties(message_id="1", absolute_expiry_time=NOW + days * DAY_MS, creation_time=NOW)
    sent = write_header(Header(ttl=ttl)) + write_properties(times) + described(DATA, encode(b"x"))
    parked = envelope_codec.park(envelope_codec.read_message(sent), "orders")
    found = envelope_codec.open_envelope(parked.data)
    assert found.enclosed.time_to_live == timedelta(days=days)
    restored = split(envelope_codec.restore_message(found, now_ms=NOW + 5))
    properties = read_properties(restored.properties)
    assert read_header(restored.header).ttl == ttl
    assert properties.absolute_expiry_time == NOW + 5 + days * DAY_MS
    assert properties.creation_time == NOW + 5


def test_a_large_body_is_a_view_of_what_came() -> None:
    """It would be copied once more on its way."""
    body = described(DATA, encode(b"x" * 20_000))
    data = backlog({PATH: "orders", SESSION_ID: "s"}, body=body)
    moved = envelope_codec.restore_message(envelope_codec.open_envelope(data), now_ms=NOW)
    assert not isinstance(moved, bytes)
    views = [piece for piece in moved if isinstance(piece, memoryview)]
    assert [view.obj is data for view in views] == [True]
    whole = split(b"".join(moved))
    assert (whole.body, read_properties(whole.properties).group_id) == (body, "s")


# -- dead letters ----------------------------------------------------------------------------------------------------


def test_a_list_that_lies_about_its_size_is_refused() -> None:
    lying = b"\x00\x53\x73" + encode_list([encode("id")])[:-1] + b"\x40"
    with pytest.raises(EnvelopeError):
        envelope_codec.restore_message(
            envelope_codec.open_envelope(backlog({PATH: "orders", SESSION_ID: "s"}, properties=lying[:-2])), now_ms=NOW
        )


def test_application_properties_without_anything_inside_are_said_to_be_unreadable() -> None:
    """A property of the wrong type: dead-letter in the backlog queue with a reason, and go on."""
    with pytest.raises(EnvelopeError):
        envelope_codec.open_envelope(bytes.fromhex("005374c100"))


# -- SDK messages in and out of their envelope, through the SDK's own encoder and decoder ----------------------------


def over_the_wire(message: AmqpAnnotatedMessage) -> AmqpAnnotatedMessage:
    """As a receiver of the SDK gets what a sender of the SDK sent."""
    out = bytearray()
    encode_payload(out, PyamqpTransport.to_outgoing_amqp_message(message))
    return AmqpAnnotatedMessage(message=decode_payload(memoryview(out)))


def in_backlog(message: sdk_messages.Sendable) -> AmqpAnnotatedMessage:
    """As a receiver of the SDK gets what was parked for orders."""
    return AmqpAnnotatedMessage(message=decode_payload(memoryview(park(sdk_messages.encoded(message), "orders").data)))


SDK_VALUE = st.one_of(WORD, st.integers(-(2**31), 2**31 - 1), st.booleans(), st.uuids())
"""Not binary: the SDK makes a string of it, or fails."""
SDK_BODIES = st.one_of(
    st.builds(lambda body: {"data_body": body}, st.lists(st.binary(max_size=50), min_size=1, max_size=3)),
    st.builds(
        lambda body: {"value_body": body}, st.one_of(SDK_VALUE, st.lists(st.integers(0, 9), min_size=1, max_size=3))
    ),
    st.builds(
        lambda body: {"sequence_body": body},
        st.lists(st.lists(SDK_VALUE, min_size=1, max_size=3), min_size=1, max_size=2),
    ),
)
ANNOTATED = st.fixed_dictionaries(
    {"properties": st.fixed_dictionaries({"message_id": WORD}, optional={"group_id": WORD, "subject": WORD})},
    optional={
        "header": st.fixed_dictionaries(
            {}, optional={"time_to_live": st.integers(0, 2**31), "priority": st.integers(0, 9)}
        ),
        "annotations": st.dictionaries(st.sampled_from(["x-opt-partition-key", "x-mine"]), WORD, min_size=1),
        "application_properties": st.dictionaries(WORD, SDK_VALUE, min_size=1, max_size=3),
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


MESSAGES = st.one_of(
    st.builds(lambda body, more: ServiceBusMessage(body, **more).raw_amqp_message, st.binary(max_size=200), FIELDS),
    st.builds(lambda body, more: AmqpAnnotatedMessage(**body, **more), SDK_BODIES, ANNOTATED),
)


@given(original=MESSAGES)
def test_nothing_else_may_change_through_the_sdk(original: AmqpAnnotatedMessage) -> None:
    """Section 7.2: "body and its kind, … partition key and every application property survive the round trip"; through
    an SDK pump what the SDK can carry: it makes bytes of strings in a body, and strings of bytes in properties. The
    message is changed so that messages for many entities coexist in one queue; the caller's object never is."""
    direct = over_the_wire(original)
    parked = in_backlog(sdk_messages.outgoing(original)[0])
    assert parked.properties is not None
    assert (parked.properties.group_id, parked.properties.absolute_expiry_time) == (None, None)
    assert parked.header is None or parked.header.time_to_live is None
    assert sdk_messages.SCHEDULED_ANNOTATION not in (parked.annotations or {})
    enclosed = sdk_messages.destination_of(parked)
    assert enclosed.path == "orders"
    assert sections(over_the_wire(sdk_messages.unpark(parked, enclosed))) == sections(direct)
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
