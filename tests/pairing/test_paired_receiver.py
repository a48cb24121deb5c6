"""A paired receiver survives whatever the SDK's receiver survives (SPEC.md section 3)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from paired_servicebus import Namespace, pair_namespaces
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.sdk_internals import retry_pauses

from .conftest import World

FAULTS = ["detached", "disconnected"]


def namespace(world: World, name: str, **messaging: Any) -> Namespace:
    text = world.sandbox[name].connection_string
    options = {"connection_verify": str(world.sandbox.ca_file)}
    return Namespace.from_connection_string(text, options=options, messaging=messaging)


async def pair(world: World, **messaging: Any) -> PairedServiceBusClient:
    opening = pair_namespaces(
        namespace(world, "primary", **messaging), namespace(world, "secondary"), primary_name="primary"
    )
    return await world.stack.enter_async_context(opening)


async def send(paired: PairedServiceBusClient, path: str, *bodies: str) -> None:
    async with paired.get_queue_sender(path) as sender:
        await sender.send_messages([ServiceBusMessage(body) for body in bodies])


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_iteration_goes_on_after_a_lost_link(world: World, fault: str) -> None:
    """A paired receiver survives whatever the SDK's receiver survives, in iteration."""
    paired = await pair(world)
    await send(paired, "orders", "0", "1", "2", "3")
    found = []
    async with paired.get_queue_receiver("orders", max_wait_time=3) as receiver, asyncio.timeout(20):
        async for message in receiver:
            found.append(str(message))
            await receiver.complete_message(message)
            if len(found) == 2:
                world.fault(fault)()
    assert found == ["0", "1", "2", "3"]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_waiting_receiver_goes_on_after_a_lost_link(world: World, fault: str) -> None:
    """In `receive_messages`, in waiting."""
    paired = await pair(world)
    async with paired.get_queue_receiver("orders") as receiver, asyncio.timeout(20):
        waiting = asyncio.create_task(receiver.receive_messages(1, max_wait_time=15))
        await asyncio.sleep(0)
        world.fault(fault)()
        await send(paired, "orders", "later")
        found = await waiting
        assert [str(message) for message in found] == ["later"]
        await receiver.complete_message(found[0])


@pytest.mark.parametrize(("chosen", "sends", "receives"), [({}, 0, 3), ({"retry_total": 5}, 5, 5)])
async def test_only_sends_run_without_retries(world: World, chosen: dict[str, int], sends: int, receives: int) -> None:
    """Clients that receive for the application keep the SDK's retries (or the caller's own)."""
    one = namespace(world, "primary", **chosen)
    async with one.client() as sending, one.receiving_client() as receiving:
        assert (len(retry_pauses(sending)), len(retry_pauses(receiving))) == (sends, receives)
