from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_amqp.encoding.codec import Array, Described, Symbol, UInt, ULong, decode, described, encode, encode_list
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
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
    Transfer,
    fit_error,
    read_performative,
    read_sasl,
    read_state,
    write_performative,
    write_state,
)
from servicebus_amqp.protocol_errors import DecodeError
from tests.amqp.values import SYMBOLS, TEXT

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


def test_a_state_of_transactions_is_passed_on_as_it_came() -> None:
    state = Described(ULong(0x34), [b"txn", Described(ULong(0x24), [])])
    assert read_state(write_state(state), 0)[0] == state


@given(ERRORS, st.integers(700, 900))
def test_an_error_is_cut_to_fit(error: Error, room: int) -> None:
    error = replace(error, condition="amqp:internal-error", description=error.description * 50)
    cut = fit_error(error, room)
    assert len(write_performative(Close(error=cut))) <= room + 12
    assert error.description.startswith(cut.description)


def test_capabilities_travel_as_an_array_of_symbols() -> None:
    encoded = write_performative(Open(container_id="a", offered_capabilities=("b", "c")))
    assert decode(encoded)[0].value[7] == Array.of(Symbol, [Symbol("b"), Symbol("c")])
