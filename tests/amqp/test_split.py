"""However the transport cuts the bytes, and whatever it carries: the same events, and never an exception."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_amqp.encoding.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, build_frame
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    Close,
    Detach,
    Disposition,
    End,
    Open,
    SaslInit,
    write_performative,
)
from servicebus_amqp.protocol import links
from servicebus_amqp.protocol.connection import Connection, Session
from servicebus_amqp.protocol.connection_settings import ConnectionRole
from servicebus_amqp.protocol.links import Link, ReceiverLink, SenderLink
from tests.amqp.test_performatives import PERFORMATIVES
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
