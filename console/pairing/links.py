"""One SDK sender and its rules: one send in flight, our own deadline, rebuilt after a failure that may have broken it.

An SDK sender retransmits deliveries when two callers share it, and one that timed out may hold a connection that
nothing answers on. So callers queue up here, and after such a failure the sender is put away (closed in the
background, bounded) and the next send gets a new one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from console.core.verdict import FailureKind, kind_of
from console.pairing.deadlines import CLOSING, GRACE, bounded
from console.pairing.messages import Sendable
from console.pairing.tasks import Tasks

STANDARD_LIMIT: Final = 256 * 1024
_UNBROKEN: Final = frozenset(
    {FailureKind.BUSY, FailureKind.TOO_LARGE, FailureKind.ARGUMENT, FailureKind.FULL, FailureKind.UNLISTED}
)
"""After these the link is as good as before."""


class SenderLink:
    """A sender link to one entity of one namespace, open before it is needed and again after it broke.

    Args:
        client: the namespace's client; not closed here.
        path: the entity's path; queues and topics alike.
        tasks: owns the closing of links that were put away.
    """

    def __init__(self, client: ServiceBusClient, path: str, tasks: Tasks) -> None:
        self.path = path
        self._client = client
        self._tasks = tasks
        self._sender: ServiceBusSender | None = None
        self._turn = asyncio.Lock()
        self._closed = False

    async def open(self, timeout: float) -> None:
        """Attach now. Raises what the SDK raises, or TimeoutError."""
        await self._in_turn(lambda sender: sender.__aenter__(), timeout, "opening")

    async def send(self, messages: Sequence[Sendable] | ServiceBusMessageBatch, timeout: float) -> None:
        """Send one message, several as one batch, or a batch, within `timeout` seconds; all of it is accepted then.

        Raises:
            MessageSizeExceededError: several do not fit into one batch.
            TimeoutError: our own deadline.
            ServiceBusError: as the SDK puts it.
        """
        payload: Any = messages
        if not isinstance(messages, ServiceBusMessageBatch):
            payload = messages[0] if len(messages) == 1 else list(messages)
        await self._in_turn(lambda sender: sender.send_messages(payload, timeout=timeout), timeout, "a send")

    async def call(self, act: Callable[[ServiceBusSender], Awaitable[Any]], timeout: float) -> Any:
        """Any other operation of the SDK's sender, under the same rules."""
        return await self._in_turn(act, timeout, "an operation")

    def limit(self) -> int:
        """The largest message the entity takes, in bytes, as its link said; the Standard tier's where none is open."""
        said = getattr(self._sender, "_max_message_size_on_link", 0)  # the SDK tells it nowhere else
        return said if isinstance(said, int) and said > 0 else STANDARD_LIMIT

    async def close(self) -> None:
        """Detach; later sends raise ValueError."""
        self._closed = True
        sender, self._sender = self._sender, None
        if sender is not None:
            await _close(sender)

    def put_away(self) -> None:
        """Whatever the link is worth, the next send opens another."""
        sender, self._sender = self._sender, None
        if sender is not None:
            self._tasks.start(_close(sender), name=f"close the link to {self.path}")

    async def _in_turn(self, act: Callable[[ServiceBusSender], Awaitable[Any]], timeout: float, what: str) -> Any:
        if self._closed:
            raise ValueError(f"the sender for {self.path} is closed; get another one from the paired client")
        async with asyncio.timeout(timeout + GRACE):
            await self._turn.acquire()
        try:
            if self._sender is None:
                self._sender = self._client.get_queue_sender(self.path)
            return await bounded(act(self._sender), timeout + GRACE, f"{what} on {self.path}")
        except (ServiceBusError, OSError, TimeoutError) as error:
            if kind_of(error) not in _UNBROKEN:
                self.put_away()
            raise
        except asyncio.CancelledError:
            self.put_away()  # a delivery may be half sent
            raise
        finally:
            self._turn.release()


async def _close(sender: ServiceBusSender) -> None:
    """Close an SDK sender; one that cannot be closed in time is left to its socket's end."""
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
