"""What one sender does with a message, over real AMQP (SPEC.md sections 5 to 7), and what it refuses."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceivedMessage, ServiceBusReceiveMode
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError, ServiceBusServerBusyError

from paired_servicebus.core.errors import (
    BacklogMessageSizeError,
    BacklogUnavailableError,
    EnvelopeError,
    ImpossibleMessageError,
    PairingClosedError,
    ReservedPropertyError,
    ScheduledInBacklogError,
)
from paired_servicebus.core.failover.send_router import PRIMARY
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.envelope import EnvelopeProperties
from paired_servicebus.core.model.pairing_events import Diverted, Event, InDoubt, QueuePulled
from paired_servicebus.core.model.verdict import Judgement, Verdict, judge
from paired_servicebus.core.pump.dead_letter_rules import time_left
from paired_servicebus.pairing import (
    PairedSender,
    SendAvailabilityPairedNamespaceOptions,
    envelope_codec,
    pair_namespaces,
)
from paired_servicebus.pairing.paired_receiver import PairedReceiver
from paired_servicebus.pairing.runtime.deadlines import end_all
from paired_servicebus.pairing.sending.paired_sender import REPEAT_NOTE
from paired_servicebus.pairing.sending.sdk_messages import ping
from servicebus_amqp.encoding.message_sections import (
    Header,
    Sections,
    write_application_properties,
    write_data,
    write_header,
)
from servicebus_sandbox.broker.broker_errors import Unprocessable

from .backlogs import lying_in, queue_path
from .conftest import IMPATIENT, PATIENCE, World, until
from .test_outage import state

PATIENT = {"send_timeout": 30.0, "backlog_queue_count": 1}
BACKLOG = "primary/x-servicebus-transfer/0"


async def test_every_sender_old_or_new_uses_the_backlog(world: World) -> None:
    """Section 6: "no send touches the primary; every sender of the pairing, old or new, uses the backlog"."""
    paired = await world.pair(**PATIENT)
    async with paired.get_queue_sender("orders") as old:
        await old.send_messages(ServiceBusMessage(b"before"))
        paired.force("ORDERS", by="kim")
        async with paired.get_queue_sender("Orders") as new:
            await new.send_messages(ServiceBusMessage(b"new"))
        await old.send_messages(ServiceBusMessage(b"old"))
    assert (world.depth("orders"), world.parked(1)) == (1, 2)


async def test_the_time_of_each_call_is_counted_once_on_every_route(world: World) -> None:
    paired = await world.pair(**PATIENT)
    async with paired.get_queue_sender("orders") as sender:
        for number in range(3):
            await sender.send_messages([ServiceBusMessage(b"%d" % number), ServiceBusMessage(b"two")])
        paired.force("orders", by="kim")
        await sender.send_messages(ServiceBusMessage(b"parked"))
    times = paired.take_send_times()
    assert {path: sum(counts.values()) for path, counts in times.items()} == {"orders": 4}
    assert not paired.take_send_times()


async def test_a_send_over_a_healthy_primary_is_counted_like_the_first_one(world: World) -> None:
    """Section 6: while healthy, "no behavior changes occur": later sends take the short way, and no count shows it."""
    paired = await world.pair(**PATIENT)
    async with paired.get_queue_sender("orders") as sender:
        for number in range(3):
            await sender.send_messages([ServiceBusMessage(b"four"), ServiceBusMessage(b"five5")])
            tally, meter = paired._steering.tally("ORDERS"), paired._steering.meter
            sent = 2 * (number + 1)
            assert (tally.on(PRIMARY).accepted, meter.sends, meter.sent_bytes) == (sent, sent, 9 * (number + 1))
    assert list(tally.routes) == [PRIMARY]
    assert (world.depth("orders"), world.parked(1), state(paired, "orders")) == (6, 0, State.HEALTHY)


async def test_the_verdict_is_replaceable(world: World) -> None:
    """Section 5: "One replaceable function (`exception -> verdict`)"."""

    def mild(error: BaseException) -> Judgement:
        found = judge(error)
        return dataclasses.replace(found, verdict=Verdict.CALLERS)

    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=world.admin("secondary"),
        secondary_client=world.client("secondary"),
        primary_name="primary",
        failover_interval=0,
        backlog_queue_count=1,
    )
    paired = await world.stack.enter_async_context(await pair_namespaces(world.client("primary"), options, judge=mild))
    sender = paired.get_queue_sender("orders")
    world.fault("refused", entity="orders")
    with pytest.raises(ServiceBusError):
        await sender.send_messages(ServiceBusMessage(b"x"))
    assert world.parked(1) == 0


async def test_a_message_too_large_for_the_backlog_is_refused_before_the_wire_with_both_sizes(world: World) -> None:
    """Section 7.4: "detect it before the wire, `BacklogMessageSizeError` with both sizes"."""
    paired = await world.forced(**PATIENT)
    async with paired.get_queue_sender("orders") as sender:
        await paired.stands_ready()
        with pytest.raises(BacklogMessageSizeError, match="'large' takes") as refused:
            await sender.send_messages(ServiceBusMessage(bytes(262_144), message_id="large"))
        await sender.send_messages(ServiceBusMessage(b"small"))
    assert refused.value.size > refused.value.limit == 262_144
    assert world.parked(1) == 1
    assert paired.queue_views()[0].in_rotation


async def test_a_batch_is_repacked_into_as_many_backlog_batches_as_it_takes(world: World) -> None:
    """Section 7.4: "a batch is repacked into as many backlog batches as it takes, so only a single message can be too
    large"."""
    paired = await world.pair(**PATIENT)
    names = []
    async with paired.get_queue_sender("orders") as sender:
        batch = await sender.create_message_batch()
        while batch.size_in_bytes < batch.max_size_in_bytes - 1200:
            names.append(str(len(names)))
            batch.add_message(ServiceBusMessage(bytes(1000), message_id=names[-1], session_id="s"))
        paired.force("orders", by="kim")
        await sender.send_messages(batch)
    assert world.ids_in(BACKLOG, namespace="secondary") == names


async def test_a_send_that_arrived_unheard_and_is_repeated_keeps_its_id(world: World) -> None:
    """Section 7.3: "so that duplicate detection recognises a send that timed out but arrived"."""
    paired = await world.pair(send_timeout=1.0, failover_interval=60, backlog_queue_count=1)
    message = AmqpAnnotatedMessage(data_body=b"x")
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"before", message_id="before"))
        heal = world.fault("acknowledgement-lost", entity="orders")
        with pytest.raises((ServiceBusError, TimeoutError)):
            await sender.send_messages(message)
        heal()
        paired.force("orders", by="kim")
        await sender.send_messages(message)
    assert not message.properties
    first = world.ids_in("orders")[1:]
    assert len(first) == 1
    assert world.ids_in(BACKLOG, namespace="secondary") == first


@pytest.mark.parametrize("forced", [False, True], ids=["healthy", "failed over"])
async def test_what_cannot_be_sent_is_the_callers_error_and_moves_nothing(world: World, forced: bool) -> None:
    """Section 5: "message too large, bad argument or type": "no; raised to the caller". Section 7.2: "A message that
    already carries one of the four names is refused with a `ValueError` at any time". Nothing to send is nothing sent,
    as the SDK's sender has it."""
    paired = await (world.forced if forced else world.pair)(**PATIENT)
    sender = paired.get_queue_sender("orders")
    reserved = ServiceBusMessage(b"x", application_properties={b"x-ms-sessionid": "mine"})
    with pytest.raises(ReservedPropertyError):
        await sender.send_messages([ServiceBusMessage(b"good"), reserved])
    wrong: list[Any] = [7, "text", b"bytes", None, [1], [ServiceBusMessage(b"x"), None], {"colour": 1}]
    for one_of in wrong:
        with pytest.raises(TypeError, match=r"a message is a ServiceBusMessage|missing 1 required"):
            await sender.send_messages(one_of)
    for timeout in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="it must be a finite number greater than 0"):
            await sender.send_messages(ServiceBusMessage(b"x"), timeout=timeout)
    await sender.send_messages([])
    await sender.send_messages(await sender.create_message_batch())
    assert world.parked(1) == world.depth("orders") == 0
    assert state(paired, "orders") is (State.FORCED if forced else State.UNKNOWN)


@pytest.mark.parametrize("scheduled", [False, True], ids=["sent", "scheduled"])
async def test_a_call_of_which_an_attempt_is_in_doubt_does_not_end_as_refused(world: World, scheduled: bool) -> None:
    """Section 11: "what the caller was told in the end is accepted, refused or in doubt (timed out, unknown)"."""
    paired = await world.pair(failover_interval=0, backlog_queue_count=1, **IMPATIENT)
    async with paired.get_queue_sender("orders") as sender:
        world.fault("unanswered", entity="orders")
        world.fault("busy", namespace="secondary")
        message, when = ServiceBusMessage(b"x"), datetime.now(UTC)
        with pytest.raises((ServiceBusError, TimeoutError)) as told:
            await (sender.schedule_messages(message, when) if scheduled else sender.send_messages(message))
    assert world.depth("orders") == 1
    assert not isinstance(told.value, ServiceBusServerBusyError)
    assert isinstance(told.value.__cause__, ServiceBusServerBusyError)


@pytest.mark.parametrize("kind", ["busy", "unauthorized"])
async def test_a_call_that_parked_some_of_its_messages_says_so_whatever_ended_it(world: World, kind: str) -> None:
    """A refusal of the rest reads as one of all of them: their caller would send nothing again, or everything."""
    paired = await world.forced(send_timeout=2.0, backlog_queue_count=1)

    def refuse(event: Event) -> None:
        if isinstance(event, Diverted):
            world.also = None
            world.fault(kind, namespace="secondary")

    world.also = refuse
    async with paired.get_queue_sender("orders") as sender:
        large = [ServiceBusMessage(bytes(200_000)) for _ in range(2)]
        with pytest.raises(BacklogUnavailableError, match=r"1 of 2 messages.* parked, 1 were not"):
            await sender.send_messages(large)
    assert world.parked(1) == 1


async def test_an_object_that_is_sent_once_more_after_it_was_accepted_is_another_message(world: World) -> None:
    """Section 7.3: an id is for "a send that timed out but arrived"; duplicate detection would drop what comes next."""
    paired = await world.pair(**PATIENT)
    message = AmqpAnnotatedMessage(data_body=b"x")
    async with paired.get_queue_sender("orders") as sender:
        for again in (message, [message], message):
            await sender.send_messages(again)
    assert len(set(world.ids_in("orders"))) == 3


async def test_of_a_batch_that_was_parked_in_part_only_the_rest_goes_to_the_primary(world: World) -> None:
    """Section 11: each id once; duplicates come from sends that timed out, not from our own choice."""
    paired = await world.forced(**PATIENT)
    sender = paired.get_queue_sender("orders")
    batch = await batch_of(sender, one("1"), one("2"))
    divert = sender._divert

    async def in_part(route: Any, left: list[Any], timeout: float) -> None:
        await divert(route, [left.pop(0)], timeout)
        paired.pin("orders", by="kim")
        raise OSError("the rest did not fit in before the link broke")

    sender._divert = in_part  # type: ignore[method-assign]
    await sender.send_messages(batch)
    assert world.ids_in(BACKLOG, namespace="secondary") == ["1"]
    assert world.ids_in("orders") == ["2"]


async def test_a_message_that_may_have_arrived_is_not_refused_for_its_size(world: World) -> None:
    """Section 11: "what the caller was told in the end is accepted, refused or in doubt"."""
    paired = await world.pair(failover_interval=0, backlog_queue_count=1, **IMPATIENT)
    large = ServiceBusMessage(bytes(262_144 - 45), message_id="large")
    async with paired.get_queue_sender("orders") as sender:
        world.fault("unanswered", entity="orders")
        with pytest.raises((ServiceBusError, TimeoutError)) as told:
            await sender.send_messages(large)
    assert isinstance(told.value.__cause__, BacklogMessageSizeError)


async def test_a_scheduling_that_its_caller_gives_up_is_in_doubt(world: World) -> None:
    """Section 11: "with journal = "diverted" every message that left the direct path and every send in doubt"."""
    paired = await world.pair(**PATIENT)
    async with paired.get_queue_sender("orders") as sender:
        world.fault("unanswered", entity="orders")
        message = ServiceBusMessage(b"x", message_id="x")
        scheduling = asyncio.create_task(sender.schedule_messages(message, datetime.now(UTC)))
        await until(lambda: world.depth("orders") == 1)
        assert await end_all([scheduling], PATIENCE)  # the SDK may lose a cancellation
        assert scheduling.cancelled()
    assert [event.message_id for event in world.told(InDoubt)] == ["x"]


async def test_a_call_that_the_end_of_the_pairing_cuts_off_says_what_is_in_doubt(world: World) -> None:
    """Section 9: "sends in hand finish or raise": held after an attempt that may have arrived, it is in doubt."""
    paired = await world.pair(hold_until_failover=True, failover_interval=60, send_timeout=1.0)
    sender = paired.get_queue_sender("orders")
    world.fault("unanswered", entity="orders")
    sending = asyncio.create_task(sender.send_messages(ServiceBusMessage(b"x"), timeout=30))
    await until(lambda: world.told(InDoubt))
    await paired.close()
    with pytest.raises(PairingClosedError) as told:
        await sending
    assert told.value.in_doubt


async def test_a_listener_that_fails_makes_no_refusal_of_what_was_accepted(world: World) -> None:
    """Section 11: what the caller was told in the end is accepted, where a namespace has accepted it."""
    paired = await world.forced(**PATIENT)

    def fail(event: Event) -> None:
        raise RuntimeError("a listener's own trouble")

    world.also = fail
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x", message_id="x"))
    assert world.ids_in(BACKLOG, namespace="secondary") == ["x"]


async def test_a_ping_that_is_gone_before_it_is_settled_keeps_no_message_from_its_receiver() -> None:
    """Section 8: our receivers skip pings as well; one lives for a second, and what came with it is the caller's."""

    class Receiver:
        _receive_mode = ServiceBusReceiveMode.PEEK_LOCK

        async def receive_messages(self, *_: Any) -> list[Any]:
            return [ping(), ServiceBusMessage(b"x")]

        async def complete_message(self, message: Any) -> None:
            raise MessageLockLostError()

    (received,) = await PairedReceiver(Receiver()).receive_messages(2)  # type: ignore[arg-type]
    assert str(received) == "x"


# -- Several callers on one paired sender, over real AMQP: nothing lost, doubled, or reordered within a caller.


CALLERS, SENDS = 16, 50


def one(name: str) -> ServiceBusMessage:
    return ServiceBusMessage(b"x", message_id=name)


async def batch_of(sender: PairedSender, *messages: Any) -> ServiceBusMessageBatch:
    batch = await sender.create_message_batch()
    for message in messages:
        batch.add_message(message)
    return batch


async def shaped(sender: PairedSender, caller: int, number: int) -> tuple[Any, list[str]]:
    """What the SDK's sender takes, one kind after the other, and the ids in it."""
    names = [f"{caller}-{number}-{index}" for index in range(3)]
    shapes: list[tuple[Any, list[str]]] = [
        (one(names[0]), names[:1]),
        ([one(name) for name in names], names),
        ({"body": b"x", "message_id": names[0]}, names[:1]),
        (AmqpAnnotatedMessage(data_body=b"x", properties={"message_id": names[0]}), names[:1]),
        (await batch_of(sender, *map(one, names)), names),
    ]
    return shapes[number % len(shapes)]


@pytest.mark.parametrize("forced", [False, True], ids=["primary", "backlog"])
async def test_sixteen_callers_share_one_sender(world: World, forced: bool) -> None:
    """Several callers may share it: sustained concurrency breaks an SDK sender, not a paired one."""
    paired = await world.pair(backlog_queue_count=1, send_timeout=60.0)
    async with paired.get_queue_sender("orders") as sender:
        if forced:
            paired.force("orders", by="kim")
        sent: list[list[str]] = []

        async def caller(number: int) -> None:
            mine: list[str] = []
            sent.append(mine)
            for index in range(SENDS):
                shape, names = await shaped(sender, number, index)
                await sender.send_messages(shape)
                mine += names

        await asyncio.gather(*(caller(number) for number in range(CALLERS)))
    path = "primary/x-servicebus-transfer/0" if forced else "orders"
    found = world.ids_in(path, namespace="secondary" if forced else "primary")
    assert sorted(found) == sorted(name for mine in sent for name in mine)
    for mine in sent:
        prefix = mine[0].split("-", 1)[0] + "-"
        assert [name for name in found if name.startswith(prefix)] == mine
    if forced:
        assert sorted(event.message_id for event in world.told(Diverted)) == sorted(found)


async def test_a_cancelled_caller_leaves_the_others_alone(world: World) -> None:
    paired = await world.forced(**PATIENT)
    async with paired.get_queue_sender("orders") as sender:
        tasks = [asyncio.create_task(sender.send_messages(one(str(number)))) for number in range(50)]
        await asyncio.sleep(0)
        for task in tasks[::5]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
    told = {str(number) for number, result in enumerate(found) if result is None}
    ids = world.ids_in("primary/x-servicebus-transfer/0", namespace="secondary")
    assert len(told) == 40
    assert told <= set(ids)
    assert len(ids) == len(set(ids))


# -- Messages for later: at the primary by its numbers, and through the backlog while failed over (SPEC.md 7.5).


SCHEDULED = 2


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
    paired = await world.forced(**PATIENT)
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


# -- What is sent again after an error keeps its identity (SPEC.md section 7.3), and a cancelled send sends no more

SHORT = {"send_timeout": 1.0, "failover_interval": 60.0}


@pytest.mark.parametrize("kind", ["message", "annotated", "list", "batch", "batch of a mapping"])
async def test_an_object_that_was_sent_keeps_its_id(world: World, kind: str) -> None:
    """The id given to a message stays with the object that was sent: message, annotated message, batch."""
    paired = await world.pair(**SHORT)
    async with paired.get_queue_sender("orders") as sender:
        given_: Any = {
            "message": ServiceBusMessage("x"),
            "annotated": AmqpAnnotatedMessage(data_body=b"x"),
            "list": [ServiceBusMessage("x")],
            "batch": await batch_of(sender, ServiceBusMessage("x")),
            "batch of a mapping": await batch_of(sender, {"body": "x"}),
        }[kind]
        heal = world.fault("unanswered", entity="orders")
        with pytest.raises(Exception) as raised:  # noqa: PT011 - any failure of the send
            await sender.send_messages(given_)
        heal()
        assert REPEAT_NOTE not in raised.value.__notes__
        await sender.send_messages(given_)
    first, second = world.ids_in("orders")
    assert first == second


@pytest.mark.parametrize("kind", ["mapping", "list", "iterator"])
async def test_the_error_of_a_mapping_holds_what_to_send_again(world: World, kind: str) -> None:
    """A mapping carries none: the error's note says that a repeat is a new message, and `error.messages` holds what to
    send again."""
    paired = await world.pair(**SHORT)
    async with paired.get_queue_sender("orders") as sender:
        given_: Any = {"mapping": {"body": "x"}, "list": [{"body": "x"}], "iterator": iter([{"body": "x"}])}[kind]
        heal = world.fault("unanswered", entity="orders")
        with pytest.raises(Exception) as raised:  # noqa: PT011 - any failure of the send
            await sender.send_messages(given_)
        heal()
        assert REPEAT_NOTE in raised.value.__notes__
        await sender.send_messages(raised.value.messages)  # type: ignore[attr-defined]
    first, second = world.ids_in("orders")
    assert first == second


async def test_callers_that_sent_together_have_errors_of_their_own(world: World) -> None:
    paired = await world.pair(**SHORT)
    async with paired.get_queue_sender("orders") as sender:
        world.fault("unanswered", entity="orders")
        sends = [sender.send_messages(ServiceBusMessage("x", message_id=str(number))) for number in range(6)]
        errors: list[Any] = await asyncio.gather(*sends, return_exceptions=True)
    assert [[message.message_id for message in error.messages] for error in errors] == [[str(n)] for n in range(6)]
    assert len({id(error) for error in errors}) == 6


@pytest.mark.parametrize("route", ["primary", "backlog", pytest.param("held", marks=pytest.mark.slow), "again"])
async def test_a_send_cancelled_at_any_await_leaves_no_task_and_sends_nothing_later(world: World, route: str) -> None:
    """No task is left, and nothing is sent after the cancel is confirmed, unless the journal says that it is in
    doubt."""
    paired = await world.pair(send_timeout=20.0, failover_interval=60.0, hold_until_failover=route == "held")
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("warm"))
        if route == "backlog":
            paired.force("orders", by="kim")
        for turns in range(0, 48, 2):
            heal = world.fault("refused", entity="orders") if route in ("held", "again") else lambda: None
            sending = asyncio.create_task(sender.send_messages(ServiceBusMessage("x", message_id=str(turns))))
            for _ in range(turns):
                await asyncio.sleep(0)
            sending.cancel()
            await asyncio.wait([sending])
            heal()
            assert not any(map(_is_a_sends, asyncio.all_tasks()))
            if sending.cancelled() and str(turns) not in _journalled(world):
                assert str(turns) not in _arrived(world), "not even later, as the last check sees"
    cancelled = {str(turns) for turns in range(0, 48, 2)} - _arrived(world)
    await paired.close()
    assert not cancelled & _arrived(world)


def _arrived(world: World) -> set[str]:
    parked = [world.ids_in(queue_path(index), namespace="secondary") for index in range(2)]
    return {*world.ids_in("orders"), *parked[0], *parked[1]}


def _journalled(world: World) -> set[str]:
    """Return the messages that the journal has as in doubt, or as parked before the cancel."""
    return {event.message_id for kind in (InDoubt, Diverted) for event in world.told(kind)}


def _is_a_sends(task: asyncio.Task[Any]) -> bool:
    """Return whether a task is a part of a send: the call itself, or one that waits for its outcome."""
    name = getattr(task.get_coro(), "__qualname__", "")
    return not task.done() and name.startswith(("SendDriver", "PairedSender", "SdkSenderLink.send", "Coalescer.send"))


# -- A message object that changes after the call: what is sent is the message as it was at the call (SPEC.md section 7)
# The SDK encodes at the send call, and a batch when a message is added.

HELD = {"hold_until_failover": True, "failover_interval": 3.0, "send_timeout": 30.0}


def message(kind: str) -> Any:
    if kind == "annotated":
        properties = AmqpMessageProperties(message_id="first", subject="first")
        return AmqpAnnotatedMessage(data_body=b"first", properties=properties, application_properties={"a": "first"})
    return ServiceBusMessage("first", message_id="first", subject="first", application_properties={"a": "first"})


def change(message: Any) -> None:
    """Change all that the object lets its owner change."""
    message.application_properties["a"] = "changed"
    message.application_properties["b"] = "added"
    named = message.properties if isinstance(message, AmqpAnnotatedMessage) else message
    named.message_id = named.subject = "changed"


async def payload_of(sender: PairedSender, kind: str, single: Any) -> Any:
    if kind == "list":
        return [single]
    return await batch_of(sender, single) if kind == "batch" else single


async def find(world: World, name: str) -> ServiceBusReceivedMessage:
    """Return the message of this id, at the primary or in the backlog."""
    backlog = [f"primary/x-servicebus-transfer/{index}" for index in range(2)]
    for namespace, path in (("primary", "orders"), *(("secondary", path) for path in backlog)):
        if name in world.ids_in(path, namespace=namespace):
            async with world.client(namespace) as client, client.get_queue_receiver(path) as receiver:
                return next(one for one in await receiver.peek_messages(10) if one.message_id == name)
    raise AssertionError(f"no message {name}")


@pytest.mark.parametrize("is_diverted", [False, True], ids=["held, then sent", "diverted"])
@pytest.mark.parametrize("is_first", [True, False], ids=["the failing send itself", "a send while suspect"])
@pytest.mark.parametrize("kind", ["single", "annotated", "list", "batch"])
async def test_what_is_sent_is_the_message_at_the_call(
    world: World, kind: str, is_first: bool, is_diverted: bool
) -> None:
    """Section 7.3: what is sent, at any try, is the message as it was at the call; in a batch, as it was when it was
    added."""
    paired = await world.pair(**HELD)

    def is_suspect() -> bool:
        return any(view.state is State.SUSPECT for view in paired.entity_views())

    async with paired.get_queue_sender("orders") as sender:
        heal = world.fault("full", entity="orders")
        sends = []
        if not is_first:
            sends.append(asyncio.create_task(sender.send_messages(ServiceBusMessage("other"))))
            await until(is_suspect)
        single = message(kind)
        sends.append(asyncio.create_task(sender.send_messages(await payload_of(sender, kind, single))))
        await until(is_suspect)
        await asyncio.sleep(0)  # the second call is under way
        change(single)
        if not is_diverted:
            heal()
        await asyncio.gather(*sends)
    found = await find(world, "first")
    assert (found.subject, found.application_properties[b"a"]) == ("first", b"first")
    assert b"b" not in found.application_properties


# -- Messages that no namespace accepts: their own error, which counts for nothing (SPEC.md section 5) ---------------

IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "no time to live": {"time_to_live": timedelta(0)},
    "a fraction of a second, which the SDK cuts": {"time_to_live": timedelta(milliseconds=500)},
    "a long text": {"application_properties": {"trace": "x" * 40_000}},
    "a long text of wide characters": {"application_properties": {"trace": "ü" * 20_000}},
    "long bytes": {"application_properties": {b"trace": b"x" * 40_000}},
}


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.long)])
async def test_an_impossible_message_is_its_callers_error(world: World, times: int) -> None:
    """Where a time to live of 0 or less or a property above 32 KB explains it, the error is the message's: it raises at
    the caller and counts for nothing."""
    paired = await world.pair(failover_interval=0.0)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("possible"))
        for kind in IMPOSSIBLE.values() if times == 2 else [*IMPOSSIBLE.values()] * 10:
            with pytest.raises(ServiceBusError) as raised:
                await sender.send_messages(ServiceBusMessage("x", **kind))
            notes = raised.value.__notes__
            assert any("time to live is 0" in note or "'trace' has 40,005 bytes" in note for note in notes)
    assert state(paired, "orders") is State.HEALTHY
    assert world.parked() == 0


async def test_it_is_never_parked_pulls_no_queue_and_harms_no_caller_beside_it(world: World) -> None:
    """It raises at the caller and counts for nothing, and such a message is never parked."""
    paired = await world.forced(backlog_queue_count=2)
    async with paired.get_queue_sender("orders") as sender:
        good = [ServiceBusMessage(str(number)) for number in range(20)]
        bad = [ServiceBusMessage("x", **kind) for kind in IMPOSSIBLE.values()]
        ended = await asyncio.gather(*map(sender.send_messages, [*good, *bad]), return_exceptions=True)
    assert [type(one) for one in ended] == [type(None)] * 20 + [ImpossibleMessageError] * len(bad)
    assert all("cannot be delivered" in str(error) for error in ended[20:])
    assert world.parked() == 20
    assert all(view.in_rotation for view in paired.queue_views())


@pytest.mark.parametrize(
    ("sections", "fault"),
    [
        (Sections(write_header(Header(ttl=0)), body=write_data(b"x")), "its time to live is 0"),
        (Sections(write_header(Header(ttl=1)), body=write_data(b"x")), ""),
        (Sections(application_properties=write_application_properties({"n": 5, "t": "x"})), ""),
        (
            Sections(application_properties=write_application_properties({"p": "x" * 40_000}), body=write_data(b"x")),
            "its property 'p' has 40,005 bytes",
        ),
        (
            Sections(application_properties=write_application_properties({"p": "x" * 20_000, "q": "x" * 20_000})),
            "",
        ),
    ],
)
def test_encoded_messages_are_judged_alike(sections: Sections, fault: str) -> None:
    found = envelope_codec.fault_of(envelope_codec.read_message(sections.join()))
    assert found.startswith(fault) if fault else not found


@pytest.mark.parametrize("elapsed", [False, True])
def test_a_parked_message_without_a_time_to_live_is_dead_lettered(elapsed: bool) -> None:
    """The destination would answer it as if it had failed itself, for ever."""
    with pytest.raises(EnvelopeError, match="its time to live is 0"):
        time_left(EnvelopeProperties(path="orders", time_to_live=timedelta(0)), parked_at=0.0, now=1.0, elapsed=elapsed)


def refuse_all(world: World, *indices: int) -> None:
    """Let backlog queues answer every message with an internal error."""

    def refuse(*messages: object, **options: object) -> None:
        raise Unprocessable

    namespace = world.sandbox["secondary"].node.namespace
    for index in indices:
        namespace.send_target(queue_path(index)).intake.send = refuse


async def test_two_queues_that_answer_alike_stay_in_the_rotation(world: World) -> None:
    """Diverted, a second equal answer from another queue is the message's and takes no queue out of the rotation."""
    paired = await world.forced(backlog_queue_count=3)
    refuse_all(world, 0, 1, 2)
    async with paired.get_queue_sender("orders") as sender:
        with pytest.raises(ServiceBusError) as raised:
            await sender.send_messages(ServiceBusMessage("x"))
    assert any("two backlog queues answered it alike" in note for note in raised.value.__notes__)
    assert all(view.in_rotation for view in paired.queue_views())


async def test_one_queue_that_fails_while_another_accepts_leaves_the_rotation(world: World) -> None:
    """Any other counts as before."""
    paired = await world.forced(backlog_queue_count=3)
    refuse_all(world, 0)
    async with paired.get_queue_sender("orders") as sender:
        sender._memory.queue = 0
        await sender.send_messages(ServiceBusMessage("x"))
    assert [event.queue for event in world.events if isinstance(event, QueuePulled)] == [0]
    assert sum(world.depth(queue_path(index), namespace="secondary") for index in range(3)) == 1
