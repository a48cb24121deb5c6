"""The receiving half of the paired client: receivers and sessions of the primary namespace (SPEC.md section 1)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from azure.core.async_paging import AsyncItemPaged
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.pairing.delivery_receipts import DeliveryReceipts
from paired_servicebus.pairing.paired_receiver import PairedReceiver
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime


class PrimaryReceivers:
    """The part of `PairedServiceBusClient` for receivers. Each call raises PairingClosedError after the end."""

    _steering: PairingRuntime
    _receiving: ServiceBusClient
    """The primary's client with the retries of the application's receivers."""

    def get_queue_receiver(self, queue_name: str, **options: Any) -> PairedReceiver:
        """Return a receiver on the primary namespace, with the SDK's options."""
        self._steering.refuse_when_ended()
        receiver = self._receiving.get_queue_receiver(queue_name, **options)
        return PairedReceiver(receiver, self._receipts(queue_name, options.get("sub_queue")))

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **options: Any) -> PairedReceiver:
        """Return a receiver on the primary namespace, with the SDK's options."""
        self._steering.refuse_when_ended()
        receiver = self._receiving.get_subscription_receiver(topic_name, subscription_name, **options)
        path = f"{topic_name}/Subscriptions/{subscription_name}"
        return PairedReceiver(receiver, self._receipts(path, options.get("sub_queue")))

    def _receipts(self, path: str, sub_queue: object) -> DeliveryReceipts | None:
        return self.delivery_receipts(path) if sub_queue is None else None

    def delivery_receipts(self, path: str) -> DeliveryReceipts | None:
        """Return the receipts for receivers at `path`; None: the option is off, or it is not an entity."""
        return DeliveryReceipts.of(self._steering, path)

    def list_queue_sessions(
        self, queue_name: str, *, state_updated_after: datetime | None = None, timeout: float | None = None
    ) -> AsyncItemPaged[str]:
        """List the ids of a queue's sessions in the primary namespace, as the SDK does."""
        self._steering.refuse_when_ended()
        return self._receiving.list_queue_sessions(queue_name, state_updated_after=state_updated_after, timeout=timeout)

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
        return self._receiving.list_subscription_sessions(
            topic_name, subscription_name, state_updated_after=state_updated_after, timeout=timeout
        )
