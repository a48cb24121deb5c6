"""Sender links that share one connection of our own AMQP, with the rules of `SdkSenderLink`.

A namespace's connections are limited, and an SDK sender opens one each. `SharedSender` stands in for the SDK sender: it
encodes with the SDK's encoder and raises the SDK's errors, so that a caller, and its own judge, see what they saw
before. The client's retry settings apply to failures that leave no message in doubt.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusSender
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

from paired_servicebus.core.errors import WireError, WireLinkError, WireTimeoutError, WireUnavailableError
from paired_servicebus.core.model.verdict import KIND_BY_CONDITION, FailureKind, kind_of
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.amqp_client import Backoff, Endpoint, ReconnectingConnection, WireSender, failure_of
from paired_servicebus.pairing.amqp_client.client_links import BATCH_FORMAT
from paired_servicebus.pairing.runtime.deadlines import GRACE
from paired_servicebus.pairing.sending.encoded_messages import EncodedMessage
from paired_servicebus.pairing.sending.sender_link import Carried, EncodedBatch, SdkSenderLink
from servicebus_amqp.protocol.protocol_events import DispositionReceived
from servicebus_amqp.protocol_errors import StateError

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
_CONNECTIONS: Final = frozenset({FailureKind.CONNECTION, FailureKind.TIMEOUT})


class ConnectionCutError(ServiceBusConnectionError):
    """The shared connection ended during a send: the messages are in doubt, and their queue is not the cause."""


def connection_for(
    endpoint: Endpoint, draw: Callable[[], float], *, seconds: float, name: str = "standby"
) -> ReconnectingConnection:
    """Return the connection of all links to one namespace. seconds: for one try to connect. name: for the namespace."""
    backoff = Backoff(draw, first=FIRST_PAUSE, most=MAX_PAUSE)
    return ReconnectingConnection(
        endpoint, name=name, draw=draw, backoff=backoff, connecting=seconds + GRACE, shared=True
    )


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


class SharedSender:
    """The part of an SDK sender that `SdkSenderLink` uses, over a shared connection. It attaches once.

    Args:
        wire: the connection; not closed here.
        path: the entity's path.
        pauses: seconds before each retry.
    """

    def __init__(self, wire: ReconnectingConnection, path: str, pauses: Sequence[float] = ()) -> None:
        self._wire = wire
        self._path = path
        self._pauses = pauses
        self._link: WireSender | None = None
        self._outcome: asyncio.Future[WireError | None] | None = None
        """The outcome of the message in flight; None: accepted."""
        self._tag = 0

    @property
    def client_identifier(self) -> str:
        return self._link.link_name if self._link is not None else f"standby for {self._path}"

    @property
    def is_up(self) -> bool:
        return self._link is not None and self._wire.carries(self._link)

    @property
    def largest(self) -> int:
        """Bytes of the largest message by the link's attach; 0 while it is detached."""
        return self._link.max_message_size if self._link is not None and self.is_up else 0

    async def attach(self, timeout: float, *, retry: bool = True) -> None:
        """Attach unless it is attached. Raises ServiceBusError."""
        await self._retry(self._attach, timeout, self._pauses if retry else ())

    async def send_messages(
        self, payload: Carried | Sequence[Carried] | ServiceBusMessageBatch, *, timeout: float
    ) -> None:
        """Send a message or a batch; on return it is accepted.

        Raises:
            ConnectionCutError: the connection ended during the send.
            ServiceBusError: as of the SDK's sender.
        """
        await self._retry(lambda left: self._send(payload, left), timeout, self._pauses)

    async def create_message_batch(self) -> EncodedBatch:
        return EncodedBatch(self._link.max_batch_size if self._link is not None else None)

    async def close(self) -> None:
        """Detach; never raises."""
        if self._link is not None:
            await self._link.detach()

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _retry(self, act: Callable[[float], Awaitable[None]], timeout: float, pauses: Sequence[float]) -> None:
        """Run an operation within `timeout` seconds; retry what may succeed and leaves no doubt."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout
        for pause in (*pauses, timeout):
            try:
                await act(ends - loop.time())
            except ServiceBusError as error:
                is_lost = isinstance(error, ConnectionCutError) or unavailable(error) is not None
                if is_lost or kind_of(error) not in _RETRIED or loop.time() + pause >= ends:
                    raise
            else:
                return
            await asyncio.sleep(pause)

    async def _attach(self, timeout: float) -> None:
        if self.is_up:
            return
        try:
            self._link = await self._wire.sender(
                self._path, on_outcome=self._on_outcome, on_lost=self._on_lost, timeout=timeout
            )
        except WireError as error:
            raise sdk_error(error) from error

    async def _send(self, payload: Carried | Sequence[Carried] | ServiceBusMessageBatch, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout
        await self._attach(timeout)
        link = self._link
        assert link is not None, "attached above"
        encoded, message_format = self._encode(payload)
        if len(encoded) > link.max_message_size:
            raise MessageSizeExceededError(
                message=f"the message has {len(encoded)} bytes, {self._path} accepts {link.max_message_size}"
            )
        mark = self._wire.received
        outcome = self._outcome = loop.create_future()
        self._tag += 1
        try:
            link.send(encoded, self._tag.to_bytes(8, "big"), message_format=message_format)
            async with asyncio.timeout(ends - loop.time()):
                failure = await outcome
        except TimeoutError as error:
            text = f"{self._path} did not answer a send within {timeout:g} s"
            if not self._wire.carries(link):  # the connection was silent; one queue is pulled for it
                raise ConnectionCutError(message=text) from error
            self._wire.replace_if_silent(mark, timeout, WireTimeoutError(text))
            raise OperationTimeoutError(message=text) from error
        except StateError as error:
            raise ServiceBusConnectionError(message=f"{self._path}: {error}") from error
        finally:
            self._outcome = None
        if failure is not None:
            is_cut = not isinstance(failure, WireLinkError) and not link.is_up and kind_of(failure) in _CONNECTIONS
            raise (ConnectionCutError(message=str(failure)) if is_cut else sdk_error(failure)) from failure

    def _encode(self, payload: Carried | Sequence[Carried] | ServiceBusMessageBatch) -> tuple[bytes, int]:
        """Return the payload's bytes and format. An encoder's error is the SDK's, as from its sender."""
        if isinstance(payload, ServiceBusMessageBatch):
            return sdk_internals.encode_batch(payload), BATCH_FORMAT
        if isinstance(payload, EncodedMessage):
            return payload.data, 0
        try:
            if isinstance(payload, Sequence):
                assert self._link is not None, "attached before"
                batch = EncodedBatch(self._link.max_batch_size)
                for message in payload:
                    batch.append(message)
                return sdk_internals.encode_batch(batch), BATCH_FORMAT
            single = EncodedBatch(sys.maxsize)
            single.append(payload)
            return sdk_internals.encode_single(single), 0
        except ServiceBusError:
            raise
        except Exception as error:
            raise ServiceBusError(message=f"the message cannot be encoded: {error}", error=error) from error

    def _on_outcome(self, event: DispositionReceived) -> None:
        if event.tag == self._tag.to_bytes(8, "big"):
            self._end(failure_of(event.state, self._path))

    def _on_lost(self, error: WireError) -> None:
        self._end(error)

    def _end(self, failure: WireError | None) -> None:
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(failure)


class SharedSenderLink(SdkSenderLink):
    """A link over a shared connection; see `SdkSenderLink`. It notices a loss before the next send.

    Args:
        wire: the connection; not closed here.
        pauses: seconds before each retry.
    """

    def __init__(self, *args: Any, wire: ReconnectingConnection, pauses: Sequence[float] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self._wire = wire
        self._pauses = pauses

    @property
    def is_open(self) -> bool:
        return super().is_open and self._shared is not None and self._shared.is_up

    def limit(self) -> int:
        return (self._shared.largest if self._shared is not None else 0) or self._assumed

    def batch(self, limit: int | None = None) -> EncodedBatch:
        return EncodedBatch(limit or self._batch_limit)

    def _payload_of_bytes(self, messages: Sequence[Carried]) -> Any:
        return messages[0] if len(messages) == 1 else list(messages)

    @property
    def _shared(self) -> SharedSender | None:
        return cast(SharedSender | None, self._sender)

    def _make(self) -> ServiceBusSender:
        return cast(ServiceBusSender, SharedSender(self._wire, self.path, self._pauses))

    def _attaching(self, timeout: float, *, retry: bool = True) -> Callable[[ServiceBusSender], Awaitable[Any]]:
        return lambda sender: cast(SharedSender, sender).attach(timeout, retry=retry)
