"""One connection of our own: `servicebus_amqp` on an asyncio transport.

A read's events go to the owners of their links, then the `after_read` callbacks run, and all resulting bytes leave in
one write. Bytes from outside a read leave in the loop's next turn, again in one write. The peer must send within the
idle time-out, and receives frames within its own.

A connection lives once; `lost` then has the reason. ReconnectingConnection reconnects and sets a deadline for each
wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast
from uuid import uuid4

from paired_servicebus.core.errors import WireConnectionError, WireError, WireTimeoutError, WireUnavailableError
from paired_servicebus.pairing.amqp_client.client_links import (
    OURS,
    AttachFields,
    CbsAuthorizer,
    OnDelivery,
    OnLost,
    OnOutcome,
    OnRoom,
    RequestChannel,
    WireReceiver,
    WireSender,
)
from paired_servicebus.pairing.amqp_client.endpoint import HIGH_WATER, LOW_WATER, Endpoint, Pieces, connect
from paired_servicebus.pairing.amqp_client.wire_errors import (
    REFUSES_US,
    SOCKET_ERROR,
    connection_failure,
    format_error,
    link_failure,
)
from paired_servicebus.pairing.runtime.deadlines import CLOSING, end_all
from servicebus_amqp.encoding.messaging_types import Received, Source, Target
from servicebus_amqp.protocol import protocol_events as e
from servicebus_amqp.protocol.connection import Connection
from servicebus_amqp.protocol.connection_settings import ConnectionRole, ConnectionSettings, LinkRole
from servicebus_amqp.protocol.link_sender import SenderLink
from servicebus_amqp.protocol.session import Session, SessionState

IDLE_TIMEOUT: Final = 60.0
"""Seconds within which a namespace must send something, if only empty frames."""
LINKS_PER_SESSION: Final = 200
"""Links of a session. The service allows 256 handles; a broken session ends all of its links."""
MANAGEMENT: Final = "/$management"
_MODES: Final[dict[str, Any]] = {"settle_modes": (0, 1)}
"""Unsettled, and settled by the receiver second."""

log = logging.getLogger(__name__)

AfterRead = Callable[[], None]


class ClientConnection(asyncio.Protocol):
    """lost: the reason of the connection's end. will_write: whether bytes leave soon anyway.

    asks, reads: numbers of requests that expect an answer, and of reads. is_writable: whether messages sent now would
    leave soon. It is False while the transport is full or enough bytes for one write are collected; `after_read`
    callbacks run when it becomes True.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        name: str,
        clock: Callable[[], float],
        after_read: list[AfterRead],
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        self.endpoint = endpoint
        self.loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[WireError] = self.loop.create_future()
        self.asks = self.reads = self._collected = 0
        self.will_write = False
        self.is_writable = True
        self._is_held_back = self._is_unread = False
        self.authorizer = CbsAuthorizer(self, clock)
        self._after_read = after_read
        self._amqp = Connection(
            role=ConnectionRole.CLIENT,
            settings=ConnectionSettings(
                container_id=f"{name}-{uuid4()}",
                hostname=endpoint.hostname,
                idle_timeout_ms=round(1000 * idle_timeout),
                max_message_size=None,
            ),
        )
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = self.loop.create_future()
        self._gone: asyncio.Future[None] = self.loop.create_future()
        self._is_closing = False
        self._named = 0
        self._has_served = False
        self._sessions: list[Session] = []
        self._links: dict[e.LinkEnd, WireSender | WireReceiver] = {}
        self._outcomes: dict[e.LinkEnd, OnOutcome] = {}
        self._deliveries: dict[e.LinkEnd, OnDelivery] = {}
        self._requests: dict[str, RequestChannel] = {}
        self._opening: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticking: asyncio.TimerHandle | None = None
        self._handlers: dict[type, Callable[[Any], None]] = {
            e.Opened: self._on_opened,
            e.Attached: self._on_attached,
            e.Detached: self._on_detached,
            e.FlowReceived: self._on_flow,
            e.Closed: self._on_closed,
            e.ConnectionFailed: self._on_failed,
        }

    # ----------------------------------------------- used by ReconnectingConnection and CbsAuthorizer

    async def open(self) -> None:
        """Connect, and open the connection. Raises WireConnectionError, WireUnavailableError."""
        try:
            await connect(self.endpoint, lambda: self)
            await asyncio.wait((self._opened, self.lost), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.drop(WireTimeoutError(f"{self.endpoint} did not open the connection in time"))
            raise
        if self.lost.done():
            raise self.lost.result()

    async def attach_sender(
        self,
        path: str,
        *,
        on_outcome: OnOutcome,
        on_lost: OnLost,
        on_room: OnRoom | None = None,
        reply_address: str | None = None,
        fields: AttachFields = OURS,
    ) -> WireSender:
        """Attach a link to an entity or node, without a token. Raises WireError."""
        sender = WireSender(self, path, on_lost, on_room)
        sender.link = self._session().attach_sender(
            fields.name or self._name_for("to"),
            fields.source or Source(address=reply_address or "console"),
            fields.target or Target(address=path),
            **_MODES | fields.passed_on,
        )
        self._outcomes[sender.link] = on_outcome
        await self._attached(sender)
        return sender

    async def attach_receiver(
        self,
        path: str,
        *,
        on_delivery: OnDelivery,
        on_lost: OnLost,
        on_settled: OnOutcome | None = None,
        reply_address: str | None = None,
        fields: AttachFields = OURS,
    ) -> WireReceiver:
        """Attach a peek-lock link from an entity or node, without token or credit. Raises WireError."""
        receiver = WireReceiver(self, path, on_lost)
        receiver.link = self._session().attach_receiver(
            fields.name or self._name_for("from"),
            fields.source or Source(address=path),
            fields.target or Target(address=reply_address or "console"),
            **_MODES | fields.passed_on,
        )
        self._deliveries[receiver.link] = on_delivery
        if on_settled is not None:
            self._outcomes[receiver.link] = on_settled
        await self._attached(receiver)
        return receiver

    async def requests(self, node: str) -> RequestChannel:
        """Return the request channel of a node; open it first if necessary. Raises WireError."""
        found = self._requests.get(node)
        if found is not None:
            return found
        async with self._opening[node]:
            found = self._requests.get(node)
            if found is None:
                found = RequestChannel(self, node)
                await found.open()
                self._requests[node] = found
            return found

    def paths_in_use(self) -> set[str]:
        """Return the entities with a link here; a node counts as its entity."""
        return {link.path.removesuffix(MANAGEMENT) for link in self._links.values() if not link.path.startswith("$")}

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run a task that ends with the connection at the latest."""
        task = self.loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def drop(self, error: WireError) -> None:
        """Cut a failed connection, and pass the reason to all of its links."""
        self._lose(error)
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Close cleanly, within seconds; its links end with the reason "closed by us"."""
        if not self.lost.done():
            self._is_closing = True
            self._amqp.close()
            self.flush()
            await asyncio.wait((self.lost,), timeout=CLOSING)
            self._lose(WireConnectionError(f"the connection to {self.endpoint} was closed by us"))
            self._end_transport()
        if self._transport is not None:
            await asyncio.wait((self._gone,), timeout=CLOSING)
            self._transport.abort()
        if not await end_all(tuple(self._tasks), CLOSING):
            log.warning("these tasks of %s do not end: %s", self.endpoint, [task.get_name() for task in self._tasks])

    # ------------------------------------------------------------------ used by links

    def touch(self) -> None:
        """Schedule a write: with the present read, or in the loop's next turn."""
        if not self.will_write:
            self.will_write = True
            self.loop.call_soon(self.flush)

    def collect(self, size: int) -> None:
        """Count bytes of messages; more than a socket accepts would be copied between buffers."""
        self._collected += size
        if self._collected >= HIGH_WATER:
            self.is_writable = False

    def forget(self, link: e.LinkEnd) -> None:
        """Forget a link that its owner dropped."""
        self._outcomes.pop(link, None)
        self._deliveries.pop(link, None)
        gone = self._links.pop(link, None)
        if gone is not None:
            self.authorizer.forget(gone.path.removesuffix(MANAGEMENT))

    def forget_requests(self, requests: RequestChannel) -> None:
        if self._requests.get(requests.node) is requests:
            del self._requests[requests.node]

    def hold_reading(self, held: bool) -> None:
        """Stop reading, or continue: what is read is passed on to somebody who has no room for it."""
        self._is_unread = held
        if self._transport is not None:
            self._pieces.hold(held)

    # ------------------------------------------------------------------ called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = wire = cast(asyncio.Transport, transport)
        self._pieces = Pieces(self._work, pause=wire.pause_reading, resume=wire.resume_reading)
        self._transport.set_write_buffer_limits(high=HIGH_WATER, low=LOW_WATER)
        if self.lost.done():
            self._transport.abort()
            return
        self._amqp.open()
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        self._pieces.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pieces.finish()
        why = f"the connection to {self.endpoint} was lost: {exc or 'the other side ended it'}"
        self._lose(WireConnectionError(why, SOCKET_ERROR))
        if not self._gone.done():
            self._gone.set_result(None)

    def pause_writing(self) -> None:
        self.is_writable, self._is_held_back = False, True

    def resume_writing(self) -> None:
        self._is_held_back = False
        self._resume()

    def _resume(self) -> None:
        if not self._is_held_back and not self.lost.done():
            self.is_writable = True
            self._work(b"")

    def _work(self, data: bytes) -> None:
        """Process a read, run the callbacks, and send the result in one write."""
        self.will_write = True
        try:
            if data:
                self._handle(self._amqp.receive_data(data))
            for act in tuple(self._after_read):
                act()
        except Exception as error:
            log.exception("bytes from %s could not be processed", self.endpoint)
            self.drop(WireConnectionError(f"a callback failed on bytes from {self.endpoint}: {error!r}"))
        self.flush()

    def _handle(self, events: list[e.Event]) -> None:
        outcomes, deliveries, handlers = self._outcomes, self._deliveries, self._handlers
        for event in events:
            kind = type(event)
            if kind is e.DeliveryReceived:
                on_delivery = deliveries.get(event.link)  # type: ignore[union-attr] # narrowed by its exact type
                if on_delivery is not None:
                    try:
                        on_delivery(event)  # type: ignore[arg-type]
                    except Exception as error:  # noqa: BLE001 - any error ends only this link
                        self._drop_link(event.link, error)  # type: ignore[union-attr]
            elif kind is e.DispositionReceived:
                if event.settled or self._echo(event):  # type: ignore[union-attr,arg-type]
                    on_outcome = outcomes.get(event.link)  # type: ignore[union-attr]
                    if on_outcome is not None:
                        on_outcome(event)  # type: ignore[arg-type]
            else:
                handler = handlers.get(kind)
                if handler is not None:
                    handler(event)

    def _drop_link(self, link: e.LinkEnd, error: Exception) -> None:
        """Drop the link of a message whose handler failed; all other links continue."""
        found = self._links.get(link)
        log.error("a message from %s could not be handled", found and found.path, exc_info=error)
        if found is not None:
            found.drop(WireError(f"the handler of a message from {found.path} failed: {type(error).__name__}"))

    def _echo(self, event: e.DispositionReceived) -> bool:
        """Settle an outcome that the peer left unsettled; return whether it is the only one of the delivery.

        False for a state without an outcome, and if the peer has settled our message in the same read.
        """
        found = self._links.get(event.link)
        if found is not None and found.passes_flow is not None:
            return True  # its owner passes states on as well
        if event.state is None or isinstance(event.state, Received):
            return False
        if event.link.role is LinkRole.SENDER and not event.link.holds(event.delivery_id):
            return False
        event.link.settle(event.delivery_id, event.state)
        return True

    def flush(self) -> None:
        """Write what is ready."""
        self.will_write = False
        data, collected, self._collected = self._amqp.data_to_send(), self._collected, 0
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
        if collected >= HIGH_WATER and not self._is_held_back:
            self.loop.call_soon(self._resume)

    def _name_for(self, way: str) -> str:
        """Return a unique name for a link."""
        self._named += 1
        return f"{self._amqp.settings.container_id}-{way}-{self._named}"

    def _session(self) -> Session:
        """Return a session with room for another link. Raises WireError."""
        if self.lost.done() or self._is_closing:
            raise WireConnectionError(f"the connection to {self.endpoint} is closed", SOCKET_ERROR)
        usable = (SessionState.BEGINNING, SessionState.OPEN)
        self._sessions = [session for session in self._sessions if session.state in usable]
        for session in self._sessions:
            most = LINKS_PER_SESSION if session.remote is None else session.remote.handle_max + 1
            if session.link_count < min(most, LINKS_PER_SESSION):
                return session
        self._sessions.append(self._amqp.begin())
        return self._sessions[-1]

    async def _attached(self, link: WireSender | WireReceiver) -> None:
        self._links[link.link] = link
        self.asks += 1
        self.touch()
        try:
            await link.established()
        except BaseException:
            if link.failure is None:
                link.link.detach()
                self.touch()
            self.forget(link.link)
            raise

    def _on_opened(self, _: e.Opened) -> None:
        self._opened.set_result(None)
        self._tick()

    def _on_attached(self, event: e.Attached) -> None:
        found = self._links.get(event.link)
        terminus = event.attach.target if isinstance(event.link, SenderLink) else event.attach.source
        if found is not None and terminus is not None:  # None in a refusal, whose detach follows
            self._has_served = True
            found.answer()

    def _on_detached(self, event: e.Detached) -> None:
        found = self._links.get(event.link)
        if found is not None:
            self.forget(event.link)
            found.end(link_failure(found.path, event.error, refused=not found.is_established))

    def _on_flow(self, event: e.FlowReceived) -> None:
        found = self._links.get(event.link)
        if found is not None:
            found.on_flow(event)

    def _on_closed(self, event: e.Closed) -> None:
        failure: WireError = connection_failure(str(self.endpoint), event.error)
        if self._is_closing:
            failure = WireConnectionError(f"the connection to {self.endpoint} was closed by us")
        elif not self._has_served and failure.condition in REFUSES_US:
            failure = WireUnavailableError(str(failure), failure.condition)
        self._lose(failure)
        self._end_transport()

    def _on_failed(self, event: e.ConnectionFailed) -> None:
        why = f"{self.endpoint} broke the protocol: {format_error(event.error)}"
        kind = WireConnectionError if self._opened.done() else WireUnavailableError
        self._lose(kind(why, str(event.error.condition)))
        self._end_transport()

    def _end_transport(self) -> None:
        self.flush()  # the remaining bytes
        if self._transport is not None:
            self._transport.close()

    def _tick(self) -> None:
        if self._is_unread:
            self._amqp.receive_data(b"")  # the silence is ours
        deadline = self._amqp.tick(self.loop.time())
        self.flush()
        if self._amqp.failure is not None:
            self.drop(WireConnectionError(f"{self.endpoint}: {self._amqp.failure.description}", SOCKET_ERROR))
        elif deadline is not None:
            self._ticking = self.loop.call_at(deadline, self._tick)

    def _lose(self, error: WireError) -> None:
        """End all links and tasks of this connection, once."""
        if self.lost.done():
            return
        self.lost.set_result(error)
        if self._ticking is not None:
            self._ticking.cancel()
        for task in self._tasks:
            task.cancel()
        links, self._links = self._links, {}
        self._outcomes.clear()
        self._deliveries.clear()
        for link in links.values():
            link.end(error)
        for act in tuple(self._after_read):
            act()
