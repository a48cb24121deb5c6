from __future__ import annotations

from typing import Any

import pytest

from servicebus_amqp.encoding.codec import Symbol, ULong
from servicebus_amqp.encoding.performatives import Attach, Begin, Detach, End, Error, Source, Target
from servicebus_amqp.protocol import links
from servicebus_amqp.protocol.connection_settings import LinkRole
from servicebus_amqp.protocol.links import LinkState, ReceiverLink, SenderLink
from servicebus_amqp.protocol_errors import StateError
from tests.amqp.wires import (
    Pair,
    attach,
    begin,
    begun_server,
    flow,
    frame,
    of_kind,
    performatives_in,
    receiving_server,
    sending_server,
    settings,
    transfer,
)

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
    answer, detach = performatives_in(server.data_to_send())
    assert isinstance(answer, Attach)
    assert (answer.source, answer.target) == (None, None)
    assert (answer.initial_delivery_count is None) is not role
    assert detach == Detach(handle=answer.handle, closed=True, error=NOT_FOUND)
    assert of_kind(links.Detached, server.receive_data(frame(Detach(handle=0, closed=True), channel=7)))
    assert server.data_to_send() == b""


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
