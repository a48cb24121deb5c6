"""The library under both answers of the service where no page promises one: nothing is lost, and no call raises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.model.pairing_events import SendFailed
from servicebus_sandbox import Behavior, NamespaceSpec, QueueSettings, QueueSpec, Sandbox
from servicebus_sandbox.amqp_server.message_codec import read_message
from servicebus_sandbox.broker.broker_errors import QuotaExceeded
from servicebus_sandbox.broker.entity_settings import EntityStatus

from .backlogs import parked, put
from .conftest import World, until

BOTH = pytest.mark.parametrize("answer", [False, True])


@asynccontextmanager
async def world_of(*queues: QueueSpec, **behaves: bool) -> AsyncIterator[World]:
    answers = Behavior(**behaves)
    specs = [NamespaceSpec("primary", queues, behaves=answers), NamespaceSpec("secondary", behaves=answers)]
    async with Sandbox.start(specs) as sandbox, AsyncExitStack() as stack:
        yield World(sandbox, stack)


@BOTH
async def test_an_idle_pairing_is_no_failure(answer: bool) -> None:
    async with world_of(QueueSpec("orders"), close_unlinked_connections=answer) as world:
        paired = await world.pair(enable_syphon=True)
        for number in range(4):
            async with paired.get_queue_sender("orders") as orders:
                await orders.send_messages(ServiceBusMessage("x", message_id=str(number)))
            for _ in range(2):
                world.sandbox.advance(301.0)
                await asyncio.sleep(0)
        assert world.ids_in("orders") == ["0", "1", "2", "3"]
        assert not world.told(SendFailed)
        put(world, [parked("orders", "parked")])
        await until(lambda: "parked" in world.ids_in("orders"))


@BOTH
async def test_a_queue_that_is_closed_to_receivers_keeps_or_diverts_what_is_sent(answer: bool) -> None:
    closed = QueueSettings(status=EntityStatus.RECEIVE_DISABLED)
    async with world_of(QueueSpec("orders", closed), send_when_receive_disabled=answer) as world:
        paired = await world.pair(hold_until_failover=True)
        async with paired.get_queue_sender("orders") as orders:
            await orders.send_messages(ServiceBusMessage("x", message_id="1"))
        assert (world.depth("orders"), world.parked()) == ((1, 0) if answer else (0, 1))


@BOTH
async def test_a_full_queue_that_blocks_its_namespace_fails_over_the_others_too(answer: bool) -> None:
    queues = (QueueSpec("full", QueueSettings(max_size_mb=1)), QueueSpec("orders"))
    async with world_of(*queues, full_entity_blocks_namespace=answer) as world:
        intake = world.sandbox["primary"].node.namespace.send_target("full").intake
        large = read_message(parked("full", "1", body=bytes(200_000)))
        for _ in range(5):
            intake.send([large])
        with pytest.raises(QuotaExceeded):
            intake.send([large])
        paired = await world.pair(hold_until_failover=True)
        async with paired.get_queue_sender("orders") as orders:
            await orders.send_messages(ServiceBusMessage("x", message_id="1"))
        assert (world.depth("orders"), world.parked()) == ((0, 1) if answer else (1, 0))
