"""The receiver under a pairing: the SDK's own on the primary, without our pings.

Messages are received from the primary only (SPEC.md section 1). All but the two ways of receiving is passed through to
the SDK's receiver.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Self

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusError

from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.delivery_receipts import DeliveryReceipts
from paired_servicebus.pairing.sending.sdk_messages import is_ping

if TYPE_CHECKING:
    _ReceiverNames = ServiceBusReceiver  # its other names are looked up on the wrapped receiver
else:
    _ReceiverNames = object


class PairedReceiver(_ReceiverNames):
    """A receiver on the primary namespace, without our pings (SPEC.md section 8). Made by the paired client.

    It wraps one `ServiceBusReceiver`, which has every other name. `async for` leaves out pings, too.
    """

    def __init__(self, receiver: ServiceBusReceiver, receipts: DeliveryReceipts | None = None) -> None:
        self._receiver = receiver
        self._receipts = receipts

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self._receiver, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._receiver)})

    async def __aenter__(self) -> Self:
        await self._receiver.__aenter__()
        return self

    async def __aexit__(self, *reason: Any) -> None:
        await self._receiver.__aexit__(*reason)

    def __aiter__(self) -> AsyncIterator[ServiceBusReceivedMessage]:
        return self._without_pings()

    async def __anext__(self) -> ServiceBusReceivedMessage:
        while await self._was_ping(message := await anext(self._receiver)):
            pass
        return self._recorded([message])[0]

    async def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Receive as the SDK does, with its wait in seconds and its errors.

        Pings among the messages shorten the list, which may be empty early.
        """
        received = await self._receiver.receive_messages(max_message_count, max_wait_time)
        return self._recorded([message for message in received if not await self._was_ping(message)])

    async def _without_pings(self) -> AsyncIterator[ServiceBusReceivedMessage]:
        async for message in self._receiver:
            if not await self._was_ping(message):
                yield self._recorded([message])[0]

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
                await self._receiver.complete_message(message)
            except ServiceBusError:
                pass  # it expires within a second, and the caller keeps its other messages
        return True
