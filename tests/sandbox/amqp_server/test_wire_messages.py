"""Messages between wire and broker: what is read agrees with the general readers, the rest stays bit for bit."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.amqp.values import write_annotations

from servicebus_amqp.encoding.codec import (
    Byte,
    Char,
    Decimal64,
    Described,
    Float,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    described,
    encode,
    encode_map,
)
from servicebus_amqp.encoding.message_sections import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    Header,
    Properties,
    Sections,
    batch,
    read_header,
    read_map,
    read_properties,
    split,
    write_application_properties,
    write_data,
    write_header,
    write_properties,
    write_value,
)
from servicebus_amqp.protocol_errors import DecodeError
from servicebus_sandbox.amqp_server.message_codec import (
    AmqpPropertyCodec,
    read_batch,
    read_message,
    show_message,
    write_message,
)
from servicebus_sandbox.broker.broker_errors import EvaluationError, Unprocessable
from servicebus_sandbox.broker.message import PING_CONTENT_TYPE, Message, MessageState, StoredMessage
from servicebus_sandbox.broker.subscription_rules.message_properties import Value
from servicebus_sandbox.broker.subscription_rules.rules import Rule, SqlAction, SqlFilter
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace
from servicebus_sandbox.serving.amqp_conditions import refusal_of

TOKEN = bytes(range(16))
texts = st.text(st.characters(codec="utf-8"), max_size=300)
symbols = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
ids = st.one_of(st.none(), texts, st.binary(max_size=40), st.uuids(), st.integers(0, 2**64 - 1).map(ULong))
longs = st.integers(-(2**63), 2**63 - 1)
values = st.one_of(
    texts,
    longs,
    st.binary(max_size=20),
    st.uuids(),
    st.booleans(),
    st.sampled_from([UByte(7), Char("é"), Decimal64(b"12345678"), Timestamp(5), Symbol("s"), None]),
)
headers = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={
            "durable": st.booleans(),
            "priority": st.integers(0, 255),
            "ttl": st.integers(1, 2**32 - 1),
            "first_acquirer": st.booleans(),
            "delivery_count": st.integers(0, 2**32 - 1),
        },
    ).map(lambda fields: Header(**fields)),
)
properties = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={
            "message_id": ids,
            "to": texts,
            "subject": texts,
            "correlation_id": ids,
            "content_type": symbols,
            "creation_time": longs,
            "group_id": texts,
            "group_sequence": st.integers(0, 2**32 - 1),
        },
    ).map(lambda fields: Properties(**fields)),
)
bodies = st.one_of(st.binary(max_size=400).map(write_data), values.map(write_value))


@st.composite
def messages(draw):
    header, found = draw(headers), draw(properties)
    annotations = draw(st.dictionaries(symbols.map(lambda name: f"x-{name}"), values, max_size=3))
    application = draw(st.dictionaries(texts, values, max_size=3))
    delivery = draw(st.sampled_from([None, {"x-hop": 1}]))
    return Sections(
        header=None if header is None else write_header(header),
        delivery_annotations=write_annotations(DELIVERY_ANNOTATIONS, delivery) if delivery else None,
        message_annotations=write_annotations(MESSAGE_ANNOTATIONS, annotations) if annotations else None,
        properties=None if found is None else write_properties(found),
        application_properties=write_application_properties(application) if application else None,
        body=draw(bodies),
        footer=draw(st.sampled_from([None, described(0x78, encode({Symbol("f"): 1}))])),
    )


def stored(data: bytes, **fields) -> StoredMessage:
    return StoredMessage(read_message(data), 42, 1000.5, **fields)


@given(messages())
def test_what_is_read_agrees_with_the_general_readers(sections):
    message = read_message(sections.join())
    expected, header = read_properties(sections.properties), read_header(sections.header)
    assert (message.message_id, message.session_id, message.content_type) == (
        expected.message_id,
        expected.group_id,
        expected.content_type,
    )
    assert type(message.message_id) is type(expected.message_id)
    assert message.ttl == (None if header.ttl is None else header.ttl / 1000)
    assert message.size == len(sections.join())


@given(properties, st.integers(3, 400), st.integers(0, 255))
def test_damaged_properties_are_read_as_the_general_reader_does_or_are_a_decode_error(found, at, byte):
    section = write_properties(found or Properties())
    damaged = section[:at] + bytes([byte]) + section[at + 1 :] if at < len(section) else section[:at]
    try:
        message = read_message(damaged)
    except DecodeError:
        with pytest.raises(DecodeError):
            read_properties(split(damaged).properties)
        return
    if message.payload.properties == damaged:
        with suppress(DecodeError):  # of fields behind those that are wanted here
            expected = read_properties(damaged)
            assert (message.message_id, message.session_id, message.content_type) == (
                expected.message_id,
                expected.group_id,
                expected.content_type,
            )


@given(messages(), st.integers(0, 1000))
def test_what_the_sender_wrote_goes_out_as_it_came(sections, failures):
    out = split(write_message(stored(sections.join(), lock_token=TOKEN, locked_until=1060.25, delivery_count=failures)))
    assert (out.properties, out.application_properties, out.body, out.footer) == (
        sections.properties,
        sections.application_properties,
        sections.body,
        sections.footer,
    )
    before, after = read_header(sections.header), read_header(out.header)
    assert after == before._replace(first_acquirer=None, delivery_count=failures)
    assert read_map(out.message_annotations) == {
        **read_map(sections.message_annotations),
        "x-opt-sequence-number": 42,
        "x-opt-enqueued-time": 1_000_500,
        "x-opt-locked-until": 1_060_250,
    }
    lock = {"x-opt-lock-token": UUID(bytes_le=TOKEN)}
    assert read_map(out.delivery_annotations) == {**read_map(sections.delivery_annotations), **lock}


@given(messages())
def test_what_is_not_locked_has_no_lock_token(sections):
    """Clients tell empty annotations, which the service puts on messages that are settled on delivery, from none."""
    out = split(write_message(stored(sections.join())))
    assert out.delivery_annotations == sections.delivery_annotations or sections.delivery_annotations is None
    assert read_map(out.delivery_annotations) == read_map(sections.delivery_annotations)
    assert out.delivery_annotations is not None


@given(messages())
def test_who_only_looks_is_not_told_of_a_lock(sections):
    free, held = stored(sections.join()), stored(sections.join(), lock_token=TOKEN, locked_until=1060.25)
    assert show_message(held) == show_message(free)
    assert split(show_message(held)).delivery_annotations == sections.delivery_annotations


@given(messages())
def test_a_message_sent_again_sheds_what_the_broker_put_on_it(sections):
    first = write_message(stored(sections.join(), lock_token=TOKEN, enqueued_sequence_number=7))
    again = split(write_message(stored(first, lock_token=TOKEN)))
    once = split(write_message(stored(sections.join(), lock_token=TOKEN)))
    assert again.message_annotations == once.message_annotations
    assert again.delivery_annotations == once.delivery_annotations


OURS = ("x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-locked-until", "x-opt-message-state")
our_values = st.one_of(longs, longs.map(Timestamp), st.just("text"), st.just(UInt(3)))


@given(
    st.dictionaries(st.sampled_from(OURS), our_values),
    st.dictionaries(st.sampled_from(["x-opt-partition-key", "x-mine"]), texts),
    st.booleans(),
)
def test_only_the_brokers_annotations_are_shed(ours, others, are_ours_first):
    both = {**ours, **others} if are_ours_first else {**others, **ours}
    read = read_message(
        Sections(message_annotations=write_annotations(MESSAGE_ANNOTATIONS, both), body=write_data(b"")).join()
    )
    assert read_map(read.payload.message_annotations) == others
    assert (read.payload.message_annotations is None) is (not others)
    assert read.partition_key == others.get("x-opt-partition-key")


@given(st.lists(st.sampled_from(OURS[:3]), max_size=4))
def test_annotations_with_a_key_twice_are_malformed_also_where_they_are_the_brokers(names):
    pairs = b"".join(encode(Symbol(name)) + encode(7 << 40) for name in names)
    data = Sections(message_annotations=described(MESSAGE_ANNOTATIONS, encode_map(2 * len(names), pairs))).join()
    if len(set(names)) == len(names):
        assert read_message(data).payload.message_annotations is None
    else:
        with pytest.raises(DecodeError, match="two keys"):
            read_message(data)


@pytest.mark.parametrize("damage", [-1, 1])
@pytest.mark.parametrize("place", [4, 5, 7])
def test_the_brokers_annotations_are_malformed_where_a_size_is_wrong(place, damage):
    section = bytearray(write_annotations(MESSAGE_ANNOTATIONS, dict.fromkeys(OURS[:3], 7 << 40)))
    section[place] += damage
    with pytest.raises(DecodeError):
        read_message(bytes(section))


def list32(code: int, *items: bytes) -> bytes:
    body = b"".join(items)
    head = (len(body) + 4).to_bytes(4, "big") + len(items).to_bytes(4, "big")
    return described(code, b"\xd0" + head + body)


def test_encodings_that_are_not_the_smallest_are_read_too():
    null, str32 = b"\x40", b"\xb1\x00\x00\x00\x02id"
    group = b"\xb1\x00\x00\x00\x01g"
    section = list32(PROPERTIES, str32, *[null] * 5, encode(Symbol("text/plain")), *[null] * 3, group)
    wide_descriptor = b"\x00\x80" + HEADER.to_bytes(8, "big") + b"\xc0\x08\x03\x40\x40\x70\x00\x00\x03\xe8"
    message = read_message(Sections(header=wide_descriptor, properties=section, body=write_data(b"")).join())
    assert (message.message_id, message.content_type, message.session_id) == ("id", "text/plain", "g")
    assert message.ttl == 1.0
    out = split(write_message(StoredMessage(message, 1, 0.0, delivery_count=2)))
    assert read_header(out.header) == Header(ttl=1000, delivery_count=2)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"junk",
        list32(PROPERTIES, *[b"\x40"] * 10, encode(5)),
        list32(HEADER, b"\x40", b"\x40", encode("soon")),
        described(PROPERTIES, b"\xc0\x02\x0b\x40"),
        write_annotations(MESSAGE_ANNOTATIONS, {"x-opt-scheduled-enqueue-time": "soon"}),
    ],
)
def test_what_is_malformed_is_a_decode_error(data):
    with pytest.raises(DecodeError):
        read_message(data)


def test_times_and_keys_come_from_annotations():
    annotations = {"x-opt-scheduled-enqueue-time": Timestamp(5_500), "x-opt-partition-key": "p"}
    section = write_annotations(MESSAGE_ANNOTATIONS, annotations)
    message = read_message(Sections(message_annotations=section, body=write_data(b"")).join())
    assert (message.scheduled_at, message.partition_key) == (5.5, "p")
    assert (
        read_map(split(write_message(StoredMessage(message, 1, 0.0))).message_annotations).items()
        >= annotations.items()
    )


def test_rare_annotations_are_written_where_they_say_something():
    data = Sections(body=write_data(b"")).join()
    deferred = stored(data, state=MessageState.DEFERRED, enqueued_sequence_number=3, dead_letter_source="q")
    annotations = read_map(split(write_message(deferred)).message_annotations)
    assert annotations["x-opt-message-state"] == 1
    assert annotations["x-opt-enqueue-sequence-number"] == 3
    assert annotations["x-opt-deadletter-source"] == "q"
    assert "x-opt-locked-until" not in annotations


def test_a_delivered_ping_is_marked_and_the_mark_does_not_travel_on():
    ping = Sections(
        properties=write_properties(Properties(content_type=PING_CONTENT_TYPE)), body=write_data(b"")
    ).join()
    once = write_message(stored(ping))
    assert read_map(split(once).message_annotations)["x-opt-ping"] is True
    assert read_map(split(write_message(stored(once))).message_annotations)["x-opt-ping"] is True
    assert "x-opt-ping" not in read_map(read_message(once).payload.message_annotations)


def test_added_properties_join_the_senders():
    section = write_application_properties({"a": UInt(1), "b": Described(Symbol("d"), 2)})
    message = stored(
        Sections(application_properties=section, body=write_data(b"")).join(), added={"why": "late", "a": 2}
    )
    out = split(write_message(message))
    assert read_map(out.application_properties) == {"a": 2, "b": Described(Symbol("d"), 2), "why": "late"}
    assert out.application_properties is not None
    assert out.application_properties.startswith(b"\x00\x53" + bytes([APPLICATION_PROPERTIES]))


@given(st.lists(messages(), min_size=1, max_size=4))
def test_a_batch_is_its_messages(found):
    encoded = [sections.join() for sections in found]
    read = read_batch(batch(encoded))
    assert [message.payload for message in read] == [read_message(data).payload for data in encoded]
    assert [message.size for message in read] == [len(data) for data in encoded]


def test_a_batch_of_something_else_is_a_decode_error():
    with pytest.raises(DecodeError):
        read_batch(write_value(UUID(int=1)))


def test_application_properties_that_cannot_be_read_give_way_to_the_reasons():
    """A dead letter whose sender wrote no map there would end the connection of whoever looks at it."""
    added = {"DeadLetterReason": "Undeliverable"}
    message = stored(described(APPLICATION_PROPERTIES, encode([1])), added=added)
    for data in (write_message(message), show_message(message)):
        assert read_map(split(data).application_properties) == added


@pytest.mark.parametrize(
    "sections",
    [
        Sections(write_header(Header(ttl=0)), body=write_data(b"x")),
        Sections(application_properties=write_application_properties({"big": "x" * 32_769}), body=write_data(b"x")),
    ],
)
def test_a_message_that_the_service_can_never_accept_is_unprocessable(sections):
    """Traced: a time to live of 0 and a property above 32 KB get amqp:internal-error, as if the service had failed."""
    with pytest.raises(Unprocessable) as raised:
        read_message(sections.join())
    assert refusal_of(raised.value).condition == "amqp:internal-error"


def test_many_properties_below_32_kb_are_accepted():
    properties = {f"p{number}": "x" * 32_000 for number in range(3)}
    assert read_message(
        Sections(application_properties=write_application_properties(properties), body=write_data(b"x")).join()
    )


# Messages opened for rules and closed again: types kept, what is changed written, nothing else touched.


ID = UUID(int=5)
RAW = {
    "text": "x",
    "long": 5,
    "small": Byte(5),
    "huge": ULong(2**64 - 1),
    "float": Float(1.5),
    "time": Timestamp(1_500),
    "span": Described(Symbol("com.microsoft:timespan"), 10_000_000),
    "offset": Described(Symbol("com.microsoft:datetime-offset"), 621355968000000000),
    "uri": Described(Symbol("com.microsoft:uri"), "http://a"),
    "symbol": Symbol("s"),
    "id": ID,
    "binary": b"\x01",
    "flag": True,
    "none": None,
    "decimal": Decimal64(bytes(8)),
    "beyond": Timestamp(2**62),
}
SEEN: dict[str, Value] = {
    "text": "x",
    "long": 5,
    "small": 5,
    "huge": 2**64 - 1,
    "float": 1.5,
    "time": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
    "span": timedelta(seconds=1),
    "offset": datetime(1970, 1, 1, tzinfo=UTC),
    "uri": "http://a",
    "symbol": "s",
    "id": ID,
    "binary": b"\x01",
    "flag": True,
    "none": None,
    "decimal": None,
    "beyond": None,
}
CODEC = AmqpPropertyCodec()


def message(user: dict[object, object] | None = None, **properties: object) -> Message:
    sections = Sections(
        header=write_header(Header(durable=True, ttl=UInt(5000))),
        message_annotations=write_annotations(0x72, {"x-opt-partition-key": "p", "mine": 1}),
        properties=write_properties(Properties(**properties)),
        application_properties=write_application_properties(user or {}),  # type: ignore[arg-type]
        body=write_data(b"body"),
    )
    return read_message(sections.join())


def test_every_type_is_read() -> None:
    assert CODEC.read(message(dict(RAW))).user == SEEN


def test_keys_may_be_binary() -> None:
    found = message({b"key": 1, "other": 2})
    assert CODEC.read(found).user == {"key": 1, "other": 2}
    properties = CODEC.read(found)
    properties.set_user("other", 3)
    written = CODEC.write(found, properties)
    assert read_map(written.payload.application_properties) == {b"key": 1, "other": 3}


def test_system_properties_are_read() -> None:
    found = CODEC.read(
        message(
            message_id=ID,
            to="to",
            subject="label",
            reply_to="reply",
            correlation_id=ULong(7),
            content_type="text/plain",
            group_id="session",
            reply_to_group_id="back",
        )
    ).system
    assert {name: value for name, value in found.items() if value is not None and name != "size"} == {
        "messageid": str(ID),
        "to": "to",
        "label": "label",
        "replyto": "reply",
        "correlationid": "7",
        "contenttype": "text/plain",
        "sessionid": "session",
        "replytosessionid": "back",
        "partitionkey": "p",
        "timetolive": timedelta(seconds=5),
    }


def test_only_what_is_changed_is_written() -> None:
    before = message(dict(RAW), message_id=ID, subject="label")
    properties = CODEC.read(before)
    properties.set_user("text", "y")
    properties.remove_user("flag")
    properties.set_user("new", timedelta(seconds=2))
    after = CODEC.write(before, properties).payload
    left = {name: value for name, value in RAW.items() if name != "flag"}
    expected = left | {"text": "y", "new": Described(Symbol("com.microsoft:timespan"), 20_000_000)}
    found = read_map(after.application_properties)
    assert found == expected
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in expected.items()
    }
    assert after._replace(application_properties=None) == before.payload._replace(application_properties=None)


def test_system_properties_are_written_where_they_belong() -> None:
    before = message(message_id=ID, subject="label", group_id="a")
    properties = CODEC.read(before)
    for name, value in {"label": "l", "sessionid": "b", "partitionkey": None, "timetolive": timedelta(1)}.items():
        properties.set_system(name, value)  # type: ignore[arg-type]
    after = CODEC.write(before, properties)
    assert read_properties(after.payload.properties) == Properties(message_id=ID, subject="l", group_id="b")
    assert read_map(after.payload.message_annotations) == {"mine": 1}
    assert read_header(after.payload.header) == Header(durable=True, ttl=86_400_000)
    assert (after.session_id, after.partition_key, after.ttl, after.message_id) == ("b", None, 86400.0, ID)
    assert after.size == after.payload.size != before.size


def test_malformed_properties_are_an_evaluation_error() -> None:
    broken = message({"a": 1})
    broken.payload = broken.payload._replace(application_properties=b"\x00\x53\x74\xc1\x05\x02")
    with pytest.raises(EvaluationError, match="malformed"):
        CODEC.read(broken)


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=9)
    | st.binary(max_size=9)
    | st.uuids()
    | st.datetimes(timezones=st.just(UTC)).map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000))
    | st.timedeltas(timedelta(days=-9999), timedelta(days=9999))
)


@given(st.dictionaries(st.text(min_size=1, max_size=9), VALUES, max_size=5))
def test_what_an_action_sets_is_read_back(user: dict[str, Value]) -> None:
    before = message({"old": 1})
    properties = CODEC.read(before)
    properties.user = dict(user)
    assert CODEC.read(CODEC.write(before, properties)).user == user


def test_rules_on_messages_from_the_wire() -> None:
    namespace = BrokerNamespace("n", clock=lambda: 5.0, codec=CODEC)
    topic = namespace.create_topic("t")
    rule = Rule(name="r", filter=SqlFilter("small = 5 AND sys.Label = 'l'"), action=SqlAction("SET small = small + 1"))
    taken = namespace.create_subscription("t", "s", first_rule=rule)
    topic.intake.send([message(dict(RAW), subject="l"), message(dict(RAW), subject="m")])
    (stored,) = taken.messages.peek(0, 9)
    found = read_map(stored.message.payload.application_properties)
    assert (found["small"], found["RuleName"]) == (6, "r")
