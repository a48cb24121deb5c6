"""However the transport cuts the bytes, and whatever it carries: the same events, and never an exception."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_amqp.encoding.codec import UInt, encode
from servicebus_amqp.encoding.frames import (
    AMQP_HEADER,
    DISPOSITION_PREFIX,
    SASL_FRAME,
    SASL_HEADER,
    TRANSFER_PREFIX,
    TRANSFER_ROOM,
    DispositionHead,
    build_frame,
    head_of_disposition,
    head_of_transfer,
    read_disposition,
    read_transfer,
    unpack_frame_header,
    write_continuation,
    write_disposition,
    write_transfer,
)
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    Close,
    Detach,
    Disposition,
    End,
    Open,
    SaslInit,
    Transfer,
    read_list,
    read_performative,
    write_performative,
)
from servicebus_amqp.protocol import links
from servicebus_amqp.protocol.connection import Connection, Session
from servicebus_amqp.protocol.connection_settings import ConnectionRole
from servicebus_amqp.protocol.links import Link, ReceiverLink, SenderLink
from servicebus_amqp.protocol_errors import DecodeError
from tests.amqp.test_codec import DISPOSITIONS, PERFORMATIVES, STATES, TRANSFERS, UINTS
from tests.amqp.wires import attach, begin, flow, frame, receiving_server, settings, transfer

OPENING = b"".join(
    [
        SASL_HEADER,
        build_frame(0, write_performative(SaslInit(mechanism="ANONYMOUS", initial_response=b"")), SASL_FRAME),
        AMQP_HEADER,
        frame(Open(container_id="client", hostname="contoso", idle_time_out=60_000)),
        frame(begin(), channel=7),
        frame(attach(0), channel=7),
        frame(attach(1, role=True), channel=7),
    ]
)
TRAFFIC = b"".join(
    [
        frame(flow(handle=1, delivery_count=0, link_credit=5), channel=7),
        build_frame(0, b""),
        frame(transfer(1, more=True), b"one ", channel=7),
        frame(transfer(None, delivery_tag=None), b"message", channel=7),
        frame(transfer(2, settled=True), b"another", channel=7),
        frame(transfer(3, state=ACCEPTED), b"by the general reader", channel=7),
        frame(Disposition(role=True, first=2**32 - 2, settled=True, state=ACCEPTED), channel=7),
        frame(Detach(handle=0, closed=True), channel=7),
        frame(End(), channel=7),
        frame(Close()),
    ]
)


def _act(event: links.Event) -> None:
    if isinstance(event, links.AttachRequested):
        event.link.accept_attach()
        if isinstance(event.link, ReceiverLink):
            event.link.flow(10)
    elif isinstance(event, links.FlowReceived) and isinstance(event.link, SenderLink) and event.link.credit:
        event.link.send(b"to you", tag=b"s")
    elif isinstance(event, links.DeliveryReceived):
        event.link.settle(event.delivery_id, ACCEPTED)


def _shown(event: links.Event) -> Any:
    """An event without the identity of its link or session."""
    values = event if isinstance(event, tuple) else [getattr(event, name) for name in event.__slots__]
    owned = (Link, Session)
    return type(event).__name__, [type(value) if isinstance(value, owned) else value for value in values]


def _server() -> Connection:
    return Connection(role=ConnectionRole.SERVER, settings=settings("server"))


def _busy_server() -> Connection:
    """A server that has taken the opening, and has a delivery of its own under way."""
    server = _server()
    for event in server.receive_data(OPENING):
        _act(event)
    happened = server.receive_data(frame(flow(handle=1, delivery_count=0, link_credit=5), channel=7))
    for event in happened:
        _act(event)
    server.data_to_send()
    return server


def _hear(server: Connection, pieces: list[bytes]) -> list[Any]:
    return [_shown(event) for piece in pieces for event in server.receive_data(piece)]


def _cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    ends = [0, *sorted(cut % len(stream) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in pairwise(ends)]


STREAMS = {"opening": (_server, OPENING), "traffic": (_busy_server, TRAFFIC)}
WHOLE = {name: _hear(make(), [stream]) for name, (make, stream) in STREAMS.items()}


def test_the_streams_say_all_they_should() -> None:
    assert [name for name, _ in WHOLE["opening"] + WHOLE["traffic"]] == [
        "HeaderReceived",
        "SaslDone",
        "HeaderReceived",
        "Opened",
        "SessionBegun",
        "AttachRequested",
        "AttachRequested",
        "FlowReceived",
        "DeliveryReceived",
        "DeliveryReceived",
        "DeliveryReceived",
        "DispositionReceived",
        "Detached",
        "Detached",
        "SessionEnded",
        "Closed",
    ]


@pytest.mark.parametrize("name", STREAMS)
def test_two_pieces_say_the_same_wherever_they_are_cut(name: str) -> None:
    make, stream = STREAMS[name]
    for cut in range(len(stream)):
        assert _hear(make(), [stream[:cut], stream[cut:]]) == WHOLE[name], f"cut at byte {cut}"


@pytest.mark.parametrize("name", STREAMS)
def test_single_bytes_say_the_same(name: str) -> None:
    make, stream = STREAMS[name]
    assert _hear(make(), [stream[at : at + 1] for at in range(len(stream))]) == WHOLE[name]


@pytest.mark.parametrize("name", STREAMS)
@given(cuts=st.lists(st.integers(0, 10_000), max_size=40))
def test_any_pieces_say_the_same(name: str, cuts: list[int]) -> None:
    make, stream = STREAMS[name]
    assert _hear(make(), _cut(stream, cuts)) == WHOLE[name]


@pytest.mark.parametrize("name", STREAMS)
@given(data=st.data())
def test_a_damaged_stream_says_the_same_in_any_pieces(name: str, data: st.DataObject) -> None:
    make, stream = STREAMS[name]
    at = data.draw(st.integers(0, len(stream) - 1))
    change = data.draw(st.integers(1, 255))
    damaged = stream[:at] + bytes([stream[at] ^ change]) + stream[at + 1 :]
    pieces = _cut(damaged, data.draw(st.lists(st.integers(0, 10_000), max_size=10)))
    assert _hear(make(), pieces) == _hear(make(), [damaged])


def test_a_frame_in_many_pieces_costs_no_more_than_its_length() -> None:
    server, _ = receiving_server(max_frame_size=2**22, max_message_size=None)
    data = frame(transfer(1), bytes(3_000_000), channel=7)
    happened: list[links.Event] = []
    for at in range(0, len(data), 100):
        happened += server.receive_data(data[at : at + 100])
    (delivery,) = happened
    assert isinstance(delivery, links.DeliveryReceived)
    assert len(delivery.payload) == 3_000_000


@given(st.binary(max_size=200))
def test_no_bytes_make_an_exception_at_the_start(data: bytes) -> None:
    server = Connection(role=ConnectionRole.SERVER, settings=settings())
    for event in server.receive_data(data):
        assert isinstance(event, links.HeaderReceived | links.ConnectionFailed)
    server.data_to_send()


@given(st.binary(max_size=200), st.integers(0, 3))
def test_no_frame_makes_an_exception(body: bytes, code: int) -> None:
    server, _ = receiving_server()
    opening = (b"", b"\x00\x53\x14\xc0", b"\x00\x53\x15\xc0", b"\x00\x53\x12\xc0")[code]
    server.receive_data(build_frame(7, opening + body))
    server.data_to_send()
    assert server.failure is None or server.is_finished


@given(st.lists(st.tuples(st.sampled_from([0, 7, 7, 7]), PERFORMATIVES, st.binary(max_size=9)), max_size=12))
def test_no_order_of_frames_makes_an_exception(sent: list[tuple[int, Any, bytes]]) -> None:
    server, _ = receiving_server()
    for channel, performative, payload in sent:
        for event in server.receive_data(frame(performative, payload, channel=channel)):
            _act(event)
        server.data_to_send()
    assert server.failure is None or server.is_finished


# The quick readers and writers, held to the general ones.


_UINT = st.one_of(
    UINTS.map(lambda number: encode(UInt(number))),
    UINTS.map(lambda number: b"\x70" + number.to_bytes(4, "big")),
    st.integers(0, 255).map(lambda number: bytes((0x52, number))),
)
_NULL = st.just(b"\x40")
_FLAG = st.sampled_from([b"\x40", b"\x41", b"\x42", b"\x56\x00", b"\x56\x01"])
_TAG = st.binary(max_size=32).map(encode) | st.just(b"\xb0\x00\x00\x00\x01t") | _NULL
_STATE = STATES.map(write_performative) | _NULL
_FIELDS_OF_TRANSFER = [
    _UINT,
    _UINT | _NULL,
    _TAG,
    _UINT | _NULL,
    _FLAG,
    _FLAG,
    _NULL,
    _NULL | _STATE,
    _FLAG,
    _FLAG,
    _FLAG,
    _NULL,
]
_FIELDS_OF_DISPOSITION = [_FLAG, _UINT, _UINT | _NULL, _FLAG, _STATE, _FLAG, _NULL]


def _body(prefix: bytes, fields: list[st.SearchStrategy[bytes]]) -> st.SearchStrategy[bytes]:
    """List8 bodies of the first fields, in all their encodings."""

    def build(items: tuple[bytes, ...]) -> bytes:
        joined = b"".join(items)
        return prefix + bytes((min(len(joined) + 1, 255), len(items))) + joined

    return st.integers(1, len(fields)).flatmap(lambda count: st.tuples(*fields[:count]).map(build))


def _damaged(bodies: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    def change(body: bytes, at: int, byte: int) -> bytes:
        at = 4 + at % (len(body) - 4)
        return body[:at] + bytes((byte,)) + body[at + 1 :]

    return st.builds(change, bodies, st.integers(0, 300), st.integers(0, 255))


def _generally(body: bytes) -> Any:
    try:
        performative, end = read_performative(body, 0)
    except DecodeError:
        return None
    if isinstance(performative, Transfer):
        return head_of_transfer(performative, end)
    assert isinstance(performative, Disposition)
    return head_of_disposition(performative)


_TRANSFER_BODIES = _body(TRANSFER_PREFIX, _FIELDS_OF_TRANSFER)
_DISPOSITION_BODIES = _body(DISPOSITION_PREFIX, _FIELDS_OF_DISPOSITION)


@given(_TRANSFER_BODIES | _damaged(_TRANSFER_BODIES), st.binary(max_size=40))
def test_the_quick_reader_of_transfers_says_what_the_general_one_says(body: bytes, payload: bytes) -> None:
    quick = read_transfer(body + payload, 0, len(body + payload))
    assert quick is None or quick == _generally(body + payload)


@given(_DISPOSITION_BODIES | _damaged(_DISPOSITION_BODIES))
def test_the_quick_reader_of_dispositions_says_what_the_general_one_says(body: bytes) -> None:
    quick = read_disposition(body, 0, len(body))
    assert quick is None or quick == _generally(body)


@given(_TRANSFER_BODIES, st.data())
def test_a_transfer_that_runs_over_its_frame_is_left_to_the_general_reader(body: bytes, data: st.DataObject) -> None:
    stop = data.draw(st.integers(6, len(body) - 1))
    assert read_transfer(body, 0, stop) is None


@given(TRANSFERS)
def test_the_quick_reader_reads_every_plain_transfer(transfer: Transfer) -> None:
    body = write_performative(transfer)
    is_plain = not transfer.aborted and transfer.state is None
    if is_plain:
        assert read_transfer(body, 0, len(body)) == head_of_transfer(transfer, len(body))
    else:
        assert read_transfer(body, 0, len(body)) is None


@given(DISPOSITIONS)
def test_the_quick_reader_reads_every_short_disposition(disposition: Disposition) -> None:
    body = write_performative(disposition)
    if body.startswith(DISPOSITION_PREFIX):
        assert read_disposition(body, 0, len(body)) == head_of_disposition(disposition)


@given(
    channel=st.integers(0, 65535),
    handle=UINTS,
    delivery_id=UINTS,
    tag=st.binary(max_size=32),
    message_format=UINTS,
    settled=st.booleans(),
    more=st.booleans(),
    payload=st.binary(max_size=300),
)
def test_what_the_quick_writer_writes_the_general_reader_reads(
    channel: int,
    handle: int,
    delivery_id: int,
    tag: bytes,
    message_format: int,
    settled: bool,
    more: bool,
    payload: bytes,
) -> None:
    head = write_transfer(
        channel,
        encode(UInt(handle)),
        delivery_id,
        tag,
        encode(UInt(message_format)),
        settled=settled,
        more=more,
        payload=len(payload),
    )
    frame = head + payload
    assert unpack_frame_header(frame, 0) == (len(frame), 2, 0, channel)
    assert len(head) <= TRANSFER_ROOM
    expected = Transfer(
        handle=handle,
        delivery_id=delivery_id,
        delivery_tag=tag,
        message_format=message_format,
        settled=settled,
        more=more,
    )
    assert read_performative(frame, 8) == (expected, len(head))


@given(handle=UINTS, more=st.booleans(), payload=st.binary(max_size=300))
def test_a_continuation_carries_handle_and_more_only(handle: int, more: bool, payload: bytes) -> None:
    head = write_continuation(3, encode(UInt(handle)), more=more, payload=len(payload))
    frame = head + payload
    assert unpack_frame_header(frame, 0) == (len(frame), 2, 0, 3)
    assert read_performative(frame, 8) == (Transfer(handle=handle, more=more), len(head))


def _fields(frame: bytes) -> int:
    """How many fields the list has that a frame's performative is."""
    return read_list(frame, 8 + 3)[0]


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("settled", [False, True])
def test_every_transfer_has_all_its_fields(settled: bool, more: bool) -> None:
    """azure-servicebus below 7.15 finds the payload behind the eleventh field, wherever that is."""
    all_fields = len(dataclasses.fields(Transfer))  # type: ignore[arg-type] # a dataclass by its decorator
    first = write_transfer(0, b"\x43", 1, b"tag", b"\x43", settled=settled, more=more, payload=0)
    assert _fields(first) == _fields(write_continuation(0, b"\x43", more=more, payload=0)) == all_fields == 11


@given(st.booleans(), UINTS, UINTS, st.booleans(), st.none() | STATES)
def test_a_disposition_is_read_as_it_was_written(
    is_receiver: bool, first: int, last: int, settled: bool, state: Any
) -> None:
    head = DispositionHead(is_receiver, first, last, settled, state)
    found, _ = read_performative(write_disposition(head), 0)
    assert found == Disposition(role=is_receiver, first=first, last=last, settled=settled, state=state)


@pytest.mark.parametrize("body", [TRANSFER_PREFIX, TRANSFER_PREFIX + b"\x05", TRANSFER_PREFIX + b"\x01\x00"])
def test_the_end_of_the_data_is_left_to_the_general_reader(body: bytes) -> None:
    assert read_transfer(body, 0, len(body)) is None
