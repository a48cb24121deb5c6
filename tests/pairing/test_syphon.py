"""The syphon over real AMQP, with each kind of pump (SPEC.md section 8): what both do is the same."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import QueueProperties

from paired_servicebus.core.accounting.billing import PARKED_MESSAGE_OPERATIONS
from paired_servicebus.core.backlog.depth_readings import QueueUsage
from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import (
    DeadLettered,
    DestinationFailed,
    DestinationHealed,
    Moved,
    PingAccepted,
    Warned,
)
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.core.model.verdict import judge
from paired_servicebus.core.pump import destination_circuits
from paired_servicebus.core.pump.pump_events import MessagesAccepted
from paired_servicebus.core.text.entity_paths import path_fault
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.runtime.deadlines import TaskOwner
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon import syphon as redrive
from paired_servicebus.pairing.syphon.amqp_delivery import PORTION, AmqpDelivery, DestinationLink
from paired_servicebus.pairing.syphon.syphon import DEAD_LETTERS, Syphon, unused_index
from servicebus_amqp.encoding.message_sections import read_header, read_map, read_properties
from servicebus_amqp.encoding.performatives import ACCEPTED
from servicebus_amqp.transport import count_clients
from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.faults import Operation

from .backlogs import lying_in, parked, put, queue_path, reason_of, sections, session_of
from .conftest import BOTH_PUMPS, EACH_PUMP, IMPATIENT, World, until
from .test_outage import body, send_until_accepted, state


@EACH_PUMP
async def test_after_the_outage_pings_fail_back_and_the_syphon_delivers(world: World) -> None:
    """Complete only after the destination accepted it; message_id is kept."""
    paired = await world.pair(enable_syphon=True, **IMPATIENT)
    original = ServiceBusMessage(
        b"during", message_id="during", subject="s", application_properties={"n": 1}, time_to_live=timedelta(hours=1)
    )
    async with paired.get_queue_sender("orders") as orders:
        await orders.send_messages(ServiceBusMessage(b"before"), timeout=60)
        heal = world.fault("black-holed")
        await send_until_accepted(orders, original)
        heal()
        await until(lambda: state(paired, "orders") is State.HEALTHY)
        await until(lambda: world.told(Moved))
        await orders.send_messages(ServiceBusMessage(b"after"))
    found = {body(message): message for message in await world.received("orders", 3)}
    moved = found[b"during"]
    assert set(found) == {b"before", b"during", b"after"}
    assert (moved.message_id, moved.subject, moved.application_properties) == ("during", "s", {b"n": 1})
    assert moved.time_to_live == timedelta(hours=1)
    await until(lambda: world.parked() == 0)
    assert world.told(PingAccepted)


@EACH_PUMP
async def test_sessions_survive_the_backlog(world: World) -> None:
    """Messages are grouped by their session at the destination, through queues that know no sessions."""
    paired = await world.pair(enable_syphon=True, failover_interval=0)
    heal = world.fault("refused", entity="payments")
    async with paired.get_queue_sender("payments") as sender:
        await sender.send_messages(ServiceBusMessage(b"x", session_id="amsterdam"))
        heal()
        found = await world.received("payments", 1, session_id="amsterdam")
    assert [message.session_id for message in found] == ["amsterdam"]


STRANGE_PATHS = ("orders/$management", "$cbs", "/orders/", "amqps://evil.example/orders", "x" * 30_000)


@BOTH_PUMPS
async def test_a_path_that_no_entity_has_is_dead_lettered_and_never_attached_to(world: World) -> None:
    """A message from a backlog queue is a stranger's until its path has been judged [...]; else dead-lettered with the
    reason."""
    paired = await world.pair(enable_syphon=True)
    put(
        world, [*(parked(path, f"bad-{number}") for number, path in enumerate(STRANGE_PATHS)), parked("orders", "good")]
    )
    await until(lambda: world.ids_in("orders") == ["good"] and len(world.told(DeadLettered)) == len(STRANGE_PATHS))
    dead = lying_in(world, f"{queue_path()}/$DeadLetterQueue", namespace="secondary")
    assert [reason_of(stored) for stored in dead] == [
        f"the application property 'x-ms-path' {path_fault(path)}: it names no destination" for path in STRANGE_PATHS
    ]
    assert paired.syphon_view().dead_lettered == len(STRANGE_PATHS)


@EACH_PUMP
async def test_an_owner_may_limit_the_destinations(world: World) -> None:
    """One of the pairing's entities where the owner says so; else dead-lettered with the reason."""
    await world.pair(enable_syphon=True, destinations=("Orders",))
    put(world, [parked("audit", "foreign"), parked("orders", "ours")])
    await until(lambda: world.ids_in("orders") == ["ours"] and world.told(DeadLettered))
    (dead,) = lying_in(world, f"{queue_path()}/$DeadLetterQueue", namespace="secondary")
    assert "audit is not among the destinations" in reason_of(dead)


@EACH_PUMP
async def test_elapsed_restores_what_is_left_of_the_time_to_live_and_dead_letters_what_is_used_up(world: World) -> None:
    """What is left ("elapsed"; used up: dead-lettered as expired)."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, ttl_policy="elapsed")
    paired.pause_syphon(by="kim")
    async with world.to_backlog() as sender:
        for seconds in (1, 600):
            ticks = {"TYPE": "LONG", "VALUE": seconds * 10_000_000}
            properties: Any = {"x-ms-path": "orders", "x-ms-timetolive": ticks}
            await sender.send_messages(ServiceBusMessage(str(seconds), application_properties=properties))
    parked_at = asyncio.get_running_loop().time()
    await until(lambda: asyncio.get_running_loop().time() - parked_at > 1.2)
    paired.resume_syphon(by="kim")
    await until(lambda: world.told(DeadLettered) and world.told(Moved))
    assert world.told(DeadLettered)[0].reason.startswith("expired")
    (moved,) = await world.received("orders", 1)
    assert timedelta(seconds=590) < moved.time_to_live < timedelta(seconds=600)


def deferred(world: World) -> list[str]:
    """The ids of what is set aside in the first backlog queue."""
    found = lying_in(world, queue_path(), namespace="secondary")
    return [str(stored.message.message_id) for stored in found if stored.state == 1]


@BOTH_PUMPS
async def test_everything_arrives_in_its_order(world: World) -> None:
    """Complete only after the destination accepted; messages of one sender keep their order."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    names = [str(number) for number in range(300)]
    put(world, [parked("orders", name) for name in names])
    await until(lambda: world.depth("orders") == 300)
    await until(lambda: world.parked(1) == 0)
    assert world.ids_in("orders") == names
    assert sorted(event.message_id for event in world.told(Moved)) == sorted(names)
    await until(lambda: paired.syphon_view().moved == 300)


@BOTH_PUMPS
async def test_what_a_dead_destination_holds_is_set_aside_and_arrives_in_order_when_it_heals(world: World) -> None:
    """One failed destination must not delay the others' messages, however many of its messages stand at the head."""
    heal = world.fault("disabled", entity="orders")
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    names = [f"dead {number:03}" for number in range(150)]
    spelt = zip(names, ("orders", "Orders", "ORDERS") * 50, strict=True)  # paths compare case-insensitively
    put(world, [parked(path, name) for name, path in spelt] + [parked("audit", f"live {n}") for n in range(20)])
    await until(lambda: len(world.told(Moved)) == 20)
    await until(lambda: deferred(world) == names)
    assert len(world.told(DestinationFailed)) == 1
    await until(lambda: "holds 150 messages for orders" in paired.queue_views()[0].pump_text)
    heal()
    await until(lambda: len(world.told(Moved)) == 170)
    assert world.ids_in("orders") == names
    assert len(world.told(DestinationHealed)) == 1


@BOTH_PUMPS
async def test_what_was_set_aside_before_a_crash_is_found_by_peeking_and_goes_first(world: World) -> None:
    """What is set aside is found again after a crash with no list kept, goes before newer ones of its session."""
    heal = world.fault("disabled", entity="payments")
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("payments", f"old {number}", session="s") for number in range(5)])
    await until(lambda: len(deferred(world)) == 5)
    await paired.close()
    heal()
    put(world, [parked("payments", f"new {number}", session="s") for number in range(5)])
    world.events.clear()
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    await until(lambda: len(world.told(Moved)) == 10)
    expected = [f"old {number}" for number in range(5)] + [f"new {number}" for number in range(5)]
    assert world.ids_in("payments") == expected
    assert {session_of(stored) for stored in lying_in(world, "payments")} == {"s"}


@BOTH_PUMPS
async def test_a_destination_that_is_not_found_for_long_enough_is_given_up_with_a_reason(world: World) -> None:
    """Not found: retried with back-off for `undeliverable_after`, then the same."""
    await world.pair(enable_syphon=True, backlog_queue_count=1, undeliverable_after=1.0)
    put(world, [parked("nowhere", str(number)) for number in range(10)])
    await until(lambda: len(world.told(DeadLettered)) == 10)
    await until(lambda: len(lying_in(world, queue_path() + DEAD_LETTERS, namespace="secondary")) == 10)
    dead = lying_in(world, queue_path() + DEAD_LETTERS, namespace="secondary")
    assert "nowhere was not found for" in reason_of(dead[0])


@EACH_PUMP
async def test_a_message_that_its_destination_calls_invalid_is_dead_lettered_and_the_others_go_on(world: World) -> None:
    """The destination says too large or invalid: the same."""
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("payments", "bad"), parked("payments", "good", session="s"), parked("orders", "other")])
    await until(lambda: len(world.told(Moved)) == 2 and world.told(DeadLettered))
    assert [event.message_id for event in world.told(DeadLettered)] == ["bad"]
    assert world.told(DeadLettered)[0].reason.startswith("payments refused it")


@EACH_PUMP
async def test_a_throttled_destination_is_left_alone_and_its_messages_stay(world: World) -> None:
    """That message is not attempted again for >= 10 s by anyone."""
    world.fault("busy", entity="orders")
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("orders", str(number)) for number in range(30)])
    await until(lambda: len(deferred(world)) == 30)
    (failed,) = world.told(DestinationFailed)
    assert failed.retry_at - failed.at >= 9.9
    assert not world.told(DeadLettered)
    assert world.depth("orders") == 0


@EACH_PUMP
async def test_a_queue_that_cannot_be_received_from_is_said_and_worked_on_again_with_no_restart(world: World) -> None:
    """Unable to receive: parked messages stay."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    await until(lambda: paired.queue_views()[0].pump_text == "receiving")
    heal = world.fault("refused", namespace="secondary")
    await until(lambda: "cannot receive" in paired.queue_views()[0].pump_text)
    heal()
    put(world, [parked("orders", "x")])
    await until(lambda: world.depth("orders") == 1)
    await until(lambda: "cannot receive" not in paired.queue_views()[0].pump_text)


async def test_who_paused_it_and_why_is_said(world: World) -> None:
    """The bug: an operator was said to, also where the engine did for its journal's disk."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    paired.pause_syphon(by="the engine", why="the journal is not written")
    view = paired.syphon_view()
    assert view.status is SyphonStatus.PAUSED
    assert view.text.startswith("paused here by the engine ")
    assert view.text.endswith('"the journal is not written": engines elsewhere may still move messages')


async def test_parked_and_moved_in_one_look_agree(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: parked was a second old, moved was not: "940 parked" beside 547 of 945 moved."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    paired.pause_syphon(by="ada")
    put(world, [parked("orders", str(number)) for number in range(20)])
    await paired._poller.read()
    assert (view := paired.parked_view()) is not None
    assert view.messages == 20
    monkeypatch.setattr(paired, "_follow", lambda: None)  # the turn of each second is yet to come
    paired.resume_syphon(by="ada")
    await until(lambda: paired.queue_views(looking=False)[0].moved == 20)
    assert paired.queue_views(looking=False)[0].parked == 0
    assert (view := paired.parked_view()) is not None
    assert view.messages == 0


@BOTH_PUMPS
async def test_dead_letters_can_be_re_driven(world: World) -> None:
    """Dead-lettered ones can be re-driven, also some by their numbers; the others stay, also those that are received on
    the way."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, undeliverable_after=0)
    assert "dead letters" in await order(paired).redrive(0), "there is nothing to do"
    with pytest.raises(IllegalEventError, match="uses no backlog queue 1; it uses 0"):
        await order(paired).redrive(1)

    def dead() -> dict[str, int]:
        lying = lying_in(world, queue_path() + DEAD_LETTERS, namespace="secondary")
        return {str(stored.message.message_id): stored.sequence_number for stored in lying}

    put(world, [parked("first", "x"), parked("first", "y")])
    await until(lambda: len(world.told(DeadLettered)) == len(dead()) == 2)
    world.sandbox["primary"].node.namespace.create_queue("first")
    assert "2" in await order(paired).redrive(0)
    await until(lambda: sorted(world.ids_in("first")) == ["x", "y"])
    assert not dead()
    put(world, [parked("later", str(number), properties={"kept": number}) for number in range(6)])
    await until(lambda: len(dead()) == 6)
    world.sandbox["primary"].node.namespace.create_queue("later")
    said = await order(paired).redrive(0, [dead()["2"], dead()["5"], 10_000])
    assert said.startswith("2 ")
    assert "10000" in said, "the missing one is named"
    await until(lambda: sorted(world.ids_in("later")) == ["2", "5"])
    assert [*dead()] == ["0", "1", "3", "4"]
    assert read_map(sections(lying_in(world, "later")[0]).application_properties) == {"kept": 2}


@EACH_PUMP
async def test_parked_for_a_destination_that_is_deleted_while_failed_over_is_dead_lettered(world: World) -> None:
    """While the entity is failed over, its pings are the tries."""
    paired = await world.pair(
        enable_syphon=True, backlog_queue_count=1, undeliverable_after=2, hold_until_failover=True
    )
    world.sandbox["primary"].node.namespace.delete("orders")
    async with paired.get_queue_sender("orders") as orders:
        await orders.send_messages([ServiceBusMessage("x", message_id=str(number)) for number in range(3)])
    await until(lambda: len(world.told(DeadLettered)) == 3)
    assert {one.reason.partition(" for ")[0] for one in world.told(DeadLettered)} == {"orders was not found"}
    await until(lambda: len(lying_in(world, queue_path() + DEAD_LETTERS, namespace="secondary")) == 3)


async def test_dead_letters_behind_too_many_others_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's re-drive cannot peek before: it stops instead, and reports what it did not find."""
    monkeypatch.setattr(redrive, "MAX_LETTERS_BEFORE", 2)
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, undeliverable_after=0)
    put(world, [parked("later", str(number)) for number in range(4)])
    dead = queue_path() + DEAD_LETTERS
    await until(lambda: len(lying_in(world, dead, namespace="secondary")) == 4)
    last = lying_in(world, dead, namespace="secondary")[-1].sequence_number
    with pytest.raises(IllegalEventError, match="more than 2 dead letters are before these"):
        await order(paired).redrive(0, [last])
    assert len(lying_in(world, dead, namespace="secondary")) == 4


@BOTH_PUMPS
async def test_stranded_messages_are_moved_on_an_operators_order(world: World) -> None:
    """Stranded messages are moved on an operator's order, never silently."""
    stranded = queue_path(7)
    world.sandbox["secondary"].node.namespace.create_queue(stranded)
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("orders", str(number)) for number in range(20)], path=stranded)
    said = await order(paired).move_stranded(stranded)
    assert said.startswith(f"20 messages of {stranded} were moved")
    assert world.depth("orders") == 20
    assert {event.queue for event in world.told(Moved)} == {7}


@pytest.mark.parametrize(
    ("path", "words"),
    [(queue_path(0), "is in use"), ("orders", "is not a backlog queue"), ("primary/x-servicebus-transfer/x", "is not")],
)
def test_only_unused_backlog_queues_can_hold_what_is_stranded(path: str, words: str) -> None:
    with pytest.raises(IllegalEventError, match=words):
        unused_index(path, {0: queue_path(0)})


def order(paired: PairedServiceBusClient) -> Syphon:
    assert paired._syphon is not None
    return paired._syphon


@EACH_PUMP
async def test_a_pump_that_moves_nothing_of_what_lies_there_is_stuck_whatever_it_says(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pump's status is derived from messages moved, never from a task being alive."""
    monkeypatch.setattr("paired_servicebus.pairing.monitoring.snapshot_views.STUCK_SECONDS", 0.3)
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, **IMPATIENT)
    await until(lambda: paired.queue_views()[0].pump_text == "receiving")
    world.fault("black-holed", Operation.RECEIVE, namespace="secondary", entity=queue_path())
    put(world, [parked("orders", "x")])
    statuses: set[SyphonStatus] = set()
    async with asyncio.timeout(60):
        while SyphonStatus.STUCK not in statuses:
            await paired._poller.read()
            await asyncio.sleep(0.1)
            statuses.add(paired.syphon_view().status)
    words = "1 message in the backlog, none moved, for an unknown reason"
    assert paired.syphon_view().text == words
    assert any(text.startswith(f"syphon stuck: {words}") for text in paired.alarms())
    assert statuses <= {SyphonStatus.IDLE, SyphonStatus.WAITING, SyphonStatus.STUCK}
    paired.know_usage(QueueUsage(used=frozenset({0}), moved=frozenset({0}), busy=frozenset({0})))
    assert paired.syphon_view().status is SyphonStatus.WAITING, "another engine has them in hand"


@EACH_PUMP
async def test_one_queue_or_one_destination_is_paused_by_itself(world: World) -> None:
    """An operator pauses the syphon for one backlog queue, or for one destination; what is parked there stays, and the
    others are moved."""
    world.sandbox["primary"].node.namespace.create_queue("billing")
    paired = await world.pair(enable_syphon=True, backlog_queue_count=2)
    paired.pause_syphon(by="kim", queue=1)
    paired.pause_syphon(by="kim", destination="billing")
    put(world, [parked("orders", "moved"), parked("Billing", "held")], path=queue_path(0))
    put(world, [parked("orders", "waits")], path=queue_path(1))
    await until(lambda: world.ids_in("orders") == ["moved"])
    view = paired.syphon_view()
    assert (view.paused_queues, view.paused_destinations) == ((1,), ("billing",))
    assert world.depth("billing") == 0
    assert world.depth(queue_path(1), namespace="secondary") == 1
    paired.resume_syphon(by="kim", destination="BILLING")
    await until(lambda: world.ids_in("billing") == ["held"])
    assert world.depth(queue_path(1), namespace="secondary") == 1
    paired.resume_syphon(by="kim", queue=1)
    await until(lambda: sorted(world.ids_in("orders")) == ["moved", "waits"])
    with pytest.raises(IllegalEventError, match="backlog queue 1 is not paused"):
        paired.resume_syphon(by="kim", queue=1)


@EACH_PUMP
async def test_a_destination_with_duplicate_detection_gets_a_message_that_was_parked_twice_once(world: World) -> None:
    """At-least-once; message_id is kept, so a destination with duplicate detection gets each message once."""
    once = QueueSettings(requires_duplicate_detection=True)
    world.sandbox["primary"].node.namespace.create_queue("once", once)
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("once", "x"), parked("once", "x")])
    await until(lambda: len(world.told(Moved)) == 2)
    assert world.ids_in("once") == ["x"]


@EACH_PUMP
async def test_what_its_destination_does_not_take_now_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unreachable, disabled, full, throttled, unauthorized: the message stays. Nothing is ever dropped."""
    monkeypatch.setattr(destination_circuits, "MAX_BACKOFF_SECONDS", 0.2)
    kinds = ["refused", "black-holed", "full", "unauthorized"]
    for kind in kinds:
        world.sandbox["primary"].node.namespace.create_queue(kind)
    heal = [world.fault(kind, entity=kind) for kind in kinds]
    await world.pair(enable_syphon=True, backlog_queue_count=1, undeliverable_after=0, **IMPATIENT)
    put(world, [*(parked(kind, kind) for kind in kinds), parked("audit", "y")])
    await until(lambda: deferred(world) == kinds and len(world.told(DestinationFailed)) == len(kinds))
    assert not world.told(DeadLettered)
    for each in heal:
        each()
    await until(lambda: all(world.ids_in(kind) == [kind] for kind in kinds))


@EACH_PUMP
async def test_attempts_are_not_counted_by_the_queue(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts are counted by us, since the queue's limit is infinite; a foreign queue may have a delivery limit."""
    monkeypatch.setattr(destination_circuits, "MAX_BACKOFF_SECONDS", 0.1)
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(), QueueSettings(max_delivery_count=2))
    heal = world.fault("disabled", entity="orders")
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("orders", "x")])

    def attempts() -> int:
        circuit = paired._steering.machine.destinations.open.get("orders")
        return circuit.failures if circuit is not None else 0

    await until(lambda: attempts() >= 5)
    assert not lying_in(world, queue_path() + DEAD_LETTERS, namespace="secondary")
    heal()
    await until(lambda: world.ids_in("orders") == ["x"])
    await until(lambda: attempts() == 0)


@EACH_PUMP
async def test_what_a_parked_message_costs(world: World) -> None:
    """A parked message costs 4 operations (send to and receive from backlog, send to and receive from primary)."""
    paired = await world.pair(enable_syphon=True, failover_interval=0, backlog_queue_count=1)
    heal = world.fault("refused", entity="orders")
    async with paired.get_queue_sender("orders") as sender:
        for number in range(30):
            await sender.send_messages(ServiceBusMessage(b"x", message_id=str(number)))
        heal()
        await until(lambda: len(world.told(Moved)) == 30)
    await until(lambda: world.parked(1) == 0)
    billed = paired.billed()
    again = billed.settlements - 30  # set aside while its destination was down, and received again
    searches = 5
    assert (billed.parked, billed.moves) == (30, 30)
    assert billed.parked_bytes == 30  # of the bodies; of what is moved, all of it
    assert (billed.received_bytes or 0) >= (billed.moved_bytes or 0) >= 30
    assert 0 <= again <= 30
    assert 0 <= billed.receives - again - 30 <= searches
    of_the_application = 30  # it receives them from the primary
    assert billed.parked + 30 + billed.moves + of_the_application == 30 * PARKED_MESSAGE_OPERATIONS


@EACH_PUMP
async def test_an_idle_syphon_is_billed_one_receive_per_queue_a_window(world: World) -> None:
    """Idle, it holds one receive per queue. The meter counts what really happens."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=2)
    await until(lambda: all(view.pump_text == "receiving" for view in paired.queue_views()))
    before = paired._steering.meter.receives
    ticks = 0

    def ticked() -> bool:
        nonlocal ticks
        ticks += 1
        return ticks > 120

    await until(ticked)
    assert paired._steering.meter.receives - before <= 2
    assert paired._steering.meter.moves == 0


# -- Messages that a destination accepted together: beside clients of a gateway they are settled over several turns.


COUNT = 2 * PORTION + 1


class Accepting:
    """A delivery without a socket, and its pump, which notes what it settles, in order."""

    def __init__(self) -> None:
        self.wire = SimpleNamespace(after_read=[], is_writable=True)
        steering = PairingRuntime(PairingMachine(Policy(), queues=(0,)), TaskOwner(), judge, None)
        self.delivery = AmqpDelivery(steering, self.wire)  # type: ignore[arg-type]
        self.notes: list[list[int] | str] = []
        self._found = DestinationLink("orders", "orders")
        self._found.link = SimpleNamespace(room=0)  # type: ignore[assignment]

    def apply(self, event: MessagesAccepted[Any]) -> None:
        self.notes.append([message.number for message in event.messages])

    def read(self, numbers: range) -> None:
        """Let one read bring the acceptance of these messages."""
        for number in numbers:
            tag = number.to_bytes(4, "big")
            self._found.under_way[tag] = SimpleNamespace(number=number, pump=self, sent_at=1.0)  # type: ignore[assignment]
            self.delivery._on_outcome(self._found, SimpleNamespace(tag=tag, state=ACCEPTED))  # type: ignore[arg-type]
        for act in self.wire.after_read:
            act()

    @property
    def settled(self) -> list[int]:
        return [number for note in self.notes if isinstance(note, list) for number in note]


@pytest.fixture
async def client() -> AsyncIterator[None]:
    count_clients(1)
    yield
    count_clients(-1)


async def test_without_clients_they_are_settled_together() -> None:
    accepting = Accepting()
    accepting.read(range(COUNT))
    assert accepting.notes == [list(range(COUNT))]


@pytest.mark.usefixtures("client")
async def test_others_have_a_turn_between_two_portions_and_a_later_read_waits_for_its_own() -> None:
    accepting = Accepting()
    accepting.read(range(COUNT))
    asyncio.get_running_loop().call_soon(accepting.notes.append, "another")
    accepting.read(range(COUNT, COUNT + 1))
    assert [len(note) for note in accepting.notes] == [PORTION]
    while len(accepting.settled) <= COUNT:
        await asyncio.sleep(0)
    assert accepting.settled == list(range(COUNT + 1))
    assert accepting.notes.index("another") == 2


@pytest.mark.usefixtures("client")
async def test_a_pump_that_ends_still_counts_those_that_are_not_settled() -> None:
    """It would release them otherwise, and they would be delivered a second time."""
    accepting = Accepting()
    accepting.read(range(COUNT))
    assert accepting.delivery.under_way(accepting) == COUNT - PORTION
    while len(accepting.settled) < COUNT:
        await asyncio.sleep(0)
    assert accepting.delivery.under_way(accepting) == 0


# -- The syphon's pace with either kind of pump: a rate the owner set, and what "server busy" does to it -------------


@EACH_PUMP
async def test_no_more_than_the_rate_is_moved_whatever_queues_it_comes_from(world: World) -> None:
    """One limit for the engine, and all that is parked arrives nevertheless."""
    rate, count = 40, 120
    await world.pair(enable_syphon=True, backlog_queue_count=2, syphon_rate=rate)
    for index in range(2):
        put(world, [parked("orders", f"{index}-{number}") for number in range(count // 2)], path=queue_path(index))
    await until(lambda: len(world.told(Moved)) == count)
    times = [event.at for event in world.told(Moved)]
    granted_twice = 2 * rate  # each of two queues may have been given the same burst
    for number, at in enumerate(times):
        assert number <= rate * (at - times[0] + 1) + granted_twice
    assert world.depth("orders") == count


@EACH_PUMP
async def test_a_throttled_destination_slows_the_whole_syphon_down_and_it_says_so(world: World) -> None:
    world.sandbox["primary"].node.namespace.create_queue("well")
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("well", str(number)) for number in range(300)])
    await until(lambda: world.depth("well") == 300)
    world.fault("busy", entity="orders")
    put(world, [parked("orders", "no"), *(parked("well", str(number)) for number in range(300, 400))])
    await until(lambda: world.told(Warned))
    warned = world.told(Warned)[0]
    assert warned.about == "syphon"
    assert warned.text.startswith("orders is throttled: the limit is ")
    await until(lambda: world.depth("well") == 400)
    assert "since the primary throttles" in paired.syphon_view().text
    assert len(world.told(Warned)) == 1


# -- What the retired .NET client left in a backlog: its queues are used, its messages delivered (SPEC.md 4 and 7) ---
# The bytes are written out here, constructor by constructor, in the encodings a .NET writer chooses (the smallest), so
# that neither our own writer nor the SDK's decides what is read.

TICKS_A_SECOND = 10_000_000
MIDNIGHT = datetime(2031, 5, 6, tzinfo=UTC)


# -- AMQP, by hand -------------------------------------------------------------------------------------------------


def string(text: str) -> bytes:
    """str8."""
    data = text.encode()
    return b"\xa1" + bytes([len(data)]) + data


def symbol(text: str) -> bytes:
    """sym8."""
    return b"\xa3" + bytes([len(text)]) + text.encode()


def long(value: int) -> bytes:
    """The eight bytes of a long."""
    return b"\x81" + struct.pack(">q", value)


def timespan(seconds: float) -> bytes:
    """A described long: com.microsoft:timespan, 100 ns ticks."""
    return b"\x00" + symbol("com.microsoft:timespan") + long(int(seconds * TICKS_A_SECOND))


def timestamp(moment: datetime) -> bytes:
    """Milliseconds since the epoch."""
    return b"\x83" + struct.pack(">q", int(moment.timestamp() * 1000))


def section(code: int, content: bytes) -> bytes:
    """A described section: its code is a smallulong."""
    return b"\x00\x53" + bytes([code]) + content


def map8(*pairs: tuple[bytes, bytes]) -> bytes:
    content = b"".join(key + value for key, value in pairs)
    return b"\xc1" + bytes([len(content) + 1, 2 * len(pairs)]) + content


def left_behind(message_id: str, envelope: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """A message as the retired client parked it: header, properties, application properties, data."""
    durable = b"\xc0\x02\x01\x41"  # a list of one: true
    identity = string(message_id)
    properties = b"\xc0" + bytes([len(identity) + 1, 1]) + identity
    body = b"\xa0\x05" + b"order"
    return (
        section(0x70, durable)
        + section(0x73, properties)
        + section(0x74, map8((string("colour"), string("red")), *envelope))
        + section(0x75, body)
    )


# -- what becomes of them ------------------------------------------------------------------------------------------


@BOTH_PUMPS
async def test_what_the_retired_client_parked_is_delivered(world: World) -> None:
    """Backlog messages of the retired client are readable: timespan = described type com.microsoft:timespan, long,
    100 ns ticks; scheduled_enqueue_time_utc is kept as x-ms-scheduledenqueuetimeutc (timestamp). TimeSpan.MaxValue,
    which it wrote for a message without a time to live, is none."""
    path, live = string("x-ms-path"), string("x-ms-timetolive")
    with_session = ((path, string("payments")), (string("x-ms-sessionid"), string("amsterdam")), (live, timespan(90)))
    scheduled = ((path, string("orders")), (string("x-ms-scheduledenqueuetimeutc"), timestamp(MIDNIGHT)))
    endless = ((path, string("orders")), (live, b"\x00" + symbol("com.microsoft:timespan") + long(2**63 - 1)))
    put_first = await _queues_of_the_retired_client(world)
    left = {"m-1": with_session, "m-2": scheduled, "m-3": endless}
    put(world, [left_behind(name, envelope) for name, envelope in left.items()], path=put_first)
    await world.pair(enable_syphon=True)
    await until(lambda: len(world.told(Moved)) == 3)
    (stored,) = lying_in(world, "payments")
    arrived = sections(stored)
    found = read_properties(arrived.properties)
    assert (found.message_id, found.group_id) == ("m-1", "amsterdam")
    assert read_header(arrived.header).ttl == 90_000
    assert read_map(arrived.application_properties) == {"colour": "red"}
    assert arrived.body == section(0x75, b"\xa0\x05order")
    assert world.sandbox["primary"].node.namespace.queue("orders").counts().scheduled == 1, "m-2 is not due yet"
    (third,) = [one for one in lying_in(world, "orders") if one.message.message_id == "m-3"]
    assert read_header(sections(third).header).ttl in (None, 2**32 - 1)


async def test_queues_that_the_retired_client_made_are_found_and_used_as_they_are(world: World) -> None:
    """List the queues under that prefix first; create only those missing; a queue that exists with other settings is
    used as it is."""
    await _queues_of_the_retired_client(world, others=3)
    paired = await world.pair(backlog_queue_count=2)
    assert paired.backlog_queue_count == 2
    async with world.admin("secondary") as admin:
        names = [queue.name async for queue in admin.list_queues()]
        kept = await admin.get_queue(queue_path(0))
    assert sorted(names) == [queue_path(index) for index in range(3)]
    assert kept.max_delivery_count == 7


async def _queues_of_the_retired_client(world: World, *, others: int = 1) -> str:
    """Queues under the prefix, with a setting that tells whose they are; the first one's path."""
    async with world.admin("secondary") as admin:
        for index in range(others):
            made: QueueProperties = await admin.create_queue(
                queue_path(index), max_delivery_count=7, lock_duration=timedelta(minutes=1)
            )
            assert made.name == f"primary/x-servicebus-transfer/{index}"
    return queue_path(0)
