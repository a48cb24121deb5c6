"""The receiving half of the paired client: receivers and sessions of the primary namespace (SPEC.md section 1)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from azure.core.async_paging import AsyncItemPaged, AsyncList
from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from paired_servicebus.pairing.delivery_receipts import DeliveryReceipts
from paired_servicebus.pairing.paired_receiver import PairedReceiver
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.sdk_messages import is_pings_session


class PrimaryReceivers:
    """The part of `PairedServiceBusClient` for receivers. Each call raises PairingClosedError after the end."""

    _steering: PairingRuntime
    _receiving: ServiceBusClient
    """The primary's client with the retries of the application's receivers."""

    def get_queue_receiver(self, queue_name: str, **options: Any) -> PairedReceiver:
        """Return a receiver on the primary namespace, with the SDK's options."""
        self._steering.refuse_when_ended()
        make = partial(self._receiving.get_queue_receiver, queue_name, **options)
        return self._paired(make, queue_name, options)

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **options: Any) -> PairedReceiver:
        """Return a receiver on the primary namespace, with the SDK's options."""
        self._steering.refuse_when_ended()
        make = partial(self._receiving.get_subscription_receiver, topic_name, subscription_name, **options)
        return self._paired(make, f"{topic_name}/Subscriptions/{subscription_name}", options)

    def _paired(self, make: Callable[[], ServiceBusReceiver], path: str, options: Mapping[str, Any]) -> PairedReceiver:
        receipts = self.delivery_receipts(path) if options.get("sub_queue") is None else None
        remake = make if options.get("session_id") is NEXT_AVAILABLE_SESSION else None
        return PairedReceiver(make(), receipts, max_wait_time=options.get("max_wait_time"), remake=remake)

    def delivery_receipts(self, path: str) -> DeliveryReceipts | None:
        """Return the receipts for receivers at `path`; None: the option is off, or it is not an entity."""
        return DeliveryReceipts.of(self._steering, path)

    def list_queue_sessions(
        self, queue_name: str, *, state_updated_after: datetime | None = None, timeout: float | None = None
    ) -> AsyncItemPaged[str]:
        """List the ids of a queue's sessions in the primary namespace, as the SDK does."""
        self._steering.refuse_when_ended()
        options: dict[str, Any] = {"state_updated_after": state_updated_after, "timeout": timeout}
        return _without_pings(self._receiving.list_queue_sessions(queue_name, **options))

    def list_subscription_sessions(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        state_updated_after: datetime | None = None,
        timeout: float | None = None,
    ) -> AsyncItemPaged[str]:
        """List the ids of a subscription's sessions in the primary namespace."""
        self._steering.refuse_when_ended()
        options: dict[str, Any] = {"state_updated_after": state_updated_after, "timeout": timeout}
        listed = self._receiving.list_subscription_sessions(topic_name, subscription_name, **options)
        return _without_pings(listed)


def _without_pings(listed: AsyncItemPaged[str]) -> AsyncItemPaged[str]:
    """Return the same pages of session ids without those of pings."""

    async def read(token: str | None) -> Any:
        pages: Any = listed.by_page(token)
        found = [each async for each in await anext(pages)]
        return pages.continuation_token, found

    async def keep(page: Any) -> tuple[str | None, AsyncIterator[str]]:
        token, found = page
        return token, AsyncList([each for each in found if not is_pings_session(each)])

    return AsyncItemPaged(read, keep)
