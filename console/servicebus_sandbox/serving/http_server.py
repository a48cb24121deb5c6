"""HTTP/1.1 for the sandbox: a port for HTTP only, and the faults of requests.

A fault delays, refuses or swallows a management request, or resets its connection. A fault that ends releases the
requests that it held. The servers write answers and refusals.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from aiohttp import web

from servicebus_amqp.server.admission import FIRST_REQUEST_SECONDS, Admission, PeerProtocol, log_once
from servicebus_amqp.server.http_server import HttpServer
from servicebus_amqp.server.listener import ConnectionVerdict, Listener
from servicebus_sandbox.faults import Direction, FaultBoard, FaultVerdict, InjectionPoint, Operation
from servicebus_sandbox.serving.amqp_conditions import RefusalLog, refusal_by

_SHUTDOWN_SECONDS: Final = 1.0
_ADVICE: Final = {
    PeerProtocol.AMQP: "It serves HTTP; AMQP has the port of a namespace's connection string.",
    PeerProtocol.TLS: "It serves plain HTTP; use http:// instead of https://.",
}


class HttpPort(ABC):
    """One port with HTTP and, with `tls`, HTTPS. Open it once, close it once. Needs a running loop."""

    def __init__(
        self,
        who: str,
        *,
        log: logging.Logger,
        tls: ssl.SSLContext | None = None,
        patience: float = FIRST_REQUEST_SECONDS,
    ) -> None:
        """Serve; `patience` is the limit in seconds for the first bytes, a TLS handshake and a request."""
        admission = Admission(log_once(who, log))
        self._http = HttpServer(
            self._serve, admission=admission, patience=patience, log=log, report=RefusalLog(who, log).about
        )
        self.body_of = self._http.body_of
        self._listener = Listener(
            who=who,
            http=self._http,
            tls=tls,
            admission=admission,
            patience=patience,
            advice=_ADVICE if tls is None else {PeerProtocol.AMQP: _ADVICE[PeerProtocol.AMQP]},
        )

    @abstractmethod
    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request."""

    async def listen(self, host: str, port: int = 0) -> int:
        """Listen and return the port. Raises ListenError."""
        return await self._listener.open(host, port)

    async def close(self) -> None:
        """Stop listening and end every connection; an answer in progress has a second to leave."""
        await self._listener.close()
        self._http.pre_shutdown()  # ends idle connections
        await self._http.shutdown(_SHUTDOWN_SECONDS)


class HttpRefusal(Exception):
    """An answer with an error: its HTTP status, its code where the protocol has one, and one sentence."""

    def __init__(self, status: int, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.code = status, code


Answer = TypeVar("Answer")

_MANAGING: Final = frozenset({Operation.MANAGE})
_TAKING: Final = (FaultVerdict.SERVE, FaultVerdict.TAKE_SILENTLY, FaultVerdict.TAKE_AND_RESET)


class FaultGate:
    """The gate of every request. It watches `faults` until it is closed; then it holds nothing.

    `connections` returns the present ones, which die when connections become half-open.
    """

    def __init__(self, faults: FaultBoard, *, connections: Callable[[], Iterable[object]] = tuple) -> None:
        self._faults = faults
        self._connections = connections
        self._dead: dict[str, frozenset[object]] = {}
        self._changed = asyncio.Event()
        self._closed = False
        faults.watch(self._let_go)

    def close(self) -> None:
        self._closed = True
        self._let_go()

    async def loses_connection(self, connection: object = None) -> bool:
        """Return whether a fault cuts the connection, now or after it has swallowed the request for a while."""
        verdict = self._verdict(connection)
        if verdict is ConnectionVerdict.SERVE:
            return False
        while verdict is ConnectionVerdict.SWALLOW and not self._closed:
            await self._changed.wait()
            verdict = self._verdict(connection)
        return True

    async def pass_through(
        self,
        path: str,
        serve: Callable[[], Awaitable[Answer]],
        refuse: Callable[[FaultVerdict, str, int], Answer],
    ) -> Answer | None:
        """Return the answer; None for a connection to reset, now or when the fault that holds it changes.

        `path` is the entity's or anything below it. `refuse` makes an answer from a verdict, one sentence and Atom's
        status.
        """
        faults = self._faults
        if faults.is_quiet:
            return await serve()
        if await self.loses_connection():
            return None
        verdict = faults.verdict(InjectionPoint.HTTP, path)
        for direction in Direction:
            await asyncio.sleep(faults.latency(path, _MANAGING, direction) + faults.connection_latency(direction))
        refusal = None if verdict is FaultVerdict.REFUSE else refusal_by(verdict, faults.namespace, path, None)
        if refusal is not None:
            return refuse(verdict, refusal.description, refusal.status)
        answer = await serve() if verdict in _TAKING else None
        if verdict in (FaultVerdict.SWALLOW, FaultVerdict.TAKE_SILENTLY) and not self._closed:
            await self._changed.wait()
        return answer if verdict is FaultVerdict.SERVE else None

    def _verdict(self, connection: object) -> ConnectionVerdict:
        is_dead = any(connection in those for those in self._dead.values())
        return ConnectionVerdict.SWALLOW if is_dead else self._faults.connection_verdict()

    def _let_go(self) -> None:
        begun = (fault_id for fault_id in self._faults.half_open if fault_id not in self._dead)
        living = {fault_id: frozenset(self._connections()) for fault_id in begun}
        self._dead = {key: those for key, those in (self._dead | living).items() if key in self._faults.half_open}
        self._changed.set()
        self._changed = asyncio.Event()


def reset(request: web.BaseRequest) -> web.Response:
    """Cut the request's connection; the response, which a handler has to return, never leaves."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
