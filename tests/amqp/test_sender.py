from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_amqp.encoding.frames import AMQP_HEADER
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    Detach,
    Disposition,
    Error,
    Flow,
    Modified,
    Open,
    Rejected,
    Transfer,
)
from servicebus_amqp.protocol import links
from servicebus_amqp.protocol.connection import Connection
from servicebus_amqp.protocol.connection_settings import ConnectionRole
from servicebus_amqp.protocol.links import SenderLink
from servicebus_amqp.protocol_errors import EncodeError
from tests.amqp.wires import (
    NEAR_WRAP,
    Pair,
    attach,
    begin,
    flow,
    frame,
    frames_in,
    of_kind,
    performatives_in,
    sending_server,
    settings,
)


def _transfers(data: bytes) -> list[tuple[Transfer, bytes]]:
    return [(found, payload) for _, found, payload in frames_in(data) if isinstance(found, Transfer)]


def _small_frames(credit: int = 100, window: int = 1000) -> tuple[Connection, SenderLink]:
    """A sending server whose client takes frames of 512 bytes."""
    server = Connection(role=ConnectionRole.SERVER, settings=settings())
    server.receive_data(
        AMQP_HEADER
        + frame(Open(container_id="c", max_frame_size=512))
        + frame(begin(incoming_window=window), channel=7)
    )
    (requested,) = of_kind(links.AttachRequested, server.receive_data(frame(attach(role=True), channel=7)))
    requested.link.accept_attach()
    server.receive_data(frame(flow(handle=0, delivery_count=0, link_credit=credit, incoming_window=window), channel=7))
    server.data_to_send()
    assert isinstance(requested.link, SenderLink)
    return server, requested.link


def _settled(server: Connection, first: int, last: int | None = None, **changes: Any) -> list[Any]:
    values: dict[str, Any] = {"role": True, "first": first, "last": last, "settled": True, "state": ACCEPTED}
    return server.receive_data(frame(Disposition(**(values | changes)), channel=7))


def test_a_message_goes_out_whole() -> None:
    server, link = sending_server()
    assert link.send(b"payload", tag=b"tag", message_format=0x80013700, settled=True) == NEAR_WRAP + 1
    ((found, payload),) = _transfers(server.data_to_send())
    assert payload == b"payload"
    expected = Transfer(
        handle=0, delivery_id=NEAR_WRAP + 1, delivery_tag=b"tag", message_format=0x80013700, settled=True
    )
    assert found == expected


def test_a_message_may_be_given_in_pieces() -> None:
    server, link = sending_server()
    link.send([b"head", b"", b"body"], tag=b"1")
    assert [payload for _, payload in _transfers(server.data_to_send())] == [b"headbody"]


@given(pieces=st.lists(st.binary(max_size=900), max_size=6))
def test_pieces_that_need_several_frames_are_framed_as_the_whole_is(pieces: list[bytes]) -> None:
    in_pieces, whole = _small_frames(), _small_frames()
    in_pieces[1].send([memoryview(piece) for piece in pieces], tag=b"1")
    whole[1].send(b"".join(pieces), tag=b"1")
    assert in_pieces[0].data_to_send() == whole[0].data_to_send()


def test_delivery_ids_and_frames_are_counted_apart_and_wrap() -> None:
    server, link = _small_frames()
    ids = [link.send(bytes(1000), tag=b"%d" % n) for n in range(3)]
    assert ids == [2**32 - 2, 2**32 - 1, 0]
    transfers = _transfers(server.data_to_send())
    assert len(transfers) == 9
    link.session.write_flow()
    (told,) = performatives_in(server.data_to_send())
    assert isinstance(told, Flow)
    assert told.next_outgoing_id == (NEAR_WRAP + 9) % 2**32


def test_a_large_message_is_cut_into_frames_the_peer_takes() -> None:
    server, link = _small_frames()
    message = bytes(range(256)) * 8
    link.send(message, tag=b"t" * 32, message_format=7)
    data = server.data_to_send()
    transfers = _transfers(data)
    assert b"".join(payload for _, payload in transfers) == message
    assert all(len(frame(found, payload)) <= 512 for found, payload in transfers)
    assert [found.more for found, _ in transfers] == [True] * (len(transfers) - 1) + [False]
    first, *rest = [found for found, _ in transfers]
    assert (first.delivery_tag, first.message_format) == (b"t" * 32, 7)
    assert all(found.delivery_id is found.delivery_tag is found.message_format is None for found in rest)


def test_no_frame_is_longer_than_the_peer_takes_at_any_payload_size() -> None:
    for size in range(430, 530):
        server, link = _small_frames()
        link.send(bytes(size), tag=b"t" * 32, message_format=2**32 - 1)
        data = server.data_to_send()
        at = 0
        while at < len(data):
            length = int.from_bytes(data[at : at + 4], "big")
            assert length <= 512
            at += length
        assert sum(len(payload) for _, payload in _transfers(data)) == size


def test_an_empty_message_is_one_frame() -> None:
    server, link = _small_frames(credit=0)
    link.send(b"", tag=b"1")
    server.receive_data(frame(flow(handle=0, delivery_count=0, link_credit=1), channel=7))
    ((found, payload),) = _transfers(server.data_to_send())
    assert (found.more, payload) == (False, b"")


def test_what_has_no_credit_waits_and_goes_out_in_order_with_the_next_flow() -> None:
    server, link = sending_server(credit=1)
    assert link.send(b"a", tag=b"a") is not None
    assert (link.send(b"b", tag=b"b"), link.send(b"c", tag=b"c"), link.waiting, link.credit) == (None, None, 2, 0)
    assert len(_transfers(server.data_to_send())) == 1
    server.receive_data(frame(flow(handle=0, delivery_count=1, link_credit=5), channel=7))
    assert [found.delivery_tag for found, _ in _transfers(server.data_to_send())] == [b"b", b"c"]
    assert (link.credit, link.waiting) == (3, 0)


def test_a_message_cannot_overtake_those_that_wait() -> None:
    server, link = _small_frames(window=2)
    link.send(bytes(2000), tag=b"long")
    link.send(b"short", tag=b"short")
    assert len(_transfers(server.data_to_send())) == 2
    more = flow(handle=0, next_incoming_id=(NEAR_WRAP + 2) % 2**32, incoming_window=50, delivery_count=0, link_credit=9)
    server.receive_data(frame(more, channel=7))
    tags = [found.delivery_tag for found, _ in _transfers(server.data_to_send())]
    assert tags[-1] == b"short"
    assert set(tags[:-1]) == {None}


def test_the_session_window_counts_frames_of_all_links() -> None:
    server, link = sending_server()
    server.receive_data(frame(attach(1, role=True), channel=7))
    other = link.session.links[1]
    assert isinstance(other, SenderLink)
    other.accept_attach()
    tight = flow(handle=1, delivery_count=0, link_credit=10, incoming_window=2)
    server.receive_data(frame(tight, channel=7))
    server.data_to_send()
    sent = [
        link.send(b"1", tag=b"1"),
        other.send(b"2", tag=b"2"),
        link.send(b"3", tag=b"3"),
        other.send(b"4", tag=b"4"),
    ]
    assert sent[2:] == [None, None]
    assert len(_transfers(server.data_to_send())) == 2
    server.receive_data(frame(flow(next_incoming_id=(NEAR_WRAP + 2) % 2**32, incoming_window=2), channel=7))
    assert [found.delivery_tag for found, _ in _transfers(server.data_to_send())] == [b"3", b"4"]


def test_a_flow_without_next_incoming_id_counts_from_the_start() -> None:
    server, link = sending_server()
    link.send(b"1", tag=b"1")
    server.receive_data(frame(flow(next_incoming_id=None, incoming_window=2), channel=7))
    assert link.session.remote_incoming_window == 1


@pytest.mark.parametrize("sent", [0, 3])
def test_a_repeated_identical_flow_leaves_the_credit_as_it_is(sent: int) -> None:
    server, link = sending_server(credit=10)
    for number in range(sent):
        link.send(b"m", tag=b"%d" % number)
    for _ in range(3):
        server.receive_data(frame(flow(handle=0, delivery_count=0, link_credit=10), channel=7))
        assert link.credit == 10 - sent


def test_credit_may_be_taken_back() -> None:
    server, link = sending_server(credit=10)
    link.send(b"m", tag=b"1")
    server.receive_data(frame(flow(handle=0, delivery_count=0, link_credit=0), channel=7))
    assert link.credit == 0


def test_a_flow_event_tells_the_credit_there_is() -> None:
    server, link = sending_server(credit=10)
    link.send(b"m", tag=b"1")
    told = flow(handle=0, delivery_count=0, link_credit=10, properties={"p": 1})
    assert server.receive_data(frame(told, channel=7)) == [links.FlowReceived(link, 9, False, False, {"p": 1})]


def test_credit_counts_across_the_wrap_of_the_delivery_count() -> None:
    server, link = sending_server(credit=0)
    server.receive_data(frame(attach(1, role=True), channel=7))
    other = link.session.links[1]
    assert isinstance(other, SenderLink)
    other.accept_attach(initial_delivery_count=2**32 - 1)
    credit = flow(handle=1, delivery_count=2**32 - 1, link_credit=3)
    server.receive_data(frame(credit, channel=7))
    other.send(b"1", tag=b"1")
    other.send(b"2", tag=b"2")
    assert (other.delivery_count, other.credit) == (1, 1)
    server.receive_data(frame(flow(handle=1, delivery_count=0, link_credit=3), channel=7))
    assert other.credit == 2


def test_a_drain_gives_back_what_the_owner_does_not_use() -> None:
    server, link = sending_server(credit=0)
    drain = flow(handle=0, delivery_count=0, link_credit=5, drain=True)
    (drained,) = server.receive_data(frame(drain, channel=7))
    assert isinstance(drained, links.FlowReceived)
    assert drained.drain
    link.send(b"last", tag=b"1")
    sent = performatives_in(server.data_to_send())
    assert [type(found) for found in sent] == [Transfer, Flow]
    told = sent[1]
    assert isinstance(told, Flow)
    assert (told.delivery_count, told.link_credit, told.drain) == (5, 0, True)
    assert link.credit == 0
    assert server.data_to_send() == b""


def test_a_drain_may_be_left_to_the_owner() -> None:
    server, link = sending_server(credit=0)
    link.answers_drains = False
    (drained,) = server.receive_data(frame(flow(handle=0, delivery_count=0, link_credit=5, drain=True), channel=7))
    assert isinstance(drained, links.FlowReceived)
    assert (drained.credit, drained.drain) == (5, True)
    link.send(b"relayed", tag=b"1")
    assert [type(found) for found in performatives_in(server.data_to_send())] == [Transfer]
    link.finish_drain()
    (told,) = performatives_in(server.data_to_send())
    assert isinstance(told, Flow)
    assert (told.delivery_count, told.link_credit, told.drain) == (5, 0, True)
    link.finish_drain()
    assert server.data_to_send() == b""


def test_a_drain_without_credit_is_answered_too() -> None:
    server, _ = sending_server(credit=0)
    server.receive_data(frame(flow(handle=0, delivery_count=0, link_credit=0, drain=True), channel=7))
    (told,) = performatives_in(server.data_to_send())
    assert isinstance(told, Flow)
    assert (told.delivery_count, told.link_credit, told.drain) == (0, 0, True)


def test_a_drain_waits_for_frames_that_wait_for_the_window() -> None:
    server, link = _small_frames(window=1)
    link.send(bytes(900), tag=b"long")
    server.receive_data(
        frame(flow(handle=0, delivery_count=0, link_credit=9, drain=True, incoming_window=1), channel=7)
    )
    assert [type(found) for found in performatives_in(server.data_to_send())] == [Transfer]
    opened = flow(next_incoming_id=(NEAR_WRAP + 1) % 2**32, incoming_window=50)
    server.receive_data(frame(opened, channel=7))
    sent = performatives_in(server.data_to_send())
    assert [type(found) for found in sent] == [Transfer, Transfer, Flow]


def test_an_echo_is_answered_with_the_links_state() -> None:
    server, link = sending_server(credit=4)
    link.send(b"m", tag=b"1")
    server.data_to_send()
    server.receive_data(frame(flow(handle=0, delivery_count=0, link_credit=4, echo=True), channel=7))
    (told,) = performatives_in(server.data_to_send())
    assert isinstance(told, Flow)
    assert (told.handle, told.delivery_count, told.link_credit, told.echo) == (0, 1, 3, False)


def test_a_disposition_of_a_range_names_every_delivery_across_the_wrap() -> None:
    server, link = sending_server()
    ids = [link.send(b"m", tag=b"%d" % number) for number in range(4)]
    assert ids == [2**32 - 2, 2**32 - 1, 0, 1]
    happened = _settled(server, 2**32 - 2, 1)
    assert happened == [
        links.DispositionReceived(link, number, b"%d" % index, ACCEPTED, True) for index, number in enumerate(ids)
    ]
    assert _settled(server, 2**32 - 2, 1) == []


def test_what_was_sent_settled_needs_no_answer() -> None:
    server, link = sending_server()
    sent = link.send(b"m", tag=b"1", settled=True)
    assert sent is not None
    assert _settled(server, sent) == []


def test_an_unsettled_outcome_stays_open_until_it_is_settled() -> None:
    server, link = sending_server()
    sent = link.send(b"m", tag=b"1")
    assert sent is not None
    server.data_to_send()
    state = Modified(delivery_failed=True)
    assert len(_settled(server, sent, settled=False, state=state)) == 1
    link.settle(sent, state)
    (echo,) = performatives_in(server.data_to_send())
    assert echo == Disposition(role=False, first=sent, last=sent, settled=True, state=state)
    link.settle(sent, state)
    assert server.data_to_send() == b""
    assert _settled(server, sent) == []


def test_a_range_over_all_numbers_costs_no_more_than_what_is_unsettled() -> None:
    server, link = sending_server()
    sent = link.send(b"m", tag=b"1")
    assert sent is not None
    happened = _settled(server, (sent - 5) % 2**32, (sent + 2**31 - 10) % 2**32)
    assert [event.delivery_id for event in happened] == [sent]


def test_a_wide_range_names_its_own_deliveries_only() -> None:
    server, link = sending_server()
    ids = [link.send(b"m", tag=b"%d" % number) for number in range(4)]
    assert ids == [2**32 - 2, 2**32 - 1, 0, 1]
    happened = _settled(server, (2**32 - 50), 2**32 - 1)
    assert [event.delivery_id for event in happened] == ids[:2]
    assert [event.delivery_id for event in _settled(server, 0, 50)] == ids[2:]


def test_a_range_that_runs_backwards_ends_the_session() -> None:
    server, _ = sending_server()
    (ended,) = of_kind(links.SessionEnded, _settled(server, 9, 8))
    assert ended.error is not None
    assert ended.error.condition == "amqp:invalid-field"


def test_dispositions_reach_the_link_they_belong_to() -> None:
    server, link = sending_server()
    server.receive_data(frame(attach(1, role=True), channel=7))
    other = link.session.links[1]
    assert isinstance(other, SenderLink)
    other.accept_attach()
    server.receive_data(frame(flow(handle=1, delivery_count=0, link_credit=5), channel=7))
    first, second = link.send(b"m", tag=b"x"), other.send(b"m", tag=b"x")
    assert first is not None
    happened = _settled(server, first, second, state=Rejected(error=Error(condition="amqp:not-found")))
    assert [(event.link, event.tag) for event in happened] == [(link, b"x"), (other, b"x")]


def test_a_detached_link_forgets_what_was_unsettled_and_what_waited() -> None:
    server, link = sending_server(credit=1)
    sent = link.send(b"m", tag=b"1")
    link.send(b"waits", tag=b"2")
    server.receive_data(frame(Detach(handle=0, closed=True), channel=7))
    assert link.waiting == 0
    assert sent is not None
    assert _settled(server, sent) == []


def test_a_tag_has_thirty_two_bytes_at_most() -> None:
    _, link = sending_server()
    with pytest.raises(EncodeError, match="32"):
        link.send(b"m", tag=bytes(33))


def test_nothing_waits_for_ever_between_two_of_ours() -> None:
    pair = Pair(settings("client", max_frame_size=512), settings("server", incoming_window=3, max_frame_size=512))
    link = pair.sender()
    messages = [bytes([number]) * (number * 97) for number in range(60)]
    for number, message in enumerate(messages):
        link.send(message, tag=b"%d" % number)
    pair.run()
    received = of_kind(links.DeliveryReceived, pair.at_server)
    assert [delivery.payload for delivery in received] == messages
    assert [delivery.delivery_id for delivery in received] == [(NEAR_WRAP + 1 + n) % 2**32 for n in range(60)]
