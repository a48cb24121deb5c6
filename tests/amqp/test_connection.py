from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from servicebus_amqp.encoding.codec import Symbol, ULong, described, encode, encode_list
from servicebus_amqp.encoding.frames import AMQP_HEADER, EMPTY_FRAME, build_frame
from servicebus_amqp.encoding.performatives import Attach, Begin, Close, Detach, End, Error, Flow, Open, Source, Target
from servicebus_amqp.protocol import links
from servicebus_amqp.protocol.connection import Connection, Session
from servicebus_amqp.protocol.connection_settings import ConnectionRole, ConnectionSettings, LinkRole
from servicebus_amqp.protocol.links import LinkState, ReceiverLink, SenderLink
from servicebus_amqp.protocol_errors import EncodeError, StateError
from tests.amqp.wires import (
    Pair,
    attach,
    begin,
    begun_server,
    flow,
    frame,
    of_kind,
    opened_server,
    performatives_in,
    receiving_server,
    sending_server,
    settings,
    transfer,
)


def _failure(server: Connection, data: bytes) -> tuple[Error, Close]:
    """The error of the one ConnectionFailed that `data` causes, and the close that tells the peer."""
    (failed,) = of_kind(links.ConnectionFailed, server.receive_data(data))
    close = performatives_in(server.data_to_send())[-1]
    assert isinstance(close, Close)
    assert server.is_finished
    assert server.failure == failed.error
    return failed.error, close


def test_a_server_answers_an_open_with_its_own() -> None:
    server = Connection(
        role=ConnectionRole.SERVER, settings=settings("contoso", idle_timeout_ms=60_000, max_frame_size=4096)
    )
    server.receive_data(AMQP_HEADER + frame(Open(container_id="client")))
    (opened,) = performatives_in(server.data_to_send()[8:])
    assert isinstance(opened, Open)
    assert (opened.container_id, opened.max_frame_size, opened.idle_time_out) == ("contoso", 4096, 60_000)


def test_an_open_tells_who_the_peer_is() -> None:
    server = Connection(role=ConnectionRole.SERVER, settings=settings())
    opened = Open(container_id="SBSender-1", hostname="contoso.example", properties={Symbol("product"): "sdk"})
    happened = server.receive_data(AMQP_HEADER + frame(opened))
    assert happened[-1] == links.Opened("contoso.example", "SBSender-1", {"product": "sdk"})


def test_nothing_is_sent_twice() -> None:
    server = begun_server()
    assert server.data_to_send() == b""


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (frame(Open(container_id="again")), "amqp:not-allowed"),
        (frame(transfer()), "amqp:not-allowed"),
        (frame(flow()), "amqp:not-allowed"),
        (frame(attach()), "amqp:not-allowed"),
        (frame(begin(remote_channel=5)), "amqp:not-allowed"),
        (frame(begin()) + frame(begin()), "amqp:not-allowed"),
        (build_frame(0, b"\xff\xff\xff"), "amqp:decode-error"),
        (build_frame(0, b"\x00\x53\x99\x45"), "amqp:decode-error"),
        (build_frame(0, described(0x40, encode_list([encode(Symbol("A"))]))), "amqp:decode-error"),
        (build_frame(0, described(0x16, b"\x45")), "amqp:decode-error"),
        (build_frame(0, b"\x00\x53\x17\x45\x40"), "amqp:decode-error"),
        (build_frame(0, b"\x00\x53\x14\xc0\xff\x05\x43"), "amqp:decode-error"),
        (build_frame(0, b"", 1), "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x04\x02\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x10\x00\x00\x02\x00\x00\x00", "amqp:connection:framing-error"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "amqp:connection:framing-error"),
    ],
)
def test_what_breaks_the_protocol_closes_the_connection_with_its_condition(data: bytes, condition: str) -> None:
    error, close = _failure(opened_server(), data)
    assert error.condition == condition
    assert close.error == error


def test_after_a_failure_nothing_is_read_and_nothing_sent() -> None:
    server, link = receiving_server()
    _failure(server, b"\x00\x00\x00\x04\x02\x00\x00\x00")
    assert server.receive_data(frame(begin(), channel=3)) == []
    link.flow(5)
    link.detach()
    link.session.end()
    server.close()
    server.write(0, Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1))
    assert server.data_to_send() == b""


def test_a_frame_before_the_open_is_refused_with_open_and_close() -> None:
    server = Connection(role=ConnectionRole.SERVER, settings=settings())
    (failed,) = of_kind(links.ConnectionFailed, server.receive_data(AMQP_HEADER + frame(begin())))
    assert "before the open" in failed.error.description
    assert [type(found) for found in performatives_in(server.data_to_send()[8:])] == [Open, Close]


def test_an_open_with_too_small_frames_is_refused() -> None:
    server = Connection(role=ConnectionRole.SERVER, settings=settings())
    server.receive_data(AMQP_HEADER)
    (failed,) = server.receive_data(frame(Open(container_id="client", max_frame_size=511)))
    assert isinstance(failed, links.ConnectionFailed)
    assert failed.error.condition == "amqp:invalid-field"


def test_a_channel_above_the_highest_is_refused() -> None:
    error, _ = _failure(opened_server(channel_max=2), frame(begin(), channel=3))
    assert error.condition == "amqp:connection:framing-error"


def test_a_handle_above_the_highest_is_refused() -> None:
    error, _ = _failure(begun_server(handle_max=4), frame(attach(5), channel=7))
    assert error.condition == "amqp:connection:framing-error"


def test_empty_frames_are_heard_and_say_nothing() -> None:
    assert opened_server().receive_data(EMPTY_FRAME * 3) == []


def test_a_close_is_answered() -> None:
    server = begun_server()
    error = Error(condition="amqp:connection:forced", description="maintenance")
    assert server.receive_data(frame(Close(error=error))) == [links.Closed(error)]
    assert performatives_in(server.data_to_send()) == [Close()]
    assert server.is_finished


def test_our_close_waits_for_the_answer_and_hears_nothing_else() -> None:
    server, _ = receiving_server()
    server.close(Error(condition="amqp:connection:forced", description="bye"))
    (close,) = performatives_in(server.data_to_send())
    assert isinstance(close, Close)
    assert close.error == Error(condition="amqp:connection:forced", description="bye", info={})
    assert server.receive_data(frame(transfer(), channel=7) + frame(begin(), channel=8)) == []
    assert not server.is_finished
    assert server.receive_data(frame(Close())) == [links.Closed(None)]
    assert server.data_to_send() == b""
    assert server.is_finished


def test_what_was_settled_leaves_before_the_close() -> None:
    server, link = receiving_server()
    server.receive_data(frame(transfer(4), channel=7))
    link.settle(4, None)
    server.close()
    assert [type(found).__name__ for found in performatives_in(server.data_to_send())] == ["Disposition", "Close"]


def test_closing_what_was_never_opened_ends_it_silently() -> None:
    client = Connection(role=ConnectionRole.CLIENT, settings=settings())
    client.close()
    assert client.is_finished
    assert client.data_to_send() == b""


def test_channels_are_numbered_by_each_side() -> None:
    server = opened_server()
    happened = server.receive_data(frame(begin(), channel=700) + frame(begin(), channel=3))
    assert [begun.session.channel for begun in of_kind(links.SessionBegun, happened)] == [0, 1]
    answers = [found for found in performatives_in(server.data_to_send()) if isinstance(found, Begin)]
    assert [answer.remote_channel for answer in answers] == [700, 3]


def test_a_channel_is_free_again_after_its_end() -> None:
    server = begun_server()
    assert of_kind(links.SessionEnded, server.receive_data(frame(End(), channel=7)))
    (begun,) = of_kind(links.SessionBegun, server.receive_data(frame(begin(), channel=7)))
    assert begun.session.channel == 0


def test_a_free_channel_is_not_given_twice() -> None:
    server = opened_server()
    server.receive_data(frame(begin(), channel=1) + frame(begin(), channel=2) + frame(End(), channel=1))
    happened = server.receive_data(frame(begin(), channel=3) + frame(begin(), channel=4))
    assert [begun.session.channel for begun in of_kind(links.SessionBegun, happened)] == [0, 2]


def test_an_end_is_answered_and_a_late_detach_behind_it_is_tolerated() -> None:
    server, link = receiving_server()
    happened = server.receive_data(frame(End(), channel=7) + frame(Detach(handle=0, closed=True), channel=7))
    assert [type(event) for event in happened] == [links.Detached, links.SessionEnded]
    assert performatives_in(server.data_to_send()) == [End()]
    assert not server.is_finished
    assert not link.is_attached


def test_an_end_where_nothing_began_is_tolerated() -> None:
    server = opened_server()
    assert server.receive_data(frame(End(), channel=9)) == []
    assert not server.is_finished


def test_a_session_of_the_server_may_be_asked_for() -> None:
    pair = Pair()
    pair.client.open()
    pair.run()
    session = pair.server.begin()
    pair.run()
    assert of_kind(links.SessionBegun, pair.at_server)[-1].session is session
    assert of_kind(links.SessionBegun, pair.at_client)


def test_a_session_needs_an_open_connection() -> None:
    client = Connection(role=ConnectionRole.CLIENT, settings=settings())
    with pytest.raises(StateError, match="call open first"):
        client.begin()


def test_more_sessions_than_the_peer_takes_are_refused_here() -> None:
    pair = Pair(server=settings("server", channel_max=1))
    pair.begin()
    pair.client.begin()
    with pytest.raises(StateError, match="allows 2 sessions"):
        pair.client.begin()


def test_a_client_holds_all_but_its_open_back_until_the_peer_has_opened() -> None:
    client = Connection(role=ConnectionRole.CLIENT, settings=settings(sasl=False))
    client.open()
    session = client.begin()
    session.attach_sender("x" * 600, None, None)
    assert [type(found) for found in performatives_in(client.data_to_send()[8:])] == [Open]
    client.receive_data(AMQP_HEADER + frame(Open(container_id="server", max_frame_size=4096)))
    assert [type(found).__name__ for found in performatives_in(client.data_to_send())] == ["Begin", "Attach"]


def test_a_held_frame_too_large_for_the_peer_fails_the_connection() -> None:
    client = Connection(role=ConnectionRole.CLIENT, settings=settings(sasl=False))
    client.open()
    client.begin().attach_sender("x" * 600, None, None)
    client.data_to_send()
    happened = client.receive_data(AMQP_HEADER + frame(Open(container_id="server", max_frame_size=512)))
    (failed,) = of_kind(links.ConnectionFailed, happened)
    assert "512" in failed.error.description
    sent = performatives_in(client.data_to_send())
    assert isinstance(sent[-1], Close)


def test_no_frame_is_larger_than_the_peer_takes() -> None:
    server = Connection(role=ConnectionRole.SERVER, settings=settings())
    server.receive_data(AMQP_HEADER + frame(Open(container_id="client", max_frame_size=512)) + frame(begin()))
    (requested,) = of_kind(links.AttachRequested, server.receive_data(frame(attach())))
    with pytest.raises(EncodeError, match="512"):
        requested.link.accept_attach(properties={"p": "x" * 600})


@pytest.mark.parametrize("end", ["detach", "end", "close"])
def test_a_long_error_is_cut_to_the_peers_frames(end: str) -> None:
    server = Connection(role=ConnectionRole.SERVER, settings=settings())
    server.receive_data(AMQP_HEADER + frame(Open(container_id="client", max_frame_size=512)) + frame(begin()))
    (requested,) = of_kind(links.AttachRequested, server.receive_data(frame(attach())))
    requested.link.accept_attach()
    server.data_to_send()
    error = Error(condition="amqp:internal-error", description="long " * 500, info={"trace": "x" * 900})
    ends: dict[str, Any] = {
        "detach": lambda: requested.link.detach(error=error),
        "end": lambda: requested.link.session.end(error),
        "close": lambda: server.close(error),
    }
    ends[end]()
    data = server.data_to_send()
    (found,) = performatives_in(data)
    assert isinstance(found, Detach | End | Close)
    assert len(data) <= 512
    assert found.error is not None
    assert found.error.condition == "amqp:internal-error"
    assert found.error.description.startswith("long long")


def test_more_links_than_the_peer_has_handles_end_the_session_only() -> None:
    server = opened_server()
    server.receive_data(frame(begin(handle_max=0), channel=7))
    server.receive_data(frame(attach(0), channel=7))
    happened = server.receive_data(frame(attach(1), channel=7))
    (ended,) = of_kind(links.SessionEnded, happened)
    assert ended.error is not None
    assert ended.error.condition == "amqp:resource-limit-exceeded"
    assert not server.is_finished


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="max_frame_size"):
        ConnectionSettings(container_id="x", max_frame_size=100)
    with pytest.raises(ValueError, match="incoming_window"):
        ConnectionSettings(container_id="x", incoming_window=0)


def test_a_session_flow_with_echo_is_answered() -> None:
    server = begun_server()
    server.receive_data(frame(flow(echo=True), channel=7))
    (answer,) = performatives_in(server.data_to_send())
    assert isinstance(answer, Flow)
    assert answer.handle is None
    assert not answer.echo


def test_sessions_and_connections_have_readable_names() -> None:
    session = Pair().begin()
    assert isinstance(session, Session)
    assert "channel 0" in repr(session)


def _server(*, ours: int | None = None, peers: int | None = None) -> Connection:
    server = Connection(role=ConnectionRole.SERVER, settings=settings("server", idle_timeout_ms=ours))
    server.receive_data(AMQP_HEADER + frame(Open(container_id="client", idle_time_out=peers)))
    server.data_to_send()
    return server


def _run(server: Connection, *, start: float, end: float, hears_every: float | None = None) -> list[float]:
    """Tick as told from start to end; the times at which something was sent."""
    now, sent, heard = start, [], start
    while now <= end and not server.is_finished:
        if hears_every is not None and now - heard >= hears_every:
            server.receive_data(EMPTY_FRAME)
            heard = now
        deadline = server.tick(now)
        if server.data_to_send():
            sent.append(now)
        if deadline is None:
            break
        assert deadline > now
        now = deadline
    return sent


def test_without_time_outs_there_is_nothing_to_come_back_for() -> None:
    assert opened_server().tick(5.0) is None


def test_a_silent_side_sends_often_enough_for_the_peer() -> None:
    sent = _run(_server(peers=60_000), start=1000.0, end=1300.0)
    gaps = [later - earlier for earlier, later in pairwise(sent)]
    assert len(sent) > 5
    assert max(gaps) <= 30.0


def test_what_keeps_alive_is_an_empty_frame() -> None:
    server = _server(peers=60_000)
    server.tick(0.0)
    assert server.data_to_send() == b""
    server.tick(30.0)
    assert server.data_to_send() == EMPTY_FRAME


def test_a_side_that_speaks_anyway_sends_nothing_extra() -> None:
    server = _server(peers=60_000)
    server.tick(0.0)
    for channel in range(1, 9):
        server.receive_data(frame(begin(), channel=channel))
        assert server.data_to_send()
        server.tick(channel * 15.0)
        assert server.data_to_send() == b""


def test_no_gap_is_longer_than_the_peer_allows_however_writes_and_ticks_fall() -> None:
    server = _server(peers=60_000)
    server.tick(0.0)
    server.receive_data(frame(begin(), channel=1))
    assert server.data_to_send()
    last, now = 0.1, 0.0
    while now < 200.0:
        deadline = server.tick(now)
        if server.data_to_send():
            assert now - last < 60.0
            last = now
        assert deadline is not None
        now = deadline
    assert last > 150.0


def test_a_silent_peer_fails_the_connection_after_our_time_out_and_not_before() -> None:
    server = _server(ours=10_000)
    assert server.tick(100.0) is not None
    assert server.tick(109.9) is not None
    assert server.failure is None
    assert server.tick(110.0) is None
    assert server.is_finished
    assert server.failure is not None
    assert "10000 ms" in server.failure.description
    (close,) = performatives_in(server.data_to_send())
    assert close == Close(error=server.failure)


def test_a_peer_that_is_heard_keeps_the_connection() -> None:
    server = _server(ours=10_000)
    _run(server, start=0.0, end=100.0, hears_every=5.0)
    assert not server.is_finished


def test_a_silent_peer_is_noticed_by_the_deadlines_alone() -> None:
    server = _server(ours=10_000)
    _run(server, start=0.0, end=100.0)
    assert server.is_finished


def test_half_a_frame_counts_as_heard() -> None:
    server = _server(ours=10_000)
    server.tick(0.0)
    server.receive_data(frame(begin())[:5])
    server.tick(9.0)
    server.tick(18.0)
    assert not server.is_finished


def test_a_finished_connection_wants_no_more_ticks() -> None:
    server = _server(ours=10_000, peers=10_000)
    assert server.receive_data(frame(Close())) == [links.Closed(None)]
    assert server.tick(1.0) is None


NOT_FOUND = Error(condition="amqp:not-found", description="no queue of that name", info={})


def test_an_attach_asks_with_all_that_the_owner_needs_to_decide() -> None:
    server = begun_server()
    asked = attach(3, source=Source(address="me"), properties={Symbol("k"): 1})
    (requested,) = server.receive_data(frame(asked, channel=7))
    assert isinstance(requested, links.AttachRequested)
    assert (requested.name, requested.role) == ("link-3", LinkRole.RECEIVER)
    assert (requested.source, requested.target) == (Source(address="me"), Target(address="orders"))
    assert requested.properties == {"k": 1}
    assert server.data_to_send() == b""


def test_an_accepted_attach_echoes_both_termini_and_the_settle_modes() -> None:
    server = begun_server()
    asked = attach(3, role=True, source=Source(address="q", filter={Symbol("f"): ULong(1)}), rcv_settle_mode=1)
    (requested,) = of_kind(links.AttachRequested, server.receive_data(frame(asked, channel=7)))
    requested.link.accept_attach(properties={"p": 1}, max_message_size=1000, initial_delivery_count=5)
    (answer,) = performatives_in(server.data_to_send())
    assert isinstance(answer, Attach)
    assert (answer.name, answer.role) == (asked.name, False)
    assert (answer.source, answer.target, answer.rcv_settle_mode) == (asked.source, asked.target, 1)
    assert (answer.max_message_size, answer.initial_delivery_count) == (1000, 5)
    assert answer.properties == {"p": 1}


def test_termini_of_the_owner_take_the_place_of_the_echo() -> None:
    server = begun_server()
    asked = attach(0, role=True, source=Source(address="q", filter={Symbol("session"): None}))
    (requested,) = of_kind(links.AttachRequested, server.receive_data(frame(asked, channel=7)))
    assert requested.source is not None
    requested.link.accept_attach(requested.source.with_filter({"session": "id-7"}))
    (answer,) = performatives_in(server.data_to_send())
    assert isinstance(answer, Attach)
    assert answer.source is not None
    assert answer.source.filter == {"session": "id-7"}


@pytest.mark.parametrize("role", [False, True])
def test_a_refusal_is_an_attach_without_termini_and_a_detach_with_the_error(role: bool) -> None:
    server = begun_server()
    (requested,) = of_kind(links.AttachRequested, server.receive_data(frame(attach(role=role), channel=7)))
    requested.link.refuse(NOT_FOUND)
    data = server.data_to_send()
    bare = Attach(name=requested.name, handle=0, role=not role, snd_settle_mode=None, rcv_settle_mode=None)
    assert data.startswith(frame(bare)), "no modes, no count and no size, as the service answers"
    answer, detach = performatives_in(data)
    assert isinstance(answer, Attach)
    assert detach == Detach(handle=answer.handle, closed=True, error=NOT_FOUND)
    assert of_kind(links.Detached, server.receive_data(frame(Detach(handle=0, closed=True), channel=7)))
    assert server.data_to_send() == b""


ANY_SIZE = 2**64 - 1


@pytest.mark.parametrize(
    ("role", "ours", "peers", "announced"),
    [
        (False, 1000, None, 1000),
        (False, 1000, 0, 1000),
        (False, 1000, 999, 999),
        (False, 1000, ANY_SIZE, 1000),
        (False, None, 999, 999),
        (False, None, None, ANY_SIZE),
        (True, None, None, ANY_SIZE),
        (True, None, 1024, 1024),
    ],
)
def test_the_smaller_of_both_sizes_applies(role: bool, ours: int | None, peers: int | None, announced: int) -> None:
    """Clients close a link that brings more than its attach announced, so a sender of ours announces any size."""
    server = begun_server(max_message_size=ours)
    asked = attach(role=role, max_message_size=peers)
    (requested,) = of_kind(links.AttachRequested, server.receive_data(frame(asked, channel=7)))
    requested.link.accept_attach()
    (answer,) = performatives_in(server.data_to_send())
    assert isinstance(answer, Attach)
    assert answer.max_message_size == announced


def test_a_server_answers_with_the_clients_windows_and_frames() -> None:
    """The service announces frames no larger than its client's, and its client's incoming window as its outgoing."""
    server = Connection(role=ConnectionRole.SERVER, settings=settings("server", max_frame_size=4096))
    server.receive_data(AMQP_HEADER + frame(Open(container_id="client", max_frame_size=1024)) + frame(begin()))
    opened, begun = performatives_in(server.data_to_send()[len(AMQP_HEADER) :])
    assert isinstance(opened, Open)
    assert opened.max_frame_size == 1024
    assert isinstance(begun, Begin)
    assert begun.outgoing_window == begin().incoming_window


def test_a_client_sees_a_refusal_as_detached_with_the_error() -> None:
    def refuse(event: links.Event) -> None:
        if isinstance(event, links.AttachRequested):
            event.link.refuse(NOT_FOUND)

    pair = Pair(on_server=refuse)
    link = pair.sender()
    (detached,) = of_kind(links.Detached, pair.at_client)
    assert detached == links.Detached(link, closed=True, error=NOT_FOUND)
    assert of_kind(links.Detached, pair.at_server)
    assert pair.client.failure is pair.server.failure is None


def test_a_link_is_answered_once() -> None:
    _, link = receiving_server()
    with pytest.raises(StateError):
        link.accept_attach()
    with pytest.raises(StateError):
        link.refuse(NOT_FOUND)


@pytest.mark.parametrize("act", ["accept", "refuse", "detach", "flow", "settle"])
def test_actions_on_a_link_that_went_in_the_same_read_do_nothing(act: str) -> None:
    server = begun_server()
    happened = server.receive_data(frame(attach(), channel=7) + frame(Detach(handle=0, closed=True), channel=7))
    assert [type(event) for event in happened] == [links.AttachRequested, links.Detached]
    link = of_kind(links.AttachRequested, happened)[0].link
    assert isinstance(link, ReceiverLink)
    acts: dict[str, Any] = {
        "accept": link.accept_attach,
        "refuse": lambda: link.refuse(NOT_FOUND),
        "detach": link.detach,
        "flow": lambda: link.flow(5),
        "settle": lambda: link.settle(1, None),
    }
    acts[act]()
    sent = performatives_in(server.data_to_send())
    assert [type(found) for found in sent] == [Attach, Detach]


def test_sending_on_a_link_that_is_gone_is_refused() -> None:
    server, link = sending_server()
    server.receive_data(frame(Detach(handle=0, closed=True), channel=7))
    assert link.credit == 0
    with pytest.raises(StateError, match="another link"):
        link.send(b"late", tag=b"1")


@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_is_answered_alike(closed: bool) -> None:
    server, link = receiving_server()
    error = Error(condition="amqp:internal-error", description="client gave up")
    happened = server.receive_data(frame(Detach(handle=0, closed=closed, error=error), channel=7))
    assert happened == [links.Detached(link, closed, error)]
    assert performatives_in(server.data_to_send()) == [Detach(handle=0, closed=closed)]


def test_our_detach_ends_with_the_peers_answer() -> None:
    server, link = receiving_server()
    link.detach(error=NOT_FOUND)
    link.detach()
    assert performatives_in(server.data_to_send()) == [Detach(handle=0, closed=True, error=NOT_FOUND)]
    assert link.state is LinkState.DETACHING
    assert server.receive_data(frame(Detach(handle=0, closed=True), channel=7)) == [links.Detached(link, True, None)]
    assert server.data_to_send() == b""


def test_a_detach_before_the_answer_says_so_in_full() -> None:
    server = begun_server()
    (requested,) = of_kind(links.AttachRequested, server.receive_data(frame(attach(), channel=7)))
    requested.link.detach()
    assert [type(found) for found in performatives_in(server.data_to_send())] == [Attach, Detach]


def test_what_comes_on_a_link_we_detached_is_ignored() -> None:
    server, link = receiving_server()
    link.detach()
    late = frame(transfer(1), b"late", channel=7) + frame(flow(handle=0, delivery_count=9), channel=7)
    assert server.receive_data(late) == []
    assert of_kind(links.Detached, server.receive_data(frame(Detach(handle=0), channel=7)))
    assert not server.is_finished


@pytest.mark.parametrize("late", [transfer(1), flow(handle=0, delivery_count=0, link_credit=1)])
def test_what_comes_on_a_handle_its_own_side_detached_ends_the_session(late: Any) -> None:
    server, _ = receiving_server()
    happened = server.receive_data(frame(Detach(handle=0), channel=7) + frame(late, channel=7))
    (ended,) = of_kind(links.SessionEnded, happened)
    assert ended.error is not None
    assert ended.error.condition == "amqp:session:unattached-handle"
    assert not server.is_finished


def test_a_second_detach_is_tolerated() -> None:
    server, _ = receiving_server()
    server.receive_data(frame(Detach(handle=0), channel=7))
    assert server.receive_data(frame(Detach(handle=0), channel=7)) == []
    assert not server.is_finished


def test_a_handle_in_use_ends_the_session_but_not_the_connection() -> None:
    server, link = receiving_server()
    happened = server.receive_data(frame(attach(0, name="other"), channel=7))
    assert [type(event) for event in happened] == [links.Detached, links.SessionEnded]
    (ended,) = of_kind(links.SessionEnded, happened)
    assert ended.error is not None
    assert ended.error.condition == "amqp:session:handle-in-use"
    assert performatives_in(server.data_to_send()) == [End(error=ended.error)]
    assert not link.is_attached
    assert server.receive_data(frame(transfer(), channel=7) + frame(End(), channel=7)) == []
    assert of_kind(links.SessionBegun, server.receive_data(frame(begin(), channel=7)))


def test_a_handle_may_be_used_again_after_its_detach() -> None:
    server, first = receiving_server()
    server.receive_data(frame(Detach(handle=0, closed=True), channel=7))
    (requested,) = of_kind(links.AttachRequested, server.receive_data(frame(attach(0, name="new"), channel=7)))
    assert requested.link is not first
    requested.link.accept_attach()
    answer = performatives_in(server.data_to_send())[-1]
    assert isinstance(answer, Attach)
    assert (answer.name, answer.handle) == ("new", 0)


def test_three_hundred_links_of_one_session_are_told_apart() -> None:
    pair = Pair()
    session = pair.begin()
    made = [session.attach_sender(f"link-{n}", Source(), Target(address=f"q{n}")) for n in range(300)]
    pair.run()
    for number, link in enumerate(made):
        assert link.send(b"m", tag=b"%d" % number) is not None
    pair.run()
    deliveries = of_kind(links.DeliveryReceived, pair.at_server)
    assert [delivery.link.name for delivery in deliveries] == [f"link-{n}" for n in range(300)]
    for link in made[:200]:
        link.detach()
    pair.run()
    again = [session.attach_sender(f"again-{n}", Source(), Target(address="q")) for n in range(200)]
    pair.run()
    assert all(link.is_attached for link in again)
    assert {link.handle for link in session.links} == set(range(300))


def test_one_name_may_stand_for_a_link_in_each_direction() -> None:
    pair = Pair()
    session = pair.begin()
    sender = session.attach_sender("cbs", Source(address="$cbs"), Target(address="$cbs"))
    receiver = session.attach_receiver("cbs", Source(address="$cbs"), Target(address="$cbs"))
    pair.run()
    assert [event.link for event in of_kind(links.Attached, pair.at_client)] == [sender, receiver]
    assert sender.is_attached
    assert receiver.is_attached


def test_a_flow_may_come_before_the_attach_is_answered() -> None:
    server = begun_server()
    asked = frame(attach(role=True), channel=7) + frame(flow(handle=0, link_credit=5), channel=7)
    (requested, credited) = server.receive_data(asked)
    assert isinstance(credited, links.FlowReceived)
    link = credited.link
    assert isinstance(link, SenderLink)
    assert link.credit == 5
    assert link.send(b"early", tag=b"1") is None
    assert server.data_to_send() == b""
    link.accept_attach()
    assert [type(found).__name__ for found in performatives_in(server.data_to_send())] == ["Attach", "Transfer"]
    assert isinstance(requested, links.AttachRequested)


def test_a_transfer_on_a_link_we_send_on_ends_the_session() -> None:
    server, _ = sending_server()
    (ended,) = of_kind(links.SessionEnded, server.receive_data(frame(transfer(), channel=7)))
    assert ended.error is not None
    assert ended.error.condition == "amqp:session:errant-link"


def test_ending_a_session_detaches_its_links_silently_on_the_wire() -> None:
    pair = Pair()
    link = pair.sender()
    link.session.end(Error(condition="amqp:internal-error", description="enough"))
    pair.run()
    assert [type(event) for event in pair.at_server[-2:]] == [links.Detached, links.SessionEnded]
    assert [type(event) for event in pair.at_client[-2:]] == [links.Detached, links.SessionEnded]
    with pytest.raises(StateError, match="another session"):
        link.session.attach_sender("more", None, None)


def test_our_handles_stay_within_what_the_peer_takes() -> None:
    pair = Pair(server=settings("server", handle_max=0))
    session = pair.sender().session
    with pytest.raises(StateError, match="handle"):
        session.attach_sender("second", None, None)


def test_a_begin_tells_our_windows_and_counters() -> None:
    pair = Pair(server=settings("server", incoming_window=77, handle_max=9))
    remote = pair.begin().remote
    assert isinstance(remote, Begin)
    assert (remote.incoming_window, remote.handle_max, remote.next_outgoing_id) == (77, 9, 2**32 - 3)


def test_an_attach_and_its_answer_may_be_those_of_another_connection() -> None:
    passed_on: dict[str, Any] = {
        "unsettled": {b"tag": None},
        "incomplete_unsettled": True,
        "offered_capabilities": ("a",),
        "desired_capabilities": ("b", "c"),
        "settle_modes": (1, 0),
    }

    def answer(event: links.Event) -> None:
        if isinstance(event, links.AttachRequested):
            event.link.accept_attach(properties={Symbol("k"): "v"}, **passed_on)

    pair = Pair(on_server=answer)
    pair.begin().attach_receiver("relayed", Source(address="orders", filter={Symbol("f"): "s"}), None, **passed_on)
    pair.run()
    (requested,) = of_kind(links.AttachRequested, pair.at_server)
    (answered,) = of_kind(links.Attached, pair.at_client)
    for seen in (requested.attach, answered.attach):
        assert (seen.name, seen.unsettled, seen.incomplete_unsettled) == ("relayed", {b"tag": None}, True)
        assert (seen.offered_capabilities, seen.desired_capabilities) == (("a",), ("b", "c"))
        assert (seen.snd_settle_mode, seen.rcv_settle_mode) == (1, 0)
        assert seen.source == Source(address="orders", filter={Symbol("f"): "s"})
    assert answered.attach.properties == {"k": "v"}
