"""A process that sends to all entities through the gateway with Microsoft's SDK and its default retries.

It is tests.chaos.sender without a pairing: one connection string is all it has. An error of the SDK after its retries
leaves its messages in doubt, since an earlier try may have landed.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import msgspec
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from paired_servicebus.core.accounting.ledger import SendOutcome
from tests.chaos.sender import LOG, Order, Sending, _lines


class Turns:
    """A sender of the SDK, whose calls take turns: it is not made for several at the same time."""

    def __init__(self, sender: ServiceBusSender) -> None:
        self._sender = sender
        self._turn = asyncio.Lock()

    async def send_messages(self, message: Any) -> None:
        async with self._turn:
            await self._sender.send_messages(message)

    async def schedule_messages(self, messages: Any, when: Any) -> Any:
        async with self._turn:
            return await self._sender.schedule_messages(messages, when)


class Plain:
    """A client of the SDK in place of a pairing."""

    def __init__(self, client: ServiceBusClient) -> None:
        self._client = client

    def get_queue_sender(self, name: str) -> Turns:
        return Turns(self._client.get_queue_sender(name))

    def get_topic_sender(self, name: str) -> Turns:
        return Turns(self._client.get_topic_sender(name))

    def entity_views(self) -> list[Any]:
        return []


class GatewaySending(Sending):
    """All streams of one client."""

    async def _attempt(self, entity: str, messages: list[ServiceBusMessage], *, later: bool) -> tuple[SendOutcome, str]:
        outcome, text = await super()._attempt(entity, messages, later=later)
        return (SendOutcome.IN_DOUBT if outcome is SendOutcome.REFUSED else outcome), text


def main() -> None:
    """Send until standard input ends."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format=LOG)
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    asyncio.run(_live(order))


async def _live(order: Order) -> None:
    async with ServiceBusClient.from_connection_string(order.primary) as client:
        sender = GatewaySending(order, Plain(client))  # type: ignore[arg-type] # as much of a pairing as it uses
        sending = asyncio.create_task(sender.run(), name="all streams")
        print("ready", flush=True)
        async for words in _lines():
            if words[0] == "prove":
                sender.prove(words[1])
            elif words[0] == "stop":
                sender.stop()
                await sending
                print("stopped", flush=True)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


if __name__ == "__main__":
    main()
