"""The hint for every wrong protocol: GATEWAY.md section 4, "What is refused says which client it met."."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_amqp.server.admission import PeerProtocol, describe_client, detect_protocol, foreign_protocol

REQUEST = b"GET /$Resources/queues?top=1 HTTP/1.1\r\nHost: h\r\nUser-Agent: azsdk-python-servicebus/7.15.0\r\n\r\n"
MET = (
    (REQUEST, "HTTP: GET /$Resources/queues, it calls itself azsdk-python-servicebus/7.15.0"),
    (b"GET /$servicebus/websocket HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", "AMQP over WebSocket: GET /$servicebus"),
    (b"\x16\x03\x01\x00\xa0\x01" + b"x" * 40 + b"\x00\x0c\x02h2\x08http/1.1", "HTTPS, as administration clients do"),
    (b"\x16\x03\x01\x00\xa0\x01" + b"x" * 40, "TLS"),
    (b"AMQP\x00\x00\x09\x01", "RabbitMQ"),
    (b"AMQP\x02\x01\x00\x00", "AMQP's own TLS layer"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2"),
    (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", "load balancer"),
    (b"\r\n\r\n\x00\r\nQUIT\n", "PROXY protocol"),
    (b"\x10\x1d\x00\x04MQTT\x04\x02\x00\x3c", "MQTT"),
    (b"\x00\x00\x00\x2a\x00\x12\x00\x03\x00\x00\x00\x01", "Kafka"),
    (b"\x00\x00\x01\x02\x01ActiveMQ", "ActiveMQ"),
    (b"CONNECT\naccept-version:1.2\n\n\x00", "STOMP"),
    (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
    (b"*1\r\n$4\r\nPING\r\n", "Redis"),
    (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", "PostgreSQL"),
    (b"\x07\x01\x02\x03", "07 01 02 03"),
)


@pytest.mark.parametrize(("first", "said"), MET, ids=[said[:20] for _, said in MET])
def test_a_hint_says_what_the_client_is(first: bytes, said: str) -> None:
    assert said in describe_client(first)


def test_amqp_is_nobody_elses_protocol() -> None:
    for header in (b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00"):
        assert foreign_protocol(header) is None
        assert detect_protocol(header) is PeerProtocol.AMQP


@given(st.binary(max_size=200))
def test_a_hint_is_short_printable_ascii_whatever_came(first: bytes) -> None:
    said = describe_client(first)
    assert said.isascii()
    assert said.isprintable()
    assert len(said) < 300
