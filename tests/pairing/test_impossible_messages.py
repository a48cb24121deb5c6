"""Messages that no namespace accepts: their own error, which counts for nothing (SPEC.md section 5)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from paired_servicebus.core.errors import EnvelopeError, ImpossibleMessageError
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.envelope import EnvelopeProperties
from paired_servicebus.core.model.pairing_events import QueuePulled
from paired_servicebus.core.pump.dead_letter_rules import time_left
from paired_servicebus.pairing import envelope_codec
from paired_servicebus.pairing.sending import sdk_messages
from servicebus_amqp.encoding.message_sections import (
    Header,
    Sections,
    write_application_properties,
    write_data,
    write_header,
)
from servicebus_sandbox.broker.broker_errors import Unprocessable

from .backlogs import queue_path
from .conftest import World
from .test_outage import state

IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "no time to live": {"time_to_live": timedelta(0)},
    "a fraction of a second, which the SDK cuts": {"time_to_live": timedelta(milliseconds=500)},
    "a long text": {"application_properties": {"trace": "x" * 40_000}},
    "a long text of wide characters": {"application_properties": {"trace": "ü" * 20_000}},
    "long bytes": {"application_properties": {b"trace": b"x" * 40_000}},
}


@pytest.mark.parametrize(
    ("kind", "times"),
    [(kind, 2) for kind in IMPOSSIBLE] + [pytest.param(kind, 20, marks=pytest.mark.slow) for kind in IMPOSSIBLE],
)
async def test_an_impossible_message_is_its_callers_error(world: World, kind: str, times: int) -> None:
    """Where a time to live of 0 or less or a property above 32 KB explains it, the error is the message's: it raises at
    the caller and counts for nothing."""
    paired = await world.pair(failover_interval=0.0)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("possible"))
        for _ in range(times):
            with pytest.raises(ServiceBusError) as raised:
                await sender.send_messages(ServiceBusMessage("x", **IMPOSSIBLE[kind]))
    assert any("time to live is 0" in note or "'trace' has 40,000 bytes" in note for note in raised.value.__notes__)
    assert state(paired, "orders") is State.HEALTHY
    assert world.parked() == 0


@pytest.mark.parametrize("kind", IMPOSSIBLE)
async def test_it_is_never_parked_and_pulls_no_queue(world: World, kind: str) -> None:
    paired = await world.pair(backlog_queue_count=2)
    paired.watch("orders")
    paired.force("orders", by="ada")
    async with paired.get_queue_sender("orders") as sender:
        for _ in range(20):
            with pytest.raises(ImpossibleMessageError, match="cannot be delivered"):
                await sender.send_messages(ServiceBusMessage("x", **IMPOSSIBLE[kind]))
        await sender.send_messages(ServiceBusMessage("possible"))
    assert world.parked() == 1
    assert all(view.in_rotation for view in paired.queue_views())


async def test_callers_beside_it_are_not_harmed(world: World) -> None:
    paired = await world.pair(backlog_queue_count=2)
    paired.watch("orders")
    paired.force("orders", by="ada")
    async with paired.get_queue_sender("orders") as sender:
        sends = [ServiceBusMessage(str(number)) for number in range(20)]
        bad = [ServiceBusMessage("x", time_to_live=timedelta(0)) for _ in range(5)]
        ended = await asyncio.gather(*map(sender.send_messages, [*sends, *bad]), return_exceptions=True)
    assert [type(one) for one in ended] == [type(None)] * 20 + [ImpossibleMessageError] * 5
    assert world.parked() == 20
    assert all(view.in_rotation for view in paired.queue_views())


@pytest.mark.parametrize(
    ("sections", "fault"),
    [
        (Sections(write_header(Header(ttl=0)), body=write_data(b"x")), "its time to live is 0"),
        (Sections(write_header(Header(ttl=1)), body=write_data(b"x")), ""),
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


def test_a_possible_message_has_no_fault() -> None:
    message = ServiceBusMessage("x", time_to_live=timedelta(seconds=1), application_properties={"n": 5, "t": "x"})
    assert sdk_messages.fault_of(message) == ""


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


async def forced(world: World) -> Any:
    paired = await world.pair(backlog_queue_count=3)
    paired.watch("orders")
    paired.force("orders", by="ada")
    return paired


async def test_two_queues_that_answer_alike_stay_in_the_rotation(world: World) -> None:
    """Diverted, a second equal answer from another queue is the message's and takes no queue out of the rotation."""
    paired = await forced(world)
    refuse_all(world, 0, 1, 2)
    async with paired.get_queue_sender("orders") as sender:
        with pytest.raises(ServiceBusError) as raised:
            await sender.send_messages(ServiceBusMessage("x"))
    assert any("two backlog queues answered it alike" in note for note in raised.value.__notes__)
    assert all(view.in_rotation for view in paired.queue_views())


async def test_one_queue_that_fails_while_another_accepts_leaves_the_rotation(world: World) -> None:
    """Any other counts as before."""
    paired = await forced(world)
    refuse_all(world, 0)
    async with paired.get_queue_sender("orders") as sender:
        sender._memory.queue = 0
        await sender.send_messages(ServiceBusMessage("x"))
    assert [event.queue for event in world.events if isinstance(event, QueuePulled)] == [0]
    assert sum(world.depth(queue_path(index), namespace="secondary") for index in range(3)) == 1
