"""One SDK sender and its rules.

One send is in flight, our own deadline bounds it, and a failure that may have broken the sender replaces it.

An SDK sender retransmits deliveries when two callers share it, and after a timeout it may hold a dead connection.
Callers therefore queue here. After such a failure the sender is closed in the background, and the next send gets a new
one.

A namespace cuts links after ten idle minutes, which is no failure of the entity. A send that finds its idle link cut is
retried once, over a new one.

Opening one link takes half a second and 23 ms of CPU. Hundreds open in the same instant when an outage begins or ends.
The limiter admits them in groups, applications' links before pings and standby links.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from paired_servicebus.core.errors import PairingClosedError
from paired_servicebus.core.model.verdict import FailureKind, kind_of
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.amqp_client.client_connection import MIB
from paired_servicebus.pairing.envelope_codec import EncodedMessage
from paired_servicebus.pairing.runtime import tracing
from paired_servicebus.pairing.runtime.deadlines import CLOSING, GRACE, Deadline, TaskOwner, Watch, bounded
from paired_servicebus.pairing.runtime.event_log import register_link
from paired_servicebus.pairing.sending.sdk_messages import STANDARD_LIMIT, Carried, EncodedBatch


class FairLock:
    """A lock that is acquired in the order of the requests. An uncontended acquire does not await."""

    __slots__ = ("held", "waiting")

    def __init__(self) -> None:
        self.held = False
        self.waiting: deque[asyncio.Future[None]] = deque()
        """The next holders; some may be cancelled."""

    def acquire_nowait(self) -> bool:
        """Acquire it now; return False if it is held."""
        if self.held:
            return False
        self.held = True
        return True

    async def acquire(self) -> None:
        """Acquire it after the earlier requests."""
        if not self.acquire_nowait():
            await _turn(self.waiting, self.release)

    def release(self) -> None:
        """Release it to the next holder."""
        self.held = _admit_first(self.waiting)


MAX_OPENING: Final = 24
"""Links that open concurrently: about one core's work in the half second that each takes."""
LEASE_SECONDS: Final = 1.0
"""Seconds after which a link that is still opening releases its slot: it waits for an answer, at little cost."""


class OpenLimiter:
    """A priority semaphore of `width` slots, each held for `lease` seconds at most."""

    def __init__(self, width: int = MAX_OPENING, lease: float = LEASE_SECONDS) -> None:
        self._free = width
        self._lease = lease
        self._callers: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def slot(self, *, urgent: bool) -> AsyncIterator[None]:
        """Hold a slot; urgent requests are admitted first."""
        await self._enter(self._callers if urgent else self._others)
        is_held = True

        def release() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self.release()

        timer = asyncio.get_running_loop().call_later(self._lease, release)
        try:
            yield
        finally:
            timer.cancel()
            release()

    async def _enter(self, line: deque[asyncio.Future[None]]) -> None:
        if self._free > 0:
            self._free -= 1
        else:
            await _turn(line, self.release)

    def release(self) -> None:
        """Admit the next request."""
        if not any(map(_admit_first, (self._callers, self._others))):
            self._free += 1


async def _turn(line: deque[asyncio.Future[None]], release: Callable[[], None]) -> None:
    """Wait in line. release: passes the turn on, for a waiting task that is admitted in the same step as cancelled."""
    turn = asyncio.get_running_loop().create_future()
    line.append(turn)
    try:
        await turn
    except asyncio.CancelledError:
        if turn.done() and not turn.cancelled():
            release()
        raise


def _admit_first(line: deque[asyncio.Future[None]]) -> bool:
    """Admit the first request that still waits; return False if there is none."""
    while line:
        turn = line.popleft()
        if not turn.done():
            turn.set_result(None)
            return True
    return False


IDLE_SECONDS: Final = 60.0
"""Idle seconds after which a broken link counts as cut for idleness."""
_UNBROKEN: Final = frozenset(
    {FailureKind.BUSY, FailureKind.TOO_LARGE, FailureKind.ARGUMENT, FailureKind.FULL, FailureKind.UNLISTED}
)
"""Failures that leave the link intact."""
_CUT: Final = frozenset({FailureKind.CONNECTION, FailureKind.DETACHED})
"""Failures of a send over a link that was cut."""


def _is_outdated(error: Exception, *, paused: bool) -> bool:
    """Return whether an open link failed only because it is old: it was idle and cut, or its token ran out."""
    if not isinstance(error, ServiceBusError | OSError):
        return False
    kind = kind_of(error)
    return kind is FailureKind.UNAUTHENTICATED or (paused and kind in _CUT)


class SdkSenderLink:
    """A sender link to one entity of one namespace, open before it is needed and reopened after a failure.

    Args:
        client: the namespace's client; not closed here.
        path: the entity's path, a queue or a topic.
        tasks: own the closing of discarded links.
        gate: limits the links that open concurrently; None: no limit.
        assumed: bytes of the largest message until a link reports it, such as the tier's limit.
        options: of the SDK's `get_queue_sender`; a link with options never adopts another one.
        retry: whether the client's own retry policy applies; "server busy" is never retried before `throttle_wait`.
        parks: whether its messages are bytes, which the SDK sends in a batch only, even a single one.
    """

    def __init__(
        self,
        client: ServiceBusClient,
        path: str,
        tasks: TaskOwner,
        gate: OpenLimiter | None = None,
        *,
        assumed: int = STANDARD_LIMIT,
        options: Mapping[str, Any] | None = None,
        retry: bool = True,
        parks: bool = False,
    ) -> None:
        self.path = path
        self.host: str = client.fully_qualified_namespace
        self.reopening = False
        """Whether it reopens after a failback; another link of its entity is used until then."""
        self._client = client
        self._options = options or {}
        self._unretried = ServiceBusServerBusyError if retry else ServiceBusError
        self._tasks = tasks
        self._gate = gate
        self._assumed = assumed
        self._sender: ServiceBusSender | None = None
        self._opened = False
        self._loop: asyncio.AbstractEventLoop
        self._used_at = 0.0
        self._batch_limit = min(assumed, MIB)
        self._parks = parks
        self._lock = FairLock()
        self._watch = Watch(path)
        self._use = LinkUse(self)
        self._closed = False

    @property
    def is_open(self) -> bool:
        """Whether it is attached, as far as is known here."""
        return self._opened and not self._closed

    @property
    def client_identifier(self) -> str:
        """The link's name in the namespace's errors."""
        if self._sender is None:
            self._sender = self._make()
        return str(self._sender.client_identifier)

    @property
    def is_busy(self) -> bool:
        """Whether an operation is under way."""
        return self._lock.held

    @property
    def idle_for(self) -> float:
        """Seconds since the latest successful use began."""
        return asyncio.get_running_loop().time() - self._used_at

    async def open(self, timeout: float, *, urgent: bool = True) -> None:
        """Attach unless it is attached. Raises the SDK's errors, TimeoutError, or ForeignLoopError."""
        self._tasks.refuse_elsewhere()
        await self._run_exclusively(_attach, timeout, "opening", urgent=urgent)

    async def renew(self, timeout: float, *, retry: bool = True) -> None:
        """Attach a new link and use it afterwards; a failure keeps the present one.

        Args:
            timeout: seconds.
            retry: whether the client's own retry policy applies to the attach.

        Raises: as `open`.
        """
        self._refuse_when_closed()
        fresh = self._make()
        try:
            with Deadline(timeout + GRACE, f"opening on {self.path}"):
                await self._act(fresh, _attach if retry else sdk_internals.attach_once, urgent=False)
                await self._lock.acquire()
        except BaseException:
            self._tasks.start(self._close(fresh), name=f"close the link to {self.path}")
            raise
        try:
            self._refuse_when_closed()
            self.discard()
            await self._mark_open(fresh)
        finally:
            self._lock.release()

    def claim_idle(self) -> LinkUse | None:
        """Return the link for one send if it is open and idle, else None.

        The caller owns it from `LinkUse.begin` on, and must not await before.
        """
        if not self._opened or self._closed or self._lock.held or self._loop is not asyncio.get_running_loop():
            return None
        self._use.sender = self._sender
        return self._use

    async def send(self, messages: Sequence[Carried] | ServiceBusMessageBatch, timeout: float) -> None:
        """Send one message, several as one batch, or a batch, within `timeout` seconds; on return all are accepted.

        It makes no spans: the task may serve several callers, whose sends have theirs.

        Raises:
            MessageSizeExceededError: several do not fit into one batch.
            TimeoutError: our own deadline.
            ServiceBusError: the SDK's failure.
            PairingClosedError: it was closed, before or in the meantime.
        """
        payload: Any = messages
        if not isinstance(messages, ServiceBusMessageBatch):
            payload = messages[0] if len(messages) == 1 else list(messages)
            if isinstance(messages[0], EncodedMessage):
                payload = self.batch().filled(messages)
        await self._run_exclusively(lambda sender: _send(sender, payload, timeout), timeout, "a send")

    async def call(self, act: Callable[[ServiceBusSender], Awaitable[Any]], timeout: float) -> Any:
        """Run another operation of the SDK's sender, under the same rules."""
        return await self._run_exclusively(act, timeout, "an operation")

    def limit(self) -> int:
        """Return the bytes of the largest message: the link's limit, or the assumed one before an attach."""
        largest = sdk_internals.largest_message(self._sender) or self._assumed
        return min(largest, self._batch_limit) if self._parks else largest

    def batch(self, limit: int | None = None) -> EncodedBatch:
        """Return an empty batch for the present link. limit: bytes; None: the entity's, as its latest link reported."""
        return EncodedBatch(limit or self._batch_limit, sender=self._sender)

    def adopt(self, other: SdkSenderLink) -> bool:
        """Adopt the open sender of `other` to the same entity; return False if either link is not free for it."""
        if self._options or self._closed or self._opened or self._lock.held or not other.is_open or other._lock.held:
            return False
        self.discard()
        self._sender, other._sender = other._sender, None
        self._opened, other._opened = True, False
        self._loop = other._loop
        self._used_at, self._batch_limit = other._used_at, other._batch_limit
        return True

    async def close(self, within: float = CLOSING) -> None:
        """Detach. A send under way has `within` seconds to finish, then it raises; later sends raise immediately."""
        self._closed = True
        try:
            async with asyncio.timeout(within):
                await self._lock.acquire()
        except TimeoutError:
            self.cut()
        else:
            self._lock.release()
            self._watch.stop()
        sender, self._sender, self._opened = self._sender, None, False
        if sender is not None:
            await _close(sender)

    def cut(self) -> None:
        """End the send under way, which raises; later sends raise too."""
        self._closed = True
        self._watch.end_now()

    def discard(self) -> None:
        """Discard the SDK sender; the next send opens another."""
        sender, self._sender, self._opened = self._sender, None, False
        if sender is not None:
            self._tasks.start(self._close(sender), name=f"close the link to {self.path}")

    async def _close(self, sender: ServiceBusSender) -> None:
        """Close a discarded sender in the background, through the limiter.

        Closing hundreds at the same time stalls the event loop.
        """
        if self._gate is None:
            await _close(sender)
            return
        async with self._gate.slot(urgent=False):
            await _close(sender)

    # -- inside -----------------------------------------------------------------------------------------------

    async def _run_exclusively(
        self, act: Callable[[ServiceBusSender], Awaitable[Any]], timeout: float, what: str, *, urgent: bool = True
    ) -> Any:
        self._refuse_when_closed()
        if not self._lock.acquire_nowait():
            async with asyncio.timeout(timeout + GRACE):
                await self._lock.acquire()
        loop = asyncio.get_running_loop()
        self._use.began = loop.time()
        self._watch.begin(timeout + GRACE, what, loop, self._use.began)
        with self._use:
            self._refuse_when_closed()
            return await self._retry_if_outdated(act, urgent=urgent)

    async def _retry_if_outdated(self, act: Callable[[ServiceBusSender], Awaitable[Any]], *, urgent: bool) -> Any:
        was_open = self._opened
        paused = was_open and self.idle_for > IDLE_SECONDS
        try:
            return await self._once(act, urgent=urgent)
        except (ServiceBusError, OSError) as error:
            if not was_open or not _is_outdated(error, paused=paused):
                raise
        self.discard()
        return await self._once(act, urgent=urgent)

    async def _once(self, act: Callable[[ServiceBusSender], Awaitable[Any]], *, urgent: bool) -> Any:
        if self._sender is None:
            self._sender = self._make()
        sender = self._sender
        if self._opened:
            return await act(sender)
        done = await self._act(sender, act, urgent=urgent)
        await self._mark_open(sender)
        return done

    async def _act(
        self,
        sender: ServiceBusSender,
        act: Callable[[ServiceBusSender], Awaitable[Any]],
        *,
        urgent: bool,
    ) -> Any:
        if self._gate is None:
            return await act(sender)
        async with self._gate.slot(urgent=urgent):
            return await act(sender)

    def _make(self) -> ServiceBusSender:
        sender = register_link(self._client.get_queue_sender(self.path, **self._options))
        sdk_internals.raise_at_once(sender, self._unretried)
        sdk_internals.keep_unopened(sender)
        return sender

    async def _mark_open(self, sender: ServiceBusSender) -> None:
        self._sender, self._opened = sender, True
        self._loop = asyncio.get_running_loop()
        self._used_at = self._loop.time()
        self._batch_limit = (await sender.create_message_batch()).max_size_in_bytes  # no request on an open link

    def _failed(self, error: BaseException) -> None:
        """Discard the sender after a failure that may have broken it. Raises PairingClosedError."""
        if isinstance(error, TimeoutError) and self._closed:
            raise PairingClosedError(
                f"the sender for {self.path} was closed during {self._watch.what}", in_doubt=True
            ) from error
        if isinstance(error, asyncio.CancelledError):
            self.discard()  # a delivery may be half sent
        elif isinstance(error, ServiceBusError | OSError) and kind_of(error) not in _UNBROKEN:
            self.discard()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise PairingClosedError(f"the sender for {self.path} is closed; get another one from the paired client")


class LinkUse:
    """A link in use by one caller, with its deadline. Its exit evaluates the outcome and releases the link."""

    __slots__ = ("_link", "_paused", "began", "sender")

    def __init__(self, link: SdkSenderLink) -> None:
        self._link = link
        self._paused = False
        """Whether the link was idle for long enough to be cut."""
        self.began = 0.0
        self.sender: Any = None

    def begin(self, timeout: float) -> None:
        """Take the link for one send of `timeout` seconds."""
        link = self._link
        loop = link._loop
        self.began = now = loop.time()
        self._paused = now - link._used_at > IDLE_SECONDS
        link._lock.held = True
        link._watch.begin(timeout + GRACE, "a send", loop, now)

    def was_outdated(self, error: Exception) -> bool:
        """Return whether the send failed only because its link is old."""
        return _is_outdated(error, paused=self._paused)

    @property
    def age(self) -> float:
        return asyncio.get_running_loop().time() - self.began

    def __enter__(self) -> Any:
        return self._link._sender

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        link = self._link
        watch, lock = link._watch, link._lock
        try:
            if error is None and not watch.cancels:
                watch.task = None
                link._used_at = self.began
            else:
                self._ended(error)
        finally:
            if link._closed:
                watch.stop()
            if lock.waiting:
                lock.release()
            else:
                lock.held = False

    def _ended(self, error: BaseException | None) -> None:
        link = self._link
        try:
            link._watch.finish(error)
        except TimeoutError as late:
            link._failed(late)
            raise
        if error is None:
            link._used_at = self.began
        else:
            link._failed(error)


async def _send(sender: ServiceBusSender, payload: Any, timeout: float) -> None:
    if isinstance(payload, EncodedBatch):  # perhaps made before its sender
        sdk_internals.adopt_batch(payload, sender)
    if tracing.is_on():
        await sdk_internals.send_untraced(sender, payload, timeout)
    else:
        await sender.send_messages(payload, timeout=timeout)


async def _attach(sender: ServiceBusSender) -> None:
    await sender.__aenter__()


async def _close(sender: ServiceBusSender) -> None:
    sdk_internals.allow_closing(sender)
    await close_link(sender)


BROKEN: Final = (ServiceBusError, OSError, ValueError, AttributeError)
"""Errors of the SDK on a broken link; a time-out is an OSError."""


async def close_link(link: ServiceBusSender | ServiceBusReceiver) -> None:
    """Close an SDK link; one that does not close in time is abandoned with its socket, which ends by itself."""
    try:
        await bounded(link.close(), CLOSING, "closing a link")
    except Exception:  # noqa: BLE001 - the SDK fails in many ways to close a broken or unopened link
        return
