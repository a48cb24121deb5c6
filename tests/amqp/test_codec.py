from __future__ import annotations

from dataclasses import fields, replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_amqp.encoding.codec import (
    MAX_EMPTY_ELEMENTS,
    MAX_NESTING,
    Array,
    Byte,
    Char,
    Decimal64,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    decode,
    described,
    encode,
    encode_list,
    encode_map,
    skip,
)
from servicebus_amqp.encoding.frames import AMQP_FRAME, ReceiveBuffer, build_frame, read_frame_header
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    Released,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    TransactionalState,
    Transfer,
    fit_error,
    read_composite,
    read_performative,
    read_sasl,
    read_state,
    write_composite,
    write_performative,
    write_state,
)
from servicebus_amqp.protocol.links import advance, distance
from servicebus_amqp.protocol_errors import DecodeError, EncodeError, FramingError
from tests.amqp.values import SYMBOLS, TEXT, VALUES, typed


@given(VALUES, st.binary(max_size=9), st.binary(max_size=9))
def test_what_is_encoded_decodes_to_the_same_value_of_the_same_type(value: Any, before: bytes, behind: bytes) -> None:
    encoded = encode(value)
    found, end = decode(before + encoded + behind, len(before))
    assert typed(found) == typed(value)
    assert end == len(before) + len(encoded)


@given(VALUES, st.binary(max_size=9))
def test_skip_ends_where_decode_ends(value: Any, behind: bytes) -> None:
    encoded = encode(value)
    assert skip(encoded + behind) == decode(encoded + behind)[1]


@given(VALUES, st.data())
def test_a_value_cut_short_is_a_decode_error(value: Any, data: st.DataObject) -> None:
    encoded = encode(value)
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    for read in (decode, skip):
        with pytest.raises(DecodeError):
            read(cut)


@given(st.binary(min_size=1, max_size=60))
def test_any_bytes_decode_or_are_a_decode_error(data: bytes) -> None:
    try:
        value, end = decode(data)
    except DecodeError:
        return
    assert skip(data) == end <= len(data)
    assert typed(decode(encode(value))[0]) == typed(value)


ENCODINGS: list[tuple[str, Any]] = [
    ("40", None),
    ("41", True),
    ("42", False),
    ("5601", True),
    ("5600", False),
    ("50ff", UByte(255)),
    ("60ffff", UShort(65535)),
    ("43", UInt(0)),
    ("5207", UInt(7)),
    ("7000000007", UInt(7)),
    ("44", ULong(0)),
    ("5307", ULong(7)),
    ("800000000000000007", ULong(7)),
    ("51ff", Byte(-1)),
    ("61ffff", Short(-1)),
    ("54ff", Int(-1)),
    ("71ffffffff", Int(-1)),
    ("55ff", -1),
    ("81ffffffffffffffff", -1),
    ("723fc00000", Float(1.5)),
    ("823ff8000000000000", 1.5),
    ("840000000000000001", Decimal64(bytes(7) + b"\x01")),
    ("730001f600", Char("😀")),
    ("8300000000000003e8", Timestamp(1000)),
    ("98" + "0f" * 16, UUID(bytes=b"\x0f" * 16)),
    ("a0020102", b"\x01\x02"),
    ("b0000000020102", b"\x01\x02"),
    ("a102c3a9", "é"),
    ("b100000002c3a9", "é"),
    ("a3026162", Symbol("ab")),
    ("b3000000026162", Symbol("ab")),
    ("45", []),
    ("c00100", []),
    ("c0020141", [True]),
    ("d0000000050000000141", [True]),
    ("c10502a1016141", {"a": True}),
    ("d10000000800000002a1016141", {"a": True}),
    ("e00402550102", Array(0x55, (1, 2))),
    ("f00000000700000002550102", Array(0x55, (1, 2))),
    ("005307a10161", Described(ULong(7), "a")),
    ("00a3016143", Described(Symbol("a"), UInt(0))),
]


@pytest.mark.parametrize(("encoded", "value"), ENCODINGS)
def test_every_encoding_of_the_specification_is_read(encoded: str, value: Any) -> None:
    data = bytes.fromhex(encoded)
    found, end = decode(data)
    assert typed(found) == typed(value)
    assert end == len(data) == skip(data)


@pytest.mark.parametrize("value", [value for _, value in ENCODINGS])
def test_the_smallest_encoding_is_written(value: Any) -> None:
    known = [encoded for encoded, same in ENCODINGS if typed(same) == typed(value)]
    assert len(encode(value)) == min(len(encoded) for encoded in known) // 2


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "01",
        "5602",
        "730000d800",
        "7300110000",
        "a101ff",
        "a301ff",
        "c00000",
        "c0ff01",
        "c0024041",
        "c10301a101",
        "c1020140",
        "c10502a10161",
        "c10904a1016141a1016142",
        "d0ffffffff0000000140",
        "e003024100",
        "00",
        "0053",
    ],
)
def test_malformed_values_are_decode_errors(encoded: str) -> None:
    with pytest.raises(DecodeError):
        decode(bytes.fromhex(encoded))


@pytest.mark.parametrize("opening", ["c0ff01", "e0ff01c0", "005307"])
def test_nesting_without_end_is_a_decode_error(opening: str) -> None:
    data = bytes.fromhex(opening) * 100_000
    with pytest.raises(DecodeError):
        decode(data)


def nested(levels: int) -> bytes:
    """A string, described so many times."""
    return b"\x00\x53\x07" * levels + encode("x")


def test_values_are_read_to_the_deepest_nesting_and_no_deeper() -> None:
    value, end = decode(nested(MAX_NESTING))
    assert encode(value) == nested(MAX_NESTING)
    assert end == len(nested(MAX_NESTING))
    with pytest.raises(DecodeError, match=f"more than {MAX_NESTING} levels"):
        decode(nested(MAX_NESTING + 1))


def test_the_limit_counts_lists_maps_and_descriptors_together() -> None:
    value: Any = "x"
    for level in range(MAX_NESTING):
        value = ([value], {"k": value}, Described(ULong(7), value))[level % 3]
    assert typed(decode(encode(value))[0]) == typed(value)
    with pytest.raises(DecodeError, match="levels deep"):
        decode(encode([value]))


def test_descriptors_are_stepped_over_to_the_deepest_nesting_and_no_deeper() -> None:
    assert skip(nested(MAX_NESTING)) == len(nested(MAX_NESTING))
    with pytest.raises(DecodeError, match="levels deep"):
        skip(nested(MAX_NESTING + 1))


def test_nested_descriptors_without_end_cannot_be_skipped() -> None:
    with pytest.raises(DecodeError):
        skip(b"\x00" * 100_000)


COLLIDING: dict[str, list[Any]] = {
    "uuid": [UUID(int=number * (2**61 - 1)) for number in range(3)],
    "list": [[0], [1]],
    "described": [Described(ULong(1), 1), Described(ULong(1), 2)],
    "array": [Array.of(int, [1]), Array.of(int, [2])],
    "double": [1.0, 2.0],
    "null": [None],
}


@pytest.mark.parametrize("kind", COLLIDING)
def test_a_map_has_no_keys_whose_hashes_a_peer_can_choose(kind: str) -> None:
    """Nothing that a message holds may stop, slow or crash more than itself."""
    pairs = b"".join(encode(key) + encode(True) for key in COLLIDING[kind])
    with pytest.raises(DecodeError, match="keys are strings, symbols, binaries or ulongs"):
        decode(encode_map(2 * len(COLLIDING[kind]), pairs))


@pytest.mark.parametrize("code", [0x40, 0x41, 0x43, 0x44, 0x45])
def test_a_few_bytes_cannot_become_gigabytes(code: int) -> None:
    with pytest.raises(DecodeError, match=str(MAX_EMPTY_ELEMENTS)):
        decode(b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff" + bytes([code]))


@pytest.mark.parametrize(
    "value",
    [2**63, -(2**63) - 1, "\ud800", Symbol("é"), object(), {1, 2}, [object()], Array(0x01, ()), Float(1e300)],
)
def test_what_has_no_amqp_form_is_an_encode_error(value: Any) -> None:
    with pytest.raises(EncodeError):
        encode(value)


@pytest.mark.parametrize(
    ("make", "value"), [(UByte, 256), (UInt, -1), (ULong, 2**64), (Int, 2**31), (Char, "ab"), (Decimal64, b"")]
)
def test_a_value_outside_its_type_is_a_value_error(make: Any, value: Any) -> None:
    with pytest.raises(ValueError, match=f"(?i){make.__name__}"):
        make(value)


def test_maps_are_looked_up_by_plain_names() -> None:
    found, _ = decode(encode({Symbol("x-opt-sequence-number"): 5}))
    assert found["x-opt-sequence-number"] == 5
    assert type(next(iter(found))) is Symbol


@given(st.lists(st.text(max_size=300), max_size=4), st.sampled_from([0xA1, 0xB1]))
def test_elements_are_as_wide_as_their_array_says(texts: list[str], code: int) -> None:
    array = Array(code, tuple(texts))
    if code == 0xA1 and any(len(text.encode("utf-8", "surrogatepass")) > 255 for text in texts):
        with pytest.raises(EncodeError):
            encode(array)
    else:
        assert decode(encode(array))[0] == array


def test_a_frame_is_read_as_it_was_built() -> None:
    header = read_frame_header(build_frame(258, b"body"), 0, kind=AMQP_FRAME, most=512)
    assert (header.size, header.body, header.channel) == (12, 8, 258)


def test_an_extended_header_moves_the_body() -> None:
    frame = b"\x00\x00\x00\x10\x03\x00\x00\x00" + b"more" + b"body"
    assert read_frame_header(frame, 0, kind=AMQP_FRAME, most=512).body == 12


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("0000000702000000", "shorter than its own header"),
        ("0000020102000000", "the most taken is 512"),
        ("0000000801000000", "body at byte 4"),
        ("0000000803000000", "body at byte 12"),
        ("0000000802010000", "type 1"),
    ],
)
def test_a_header_that_cannot_be_is_a_framing_error(header: str, why: str) -> None:
    with pytest.raises(FramingError, match=why):
        read_frame_header(bytes.fromhex(header), 0, kind=AMQP_FRAME, most=512)


@given(st.lists(st.binary(min_size=1, max_size=5), min_size=1, max_size=30), st.integers(8, 60))
def test_the_buffer_gives_back_what_was_cut_once_there_is_enough(chunks: list[bytes], needed: int) -> None:
    buffer = ReceiveBuffer()
    buffer.keep(chunks[0], needed)
    held = len(chunks[0])
    for index, chunk in enumerate(chunks[1:], start=1):
        found = list(buffer.add(chunk))
        missing, held = needed - held, held + len(chunk)
        if held >= needed:
            assert found[0] == (b"".join(chunks[: index + 1])[:needed], 0)
            assert found[1:] == ([(chunk, missing)] if held > needed else [])
            return
        assert found == []


def test_what_is_kept_comes_first_the_next_time() -> None:
    buffer = ReceiveBuffer()
    assert list(buffer.add(b"12345678ab")) == [(b"12345678ab", 0)]
    buffer.keep(b"ab", 8)
    assert list(buffer.add(b"cdefg")) == []
    assert list(buffer.add(b"hi")) == [(b"abcdefgh", 0), (b"hi", 1)]


def test_of_a_frame_the_header_may_be_made_whole_first_and_then_the_rest() -> None:
    buffer = ReceiveBuffer()
    buffer.keep(b"ab", 8)
    pieces = buffer.add(b"cdefghijkl")
    assert next(pieces) == (b"abcdefgh", 0)
    buffer.keep(b"abcdefgh", 10)
    assert next(pieces) == (b"abcdefghij", 0)
    assert list(pieces) == [(b"cdefghijkl", 8)]


@pytest.mark.parametrize(
    ("start", "end", "steps"),
    [(5, 8, 3), (8, 5, -3), (2**32 - 1, 1, 2), (1, 2**32 - 1, -2), (7, 7, 0), (0, 2**31 - 1, 2**31 - 1)],
)
def test_serial_numbers_wrap(start: int, end: int, steps: int) -> None:
    assert distance(start, end) == steps
    assert advance(start, steps) == end


UINTS = st.integers(0, 2**32 - 1)
MAPS = st.dictionaries(SYMBOLS, TEXT, max_size=3)
NAMES = st.lists(SYMBOLS, max_size=3).map(tuple)
ERRORS = st.builds(Error, condition=SYMBOLS, description=TEXT, info=MAPS)
STATES = st.one_of(
    st.just(ACCEPTED),
    st.just(RELEASED),
    st.builds(Rejected, error=st.none() | ERRORS),
    st.builds(
        Modified,
        delivery_failed=st.booleans(),
        undeliverable_here=st.booleans(),
        message_annotations=st.none() | MAPS,
    ),
    st.builds(Received, section_number=UINTS, section_offset=st.integers(0, 2**64 - 1)),
    st.builds(Declared, txn_id=st.binary(max_size=32)),
    st.builds(
        TransactionalState,
        txn_id=st.none() | st.binary(max_size=32),
        outcome=st.sampled_from([None, ACCEPTED, RELEASED, Modified(delivery_failed=True)]),
    ),
)
_MAYBE_UINT = st.none() | UINTS
OPENS = st.builds(
    Open,
    container_id=TEXT,
    hostname=st.none() | TEXT,
    max_frame_size=UINTS,
    channel_max=st.integers(0, 65535),
    idle_time_out=_MAYBE_UINT,
    offered_capabilities=NAMES,
    properties=st.none() | MAPS,
)
BEGINS = st.builds(
    Begin,
    remote_channel=st.none() | st.integers(0, 65535),
    next_outgoing_id=UINTS,
    incoming_window=UINTS,
    outgoing_window=UINTS,
    handle_max=UINTS,
)
SOURCES = st.builds(
    Source, address=st.none() | TEXT, filter=st.none() | MAPS, outcomes=NAMES, default_outcome=st.none() | STATES
)
TARGETS = st.one_of(
    st.builds(Target, address=st.none() | TEXT, dynamic=st.booleans()), st.builds(Coordinator, capabilities=NAMES)
)
ATTACHES = st.builds(
    Attach,
    name=TEXT,
    handle=UINTS,
    role=st.booleans(),
    snd_settle_mode=st.integers(0, 2),
    source=st.none() | SOURCES,
    target=st.none() | TARGETS,
    initial_delivery_count=_MAYBE_UINT,
    max_message_size=st.none() | st.integers(0, 2**64 - 1),
    properties=st.none() | MAPS,
)
FLOWS = st.builds(
    Flow,
    next_incoming_id=_MAYBE_UINT,
    incoming_window=UINTS,
    next_outgoing_id=UINTS,
    outgoing_window=UINTS,
    handle=_MAYBE_UINT,
    delivery_count=_MAYBE_UINT,
    link_credit=_MAYBE_UINT,
    drain=st.booleans(),
    echo=st.booleans(),
    properties=st.none() | MAPS,
)
TRANSFERS = st.builds(
    Transfer,
    handle=UINTS,
    delivery_id=_MAYBE_UINT,
    delivery_tag=st.none() | st.binary(max_size=32),
    message_format=_MAYBE_UINT,
    settled=st.none() | st.booleans(),
    more=st.booleans(),
    state=st.none() | STATES,
    aborted=st.booleans(),
    batchable=st.booleans(),
)
DISPOSITIONS = st.builds(
    Disposition,
    role=st.booleans(),
    first=UINTS,
    last=_MAYBE_UINT,
    settled=st.booleans(),
    state=st.none() | STATES,
    batchable=st.booleans(),
)
DETACHES = st.builds(Detach, handle=UINTS, closed=st.booleans(), error=st.none() | ERRORS)
PERFORMATIVES: st.SearchStrategy[Any] = st.one_of(
    OPENS,
    BEGINS,
    ATTACHES,
    FLOWS,
    TRANSFERS,
    DISPOSITIONS,
    DETACHES,
    st.builds(End, error=st.none() | ERRORS),
    st.builds(Close, error=st.none() | ERRORS),
)
SASL: st.SearchStrategy[Any] = st.one_of(
    st.builds(SaslMechanisms, sasl_server_mechanisms=st.lists(SYMBOLS, min_size=1, max_size=3).map(tuple)),
    st.builds(SaslInit, mechanism=SYMBOLS, initial_response=st.none() | st.binary(), hostname=st.none() | TEXT),
    st.builds(SaslChallenge, challenge=st.binary()),
    st.builds(SaslResponse, response=st.binary()),
    st.builds(SaslOutcome, code=st.integers(0, 4)),
)


@given(PERFORMATIVES, st.binary(max_size=20))
def test_a_performative_is_read_as_it_was_written(performative: Any, payload: bytes) -> None:
    encoded = write_performative(performative)
    assert read_performative(encoded + payload, 0) == (performative, len(encoded))


@given(SASL)
def test_a_sasl_performative_is_read_as_it_was_written(performative: Any) -> None:
    encoded = write_performative(performative)
    assert read_sasl(encoded, 0) == (performative, len(encoded))


def test_sasl_and_amqp_performatives_are_not_taken_for_each_other() -> None:
    with pytest.raises(DecodeError, match="no performative of AMQP"):
        read_performative(write_performative(SaslOutcome(code=0)), 0)
    with pytest.raises(DecodeError, match="SASL"):
        read_sasl(write_performative(End()), 0)


def test_fields_left_out_take_their_defaults() -> None:
    found, _ = read_performative(described(0x10, encode_list([encode("me")])), 0)
    assert found == Open(container_id="me")
    assert isinstance(found, Open)
    assert (found.max_frame_size, found.channel_max) == (2**32 - 1, 65535)


def test_unknown_trailing_fields_are_stepped_over() -> None:
    items = [encode(None), encode("new"), encode({"a": [1]})]
    assert read_performative(described(0x17, encode_list(items)), 0)[0] == End()


def test_a_mandatory_field_that_is_missing_is_named() -> None:
    with pytest.raises(DecodeError, match=r"amqp:begin:list .* next_outgoing_id"):
        read_performative(described(0x11, b"\x45"), 0)


def test_a_field_of_the_wrong_kind_is_named() -> None:
    with pytest.raises(DecodeError, match=r"handle of amqp:detach:list"):
        read_performative(described(0x16, encode_list([encode("seven")])), 0)


@pytest.mark.parametrize(("field", "wrong"), [("error", ACCEPTED), ("error", Source())])
def test_a_composite_of_the_wrong_kind_is_refused(field: str, wrong: Any) -> None:
    encoded = described(0x17, encode_list([write_performative(wrong)]))
    with pytest.raises(DecodeError, match=field):
        read_performative(encoded, 0)


def test_symbolic_and_wide_descriptors_are_read() -> None:
    body = encode_list([encode(UInt(5)), encode(True)])
    expected = Detach(handle=5, closed=True)
    assert read_performative(b"\x00" + encode(Symbol("amqp:detach:list")) + body, 0)[0] == expected
    assert read_performative(b"\x00\x80" + (0x16).to_bytes(8, "big") + body, 0)[0] == expected


@pytest.mark.parametrize("body", [encode(1), encode("text"), b"\x00\x53", b"", described(0x99, b"\x45")])
def test_what_is_no_performative_is_a_decode_error(body: bytes) -> None:
    with pytest.raises(DecodeError):
        read_performative(body, 0)


def test_one_symbol_stands_for_a_list_of_symbols() -> None:
    encoded = described(0x40, encode_list([encode(Symbol("ANONYMOUS"))]))
    assert read_sasl(encoded, 0)[0] == SaslMechanisms(sasl_server_mechanisms=("ANONYMOUS",))


def test_a_terminus_is_echoed_in_the_bytes_it_came_in() -> None:
    filters = b"\xd1\x00\x00\x00\x0e\x00\x00\x00\x02" + encode(Symbol("f")) + b"\x80" + bytes(7) + b"\x01"
    filters = b"\xd1" + (len(filters) - 5).to_bytes(4, "big") + filters[5:]
    items = [encode("orders")] + [b"\x40"] * 6 + [filters]
    raw = b"\x00\x80" + (0x28).to_bytes(8, "big") + encode_list(items)
    attach = described(0x12, encode_list([encode("l"), encode(UInt(1)), b"\x41", b"\x40", b"\x40", raw]))
    found, _ = read_performative(attach, 0)
    assert isinstance(found, Attach)
    assert found.source is not None
    assert (found.source.address, found.source.filter) == ("orders", {"f": 1})
    assert found.source.raw == raw
    assert raw in write_performative(replace(found, handle=9))


def test_a_source_with_another_filter_is_written_anew() -> None:
    source = Source(address="orders", filter={Symbol("s"): None}, raw=b"as it came")
    changed = source.with_filter({"s": "id-1"})
    attach = read_performative(write_performative(Attach(name="l", handle=0, role=True, source=changed)), 0)[0]
    assert isinstance(attach, Attach)
    assert attach.source is not None
    assert attach.source.filter == {"s": "id-1"}
    assert type(next(iter(attach.source.filter))) is Symbol


@pytest.mark.parametrize(
    "make", [lambda e: Detach(handle=1, error=e), lambda e: End(error=e), lambda e: Close(error=e)]
)
def test_an_error_always_carries_condition_description_and_info(make: Any) -> None:
    encoded = write_performative(make(Error(condition="amqp:not-found")))
    fields_of_error = decode(encoded)[0].value[-1].value
    assert fields_of_error == ["amqp:not-found", "", {}]


@given(STATES)
def test_a_delivery_state_is_read_as_it_was_written(state: Any) -> None:
    encoded = write_state(state)
    assert read_state(encoded, 0) == (state, len(encoded))


def test_every_outcome_is_written_with_all_its_fields() -> None:
    for outcome in (Accepted(), Released(), Rejected(), Modified()):
        assert len(decode(write_state(outcome))[0].value) == len(fields(outcome))


def test_a_state_without_a_class_is_passed_on_as_it_came() -> None:
    state = Described(ULong(0x3F), [b"own", Described(ULong(0x24), [])])
    assert read_state(write_state(state), 0)[0] == state


@pytest.mark.parametrize("body", [Declare(), Discharge(txn_id=b"t", fail=True), Discharge()])
def test_a_coordinators_message_is_read_as_it_was_written(body: Any) -> None:
    encoded = write_composite(body)
    assert read_composite(encoded, 0) == (body, len(encoded))


@given(ERRORS, st.integers(700, 900))
def test_an_error_is_cut_to_fit(error: Error, room: int) -> None:
    error = replace(error, condition="amqp:internal-error", description=error.description * 50)
    cut = fit_error(error, room)
    assert len(write_performative(Close(error=cut))) <= room + 12
    assert error.description.startswith(cut.description)


def test_capabilities_travel_as_an_array_of_symbols() -> None:
    encoded = write_performative(Open(container_id="a", offered_capabilities=("b", "c")))
    assert decode(encoded)[0].value[7] == Array.of(Symbol, [Symbol("b"), Symbol("c")])
