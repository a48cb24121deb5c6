"""The receiver under a pairing: the SDK's own on the primary, without our pings, and the receipts of what it gets.

Messages are received from the primary only (SPEC.md section 1). All but receiving, peeking and settling is passed
through to the SDK's receiver. The SDK waits up to eight minutes for a settlement that a silent namespace does not
confirm; here it ends with the lock.

A receipt (`record_received`, SPEC.md section 11) is written before the application, or the gateway's client, has the
message, so also before its settlement. Pings, messages without an id, and dead-letter queues have none; nor have peeked
and deferred messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

from azure.core.async_paging import AsyncItemPaged, AsyncList
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from paired_servicebus.core.model.envelope import PING_CONTENT_TYPE
from paired_servicebus.core.model.pairing_events import MessageReceived
from paired_servicebus.core.text.entity_paths import path_fault
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.envelope_codec import broker_properties, message_id_of
from paired_servicebus.pairing.runtime.deadlines import CLOSING, GRACE, bounded
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.sdk_messages import is_ping, is_pings_session, text
from servicebus_amqp.encoding.codec import NULL, decode
from servicebus_amqp.encoding.message_sections import list_items, read_header, split

if TYPE_CHECKING:
    _ReceiverNames = ServiceBusReceiver  # its other names are looked up on the wrapped receiver
else:
    _ReceiverNames = object


SETTLING: Final = 60.0
"""Seconds that a settlement has at least, as one try of the SDK."""
_SUBSCRIPTIONS: Final = "subscriptions"
_PING: Final = PING_CONTENT_TYPE.encode()
_GROUP: Final = 10
"""Its place in the list of properties."""

log = logging.getLogger(__name__)


class DeliveryReceipts:
    """The receipts of one entity's, or one subscription's, receivers. `path`: as its receivers attach to it."""

    def __init__(self, steering: PairingRuntime, entity: str, subscription: str | None) -> None:
        self._steering = steering
        self._entity = entity
        self._subscription = subscription
        self._has_complained = False

    @classmethod
    def of(cls, steering: PairingRuntime, path: str) -> Self | None:
        """Return the receipts of receivers at `path`; None: the option is off, or it is not an entity."""
        if not steering.policy.record_received or path_fault(path.strip("/")):
            return None
        segments = path.strip("/").split("/")
        if len(segments) > 2 and segments[-2].casefold() == _SUBSCRIPTIONS:
            return cls(steering, "/".join(segments[:-2]), segments[-1])
        return cls(steering, "/".join(segments), None)

    def write(self, messages: Iterable[ServiceBusReceivedMessage]) -> None:
        """Write the receipts of messages that the SDK received."""
        at = self._steering.clock()
        events = [
            self._event(at, text(one.message_id), one.session_id, one.sequence_number, one.delivery_count)
            for one in messages
            if one.message_id is not None
        ]
        if events:
            self._steering.publish(events)

    def write_encoded(self, payload: bytes) -> None:
        """Write the receipt of one message in its bytes; a message that cannot be read has none."""
        try:
            event = self._read(payload)
        except Exception as error:  # noqa: BLE001 - from an unknown sender: any error is its own
            if not self._has_complained:
                self._has_complained = True
                log.warning("a message of %s has no receipt: it cannot be read (%s)", self._entity, error)
            return
        if event is not None:
            self._steering.announce(event)

    def _read(self, payload: bytes) -> MessageReceived | None:
        """Return the receipt of a message; None for a ping, or without an id. Raises for bytes that are no message."""
        sections = split(payload)
        properties = sections.properties
        message_id = message_id_of(properties)
        if not message_id or properties is None or _PING in properties:
            return None
        group = list_items(properties, _GROUP + 1)[_GROUP]
        return self._event(
            self._steering.clock(),
            message_id,
            None if group == NULL else decode(group)[0],
            broker_properties(payload).sequence_number or None,
            read_header(sections.header).delivery_count,
        )

    def _event(
        self, at: float, message_id: str, session: object, sequence_number: int | None, deliveries: int | None
    ) -> MessageReceived:
        named = None if session is None else text(session)
        return MessageReceived(
            at=at,
            entity=self._entity,
            message_id=message_id,
            subscription=self._subscription,
            stream=named or "",
            session=named,
            sequence_number=sequence_number,
            delivery_count=deliveries or 0,
        )


class PairedReceiver(_ReceiverNames):
    """A receiver on the primary namespace, without our pings (SPEC.md section 8). Made by the paired client.

    It wraps one `ServiceBusReceiver`, which has every other name. `async for` leaves out pings, too.
    """

    def __init__(
        self,
        receiver: ServiceBusReceiver,
        receipts: DeliveryReceipts | None = None,
        *,
        max_wait_time: float | None = None,
        remake: Callable[[], ServiceBusReceiver] | None = None,
    ) -> None:
        """Wrap a receiver.

        Args:
            receiver: the SDK's.
            receipts: of the messages; None: they are not recorded.
            max_wait_time: seconds without a message that end an iteration; None: it does not end.
            remake: makes another receiver of the next available session; None: the session was named, or there is none.
        """
        self._receiver = receiver
        self._receipts = receipts
        self._max_wait_time = max_wait_time
        self._remake = remake

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self._receiver, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._receiver)})

    async def __aenter__(self) -> Self:
        await self._receiver.__aenter__()
        while await self._left_pings_session():
            await self._receiver.__aenter__()
        return self

    async def __aexit__(self, *reason: Any) -> None:
        await self._receiver.__aexit__(*reason)

    def __aiter__(self) -> AsyncIterator[ServiceBusReceivedMessage]:
        return self._without_pings()

    async def __anext__(self) -> ServiceBusReceivedMessage:
        while await self._was_ping(message := await anext(self._receiver)):
            await self._left_pings_session()
        return self._recorded([message])[0]

    async def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Receive as the SDK does, with its wait in seconds and its errors."""
        loop = asyncio.get_running_loop()
        wait = self._max_wait_time if max_wait_time is None else max_wait_time
        ends = None if wait is None else loop.time() + wait
        left = max_wait_time
        while True:
            received = await self._receiver.receive_messages(max_message_count, left)
            found = [message for message in received if not await self._was_ping(message)]
            await self._left_pings_session()
            if found or not received:
                return self._recorded(found)
            if ends is not None:
                left = ends - loop.time()
                if left <= 0:
                    return []

    async def peek_messages(
        self, max_message_count: int = 1, *, sequence_number: int = 0, timeout: float | None = None, **options: Any
    ) -> list[ServiceBusReceivedMessage]:
        """Peek as the SDK does; pings are passed over. timeout: seconds."""
        loop = asyncio.get_running_loop()
        ends, left = (None if timeout is None else loop.time() + timeout), timeout
        while True:
            peeked = await self._receiver.peek_messages(
                max_message_count, sequence_number=sequence_number, timeout=left, **options
            )
            found = [message for message in peeked if not is_ping(message)]
            if found or not peeked:
                return found
            sequence_number = (peeked[-1].sequence_number or 0) + 1
            if ends is not None:
                left = ends - loop.time()
                if left <= 0:
                    raise OperationTimeoutError(message=f"there are only pings before {sequence_number}")

    async def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """Complete as the SDK does.

        Raises:
            OperationTimeoutError: not confirmed while the message was locked, nor for a minute; it may be completed.
            ServiceBusError: the SDK's own errors.
        """
        await self._settle(message, self._receiver.complete_message)

    async def abandon_message(self, message: ServiceBusReceivedMessage) -> None:
        """Abandon as the SDK does. Raises as `complete_message`."""
        await self._settle(message, self._receiver.abandon_message)

    async def defer_message(self, message: ServiceBusReceivedMessage) -> None:
        """Defer as the SDK does. Raises as `complete_message`."""
        await self._settle(message, self._receiver.defer_message)

    async def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> None:
        """Dead-letter as the SDK does. Raises as `complete_message`."""
        details = {"reason": reason, "error_description": error_description}
        await self._settle(message, self._receiver.dead_letter_message, **details)

    async def _settle(
        self,
        message: ServiceBusReceivedMessage,
        settle: Callable[..., Coroutine[Any, Any, None]],
        **details: str | None,
    ) -> None:
        session = self._receiver.session
        lock = getattr(message if session is None else session, "locked_until_utc", None)
        left = (lock - datetime.now(UTC)).total_seconds() if lock is not None else 0.0
        try:
            await bounded(settle(message, **details), max(SETTLING, left) + GRACE, "settling a message")
        except TimeoutError as error:
            text = f"{error}: its lock has ended, and it is received again unless it was settled"
            raise OperationTimeoutError(message=text) from error

    async def _without_pings(self) -> AsyncIterator[ServiceBusReceivedMessage]:
        """Yield messages; end after `max_wait_time` without one, whatever pings arrive."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            receiver = self._receiver
            async for message in receiver:
                if not await self._was_ping(message):
                    yield self._recorded([message])[0]
                    began = loop.time()
                elif await self._left_pings_session():
                    break
                elif self._max_wait_time is not None and loop.time() - began >= self._max_wait_time:
                    return
            if receiver is self._receiver:
                return

    async def _left_pings_session(self) -> bool:
        """Leave the session if it is a ping's, for the next available one; return whether it was."""
        session = self._receiver.session if self._remake is not None else None
        if self._remake is None or session is None or not is_pings_session(session.session_id):
            return False
        left, self._receiver = self._receiver, self._remake()
        await bounded(left.close(), CLOSING, "closing a ping's session")
        return True

    def _recorded(self, messages: list[ServiceBusReceivedMessage]) -> list[ServiceBusReceivedMessage]:
        """Return the messages once their receipts are written, if the pairing records them."""
        if self._receipts is not None:
            self._receipts.write(messages)
        return messages

    async def _was_ping(self, message: ServiceBusReceivedMessage) -> bool:
        """Settle a message if it is a ping of ours; return whether it was."""
        if not is_ping(message):
            return False
        if sdk_internals.has_locks(self._receiver):
            try:
                await bounded(self._receiver.complete_message(message), CLOSING, "settling a ping")
            except (ServiceBusError, TimeoutError):
                pass  # it expires within a second, and the caller keeps its other messages
        return True


def without_pings(listed: AsyncItemPaged[str]) -> AsyncItemPaged[str]:
    """Return the same pages of session ids without those of pings."""

    async def read(token: str | None) -> Any:
        pages: Any = listed.by_page(token)
        found = [each async for each in await anext(pages)]
        return pages.continuation_token, found

    async def keep(page: Any) -> tuple[str | None, AsyncIterator[str]]:
        token, found = page
        return token, AsyncList([each for each in found if not is_pings_session(each)])

    return AsyncItemPaged(read, keep)
