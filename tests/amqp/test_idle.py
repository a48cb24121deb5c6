from __future__ import annotations

from itertools import pairwise

from servicebus_amqp import Connection, ConnectionRole
from servicebus_amqp.encoding.frames import AMQP_HEADER, EMPTY_FRAME
from servicebus_amqp.encoding.performatives import Close, Open
from servicebus_amqp.protocol import protocol_events
from tests.amqp.wires import begin, frame, opened_server, performatives_in, settings


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
    assert server.receive_data(frame(Close())) == [protocol_events.Closed(None)]
    assert server.tick(1.0) is None
