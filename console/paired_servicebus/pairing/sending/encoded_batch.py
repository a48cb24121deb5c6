"""A batch that encodes each of its messages once.

The SDK's batch encodes a message for its size, and again to add it; that is most of a batch's cost.
"""

from __future__ import annotations

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusSender

from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.sending.sdk_messages import Sendable


class EncodedBatch(ServiceBusMessageBatch):
    """The SDK's batch with a single encoding.

    sender: the SDK sender that will send it; None: unknown.
    """

    def __init__(self, max_size_in_bytes: int | None = None, *, sender: ServiceBusSender | None = None) -> None:
        super().__init__(max_size_in_bytes, **sdk_internals.batch_options(sender))

    def add_message(self, message: Sendable) -> None:  # type: ignore[override] # no mappings come here
        """Add a message. Raises MessageSizeExceededError if it does not fit."""
        add = super().add_message
        sdk_internals.add_encoded_once(self, lambda: add(message))
