"""A paired sender and receiver for applications without asyncio: the names of the synchronous SDK classes."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Self

from azure.servicebus import ServiceBusMessageBatch, ServiceBusReceivedMessage, ServiceBusReceiver

from paired_servicebus.pairing import PairedReceiver as AsyncReceiver
from paired_servicebus.pairing import PairedSender as AsyncSender
from paired_servicebus.pairing.sending.sdk_messages import Messages
from paired_servicebus.sync.portal import Portal


class PairedSender:
    """A sender to one entity of the primary namespace, or to the backlog while that entity is failed over.

    The paired client makes it. Any number of threads may share it. It raises the errors of the asynchronous sender.
    """

    def __init__(self, portal: Portal, sender: AsyncSender) -> None:
        self._portal = portal
        self._sender = sender

    @property
    def entity_name(self) -> str:
        """The entity's path."""
        return self._sender.entity_name

    @property
    def fully_qualified_namespace(self) -> str:
        """The primary namespace's host."""
        return self._sender.fully_qualified_namespace

    @property
    def client_identifier(self) -> str:
        """The name in the SDK's log and at the service."""
        return self._portal.run(lambda: self._sender.client_identifier)

    def __str__(self) -> str:
        return self._portal.run(str, self._sender)

    def __enter__(self) -> Self:
        self._portal.call(self._sender.__aenter__)
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def close(self) -> None:
        """Detach from the primary. Does nothing if the sender or the pairing is closed."""
        if self._portal.is_open:
            self._portal.call(self._sender.close)

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Return an empty batch of at most this many bytes. Raises ValueError if the entity's limit is smaller."""
        return self._portal.call(self._sender.create_message_batch, max_size_in_bytes)

    def send_messages(self, message: Messages, *, timeout: float | None = None) -> None:
        """Send a message, a list of them, or a batch; when this returns, a namespace has accepted them.

        Args:
            message: any argument of the SDK's sender. It is not changed; after an error it is still the caller's.
            timeout: seconds for the whole call; None: `send_timeout` at the primary, then twice that at the backlog.

        Raises: as `paired_servicebus.PairedSender.send_messages`.
        """
        self._portal.call(self._sender.send_messages, message, timeout=timeout)

    def schedule_messages(
        self, messages: Any, schedule_time_utc: datetime, *, timeout: float | None = None
    ) -> list[int]:
        """Schedule messages; return the numbers for cancelling them, negative for messages in the backlog.

        Raises: as `send_messages`.
        """
        return self._portal.call(self._sender.schedule_messages, messages, schedule_time_utc, timeout=timeout)

    def cancel_scheduled_messages(self, sequence_numbers: int | list[int], *, timeout: float | None = None) -> None:
        """Cancel scheduled messages by the numbers the primary gave.

        Raises:
            ScheduledInBacklogError: a negative number: the message is in the backlog, or has left it.
        """
        self._portal.call(self._sender.cancel_scheduled_messages, sequence_numbers, timeout=timeout)


class BlockingProxy:
    """A proxy of an asynchronous SDK object; its coroutines block the caller."""

    def __init__(self, portal: Portal, inner: Any) -> None:
        self._portal = portal
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        @wraps(found)
        def waiting(*args: Any, **options: Any) -> Any:
            return self._portal.call(found, *args, **options)

        return waiting


if TYPE_CHECKING:

    class _ReceiverNames(ServiceBusReceiver):
        """The SDK's receiver for type checkers: its other names are looked up on the asynchronous receiver."""

        _portal: Portal
        _inner: Any

        def __init__(self, portal: Portal, inner: Any) -> None: ...

else:
    _ReceiverNames = BlockingProxy


class PairedReceiver(_ReceiverNames):
    """A receiver on the primary that skips our pings. One thread at a time."""

    def __init__(self, portal: Portal, receiver: AsyncReceiver) -> None:
        super().__init__(portal, receiver)
        self._messages: AsyncIterator[ServiceBusReceivedMessage] | None = None

    @property
    def session(self) -> BlockingProxy | None:  # type: ignore[override]
        """The session it holds; None where the entity has none."""
        session = self._inner.session
        return BlockingProxy(self._portal, session) if session is not None else None

    def __enter__(self) -> Self:
        self._portal.call(self._inner.__aenter__)
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[ServiceBusReceivedMessage]:
        return self

    def __next__(self) -> ServiceBusReceivedMessage:
        message = self._portal.call(self._next)
        if message is None:
            raise StopIteration
        return message

    next = __next__  # the SDK's receiver has both names

    def close(self) -> None:
        """Detach; after the pairing was closed, nothing happens."""
        if self._portal.is_open:
            self._portal.call(self._inner.close)

    async def _next(self) -> ServiceBusReceivedMessage | None:
        if self._messages is None:
            self._messages = aiter(self._inner)
        try:
            return await anext(self._messages)
        except StopAsyncIteration:
            self._messages = None  # the SDK's receiver can be iterated again, too
            return None
        except BaseException:
            self._messages = None  # the SDK's receiver goes on after an error, too
            raise
