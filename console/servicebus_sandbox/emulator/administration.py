"""The emulator's HTTP: `GET /health` and administration over Atom, the control URL on a port of its own.

Apart from `emulator_host`, because aiohttp takes as long to import as everything that AMQP needs.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from typing import Final

from servicebus_amqp.server.http_server import WebSocketServer
from servicebus_amqp.server.listener import Listener
from servicebus_sandbox.access.authorization import Issuer
from servicebus_sandbox.amqp_server.namespace_server import NamespaceServer
from servicebus_sandbox.atom.management_api import HttpsServer, ManagementApi
from servicebus_sandbox.clock import SandboxClock
from servicebus_sandbox.control_http import HttpControlServer
from servicebus_sandbox.serving.process_settings import HOST

HEALTH: Final = "/health"
_HEALTHY: Final = json.dumps({"status": "healthy", "message": "Service is healthy."}).encode()


class Administration:
    """The HTTP servers of one namespace, and its second port. `close` it once."""

    def __init__(self, node: NamespaceServer, issuer: Issuer, clock: SandboxClock, tls: ssl.SSLContext) -> None:
        management = ManagementApi(
            node.namespace,
            authorization=node.authorization,
            clock=clock.time_of_day,
            changed=node.wake,
            complaints=node.complaints,
        )
        self._websockets = WebSocketServer(node.protocol)
        self._http = HttpsServer(
            management,
            node.faults,
            admission=node.admission,
            websockets=self._websockets,
            pages={HEALTH: _HEALTHY},
        )
        self._listener = Listener(
            who=f"namespace '{node.name}'",
            amqp=node.protocol,
            http=self._http.protocol,
            tls=tls,
            faults=node.faults,
            admission=node.admission,
        )
        self._control = HttpControlServer(lambda: [node], issuer, clock)
        node.faults.watch(self._http.faults_changed)
        node.faults.watch(self._listener.faults_changed)

    def protocol(self) -> asyncio.Protocol:
        """Return a protocol for one connection of HTTP."""
        return self._http.protocol()

    async def open(self, server: socket.socket, control_port: int) -> str:
        """Serve the namespace on a listening socket; return the control URL. Raises ListenError."""
        self._listener.serve(server)
        return await self._control.open(HOST, control_port)

    async def close(self) -> None:
        await self._control.close()
        await self._listener.close()
        self._websockets.close()
        await self._http.close()
