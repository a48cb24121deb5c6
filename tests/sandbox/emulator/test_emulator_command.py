"""`servicebus-sandbox --emulator` as a process: what it prints, and one sentence for what it cannot do."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

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
    with taken() as free:
        port = free.getsockname()[1]
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
