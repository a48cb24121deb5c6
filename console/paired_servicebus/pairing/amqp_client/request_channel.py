"""Requests to one node, `$cbs` or `{entity}/$management`, over a pair of links, and their replies.

Several requests may run concurrently; a reply names its request by correlation-id. This module renews the credit for
replies.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final, Protocol

from paired_servicebus.core.errors import WireConnectionError, WireError
from paired_servicebus.pairing.amqp_client.client_links import OnDelivery, OnLost, OnOutcome, WireReceiver, WireSender
from paired_servicebus.pairing.amqp_client.wire_errors import failure_of
from servicebus_amqp.encoding.message_sections import (
    Properties,
    Sections,
    read_map,
    read_properties,
    read_value,
    split,
    write_application_properties,
    write_properties,
    write_value,
)
from servicebus_amqp.encoding.messaging_types import ACCEPTED
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived
from servicebus_amqp.protocol_errors import DecodeError

_CREDIT: Final = 100
_STATUS: Final = ("statusCode", "status-code")
_DESCRIPTION: Final = ("statusDescription", "status-description")
_CONDITION: Final = ("errorCondition", "error-condition")


@dataclass(frozen=True, slots=True)
class RequestReply:
    """status: 200 to 299 for success. condition: AMQP's, or None. body: the value, None for an empty one."""

    status: int
    description: str
    condition: str | None
    body: Any

    @property
    def is_yes(self) -> bool:
        return 200 <= self.status < 300


class RequestConnection(Protocol):
    """The connection of a pair of links, a `ClientConnection`."""

    asks: int

    async def attach_sender(
        self, path: str, *, on_outcome: OnOutcome, on_lost: OnLost, reply_address: str | None = None
    ) -> WireSender: ...
    async def attach_receiver(
        self, path: str, *, on_delivery: OnDelivery, on_lost: OnLost, reply_address: str | None = None
    ) -> WireReceiver: ...
    def forget_requests(self, requests: RequestChannel) -> None: ...


class RequestChannel:
    """The pair of links to one node. Open it once; if one link is lost both are, and all requests fail."""

    def __init__(self, line: RequestConnection, node: str) -> None:
        self.node = node
        self.failure: WireError | None = None
        self._line = line
        self._sender: WireSender | None = None
        self._receiver: WireReceiver | None = None
        self._pending: dict[str, asyncio.Future[RequestReply]] = {}
        self._last = 0

    async def open(self) -> None:
        """Attach both links. Raises WireError."""
        line, node = self._line, self.node
        self._receiver = await line.attach_receiver(
            node, on_delivery=self._on_delivery, on_lost=self._on_lost, reply_address=node
        )
        self._receiver.grant(_CREDIT)
        try:
            self._sender = await line.attach_sender(
                node, on_outcome=self._on_outcome, on_lost=self._on_lost, reply_address=node
            )
        except BaseException as error:
            self._on_lost(WireError(f"the links to {node} were not both attached: {error}"))
            raise

    async def ask(self, properties: dict[str, Any], body: Any) -> RequestReply:
        """Send one request. The caller sets a deadline. Raises WireError if no reply can arrive."""
        if self.failure is not None or self._sender is None:
            raise WireConnectionError(f"no requests can be sent to {self.node}: {self.failure}") from self.failure
        self._last += 1
        number = str(self._last)
        request = Sections(
            properties=write_properties(Properties(message_id=number, reply_to=self.node)),
            application_properties=write_application_properties(properties),
            body=write_value(body),
        )
        answered = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            self._line.asks += 1
            self._sender.send(request.join(), number.encode())
            reply: RequestReply = await answered
            return reply
        finally:
            self._pending.pop(number, None)

    def _on_delivery(self, event: DeliveryReceived) -> None:
        receiver = self._receiver
        if receiver is not None:
            receiver.settle(event.delivery_id, ACCEPTED)
            if receiver.credit <= _CREDIT // 2:
                receiver.grant(_CREDIT)
        try:
            number, reply = _read(event.payload)
        except DecodeError as error:
            self._on_lost(WireError(f"{self.node} sent an unreadable reply: {error}"))
            return
        answered = self._pending.get(number) if isinstance(number, str) else None
        if answered is not None and not answered.done():
            answered.set_result(reply)

    def _on_outcome(self, event: DispositionReceived) -> None:
        failure = failure_of(event.state, self.node)
        answered = self._pending.get(event.tag.decode())
        if failure is not None and answered is not None and not answered.done():
            answered.set_exception(failure)

    def _on_lost(self, error: WireError) -> None:
        if self.failure is None:
            self.failure = error
            self._line.forget_requests(self)
            for answered in self._pending.values():
                if not answered.done():
                    answered.set_exception(error)
            for link in (self._sender, self._receiver):
                if link is not None:
                    link.drop(error)


def _read(payload: bytes) -> tuple[Any, RequestReply]:
    """Return a reply and the id of its request. Raises DecodeError."""
    sections = split(payload)
    properties = read_map(sections.application_properties)
    status = _first(properties, _STATUS)
    if not isinstance(status, int):
        raise DecodeError(f"it carries no status, only {', '.join(map(str, properties)) or 'nothing'}")
    condition = _first(properties, _CONDITION)
    reply = RequestReply(
        status=int(status),
        description=str(_first(properties, _DESCRIPTION) or ""),
        condition=None if condition is None else str(condition),
        body=read_value(sections.body) if sections.body else None,
    )
    return read_properties(sections.properties).correlation_id, reply


def _first(properties: dict[Any, Any], names: tuple[str, ...]) -> Any:
    return next((properties[name] for name in names if name in properties), None)
