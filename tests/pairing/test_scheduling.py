"""Messages for later: at the primary by its numbers, and through the backlog while failed over (SPEC.md 7.5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.errors import ScheduledInBacklogError

from .backlogs import lying_in
from .conftest import World, until

SCHEDULED = 2
PATIENT = {"send_timeout": 30.0, "backlog_queue_count": 1}


def later() -> datetime:
    return datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)


async def test_scheduling_and_cancelling_work_under_a_pairing(world: World) -> None:
    """Section 7.5: "schedule_messages and cancel_scheduled_messages work under a pairing"."""
    paired = await world.pair(**PATIENT)
    async with paired.get_queue_sender("orders") as sender:
        numbers = await sender.schedule_messages([ServiceBusMessage(b"x") for _ in range(2)], later())
        assert [stored.sequence_number for stored in lying_in(world, "orders")] == numbers
        await sender.cancel_scheduled_messages(numbers[0])
    assert [stored.sequence_number for stored in lying_in(world, "orders")] == numbers[1:]


async def test_numbers_given_while_failed_over_are_negative_and_cannot_be_cancelled(world: World) -> None:
    """Section 7.5: "A number given while failed over is negative, since no queue of the primary has given one;
    cancelling it raises an error that names the message_id"."""
    paired = await world.pair(**PATIENT)
    paired.watch("orders")
    paired.force("orders", by="kim")
    async with paired.get_queue_sender("orders") as sender:
        messages = [ServiceBusMessage(b"x", message_id=name) for name in ("first", "second")]
        numbers = await sender.schedule_messages(messages, later())
        assert [number < 0 for number in numbers] == [True, True]
        with pytest.raises(ScheduledInBacklogError, match="'second'"):
            await sender.cancel_scheduled_messages(numbers[1])
    assert world.parked(1) == 2


async def test_what_was_scheduled_into_the_backlog_is_scheduled_at_its_destination(world: World) -> None:
    """Section 7.2: "scheduled_enqueue_time_utc: cleared, and kept as application property"."""
    when = later()
    paired = await world.pair(enable_syphon=True, **PATIENT)
    paired.pause_syphon(by="kim")
    paired.watch("orders")
    paired.force("orders", by="kim")
    async with paired.get_queue_sender("orders") as sender:
        await sender.schedule_messages(ServiceBusMessage(b"x"), when)
    paired.resume_syphon(by="kim")
    paired.pin("orders", by="kim")
    await until(lambda: lying_in(world, "orders"))
    (stored,) = lying_in(world, "orders")
    assert stored.state == SCHEDULED
    async with world.client("primary") as client, client.get_queue_receiver("orders") as receiver:
        (peeked,) = await receiver.peek_messages(1)
    assert peeked.scheduled_enqueue_time_utc == when
