"""Receipts for the messages that receivers get (`record_received`, SPEC.md section 11).

A receipt is written before the application, or the gateway's client, has the message, so also before its settlement.
Pings, messages without an id, and dead-letter queues have none; nor have peeked and deferred messages.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, Self

from azure.servicebus import ServiceBusReceivedMessage

from paired_servicebus.core.model.envelope import PING_CONTENT_TYPE
from paired_servicebus.core.model.pairing_events import MessageReceived
from paired_servicebus.core.text.entity_paths import path_fault
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.encoded_messages import message_id_of
from paired_servicebus.pairing.sending.sdk_messages import text
from servicebus_amqp.encoding.codec import NULL, decode
from servicebus_amqp.encoding.message_sections import find_in_map, list_items, split

_SUBSCRIPTIONS: Final = "subscriptions"
_SEQUENCE: Final = b"x-opt-sequence-number"
_PING: Final = PING_CONTENT_TYPE.encode()
_GROUP, _DELIVERIES = 10, 4
"""Places in the lists of properties and header."""

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
            self._event(
                at, text(message.message_id), message.session_id, message.sequence_number, message.delivery_count
            )
            for message in messages
            if message.message_id is not None
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
        properties, annotations = sections.properties, sections.message_annotations
        message_id = message_id_of(properties)
        if not message_id or properties is None or _PING in properties:
            return None
        group = list_items(properties, _GROUP + 1)[_GROUP]
        found = find_in_map(annotations, (_SEQUENCE,)) if annotations is not None else []
        count = list_items(sections.header, _DELIVERIES + 1)[_DELIVERIES] if sections.header is not None else NULL
        return self._event(
            self._steering.clock(),
            message_id,
            None if group == NULL else decode(group)[0],
            int(decode(annotations, found[0][1])[0]) if annotations is not None and found else None,
            None if count == NULL else int(decode(count)[0]),
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
