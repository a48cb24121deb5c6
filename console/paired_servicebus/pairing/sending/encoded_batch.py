"""A batch that encodes each of its messages once.

The SDK's own encodes a message to learn its size, and once more to put it in; that is most of what a batch costs. Here
the first encoding is kept. A batch that was not made for its sender is even made once more by the SDK, so it is made
for one here. What it takes to hook in is not part of the SDK's documented interface: where it is not as expected, the
batch does what the SDK does, only slower.
"""

from __future__ import annotations

from typing import Any, Final

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusSender

from paired_servicebus.pairing.sending.sdk_messages import Sendable

_BODY: Final = 5
"""The place of the data sections in the SDK's raw message."""


class EncodedBatch(ServiceBusMessageBatch):
    """As the SDK's, and sent like it.

    sender: the SDK's, that will send it; None: not known yet.
    """

    def __init__(self, max_size_in_bytes: int | None = None, *, sender: ServiceBusSender | None = None) -> None:
        transport = getattr(sender, "_amqp_transport", None)
        super().__init__(max_size_in_bytes, **({} if transport is None else {"amqp_transport": transport}))

    def add_message(self, message: Sendable) -> None:  # type: ignore[override] # no mappings come here
        """As the SDK's. Raises MessageSizeExceededError: there is no room for it."""
        transport = getattr(self, "_amqp_transport", None)
        if not all(hasattr(transport, name) for name in _HOOKS):
            super().add_message(message)
            return
        self._amqp_transport = _Once(transport)
        try:
            super().add_message(message)
        finally:
            self._amqp_transport = transport


class _Encoded:
    """What the SDK's encoder asks of a message."""

    __slots__ = ("_message",)

    def __init__(self, message: Any) -> None:
        self._message = message


class _Once:
    """The SDK's transport, but for the second encoding."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._encoded: bytes | bytearray = b""
        self._of: object = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def get_message_encoded_size(self, message: Any) -> int:
        """How many bytes the message has."""
        self._encoded, self._of = self._transport.encode_message(_Encoded(message)), message
        return len(self._encoded)

    def add_batch(self, batch: Any, message: Any) -> None:
        """Put the message in as it was encoded for its size."""
        if message._message is self._of:
            batch._message[_BODY].append(self._encoded)
        else:
            self._transport.add_batch(batch, message)


_HOOKS: Final = ("encode_message", "get_message_encoded_size", "add_batch")
