"""A backlog queue in use that was deleted: its pump makes it again and goes on, and senders come back to it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.errors import BacklogUnavailableError
from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pairing.management.atom_admin import management_of
from paired_servicebus.pairing.management.management_port import (
    LOCK,
    MAX_DELIVERIES,
    MAX_SIZE_MB,
    Management,
    QueueWanted,
)
from paired_servicebus.pairing.sending.paired_sender import PairedSender

from .backlogs import parked, put, queue_path
from .conftest import PATIENCE, World, until

PUMPS = pytest.mark.parametrize("pump", ["amqp", "sdk"])
BRISK = {"enable_syphon": True, "syphon_retry_interval": 1.0, "backlog_queue_count": 1, "send_timeout": 2.0}


class Counting:
    """A management that counts the creations after the pairing, and may refuse them."""

    def __init__(self, real: Management) -> None:
        self._real = real
        self.refusal: Exception | None = None
        self.created: list[str] = []

    async def create_queue(self, path: str, wanted: QueueWanted) -> None:
        self.created.append(path)
        if self.refusal is not None:
            raise self.refusal
        await self._real.create_queue(path, wanted)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


async def delete(world: World, path: str) -> None:
    """By the console of another host."""
    async with world.admin("secondary") as admin:
        await admin.delete_queue(path)


def warnings(world: World) -> list[str]:
    return [event.text for event in world.told(Warned) if event.about == "backlog queues"]


@PUMPS
async def test_a_pump_makes_its_deleted_queue_again_with_exact_settings_and_goes_on(world: World, pump: str) -> None:
    """Section 4.2: "create only those missing, with exactly" these settings."""
    paired = await world.pair(**BRISK, pump=pump)
    await until(lambda: paired.queue_views()[0].pump_text.startswith("receiving"))
    await delete(world, queue_path())
    said = f"{queue_path()} was gone and was made again, with the settings of a new backlog queue"
    await until(lambda: said in warnings(world))
    async with world.admin("secondary") as admin:
        found = await admin.get_queue(queue_path())
    assert (found.max_size_in_megabytes, found.max_delivery_count, found.lock_duration) == (
        MAX_SIZE_MB, MAX_DELIVERIES, LOCK,
    )  # fmt: skip
    put(world, [parked("orders", "m1")])
    await until(lambda: world.depth("orders") == 1)
    await until(lambda: paired.queue_views()[0].pump_text.startswith("receiving"))


async def test_senders_come_back_to_a_queue_that_was_made_again_without_a_restart(world: World) -> None:
    """Section 7.1: "a pulled queue returns after a probe succeeded"."""
    await world.pair(**BRISK)
    sending = await world.pair(backlog_queue_count=1, failover_interval=0.0)
    await sending.stands_ready()
    sending.watch("orders")
    sending.force("orders", by="ana")
    await delete(world, queue_path())
    await until(lambda: any("made again" in text for text in warnings(world)))
    async with sending.get_queue_sender("orders") as sender:
        async with asyncio.timeout(PATIENCE):
            while not await is_accepted(sender):
                await sending._steering.change(sending._steering.clock() + 0.2)  # until its queue is back
    await until(lambda: world.depth(queue_path(), namespace="secondary") + world.depth("orders") == 1)


async def is_accepted(sender: PairedSender) -> bool:
    try:
        await sender.send_messages(ServiceBusMessage("x"))
    except BacklogUnavailableError:
        return False
    return True


@PUMPS
async def test_without_the_right_it_says_what_to_do_and_asks_once_a_minute(world: World, pump: str) -> None:
    admin = Counting(management_of(world.admin("secondary")))
    paired = await world.pair(**BRISK, pump=pump, secondary_admin=admin)
    await until(lambda: paired.queue_views()[0].pump_text.startswith("receiving"))
    admin.created.clear()
    admin.refusal = ClientAuthenticationError("no Manage")
    await delete(world, queue_path())
    todo = "give the pairing's credential Manage on the secondary, or make the queue by hand"
    await until(lambda: paired.queue_views()[0].pump_text.endswith(todo))
    trouble = [text for text in warnings(world) if "cannot be made again" in text]
    assert trouble == [f"{queue_path()} is gone and cannot be made again (not authenticated); {todo}"]
    tries = paired._syphon._remaker  # type: ignore[union-attr]
    assert await tries.remake(0) == trouble[0]  # type: ignore[union-attr]
    assert admin.created == [queue_path()]


async def test_after_a_minute_it_tries_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_queues, "MIN_RETRY_SECONDS", 0.0)
    admin = Counting(management_of(world.admin("secondary")))
    paired = await world.pair(**BRISK, secondary_admin=admin)
    await until(lambda: paired.queue_views()[0].pump_text.startswith("receiving"))
    admin.refusal = ClientAuthenticationError("no Manage")
    await delete(world, queue_path())
    await until(lambda: "cannot be made again" in paired.queue_views()[0].pump_text)
    admin.refusal = None
    await until(lambda: any("made again, with" in text for text in warnings(world)))
    await until(lambda: paired.queue_views()[0].pump_text.startswith("receiving"))


async def test_a_stranded_queue_that_is_gone_is_not_made_again(world: World) -> None:
    admin = Counting(management_of(world.admin("secondary")))
    paired = await world.pair(**BRISK, secondary_admin=admin)
    admin.created.clear()
    syphon = paired._syphon
    assert syphon is not None
    assert syphon._remake(0, queue_path(7)) is not syphon._remake(0, queue_path(0))
    assert await syphon._remake(7, queue_path(7))() == ""
    assert admin.created == []
