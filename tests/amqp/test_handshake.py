from __future__ import annotations

import pytest

from servicebus_amqp.encoding.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, build_frame
from servicebus_amqp.encoding.performatives import (
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    read_sasl,
    write_performative,
)
from servicebus_amqp.protocol import links
from servicebus_amqp.protocol.connection import Connection
from servicebus_amqp.protocol.connection_settings import ConnectionRole, SaslCode
from servicebus_amqp.protocol.handshake import read_plain
from tests.amqp.plain_client import WRONG, init, response
from tests.amqp.wires import Pair, attach, begin, frame, of_kind, performatives_in, settings


def _server() -> Connection:
    return Connection(role=ConnectionRole.SERVER, settings=settings("server"))


def _sasl(performative: SaslInit | SaslMechanisms | SaslOutcome | SaslResponse) -> bytes:
    return build_frame(0, write_performative(performative), SASL_FRAME)


def test_a_server_is_silent_until_the_client_has_spoken() -> None:
    server = _server()
    assert server.data_to_send() == b""
    server.receive_data(SASL_HEADER[:7])
    assert server.data_to_send() == b""
    server.receive_data(SASL_HEADER[7:])
    assert server.data_to_send().startswith(SASL_HEADER)


def test_a_server_without_keys_offers_the_mechanisms_that_need_no_password() -> None:
    server = _server()
    server.receive_data(SASL_HEADER)
    offered, _ = read_sasl(server.data_to_send()[len(SASL_HEADER) + 8 :], 0)
    assert offered == SaslMechanisms(sasl_server_mechanisms=("MSSBCBS", "ANONYMOUS", "EXTERNAL"))


@pytest.mark.parametrize("mechanism", ["MSSBCBS", "EXTERNAL", "ANONYMOUS"])
@pytest.mark.parametrize("response", [None, b"", b"anonymous@client"])
def test_each_mechanism_is_taken_with_and_without_an_initial_response(mechanism: str, response: bytes | None) -> None:
    server = _server()
    init = SaslInit(mechanism=mechanism, initial_response=response, hostname="contoso")
    happened = server.receive_data(SASL_HEADER + _sasl(init))
    assert happened == [links.HeaderReceived(sasl=True), links.SaslDone(mechanism)]
    assert server.data_to_send().endswith(_sasl(SaslOutcome(code=0, additional_data=b"Welcome!")))


def test_another_mechanism_is_refused_and_ends_the_connection() -> None:
    server = _server()
    happened = server.receive_data(SASL_HEADER + _sasl(SaslInit(mechanism="PLAIN", initial_response=b"\0a\0b")))
    (failed,) = of_kind(links.ConnectionFailed, happened)
    assert failed.error.condition == "amqp:unauthorized-access"
    assert server.data_to_send().endswith(_sasl(SaslOutcome(code=1)))
    assert server.is_finished


def test_a_client_may_skip_sasl() -> None:
    server = _server()
    happened = server.receive_data(AMQP_HEADER + frame(Open(container_id="client", hostname="contoso")))
    assert happened == [links.HeaderReceived(sasl=False), links.Opened("contoso", "client", None)]
    assert server.data_to_send().startswith(AMQP_HEADER)


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\n", b"AMQP\x00\x00\x09\x01", b"AMQP\x02\x01\x00\x00", bytes(8)])
def test_a_header_of_something_else_is_answered_with_ours_and_the_end(start: bytes) -> None:
    server = _server()
    (failed,) = server.receive_data(start)
    assert isinstance(failed, links.ConnectionFailed)
    assert failed.error.condition == "amqp:connection:framing-error"
    assert server.data_to_send() == SASL_HEADER
    assert server.is_finished


def test_sasl_does_not_begin_twice() -> None:
    server = _server()
    server.receive_data(SASL_HEADER + _sasl(SaslInit(mechanism="ANONYMOUS")))
    (failed,) = server.receive_data(SASL_HEADER)
    assert isinstance(failed, links.ConnectionFailed)


@pytest.mark.parametrize(
    "sent",
    [
        _sasl(SaslResponse(response=b"")),
        _sasl(SaslOutcome(code=0)),
        build_frame(0, b"\x00\x53\x41\x45", SASL_FRAME),
        build_frame(0, b"", SASL_FRAME),
        build_frame(0, write_performative(SaslInit(mechanism="ANONYMOUS")) + b"\x40", SASL_FRAME),
        frame(Open(container_id="early")),
        _sasl(SaslInit(mechanism="ANONYMOUS", initial_response=bytes(600))),
    ],
)
def test_what_does_not_belong_into_the_sasl_layer_ends_the_connection(sent: bytes) -> None:
    server = _server()
    happened = server.receive_data(SASL_HEADER + sent)
    assert len(of_kind(links.ConnectionFailed, happened)) == 1
    assert server.is_finished


def test_a_client_and_a_server_shake_hands() -> None:
    pair = Pair()
    pair.client.open()
    pair.run()
    assert [type(event) for event in pair.at_client] == [
        links.HeaderReceived,
        links.SaslDone,
        links.HeaderReceived,
        links.Opened,
    ]


def test_a_client_without_sasl_opens_at_once() -> None:
    client = Connection(role=ConnectionRole.CLIENT, settings=settings("client", sasl=False, hostname="contoso"))
    client.open()
    data = client.data_to_send()
    assert data.startswith(AMQP_HEADER)
    (opened,) = performatives_in(data[8:])
    assert isinstance(opened, Open)
    assert (opened.container_id, opened.hostname) == ("client", "contoso")


def test_a_client_stops_where_anonymous_is_not_offered() -> None:
    client = Connection(role=ConnectionRole.CLIENT, settings=settings("client"))
    client.open()
    happened = client.receive_data(SASL_HEADER + _sasl(SaslMechanisms(sasl_server_mechanisms=("EXTERNAL", "PLAIN"))))
    (failed,) = of_kind(links.ConnectionFailed, happened)
    assert "EXTERNAL, PLAIN" in failed.error.description


def test_a_client_stops_where_it_is_refused() -> None:
    client = Connection(role=ConnectionRole.CLIENT, settings=settings("client"))
    client.open()
    client.receive_data(SASL_HEADER + _sasl(SaslMechanisms(sasl_server_mechanisms=("ANONYMOUS",))))
    (failed,) = client.receive_data(_sasl(SaslOutcome(code=1)))
    assert isinstance(failed, links.ConnectionFailed)
    assert failed.error.condition == "amqp:unauthorized-access"


def test_everything_may_come_in_one_read() -> None:
    server = _server()
    pipelined = (
        SASL_HEADER
        + _sasl(SaslInit(mechanism="ANONYMOUS"))
        + AMQP_HEADER
        + frame(Open(container_id="client"))
        + frame(begin())
        + frame(attach(0))
        + frame(attach(1, role=True))
    )
    happened = server.receive_data(pipelined)
    assert [type(event) for event in happened] == [
        links.HeaderReceived,
        links.SaslDone,
        links.HeaderReceived,
        links.Opened,
        links.SessionBegun,
        links.AttachRequested,
        links.AttachRequested,
    ]
    for requested in of_kind(links.AttachRequested, happened):
        requested.link.accept_attach()
    answer = server.data_to_send()
    amqp = answer[answer.index(AMQP_HEADER) + 8 :]
    assert [type(found).__name__ for found in performatives_in(amqp)] == ["Open", "Begin", "Attach", "Attach"]


# SASL PLAIN at a server: GATEWAY.md section 4, "PLAIN takes a key's name and key and is answered "Welcome!".


def judge(name: str, key: str) -> SaslCode:
    return SaslCode.OK if (name, key) == ("web", "right") else SaslCode.AUTH


def server(**changes: object) -> Connection:
    return Connection(role=ConnectionRole.SERVER, settings=settings("server", **{"plain": judge, **changes}))


def outcome_of(connection: Connection) -> SaslOutcome:
    data = connection.data_to_send()
    at = len(SASL_HEADER)
    at += int.from_bytes(data[at : at + 4], "big")
    found, _ = read_sasl(data[at + 8 :], 0)
    assert isinstance(found, SaslOutcome)
    return found


def test_a_server_with_keys_offers_the_mechanisms_of_the_service() -> None:
    one = server()
    one.receive_data(SASL_HEADER)
    offered, _ = read_sasl(one.data_to_send()[len(SASL_HEADER) + 8 :], 0)
    assert offered == SaslMechanisms(sasl_server_mechanisms=("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"))


@pytest.mark.parametrize("identity", [b"", b"web"])
def test_the_name_of_a_key_and_the_key_are_welcome(identity: bytes) -> None:
    one = server()
    happened = one.receive_data(SASL_HEADER + init(identity + response("web", "right")))
    assert of_kind(links.SaslDone, happened) == [links.SaslDone("PLAIN")]
    assert outcome_of(one) == SaslOutcome(code=0, additional_data=b"Welcome!")


@pytest.mark.parametrize("sent", [each for _, each in WRONG], ids=[name for name, _ in WRONG])
def test_what_is_no_key_is_refused_and_ends_the_connection(sent: bytes | None) -> None:
    one = server()
    happened = one.receive_data(SASL_HEADER + init(sent))
    (failed,) = of_kind(links.ConnectionFailed, happened)
    assert failed.error.condition == "amqp:unauthorized-access"
    assert outcome_of(one) == SaslOutcome(code=1)
    assert one.is_finished


def test_a_password_of_64_kb_is_no_frame_of_the_sasl_layer() -> None:
    asked: list[str] = []
    one = server(plain=lambda name, _: asked.append(name))
    happened = one.receive_data(SASL_HEADER + init(response("web", "x" * 65536)))
    assert of_kind(links.ConnectionFailed, happened)
    assert asked == []


def test_a_judge_without_an_answer_leaves_the_client_waiting() -> None:
    one = server(plain=lambda *_: None)
    happened = one.receive_data(SASL_HEADER + init(response("web", "right")))
    assert happened == [links.HeaderReceived(sasl=True)]
    assert not one.is_finished


def test_a_judgement_that_is_impossible_now_may_be_tried_again() -> None:
    one = server(plain=lambda *_: SaslCode.TEMPORARY)
    one.receive_data(SASL_HEADER + init(response("web", "right")))
    assert outcome_of(one).code == SaslCode.TEMPORARY


@pytest.mark.parametrize("sent", [b"\0a", b"a\0b\0c", b"\0\xff\0x", b"\0\0\0\0"])
def test_what_is_no_response_of_plain_has_neither_name_nor_key(sent: bytes) -> None:
    assert read_plain(sent) == ("", "")
