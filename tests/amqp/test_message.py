from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_amqp.encoding.codec import (
    Array,
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
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
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Header,
    Properties,
    Sections,
    _split_any,
    _split_plain,
    batch,
    body_parts,
    edit_map,
    encode_pair,
    read_header,
    read_map,
    read_properties,
    read_value,
    split,
    split_for_joining,
    unbatch,
    with_message_id,
    write_application_properties,
    write_data,
    write_header,
    write_properties,
    write_value,
)
from servicebus_amqp.protocol_errors import DecodeError
from tests.amqp.values import SCALARS, SYMBOLS, TEXT, VALUES, typed, write_annotations

UINTS = st.integers(0, 2**32 - 1)
TIMES = st.integers(-(2**63), 2**63 - 1)
IDS = st.one_of(TEXT, st.uuids(), st.binary(max_size=40), st.integers(0, 2**64 - 1).map(ULong))
MAPS = st.dictionaries(SYMBOLS, SCALARS, max_size=4)
HEADERS = st.builds(
    Header,
    durable=st.none() | st.booleans(),
    priority=st.none() | st.integers(0, 255),
    ttl=st.none() | UINTS,
    first_acquirer=st.none() | st.booleans(),
    delivery_count=st.none() | UINTS,
)
PROPERTIES_OF_MESSAGES = st.builds(
    Properties,
    message_id=st.none() | IDS,
    user_id=st.none() | st.binary(),
    to=st.none() | TEXT,
    subject=st.none() | TEXT,
    reply_to=st.none() | TEXT,
    correlation_id=st.none() | IDS,
    content_type=st.none() | SYMBOLS,
    content_encoding=st.none() | SYMBOLS,
    absolute_expiry_time=st.none() | TIMES,
    creation_time=st.none() | TIMES,
    group_id=st.none() | TEXT,
    group_sequence=st.none() | UINTS,
    reply_to_group_id=st.none() | TEXT,
)


BODIES = st.one_of(
    st.just(b""),
    st.lists(st.binary(max_size=400).map(write_data), min_size=1, max_size=3).map(b"".join),
    st.lists(st.lists(VALUES, max_size=2).map(lambda items: described(SEQUENCE, encode(items))), min_size=1).map(
        b"".join
    ),
    VALUES.map(write_value),
)


def _section_of(code: int) -> st.SearchStrategy[bytes | None]:
    return st.none() | MAPS.map(lambda found: described(code, encode(found)))


MESSAGES = st.builds(
    Sections,
    header=st.none() | HEADERS.map(write_header),
    delivery_annotations=_section_of(DELIVERY_ANNOTATIONS),
    message_annotations=_section_of(MESSAGE_ANNOTATIONS),
    properties=st.none() | PROPERTIES_OF_MESSAGES.map(write_properties),
    application_properties=st.none() | st.dictionaries(TEXT, SCALARS, max_size=4).map(write_application_properties),
    body=BODIES,
    footer=_section_of(FOOTER),
)


@given(MESSAGES)
def test_a_message_is_split_into_the_sections_it_was_joined_of(sections: Sections) -> None:
    message = sections.join()
    assert split(message) == sections
    assert sections.size == len(message)


@given(MESSAGES, st.integers(0, 2000), st.integers(0, 255))
def test_the_quick_way_to_split_agrees_with_the_general_one(sections: Sections, at: int, byte: int) -> None:
    whole = sections.join()
    damaged = whole[:at] + bytes((byte,)) + whole[at + 1 :]
    for message in (whole, damaged, whole[:at]):
        quickly = _split_plain(message)
        if quickly is not None:
            assert quickly == _split_any(message)


def test_the_usual_message_is_split_the_quick_way() -> None:
    sections = Sections(
        header=write_header(Header(durable=True)),
        delivery_annotations=write_annotations(DELIVERY_ANNOTATIONS, {"x": 1}),
        message_annotations=write_annotations(MESSAGE_ANNOTATIONS, {"x": "long" * 100}),
        properties=write_properties(Properties(message_id="a")),
        application_properties=write_application_properties({"b": 1}),
        body=write_data(bytes(1024)),
        footer=described(FOOTER, encode({Symbol("f"): 1})),
    )
    assert _split_plain(sections.join()) == sections


def test_a_large_body_is_not_copied_where_the_message_is_put_together_again() -> None:
    whole = Sections(properties=write_properties(Properties(message_id="a")), body=write_data(bytes(50_000))).join()
    found = split_for_joining(whole)
    assert found == split(whole)
    assert isinstance(found.body, memoryview)
    assert found.join() == whole


@given(MESSAGES, st.data())
def test_a_message_cut_short_loses_sections_or_is_a_decode_error(sections: Sections, data: st.DataObject) -> None:
    message = sections.join()
    cut = message[: data.draw(st.integers(0, len(message)))]
    try:
        found = split(cut)
    except DecodeError:
        return
    assert found.join() == cut


@given(st.binary(max_size=100), st.sampled_from([b"", b"\x00\x53\x70", b"\x00\x53\x75\xa0", b"\x00\x53\x73\xc0"]))
def test_bytes_that_are_no_message_are_a_decode_error_and_nothing_else(data: bytes, start: bytes) -> None:
    reads: list[Callable[[Sections], Any]] = [
        lambda sections: read_header(sections.header),
        lambda sections: read_properties(sections.properties),
        lambda sections: read_map(sections.message_annotations),
        lambda sections: edit_map(sections.application_properties, APPLICATION_PROPERTIES, drop={b"x"}),
        lambda sections: list(unbatch(sections.join())),
    ]
    try:
        sections = split(start + data)
    except DecodeError:
        return
    assert sections.join() == start + data
    for read in reads:
        with suppress(DecodeError):
            read(sections)


@pytest.mark.parametrize("spell", [lambda code, name: ULong(code), lambda code, name: Symbol(name)])
def test_sections_are_known_by_wide_and_by_symbolic_descriptors(spell: Any) -> None:
    names = {
        HEADER: "amqp:header:list",
        MESSAGE_ANNOTATIONS: "amqp:message-annotations:map",
        PROPERTIES: "amqp:properties:list",
        DATA: "amqp:data:binary",
        FOOTER: "amqp:footer:map",
    }
    contents: dict[int, Any] = {HEADER: [True], MESSAGE_ANNOTATIONS: {}, PROPERTIES: ["id"], DATA: b"body", FOOTER: {}}
    raw = {}
    for code, name in names.items():
        descriptor = spell(code, name)
        wide = b"\x80" + code.to_bytes(8, "big") if isinstance(descriptor, ULong) else encode(descriptor)
        raw[code] = b"\x00" + wide + encode(contents[code])
    found = split(b"".join(raw.values()))
    assert (found.header, found.message_annotations, found.body, found.footer) == (
        raw[HEADER],
        raw[MESSAGE_ANNOTATIONS],
        raw[DATA],
        raw[FOOTER],
    )
    assert read_properties(found.properties).message_id == "id"
    assert read_header(found.header).durable is True


@pytest.mark.parametrize(
    "sections",
    [
        [write_properties(Properties()), write_header(Header())],
        [write_header(Header()), write_header(Header())],
        [write_data(b""), write_value(None)],
        [write_value(None), write_value(None)],
        [write_data(b""), described(SEQUENCE, encode([]))],
        [write_data(b""), write_application_properties({})],
        [described(FOOTER, encode({})), write_data(b"")],
        [described(0x24, b"\x45")],
        [described(0x79, b"\x45")],
        [b"\x00\xa3\x01x\x45"],
        [encode("no section")],
        [write_data(b"x")[:-1]],
    ],
)
def test_sections_out_of_place_are_a_decode_error(sections: list[bytes]) -> None:
    with pytest.raises(DecodeError):
        split(b"".join(sections))


@given(HEADERS)
def test_a_header_is_read_as_it_was_written(header: Header) -> None:
    assert read_header(write_header(header)) == header


@given(PROPERTIES_OF_MESSAGES)
def test_properties_are_read_as_they_were_written(properties: Properties) -> None:
    found = read_properties(write_properties(properties))
    assert found == properties
    for name in ("message_id", "correlation_id"):
        assert typed(getattr(found, name)) == typed(getattr(properties, name))


@given(st.none() | PROPERTIES_OF_MESSAGES, TEXT)
def test_another_message_id_leaves_all_other_properties_as_they_are(properties: Properties | None, named: str) -> None:
    section = None if properties is None else write_properties(properties)
    changed = with_message_id(section, named)
    assert changed == write_properties((properties or Properties())._replace(message_id=named))


def test_properties_with_wide_encodings_and_fields_beyond_the_last_keep_their_bytes() -> None:
    rest = [b"\x40"] * 2 + [b"\xb1\x00\x00\x00\x01s"] + [b"\x40"] * 9 + [encode("beyond")]
    section = described(PROPERTIES, encode_list([b"\x40", *rest]))
    assert with_message_id(section, "m") == described(PROPERTIES, encode_list([encode("m"), *rest]))


def test_fields_travel_as_the_types_of_the_specification() -> None:
    header = write_header(Header(durable=True, priority=4, ttl=5000, delivery_count=1))
    assert header == described(HEADER, encode_list([encode(v) for v in (True, UByte(4), UInt(5000), None, UInt(1))]))
    properties = write_properties(Properties(content_type="text/plain", creation_time=7))
    items: list[Any] = [None] * 6 + [Symbol("text/plain"), None, None, Timestamp(7)]
    assert properties == described(PROPERTIES, encode_list([encode(item) for item in items]))


def test_missing_sections_read_as_nothing() -> None:
    assert (read_header(None), read_properties(None), read_map(None)) == (Header(), Properties(), {})


def test_unknown_trailing_fields_are_dropped() -> None:
    section = described(HEADER, encode([True, None, None, None, UInt(2), "new"]))
    assert read_header(section) == Header(durable=True, delivery_count=2)


@pytest.mark.parametrize(
    ("section", "named"),
    [
        (described(HEADER, encode([True, UByte(1), "soon"])), "ttl"),
        (described(PROPERTIES, encode([None] * 10 + [b"group"])), "group_id"),
        (described(PROPERTIES, encode({})), "list"),
        (described(PROPERTIES, encode([])) + b"\x40", "list"),
    ],
)
def test_what_is_no_header_or_properties_is_named(section: bytes, named: str) -> None:
    read = read_header if section[2] == HEADER else read_properties
    with pytest.raises(DecodeError, match=named):
        read(section)


@given(MAPS)
def test_annotations_are_read_as_they_were_written(annotations: dict[str, Any]) -> None:
    found = read_map(write_annotations(MESSAGE_ANNOTATIONS, annotations))
    assert typed(found) == typed(annotations)


def test_a_map_section_must_hold_a_map() -> None:
    with pytest.raises(DecodeError, match="map"):
        read_map(described(MESSAGE_ANNOTATIONS, encode([])))


@given(MAPS, st.sets(st.integers(0, 9)), MAPS)
def test_an_edit_drops_and_adds_and_keeps_the_rest(old: dict[str, Any], picks: set[int], new: dict[str, Any]) -> None:
    drop = {key.encode() for index, key in enumerate(old) if index in picks} | {key.encode() for key in new}
    add = b"".join(encode_pair(key, value) for key, value in new.items())
    section = write_annotations(MESSAGE_ANNOTATIONS, old)
    edited = edit_map(section, MESSAGE_ANNOTATIONS, drop=drop, add=add, added=len(new))
    expected = {key: value for key, value in old.items() if key.encode() not in drop} | new
    assert typed(read_map(edited)) == typed(expected)
    assert (edited is None) is (not expected)


def test_an_edit_leaves_what_it_keeps_bit_for_bit() -> None:
    odd_key = b"\xb3\x00\x00\x00\x01k"
    odd_value = b"\x80" + bytes(7) + b"\x01"
    gone = encode_pair("x-opt-gone", 1)
    pairs = gone + odd_key + odd_value
    section = b"\x00\x53\x72\xd1" + (len(pairs) + 4).to_bytes(4, "big") + (4).to_bytes(4, "big") + pairs
    edited = edit_map(section, MESSAGE_ANNOTATIONS, drop={b"x-opt-gone"})
    assert edited is not None
    assert odd_key + odd_value in edited
    assert read_map(edited) == {"k": 1}


def test_an_edit_of_nothing_makes_a_section_or_none() -> None:
    assert edit_map(None, MESSAGE_ANNOTATIONS) is None
    added = edit_map(None, MESSAGE_ANNOTATIONS, add=encode_pair("a", 1), added=1)
    assert read_map(added) == {"a": 1}
    assert edit_map(added, MESSAGE_ANNOTATIONS, drop={b"a"}) is None


def test_keys_without_a_name_stay() -> None:
    section = described(MESSAGE_ANNOTATIONS, encode({ULong(7): "seven", Symbol("x"): 1}))
    assert read_map(edit_map(section, MESSAGE_ANNOTATIONS, drop={b"x", b""})) == {7: "seven"}


@pytest.mark.parametrize("tail", ["c1050241a101", "c10302a101", "d1000000ff00000002a10161", "c0020141", "c1"])
def test_an_edit_of_a_broken_map_is_a_decode_error(tail: str) -> None:
    with pytest.raises(DecodeError):
        edit_map(b"\x00\x53\x72" + bytes.fromhex(tail), MESSAGE_ANNOTATIONS, drop={b"a"})


@given(VALUES)
def test_a_value_body_is_read_as_it_was_written(value: Any) -> None:
    assert typed(read_value(write_value(value))) == typed(value)


@pytest.mark.parametrize("body", [b"", write_data(b"x"), write_value(1) + b"\x40"])
def test_another_body_is_no_value(body: bytes) -> None:
    with pytest.raises(DecodeError):
        read_value(body)


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_a_batch_holds_its_messages(messages: list[bytes]) -> None:
    envelope = write_properties(Properties(message_id="first", group_id="g"))
    whole = batch(messages, properties=envelope, annotations=None)
    assert list(unbatch(whole)) == messages
    assert split(whole).properties == envelope


def test_a_batch_of_anything_but_data_is_refused() -> None:
    with pytest.raises(DecodeError, match="data sections"):
        list(unbatch(write_value("x")))


@pytest.mark.parametrize("odd", [Described(Symbol("a:b"), 5), ["id"], {"id": 1}, 1.5, True, Array.of(int, [1])])
@pytest.mark.parametrize("field", ["message_id", "correlation_id", "to", "reply_to"])
def test_an_id_or_address_of_another_type_is_a_decode_error(field: str, odd: Any) -> None:
    """They become keys of maps: a list would raise there, and of some types a peer chooses the hash."""
    section = write_properties(Properties(**{field: odd}))
    with pytest.raises(DecodeError, match=f"{field} is a"):
        read_properties(section)


def test_the_parts_of_a_body() -> None:
    sequence = described(SEQUENCE, encode([1, 2]))
    assert list(body_parts(b"")) == []
    assert list(body_parts(write_data(b"a") + write_data(b"b"))) == [(DATA, b"a"), (DATA, b"b")]
    assert list(body_parts(sequence)) == [(SEQUENCE, [1, 2])]
    assert list(body_parts(write_value("x"))) == [(VALUE, "x")]
    with pytest.raises(DecodeError):
        list(body_parts(write_data(b"a")[:-1]))
