"""A client that speaks the wrong protocol to a port: one log line with what it tried and what would work."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from servicebus_amqp.encoding.frames import SASL_FRAME, SASL_HEADER, build_frame
from servicebus_amqp.encoding.performatives import SaslInit, write_performative
from servicebus_sandbox import Sandbox
from servicebus_sandbox.emulator.config_file import default_namespace
from servicebus_sandbox.emulator.emulator_host import Emulator

SOON = 60.0
HTTP = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
AMQP_1_0 = b"AMQP\x00\x01\x00\x00"
AMQP_0_9_1 = b"AMQP\x00\x00\x09\x01"
SSH = b"SSH-2.0-x\r\n"


@pytest.fixture(scope="module")
def hello() -> bytes:
    """The first bytes of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator.start(default_namespace(), amqp_port=0, http_port=0) as running:
        yield running


async def answer_to(port: int, request: bytes) -> bytes:
    """Everything that the server answers until it ends the connection."""
    async with asyncio.timeout(SOON):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        answer = b""
        with suppress(ConnectionError):
            while piece := await reader.read(1 << 16):
                answer += piece
        writer.close()
    return answer


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def log_of(caplog: pytest.LogCaptureFixture, port: int, request: bytes) -> str:
    """The one line in the log after the request was sent three times."""
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await answer_to(port, request)
    (line,) = lines(caplog)
    return line


async def test_tls_to_amqp(emulator: Emulator, hello: bytes, caplog: pytest.LogCaptureFixture) -> None:
    line = await log_of(caplog, emulator.amqp_port, hello)
    assert "turned a connection away: TLS" in line
    assert f"Port {emulator.amqp_port} serves plain AMQP: add UseDevelopmentEmulator=true" in line


async def test_tls_to_http(emulator: Emulator, hello: bytes, caplog: pytest.LogCaptureFixture) -> None:
    line = await log_of(caplog, emulator.http_port, hello)
    assert "turned a connection away: TLS" in line
    assert f"Port {emulator.http_port} serves plain HTTP: use http:// instead of https://" in line


async def test_http_to_amqp(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    advice = f"administration and /health are at http://localhost:{emulator.http_port}"
    assert advice in await log_of(caplog, emulator.amqp_port, HTTP)
    answer = await answer_to(emulator.amqp_port, HTTP)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert advice.encode() in answer


async def test_amqp_to_http(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    line = await log_of(caplog, emulator.http_port, AMQP_1_0)
    assert "turned a connection away: AMQP" in line
    assert f"AMQP is on port {emulator.amqp_port}" in line


async def test_garbage(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    assert "neither AMQP nor HTTP. Port" in await log_of(caplog, emulator.amqp_port, SSH)


async def test_an_older_amqp(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    assert "is not a protocol header of AMQP 1.0" in await log_of(caplog, emulator.amqp_port, AMQP_0_9_1)


async def test_an_unknown_sasl_mechanism(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    init = build_frame(0, write_performative(SaslInit(mechanism="SCRAM-SHA-256", initial_response=b"")), SASL_FRAME)
    line = await log_of(caplog, emulator.amqp_port, SASL_HEADER + init)
    assert "SASL mechanism 'SCRAM-SHA-256' was not offered; use one of " in line
    assert "ANONYMOUS" in line


async def test_http_to_a_namespace_of_the_sandbox(caplog: pytest.LogCaptureFixture) -> None:
    async with Sandbox.start() as sandbox:
        line = await log_of(caplog, sandbox["primary"].amqp_port, HTTP)
    assert "HTTP without TLS. Management is served over HTTPS alone: use https:// and trust the sandbox's" in line


async def test_amqp_and_tls_to_the_control_url(hello: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with Sandbox.start() as sandbox:
        port = int(sandbox.control_url.rpartition(":")[2].partition("/")[0])
        assert "the control URL serves HTTP; AMQP has the port of" in await log_of(caplog, port, AMQP_1_0)
        caplog.clear()
        assert "the control URL serves plain HTTP; use http://" in await log_of(caplog, port, hello)
