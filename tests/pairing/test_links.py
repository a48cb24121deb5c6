"""Links that stand ready: cut while idle, kept open for the backlog, handed over at the failback."""

from __future__ import annotations

import asyncio

import pytest
from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import PingAccepted, StateChanged, Warned
from paired_servicebus.pairing.runtime.deadlines import TaskOwner
from paired_servicebus.pairing.sending import backlog_links, sender_link
from paired_servicebus.pairing.sending.amqp_link import BacklogLink
from paired_servicebus.pairing.sending.sdk_messages import encoded
from paired_servicebus.pairing.sending.sender_link import SdkSenderLink

from .backlogs import bodies_in
from .conftest import World, until
from .test_outage import state

PATIENT = {"send_timeout": 30.0}


def grow_old(world: World, namespace: str = "primary") -> None:
    """Eleven minutes in which nothing passes: the namespace cuts idle links."""
    node = world.sandbox[namespace].node
    node.clock.advance(660)
    node.clock_jumped()


async def test_a_link_that_was_cut_while_idle_is_no_failure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 6: "While healthy, no behavior changes occur": a quiet entity does not fail over for its quiet."""
    monkeypatch.setattr(sender_link, "IDLE_SECONDS", 0.0)
    paired = await world.pair(failover_interval=0, **PATIENT)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"one"))
        grow_old(world)
        await sender.send_messages(ServiceBusMessage(b"two"))
    assert (world.depth("orders"), world.parked()) == (2, 0)
    assert state(paired, "orders") is State.HEALTHY


async def test_a_link_that_breaks_in_use_is_a_failure(world: World) -> None:
    """Section 5: "connection refused, reset, lost" counts."""
    paired = await world.pair(failover_interval=0, **PATIENT)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"one"))
        grow_old(world)
        await sender.send_messages(ServiceBusMessage(b"two"))
    assert (world.depth("orders"), world.parked()) == (1, 1)


async def test_backlog_links_stand_ready_before_they_are_needed(world: World) -> None:
    """Links that will be needed are open before they are needed: one per backlog queue and process, shared."""
    paired = await world.pair(backlog_queue_count=3, **PATIENT)
    await until(lambda: all(queue.link.is_open for queue in paired._standby.queues.values()))
    first, second = paired.get_queue_sender("orders"), paired.get_topic_sender("audit")
    assert first._backlog is second._backlog


async def test_an_idle_backlog_link_is_opened_anew_before_it_is_cut(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog_links, "RENEW_AFTER_SECONDS", 0.1)
    monkeypatch.setattr(backlog_links, "CHECK_SECONDS", 0.05)
    paired = await world.pair(backlog_queue_count=1, **PATIENT)
    link = paired._standby.queues[0].link
    await until(lambda: link.is_open)
    assert isinstance(link, BacklogLink)
    first = link._link._attachment
    await until(lambda: link._link._attachment is not first)
    paired.watch("orders")
    paired.force("orders", by="kim")
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))
    assert world.parked(1) == 1


async def test_backlog_links_open_by_themselves_once_the_secondary_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secondary as well: recovery with no restart."""
    monkeypatch.setattr(backlog_links, "CHECK_SECONDS", 0.05)
    down = world.sandbox["secondary"].node.faults
    paired = await world.pair(backlog_queue_count=1, **PATIENT)
    link = paired._standby.queues[0].link
    await until(lambda: link.is_open)
    begun = down.add("refused")
    assert isinstance(link, BacklogLink)
    link._link.retire()
    await until(lambda: [warned.about for warned in world.told(Warned)] == ["secondary"])
    down.remove(begun.id)
    await until(lambda: link.is_open)
    assert len(world.told(Warned)) == 1  # said once, not with every try


async def test_at_the_failback_one_sender_has_the_pings_link_and_the_others_use_it_until_theirs_are_open(
    world: World,
) -> None:
    """Section 6: "all senders use the primary at once, pings stop": no send waits for a link to open."""
    paired = await world.pair(failover_interval=0, ping_primary_interval=1.0, ping_timeout=30.0, **PATIENT)
    senders = [paired.get_queue_sender("orders") for _ in range(3)]
    for sender in senders:
        await sender.send_messages(ServiceBusMessage(b"before"))
    heal = world.fault("refused", entity="orders")
    for sender in senders:
        await sender.send_messages(ServiceBusMessage(b"during"))
    seen: list[list[bool]] = []

    def look(event: object) -> None:
        """In the very turn of the failback, right after it."""
        if isinstance(event, StateChanged) and event.now == State.HEALTHY:
            paired._steering.tasks.start(note(), name="a look at the links")

    async def note() -> None:
        seen.append([paired._primaries.nearest(sender._primary).is_open for sender in senders])

    world.also = look
    heal()
    await until(lambda: seen)
    assert seen == [[True, True, True]]
    assert world.told(PingAccepted)
    await until(lambda: all(sender._primary.is_open for sender in senders))
    for sender in senders:
        await sender.send_messages(ServiceBusMessage(b"after"))
    assert world.depth("orders") == 6


async def test_a_released_entity_has_its_links_opened_again(world: World) -> None:
    """Section 6: "release clears forced or pinned"."""
    paired = await world.pair(**PATIENT)
    sender = paired.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage(b"before"))
    paired.force("orders", by="kim")
    sender._primary.discard()
    paired.pin("orders", by="kim")
    await until(lambda: sender._primary.is_open)
    await sender.send_messages(ServiceBusMessage(b"after"))
    assert world.depth("orders") == 2


async def test_a_link_that_is_being_closed_stands_in_for_no_other(world: World) -> None:
    """One sender's end is not another's failure."""
    paired = await world.pair(**PATIENT)
    closing = paired.get_queue_sender("orders")
    await closing.send_messages(ServiceBusMessage(b"x"))
    link = closing._primary
    assert link._lock.acquire_nowait()
    ending = asyncio.create_task(closing.close())
    await asyncio.sleep(0)
    assert not link.is_open
    link._lock.release()
    await ending


@pytest.mark.parametrize("count", [1, 2])
async def test_bytes_arrive_whole_over_a_link_of_the_sdk_that_opens_for_them(world: World, count: int) -> None:
    """An accepted message is never lost: what arrives is what was sent."""
    names = [f"m{number}" for number in range(count)]
    messages = [encoded(ServiceBusMessage(b"x", message_id=name)) for name in names]
    await (tasks := TaskOwner()).open()
    async with world.client("primary") as client:
        link = SdkSenderLink(client, "orders", tasks)
        await link.send(messages, 30.0)
        link.discard()
        await link.send(link.batch().filled(messages), 30.0)
        await link.close()
    await tasks.close()
    assert world.ids_in("orders") == names * 2
    assert bodies_in(world, "orders") == [b"x"] * (2 * count)
