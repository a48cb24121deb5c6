"""The emulator: one namespace on the official ports and with the official key. Each port serves all protocols.

It runs in the caller's event loop. Both ports are bound first. AMQP is served before aiohttp is imported in a thread,
so that a client's first frame waits for neither.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from servicebus_amqp.server.listener import Certificates, ProtocolFactory, bind
from servicebus_sandbox.access.authorization import Issuer, root_rule
from servicebus_sandbox.amqp_server.namespace_server import NamespaceServer
from servicebus_sandbox.clock import SandboxClock
from servicebus_sandbox.emulator.config_file import default_namespace, load_config
from servicebus_sandbox.serving.process_settings import (
    HOST,
    KEY_NAME,
    PUBLIC_KEY,
    host_for,
    is_loopback,
    run_until_signal,
)
from servicebus_sandbox.specs import NamespaceSpec, SandboxConfigError

log = logging.getLogger(__name__)

AMQP_PORT: Final = 5672
HTTP_PORT: Final = 5300
HEALTH: Final = "/health"
_HEALTHY: Final = json.dumps({"status": "healthy", "message": "Service is healthy."}).encode()
OPEN_TO_OTHERS: Final = (
    "the emulator listens on %s with a key that is public: any host that reaches this machine can read, send and "
    "delete everything in it; without --listen it is on loopback"
)
_TAKEN: Final = "end the program that uses the port, or choose another with %s, 0 for any that is free"


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulator:
    """A running emulator. `host` is written as in URLs; `node` is for tests in the same process."""

    name: str
    host: str
    amqp_port: int
    http_port: int
    control_url: str
    ca_file: Path
    node: NamespaceServer = field(repr=False)

    @property
    def connection_string(self) -> str:
        """Return the connection string for messaging; the official port is left out, as in the official one."""
        return self._connection_string("" if self.amqp_port == AMQP_PORT else f":{self.amqp_port}")

    @property
    def admin_connection_string(self) -> str:
        """Return the connection string for administration clients."""
        return self._connection_string(f":{self.http_port}")

    @property
    def admin_url(self) -> str:
        return f"http://{self.host}:{self.http_port}"

    def _connection_string(self, port: str) -> str:
        key = f"SharedAccessKeyName={KEY_NAME};SharedAccessKey={PUBLIC_KEY}"
        return f"Endpoint=sb://{self.host}{port};{key};UseDevelopmentEmulator=true;"

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        spec: NamespaceSpec,
        *,
        listen: str = HOST,
        amqp_port: int = AMQP_PORT,
        http_port: int = HTTP_PORT,
        control_port: int = 0,
    ) -> AsyncIterator[Emulator]:
        """Serve the namespace for the duration of the context; port 0 is any free one.

        The control URL is always on loopback. Raises ListenError for a port in use, and as `NamespaceSpec.fill` does.
        """
        if not is_loopback(listen):
            log.warning(OPEN_TO_OTHERS, listen)
        clock = SandboxClock()
        issuer = Issuer(clock.time_of_day)
        async with AsyncExitStack() as stack:
            amqp = stack.enter_context(closing(bind("AMQP", listen, amqp_port, remedy=_TAKEN % "--amqp-port")))
            http = stack.enter_context(closing(bind("HTTP", listen, http_port, remedy=_TAKEN % "--http-port")))
            ports = int(amqp.getsockname()[1]), int(http.getsockname()[1])
            rules = (root_rule(KEY_NAME, PUBLIC_KEY),)
            node = NamespaceServer(
                replace(spec, rules=rules), issuer=issuer, clock=clock, time_of_day=clock.time_of_day
            )
            stack.callback(node.close)
            listener = node.listener(stack)
            listener.serve(amqp)
            certificates = await asyncio.to_thread(_prepare_administration, listen, stack)
            tls = certificates.server_context()
            protocol = _open_administration(node, stack)
            listener.offer(http=protocol, tls=tls)
            node.listener(stack, http=protocol, tls=tls).serve(http)
            control_url = await _open_control(node, issuer, clock, control_port, stack)
            yield cls(
                name=spec.name,
                host="localhost" if listen == HOST else host_for(listen),
                amqp_port=ports[0],
                http_port=ports[1],
                control_url=control_url,
                ca_file=certificates.ca_file,
                node=node,
            )


def _prepare_administration(listen: str, stack: AsyncExitStack) -> Certificates:
    """Make certificates until the stack ends, and import what HTTP needs: aiohttp takes as long as all of AMQP."""
    from servicebus_amqp.server.certificates import make_certificates
    from servicebus_sandbox.sandbox_host import open_run_folder

    return make_certificates(stack.enter_context(open_run_folder()), host_names=(listen,))


def _open_administration(node: NamespaceServer, stack: AsyncExitStack) -> ProtocolFactory:
    """Serve `GET /health` and administration over Atom until the stack ends."""
    from servicebus_sandbox.sandbox_host import open_http

    return open_http(node, stack, pages={HEALTH: _HEALTHY}).protocol


async def _open_control(
    node: NamespaceServer, issuer: Issuer, clock: SandboxClock, port: int, stack: AsyncExitStack
) -> str:
    """Serve the control URL until the stack ends, and return it. Raises ListenError."""
    from servicebus_sandbox.control_http import HttpControlServer

    control = HttpControlServer(lambda: [node], issuer, clock)
    stack.push_async_callback(control.close)
    return await control.open(HOST, port)


# `servicebus-sandbox --emulator`: the emulator as a process.

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

    def start() -> AbstractAsyncContextManager[Emulator]:
        return Emulator.start(
            default_namespace() if config is None else load_config(config),
            listen=listen,
            amqp_port=AMQP_PORT if amqp_port is None else amqp_port,
            http_port=_http_port() if http_port is None else http_port,
            control_port=control_port,
        )

    return run_until_signal("servicebus-sandbox", start, describe_as_json if json_line else describe)


def _http_port() -> int:
    """Return the port of the environment, else the official one. Raises SandboxConfigError."""
    text = os.environ.get(HTTP_PORT_VARIABLE, "")
    if not text:
        return HTTP_PORT
    if not text.isascii() or not text.isdigit() or int(text) > _LAST_PORT:
        raise SandboxConfigError(f"{HTTP_PORT_VARIABLE} is {text!r}; it has to be a port, as in {HTTP_PORT}")
    return int(text)


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
        "health_url": f"{emulator.admin_url}{HEALTH}",
        "control_url": emulator.control_url,
        "ca_file": str(emulator.ca_file),
    }
    return json.dumps(whole) + "\n"


def describe(emulator: Emulator) -> str:
    """Return the addresses as text."""
    rows = {
        "messaging": emulator.connection_string,
        "admin": emulator.admin_connection_string,
        "health": f"{emulator.admin_url}{HEALTH}",
        "control": emulator.control_url,
    }
    return "".join(f"{name:10} {address}\n" for name, address in rows.items()) + "Ctrl-C ends it.\n"
