"""A paired sender and receiver for applications without asyncio: the names of the synchronous SDK classes."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Self, TypeVar

from azure.servicebus import (
    AutoLockRenewer,
    ServiceBusMessageBatch,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSession,
)
from azure.servicebus.aio import ServiceBusSession as AsyncSession

from paired_servicebus.pairing import PairedReceiver as AsyncReceiver
from paired_servicebus.pairing import PairedSender as AsyncSender
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.sending.sdk_messages import Messages
from paired_servicebus.sync.portal import Portal

Received = TypeVar("Received", bound=Sequence[ServiceBusReceivedMessage])


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


class PairedSession(ServiceBusSession):
    """The session of a receiver, as the SDK's own; AutoLockRenewer accepts it. Its other names are the SDK's object's.

    Made by `PairedReceiver.session`.
    """

    def __init__(self, portal: Portal, inner: AsyncSession) -> None:
        self._portal = portal
        self._inner = inner

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    def get_state(self, *, timeout: float | None = None) -> bytes:  # type: ignore[override]
        """Return the session's state. timeout: seconds. Raises the SDK's errors."""
        return self._portal.call(self._inner.get_state, timeout=timeout)

    def set_state(  # type: ignore[override]
        self, state: str | bytes | bytearray | None, *, timeout: float | None = None
    ) -> None:
        """Set the session's state; None: clear it. timeout: seconds. Raises the SDK's errors."""
        self._portal.call(self._inner.set_state, state, timeout=timeout)

    def renew_lock(self, *, timeout: float | None = None) -> datetime:  # type: ignore[override]
        """Renew the session's lock; return its end, in UTC. timeout: seconds. Raises the SDK's errors."""
        return self._portal.call(self._inner.renew_lock, timeout=timeout)


if TYPE_CHECKING:

    class _ReceiverNames(ServiceBusReceiver):
        """The SDK's receiver for type checkers: its other names are looked up on the asynchronous receiver."""

        _portal: Portal
        _inner: Any

        def __init__(self, portal: Portal, inner: Any) -> None: ...

else:

    class _ReceiverNames:
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


class PairedReceiver(_ReceiverNames):
    """A receiver on the primary that skips our pings. One thread at a time.

    Args:
        renewer: registers its session, or each message that it locks; None: nothing renews them.
    """

    def __init__(self, portal: Portal, receiver: AsyncReceiver, renewer: AutoLockRenewer | None = None) -> None:
        super().__init__(portal, receiver)
        self._messages: AsyncIterator[ServiceBusReceivedMessage] | None = None
        self._renewer = renewer
        self._held_session: PairedSession | None = None
        self._is_session_renewed = False

    @property
    def session(self) -> PairedSession | None:  # type: ignore[override]
        """The session it holds; None where the entity has none."""
        if self._held_session is None and self._inner.session is not None:
            self._held_session = PairedSession(self._portal, self._inner.session)
        return self._held_session

    def __enter__(self) -> Self:
        self._portal.call(self._inner.__aenter__)
        self._renew(())
        return self

    def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Receive as the SDK does, with its wait in seconds and its errors."""
        return self._renew(self._portal.call(self._inner.receive_messages, max_message_count, max_wait_time))

    def __exit__(self, *reason: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[ServiceBusReceivedMessage]:
        return self

    def __next__(self) -> ServiceBusReceivedMessage:
        message = self._portal.call(self._next)
        if message is None:
            raise StopIteration
        self._renew((message,))
        return message

    next = __next__  # the SDK's receiver has both names

    def close(self) -> None:
        """Detach; after the pairing was closed, nothing happens."""
        if self._portal.is_open:
            self._portal.call(self._inner.close)

    def _renew(self, messages: Received) -> Received:
        """Register what is locked now with the renewer, and return the messages."""
        renewer = self._renewer
        if renewer is None:
            return messages
        if self.session is not None:
            if not self._is_session_renewed:
                renewer.register(self, self.session)
                self._is_session_renewed = True
        elif sdk_internals.has_locks(self._inner):
            for message in messages:
                renewer.register(self, message)
        return messages

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
