"""Sending through an outage, over real AMQP with the real SDK, and each failure mode (SPEC.md sections 5 to 8, 10)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from paired_servicebus.core.backlog.queue_settings import Depth
from paired_servicebus.core.errors import (
    BacklogUnavailableError,
    PairedClientError,
    PairingClosedError,
    ReservedPropertyError,
)
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import (
    Diverted,
    Moved,
    QueuePulled,
    QueueRestored,
    SendFailed,
    StateChanged,
)
from paired_servicebus.core.model.snapshot import EntityView, SyphonStatus
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.pairing import PairedSender, PairedServiceBusClient
from paired_servicebus.pairing.envelope_codec import park
from paired_servicebus.pairing.management.management_port import AtomAdmin
from paired_servicebus.pairing.monitoring import snapshot_views
from paired_servicebus.pairing.sending.sdk_messages import STANDARD_LIMIT, encoded, too_large
from servicebus_sandbox import Behavior, NamespaceSpec, QueueSettings, QueueSpec, Sandbox
from servicebus_sandbox.amqp_server.message_codec import read_message
from servicebus_sandbox.broker.broker_errors import QuotaExceeded
from servicebus_sandbox.broker.entity_settings import EntityStatus
from servicebus_sandbox.faults import FaultTerms, Operation

from .backlogs import parked, put, queue_path
from .conftest import IMPATIENT, World, until, world

BRIEF = {"send_timeout": 1.0}
"""An attempt that is not answered ends soon."""


def view(paired: PairedServiceBusClient, path: str = "orders") -> EntityView:
    return next(one for one in paired.entity_views() if one.path == path)


def state(paired: PairedServiceBusClient, path: str) -> State:
    return view(paired, path).state


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


@pytest.mark.parametrize("is_encoded", [False, True], ids=["sdk", "encoded"])
async def test_a_call_without_an_answer_is_seen_before_it_fails(
    world: World, monkeypatch: pytest.MonkeyPatch, is_encoded: bool
) -> None:
    """Section 12: a call that has no answer for 5 s waits."""
    monkeypatch.setattr(snapshot_views, "UNANSWERED_SECONDS", 0.2)
    paired = await world.pair(send_timeout=30)

    def waits() -> bool:
        return any(one.path == "orders" and one.unanswered_since is not None for one in paired.entity_views())

    async with paired.get_queue_sender("orders") as sender:
        by_gateway = paired.get_encoded_sender("orders")

        async def send(body: bytes) -> None:
            if is_encoded:
                await by_gateway.send(encoded(ServiceBusMessage(body, message_id="1")).data)
            else:
                await sender.send_messages(ServiceBusMessage(body))

        await send(b"before")
        assert not waits()
        world.fault("black-holed", entity="orders")
        call = asyncio.create_task(send(b"during"))
        await until(waits)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    await until(lambda: not waits())


@pytest.mark.parametrize("entity", [None, "orders"])
async def test_throttling_is_raised_after_waiting_and_fails_nothing_over(world: World, entity: str | None) -> None:
    """The sender waits inside the call (send, schedule or cancel), up to its timeout, then raises, whatever is busy.

    Section 10, throttling: sends after waiting; no failover.
    """
    paired = await world.pair(failover_interval=0)
    loop = asyncio.get_running_loop()

    async def raises_after(call: Awaitable[object]) -> float:
        began = loop.time()
        with pytest.raises(ServiceBusServerBusyError):
            await call
        return loop.time() - began

    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"before"))
        heal = world.fault("busy", entity=entity)
        later, message = datetime.now(UTC) + timedelta(hours=1), ServiceBusMessage(b"during")
        calls = (
            sender.send_messages(message, timeout=3),
            sender.schedule_messages(message, later, timeout=3),
            sender.cancel_scheduled_messages([1], timeout=3),
        )
        waited = await asyncio.gather(*map(raises_after, calls))
        heal()
        await sender.send_messages(ServiceBusMessage(b"after"))  # waits out the rest of the ten seconds
    assert min(waited) >= 2.9
    assert world.depth("orders") == 2
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
    heal = world.fault("unauthorized", entity="orders") if key == "right" else None
    sender = paired.get_queue_sender("orders")
    for _ in range(2):
        with pytest.raises((ServiceBusAuthenticationError, ServiceBusAuthorizationError)):
            await sender.send_messages(ServiceBusMessage(b"x"))
    assert (world.parked(), world.depth("orders"), world.told(StateChanged)) == (0, 0, [])
    found = view(paired)
    assert (found.state, found.route, found.refused) == (State.UNKNOWN, "primary", 2)
    assert found.refusals[0][0] in ("not authorized", "not authenticated")
    assert found.refused_since is not None
    if heal is not None:
        heal()
        await sender.send_messages(ServiceBusMessage(b"y"))
        assert view(paired).refused_since is None


async def test_a_clients_own_retries_leave_a_throttled_namespace_alone(world: World) -> None:
    """That message is not attempted again for >= 10 s by anyone (SDK, sender, pinger, pump)."""
    connection_string = world.sandbox["primary"].connection_string
    impatient = ServiceBusClient.from_connection_string(connection_string, retry_total=5, retry_backoff_factor=0.05)
    paired = await world.pair(primary_client=impatient, send_timeout=1.0)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"before"))
        world.fault("busy", entity="orders", count=1)
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
    paired = await world.forced(failover_interval=0, backlog_queue_count=count, **options)
    paired._steering.draw = lambda: 0.0  # type: ignore[method-assign] # the first one is picked
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
        queue.link.retire()  # type: ignore[union-attr]
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
    assert counted(message) == (len(park(encoded(message), "orders").data) > STANDARD_LIMIT)


async def test_a_message_that_would_not_survive_failover_is_counted_while_healthy(world: World) -> None:
    """Those that "would not survive failover" are counted while healthy."""
    paired = await world.pair()
    async with paired.get_queue_sender("orders") as sender:
        large = ServiceBusMessage(b"x" * (largest_that_fits(STANDARD_LIMIT) + 1), message_id="1")
        await sender.send_messages(large)
        await sender.send_messages(ServiceBusMessage(b"x" * 1000))
    assert [view.too_large for view in paired.entity_views()] == [1]


# -- Every failure mode of SPEC.md section 10 over real namespaces: mode -> what still works -------------------------

UNANSWERED = ("black-holed", "unanswered")
"""Faults that answer nothing: a call ends by its time."""


@dataclass
class Trouble:
    """A pairing in the middle of a failure mode, after one message went to orders while all was well."""

    world: World
    paired: PairedServiceBusClient
    orders: PairedSender
    heal: Callable[[], None]


@asynccontextmanager
async def trouble(world: World, kind: str, *only: Operation, entity: str | None = None) -> AsyncIterator[Trouble]:
    paired = await world.pair(failover_interval=0, **(IMPATIENT if kind in UNANSWERED else {}))
    async with paired.get_queue_sender("orders") as orders:
        await orders.send_messages(ServiceBusMessage(b"before"), timeout=60)
        yield Trouble(world, paired, orders, world.fault(kind, *only, entity=entity))


# -- what still works ----------------------------------------------------------------------------------------------


async def sending_through_the_backlog(it: Trouble) -> None:
    await send_until_accepted(it.orders, ServiceBusMessage(b"during", message_id="during"))
    assert [event.message_id for event in it.world.told(Diverted)] == ["during"]
    assert state(it.paired, "orders") is State.FAILED_OVER


async def receiving(it: Trouble) -> None:
    async with it.paired.get_queue_receiver("orders") as receiver:
        (message,) = await receiver.receive_messages(1, max_wait_time=5)
        await receiver.complete_message(message)


async def management(it: Trouble) -> None:
    async with it.world.admin("primary") as admin:
        assert (await admin.get_queue("orders")).name == "orders"


async def the_console(it: Trouble) -> None:
    """What screens and commands ask of a pairing answers at once, whatever the namespaces do."""
    it.paired.pin("orders", by="kim", why="drill")
    assert state(it.paired, "orders") is State.PINNED
    it.paired.release("orders", by="kim")
    assert it.paired.queue_views()
    assert it.paired.syphon_view()


async def everything_on_the_secondary(it: Trouble) -> None:
    await sending_through_the_backlog(it)
    assert it.world.parked() == 1
    async with it.world.admin("secondary") as admin:
        assert (await admin.get_queue_runtime_properties(queue_path(0))).name == queue_path(0)
    assert (await it.paired.inspect()).queues[0].refusal == ""


# -- unable to send ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["refused", "black-holed", "unanswered", "disabled", "full"])
async def test_unable_to_send_to_an_entity(world: World, kind: str) -> None:
    """unable to send (an entity: timeouts, disabled, full): sending through the backlog; receiving; management; the
    console. Failover is entity by entity; a failure in one says nothing of another."""
    async with trouble(world, kind, Operation.SEND, entity="orders") as it:
        for works in (receiving, management, sending_through_the_backlog, the_console):
            await works(it)
        async with it.paired.get_topic_sender("audit") as audit:
            await audit.send_messages(ServiceBusMessage(b"audit"))
        assert state(it.paired, "audit") is State.HEALTHY
        assert world.parked() == 1
        assert not world.told(QueuePulled)


@pytest.mark.parametrize("kind", ["refused", "reset", "black-holed"])
async def test_unable_to_send_to_a_namespace(world: World, kind: str) -> None:
    """a namespace: refused, reset, black-holed: sending through the backlog; the console. unable to contact the primary
    at all: everything on the secondary."""
    async with trouble(world, kind) as it:
        await everything_on_the_secondary(it)
        await the_console(it)
        assert not world.told(QueuePulled)


async def test_a_node_takes_several_entities_at_once(world: World) -> None:
    """a node: several entities at once, then slow."""
    paired = await world.pair(failover_interval=0)
    async with paired.get_queue_sender("orders") as orders, paired.get_topic_sender("audit") as audit:
        for sender in (orders, audit):
            await sender.send_messages(ServiceBusMessage(b"before"))
        board = world.sandbox["primary"].node.faults
        board.add(
            "node-restart", entities=["orders", "audit"], terms=FaultTerms(duration_s=2.0, slow_s=1.0, delay_s=0.1)
        )
        for sender in (orders, audit):
            await send_until_accepted(sender, ServiceBusMessage(b"during"))
        assert {event.entity for event in world.told(Diverted)} == {"orders", "audit"}
        await until(lambda: {view.state for view in paired.entity_views()} == {State.HEALTHY})


class Unmanageable(AtomAdmin):
    """Management over HTTPS that refuses to tell any more, while messaging goes on."""

    down: frozenset[str] = frozenset()

    async def depth(self, path: str) -> Depth:
        if path in self.down:
            raise HttpResponseError("the management of this namespace is not available")
        return await super().depth(path)

    async def depths(self, prefix: str, *, pages: int) -> dict[str, Depth]:
        found = await super().depths(prefix, pages=pages)
        return {path: depth for path, depth in found.items() if path not in self.down}


# -- the others ----------------------------------------------------------------------------------------------------


async def test_unable_to_receive(world: World) -> None:
    """unable to receive: sending ("can still receive orders but cannot process them"); parked messages stay."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    async with paired.get_queue_sender("orders") as orders:
        await orders.send_messages(ServiceBusMessage(b"before"))
        for namespace in ("primary", "secondary"):
            world.fault("detached", Operation.RECEIVE, namespace=namespace)
        put(world, [parked("orders", "stays")])
        await orders.send_messages(ServiceBusMessage(b"during"))
        assert world.depth("orders") == 2
        assert state(paired, "orders") is State.HEALTHY
    assert not world.told(Moved)
    assert world.parked(1) == 1


async def test_unable_to_manage(world: World) -> None:
    """unable to manage: sending, pinging, syphon on queues known; depth shown stale."""
    admin = Unmanageable(world.admin("secondary"))
    paired = await world.pair(enable_syphon=True, backlog_queue_count=2, failover_interval=0, secondary_admin=admin)
    await until(lambda: all(queue.depth is not None for queue in paired.queue_views()))
    read_at = paired.queue_views()[0].read_at
    admin.down = frozenset({queue_path(0)})
    async with paired.get_queue_sender("orders") as orders:
        await orders.send_messages(ServiceBusMessage(b"before"))
        heal = world.fault("disabled", entity="orders")
        await send_until_accepted(orders, ServiceBusMessage(b"during"))
        heal()
        await until(lambda: state(paired, "orders") is State.HEALTHY)
        await until(lambda: world.told(Moved))
    await paired._poller.read()
    assert paired.queue_views()[0].read_at == read_at
    assert paired.queue_views()[1].read_at > read_at  # that one queue can be read is no news of the other
    assert any(text.startswith("the depth of the backlog cannot be read") for text in paired.alarms())


async def test_the_secondary_as_well(world: World) -> None:
    """the secondary as well: an honest error to the caller at once; the console; recovery with no restart."""
    async with trouble(world, "refused") as it:
        heal = world.fault("refused", namespace="secondary")
        with pytest.raises(BacklogUnavailableError, match="You still own it"):
            await it.orders.send_messages(ServiceBusMessage(b"during"))
        await the_console(it)
        heal()
        await until(lambda: all(queue.in_rotation for queue in it.paired.queue_views()))
        await it.orders.send_messages(ServiceBusMessage(b"after"))
        assert world.parked() == 1
        it.heal()
        await until(lambda: state(it.paired, "orders") is State.HEALTHY)


async def test_accepted_but_late(world: World) -> None:
    """accepted but late by up to 15 min: nobody takes "empty" for "drained"."""
    paired = await world.pair(enable_syphon=True, failover_interval=0)
    world.fault("late", namespace="secondary", delay_s=60.0)
    async with paired.get_queue_sender("orders") as orders:
        heal = world.fault("refused", entity="orders")
        await send_until_accepted(orders, ServiceBusMessage(b"during"))
        heal()
        await until(lambda: state(paired, "orders") is State.HEALTHY)
    view = paired.syphon_view()
    assert view.moved == 0
    assert view.status is SyphonStatus.WAITING, "the engine knows what it parked"
    assert not any(word in view.text for word in ("drained", "empty", "done"))
    assert paired.entity_views()[0].diverted == 1


async def test_one_backlog_queue(world: World) -> None:
    """one backlog queue: the others."""
    async with trouble(world, "refused", entity="orders") as it:
        world.fault("full", namespace="secondary", entity=queue_path(0))
        for number in range(6):
            await send_until_accepted(it.orders, ServiceBusMessage(b"during", message_id=str(number)))
        assert {event.queue for event in world.told(Diverted)} == {1}
        assert {event.queue for event in world.told(QueuePulled)} <= {0}


# -- Calls that end in an error at their caller are counted, said and explained --------------------------------------

__all__ = ["world"]


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
        assert (found.first_failure_kind, found.refused_in_outage) == (FailureKind.CONNECTION, 3)
        assert found.refused_at is not None
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
    assert (after.first_failure_kind, after.refused_in_outage, after.refused_at) == ("", 0, found.refused_at)


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
