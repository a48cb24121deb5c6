"""A receiver on the primary for applications without asyncio: the names of the synchronous `ServiceBusReceiver`."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiver

from paired_servicebus.pairing import PairedReceiver as AsyncReceiver
from paired_servicebus.sync.portal import Portal


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            self._messages = None  # the SDK's receiver can be walked through again, too
            return None
