"""An engine's HTTP port: probes for an orchestrator and metrics for Prometheus, from its latest snapshot.

    /livez      200 while the engine's loop answers
    /readyz     200 while one of the two namespaces accepts sends, else 503; the body says which, and why
    /metrics    the metrics

Any other path is 404. A connection carries one request and has a time limit, however slow its client. A thread renders
the metrics, once a snapshot, however many clients ask. Not here: the figures (metrics.py).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from aiohttp import web
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry

from paired_servicebus.core.model.snapshot import Snapshot, Trouble, TroubleKind
from paired_servicebus.core.operator.alarms import STALE_SECONDS, accepts_sends
from paired_servicebus.core.text.masking import masked
from paired_servicebus.engine.instance.listening import listen
from paired_servicebus.engine.service.metrics import SnapshotCollector
from paired_servicebus.settings import ListenAddress
from servicebus_amqp.server.admission import Admission, Stay

BIND_RETRY_SECONDS: Final = 1.0
"""Seconds until a port that was taken is tried again."""
REQUEST_SECONDS: Final = 5.0
"""Seconds for a whole request, from the connection on, however slowly its bytes arrive."""
CONNECTION_SECONDS: Final = 15.0
"""Seconds from a connection to the end of its answer."""
MAX_PENDING_CONNECTIONS: Final = 64
"""Connections without a whole request."""
MAX_SCRAPES: Final = 32
"""Requests for metrics whose answer is not made, or not read."""
MAX_HEADER_BYTES: Final = 2048
MAX_HEADERS: Final = 32
BACKLOG: Final = 128
"""Connections that the kernel keeps until they are accepted."""
PATHS: Final = ("/metrics", "/livez", "/readyz")
REFUSALS: Final = {
    HTTPStatus.NOT_FOUND: "there are /metrics, /livez and /readyz",
    HTTPStatus.METHOD_NOT_ALLOWED: "GET is all that is answered",
    HTTPStatus.SERVICE_UNAVAILABLE: "too many requests at the same time: try again later",
}

log = logging.getLogger(__name__)
_bad_requests = log.getChild("http")
_bad_requests.setLevel(logging.CRITICAL)  # a stranger's bad request is answered, and fills no log


class ProbePort:
    """The HTTP port of one engine.

    Args:
        address: None: the engine has none.
        latest: returns the newest snapshot; None before the first.
        scraped: returns the same, and notes that somebody reads the figures.
        warn: receives a sentence for the timeline.
    """

    def __init__(
        self,
        address: ListenAddress | None,
        *,
        latest: Callable[[], Snapshot | None],
        scraped: Callable[[], Snapshot | None],
        warn: Callable[[str], object],
    ) -> None:
        self._address = address
        self._latest = latest
        self._figures = RenderedFigures(scraped)
        self._warn = warn
        self._scrapes: set[web.RequestHandler] = set()
        self.troubles: tuple[Trouble, ...] = ()
        """What keeps it from serving."""

    async def run(self) -> None:
        """Serve until cancelled. A port that cannot be had is an alarm, and is tried again."""
        if self._address is None:
            return
        bound = await self._bind(self._address)
        if not self._address.loopback:
            self._warn(f"metrics are served at {self._address}, to other machines too")
        server = BoundedServer(self._answer, self._scrapes.discard)
        listening = await asyncio.get_running_loop().create_server(server, sock=bound, backlog=BACKLOG)
        try:
            await asyncio.Event().wait()
        finally:
            listening.close()
            server.abort()

    async def _bind(self, address: ListenAddress) -> socket.socket:
        while True:
            try:
                bound = listen(address.host, address.port, backlog=BACKLOG)
            except OSError as error:
                what, reason = f"the port of probes and metrics {address}", str(error.strerror or error)
                self.troubles = (Trouble(kind=TroubleKind.PORT_IN_USE, what=what, reason=reason),)
                await asyncio.sleep(BIND_RETRY_SECONDS)
            else:
                self.troubles = ()
                return bound

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        """Return the answer, after which the connection ends."""
        try:
            answer = await self._answer_to(request)
        except Exception:
            log.exception("%s was not answered", request.path)
            raise
        answer.force_close()
        return answer

    async def _answer_to(self, request: web.BaseRequest) -> web.Response:
        if request.path not in PATHS:
            return _refusal(HTTPStatus.NOT_FOUND)
        if request.method not in ("GET", "HEAD"):
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
        if request.path == "/livez":
            return _sentence(HTTPStatus.OK, "alive")
        if request.path == "/readyz":
            accepts, why = accepts_sends(self._latest())
            return _sentence(HTTPStatus.OK if accepts else HTTPStatus.SERVICE_UNAVAILABLE, why)
        if len(self._scrapes) >= MAX_SCRAPES:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE)
        self._scrapes.add(request.protocol)
        kind, text = await self._figures.render(request.headers.get("Accept", ""))
        answer = web.Response(body=text, headers={"Content-Type": kind})
        answer.enable_compression()
        return answer


def _sentence(status: HTTPStatus, sentence: str) -> web.Response:
    return web.Response(status=status, text=f"{masked(sentence)}\n")


def _refusal(status: HTTPStatus) -> web.Response:
    return _sentence(status, f"# {REFUSALS[status]}")


class RenderedFigures:
    """The metrics of the newest snapshot as text, rendered once."""

    def __init__(self, latest: Callable[[], Snapshot | None]) -> None:
        self._latest = latest
        self._turn = asyncio.Lock()
        self._of: tuple[Snapshot | None, str, bool] | None = None
        """The snapshot, the format, and whether the snapshot was old."""
        self._text = b""

    async def render(self, accept: str) -> tuple[str, bytes]:
        """Return content type and text in the format that a scraper accepts; no figures before the first snapshot."""
        encode, kind = choose_encoder(accept)
        async with self._turn:
            snapshot = self._latest()
            is_old = snapshot is not None and time.time() - snapshot.at > STALE_SECONDS
            if self._of is None or self._of[0] is not snapshot or self._of[1:] != (kind, is_old):
                registry = CollectorRegistry(auto_describe=False)
                registry.register(SnapshotCollector(lambda: snapshot))
                self._text = await asyncio.to_thread(encode, registry)
                self._of = snapshot, kind, is_old
            return kind, self._text


class BoundedServer(web.Server):
    """Bounds the connections of an HTTP server.

    Beyond MAX_PENDING_CONNECTIONS without a whole request the oldest of them ends, so a client that sends its request
    at once is served.

    Args:
        answer: answers a request.
        ended: receives each connection that ended.
    """

    def __init__(
        self,
        answer: Callable[[web.BaseRequest], Awaitable[web.Response]],
        ended: Callable[[web.RequestHandler], object],
    ) -> None:
        super().__init__(
            self._first_request,
            handler_cancellation=True,
            keepalive_timeout=REQUEST_SECONDS,
            lingering_time=0.0,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=MAX_HEADERS,
            logger=_bad_requests,
            access_log=None,
        )
        self._answer = answer
        self._ended = ended
        self._admission = Admission(lambda _: None, most=MAX_PENDING_CONNECTIONS)
        self._strangers: dict[web.RequestHandler, Stay] = {}
        self._limits: dict[web.RequestHandler, tuple[asyncio.Transport, asyncio.TimerHandle]] = {}

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Limit the connection's time, and the number of those without a whole request."""
        super().connection_made(handler, transport)
        limit = asyncio.get_running_loop().call_later(CONNECTION_SECONDS, transport.abort)
        self._limits[handler] = transport, limit
        self._strangers[handler] = self._admission.enter(transport.abort)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Forget the connection."""
        super().connection_lost(handler, exc)
        self._leave(handler)
        if handler in self._limits:
            self._limits.pop(handler)[1].cancel()
        self._ended(handler)

    def abort(self) -> None:
        """End every connection."""
        for transport, limit in self._limits.values():
            limit.cancel()
            transport.abort()

    async def _first_request(self, request: web.BaseRequest) -> web.Response:
        self._leave(request.protocol)
        return await self._answer(request)

    def _leave(self, handler: web.RequestHandler) -> None:
        stay = self._strangers.pop(handler, None)
        if stay is not None:
            stay.leave()
