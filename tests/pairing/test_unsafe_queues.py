"""Backlog queues whose settings can lose an accepted message (SPEC.md section 4.2)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.errors import BacklogQueueError
from paired_servicebus.core.failover.send_router import Rotation
from servicebus_sandbox.broker.entity_settings import QueueSettings

from .backlogs import queue_path
from .conftest import World, until

USUAL = QueueSettings(
    max_size_mb=5120,
    max_delivery_count=2147483647,
    default_ttl=None,
    auto_delete_on_idle=None,
    lock_duration=timedelta(minutes=1),
    dead_letter_on_expiration=True,
)
UNSAFE: dict[str, tuple[dict[str, Any], str]] = {
    "duplicate detection": ({"requires_duplicate_detection": True}, "RequiresDuplicateDetection"),
    "time to live": (
        {"default_ttl": timedelta(hours=1), "dead_letter_on_expiration": False},
        "DefaultMessageTimeToLive 1:00:00",
    ),
    "idle": ({"auto_delete_on_idle": timedelta(minutes=5)}, "AutoDeleteOnIdle 0:05:00"),
    "forwarding": ({"forward_to": "elsewhere"}, "ForwardTo"),
    "dead letters forwarded": ({"forward_dead_lettered_to": "elsewhere"}, "ForwardDeadLetteredMessagesTo"),
    "sessions": ({"requires_session": True}, "RequiresSession"),
}
TOGETHER = {name: value for changes, _ in list(UNSAFE.values())[:3] for name, value in changes.items()}


def make(world: World, *indices: int, **changes: Any) -> None:
    namespace = world.sandbox["secondary"].node.namespace
    if "elsewhere" in changes.values():
        namespace.create_queue("elsewhere", QueueSettings())
    for index in indices:
        namespace.create_queue(queue_path(index), replace(USUAL, **changes))


@pytest.mark.parametrize(("changes", "setting"), [*UNSAFE.values(), (TOGETHER, "RequiresDuplicateDetection")])
async def test_a_queue_that_can_lose_messages_gets_none(world: World, changes: dict[str, Any], setting: str) -> None:
    """… except one that can lose an accepted message … It stays out of the rotation, with an alarm that names setting,
    queue and remedy."""
    make(world, 1, **changes)
    paired = await world.pair(backlog_queue_count=3, enable_syphon=True)
    (view,) = [view for view in paired.queue_views() if not view.in_rotation]
    assert (view.index, setting in view.pulled_reason) == (1, True)
    (alarm,) = [alarm for alarm in paired.alarms() if "gets no messages" in alarm]
    assert alarm.startswith("backlog queue 1 ")
    assert setting in alarm
    assert any(word in alarm for word in ("delete the empty queue", "set it to the maximum", "remove it"))
    checked = {finding.what: finding for finding in (await paired.check()).findings}
    assert f"{queue_path(1)} gets no messages: {setting}" in checked["send to the backlog"].evidence
    paired.watch("orders")
    paired.watch("payments")
    for path in ("orders", "payments"):
        paired.force(path, by="ada")
    for number in range(12):
        for path in ("orders", "payments"):  # one id for two entities
            async with paired.get_queue_sender(path) as sender:
                await sender.send_messages(ServiceBusMessage("event", message_id=f"event-{number}", session_id="s"))
    namespace = world.sandbox["secondary"].node.namespace
    assert len(namespace.queue(queue_path(1)).messages.peek(0, 100)) == 0
    for path in ("orders", "payments"):
        paired.pin(path, by="ada")
    await until(lambda: (world.depth("orders"), world.depth("payments")) == (12, 12), 60)


@pytest.mark.parametrize(("changes", "setting"), UNSAFE.values())
async def test_there_is_no_pairing_without_a_safe_queue(world: World, changes: dict[str, Any], setting: str) -> None:
    """… and pairing raises `BacklogQueueError` if there is none from the start."""
    make(world, 0, 1, **changes)
    with pytest.raises(BacklogQueueError, match=f"each of the 2 backlog queues .* can lose messages .*{setting}"):
        await world.pair(backlog_queue_count=2)


async def test_check_is_not_ready_when_none_is_left_and_recovers(world: World) -> None:
    """`check` is not ready when none is left."""
    paired = await world.pair(backlog_queue_count=1)
    namespace = world.sandbox["secondary"].node.namespace
    namespace.update_queue(queue_path(0), replace(USUAL, auto_delete_on_idle=timedelta(minutes=5)))
    paired._inspection._settings_at = 0.0
    found = await paired.check()
    assert not found.ready
    assert "AutoDeleteOnIdle" in next(one for one in found.findings if one.what == "send to the backlog").evidence
    namespace.update_queue(queue_path(0), USUAL)
    paired._inspection._settings_at = 0.0
    await until(lambda: paired.queue_views()[0].in_rotation is False)
    await paired.check()
    await until(lambda: paired.queue_views()[0].in_rotation, 60)
    assert (await paired.check()).ready


async def test_expiry_with_dead_lettering_is_a_difference_and_no_hazard(world: World) -> None:
    """A finite time to live with dead-lettering on expiry is a difference, and its messages are counted and re-driven
    like any dead letter."""
    make(world, 0, default_ttl=timedelta(hours=1))
    paired = await world.pair(backlog_queue_count=1)
    (view,) = paired.queue_views()
    assert (view.in_rotation, view.differences) == (
        True,
        ("DefaultMessageTimeToLive 1:00:00 instead of no limit",),
    )


def test_no_probe_returns_a_withheld_queue() -> None:
    rotation = Rotation((0, 1), probe_interval=10.0)
    assert rotation.withhold(0, at=1.0, reason="it forwards")
    assert not rotation.withhold(0, at=2.0, reason="it forwards")
    assert not rotation.probed(0, at=3.0, accepted=True)
    assert rotation.next_probe() is None
    assert rotation.pick(0.0) == 1
    assert rotation.admit(0, at=4.0)
    assert not rotation.admit(0, at=4.0)
    assert rotation.probes_due(4.0) == [0]
    assert rotation.probed(0, at=5.0, accepted=True)
    assert rotation.holds(0)
