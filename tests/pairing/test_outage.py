"""Sending through an outage, over real AMQP with the real SDK (SPEC.md sections 5 to 8)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from paired_servicebus.core.errors import BacklogUnavailableError
from paired_servicebus.core.model.entity_state import DIVERTING, State
from paired_servicebus.core.model.pairing_events import Diverted, QueuePulled, QueueRestored, SendFailed, StateChanged
from paired_servicebus.pairing import PairedSender, PairedServiceBusClient
from paired_servicebus.pairing.envelope_codec import park
from paired_servicebus.pairing.sending.sdk_messages import STANDARD_LIMIT, encoded, rough_size, size_of, too_large
from servicebus_sandbox import Behavior, NamespaceSpec, QueueSettings, QueueSpec, Sandbox
from servicebus_sandbox.amqp_server.message_codec import read_message
from servicebus_sandbox.broker.broker_errors import QuotaExceeded
from servicebus_sandbox.broker.entity_settings import EntityStatus
from servicebus_sandbox.faults import FaultTerms

from .backlogs import parked, put, queue_path
from .conftest import IMPATIENT, World, until

BRIEF = {"send_timeout": 1.0}
"""An attempt that is not answered ends soon."""


def state(paired: PairedServiceBusClient, path: str) -> State:
    return next(view.state for view in paired.entity_views() if view.path == path)


async def send_until_accepted(sender: PairedSender, message: ServiceBusMessage, patience: float = 60.0) -> None:
    """As an application does: the same object again."""
    async with asyncio.timeout(patience):
        while True:
            try:
                await sender.send_messages(message)
            except (ServiceBusError, OSError, TimeoutError):
                await asyncio.sleep(0.1)
            else:
                return


def body(message: Any) -> bytes:
    return b"".join(message.body)


@pytest.mark.parametrize("fault", ["refused", "black-holed", "unanswered"])
async def test_an_outage_fails_over_one_entity_and_the_backlog_takes_its_messages(world: World, fault: str) -> None:
    """Failover is entity by entity; a failure in one says nothing of another."""
    paired = await world.pair(**IMPATIENT)
    async with paired.get_queue_sender("orders") as orders, paired.get_topic_sender("audit") as audit:
        await orders.send_messages(ServiceBusMessage(b"before"), timeout=60)
        world.fault(fault, entity="orders")
        await send_until_accepted(orders, ServiceBusMessage(b"during", message_id="during"))
        await audit.send_messages(ServiceBusMessage(b"audit"))
    assert state(paired, "orders") is State.FAILED_OVER
    assert state(paired, "audit") is State.HEALTHY
    assert world.parked() == 1
    assert [event.message_id for event in world.told(Diverted)] == ["during"]


async def test_throttling_is_raised_after_waiting_and_fails_nothing_over(world: World) -> None:
    """A ServerBusyException does not either; the sender waits inside the call, up to its timeout, then raises."""
    paired = await world.pair(**BRIEF, failover_interval=0)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"before"))
        world.fault("busy")
        began = asyncio.get_running_loop().time()
        with pytest.raises(ServiceBusServerBusyError):
            await sender.send_messages(ServiceBusMessage(b"during"), timeout=1)
        waited = asyncio.get_running_loop().time() - began
    assert waited >= 0.9
    assert state(paired, "orders") is State.HEALTHY
    assert world.parked() == 0


@pytest.mark.parametrize("key", ["right", "wrong"])
async def test_a_lost_right_or_key_is_raised_and_fails_nothing_over(world: World, key: str) -> None:
    """Other exceptions, such as UnauthorizedAccessException do not cause failover; raised to the caller."""
    connection_string = world.sandbox["primary"].connection_string
    if key == "wrong":
        connection_string = re.sub("SharedAccessKey=[^;]*", "SharedAccessKey=d3Jvbmc=", connection_string)
    client = ServiceBusClient.from_connection_string(connection_string, retry_total=0)
    paired = await world.pair(primary_client=client, failover_interval=0, send_timeout=20.0)
    if key == "right":
        world.fault("unauthorized", entity="orders")
    sender = paired.get_queue_sender("orders")
    for _ in range(2):
        with pytest.raises((ServiceBusAuthenticationError, ServiceBusAuthorizationError)):
            await sender.send_messages(ServiceBusMessage(b"x"))
    assert state(paired, "orders") not in DIVERTING
    assert (world.parked(), world.depth("orders"), world.told(StateChanged)) == (0, 0, [])


async def test_a_clients_own_retries_leave_a_throttled_namespace_alone(world: World) -> None:
    """That message is not attempted again for >= 10 s by anyone (SDK, sender, pinger, pump)."""
    connection_string = world.sandbox["primary"].connection_string
    impatient = ServiceBusClient.from_connection_string(connection_string, retry_total=5, retry_backoff_factor=0.05)
    paired = await world.pair(primary_client=impatient, send_timeout=1.0)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"before"))
        once = FaultTerms(count=1)
        world.sandbox["primary"].node.faults.add("busy", entity="orders", terms=once)
        with pytest.raises(ServiceBusServerBusyError):
            await sender.send_messages(ServiceBusMessage(b"during"))
    assert world.depth("orders") == 1


async def test_with_interval_0_the_same_call_goes_on_and_each_change_of_state_is_an_event_that_says_why(
    world: World,
) -> None:
    """With interval 0 the same call goes on to the backlog and the caller sees no error."""
    paired = await world.pair(**BRIEF, failover_interval=0)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"before"))
        world.fault("refused")
        await sender.send_messages(ServiceBusMessage(b"during"))
    changes = [(event.was, event.now) for event in world.told(StateChanged)]
    assert changes == [("unknown", "healthy"), ("healthy", "suspect"), ("suspect", "failed over")]
    assert all(event.why for event in world.told(StateChanged))
    assert world.parked() == 1


async def test_throttling_with_waiting_callers_is_an_alarm(world: World) -> None:
    """A refused caller anywhere outranks "healthy", throttling too: the alarm says how long calls wait."""
    paired = await world.pair()
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"before"))
        assert not any("busy" in alarm for alarm in paired.alarms())
        heal = world.fault("busy")
        sends = [asyncio.create_task(sender.send_messages(ServiceBusMessage(b"x"), timeout=90)) for _ in range(3)]
        await until(lambda: any("orders: 3 calls for up to" in alarm for alarm in paired.alarms()))
        heal()
        await asyncio.gather(*sends)
        assert not any("busy" in alarm for alarm in paired.alarms())
    assert state(paired, "orders") is State.HEALTHY


# -- The library under both answers of the service where no page promises one: nothing is lost, and no call raises.


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


# -- A backlog queue that refuses the right to send (SPEC.md section 7.1), beside queues that do not.


async def diverted(world: World, count: int, **options: Any) -> PairedServiceBusClient:
    """A pairing whose sends of orders go to the first backlog queue in the rotation."""
    paired = await world.pair(failover_interval=0, backlog_queue_count=count, **options)
    paired._steering.draw = lambda: 0.0  # type: ignore[method-assign] # the first one is picked
    paired.watch("orders")
    paired.force("orders", by="ada")
    return paired


async def test_it_is_pulled_another_is_tried_in_the_same_call_and_it_returns_after_a_probe(world: World) -> None:
    """Section 7.1: "A failed send takes that queue out of the rotation for every sender of the pairing, and a new one
    is selected. The same call goes on with it"; "a pulled queue returns after a probe succeeded"."""
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(0))
    heal = world.fault("unauthorized", namespace="secondary", entity=queue_path(0))
    paired = await diverted(world, 3)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))
        await sender.schedule_messages(ServiceBusMessage(b"x"), datetime.now(UTC))
    assert [event.queue for event in world.told(Diverted)] == [1, 1]
    assert [(event.queue, event.reason) for event in world.told(QueuePulled)] == [(0, "not authorized")]
    view = paired.queue_views()[0]
    assert (view.in_rotation, view.pulled_reason) == (False, "not authorized")
    heal()
    await until(lambda: world.told(QueueRestored))
    assert all(queue.in_rotation for queue in paired.queue_views())


async def test_where_all_refuse_the_caller_is_told_why_and_owns_the_message(world: World) -> None:
    """Section 7.1: "None left: BacklogUnavailableError, and the caller still owns the message"."""
    paired = await diverted(world, 2)
    world.fault("unauthorized", namespace="secondary")
    for queue in paired._standby.queues.values():
        # else the fault cuts a link that is open, which is another failure
        queue.link._link.retire()  # type: ignore[union-attr]
    async with paired.get_queue_sender("orders") as sender:
        with pytest.raises(BacklogUnavailableError, match=r"last: not authorized\. You still own it"):
            await sender.send_messages(ServiceBusMessage(b"x"))
    assert {event.queue for event in world.told(QueuePulled)} == {0, 1}


# -- Messages that would not survive a failover are counted while all is well (SPEC.md section 7.4).


def never() -> int:
    raise AssertionError("the limit was asked for a small message")


def counted(message: Any, limit: int = STANDARD_LIMIT) -> int:
    return too_large([message], None, "orders", lambda: limit)


def largest_that_fits(limit: int) -> int:
    """Bytes of the largest body whose envelope is just as large as the limit."""
    message = ServiceBusMessage(b"x" * 250_000, message_id="1")
    return limit - (len(park(encoded(message), "orders").data) - 250_000)


def test_a_small_message_is_not_measured_and_a_small_batch_judged_by_the_size_it_knows() -> None:
    assert too_large([ServiceBusMessage(b"x" * 1000)], None, "orders", never) == 0
    batch = ServiceBusMessageBatch(max_size_in_bytes=STANDARD_LIMIT)
    batch.add_message(ServiceBusMessage(b"x" * 1000))
    assert too_large(["whatever"] * 1000, batch, "orders", never) == 0  # type: ignore[list-item]


@pytest.mark.parametrize(("more", "count"), [(0, 0), (1, 1)])
def test_near_the_limit_the_count_is_exact(more: int, count: int) -> None:
    """Those that "would not survive failover" are counted while healthy, by an estimate, exactly above nine tenths
    of the smaller limit."""
    message = ServiceBusMessage(b"x" * (largest_that_fits(STANDARD_LIMIT) + more), message_id="1")
    assert counted(message) == count


def test_limits_by_tier_are_the_links() -> None:
    """Limits by tier: 256 KB Standard, more on Premium."""
    message = ServiceBusMessage(b"x" * 300_000)
    assert (counted(message), counted(message, 100 * 1024 * 1024)) == (1, 0)


@pytest.mark.parametrize(
    "message",
    [
        ServiceBusMessage(b"x" * 261_000, application_properties={"k" * 50: "v" * 2000}),
        AmqpAnnotatedMessage(data_body=[b"x" * 130_000, b"x" * 132_000]),
        AmqpAnnotatedMessage(value_body={"a": ["x" * 100_000] * 2, "b": "x" * 70_000}),
        AmqpAnnotatedMessage(sequence_body=[["x" * 130_000], ["x" * 140_000]]),
    ],
)
def test_every_kind_of_body_counts_and_so_do_properties(message: Any) -> None:
    real = size_of(message)
    assert 0.9 * real <= rough_size(message) <= 1.1 * real
    assert counted(message) == (len(park(encoded(message), "orders").data) > STANDARD_LIMIT)


async def test_a_message_that_would_not_survive_failover_is_counted_while_healthy(world: World) -> None:
    """Those that "would not survive failover" are counted while healthy."""
    paired = await world.pair()
    async with paired.get_queue_sender("orders") as sender:
        large = ServiceBusMessage(b"x" * (largest_that_fits(STANDARD_LIMIT) + 1), message_id="1")
        await sender.send_messages(large)
        await sender.send_messages(ServiceBusMessage(b"x" * 1000))
    assert [view.too_large for view in paired.entity_views()] == [1]
