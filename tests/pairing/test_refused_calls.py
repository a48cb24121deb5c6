"""Calls that end in an error at their caller are counted, said and explained."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError, ServiceBusError

from paired_servicebus.core.errors import (
    BacklogUnavailableError,
    PairedClientError,
    PairingClosedError,
    ReservedPropertyError,
)
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import EntityView
from paired_servicebus.pairing import PairedServiceBusClient
from tests.pairing.conftest import World, until, world

__all__ = ["world"]


def view(paired: PairedServiceBusClient, path: str = "orders") -> EntityView:
    return next(one for one in paired.entity_views() if one.path == path)


async def test_both_namespaces_down_is_nowhere_with_an_alarm_and_over_again(world: World) -> None:
    """Calls that end in an error at the caller are counted as such."""
    paired = await world.pair(failover_interval=0, backlog_queue_count=2)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"before"))
        before = view(paired)
        assert (before.refused, before.refused_since, before.first_failure_at) == (0, None, None)
        heal = [world.fault("refused"), world.fault("refused", namespace="secondary")]
        for number in (1, 2):
            with pytest.raises(BacklogUnavailableError) as raised:
                await sender.send_messages([ServiceBusMessage(b"x")] * number)
        found = view(paired)
        assert (found.route, found.refused, found.refusals) == ("nowhere", 3, (("no backlog queue took it", 3),))
        assert found.refused_per_second > 0
        assert found.refused_since is not None
        assert found.first_failure_at == pytest.approx(found.since, abs=0.5)
        (alarm,) = [one for one in paired.alarms() if one.startswith("sends are refused: ")]
        assert "(no backlog queue took it) -> " in alarm
        assert raised.value.__notes__[0].startswith("paired namespaces: ")
        assert "orders is failed over" in raised.value.__notes__[0]
        for each in heal:
            each()
        await until(lambda: view(paired).state is State.HEALTHY)
        await sender.send_messages(ServiceBusMessage(b"after"))
    after = view(paired)
    assert (after.route, after.refused, after.refused_since, after.first_failure_at) == ("primary", 3, None, None)


async def test_a_right_that_is_missing_is_counted_with_its_reason_though_nothing_fails_over(world: World) -> None:
    paired = await world.pair()
    heal = world.fault("unauthorized", entity="orders")
    sender = paired.get_queue_sender("orders")
    with pytest.raises((ServiceBusAuthenticationError, ServiceBusAuthorizationError)):
        await sender.send_messages(ServiceBusMessage(b"x"))
    found = view(paired)
    assert (found.state, found.route, found.refused) == (State.UNKNOWN, "primary", 1)
    assert found.refusals[0][0] in ("not authorized", "not authenticated")
    assert found.refused_since is not None
    heal()
    await sender.send_messages(ServiceBusMessage(b"y"))
    assert view(paired).refused_since is None


async def test_schedules_and_calls_after_the_end_are_counted_and_mistakes_of_the_application_are_not(
    world: World,
) -> None:
    paired = await world.pair(hold_until_failover=False)
    sender = paired.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage(b"before"))
    reserved = ServiceBusMessage(b"x", application_properties={"x-ms-path": "a"})
    for mistake, error in (
        (sender.send_messages(reserved), ReservedPropertyError),
        (sender.send_messages(ServiceBusMessage(b"x"), timeout=-1), ValueError),
    ):
        with pytest.raises(error):
            await mistake
    assert view(paired).refused == 0
    world.fault("refused", entity="orders")
    with pytest.raises(ServiceBusError):
        await sender.schedule_messages([ServiceBusMessage(b"x")] * 2, datetime.now(UTC) + timedelta(days=1))
    assert view(paired).refused == 2
    await paired.close()
    with pytest.raises((PairingClosedError, PairedClientError)):
        await sender.send_messages(ServiceBusMessage(b"x"))
    found = view(paired)
    assert found.refused == 3
    assert dict(found.refusals)["the pairing is closed"] == 1


async def test_a_call_that_its_caller_cancels_is_not_refused(world: World) -> None:
    paired = await world.pair(send_timeout=5.0)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"before"))
        world.fault("unanswered", entity="orders")
        call = asyncio.create_task(sender.send_messages(ServiceBusMessage(b"x")))
        await until(lambda: world.depth("orders") == 2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert view(paired).refused == 0


async def test_a_misspelt_queue_is_named_by_its_error(world: World) -> None:
    """The SDK calls it an authentication error."""
    paired = await world.pair()
    with pytest.raises(ServiceBusAuthenticationError) as raised:
        await paired.get_queue_sender("ordres").send_messages(ServiceBusMessage(b"x"))
    (note,) = raised.value.__notes__
    assert note.startswith("paired namespaces: the latest attempt ended with entity not found; ordres is suspect: ")
    assert view(paired, "ordres").refusals == (("entity not found", 1),)
