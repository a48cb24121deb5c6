"""What is sent again after an error keeps its identity (SPEC.md section 7.3), and a cancelled send sends no more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from paired_servicebus.core.model.pairing_events import Diverted, InDoubt
from paired_servicebus.pairing.sending.send_driver import REPEAT_NOTE

from .backlogs import queue_path
from .conftest import World

SHORT = {"send_timeout": 1.0, "failover_interval": 60.0}


async def batch_of(sender: Any, *messages: Any) -> Any:
    batch = await sender.create_message_batch()
    for message in messages:
        batch.add_message(message)
    return batch


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
