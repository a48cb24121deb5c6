"""The port of Azure Resource Manager: HTTPS with the sandbox's certificate, and plain HTTP on the same port.

Which of the two a client speaks shows in the first byte, which is looked at without being consumed. Plain HTTP is for
clients that were told not to insist on TLS. What is answered is decided in `arm`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl

from aiohttp import web

from console.sandbox.arm.calls import Reply
from console.sandbox.arm.resource_manager import ResourceManager
from console.sandbox.atom.management import Request
from console.sandbox.serving.http_faults import reset
from console.sandbox.serving.http_log import once_per_reason
from console.sandbox.serving.listener import bind, first_byte

log = logging.getLogger(__name__)

_TLS_HANDSHAKE = b"\x16"
_IDLE_SECONDS = 60.0
_SHUTDOWN_SECONDS = 1.0


class ArmServer:
    """Serves a resource manager on one port. Open it once, close it once."""

    def __init__(self, manager: ResourceManager, *, tls: ssl.SSLContext, patience: float = 10.0) -> None:
        """`patience` is how many seconds a client may take to show what it speaks, and to send a body."""
        self._manager = manager
        self._tls = tls
        self._patience = patience
        self._http = web.Server(
            self._serve, access_log=None, logger=once_per_reason(log, "ARM"), keepalive_timeout=_IDLE_SECONDS
        )
        self._accepting: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int = 0) -> int:
        """Listen; returns the port. Raises ListenError."""
        server = bind("the ARM port", host, port)
        self._accepting = asyncio.create_task(self._accept(server), name="accept for ARM")
        return int(server.getsockname()[1])

    async def close(self) -> None:
        """Stop listening and end every connection; an answer under way has a second to leave."""
        self._manager.close()
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
            self._accepting = None
        self._http.pre_shutdown()
        await self._http.shutdown(_SHUTDOWN_SECONDS)

    async def _accept(self, server: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with server:
            async with asyncio.TaskGroup() as group:
                while True:
                    try:
                        connection, _ = await loop.sock_accept(server)
                    except OSError as error:
                        log.warning("ARM cannot accept a connection: %s", error)
                        await asyncio.sleep(1.0)  # out of descriptors: others have to end first
                    else:
                        group.create_task(self._welcome(connection))

    async def _welcome(self, connection: socket.socket) -> None:
        """Bring one new connection as far as HTTP; whatever goes wrong stays its own."""
        handed_over = False
        try:
            async with asyncio.timeout(self._patience):
                first = await first_byte(connection)
            if first:
                tls = self._tls if first == _TLS_HANDSHAKE else None
                limit = self._patience if tls else None
                loop = asyncio.get_running_loop()
                await loop.connect_accepted_socket(self._http, connection, ssl=tls, ssl_handshake_timeout=limit)
                handed_over = True
        except (TimeoutError, OSError) as error:
            log.info("a connection to the ARM port came to nothing: %s", error or "silence")
        finally:
            if not handed_over:
                connection.close()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            async with asyncio.timeout(self._patience):
                body = await request.read()
        except TimeoutError as error:
            raise web.HTTPRequestTimeout(text="The request's body did not arrive in time.\n") from error
        reply = await self._answer(
            Request(
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

    async def _answer(self, request: Request) -> Reply | None:
        try:
            return await self._manager.answer(request)
        except Exception:
            log.exception("ARM request %s %s failed", request.method, request.target)
            message = "internal error, see the sandbox's log"
            return Reply(500, {"error": {"code": "InternalServerError", "message": message}})
