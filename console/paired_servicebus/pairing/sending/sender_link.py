"""One SDK sender and its rules: one send in flight, our own deadline, rebuilt after a failure that may have broken it.

An SDK sender retransmits deliveries when two callers share it, and one that timed out may hold a connection that
nothing answers on. So callers queue up here, and after such a failure the sender is put away (closed in the
background, bounded) and the next send gets a new one.

A namespace cuts links on which nothing passed for ten minutes. That says nothing of the entity: a send that finds its
link cut after a pause goes again, once, over a new one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from paired_servicebus.core.errors import PairingClosedError
from paired_servicebus.core.model.verdict import FailureKind, kind_of
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.runtime.deadlines import CLOSING, GRACE, Deadline, Watch, bounded
from paired_servicebus.pairing.runtime.sdk_log import judged
from paired_servicebus.pairing.runtime.task_owner import TaskOwner
from paired_servicebus.pairing.sending.encoded_batch import EncodedBatch
from paired_servicebus.pairing.sending.fair_lock import FairLock
from paired_servicebus.pairing.sending.open_limiter import OpenLimiter
from paired_servicebus.pairing.sending.sdk_messages import Sendable

STANDARD_LIMIT: Final = 256 * 1024
PAUSE: Final = 60.0
"""Seconds without a send after which a broken link counts as cut for being idle."""
_UNBROKEN: Final = frozenset(
    {FailureKind.BUSY, FailureKind.TOO_LARGE, FailureKind.ARGUMENT, FailureKind.FULL, FailureKind.UNLISTED}
)
"""After these the link is as good as before."""
_CUT: Final = frozenset({FailureKind.CONNECTION, FailureKind.DETACHED})
"""What a send over a link that was cut ends with."""


class SenderLink:
    """A sender link to one entity of one namespace, open before it is needed and again after it broke.

    Args:
        client: the namespace's client; not closed here.
        path: the entity's path; queues and topics alike.
        tasks: owns the closing of links that were put away.
        gate: what opening passes through; None: nothing.
        assumed: bytes of the largest message while no link has said it, such as the namespace's tier takes.
        options: of the SDK's `get_queue_sender`; a link with options of its own never adopts another one.
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
    ) -> None:
        self.path = path
        self.reopening = False
        """Whether it is being opened again after a failback, and another of its entity may stand in for it."""
        self._client = client
        self._options = options or {}
        self._tasks = tasks
        self._gate = gate
        self._assumed = assumed
        self._sender: ServiceBusSender | None = None
        self._opened = False
        self._loop: asyncio.AbstractEventLoop
        self._used_at = 0.0
        self._batch_limit = STANDARD_LIMIT
        self._turn = FairLock()
        self._watch = Watch(path)
        self._use = LinkUse(self)
        self._closed = False

    @property
    def is_open(self) -> bool:
        """Whether it is attached, as far as is known here."""
        return self._opened and not self._closed

    @property
    def client_identifier(self) -> str:
        """What the namespace names the link by in its errors."""
        if self._sender is None:
            self._sender = self._made()
        return str(self._sender.client_identifier)

    @property
    def is_busy(self) -> bool:
        """Whether something is under way on it."""
        return self._turn.taken

    @property
    def idle_for(self) -> float:
        """Seconds since the latest use of it began that went well."""
        return asyncio.get_running_loop().time() - self._used_at

    async def open(self, timeout: float, *, urgent: bool = True) -> None:
        """Attach now, if it is not. Raises what the SDK raises, TimeoutError, or ForeignLoopError."""
        self._tasks.refuse_elsewhere()
        await self._in_turn(_attached, timeout, "opening", urgent=urgent)

    async def renew(self, timeout: float, *, retry: bool = True) -> None:
        """Attach anew, and use the new link from then on; the present one stays where that fails.

        Args:
            timeout: seconds.
            retry: whether the client's own retry policy applies to the attach.

        Raises: as `open`.
        """
        self._refuse_when_closed()
        fresh = self._made()
        try:
            with Deadline(timeout + GRACE, f"opening on {self.path}"):
                await self._act(fresh, _attached if retry else sdk_internals.attach_once, gated=True, urgent=False)
                await self._turn.wait()
        except BaseException:
            self._tasks.start(self._close(fresh), name=f"close the link to {self.path}")
            raise
        try:
            self._refuse_when_closed()
            self.put_away()
            await self._now_open(fresh)
        finally:
            self._turn.give_back()

    def at_once(self) -> LinkUse | None:
        """The link for one send, where nothing stands in the way: it is open, and nobody uses it. It is the caller's
        from `Use.begin` on, before which nothing may be awaited."""
        if not self._opened or self._closed or self._turn.taken or self._loop is not asyncio.get_running_loop():
            return None
        self._use.sender = self._sender
        return self._use

    async def send(self, messages: Sequence[Sendable] | ServiceBusMessageBatch, timeout: float) -> None:
        """Send one message, several as one batch, or a batch, within `timeout` seconds; all of it is accepted then.

        Raises:
            MessageSizeExceededError: several do not fit into one batch.
            TimeoutError: our own deadline.
            ServiceBusError: as the SDK puts it.
            PairingClosedError: it was closed, before or in the meantime.
        """
        payload: Any = messages
        if not isinstance(messages, ServiceBusMessageBatch):
            payload = messages[0] if len(messages) == 1 else list(messages)
        await self._in_turn(lambda sender: sender.send_messages(payload, timeout=timeout), timeout, "a send")

    async def call(self, act: Callable[[ServiceBusSender], Awaitable[Any]], timeout: float) -> Any:
        """Any other operation of the SDK's sender, under the same rules."""
        return await self._in_turn(act, timeout, "an operation")

    def limit(self) -> int:
        """The largest message the entity takes, in bytes, as its link said; what is assumed where none is open."""
        return sdk_internals.largest_message(self._sender) or self._assumed

    def batch(self, limit: int | None = None) -> EncodedBatch:
        """An empty batch for the link as it is. limit: bytes; None: what the entity takes, as its latest link said."""
        return EncodedBatch(limit or self._batch_limit, sender=self._sender)

    def adopt(self, other: SenderLink) -> bool:
        """Take over what `other` holds open to the same entity; False where nothing is to be taken, or to be given."""
        if self._options or self._closed or self._opened or self._turn.taken or not other.is_open or other._turn.taken:
            return False
        self.put_away()
        self._sender, other._sender = other._sender, None
        self._opened, other._opened = True, False
        self._loop = other._loop
        self._used_at, self._batch_limit = other._used_at, other._batch_limit
        return True

    async def close(self, within: float = CLOSING) -> None:
        """Detach. A send in hand has `within` seconds to finish, then it raises; later ones raise at once."""
        self._closed = True
        try:
            async with asyncio.timeout(within):
                await self._turn.wait()
        except TimeoutError:
            self.cut()
        else:
            self._turn.give_back()
            self._watch.stop()
        sender, self._sender, self._opened = self._sender, None, False
        if sender is not None:
            await _close(sender)

    def cut(self) -> None:
        """What is in hand ends now, and raises; so does everything later."""
        self._closed = True
        self._watch.end_now()

    def put_away(self) -> None:
        """Whatever the link is worth, the next send opens another."""
        sender, self._sender, self._opened = self._sender, None, False
        if sender is not None:
            self._tasks.start(self._close(sender), name=f"close the link to {self.path}")

    async def _close(self, sender: ServiceBusSender) -> None:
        """In the background; closing hundreds in one instant would hold everything else up."""
        if self._gate is None:
            await _close(sender)
            return
        async with self._gate.passage(urgent=False):
            await _close(sender)

    # -- inside -----------------------------------------------------------------------------------------------

    async def _in_turn(
        self, act: Callable[[ServiceBusSender], Awaitable[Any]], timeout: float, what: str, *, urgent: bool = True
    ) -> Any:
        self._refuse_when_closed()
        if not self._turn.take():
            async with asyncio.timeout(timeout + GRACE):
                await self._turn.wait()
        loop = asyncio.get_running_loop()
        self._use.began = loop.time()
        self._watch.begin(timeout + GRACE, what, loop, self._use.began)
        with self._use:
            self._refuse_when_closed()
            return await self._perhaps_again(act, urgent=urgent)

    async def _perhaps_again(self, act: Callable[[ServiceBusSender], Awaitable[Any]], *, urgent: bool) -> Any:
        paused = self._opened and self.idle_for > PAUSE
        try:
            return await self._once(act, urgent=urgent)
        except (ServiceBusError, OSError) as error:
            if not paused or kind_of(error) not in _CUT:
                raise
        self.put_away()
        return await self._once(act, urgent=urgent)

    async def _once(self, act: Callable[[ServiceBusSender], Awaitable[Any]], *, urgent: bool) -> Any:
        if self._sender is None:
            self._sender = self._made()
        sender = self._sender
        if self._opened:
            return await act(sender)
        done = await self._act(sender, act, gated=True, urgent=urgent)
        await self._now_open(sender)
        return done

    async def _act(
        self,
        sender: ServiceBusSender,
        act: Callable[[ServiceBusSender], Awaitable[Any]],
        *,
        gated: bool,
        urgent: bool,
    ) -> Any:
        if self._gate is None or not gated:
            return await act(sender)
        async with self._gate.passage(urgent=urgent):
            return await act(sender)

    def _made(self) -> ServiceBusSender:
        sender = judged(self._client.get_queue_sender(self.path, **self._options))
        sdk_internals.raise_when_busy(sender)
        sdk_internals.keep_unopened(sender)
        return sender

    async def _now_open(self, sender: ServiceBusSender) -> None:
        self._sender, self._opened = sender, True
        self._loop = asyncio.get_running_loop()
        self._used_at = self._loop.time()
        self._batch_limit = (await sender.create_message_batch()).max_size_in_bytes  # asks nobody on an open link

    def _failed(self, error: BaseException) -> None:
        """What came of a use of it ends it, unless it is as good as before. Raises PairingClosedError."""
        if isinstance(error, TimeoutError) and self._closed:
            raise PairingClosedError(
                f"the sender for {self.path} was closed during {self._watch.what}", in_doubt=True
            ) from error
        if isinstance(error, asyncio.CancelledError):
            self.put_away()  # a delivery may be half sent
        elif isinstance(error, ServiceBusError | OSError) and kind_of(error) not in _UNBROKEN:
            self.put_away()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise PairingClosedError(f"the sender for {self.path} is closed; get another one from the paired client")


class LinkUse:
    """A link in one caller's hand: the turn is taken, the deadline runs. Leaving it says what the outcome means for
    the link, and gives it to the next."""

    __slots__ = ("_link", "_paused", "began", "sender")

    def __init__(self, link: SenderLink) -> None:
        self._link = link
        self._paused = False
        """Whether nothing had been sent for so long that the link may have been cut for it."""
        self.began = 0.0
        self.sender: Any = None
        """What to send with."""

    def begin(self, timeout: float) -> None:
        """Take the link for one send of so many seconds."""
        link = self._link
        loop = link._loop
        self.began = now = loop.time()
        self._paused = now - link._used_at > PAUSE
        link._turn.taken = True
        link._watch.begin(timeout + GRACE, "a send", loop, now)

    def was_cut(self, error: Exception) -> bool:
        """Whether this says of the link that it was idle for too long, and nothing of the entity."""
        return self._paused and isinstance(error, ServiceBusError | OSError) and kind_of(error) in _CUT

    @property
    def age(self) -> float:
        """Seconds since it began."""
        return asyncio.get_running_loop().time() - self.began

    def __enter__(self) -> Any:
        return self._link._sender

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        link = self._link
        watch, turn = link._watch, link._turn
        try:
            if error is None and not watch.cancels:
                watch.task = None
                link._used_at = self.began
            else:
                self._ended(error)
        finally:
            if link._closed:
                watch.stop()
            if turn.waiting:
                turn.give_back()
            else:
                turn.taken = False

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


async def _attached(sender: ServiceBusSender) -> None:
    await sender.__aenter__()


async def _close(sender: ServiceBusSender) -> None:
    """Close an SDK sender; one that cannot be closed in time is left to its socket's end."""
    sdk_internals.allow_closing(sender)
    try:
        await bounded(sender.close(), CLOSING, "closing a link")
    except (ServiceBusError, OSError, TimeoutError, ValueError, AttributeError):
        return  # the SDK fails to close what is broken already; nothing is left to do about it


def size_of(message: Sendable) -> int:
    """The message's size in bytes as it would lie in a batch."""
    batch = ServiceBusMessageBatch(max_size_in_bytes=sys.maxsize)
    batch.add_message(message)
    return batch.size_in_bytes


def packed(messages: Sequence[Sendable], limit: int) -> list[list[Sendable]]:
    """The messages in as few batches of at most `limit` bytes as their order allows; a single one may exceed it."""
    packs: list[list[Sendable]] = []
    batch = ServiceBusMessageBatch(max_size_in_bytes=limit)
    for message in messages:
        try:
            batch.add_message(message)
        except MessageSizeExceededError:
            batch = ServiceBusMessageBatch(max_size_in_bytes=max(limit, size_of(message)))
            batch.add_message(message)
            packs.append([])
        if not packs:
            packs.append([])
        packs[-1].append(message)
    return packs
