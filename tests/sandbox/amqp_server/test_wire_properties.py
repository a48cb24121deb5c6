"""Messages opened for rules and closed again: types kept, what is changed written, nothing else touched."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.amqp.annotations import write_annotations

from servicebus_amqp.encoding.codec import Byte, Decimal64, Described, Float, Symbol, Timestamp, UInt, ULong
from servicebus_amqp.encoding.message_sections import (
    Header,
    Properties,
    Sections,
    read_header,
    read_map,
    read_properties,
    write_application_properties,
    write_data,
    write_header,
    write_properties,
)
from servicebus_sandbox.amqp_server.message_codec import AmqpPropertyCodec, read_message
from servicebus_sandbox.broker.broker_errors import EvaluationError
from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.broker.subscription_rules.message_properties import Value
from servicebus_sandbox.broker.subscription_rules.rules import Rule, SqlAction, SqlFilter
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace

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
