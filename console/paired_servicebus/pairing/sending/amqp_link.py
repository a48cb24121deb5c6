"""The links of our own AMQP: to a backlog queue, and to an entity of the primary for a gateway's clients.

Both share one connection for each namespace, whose connections are limited. An `AmqpLink` carries bytes, with many
sends in flight. A send in flight is an entry with a callback: a task, a future and a timer for each would be most of
its cost. One timer serves the deadlines of all. It attaches with its first send, again after a loss, and again after
its connection was replaced for its silence.

A `BacklogLink` carries parked messages on one. It raises the SDK's errors, so that a caller, and its own judge, see
what they see of the SDK's links.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf
from typing import Final, NamedTuple

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from paired_servicebus.core.errors import (
    PairingClosedError,
    WireConnectionError,
    WireError,
    WireOutcomeError,
    WireTimeoutError,
    WireUnavailableError,
)
from paired_servicebus.core.model.verdict import KIND_BY_CONDITION, FailureKind, kind_of
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.amqp_client import Backoff, Endpoint, ReconnectingConnection, WireSender, failure_of
from paired_servicebus.pairing.amqp_client.client_connection import OURS, AttachFields
from paired_servicebus.pairing.envelope_codec import EncodedMessage
from paired_servicebus.pairing.runtime.deadlines import GRACE
from paired_servicebus.pairing.sending.sdk_messages import STANDARD_LIMIT, Carried, EncodedBatch
from servicebus_amqp.encoding.message_sections import BATCH_FORMAT
from servicebus_amqp.encoding.performatives import DeliveryState, TransactionalState
from servicebus_amqp.protocol.links import DispositionReceived
from servicebus_amqp.protocol_errors import Condition, StateError

FIRST_PAUSE: Final = 0.1
MAX_PAUSE: Final = 1.0
"""Seconds between two connections. The rotation and the checks of the links have longer pauses of their own."""
_CLASSES: Final[dict[FailureKind, Callable[..., ServiceBusError]]] = {
    FailureKind.TIMEOUT: OperationTimeoutError,
    FailureKind.CONNECTION: ServiceBusConnectionError,
    FailureKind.DISABLED: MessagingEntityDisabledError,
    FailureKind.NOT_FOUND: MessagingEntityNotFoundError,
    FailureKind.FULL: ServiceBusQuotaExceededError,
    FailureKind.BUSY: ServiceBusServerBusyError,
    FailureKind.UNAUTHENTICATED: ServiceBusAuthenticationError,
    FailureKind.UNAUTHORIZED: ServiceBusAuthorizationError,
    FailureKind.REVOKED: ServiceBusConnectionError,
    FailureKind.TOO_LARGE: MessageSizeExceededError,
}
_CONDITIONS: Final[dict[FailureKind, str]] = {
    FailureKind.INTERNAL: "amqp:internal-error",
    FailureKind.DETACHED: "amqp:link:detach-forced",
    FailureKind.ARGUMENT: "com.microsoft:argument-error",
}
"""The SDK has no class for these kinds: its ServiceBusError has the condition in its text."""
_RETRIED: Final = frozenset(
    {FailureKind.CONNECTION, FailureKind.INTERNAL, FailureKind.DETACHED, FailureKind.UNEXPLAINED}
)
_TAG_BYTES: Final = 8


class ConnectionCutError(ServiceBusConnectionError):
    """The shared connection ended during a send: the messages are in doubt, and their queue is not the cause."""


def connection_for(client: ServiceBusClient, *, seconds: float, name: str) -> ReconnectingConnection:
    """Return the connection of all links to a client's namespace. Raises WireUnavailableError.

    seconds: for one try to connect. name: for the namespace.
    """
    backoff, seconds = Backoff(first=FIRST_PAUSE, most=MAX_PAUSE), seconds + GRACE
    return ReconnectingConnection(Endpoint.of(client), name=name, backoff=backoff, connecting=seconds, shared=True)


def sdk_error(error: WireError) -> ServiceBusError:
    """Return the SDK's error of the same kind; the caller raises it `from` the wire's."""
    kind, text = kind_of(error), str(error)
    if kind in _CLASSES:
        return _CLASSES[kind](message=text)
    condition = error.condition
    if condition is None or KIND_BY_CONDITION.get(condition) is not kind:
        condition = _CONDITIONS.get(kind)
    return ServiceBusError(message=f"{text}. Error condition: {condition}." if condition else text)


def unavailable(error: BaseException) -> WireUnavailableError | None:
    """Return the reason why our own AMQP cannot be used here, if that caused the error."""
    cause = error.__cause__
    return cause if isinstance(cause, WireUnavailableError) else None


OnEnd = Callable[[WireError | None], None]
"""Gets the end of a send, inside the socket's read: None, or why it was not accepted. Must not raise."""


class _InFlight(NamedTuple):
    """A send without an outcome. ends: in the loop's time. mark: what was received before it. state: its own."""

    on_end: OnEnd
    ends: float
    timeout: float
    mark: tuple[int, int]
    state: DeliveryState | None = None


class _Attachment:
    """One life of the link, and its sends without an outcome.

    on_late: gets each send whose time is over, when it is no longer pending.
    """

    __slots__ = ("_due", "_is_retired", "_on_late", "_timer", "link", "path", "pending")

    def __init__(self, path: str, on_late: Callable[[_Attachment, _InFlight], None]) -> None:
        self.path = path
        self.link: WireSender | None = None
        self.pending: dict[bytes, _InFlight] = {}
        self._on_late = on_late
        self._timer: asyncio.TimerHandle | None = None
        self._due = inf
        self._is_retired = False

    def add(self, tag: bytes, send: _InFlight) -> None:
        self.pending[tag] = send
        if send.ends < self._due:
            self._set(send.ends)

    def on_outcome(self, event: DispositionReceived) -> None:
        send = self.pending.pop(event.tag, None)
        if send is not None:
            state = event.state
            if send.state is not None and isinstance(state, TransactionalState):
                state = state.outcome
            send.on_end(failure_of(state, self.path))
            if self._is_retired:
                self.retire()

    def on_lost(self, error: WireError) -> None:
        pending, self.pending = self.pending, {}
        if self._timer is not None:
            self._timer.cancel()
        for send in pending.values():
            send.on_end(error)

    def retire(self) -> None:
        """Detach as soon as no send is pending."""
        self._is_retired = True
        if self.link is not None and not self.pending:
            self.link.drop(WireError(f"the link to {self.path} was replaced"))

    def _set(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = asyncio.get_running_loop().call_at(when, self._look), when

    def _look(self) -> None:
        """End the sends whose time is over; the timer of one that ended in time finds the others'."""
        self._timer, self._due = None, inf
        now = asyncio.get_running_loop().time()
        for tag, send in [(tag, send) for tag, send in self.pending.items() if send.ends <= now]:
            if self.pending.pop(tag, None) is not None:  # else the end of another one has ended it
                self._on_late(self, send)
        if self.pending:
            self._set(min(send.ends for send in self.pending.values()))
        elif self._is_retired:
            self.retire()


class AmqpLink:
    """A link for encoded messages; its callers need not take turns.

    Args:
        wire: the namespace's connection; not closed here.
        path: the entity's path, a queue or a topic.
        fields: of its attaches.
    """

    def __init__(self, wire: ReconnectingConnection, path: str, fields: AttachFields = OURS) -> None:
        self.path = path
        self.wire: Final = wire
        self._fields = fields
        self._attachment: _Attachment | None = None
        self._attaching = asyncio.Lock()
        self._sent = 0
        self._closed = False

    @property
    def is_open(self) -> bool:
        attachment = self._attachment
        return attachment is not None and attachment.link is not None and self.wire.carries(attachment.link)

    @property
    def unanswered(self) -> float:
        """Seconds since the oldest send without an outcome began; 0: there is none."""
        sends = self._attachment.pending.values() if self._attachment is not None else ()
        return max((asyncio.get_running_loop().time() - (one.ends - one.timeout) for one in sends), default=0.0)

    @property
    def limits(self) -> tuple[int, int] | None:
        """Bytes of the largest message and of the largest batch, by the latest attach; None before the first."""
        link = None if self._attachment is None else self._attachment.link
        return None if link is None else (link.max_message_size, link.max_batch_size)

    async def open(self, timeout: float) -> None:
        """Attach unless it is attached. Raises WireError, PairingClosedError."""
        await self._attached(timeout)

    async def renew(self, timeout: float) -> None:
        """Attach anew, and use that afterwards; a failure keeps the present attachment. Raises as `open`."""
        await self._attached(timeout, anew=True)

    async def send_bytes(self, data: bytes, message_format: int, timeout: float) -> None:
        """Send one encoded message, or a batch, within `timeout` seconds; on return it is accepted.

        Raises:
            WireOutcomeError: the entity refused it, or it is larger than the link admits.
            WireTimeoutError: no outcome in time.
            ConnectionCutError: the connection ended during the send.
            WireError: the link or the connection failed.
            PairingClosedError: the pairing ends.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout
        attachment = await self._attached(timeout)
        assert attachment.link is not None, "attached above"
        largest = attachment.link.max_message_size
        if len(data) > largest:
            raise too_large(self.path, len(data), largest)
        outcome: asyncio.Future[WireError | None] = loop.create_future()
        try:
            send = _InFlight(partial(_resolve, outcome), ends, timeout, self.wire.received)
            tag = self._put(attachment, data, message_format, send)
        except StateError as error:
            raise WireConnectionError(f"{self.path}: {error}") from error
        try:
            failure = await outcome
        finally:
            attachment.pending.pop(tag, None)
        if failure is not None:
            raise self.error_of(failure)

    def put(
        self,
        data: bytes,
        message_format: int,
        timeout: float,
        on_end: OnEnd,
        *,
        began: float,
        state: DeliveryState | None = None,
    ) -> bool:
        """Send as `send_bytes`, without a wait; return False, with nothing done, if the link is not ready for it.

        on_end: called once, later. began: the loop's present time. state: that of a transaction.
        """
        attachment = self._attachment
        if attachment is None or attachment.link is None or self._closed or not self.wire.carries(attachment.link):
            return False
        if len(data) > attachment.link.max_message_size:
            return False
        send = _InFlight(on_end, began + timeout, timeout, self.wire.received, state)
        self._put(attachment, data, message_format, send)
        return True

    def error_of(self, failure: WireError) -> Exception:
        """Return the error that `send_bytes` raises for this end of a send."""
        if self._closed:
            return self._closed_error(in_doubt=True)
        if not isinstance(failure, WireConnectionError):
            return failure
        cut = ConnectionCutError(message=str(failure))
        cut.__cause__ = failure
        return cut

    def retire(self) -> None:
        """Let the next send attach again; sends under way may finish on the present link, which is then detached."""
        attachment, self._attachment = self._attachment, None
        if attachment is not None:
            attachment.retire()

    def cut(self) -> None:
        """End the sends under way, which raise; later ones raise too."""
        self._closed = True
        if self._attachment is not None:
            closed = WireError(f"the link to {self.path} was closed during a send")
            self._attachment.on_lost(closed)

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _attached(self, timeout: float, *, anew: bool = False) -> _Attachment:
        self._refuse_when_closed()
        found = self._attachment
        if found is not None and self.is_open and not anew:
            return found
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout
        try:
            async with asyncio.timeout(timeout), self._attaching:
                before = self._attachment
                if before is not None and before is not found and self.is_open:
                    return before
                fresh = _Attachment(self.path, self._give_up)
                fresh.link = await self.wire.sender(
                    self.path,
                    on_outcome=fresh.on_outcome,
                    on_lost=fresh.on_lost,
                    fields=self._fields,
                    timeout=ends - loop.time(),
                )
                self._refuse_when_closed()
                before, self._attachment = self._attachment, fresh
                if before is not None:
                    before.retire()
                return fresh
        except TimeoutError as error:
            if isinstance(error, WireError):
                raise
            raise WireTimeoutError(f"{self.path} was not attached within {timeout:g} s") from error

    def _put(self, attachment: _Attachment, data: bytes, message_format: int, send: _InFlight) -> bytes:
        """Return the tag of a send that is in flight now. Raises StateError."""
        assert attachment.link is not None, "the caller has seen it"
        self._sent += 1
        tag = self._sent.to_bytes(_TAG_BYTES, "big")
        attachment.link.send(data, tag, message_format=message_format, state=send.state)
        attachment.add(tag, send)
        return tag

    def _give_up(self, attachment: _Attachment, send: _InFlight) -> None:
        """End a late send; replace a silent connection, and drop a link whose waiting messages must not leave later.

        A send over a connection that was replaced meanwhile was cut: its entity is not the cause.
        """
        link, text = attachment.link, f"{self.path} did not answer a send within {send.timeout:g} s"
        if link is not None and not self.wire.carries(link):
            send.on_end(WireConnectionError(text))
            return
        late = WireTimeoutError(text)
        self.wire.replace_if_silent(send.mark, send.timeout, late)
        if link is not None and link.link.waiting:
            link.drop(WireError(f"the link to {self.path} was discarded"))
        send.on_end(late)

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise self._closed_error()

    def _closed_error(self, *, in_doubt: bool = False) -> PairingClosedError:
        return PairingClosedError(f"the pairing was closed: nothing is sent to {self.path}", in_doubt=in_doubt)


def too_large(path: str, size: int, largest: int) -> WireOutcomeError:
    """Return the error of a message above its link's limit."""
    return WireOutcomeError(f"the message has {size} bytes, {path} accepts {largest}", Condition.MESSAGE_SIZE_EXCEEDED)


def _resolve(outcome: asyncio.Future[WireError | None], failure: WireError | None) -> None:
    if not outcome.done():
        outcome.set_result(failure)


class BacklogLink(AmqpLink):
    """A link to a backlog queue, with the names of `SdkSenderLink`.

    Args:
        wire: the secondary's connection; not closed here.
        path: the queue's.
        pauses: seconds before each retry of a failure that leaves no message in doubt, by the client's settings.
        assumed: bytes of the largest message until the link reports it, such as the tier's limit.
    """

    def __init__(
        self,
        wire: ReconnectingConnection,
        path: str,
        *,
        pauses: Sequence[float] = (),
        assumed: int = STANDARD_LIMIT,
    ) -> None:
        super().__init__(wire, path)
        self.host = wire.endpoint.namespace
        self._pauses = pauses
        self._assumed = assumed
        self._used_at = 0.0

    @property
    def idle_for(self) -> float:
        """Seconds since the latest successful use."""
        return asyncio.get_running_loop().time() - self._used_at

    def limit(self) -> int:
        """Return the bytes of the largest message: the link's limit, or the assumed one while it is detached."""
        limits = self.limits
        return limits[0] if limits is not None and self.is_open else self._assumed

    def batch(self, limit: int | None = None) -> EncodedBatch:
        """Return an empty batch. limit: bytes; None: the queue's, as its latest attach reported."""
        limits = self.limits
        return EncodedBatch(limit or (STANDARD_LIMIT if limits is None else limits[1]))

    async def renew(self, timeout: float) -> None:
        """Attach anew as `SdkSenderLink.renew`. Raises ServiceBusError, PairingClosedError."""
        await self._retry(super().renew, timeout, ())

    async def send(self, messages: Sequence[Carried] | ServiceBusMessageBatch, timeout: float) -> None:
        """Send as `SdkSenderLink.send`. Raises as that; and ConnectionCutError: the connection ended meanwhile."""
        await self._retry(partial(self._send, messages), timeout, self._pauses)

    async def close(self) -> None:
        """End it; its connection's end detaches it."""
        self.cut()

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _retry(self, act: Callable[[float], Awaitable[None]], timeout: float, pauses: Sequence[float]) -> None:
        """Run an operation within `timeout` seconds; retry what may succeed and leaves no doubt."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout
        for pause in (*pauses, timeout):
            try:
                await act(ends - loop.time())
            except (WireError, ServiceBusError) as error:
                is_lost = isinstance(error, ConnectionCutError | WireUnavailableError)
                if is_lost or kind_of(error) not in _RETRIED or loop.time() + pause >= ends:
                    if isinstance(error, ServiceBusError):
                        raise
                    raise sdk_error(error) from error
            else:
                self._used_at = loop.time()
                return
            await asyncio.sleep(pause)

    async def _send(self, messages: Sequence[Carried] | ServiceBusMessageBatch, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout
        await self.open(timeout)
        data, message_format = self._encode(messages)
        await self.send_bytes(data, message_format, ends - loop.time())

    def _encode(self, messages: Sequence[Carried] | ServiceBusMessageBatch) -> tuple[bytes, int]:
        """Return the bytes and their format."""
        if isinstance(messages, ServiceBusMessageBatch):
            return sdk_internals.encode_batch(messages), BATCH_FORMAT
        first = messages[0]
        if len(messages) == 1 and isinstance(first, EncodedMessage):
            return first.data, 0
        return sdk_internals.encode_batch(self.batch().filled(messages)), BATCH_FORMAT
