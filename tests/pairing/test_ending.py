"""How a pairing ends: closed, left alone by one of its clients, or crashed (SPEC.md section 9)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.errors import PairedClientError, PairingClosedError
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import InDoubt, Warned
from paired_servicebus.pairing import PairedServiceBusClient

from .conftest import World, until


def clients(paired: PairedServiceBusClient) -> dict[str, Any]:
    return {"primary": paired._primary, "secondary": paired._options.secondary_client}


async def close_under(client: Any) -> None:
    """The SDK walks over its handlers while a pump makes new ones, and stumbles: again, then."""
    for _ in range(3):
        with suppress(RuntimeError):
            await client.close()


@pytest.mark.parametrize("syphon", [True, False], ids=["with a syphon", "without one"])
@pytest.mark.parametrize("closed", ["primary", "secondary"])
async def test_a_client_that_is_closed_alone_faults_its_partner_after_the_grace(
    world: World, closed: str, syphon: bool
) -> None:
    """Section 9: "Once the primary or secondary faults or is closed without its partner also being faulted or closed,
    and the syphon detects this state, the syphon acts: the other has close_grace (5 s) to be closed too; then it is
    faulted (PairedClientError, naming both)"."""
    paired = await world.pair(close_grace=0.2, enable_syphon=syphon, send_timeout=30.0)
    sender = paired.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage(b"before"))
    await close_under(clients(paired)[closed])
    await until(lambda: paired._steering.ended is not None)
    with pytest.raises(PairedClientError) as refused:
        await sender.send_messages(ServiceBusMessage(b"after"))
    assert f"the client of {getattr(paired, closed + '_name')} was closed" in str(refused.value)
    assert paired.primary_name in str(refused.value)
    assert paired.secondary_name in str(refused.value)
    assert any(text.startswith(str(refused.value)) for text in paired.alarms())
    assert [warned.about for warned in world.told(Warned)].count("pairing") == 1
    await paired.close()
    assert await paired._client_watch.primary.is_closed()
    assert await paired._client_watch.secondary.is_closed()


async def test_a_partner_closed_within_the_grace_is_an_orderly_end(world: World) -> None:
    """Section 9: "the other has close_grace (5 s) to be closed too"."""
    paired = await world.pair(close_grace=60)
    sender = paired.get_queue_sender("orders")
    await close_under(clients(paired)["primary"])
    assert paired._steering.ended is None
    await close_under(clients(paired)["secondary"])
    await until(lambda: paired._steering.ended is not None)
    with pytest.raises(PairingClosedError, match="both namespaces' clients were closed"):
        await sender.send_messages(ServiceBusMessage(b"after"))


async def test_an_outage_of_both_namespaces_is_not_a_fault(world: World) -> None:
    """Section 9: "never a namespace's outage, which is what the pairing is for"."""
    paired = await world.pair(close_grace=0, enable_syphon=True, send_timeout=30.0)
    heal = [world.fault("refused"), world.fault("refused", namespace="secondary")]
    await until(lambda: any("receive" in queue.pump_text for queue in paired.queue_views()))
    for _ in range(3):
        assert not await paired._client_watch.primary.is_closed()
        assert not await paired._client_watch.secondary.is_closed()
    assert paired._steering.ended is None
    for mend in heal:
        mend()
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"after"))


async def test_a_crashed_task_of_ours_faults_both(world: World) -> None:
    """Section 9: "or a task of ours that owned it crashed"."""

    async def crash() -> None:
        raise KeyError("a bug")

    paired = await world.pair()
    paired._steering.tasks.start(crash(), name="crash")
    await until(lambda: paired._steering.ended is not None)
    with pytest.raises(PairedClientError, match=r"is faulted: a task of its own crashed \(KeyError\)") as refused:
        paired.get_queue_sender("orders")
    assert "a bug" in repr(refused.value.__cause__)
    await paired.close()
    assert await paired._client_watch.primary.is_closed()


async def test_closing_the_pairing_closes_both_sides_and_nothing_is_sent_after_it(world: World) -> None:
    """Section 9: "Closing the pairing closes both sides"."""
    paired = await world.pair(enable_syphon=True, send_timeout=30.0)
    sender = paired.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage(b"before"))
    await asyncio.gather(paired.close(), paired.close())
    assert await paired._client_watch.primary.is_closed()
    assert await paired._client_watch.secondary.is_closed()
    calls: list[Any] = [
        lambda: sender.send_messages(ServiceBusMessage(b"after")),
        lambda: sender.schedule_messages(ServiceBusMessage(b"after"), None),  # type: ignore[arg-type]
        lambda: sender.cancel_scheduled_messages(1),
    ]
    for call in calls:
        with pytest.raises(PairingClosedError, match="the pairing was closed"):
            await call()
    for get in (paired.get_queue_sender, paired.get_topic_sender, paired.get_queue_receiver):
        with pytest.raises(ValueError, match="the pairing was closed"):
            get("orders")
    assert world.depth("orders") == 1


async def test_a_send_in_hand_finishes(world: World) -> None:
    """Section 9: "sends in hand finish or raise"."""
    paired = await world.pair(send_timeout=30.0)
    sender = paired.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage(b"before"))
    heal = world.fault("unanswered")
    send = asyncio.create_task(sender.send_messages(ServiceBusMessage(b"in hand")))
    closing = asyncio.create_task(paired.close())
    await until(lambda: paired._steering.ended is not None)
    heal()
    found = await asyncio.gather(send, return_exceptions=True)
    await closing
    assert found == [None] or isinstance(found[0], PairingClosedError)


@pytest.mark.parametrize("forced", [False, True], ids=["to the primary", "to the backlog"])
async def test_a_send_in_hand_that_cannot_finish_raises_and_is_in_doubt(world: World, forced: bool) -> None:
    """Section 9: "sends in hand finish or raise; nothing is lost"."""
    paired = await world.pair(send_timeout=60.0, close_grace=0, backlog_queue_count=1)
    sender = paired.get_queue_sender("orders")
    if forced:
        paired.force("orders", by="kim")
    await sender.send_messages(ServiceBusMessage(b"before"))
    world.fault("unanswered", namespace="secondary" if forced else "primary")
    send = asyncio.create_task(sender.send_messages(ServiceBusMessage(b"in hand", message_id="in hand")))
    await asyncio.sleep(0.1)
    await paired.close()
    with pytest.raises(PairingClosedError):
        await send
    assert [event.message_id for event in world.told(InDoubt)] == ["in hand"]


async def test_a_send_that_waits_for_a_change_raises_at_once(world: World) -> None:
    """Section 9: "sends in hand finish or raise"."""
    paired = await world.pair(send_timeout=60.0, failover_interval=60, hold_until_failover=True)
    sender = paired.get_queue_sender("orders")
    world.fault("refused", entity="orders")
    send = asyncio.create_task(sender.send_messages(ServiceBusMessage(b"held")))
    await until(lambda: paired.entity_views()[0].state is State.SUSPECT)
    await paired.close()
    with pytest.raises(PairingClosedError, match="the pairing was closed"):
        await send


async def test_a_closed_sender_raises_and_moves_no_state(world: World) -> None:
    paired = await world.pair(failover_interval=0, send_timeout=30.0)
    sender = paired.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage(b"before"))
    await sender.close()
    with pytest.raises(ValueError, match="the sender for orders is closed"):
        await sender.send_messages(ServiceBusMessage(b"after"))
    assert paired.entity_views()[0].state is State.HEALTHY
    assert world.told(InDoubt) == []


async def test_a_closed_sender_parks_nothing_while_its_entity_is_failed_over(world: World) -> None:
    paired = await world.pair(failover_interval=0)
    world.fault("refused", entity="orders")
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"parked"))
    assert world.parked() == 1
    calls: list[Coroutine[Any, Any, Any]] = [
        sender.send_messages(ServiceBusMessage(b"after")),
        sender.schedule_messages(ServiceBusMessage(b"after"), datetime.now(UTC)),
        sender.cancel_scheduled_messages(1),
        sender.__aenter__(),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="the sender for orders is closed"):
            await call
    assert world.parked() == 1
    await sender.close()


@pytest.mark.parametrize("pump", ["sdk", "amqp"])
async def test_locks_in_hand_are_released(world: World, pump: str) -> None:
    """Section 9: "locks in hand are released"."""
    paired = await world.pair(enable_syphon=True, pump=pump, backlog_queue_count=1, send_timeout=60.0, close_grace=0)
    world.fault("unanswered", entity="orders")
    async with world.to_backlog() as sender:
        await sender.send_messages(ServiceBusMessage(b"x", application_properties={"x-ms-path": "orders"}))
    backlog = world.sandbox["secondary"].node.namespace.queue("primary/x-servicebus-transfer/0")
    await until(lambda: any(stored.lock_token for stored in backlog.messages.peek(0, 1)))
    await paired.close()
    (again,) = await world.received("primary/x-servicebus-transfer/0", 1, namespace="secondary")
    assert b"".join(again.body) == b"x"
