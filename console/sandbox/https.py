"""HTTP/1.1 for the management API, over connections that somebody else accepted and decrypted.

Keep-alive, chunked bodies and limits are aiohttp's; here are the time limits and what the namespace's faults do to a
request. What is answered is decided in `management`.
"""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import unquote

from aiohttp import web

from console.sandbox import atom
from console.sandbox.conditions import refusal_by
from console.sandbox.faults import ConnectionVerdict, Direction, FaultBoard, Moment, Operation, Verdict
from console.sandbox.http_log import once_per_reason
from console.sandbox.management import Answer, Management, Request
from console.sandbox.websocket import PATH, WebSocketServer

log = logging.getLogger(__name__)

_IDLE_SECONDS = 60.0
_LINGERING_SECONDS = 1.0  # for the rest of a body that nobody reads any more
_SHUTDOWN_SECONDS = 1.0
_XML = {"Content-Type": "application/xml; charset=utf-8"}
_MANAGING = frozenset({Operation.MANAGE})
_TAKING = (Verdict.SERVE, Verdict.TAKE_SILENTLY, Verdict.TAKE_AND_RESET)


class HttpsServer:
    """Makes the protocol for each management connection of one namespace, and ends them. Needs a running loop."""

    def __init__(
        self,
        management: Management,
        faults: FaultBoard,
        *,
        websockets: WebSocketServer | None = None,
        patience: float = 10.0,
    ) -> None:
        """`websockets` takes over who asks for AMQP at its path; `patience` is how many seconds a body may take."""
        self._management = management
        self._faults = faults
        self._patience = patience
        self._websockets = websockets
        self._closing = False
        self._change = asyncio.Event()
        self._server = web.Server(
            self._serve,
            access_log=None,
            logger=once_per_reason(log, "management"),
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=_LINGERING_SECONDS,
        )

    def protocol(self) -> asyncio.Protocol:
        """A protocol for one connection."""
        return self._server()

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    def faults_changed(self) -> None:
        """Cut connections that are to be reset; requests held back by a fault look at it again."""
        self._change.set()
        self._change = asyncio.Event()
        if self._faults.connection_verdict() is ConnectionVerdict.RESET:
            for connection in self._server.connections:
                if connection.transport is not None:
                    connection.transport.abort()

    async def close(self) -> None:
        """End every connection; an answer under way has a second to leave."""
        self._closing = True
        self._change.set()
        self._server.pre_shutdown()  # idle connections go at once
        await self._server.shutdown(_SHUTDOWN_SECONDS)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._websockets is not None and request.path.rstrip("/").lower() == PATH:
            return web.Response() if await self._lost(request) else await self._websockets.serve(request)
        try:
            async with asyncio.timeout(self._patience):
                body = await request.read()
        except TimeoutError as error:
            raise web.HTTPRequestTimeout(text="The request's body did not arrive in time.\n") from error
        if await self._lost(request):
            return web.Response()  # never leaves: the connection is gone
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Request(method=request.method, target=request.raw_path, headers=headers, body=body)
        answer = await self._answer_through_faults(asked, unquote(request.path).strip("/"))
        if answer is None:
            _abort(request)
            return web.Response()
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)

    async def _answer_through_faults(self, request: Request, path: str) -> Answer | None:
        """What leaves; None for a connection that is reset, at once or when the fault that holds it changes."""
        faults = self._faults
        if faults.is_quiet:
            return self._answer(request)
        verdict = faults.verdict(Moment.HTTP, path)
        for direction in Direction:
            await asyncio.sleep(faults.latency(path, _MANAGING, direction) + faults.connection_latency(direction))
        refusal = None if verdict is Verdict.REFUSE else refusal_by(verdict, path)
        if refusal is not None:
            return Answer(refusal.status, atom.error_document(refusal.status, refusal.description), _XML)
        answer = self._answer(request) if verdict in _TAKING else None
        if verdict in (Verdict.SWALLOW, Verdict.TAKE_SILENTLY) and not self._closing:
            await self._change.wait()
        return answer if verdict is Verdict.SERVE else None

    def _answer(self, request: Request) -> Answer:
        try:
            return self._management.answer(request)
        except Exception:
            log.exception("management request %s %s failed", request.method, request.target)
            return Answer(500, b"<Error><Code>500</Code><Detail>internal error, see the sandbox's log</Detail></Error>")

    async def _lost(self, request: web.BaseRequest) -> bool:
        """Whether a fault took the connection: at once, or after it had swallowed the request for a while."""
        verdict = self._faults.connection_verdict()
        if verdict is ConnectionVerdict.SERVE:
            return False
        while verdict is ConnectionVerdict.SWALLOW and not self._closing:
            await self._change.wait()
            verdict = self._faults.connection_verdict()
        _abort(request)
        return True


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
