"""Unused backlog queues: what is listed, and that nothing is deleted without proof (SPEC.md section 4.3)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.core.exceptions import ServiceRequestError
from azure.servicebus.exceptions import MessagingEntityDisabledError

from paired_servicebus.core.backlog.depth_readings import GrowthDetector, QueueUsage
from paired_servicebus.core.errors import CleanUpError, IllegalEventError, WireLinkError
from paired_servicebus.pairing.management.management_port import Depth, QueueStatus
from paired_servicebus.pairing.monitoring import unused_queues as module
from servicebus_sandbox.broker.message import MessageState

from .backlogs import parked, put, queue_path
from .conftest import World, until

SPARE = queue_path(7)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.01)
    monkeypatch.setattr(module, "RECEIVE_SECONDS", 0.01)


async def paired_beside(world: World, *paths: str, **options: Any) -> Any:
    """A pairing of two queues, and others that are there besides; all of them quiet."""
    async with world.admin("secondary") as admin:
        for path in paths or (SPARE,):
            await admin.create_queue(path)
    paired = await world.pair(**{"quiet_period": 1.0} | options)
    paired.looks.ask()
    await until(lambda: paired.unused_view().read_at is not None)
    return paired


def quiet(world: World, path: str, seconds: float = 3600.0) -> None:
    """As if nobody had used the queue for so long."""
    queue = world.sandbox["secondary"].node.namespace.queue(path)
    for part in (queue.messages, queue.dead_letters):
        part.accessed_at -= seconds
    queue.intake.last_send_at -= seconds


async def status_of(world: World, path: str) -> str:
    async with world.admin("secondary") as admin:
        return str((await admin.get_queue(path)).status)


async def exists(world: World, path: str) -> bool:
    async with world.admin("secondary") as admin:
        return path in [queue.name async for queue in admin.list_queues()]


async def test_unused_are_integer_indices_that_no_known_engine_uses_and_nothing_else(world: World) -> None:
    """Section 4.3: "*Unused* = under the prefix, an integer index that no known engine uses …; anything else under the
    namespace is none of our business"."""
    others = ("primary/x-servicebus-transfer/old", "primary/x-servicebus-transfer/08", "other/7")
    paired = await paired_beside(world, SPARE, queue_path(12), queue_path(13), *others)
    paired.know_usage(QueueUsage(frozenset({0, 13})))
    assert [one.index for one in paired.unused_view().queues] == [7, 12]
    one = paired.unused_view().queues[0]
    assert (one.path, one.status, one.messages, one.dead_lettered) == (SPARE, "Active", 0, 0)
    assert one.created_at is not None
    assert any("MaxDeliveryCount" in text for text in one.differences)


async def test_an_empty_quiet_one_that_was_named_is_deleted(world: World) -> None:
    paired = await paired_beside(world)
    quiet(world, SPARE)
    said = await paired.clean_up(SPARE)
    assert f"{SPARE} was deleted" in said
    assert "closed to senders, then empty of messages and dead letters" in said
    assert not await exists(world, SPARE)
    assert paired.unused_view().queues == ()


async def test_one_that_was_active_within_the_quiet_period_stays(world: World) -> None:
    """Section 4.3: "only unused queues whose last activity is older than a quiet period (default 15 min, since a sent
    message can take that long to appear)"."""
    paired = await paired_beside(world, quiet_period=900.0)
    quiet(world, SPARE, 600.0)
    with pytest.raises(CleanUpError, match="a sent message can take 900 s to appear"):
        await paired.clean_up(SPARE)
    assert "ACTIVE" in (await status_of(world, SPARE)).upper()


async def test_one_that_holds_messages_stays(world: World) -> None:
    paired = await paired_beside(world)
    put(world, [parked("orders", "m1")], path=SPARE)
    quiet(world, SPARE)
    with pytest.raises(CleanUpError, match="1 messages and 0 dead letters are in it; move the stranded messages first"):
        await paired.clean_up(SPARE)


@pytest.mark.parametrize("where", ["queue", "dead-letter queue"])
async def test_counts_of_zero_are_no_proof(world: World, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 4.3: "looked into with peek (queue and dead-letter queue: counts read 0 while a namespace throttles),
    then deleted, or set back to Active"."""
    paired = await paired_beside(world)
    put(world, [parked("orders", "m1")], path=SPARE)
    if where == "dead-letter queue":
        async with world.client("secondary") as client, client.get_queue_receiver(SPARE) as receiver:
            (message,) = await receiver.receive_messages(1, max_wait_time=10)
            await receiver.dead_letter_message(message)
    quiet(world, SPARE)

    async def zeros(path: str) -> Depth:
        return Depth(messages=0, dead_lettered=0, size_bytes=0, last_active=1.0)

    monkeypatch.setattr(paired._admin, "depth", zeros)
    with pytest.raises(CleanUpError, match=f"a message was seen in its {where}, despite its counts"):
        await paired.clean_up(SPARE)
    assert await status_of(world, SPARE) == QueueStatus.ACTIVE


async def test_one_that_is_used_while_it_is_looked_at_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    paired = await paired_beside(world)
    quiet(world, SPARE)
    wait = asyncio.sleep

    async def meanwhile(seconds: float) -> None:
        if seconds == module.SETTLE_SECONDS:
            world.sandbox["secondary"].node.namespace.queue(SPARE).messages.accessed_at += 60
        await wait(min(seconds, 0.05))

    monkeypatch.setattr(module.asyncio, "sleep", meanwhile)
    with pytest.raises(CleanUpError, match="it was used"):
        await paired.clean_up(SPARE)
    assert await status_of(world, SPARE) == QueueStatus.ACTIVE


async def test_while_it_is_looked_at_nobody_can_send_to_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 4.3: "set to SendDisabled, waited, looked into"."""
    paired = await paired_beside(world)
    quiet(world, SPARE)
    seen: list[str] = []
    prove = paired._unused._prove_empty

    async def watching(path: str, before: Depth) -> None:
        seen.append(await status_of(world, path))
        await prove(path, before)

    monkeypatch.setattr(paired._unused, "_prove_empty", watching)
    await paired.clean_up(SPARE)
    assert seen == [QueueStatus.SEND_DISABLED]


@pytest.mark.parametrize("call", ["queues", "depth", "set_status", "delete_queue"])
async def test_where_management_fails_it_stays_and_is_open(
    world: World, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 10: "unable to manage: … clean-up refused"."""
    paired = await paired_beside(world)
    quiet(world, SPARE)
    real = getattr(paired._admin, call)
    broken = True

    async def fails(*arguments: Any) -> Any:
        if broken and (call != "set_status" or arguments[1] is QueueStatus.SEND_DISABLED):
            raise ServiceRequestError("no route")
        return await real(*arguments)

    monkeypatch.setattr(paired._admin, call, fails)
    with pytest.raises(CleanUpError, match=f"{SPARE} stays"):
        await paired.clean_up(SPARE)
    broken = False
    assert await status_of(world, SPARE) == QueueStatus.ACTIVE


async def test_a_listing_that_fails_is_said_and_keeps_what_was_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    paired = await paired_beside(world)

    async def fails(prefix: str) -> Any:
        raise ServiceRequestError("no route")

    monkeypatch.setattr(paired._admin, "queues", fails)
    before = paired.unused_view()
    await paired._unused.look()
    assert paired.unused_view().trouble
    assert (paired.unused_view().queues, paired.unused_view().read_at) == (before.queues, before.read_at)


@pytest.mark.parametrize("path", [queue_path(0), "primary/x-servicebus-transfer/old", "orders"])
async def test_what_is_used_or_is_no_backlog_queue_is_never_touched(world: World, path: str) -> None:
    paired = await paired_beside(world)
    with pytest.raises(IllegalEventError):
        await paired.clean_up(path)


@pytest.mark.parametrize("asked", [1, 2], ids=["at the start", "right before the deletion"])
async def test_one_that_another_engine_uses_stays(world: World, asked: int) -> None:
    """Section 4.3: "*Unused* = under the prefix, an integer index that no known engine uses"; also one that an engine
    began to use while the queue was looked into."""
    paired = await paired_beside(world)
    quiet(world, SPARE)
    calls: list[int] = []

    async def elsewhere() -> frozenset[int]:
        calls.append(len(calls) + 1)
        return frozenset({7}) if len(calls) == asked else frozenset({3, 8})

    with pytest.raises(CleanUpError, match=f"{SPARE} stays: another engine on this machine uses it"):
        await paired.clean_up(SPARE, elsewhere=elsewhere)
    assert len(calls) == asked
    assert await status_of(world, SPARE) == QueueStatus.ACTIVE


async def test_one_that_only_its_number_speaks_against_is_deleted(world: World) -> None:
    """Another engine uses more queues, and not this one: its indices have a gap."""
    paired = await paired_beside(world)
    quiet(world, SPARE)

    async def elsewhere() -> frozenset[int]:
        return frozenset(range(20)) - {7}

    assert "was deleted" in await paired.clean_up(SPARE, elsewhere=elsewhere)


async def test_one_whose_status_its_owner_set_stays(world: World) -> None:
    paired = await paired_beside(world)
    async with world.admin("secondary") as admin:
        queue = await admin.get_queue(SPARE)
        queue.status = "ReceiveDisabled"
        await admin.update_queue(queue)
    quiet(world, SPARE)
    with pytest.raises(CleanUpError, match="its status is ReceiveDisabled"):
        await paired.clean_up(SPARE)


async def test_what_is_stranded_is_moved_on_order_and_the_queue_can_go_then(world: World) -> None:
    """Section 4.3: "Stranded messages are moved on an operator's order, never silently"."""
    async with world.admin("primary") as admin:
        await admin.create_queue("stranded-for")
    paired = await paired_beside(world, enable_syphon=True)
    put(world, [parked("stranded-for", "m1")], path=SPARE)
    paired._unused._growing = GrowthDetector()  # it was there before this engine
    await paired._unused.look()
    (alarm,) = [text for text in paired.alarms() if "stranded" in text]
    index = int(SPARE.rpartition("/")[2])
    assert alarm.startswith(f"1 message is stranded in backlog queue {index}, which no engine known here uses -> move")
    assert f"set backlog_queue_count to {index + 1} or more" in alarm
    assert world.depth(SPARE, namespace="secondary") == 1
    assert "1 messages" in await paired.move_stranded(SPARE)
    await paired._unused.look()
    assert not [text for text in paired.alarms() if "stranded" in text]
    quiet(world, SPARE)
    await paired.clean_up(SPARE)
    (message,) = await world.received("stranded-for", 1)
    assert message.message_id == "m1"


class RefusedPeeks:
    """A namespace that refuses peeks on a queue that is closed to senders."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, world: World, *, receives: bool = True) -> None:
        self.refused = 0
        peek = module.UnusedQueues._peek

        async def refuse(unused: Any, path: str, sub_queue: Any) -> bool:
            if await status_of(world, path) == QueueStatus.SEND_DISABLED:
                self.refused += 1
                raise MessagingEntityDisabledError(message="it is currently disabled for Send operations.")
            return await peek(unused, path, sub_queue)

        monkeypatch.setattr(module.UnusedQueues, "_peek", refuse)
        monkeypatch.setattr(module, "RECEIVE_SECONDS", 0.5)
        if not receives:

            async def refuse_too(unused: Any, path: str) -> bool:
                raise WireLinkError(f"{path} refused a link: no", "amqp:unauthorized-access")

            monkeypatch.setattr(module.UnusedQueues, "_receive", refuse_too)


async def test_an_empty_queue_is_deleted_where_a_closed_one_refuses_peeks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a namespace refuses on a closed queue is unknown until seen. Clean-up proves emptiness by what works."""
    refuses = RefusedPeeks(monkeypatch, world)
    paired = await paired_beside(world)
    quiet(world, SPARE)
    assert f"{SPARE} was deleted" in await paired.clean_up(SPARE)
    assert refuses.refused == 2
    assert not await exists(world, SPARE)


@pytest.mark.parametrize("where", ["queue", "dead-letter queue"])
async def test_a_message_that_came_late_is_received_and_released(
    world: World, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """… counts twice, and peek, else receive and release (queue and dead-letter queue, lock given back, delivery count
    unchanged)."""
    RefusedPeeks(monkeypatch, world)
    paired = await paired_beside(world)
    quiet(world, SPARE)
    queue = world.sandbox["secondary"].node.namespace.queue(SPARE)
    part = queue.dead_letters if where == "dead-letter queue" else queue.messages
    set_status = paired._admin.set_status

    async def arrives(path: str, status: QueueStatus) -> None:
        if status is QueueStatus.SEND_DISABLED:
            put(world, [parked("orders", "m1")], path=SPARE)
            if where == "dead-letter queue":
                async with world.client("secondary") as client, client.get_queue_receiver(SPARE) as receiver:
                    (message,) = await receiver.receive_messages(1, max_wait_time=10)
                    await receiver.dead_letter_message(message)
        await set_status(path, status)

    async def zeros(path: str) -> Depth:
        return Depth(messages=0, dead_lettered=0, size_bytes=0, last_active=1.0)

    monkeypatch.setattr(paired._admin, "set_status", arrives)
    monkeypatch.setattr(paired._admin, "depth", zeros)
    with pytest.raises(CleanUpError, match=f"a message was seen in its {where}, despite its counts"):
        await paired.clean_up(SPARE)
    assert await status_of(world, SPARE) == QueueStatus.ACTIVE
    (kept,) = part.peek(0, 10)
    assert (kept.delivery_count, kept.state) == (0, MessageState.ACTIVE)


async def test_a_queue_that_permits_neither_stays_and_says_why(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """If neither is permitted it says that it closed the queue, opened it again, and why it stays."""
    RefusedPeeks(monkeypatch, world, receives=False)
    paired = await paired_beside(world)
    quiet(world, SPARE)
    told = "stays, open again: .* neither a peek .entity disabled. nor a receive .not authorized"
    with pytest.raises(CleanUpError, match=told):
        await paired.clean_up(SPARE)
    assert await status_of(world, SPARE) == QueueStatus.ACTIVE
