"""SASL PLAIN at a server: GATEWAY.md section 4, "PLAIN takes a key's name and key and is answered "Welcome!"."""

from __future__ import annotations

import pytest

from servicebus_amqp.encoding.frames import SASL_HEADER
from servicebus_amqp.encoding.performatives import SaslMechanisms, SaslOutcome, read_sasl
from servicebus_amqp.protocol import links
from servicebus_amqp.protocol.connection import Connection
from servicebus_amqp.protocol.connection_settings import ConnectionRole, SaslCode
from servicebus_amqp.protocol.handshake import read_plain
from tests.amqp.plain_client import WRONG, init, response
from tests.amqp.wires import of_kind, settings


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
