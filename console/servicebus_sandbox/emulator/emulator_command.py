"""`servicebus-sandbox --emulator`: the emulator as a process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Final

from servicebus_sandbox.emulator.config_file import default_namespace, load_config
from servicebus_sandbox.emulator.emulator_host import AMQP_PORT, HTTP_PORT, Emulator
from servicebus_sandbox.serving.addresses import HOST, KEY_NAME, PUBLIC_KEY
from servicebus_sandbox.serving.listener import ListenError
from servicebus_sandbox.serving.process_settings import allow_open_files, tune_collector
from servicebus_sandbox.specs import NamespaceSpec, SandboxConfigError

HTTP_PORT_VARIABLE: Final = "EMULATOR_HTTP_PORT"
"""The official emulator's setting of its HTTP port."""
_LAST_PORT: Final = 65535


def run_emulator(
    *,
    json_line: bool,
    config: Path | None = None,
    listen: str = HOST,
    amqp_port: int | None = None,
    http_port: int | None = None,
    control_port: int = 0,
) -> int:
    """Serve the namespace of the file `config`, else the official emulator's, until SIGTERM or SIGINT.

    Ports are the official ones unless they are given; 0 is any free one. Prints the addresses first, with `json_line`
    as one line of JSON. Returns the exit status: 0, or 2 with a sentence on stderr for an invalid file or an
    unavailable port or address.
    """
    logging.basicConfig(level=logging.WARNING, format="servicebus-sandbox: %(levelname)s: %(message)s")
    allow_open_files()
    try:
        spec = default_namespace() if config is None else load_config(config)
        ports = {
            "amqp_port": AMQP_PORT if amqp_port is None else amqp_port,
            "http_port": _http_port() if http_port is None else http_port,
            "control_port": control_port,
        }
        asyncio.run(_serve(spec, listen, ports, json_line=json_line))
    except (ListenError, SandboxConfigError) as error:
        sys.stderr.write(f"servicebus-sandbox: {error}\n")
        return 2
    return 0


def _http_port() -> int:
    """Return the port of the environment, else the official one. Raises SandboxConfigError."""
    text = os.environ.get(HTTP_PORT_VARIABLE, "")
    if not text:
        return HTTP_PORT
    if not text.isascii() or not text.isdigit() or int(text) > _LAST_PORT:
        raise SandboxConfigError(f"{HTTP_PORT_VARIABLE} is {text!r}; it has to be a port, as in {HTTP_PORT}")
    return int(text)


async def _serve(spec: NamespaceSpec, listen: str, ports: dict[str, int], *, json_line: bool) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with Emulator.start(spec, listen=listen, **ports) as emulator:
        tune_collector()
        sys.stdout.write(describe_as_json(emulator) if json_line else describe(emulator))
        sys.stdout.flush()
        await stopped.wait()


def describe_as_json(emulator: Emulator) -> str:
    """Return the addresses as one line of JSON, with the names that the sandbox uses."""
    namespace = {
        "name": emulator.name,
        "connection_string": emulator.connection_string,
        "admin_connection_string": emulator.admin_connection_string,
        "amqp_port": emulator.amqp_port,
        "admin_url": emulator.admin_url,
        "key_name": KEY_NAME,
        "key": PUBLIC_KEY,
    }
    whole = {
        "namespaces": [namespace],
        "health_url": f"{emulator.admin_url}/health",
        "control_url": emulator.control_url,
    }
    return json.dumps(whole) + "\n"


def describe(emulator: Emulator) -> str:
    """Return the addresses as text."""
    rows = {
        "messaging": emulator.connection_string,
        "admin": emulator.admin_connection_string,
        "health": f"{emulator.admin_url}/health",
        "control": emulator.control_url,
    }
    return "".join(f"{name:10} {address}\n" for name, address in rows.items()) + "Ctrl-C ends it.\n"
