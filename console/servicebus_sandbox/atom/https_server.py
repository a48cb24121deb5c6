"""HTTP/1.1 for the management API, on connections that the listener accepted and decrypted.

aiohttp has keep-alive, chunked bodies and size limits, `serving.http_server` the time limits and faults.
`management_api` makes the answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from urllib.parse import unquote

from aiohttp import web

from servicebus_amqp.server.admission import FIRST_REQUEST_SECONDS, Admission
from servicebus_amqp.transport import WEBSOCKET_PATH
from servicebus_sandbox.atom import atom_documents
from servicebus_sandbox.atom.management_api import AtomRequest, AtomResponse, ManagementApi
from servicebus_sandbox.faults import ConnectionVerdict, FaultBoard, FaultVerdict
from servicebus_sandbox.serving.http_server import FaultGate, HttpServer, reset
from servicebus_sandbox.serving.websocket_server import WebSocketServer

log = logging.getLogger(__name__)

_SHUTDOWN_SECONDS = 1.0
_XML = {"Content-Type": "application/xml; charset=utf-8"}


class HttpsServer:
    """The protocols of one namespace's management connections, and their end. Needs a running loop."""

    def __init__(
        self,
        management: ManagementApi,
        faults: FaultBoard,
        *,
        admission: Admission,
        websockets: WebSocketServer | None = None,
        pages: Mapping[str, bytes] | None = None,
        scheme: str = "https",
        patience: float = FIRST_REQUEST_SECONDS,
    ) -> None:
        """Serve `management`; `websockets` gets requests for AMQP at its path, `pages` has JSON that needs no token.

        `patience` is the limit in seconds for a first request's head, and for a body; connections wait in `admission`.
        """
        self._management = management
        self._faults = faults
        self._websockets = websockets
        self._pages = pages or {}
        self._scheme = scheme
        self._gate = FaultGate(faults, connections=lambda: self._server.connections)
        self._server = HttpServer("management", self._serve, admission=admission, patience=patience, log=log)

    def protocol(self) -> asyncio.Protocol:
        """Return a protocol for one connection."""
        return self._server()

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    def faults_changed(self) -> None:
        """Cut connections that faults reset."""
        if self._faults.connection_verdict() is ConnectionVerdict.RESET:
            for connection in self._server.connections:
                if connection.transport is not None:
                    connection.transport.abort()

    async def close(self) -> None:
        """End every connection; an answer in progress has a second to leave."""
        self._gate.close()
        self._server.pre_shutdown()  # ends idle connections
        await self._server.shutdown(_SHUTDOWN_SECONDS)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if await self._gate.loses_connection(request.protocol):
            return reset(request)
        if self._websockets is not None and request.path.rstrip("/").lower() == WEBSOCKET_PATH:
            self._server.prove(request)  # the AMQP inside starts its own probation
            return await self._websockets.serve(request)
        page = self._pages.get(request.path)
        if page is not None and request.method == "GET":
            return web.Response(body=page, content_type="application/json")
        return await self._serve_request(request, await self._server.body_of(request))

    async def _serve_request(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = AtomRequest(
            method=request.method, target=request.raw_path, headers=headers, body=body, scheme=self._scheme
        )

        async def serve() -> AtomResponse:
            return self._answer(asked)

        answer = await self._gate.pass_through(unquote(request.path).strip("/"), serve, _refused)
        if answer is None:
            return reset(request)
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)

    def _answer(self, request: AtomRequest) -> AtomResponse:
        try:
            return self._management.answer(request)
        except Exception:
            log.exception("management request %s %s failed", request.method, request.target)
            return AtomResponse(
                500, b"<Error><Code>500</Code><Detail>internal error, see the sandbox's log</Detail></Error>"
            )


def _refused(_: FaultVerdict, sentence: str, status: int) -> AtomResponse:
    return AtomResponse(status, atom_documents.error_document(status, sentence), _XML)
