"""The port of Azure Resource Manager: HTTPS with the sandbox's certificate, and plain HTTP on the same port.

Plain HTTP is for clients configured without TLS. `resource_manager` makes the answers.
"""

from __future__ import annotations

import json
import logging
import ssl

from aiohttp import web

from servicebus_sandbox.arm.arm_request import ArmResponse
from servicebus_sandbox.arm.resource_manager import ResourceManager
from servicebus_sandbox.atom.management_api import AtomRequest
from servicebus_sandbox.serving.http_faults import reset
from servicebus_sandbox.serving.http_server import HttpPort
from servicebus_sandbox.serving.lobby import FIRST_REQUEST_SECONDS

log = logging.getLogger(__name__)


class ArmServer:
    """The port of a resource manager. Open it once, close it once."""

    def __init__(
        self, manager: ResourceManager, *, tls: ssl.SSLContext, patience: float = FIRST_REQUEST_SECONDS
    ) -> None:
        """Serve `manager`; `patience` is the limit in seconds for the first bytes and for a request."""
        self._manager = manager
        self._port = HttpPort("the ARM port", self._serve, log=log, tls=tls, patience=patience)

    async def open(self, host: str, port: int = 0) -> int:
        """Listen and return the port. Raises ListenError."""
        return self._port.open(host, port)

    async def close(self) -> None:
        """Stop listening and end every connection; an answer in progress has a second to leave."""
        self._manager.close()
        await self._port.close()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await self._port.http.body_of(request)
        reply = await self._answer(
            AtomRequest(
                method=request.method,
                target=request.raw_path,
                headers={name.lower(): value for name, value in request.headers.items()},
                body=body,
                scheme=request.scheme,
            )
        )
        if reply is None:
            return reset(request)
        text = "" if reply.body is None else json.dumps(reply.body)
        return web.Response(
            status=reply.status, text=text, content_type="application/json", headers=dict(reply.headers)
        )

    async def _answer(self, request: AtomRequest) -> ArmResponse | None:
        try:
            return await self._manager.answer(request)
        except Exception:
            log.exception("ARM request %s %s failed", request.method, request.target)
            message = "internal error, see the sandbox's log"
            return ArmResponse(500, {"error": {"code": "InternalServerError", "message": message}})
