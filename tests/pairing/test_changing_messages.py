"""A message object that changes after the call: what is sent is the message as it was at the call (SPEC.md section 7).

The SDK encodes at the send call, and a batch when a message is added.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.pairing import PairedSender

from .conftest import World, until

HELD = {"hold_until_failover": True, "failover_interval": 3.0, "send_timeout": 30.0}


def message(kind: str) -> Any:
    if kind == "annotated":
        properties = AmqpMessageProperties(message_id="first", subject="first")
        return AmqpAnnotatedMessage(data_body=b"first", properties=properties, application_properties={"a": "first"})
    return ServiceBusMessage("first", message_id="first", subject="first", application_properties={"a": "first"})


def change(message: Any) -> None:
    """Change all that the object lets its owner change."""
    message.application_properties["a"] = "changed"
    message.application_properties["b"] = "added"
    named = message.properties if isinstance(message, AmqpAnnotatedMessage) else message
    named.message_id = named.subject = "changed"


async def payload_of(sender: PairedSender, kind: str, single: Any) -> Any:
    if kind == "list":
        return [single]
    if kind == "batch":
        batch = await sender.create_message_batch()
        batch.add_message(single)
        return batch
    return single


async def find(world: World, name: str) -> ServiceBusReceivedMessage:
    """Return the message of this id, at the primary or in the backlog."""
    backlog = [f"primary/x-servicebus-transfer/{index}" for index in range(2)]
    for namespace, path in (("primary", "orders"), *(("secondary", path) for path in backlog)):
        if name in world.ids_in(path, namespace=namespace):
            async with world.client(namespace) as client, client.get_queue_receiver(path) as receiver:
                return next(one for one in await receiver.peek_messages(10) if one.message_id == name)
    raise AssertionError(f"no message {name}")


@pytest.mark.parametrize("is_diverted", [False, True], ids=["held, then sent", "diverted"])
@pytest.mark.parametrize("is_first", [True, False], ids=["the failing send itself", "a send while suspect"])
@pytest.mark.parametrize("kind", ["single", "annotated", "list", "batch"])
async def test_what_is_sent_is_the_message_at_the_call(
    world: World, kind: str, is_first: bool, is_diverted: bool
) -> None:
    """Section 7.3: what is sent, at any try, is the message as it was at the call; in a batch, as it was when it was
    added."""
    paired = await world.pair(**HELD)

    def is_suspect() -> bool:
        return any(view.state is State.SUSPECT for view in paired.entity_views())

    async with paired.get_queue_sender("orders") as sender:
        heal = world.fault("full", entity="orders")
        sends = []
        if not is_first:
            sends.append(asyncio.create_task(sender.send_messages(ServiceBusMessage("other"))))
            await until(is_suspect)
        single = message(kind)
        sends.append(asyncio.create_task(sender.send_messages(await payload_of(sender, kind, single))))
        await until(is_suspect)
        await asyncio.sleep(0)  # the second call is under way
        change(single)
        if not is_diverted:
            heal()
        await asyncio.gather(*sends)
    found = await find(world, "first")
    assert (found.subject, found.application_properties[b"a"]) == ("first", b"first")
    assert b"b" not in found.application_properties
