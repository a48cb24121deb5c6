from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_amqp.encoding.codec import Described, Symbol, ULong
from servicebus_amqp.encoding.frames import AMQP_HEADER
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    RELEASED,
    Attach,
    Detach,
    Disposition,
    Error,
    Flow,
    Modified,
    Open,
    Rejected,
    TransactionalState,
    Transfer,
)
from servicebus_amqp.protocol import links
from servicebus_amqp.protocol.connection import Connection
from servicebus_amqp.protocol.connection_settings import ConnectionRole
from servicebus_amqp.protocol.links import ReceiverLink, SenderLink
from servicebus_amqp.protocol_errors import EncodeError
from tests.amqp.wires import (
    NEAR_WRAP,
    Pair,
    attach,
    begin,
    begun_server,
    flow,
    frame,
    frames_in,
    of_kind,
    performatives_in,
    receiving_server,
    sending_server,
    settings,
    transfer,
)


def _receive(server: Connection, *transfers: Any, payload: bytes = b"m") -> list[links.Event]:
    return server.receive_data(b"".join(frame(found, payload, channel=7) for found in transfers))


def _dispositions(server: Connection) -> list[Disposition]:
    return [found for found in performatives_in(server.data_to_send()) if isinstance(found, Disposition)]


def _condition(happened: list[links.Event], kind: type[links.SessionEnded] | type[links.Detached]) -> str:
    error = of_kind(kind, happened)[-1].error
    assert error is not None
    return error.condition


def test_a_message_comes_with_all_its_marks() -> None:
    server, link = receiving_server()
    sent = transfer(9, delivery_tag=b"\xff\x00", message_format=0x80013700, settled=True)
    assert _receive(server, sent, payload=b"raw") == [
        links.DeliveryReceived(link, 9, b"\xff\x00", 0x80013700, b"raw", True)
    ]


def test_the_frames_of_a_message_are_joined() -> None:
    server, link = receiving_server()
    first = frame(transfer(9, more=True, message_format=3), b"one ", channel=7)
    second = frame(transfer(None, delivery_tag=None, more=True), b"two ", channel=7)
    third = frame(transfer(9, delivery_tag=None), b"three", channel=7)
    assert server.receive_data(first + second) == []
    assert server.receive_data(third) == [links.DeliveryReceived(link, 9, b"9", 3, b"one two three", False)]


IN_A = TransactionalState(txn_id=b"a")


@pytest.mark.parametrize(
    ("later", "is_whole"), [(None, True), (IN_A, True), (TransactionalState(txn_id=b"b"), False), (ACCEPTED, False)]
)
def test_the_first_frame_carries_the_state_of_its_message(later: Any, is_whole: bool) -> None:
    server, link = receiving_server()
    frames = (transfer(9, more=True, state=IN_A), transfer(9, delivery_tag=None, state=later))
    happened = _receive(server, *frames)
    if is_whole:
        assert happened == [links.DeliveryReceived(link, 9, b"9", 0, b"mm", False, IN_A)]
    else:
        assert _condition(happened, links.SessionEnded) == "amqp:invalid-field"


@pytest.mark.parametrize("size", [1, 512, 5000])
def test_a_message_is_sent_with_a_state(size: int) -> None:
    pair = Pair(client=settings(max_frame_size=512), server=settings(max_frame_size=512))
    sender = pair.sender()
    sender.send(b"before", tag=b"0")
    sender.send(b"x" * size, tag=b"1", message_format=3, state=IN_A)
    sender.send(b"after", tag=b"2")
    pair.run()
    found = of_kind(links.DeliveryReceived, pair.at_server)
    assert [(each.payload, each.message_format, each.state) for each in found] == [
        (b"before", 0, None), (b"x" * size, 3, IN_A), (b"after", 0, None)
    ]  # fmt: skip


def test_messages_of_two_links_may_be_interleaved() -> None:
    server, link = receiving_server()
    server.receive_data(frame(attach(1), channel=7))
    other = link.session.links[1]
    assert isinstance(other, ReceiverLink)
    other.accept_attach()
    other.flow(5)
    parts = [
        frame(transfer(1, more=True), b"a", channel=7),
        frame(transfer(2, handle=1, more=True), b"x", channel=7),
        frame(transfer(None), b"b", channel=7),
        frame(transfer(None, handle=1), b"y", channel=7),
    ]
    happened = of_kind(links.DeliveryReceived, server.receive_data(b"".join(parts)))
    assert [(delivery.link, delivery.payload) for delivery in happened] == [(link, b"ab"), (other, b"xy")]


def test_a_later_frame_may_settle_the_message() -> None:
    server, _ = receiving_server()
    (delivery,) = _receive(server, transfer(1, more=True), transfer(1, settled=True))
    assert isinstance(delivery, links.DeliveryReceived)
    assert delivery.settled


@pytest.mark.parametrize("first", [transfer(1, aborted=True), transfer(1, more=True)])
def test_an_aborted_message_is_dropped_and_uses_its_credit(first: Any) -> None:
    server, link = receiving_server(credit=10)
    happened = _receive(server, first)
    if first.more:
        happened += _receive(server, transfer(1, aborted=True))
    assert happened == []
    assert link.credit == 9
    (delivery,) = _receive(server, transfer(2), payload=b"next")
    assert isinstance(delivery, links.DeliveryReceived)
    assert delivery.payload == b"next"


def test_an_aborted_message_may_say_that_more_follows() -> None:
    server, _ = receiving_server()
    assert _receive(server, transfer(1, more=True), transfer(1, more=True, aborted=True)) == []
    assert len(_receive(server, transfer(2))) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        (transfer(None),),
        (transfer(1, delivery_tag=None),),
        (transfer(1, more=True), transfer(2)),
    ],
)
def test_transfers_that_make_no_sense_end_the_session(wrong: tuple[Any, ...]) -> None:
    server, _ = receiving_server()
    assert _condition(_receive(server, *wrong), links.SessionEnded) == "amqp:invalid-field"
    assert not server.is_finished


def test_a_delivery_id_that_comes_twice_is_two_messages_with_one_outcome() -> None:
    """Microsoft's Python client does that to concurrent callers, and the service takes what it sends."""
    server, link = receiving_server()
    assert len(_receive(server, transfer(1), transfer(1))) == 2
    link.settle(1, ACCEPTED)
    link.settle(1, ACCEPTED)
    (said,) = _dispositions(server)
    assert (said.first, said.settled) == (1, True)


def test_a_delivery_id_may_come_again_once_it_is_settled() -> None:
    server, link = receiving_server()
    _receive(server, transfer(1))
    link.settle(1, ACCEPTED)
    assert len(_receive(server, transfer(1))) == 1


def test_credit_falls_with_each_message() -> None:
    server, link = receiving_server(credit=3)
    _receive(server, transfer(1), transfer(2))
    assert (link.credit, link.delivery_count) == (1, 2)


def test_a_message_beyond_the_credit_detaches_the_link() -> None:
    server, link = receiving_server(credit=1)
    happened = _receive(server, transfer(1), transfer(2))
    assert _condition(happened, links.Detached) == "amqp:link:transfer-limit-exceeded"
    detach = performatives_in(server.data_to_send())[-1]
    assert isinstance(detach, Detach)
    assert detach.closed
    assert server.receive_data(frame(Detach(handle=0, closed=True), channel=7)) == []
    assert link not in link.session.links


def test_credit_that_was_taken_back_may_still_be_under_way() -> None:
    server, link = receiving_server(credit=5)
    link.flow(1)
    happened = _receive(server, *[transfer(number) for number in range(5)])
    assert len(of_kind(links.DeliveryReceived, happened)) == 5
    assert _condition(_receive(server, transfer(5)), links.Detached) == "amqp:link:transfer-limit-exceeded"


def test_flow_sets_the_credit_and_tells_the_windows() -> None:
    server, link = receiving_server(credit=0)
    link.flow(7, drain=True, echo=True, properties={"p": 1})
    (told,) = performatives_in(server.data_to_send())
    assert isinstance(told, Flow)
    assert (told.handle, told.delivery_count, told.link_credit, told.drain, told.echo) == (0, 0, 7, True, True)
    assert (told.next_incoming_id, told.incoming_window, told.properties) == (NEAR_WRAP, 5000, {"p": 1})


def test_a_drained_sender_takes_its_credit_with_it() -> None:
    server, link = receiving_server(credit=10)
    _receive(server, transfer(1))
    (told,) = server.receive_data(frame(flow(handle=0, delivery_count=10, link_credit=0, drain=True), channel=7))
    assert isinstance(told, links.FlowReceived)
    assert (told.credit, link.credit, link.delivery_count) == (0, 0, 10)
    assert _condition(_receive(server, transfer(2)), links.Detached) == "amqp:link:transfer-limit-exceeded"


def test_a_senders_echo_is_answered_with_the_credit() -> None:
    server, _ = receiving_server(credit=10)
    server.receive_data(frame(flow(handle=0, delivery_count=0, echo=True), channel=7))
    (told,) = performatives_in(server.data_to_send())
    assert isinstance(told, Flow)
    assert told.link_credit == 10


def test_neighbours_of_equal_state_leave_as_one_disposition() -> None:
    server, link = receiving_server()
    _receive(server, *[transfer(number) for number in range(10, 20)])
    link.settle(range(10, 15), ACCEPTED)
    link.settle(15, RELEASED)
    link.settle(16, RELEASED)
    link.settle(18, RELEASED)
    link.settle(19, RELEASED, settled=False)
    found = _dispositions(server)
    assert [(d.first, d.last, d.state, d.settled, d.role) for d in found] == [
        (10, 14, ACCEPTED, True, True),
        (15, 16, RELEASED, True, True),
        (18, 18, RELEASED, True, True),
        (19, 19, RELEASED, False, True),
    ]


def test_equal_errors_share_a_range_and_different_ones_do_not() -> None:
    server, link = receiving_server()
    _receive(server, *[transfer(number) for number in range(3)])
    for number, name in enumerate(["busy", "busy", "gone"]):
        link.settle(number, Rejected(error=Error(condition=name, description="d", info={})))
    assert [(found.first, found.last) for found in _dispositions(server)] == [(0, 1), (2, 2)]


def test_no_range_spans_the_wrap() -> None:
    server, link = receiving_server()
    ids = [2**32 - 2, 2**32 - 1, 0, 1]
    _receive(server, *[transfer(number, delivery_tag=b"t") for number in ids])
    link.settle(range(2**32 - 2, 2**32 + 2), ACCEPTED)
    assert [(found.first, found.last) for found in _dispositions(server)] == [(2**32 - 2, 2**32 - 1), (0, 1)]


def test_a_delivery_is_settled_once_and_unknown_ones_not_at_all() -> None:
    server, link = receiving_server()
    _receive(server, transfer(1), transfer(2, settled=True))
    for number in (1, 1, 2, 3):
        link.settle(number, ACCEPTED)
    assert [(found.first, found.last) for found in _dispositions(server)] == [(1, 1)]


def test_outcomes_leave_before_the_detach_of_their_link() -> None:
    server, link = receiving_server()
    _receive(server, transfer(1))
    link.settle(1, ACCEPTED)
    link.detach()
    assert [type(found) for found in performatives_in(server.data_to_send())] == [Disposition, Detach]


def test_a_sender_may_settle_its_own_delivery() -> None:
    server, link = receiving_server()
    _receive(server, transfer(1))
    said = frame(Disposition(role=False, first=1, settled=True, state=ACCEPTED), channel=7)
    assert server.receive_data(said) == [links.DispositionReceived(link, 1, b"1", ACCEPTED, True)]
    link.settle(1, ACCEPTED)
    assert server.data_to_send() == b""


@pytest.mark.parametrize("parts", [1, 3])
def test_a_message_above_the_limit_is_rejected_and_the_link_stays(parts: int) -> None:
    server, link = receiving_server(accept_with={"max_message_size": 10})
    transfers = [transfer(1, more=part < parts - 1) for part in range(parts)]
    happened = _receive(server, *transfers, payload=bytes(11))
    assert happened == [links.DeliveryTooLarge(link, 1, b"1", 11 * parts, False)]
    found, settled = _dispositions(server)
    assert (found.settled, settled.settled) == (False, True)
    assert isinstance(found.state, Rejected)
    assert found.state == settled.state
    assert found.state.error is not None
    assert found.state.error.condition == "amqp:link:message-size-exceeded"
    assert str(11 * parts) in found.state.error.description
    assert of_kind(links.DeliveryReceived, _receive(server, transfer(2), payload=bytes(10)))


@pytest.mark.parametrize("outcome", [Rejected(error=Error(condition="amqp:not-allowed")), RELEASED, Modified()])
def test_a_refusal_is_an_unsettled_outcome_then_a_settled_one_in_one_write(outcome: Any) -> None:
    """SPEC.md section 7: "a refusal is an unsettled outcome, followed by the same one settled for clients"."""
    server, link = receiving_server()
    for number in range(3):
        _receive(server, transfer(number))
        link.answer(number, outcome)
    found = _dispositions(server)
    assert [(one.first, one.settled, one.state) for one in found] == [
        (number, settled, outcome) for number in range(3) for settled in (False, True)
    ]
    assert not any(link.holds(number) for number in range(3)), "a client that never settles costs no memory"


@pytest.mark.parametrize("product", ["MSGolangClient", None])
def test_a_refusal_is_settled_alone_for_go_and_clients_without_a_product(product: str | None) -> None:
    """SPEC.md section 7: "Go's client, and a client that names no product, gets the settled one alone"."""
    server, link = receiving_server()
    assert server.remote is not None
    properties = None if product is None else {Symbol("product"): product}
    server.remote = replace(server.remote, properties=properties)
    _receive(server, transfer(0))
    link.answer(0, RELEASED)
    assert [(one.settled, one.state) for one in _dispositions(server)] == [(True, RELEASED)]


def test_acceptances_are_settled_at_once_and_share_a_frame() -> None:
    server, link = receiving_server()
    _receive(server, *(transfer(number) for number in range(3)))
    for number in range(3):
        link.answer(number, ACCEPTED)
    (found,) = _dispositions(server)
    assert (found.first, found.last, found.settled, found.state) == (0, 2, True, ACCEPTED)


def test_a_message_above_the_limit_takes_no_memory_while_it_comes_in() -> None:
    server, _ = receiving_server(max_message_size=100_000)
    piece = bytes(50_000)
    first = frame(transfer(1, more=True), piece, channel=7)
    server.receive_data(first * 2)
    tracemalloc.start()
    try:
        for _ in range(50):
            server.receive_data(first)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 10 * len(piece)


def test_a_settled_message_above_the_limit_is_dropped() -> None:
    server, link = receiving_server(max_message_size=10)
    happened = _receive(server, transfer(1, settled=True), payload=bytes(11))
    assert happened == [links.DeliveryTooLarge(link, 1, b"1", 11, True)]
    assert server.data_to_send() == b""


def test_the_limit_of_the_settings_is_told_in_the_attach() -> None:
    server = begun_server(max_message_size=4711)
    (requested,) = of_kind(links.AttachRequested, server.receive_data(frame(attach(), channel=7)))
    requested.link.accept_attach()
    (answer,) = performatives_in(server.data_to_send())
    assert isinstance(answer, Attach)
    assert answer.max_message_size == 4711


def test_our_window_opens_again_when_half_is_used() -> None:
    server, _ = receiving_server(incoming_window=10)
    _receive(server, *[transfer(number, settled=True) for number in range(4)])
    assert server.data_to_send() == b""
    _receive(server, transfer(4, settled=True))
    (told,) = performatives_in(server.data_to_send())
    assert isinstance(told, Flow)
    assert (told.handle, told.incoming_window, told.next_incoming_id) == (None, 10, (NEAR_WRAP + 5) % 2**32)


def test_frames_beyond_our_window_end_the_session() -> None:
    server, _ = receiving_server(incoming_window=3)
    happened = _receive(server, *[transfer(number, settled=True) for number in range(4)])
    assert len(of_kind(links.DeliveryReceived, happened)) == 3
    assert _condition(happened, links.SessionEnded) == "amqp:session:window-violation"


def test_every_frame_of_a_message_uses_the_window() -> None:
    server, _ = receiving_server(incoming_window=3)
    happened = _receive(server, *[transfer(1, more=True)] * 4)
    assert _condition(happened, links.SessionEnded) == "amqp:session:window-violation"


def _with_small_frames() -> tuple[Connection, ReceiverLink]:
    """A server that has one message of a client which takes frames of 512 bytes."""
    server = Connection(role=ConnectionRole.SERVER, settings=settings())
    server.receive_data(AMQP_HEADER + frame(Open(container_id="c", max_frame_size=512)) + frame(begin()))
    (requested,) = of_kind(links.AttachRequested, server.receive_data(frame(attach())))
    link = requested.link
    assert isinstance(link, ReceiverLink)
    link.accept_attach()
    link.flow(5)
    server.receive_data(frame(transfer(1)))
    server.data_to_send()
    return server, link


@pytest.mark.parametrize("length", [*range(380, 480), 2000])
def test_a_long_rejection_is_cut_to_the_peers_frames(length: int) -> None:
    server, link = _with_small_frames()
    error = Error(condition="amqp:not-allowed", description="w" * length, info={"x": "y"})
    link.settle(1, Rejected(error=error))
    data = server.data_to_send()
    (found,) = performatives_in(data)
    assert len(data) <= 512
    assert isinstance(found, Disposition)
    assert isinstance(found.state, Rejected)
    assert found.state.error is not None
    assert error.description.startswith(found.state.error.description)
    assert len(found.state.error.description) >= min(length, 350)


def test_annotations_too_long_for_the_peers_frames_are_left_out() -> None:
    server, link = _with_small_frames()
    link.settle(1, Modified(delivery_failed=True, message_annotations={"x": "y" * 600}))
    (found,) = _dispositions(server)
    assert found.state == Modified(delivery_failed=True)


def test_a_state_that_cannot_be_cut_is_refused_at_once() -> None:
    server, link = _with_small_frames()
    with pytest.raises(EncodeError, match="delivery state"):
        link.settle(1, Described(ULong(0x3F), ["x" * 600]))
    link.settle(1, ACCEPTED)
    assert [found.state for found in _dispositions(server)] == [ACCEPTED]


def test_a_client_may_grant_credit_before_the_attach_is_answered() -> None:
    pair = Pair()
    session = pair.begin()
    link = session.attach_receiver("orders", None, None)
    link.flow(3)
    pair.run()
    (credited,) = of_kind(links.FlowReceived, pair.at_server)
    assert credited.credit == 3


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
