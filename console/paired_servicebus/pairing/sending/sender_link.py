"""One SDK sender and its rules, and the sends that many callers share on one link.

One send is in flight, our own deadline bounds it, and a failure that may have broken the sender replaces it.

An SDK sender retransmits deliveries when two callers share it, and after a timeout it may hold a dead connection.
Callers therefore queue here. After such a failure the sender is closed in the background, and the next send gets a new
one.

A namespace cuts links after ten idle minutes, which is no failure of the entity. A send that finds its idle link cut is
retried once, over a new one.

Opening one link takes half a second and 23 ms of CPU. Hundreds open in the same instant when an outage begins or ends.
The limiter admits them in groups, applications' links before pings and standby links.

A `Coalescer` sends many callers' messages on one link: messages that wait for the current send go together in the next
one. An SDK sender carries one send at a time, so a link at 10 ms would carry 100 messages a second for all its callers.
Rules: callers' messages keep their order within each PendingSend, and each has its own outcome. A caller that leaves
withdraws its own unsent messages only. A refused batch is retried in parts, so that only the faulty message fails. A
queue that refuses mixed batches gets single messages afterwards. Senders decide which messages may share a batch
(`sdk_messages.batch_key`). In a backlog queue all may: their sessions are in the envelope.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Final

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError, ServiceBusServerBusyError

from paired_servicebus.core.errors import PairingClosedError
from paired_servicebus.core.model.verdict import FailureKind, kind_of
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.amqp_client.client_connection import MIB
from paired_servicebus.pairing.envelope_codec import EncodedMessage
from paired_servicebus.pairing.runtime import tracing
from paired_servicebus.pairing.runtime.deadlines import CLOSING, GRACE, TaskOwner, Watch, bounded, deadline
from paired_servicebus.pairing.runtime.pairing_runtime import register_link
from paired_servicebus.pairing.sending.amqp_link import BacklogLink
from paired_servicebus.pairing.sending.sdk_messages import STANDARD_LIMIT, Carried, EncodedBatch


class FairLock:
    """A lock of `width` holders, acquired in the order of the requests. An uncontended acquire does not await."""

    __slots__ = ("free", "later", "waiting")

    def __init__(self, width: int = 1) -> None:
        self.free = width
        self.waiting: deque[asyncio.Future[None]] = deque()
        """The next holders; some may be cancelled."""
        self.later: deque[asyncio.Future[None]] = deque()
        """Those after them."""

    def acquire_nowait(self) -> bool:
        """Acquire it now; return False if that takes a wait."""
        if not self.free:
            return False
        self.free -= 1
        return True

    async def acquire(self, *, urgent: bool = True) -> None:
        """Acquire it after the earlier requests; an urgent one comes before the others."""
        if self.acquire_nowait():
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self.waiting if urgent else self.later).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # admitted in the same step as cancelled
                self.release()
            raise

    def release(self) -> None:
        """Release it to the next holder."""
        for line in (self.waiting, self.later):
            while line:
                turn = line.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self.free += 1


MAX_OPENING: Final = 24
"""Links that open concurrently: about one core's work in the half second that each takes."""
LEASE_SECONDS: Final = 1.0
"""Seconds after which a link that is still opening releases its slot: it waits for an answer, at little cost."""


class OpenLimiter(FairLock):
    """A limit of `width` slots, each held for `lease` seconds at most."""

    def __init__(self, width: int = MAX_OPENING, lease: float = LEASE_SECONDS) -> None:
        super().__init__(width)
        self._lease = lease

    @asynccontextmanager
    async def slot(self, *, urgent: bool) -> AsyncIterator[None]:
        """Hold a slot; urgent requests are admitted first."""
        await self.acquire(urgent=urgent)
        with ExitStack() as held:
            held.callback(self.release)
            timer = asyncio.get_running_loop().call_later(self._lease, held.close)
            held.callback(timer.cancel)
            yield


IDLE_SECONDS: Final = 60.0
"""Idle seconds after which a broken link counts as cut for idleness."""
_UNBROKEN: Final = frozenset(
    {FailureKind.BUSY, FailureKind.TOO_LARGE, FailureKind.ARGUMENT, FailureKind.FULL, FailureKind.UNLISTED}
)
"""Failures that leave the link intact."""
_CUT: Final = frozenset({FailureKind.CONNECTION, FailureKind.DETACHED})
"""Failures of a send over a link that was cut."""


class SdkSenderLink:
    """A sender link to one entity of one namespace, open before it is needed and reopened after a failure.

    Args:
        client: the namespace's client; not closed here.
        path: the entity's path, a queue or a topic.
        tasks: own the closing of discarded links.
        gate: limits the links that open concurrently; None: it has its own.
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
        self._gate = gate or OpenLimiter()
        self._assumed = assumed
        self._sender: ServiceBusSender | None = None
        self._opened = False
        self._loop: asyncio.AbstractEventLoop
        self._used_at = 0.0
        self._batch_limit = min(assumed, MIB)
        self._parks = parks
        self._lock = FairLock()
        self._watch = Watch(path)
        self._closed = self._is_paused = False
        self.began = 0.0
        """When the latest use began, in the loop's time."""
        self.took = 0.0
        """Seconds of the latest use that has ended."""

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
        return not self._lock.free

    @property
    def idle_for(self) -> float:
        """Seconds since the latest successful use began."""
        return asyncio.get_running_loop().time() - self._used_at

    async def open(self, timeout: float, *, urgent: bool = True) -> None:
        """Attach unless it is attached. Raises the SDK's errors, TimeoutError, or ForeignLoopError."""
        self._tasks.refuse_elsewhere()
        await self._run_exclusively(_attach, timeout, "opening", urgent=urgent)

    async def renew(self, timeout: float) -> None:
        """Attach a new link, with one try within `timeout` seconds, and use it from then on; a failure changes nothing.

        Raises: as `open`.
        """
        self._refuse_when_closed()
        fresh = self._make()
        try:
            with deadline(timeout + GRACE, f"opening on {self.path}"):
                async with self._gate.slot(urgent=False):
                    await sdk_internals.attach_once(fresh)
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

    @property
    def unanswered(self) -> float:
        """Seconds since the present use began; 0: there is none, or it reopens after a failback."""
        is_used = self._watch.task is not None and not self.reopening
        return asyncio.get_running_loop().time() - self.began if is_used else 0.0

    @property
    def is_idle(self) -> bool:
        """Whether it is open, and one send may use it now.

        The caller must not await before it enters the link's context.
        """
        is_free = self._opened and not self._closed and self._lock.free > 0
        return is_free and self._loop is asyncio.get_running_loop()

    def __enter__(self) -> Any:
        """Begin a use of the free or acquired link; return its SDK sender. The exit releases it."""
        self._lock.free = 0
        if not self._opened:
            self._loop = asyncio.get_running_loop()
        self.began = now = self._loop.time()
        self._is_paused = now - self._used_at > IDLE_SECONDS
        return self._sender

    def limit_use(self, timeout: float, what: str = "a send") -> None:
        """End the present use `timeout` seconds after its beginning."""
        self._watch.begin(timeout + GRACE, what, asyncio.get_running_loop(), self.began)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Evaluate the outcome, and release the link. Raises TimeoutError: our own deadline ended the use."""
        watch, lock = self._watch, self._lock
        self.took = self._loop.time() - self.began
        try:
            if error is None and not watch.cancels:
                watch.task = None
                self._used_at = self.began
            else:
                self._ended(error)
        finally:
            if self._closed:
                watch.stop()
            if lock.waiting:
                lock.release()
            else:
                lock.free = 1

    def was_outdated(self, error: Exception) -> bool:
        """Return whether the latest use failed only because the open link was old: idle and cut, or its token ended."""
        if not isinstance(error, ServiceBusError | OSError):
            return False
        kind = kind_of(error)
        return kind is FailureKind.UNAUTHENTICATED or (self._is_paused and kind in _CUT)

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
        if self._options or self._closed or self._opened or self.is_busy or not other.is_open or other.is_busy:
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
        with self:
            self.limit_use(timeout, what)
            self._refuse_when_closed()
            return await self._retry_if_outdated(act, urgent=urgent)

    async def _retry_if_outdated(self, act: Callable[[ServiceBusSender], Awaitable[Any]], *, urgent: bool) -> Any:
        was_open = self._opened
        try:
            return await self._once(act, urgent=urgent)
        except (ServiceBusError, OSError) as error:
            if not was_open or not self.was_outdated(error):
                raise
        self.discard()
        return await self._once(act, urgent=urgent)

    async def _once(self, act: Callable[[ServiceBusSender], Awaitable[Any]], *, urgent: bool) -> Any:
        if self._sender is None:
            self._sender = self._make()
        sender = self._sender
        if self._opened:
            return await act(sender)
        async with self._gate.slot(urgent=urgent):
            done = await act(sender)
        await self._mark_open(sender)
        return done

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

    def _ended(self, error: BaseException | None) -> None:
        try:
            self._watch.finish(error)
        except TimeoutError as late:
            self._failed(late)
            raise
        if error is None:
            self._used_at = self.began
        else:
            self._failed(error)

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


_MESSAGES_FAULT: Final = frozenset({FailureKind.TOO_LARGE, FailureKind.ARGUMENT})
"""Failures of a batch that one message, or the mix of messages, may cause."""
_MIN_SECONDS: Final = 0.001
"""The minimum timeout of a send in seconds: the SDK refuses zero."""


class PendingSend:
    """One caller's messages on their way, in their order.

    Args:
        messages: each fits the queue by itself.
        on_accepted: called with the messages that the namespace accepted, even after the caller has left.
    """

    __slots__ = ("accepted", "ends", "messages", "on_accepted", "outcome")

    def __init__(self, messages: Sequence[Carried], on_accepted: Callable[[Sequence[Carried]], object]) -> None:
        self.messages = messages
        self.on_accepted = on_accepted
        self.accepted = 0
        """The number of accepted messages, from the first; the next one failed."""
        self.ends = 0.0
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()


Load = list[tuple[PendingSend, Carried]]
BatchKey = Callable[[Any], object]


class Coalescer:
    """The shared sends of one link.

    Args:
        link: used by this coalescer only.
        tasks: own the sending task, which runs while messages wait.
        say: called with a sentence when the queue refuses mixed batches.
        batch_key: returns the key of messages that may share a batch; order is then kept only for single messages.
    """

    def __init__(
        self,
        link: SdkSenderLink | BacklogLink,
        tasks: TaskOwner,
        say: Callable[[str], object],
        *,
        batch_key: BatchKey = lambda _: None,
    ) -> None:
        self.link = link
        self.under_way = False
        """Whether it sends, or is between two sends."""
        self.one_by_one = False
        """Whether the queue refuses mixed batches."""
        self._tasks = tasks
        self._say = say
        self._batch_key = batch_key
        self._waiting: dict[object, deque[tuple[PendingSend, Carried]]] = {}
        """By batch_key, in the order of their turns."""
        self._underway: Load = []
        self._sending: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a send is under way or waits."""
        return self._sending is not None and not self._sending.done()

    async def send(self, pending: PendingSend, timeout: float) -> None:
        """Send all messages; `pending.accepted` has the progress when this raises.

        Raises:
            TimeoutError: after `timeout` seconds and GRACE.
            PairingClosedError: the pairing ends.
            ServiceBusError: the failure of the message after the accepted ones.
        """
        if not self.is_busy:
            self._sending = self._tasks.start(self._run(), name=f"the sends to {self.link.path}")
            if self._sending is None:
                raise PairingClosedError(f"the pairing is closed: nothing can be sent to {self.link.path}")
        pending.ends = asyncio.get_running_loop().time() + timeout
        for message in pending.messages:
            self._waiting.setdefault(self._batch_key(message), deque()).append((pending, message))
        async with asyncio.timeout(timeout + GRACE):
            await pending.outcome

    async def _run(self) -> None:
        self.under_way = True
        try:
            while True:
                payload = self._next()
                if not self._underway:
                    return
                await self._send(self._underway, payload)
                self._underway = []
                await asyncio.sleep(0)  # callers with an answer may send again, in the same batch
        finally:
            self.under_way = False
            self._fail_waiting()

    # -- what goes next ---------------------------------------------------------------------------------------

    def _next(self) -> EncodedBatch | None:
        """Take the messages of the next send; return their batch, or None for a single message."""
        while self._waiting:
            batch_key, queue = next(iter(self._waiting.items()))
            del self._waiting[batch_key]
            batch = self._take_batch(queue)
            if queue:
                self._waiting[batch_key] = queue  # behind the others
            if self._underway:
                return batch
        return None

    def _take_batch(self, queue: deque[tuple[PendingSend, Carried]]) -> EncodedBatch | None:
        if _first(queue) is None:
            return None
        if len(queue) > 1 and not self.one_by_one:
            batch = self.link.batch()
            while _first(queue) is not None and self._add_first(batch, queue):
                pass
            if len(self._underway) > 1:
                return batch
        if not self._underway and _first(queue) is not None:  # a single message may exceed a batch
            self._underway.append(queue.popleft())
        return None

    def _add_first(self, batch: EncodedBatch, queue: deque[tuple[PendingSend, Carried]]) -> bool:
        """Add the first message to the batch; return False if it does not fit."""
        pending, message = queue[0]
        try:
            batch.append(message)
        except MessageSizeExceededError:
            return False
        except Exception as error:  # noqa: BLE001 - an encoding error fails its own caller only
            if self._underway and self._underway[-1][0] is pending:
                return False  # the messages before it are sent first, so that its caller knows the progress
            _failed([(pending, message)], error)
        else:
            self._underway.append(queue.popleft())
        return True

    # -- sending ----------------------------------------------------------------------------------------------

    async def _send(self, load: Load, batch: ServiceBusMessageBatch | None = None) -> None:
        """Send within the longest remaining time of its callers, and report the outcome to each."""
        try:
            left = max(pending.ends for pending, _ in load) - asyncio.get_running_loop().time()
            payload = batch if batch is not None else [message for _, message in load]
            await self.link.send(payload, max(left, _MIN_SECONDS))
        except Exception as error:  # noqa: BLE001 - any error is the outcome of the callers in the batch
            kind = kind_of(error)
            if len(load) == 1 or kind not in _MESSAGES_FAULT or isinstance(error, PairingClosedError):
                _failed(load, error)
            else:
                await self._in_parts(load, kind)
        else:
            _accepted(load)

    async def _in_parts(self, load: Load, kind: FailureKind) -> None:
        """Retry a refused batch: in halves if it is too large, else message by message."""
        if kind is FailureKind.TOO_LARGE:
            half = len(load) // 2
            for part in (load[:half], load[half:]):
                if live := _live(part):
                    await self._send(live)
            return
        for one in load:
            if live := _live([one]):
                await self._send(live)
        if not any(_refused(pending) for pending, _ in load):
            self.one_by_one = True
            self._say(f"{self.link.path} refuses batches of unlike messages ({kind}): it gets them one by one")

    def _fail_waiting(self) -> None:
        """Fail everything that waits: the sending task has ended."""
        path = self.link.path
        _failed(self._underway, PairingClosedError(f"the pairing was closed during a send to {path}", in_doubt=True))
        waiting = [one for queue in self._waiting.values() for one in queue]
        _failed(waiting, PairingClosedError(f"the pairing is closed: nothing can be sent to {path}"))
        self._waiting.clear()


def _first(queue: deque[tuple[PendingSend, Carried]]) -> tuple[PendingSend, Carried] | None:
    """Return the first message whose caller still waits."""
    while queue and queue[0][0].outcome.done():
        queue.popleft()
    return queue[0] if queue else None


def _accepted(load: Load) -> None:
    """Report the accepted messages to each caller, in order."""
    start = 0
    for index, (pending, _) in enumerate(load):
        if index + 1 < len(load) and load[index + 1][0] is pending:
            continue
        messages = [message for _, message in load[start : index + 1]]
        start = index + 1
        pending.accepted += len(messages)
        pending.on_accepted(messages)
        if pending.accepted == len(pending.messages) and not pending.outcome.done():
            pending.outcome.set_result(None)


def _failed(load: Load, error: BaseException) -> None:
    for pending, _ in load:
        if not pending.outcome.done():
            pending.outcome.set_exception(error)


def _live(load: Load) -> Load:
    """Return the messages whose callers still wait."""
    return [one for one in load if not one[0].outcome.done()]


def _refused(pending: PendingSend) -> bool:
    """Return whether one of its messages was refused; False if its caller has left."""
    done = pending.outcome.done() and not pending.outcome.cancelled()
    return done and pending.outcome.exception() is not None
