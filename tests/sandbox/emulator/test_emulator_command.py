"""`servicebus-sandbox --emulator` as a process: what it prints, and one sentence for what it cannot do."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port

from servicebus_amqp.encoding.frames import SASL_FRAME, SASL_HEADER, build_frame
from servicebus_amqp.encoding.performatives import SaslInit, write_performative
from servicebus_sandbox import Sandbox
from servicebus_sandbox.emulator.config_file import default_namespace
from servicebus_sandbox.emulator.emulator_host import Emulator

COMMAND = [sys.executable, "-m", "servicebus_sandbox"]
FREE = ["--emulator", "--amqp-port", "0", "--http-port", "0"]
PATIENCE = 60


@contextmanager
def running(*options: str, **environment: str) -> Iterator[dict[str, Any]]:
    command = [*COMMAND, *options, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | environment) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def refused(*options: str, **environment: str) -> str:
    """What it writes to stderr, in one line, when it ends with the status 2."""
    done = subprocess.run(
        [*COMMAND, *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=os.environ | environment,
    )
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr.rstrip("\n")


def taken() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def test_it_prints_its_addresses_and_ends_on_a_signal() -> None:
    with running(*FREE) as facts:
        (namespace,) = facts["namespaces"]
        assert namespace["key"] == "SAS_KEY_VALUE"
        assert namespace["connection_string"].startswith(f"Endpoint=sb://localhost:{namespace['amqp_port']};")
        with urllib.request.urlopen(facts["health_url"], timeout=PATIENCE) as answer:
            assert json.load(answer)["status"] == "healthy"


def test_the_http_port_is_the_one_of_the_environment() -> None:
    port = free_port()
    with running("--emulator", "--amqp-port", "0", EMULATOR_HTTP_PORT=str(port)) as facts:
        assert facts["health_url"] == f"http://localhost:{port}/health"


@pytest.mark.parametrize("text", ["http", "-1", "65536", "5300.0"])
def test_a_port_of_the_environment_that_is_none(text: str) -> None:
    told = refused("--emulator", "--amqp-port", "0", EMULATOR_HTTP_PORT=text)
    assert told == f"servicebus-sandbox: EMULATOR_HTTP_PORT is '{text}'; it has to be a port, as in 5300"


@pytest.mark.parametrize(("name", "other"), [("amqp", "http"), ("http", "amqp")])
def test_a_taken_port_is_one_sentence(name: str, other: str) -> None:
    with taken() as server:
        port = server.getsockname()[1]
        told = refused("--emulator", f"--{name}-port", str(port), f"--{other}-port", "0")
    assert told == (
        f"servicebus-sandbox: {name.upper()} cannot listen on 127.0.0.1:{port} (Address already in use); end the "
        f"program that uses the port, or choose another with --{name}-port, 0 for any that is free"
    )


def test_a_mistake_in_the_file_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    queues = [{"Name": "a"}, {"Name": "b"}, {"Name": "c", "Properties": {"MaxDeliveryCount": 0}}]
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": queues}]}}))
    assert refused(*FREE, "--config", str(file)) == (
        f"servicebus-sandbox: {file}: UserConfig.Namespaces[0].Queues[2].Properties.MaxDeliveryCount: it is 0; "
        "allowed is 1 to 2147483647"
    )


def test_options_of_the_other_mode_are_refused() -> None:
    assert "--primary-port is not an option with --emulator" in refused(*FREE, "--primary-port", "0")
    assert "--amqp-port is not an option without --emulator" in refused("--amqp-port", "0")


def test_amqp_is_answered_without_importing_http_first() -> None:
    """The first frame may not wait for imports that AMQP does not need."""
    code = (
        "import sys, servicebus_sandbox.emulator.emulator_command; "
        "print(sorted({'aiohttp', 'cryptography', 'tomllib'} & {name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# -- A client that speaks the wrong protocol to a port: one log line with what it tried and what would work.


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


TLS = "turned a connection away: TLS"
SCRAM = SASL_HEADER + build_frame(
    0, write_performative(SaslInit(mechanism="SCRAM-SHA-256", initial_response=b"")), SASL_FRAME
)


@pytest.mark.parametrize(
    ("port", "request_bytes", "parts"),
    [
        (
            "amqp",
            None,
            (TLS, "Port {amqp} serves plain AMQP: add UseDevelopmentEmulator=true"),
        ),
        (
            "http",
            None,
            (TLS, "Port {http} serves plain HTTP: use http:// instead of https://"),
        ),
        ("amqp", HTTP, ("administration and /health are at http://localhost:{http}",)),
        ("http", AMQP_1_0, ("turned a connection away: AMQP", "AMQP is on port {amqp}")),
        ("amqp", SSH, ("neither AMQP nor HTTP: the client speaks SSH. Port",)),
        ("amqp", AMQP_0_9_1, ("as clients of RabbitMQ do: use a client of AMQP 1.0",)),
        ("amqp", SCRAM, ("SASL mechanism 'SCRAM-SHA-256' was not offered; use one of ", "ANONYMOUS")),
    ],
    ids=["TLS to AMQP", "TLS to HTTP", "HTTP to AMQP", "AMQP to HTTP", "SSH", "AMQP 0-9-1", "SASL"],
)
async def test_a_wrong_protocol_is_one_line_with_what_would_work(
    emulator: Emulator, hello: bytes, caplog: pytest.LogCaptureFixture, port: str, request_bytes: bytes | None,
    parts: tuple[str, ...],
) -> None:  # fmt: skip
    ports = {"amqp": emulator.amqp_port, "http": emulator.http_port}
    line = await log_of(caplog, ports[port], request_bytes or hello)
    assert [part for part in parts if part.format(**ports) not in line] == []


async def test_http_to_amqp_is_answered_with_the_advice(emulator: Emulator) -> None:
    answer = await answer_to(emulator.amqp_port, HTTP)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert f"administration and /health are at http://localhost:{emulator.http_port}".encode() in answer


async def test_http_to_a_namespace_of_the_sandbox(caplog: pytest.LogCaptureFixture) -> None:
    async with Sandbox.start() as sandbox:
        line = await log_of(caplog, sandbox["primary"].amqp_port, HTTP)
    assert "HTTP without TLS: the client speaks HTTP: " in line
    assert "Management is served over HTTPS alone: use https:// and trust the sandbox's" in line


async def test_amqp_and_tls_to_the_control_url(hello: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with Sandbox.start() as sandbox:
        port = int(sandbox.control_url.rpartition(":")[2].partition("/")[0])
        assert "the control URL serves HTTP; AMQP has the port of" in await log_of(caplog, port, AMQP_1_0)
        caplog.clear()
        assert "the control URL serves plain HTTP; use http://" in await log_of(caplog, port, hello)
