"""A pairing that starts although its secondary does not answer, where its owner wants that."""

from __future__ import annotations

import time

import pytest
from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.errors import BacklogUnavailableError, NamespaceUnreachableError
from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.pairing import degraded, opening
from paired_servicebus.pairing.management import backlog_queues

from .backlogs import queue_path
from .conftest import World, until
from .test_opening import wrong_key


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "START_SECONDS", 0.2)
    monkeypatch.setattr(degraded, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(degraded, "TRY_SECONDS", 0.2)
    monkeypatch.setattr(backlog_queues, "RETRY_SECONDS", 0.05)


def alarms(paired: object) -> list[str]:
    return [text for text in paired.alarms() if text.startswith("the pairing started degraded: ")]  # type: ignore[attr-defined]


async def test_sends_go_to_the_primary_and_the_pairing_is_completed_when_the_secondary_answers(world: World) -> None:
    """`start_degraded`: pair though the secondary does not answer, and keep trying in the background."""
    heal = world.fault("refused", namespace="secondary")
    paired = await world.pair(start_degraded=True, ping_primary_interval=30.0, send_timeout=60.0)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
        assert world.depth("orders") == 1
        (alarm,) = alarms(paired)
        assert "sends that need the backlog are refused until a try to complete it succeeds" in alarm
        assert (paired.backlog_queue_count, paired.backlog_queue_indices) == (0, ())
        assert not any(queue.in_rotation for queue in paired.queue_views())
        paired.force("orders", by="ada")
        began = time.monotonic()
        with pytest.raises(BacklogUnavailableError, match=r"no backlog queue .* You still own it"):
            await sender.send_messages(ServiceBusMessage("y"))
        assert time.monotonic() - began < 30.0  # at once, rather than when the time of the send is over
        heal()
        await until(lambda: not alarms(paired) and any(queue.in_rotation for queue in paired.queue_views()))
        await sender.send_messages(ServiceBusMessage("y"))
    assert sum(world.depth(queue_path(index), namespace="secondary") for index in range(2)) == 1
    assert (paired.backlog_queue_count, paired.secondary_name) == (2, "secondary")
    assert "the secondary answers: the pairing is complete" in [event.text for event in world.told(Warned)]


async def test_a_mistake_is_raised_all_the_same(world: World) -> None:
    """Section 4.5: "bad credentials, failed creation etc. are raised by the awaited pairing call itself"."""
    admin = world.admin("secondary", wrong_key(world))
    async with admin:
        with pytest.raises(NamespaceUnreachableError, match="check the key or the role"):
            await world.pair(start_degraded=True, secondary_admin=admin)


async def test_without_the_option_an_outage_of_the_secondary_ends_pairing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fault("refused", namespace="secondary")
    ensure = backlog_queues.ensure
    monkeypatch.setattr(backlog_queues, "ensure", lambda *given, **named: ensure(*given, **named, patience=0.1))
    with pytest.raises(NamespaceUnreachableError, match="start_degraded") as refused:
        await world.pair()
    assert refused.value.is_outage
