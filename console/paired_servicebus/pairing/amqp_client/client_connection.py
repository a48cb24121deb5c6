"""One connection of our own, `servicebus_amqp` on an asyncio transport: its links, requests and tokens.

A read's events go to the owners of their links, then the `after_read` callbacks run, and all resulting bytes leave in
one write. Bytes from outside a read leave in the loop's next turn, again in one write. The peer must send within the
idle time-out, and receives frames within its own. A connection lives once; `lost` then has the reason.
ReconnectingConnection reconnects and sets a deadline for each wait.

A link is a sender to an entity, or a receiver from one. It lives once and ends with one call of `on_lost`, or with none
after the owner's detach. The owner tracks unsettled messages: a message of a lost link may have been accepted or not.
Callbacks run inside the socket's read and must neither block nor raise.

Requests go to one node, `$cbs` or `{entity}/$management`, over a pair of links. Several may run concurrently; a reply
names its request by correlation-id. The credit for replies is renewed here.

A token is put to `$cbs` before an entity's link is attached, and renewed while the connection has links. Each entity
has its own token, as in the SDK, so that keys of single entities work.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, NotRequired, TypedDict, TypeVar, Unpack, cast
from uuid import uuid4

from paired_servicebus.core.errors import WireConnectionError, WireError, WireTimeoutError, WireUnavailableError
from paired_servicebus.pairing.amqp_client.endpoint import (
    HIGH_WATER,
    LOW_WATER,
    REFUSES_US,
    SOCKET_ERROR,
    Endpoint,
    connect,
    connection_failure,
    failure_of,
    format_error,
    link_failure,
    token_failure,
    token_for,
)
from paired_servicebus.pairing.runtime.deadlines import CLOSING, bounded, end_all
from servicebus_amqp.encoding.codec import Timestamp
from servicebus_amqp.encoding.message_sections import read_properties, split
from servicebus_amqp.encoding.performatives import ACCEPTED, Coordinator, DeliveryState, Received, Source, Target
from servicebus_amqp.nodes.request_ends import NodeReply, read_reply, write_request
from servicebus_amqp.protocol import links as e
from servicebus_amqp.protocol.connection import Connection, Session, SessionState
from servicebus_amqp.protocol.connection_settings import ConnectionRole, ConnectionSettings, LinkRole
from servicebus_amqp.protocol.deliveries import Payload
from servicebus_amqp.protocol.links import ReceiverLink, SenderLink
from servicebus_amqp.protocol_errors import DecodeError
from servicebus_amqp.transport import Pieces

MIB: Final = 1024 * 1024
STANDARD_BATCH: Final = 256 * 1024
BATCH_SIZE: Final = "com.microsoft:max-message-batch-size"
IDLE_TIMEOUT: Final = 60.0
"""Seconds within which a namespace must send something, if only empty frames."""
LINKS_PER_SESSION: Final = 200
"""Links of a session. The service allows 256 handles; a broken session ends all of its links."""
MANAGEMENT: Final = "/$management"
_MODES: Final[dict[str, Any]] = {"settle_modes": (0, 1)}
"""Unsettled, and settled by the receiver second."""

L = TypeVar("L", "WireSender", "WireReceiver")
AfterRead = Callable[[], None]

log = logging.getLogger(__name__)

OnOutcome = Callable[[e.DispositionReceived], None]
OnDelivery = Callable[[e.DeliveryReceived], None]
OnLost = Callable[[WireError], None]
OnRoom = Callable[[], None]
OnFlow = Callable[[e.FlowReceived], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachFields:
    """An attach that is passed on from another connection; a field left out is ours.

    passed_on: as of `Session.attach_sender`, such as settle_modes, properties and desired_capabilities.
    opener: returns the session, by `ClientConnection.begin`; default: one that links share.
    """

    name: str | None = None
    source: Source | None = None
    target: Target | Coordinator | None = None
    passed_on: dict[str, Any] = field(default_factory=dict)
    opener: Callable[[ClientConnection], Awaitable[Session]] | None = None


OURS: Final = AttachFields()


class SenderOptions(TypedDict):
    """How a sender's link is attached, and who gets its events."""

    on_outcome: OnOutcome
    on_lost: OnLost
    on_room: NotRequired[OnRoom]
    fields: NotRequired[AttachFields]


class ReceiverOptions(TypedDict):
    """How a receiver's link is attached, and who gets its events. on_settled: the answers to our settlements."""

    on_delivery: OnDelivery
    on_lost: OnLost
    on_settled: NotRequired[OnOutcome]
    fields: NotRequired[AttachFields]


class _WireLink:
    """The common part of both ends, made only by a connection."""

    __slots__ = ("_answered", "_ended", "_on_lost", "failure", "is_established", "line", "link", "passes_flow", "path")
    link: SenderLink | ReceiverLink

    def __init__(self, line: ClientConnection, path: str, on_lost: OnLost) -> None:
        self.line = line
        self.path = path
        self.failure: WireError | None = None
        self.passes_flow: OnFlow | None = None
        """Gets the peer's flows, for an owner that passes them on."""
        self._on_lost = on_lost
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_established = False
        self._ended: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}, {'up' if self.is_up else 'down'}>"

    @property
    def is_up(self) -> bool:
        return self.failure is None and self._ended is None and self.link.is_attached

    def drop(self, error: WireError) -> None:
        """Detach immediately, without a wait, and call `on_lost` with `error`."""
        if self.failure is None and self._ended is None:
            self.link.detach()
            self.line.touch()
            self.line.forget(self.link)
            self.end(error)

    async def detach(self, timeout: float = CLOSING) -> None:
        """Detach cleanly, within `timeout` seconds; never raises and never calls `on_lost`."""
        if self.failure is not None or self._ended is not None:
            return
        self._ended = asyncio.get_running_loop().create_future()
        self.link.detach()
        self.line.touch()
        await asyncio.wait((self._ended,), timeout=timeout)
        self.line.forget(self.link)

    # called by the connection

    async def established(self) -> None:
        """Wait for the peer's answer to the attach. Raises WireError for a refusal."""
        await self._answered
        if self.failure is not None:
            raise self.failure
        self.is_established = True

    def answer(self) -> None:
        """Handle an accepted attach."""
        if not self._answered.done():
            self._answered.set_result(None)

    def on_flow(self, event: e.FlowReceived) -> None:
        """Handle a flow of the peer."""
        if self.passes_flow is not None:
            self.passes_flow(event)

    def end(self, error: WireError) -> None:
        """Handle the end of the link; call `on_lost`, once."""
        if self._ended is not None:
            if not self._ended.done():
                self._ended.set_result(None)
        elif self.failure is None:
            self.failure = error
            self.answer()
            if self.is_established:
                self._on_lost(error)


class WireSender(_WireLink):
    """Sends encoded messages to one entity; each gets one outcome, by its tag."""

    __slots__ = ("on_room",)
    link: SenderLink

    def __init__(self, line: ClientConnection, path: str, on_lost: OnLost, on_room: OnRoom | None) -> None:
        super().__init__(line, path, on_lost)
        self.on_room = on_room

    def on_flow(self, event: e.FlowReceived) -> None:
        super().on_flow(event)
        if self.on_room is not None and event.credit:
            self.on_room()

    @property
    def max_message_size(self) -> int:
        """Bytes of one message, by the entity's attach."""
        return self.link.max_message_size or MIB

    @property
    def max_batch_size(self) -> int:
        """Bytes of a whole batch; by the SDK's rule if the entity's attach gives none."""
        remote = self.link.remote
        given = (remote.properties or {}).get(BATCH_SIZE) if remote is not None else None
        if isinstance(given, int) and given > 0:
            return given
        return MIB if self.max_message_size >= MIB else STANDARD_BATCH

    @property
    def room(self) -> int:
        """Messages that would leave immediately."""
        is_open = self.failure is None and self._ended is None and self.line.is_writable
        return self.link.credit if is_open else 0  # 0 on a detached link

    def send(
        self, payload: Payload, tag: bytes, *, message_format: int = 0, state: DeliveryState | None = None
    ) -> None:
        """Send one encoded message, whole or in pieces; beyond `room` it waits in memory, in order.

        tag: at most 32 bytes, unique among unsettled messages. message_format: BATCH_FORMAT for a batch. state: such as
        that of a transaction.

        Raises:
            StateError: the link is gone.
            EncodeError: the tag or the state is too long.
        """
        self.link.send(payload, tag=tag, message_format=message_format, state=state)
        line = self.line
        line.collect(len(payload) if isinstance(payload, bytes) else sum(map(len, payload)))
        if not line.will_write:
            line.touch()


class WireReceiver(_WireLink):
    """Receives from one entity with peek-lock; the tag of a delivery is its lock token, little-endian bytes."""

    __slots__ = ("_drained", "_granted")
    link: ReceiverLink

    def __init__(self, line: ClientConnection, path: str, on_lost: OnLost) -> None:
        super().__init__(line, path, on_lost)
        self._granted = False
        self._drained: asyncio.Future[None] | None = None

    @property
    def is_drained(self) -> bool:
        """Whether the namespace has answered the drain of `detach`: no message is on its way."""
        return self._drained is not None and self._drained.done() and self.failure is None

    @property
    def credit(self) -> int:
        """Messages that the namespace may still send."""
        return self.link.credit

    def grant(self, credit: int, *, drain: bool = False, properties: dict[Any, Any] | None = None) -> None:
        """Let the namespace send `credit` more messages; messages in flight arrive as well.

        drain: it sends what it has and returns the rest of the credit; the flow with its answer has `drain` too.
        """
        self._granted = True
        self.link.flow(credit, drain=drain, properties=properties)
        self.line.touch()

    async def detach(self, timeout: float = CLOSING) -> None:
        """Withdraw the credit, wait for messages in flight, then detach; each step within `timeout` seconds.

        `on_delivery` gets these messages while it can still release them: a message on a detached link stays locked
        until its lock expires. Never raises and never calls `on_lost`.
        """
        self._on_lost = lambda _: None
        if self.is_up and self._granted:
            self._drained = asyncio.get_running_loop().create_future()
            self.link.flow(0, drain=True)
            self.line.touch()
            await asyncio.wait((self._drained,), timeout=timeout)
        await super().detach(timeout)

    def settle(self, deliveries: int | range, state: DeliveryState, *, settled: bool = True) -> None:
        """Settle deliveries by their ids; neighbours with equal states share a frame.

        settled: final. Otherwise the namespace answers each with its own outcome, through `on_settled`.

        Raises:
            EncodeError: the state does not fit a frame.
        """
        self.link.settle(deliveries, state, settled=settled)
        line = self.line
        if not line.will_write:
            line.touch()

    # called by the connection

    def on_flow(self, event: e.FlowReceived) -> None:
        super().on_flow(event)
        if event.drain:
            self._end_drain()

    def _end_drain(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def end(self, error: WireError) -> None:
        super().end(error)
        self._end_drain()


# -- requests ---------------------------------------------------------------------------------------------------------


_CREDIT: Final = 100


class RequestChannel:
    """The pair of links to one node. Open it once; if one link is lost both are, and all requests fail."""

    def __init__(self, line: ClientConnection, node: str) -> None:
        self.node = node
        self.failure: WireError | None = None
        self._line = line
        self._sender: WireSender | None = None
        self._receiver: WireReceiver | None = None
        self._pending: dict[str, asyncio.Future[bytes]] = {}
        self._last = 0

    async def open(self) -> None:
        """Attach both links. Raises WireError."""
        line, node = self._line, self.node
        self._receiver = await line.attach_receiver(
            node, on_delivery=self._on_delivery, on_lost=self._on_lost, reply_address=node
        )
        self._receiver.grant(_CREDIT)
        try:
            self._sender = await line.attach_sender(
                node, on_outcome=self._on_outcome, on_lost=self._on_lost, reply_address=node
            )
        except BaseException as error:
            self._on_lost(WireError(f"the links to {node} were not both attached: {error}"))
            raise

    async def ask(self, properties: dict[str, Any], body: Any) -> NodeReply:
        """Send one request; return its reply. Raises as `exchange`."""
        return reply_of(await self.exchange(lambda number: write_request(number, self.node, properties, body)))

    async def exchange(self, request: Callable[[str], bytes], state: DeliveryState | None = None) -> bytes:
        """Send one request; return the bytes of its reply. The caller has a deadline. Raises WireError: none can come.

        request: returns the encoded request of an id. state: that of its transaction.
        """
        if self.failure is not None or self._sender is None:
            raise WireConnectionError(f"no requests can be sent to {self.node}: {self.failure}") from self.failure
        self._last += 1
        number = str(self._last)
        answered = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            self._line.asks += 1
            self._sender.send(request(number), number.encode(), state=state)
            reply: bytes = await answered
            return reply
        finally:
            self._pending.pop(number, None)

    def _on_delivery(self, event: e.DeliveryReceived) -> None:
        receiver = self._receiver
        if receiver is not None:
            receiver.settle(event.delivery_id, ACCEPTED)
            if receiver.credit <= _CREDIT // 2:
                receiver.grant(_CREDIT)
        try:
            number = read_properties(split(event.payload).properties).correlation_id
        except DecodeError as error:
            self._on_lost(WireError(f"{self.node} sent an unreadable reply: {error}"))
            return
        answered = self._pending.get(number) if isinstance(number, str) else None
        if answered is not None and not answered.done():
            answered.set_result(event.payload)

    def _on_outcome(self, event: e.DispositionReceived) -> None:
        failure = failure_of(event.state, self.node)
        answered = self._pending.get(event.tag.decode())
        if failure is not None and answered is not None and not answered.done():
            answered.set_exception(failure)

    def _on_lost(self, error: WireError) -> None:
        if self.failure is None:
            self.failure = error
            self._line.forget_requests(self)
            for answered in self._pending.values():
                if not answered.done():
                    answered.set_exception(error)
            for link in (self._sender, self._receiver):
                if link is not None:
                    link.drop(error)


def reply_of(payload: bytes) -> NodeReply:
    """Return the reply in its bytes. Raises WireError: it is unreadable."""
    try:
        return read_reply(payload)
    except DecodeError as error:
        raise WireError(f"an unreadable reply came: {error}") from error


CBS: Final = "$cbs"
NAMESPACE: Final = ""
"""The path of the token that serves every entity, if the credential is the namespace's."""
MAX_TOKENS: Final = 900
"""Entities with a token of their own on one connection; the service accepts 1,000 tokens on one."""
RENEWAL: Final = 30.0
"""Seconds for one renewal."""
_MAX_CHECK_SECONDS: Final = 60.0
"""Maximum seconds between checks, so that a clock correction is noticed."""
_MIN_CHECK_SECONDS: Final = 1.0


@dataclass(slots=True)
class _AcceptedToken:
    """An accepted token: the time of its renewal, and its expiry."""

    due: float
    expires_at: float


class CbsAuthorizer:
    """The tokens that the namespace accepted, and their renewal. failure: the reason why the last renewal failed."""

    def __init__(self, line: ClientConnection, clock: Callable[[], float]) -> None:
        self.failure: WireError | None = None
        self._line = line
        self._clock = clock
        self._accepted: dict[str, _AcceptedToken] = {}
        self._pending: dict[str, asyncio.Future[None]] = {}
        self._is_renewing = False

    async def authorize(self, path: str) -> None:
        """Put a token for an entity unless the present one is valid. Raises WireError.

        Beyond MAX_TOKENS entities the namespace's token serves.
        """
        path = self._holder(path)
        while (pending := self._pending.get(path)) is not None:
            await asyncio.wait((pending,))
        if self._is_due(path):
            pending = self._pending[path] = self._line.loop.create_future()
            try:
                await self._put(path)
            finally:
                del self._pending[path]
                pending.set_result(None)
        if not self._is_renewing:
            self._is_renewing = True
            self._line.start(self._renew(), name=f"renew tokens for {self._line.endpoint.hostname}")

    def forget(self, path: str) -> None:
        """Mark the token of an entity as due because one of its links ended, possibly for it."""
        holder = self._holder(path)
        if holder in self._accepted:
            self._accepted[holder].due = 0.0

    def _holder(self, path: str) -> str:
        """Return the path whose token serves an entity."""
        has_own = path in self._accepted or path in self._pending
        return path if has_own or len(self._accepted) < MAX_TOKENS else NAMESPACE

    def _is_due(self, path: str) -> bool:
        return path not in self._accepted or self._accepted[path].due <= self._clock()

    async def _put(self, path: str) -> None:
        endpoint, now = self._line.endpoint, self._clock()
        audience = endpoint.audience(path)
        token = await token_for(endpoint.credential, audience, now=now)
        node = await self._line.requests(CBS)
        expiration = Timestamp(round(1000 * token.expires_at))
        put = {"operation": "put-token", "type": token.kind, "name": audience, "expiration": expiration}
        reply = await node.ask(put, token.text)
        if not reply.is_success:
            raise token_failure(audience, reply.status, reply.description, reply.condition)
        self._accepted[path] = _AcceptedToken(due=token.renew_at(now), expires_at=token.expires_at)

    async def _renew(self) -> None:
        """Renew due tokens while the connection lives; retry failures, and log the first of them."""
        while True:
            soonest = min((token.due for token in self._accepted.values()), default=self._clock() + _MAX_CHECK_SECONDS)
            await asyncio.sleep(max(_MIN_CHECK_SECONDS, min(_MAX_CHECK_SECONDS, soonest - self._clock())))
            in_use = self._line.paths_in_use()
            for path in [path for path in self._accepted if self._is_due(path)]:
                if path not in in_use and path != NAMESPACE:
                    del self._accepted[path]
                    continue
                try:
                    await bounded(self._put(path), RENEWAL, f"the renewal of the token for {path}")
                    self.failure = None
                except (WireError, TimeoutError) as error:
                    self._failed(path, error)

    def _failed(self, path: str, error: Exception) -> None:
        now, token = self._clock(), self._accepted[path]
        left = token.expires_at - now
        token.due = now + (
            min(_MAX_CHECK_SECONDS, max(_MIN_CHECK_SECONDS, left / 4)) if left > 0 else _MAX_CHECK_SECONDS
        )
        if self.failure is None:
            log.warning("the token for %s was not renewed; next try follows: %s", path, error)
            self.failure = error if isinstance(error, WireError) else WireError(str(error))


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
        self.asks = self.reads = self._collected = self._named = 0
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
        self._is_closing = self._has_served = False
        self._sessions: list[Session] = []
        self._links: dict[e.Link, WireSender | WireReceiver] = {}
        self._outcomes: dict[e.Link, OnOutcome] = {}
        self._deliveries: dict[e.Link, OnDelivery] = {}
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
        self, path: str, *, reply_address: str | None = None, **options: Unpack[SenderOptions]
    ) -> WireSender:
        """Attach a link to an entity or node, without a token. Raises WireError."""
        fields = options.get("fields", OURS)
        sender = WireSender(self, path, options["on_lost"], options.get("on_room"))
        session = self._session() if fields.opener is None else await fields.opener(self)
        sender.link = session.attach_sender(
            fields.name or self._name_for("to"),
            fields.source or Source(address=reply_address or "console"),
            fields.target or Target(address=path),
            **_MODES | fields.passed_on,
        )
        self._outcomes[sender.link] = options["on_outcome"]
        return await self._attached(sender)

    async def attach_receiver(
        self, path: str, *, reply_address: str | None = None, **options: Unpack[ReceiverOptions]
    ) -> WireReceiver:
        """Attach a peek-lock link from an entity or node, without token or credit. Raises WireError."""
        fields, on_settled = options.get("fields", OURS), options.get("on_settled")
        receiver = WireReceiver(self, path, options["on_lost"])
        session = self._session() if fields.opener is None else await fields.opener(self)
        receiver.link = session.attach_receiver(
            fields.name or self._name_for("from"),
            fields.source or Source(address=path),
            fields.target or Target(address=reply_address or "console"),
            **_MODES | fields.passed_on,
        )
        self._deliveries[receiver.link] = options["on_delivery"]
        if on_settled is not None:
            self._outcomes[receiver.link] = on_settled
        return await self._attached(receiver)

    def begin(self) -> Session:
        """Begin a session for links that name it. Raises WireError."""
        self._refuse_when_closed()
        return self._amqp.begin()

    async def requests(self, node: str) -> RequestChannel:
        """Return the request channel of a node; open it first if necessary. Raises WireError."""
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

    def forget(self, link: e.Link) -> None:
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

    def _drop_link(self, link: e.Link, error: Exception) -> None:
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
        self._refuse_when_closed()
        usable = (SessionState.BEGINNING, SessionState.OPEN)
        self._sessions = [session for session in self._sessions if session.state in usable]
        for session in self._sessions:
            most = LINKS_PER_SESSION if session.remote is None else session.remote.handle_max + 1
            if session.link_count < min(most, LINKS_PER_SESSION):
                return session
        self._sessions.append(self._amqp.begin())
        return self._sessions[-1]

    def _refuse_when_closed(self) -> None:
        if self.lost.done() or self._is_closing:
            raise WireConnectionError(f"the connection to {self.endpoint} is closed", SOCKET_ERROR)

    async def _attached(self, link: L) -> L:
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
        return link

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
