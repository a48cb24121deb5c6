"""The links to the backlog queues over one connection of our own: their number, their loss, and their errors."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError, ServiceBusError

from paired_servicebus.core import errors
from paired_servicebus.core.model.pairing_events import Diverted, InDoubt, QueuePulled, Warned
from paired_servicebus.core.model.verdict import KIND_BY_CONDITION, kind_of
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from paired_servicebus.pairing.envelope_codec import EncodedMessage
from paired_servicebus.pairing.sending.amqp_link import BacklogLink, ConnectionCutError, sdk_error
from paired_servicebus.pairing.sending.sdk_messages import encoded
from paired_servicebus.pairing.sending.sender_link import SdkSenderLink

from .backlogs import queue_path
from .conftest import World, until

PATIENT = {"send_timeout": 30.0}


def standby(world: World) -> list[Any]:
    """The secondary's connections for links to backlog queues."""
    return [
        connection
        for connection in world.sandbox["secondary"].node.connections
        if (connection.container_id or "").startswith("standby-")
    ]


def message(body: bytes = b"x", name: str = "1") -> EncodedMessage:
    return encoded(ServiceBusMessage(body, message_id=name))


async def forced(world: World, count: int, **options: Any) -> PairedServiceBusClient:
    """A pairing whose sends of orders go to open links of `count` backlog queues."""
    paired = await world.pair(backlog_queue_count=count, enable_syphon=False, **options)
    await until(lambda: all(queue.link.is_open for queue in paired._standby.queues.values()))
    paired.watch("orders")
    paired.force("orders", by="kim")
    return paired


async def park(paired: PairedServiceBusClient, name: str, count: int) -> None:
    async with paired.get_queue_sender("orders") as sender:
        for number in range(count):
            await sender.send_messages(ServiceBusMessage(b"x", message_id=f"{name}-{number}"))


def parked_ids(world: World, count: int) -> Counter[str]:
    return Counter(name for index in range(count) for name in world.ids_in(queue_path(index), namespace="secondary"))


async def test_ten_backlog_queues_cost_one_connection(world: World) -> None:
    paired = await forced(world, 10, **PATIENT)
    await asyncio.gather(*(park(paired, str(number), 3) for number in range(20)))
    assert sum(parked_ids(world, 10).values()) == 60
    assert len(world.sandbox["secondary"].node.connections) == len(standby(world)) == 1
    assert sum(len(connection.links) for connection in standby(world)) >= 10


async def test_a_connection_cut_while_all_queues_park_loses_nothing_and_pulls_no_queue(world: World) -> None:
    """Section 7.1: "A failed send takes that queue out": the connection's end is not the failure of ten queues."""
    paired = await forced(world, 10, **PATIENT)
    sends = asyncio.gather(*(park(paired, str(number), 10) for number in range(20)))
    for share in (40, 120):
        await until(lambda share=share: len(world.told(Diverted)) >= share)  # type: ignore[misc]
        for connection in standby(world):
            connection.abort()
    await sends
    found, doubtful = parked_ids(world, 10), Counter(event.message_id for event in world.told(InDoubt))
    assert set(found) == {f"{name}-{number}" for name in range(20) for number in range(10)}
    assert all(times - 1 <= doubtful[name] for name, times in found.items())
    assert doubtful
    assert not world.told(QueuePulled)
    assert len(standby(world)) == 1


async def test_a_connection_that_dies_unnoticed_is_replaced_by_the_first_late_send(world: World) -> None:
    paired = await forced(world, 3, send_timeout=1.0)
    before = standby(world)
    world.fault("half-open", namespace="secondary")
    await asyncio.gather(*(park(paired, str(number), 1) for number in range(6)))
    await until(lambda: all(queue.link.is_open for queue in paired._standby.queues.values()))
    assert set(parked_ids(world, 3)) == {f"{number}-0" for number in range(6)}
    await until(lambda: not set(before) & {one for one in standby(world) if one.links})


async def test_a_silent_queue_leaves_the_sends_of_the_others_alone(world: World) -> None:
    """What is in doubt on one queue leaves the sends to other queues alone: a silent connection is replaced, not cut,
    and each send on it keeps its own time."""
    paired = await forced(world, 2, send_timeout=1.0)
    world.fault("half-open", namespace="secondary")
    links = [paired._standby.queues[index].link for index in range(2)]
    first, other = (
        asyncio.create_task(link.send([message(name=str(seconds))], seconds))
        for link, seconds in zip(links, (1.0, 2.5), strict=True)
    )
    with pytest.raises(OperationTimeoutError):
        await first
    assert not other.done()
    assert not any(link.is_open for link in links), "both attach again, over a new connection"
    with pytest.raises(ConnectionCutError, match="did not answer a send within"):
        await other


async def test_a_time_out_of_less_than_an_attempts_time_replaces_no_connection(world: World) -> None:
    """A time-out shorter than the attempt's own limit is no silence, and drops no shared connection."""
    paired = await forced(world, 2, send_timeout=5.0)
    world.fault("unanswered", namespace="secondary", entity=queue_path(0))
    links = [paired._standby.queues[index].link for index in range(2)]
    with pytest.raises(OperationTimeoutError):
        await links[0].send([message()], 0.2)
    assert links[1].is_open
    await links[0].renew(5.0)
    assert len(standby(world)) == 1


async def test_a_link_cut_by_its_queue_leaves_the_other_links_open(world: World) -> None:
    """Failover and rotation go queue by queue."""
    paired = await forced(world, 3, **PATIENT)
    paired._steering.draw = lambda: 0.0  # type: ignore[method-assign] # the first one is picked
    heal = world.fault("refused", namespace="secondary", entity=queue_path(0))
    await until(lambda: not paired._standby.queues[0].link.is_open)
    assert paired._standby.queues[1].link.is_open
    assert paired._standby.queues[2].link.is_open
    await park(paired, "a", 2)
    assert [event.queue for event in world.told(QueuePulled)] == [0]
    heal()
    await until(lambda: paired._steering.machine.rotation.holds(0))


def kinds(paired: PairedServiceBusClient) -> set[type]:
    return {type(queue.link) for queue in paired._standby.queues.values()}


async def test_a_client_that_cannot_be_read_has_links_of_the_sdk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(_: object) -> Endpoint:
        raise errors.WireUnavailableError("this client cannot be read")

    monkeypatch.setattr(Endpoint, "of", unreadable)
    paired = await forced(world, 2, **PATIENT)
    assert kinds(paired) == {SdkSenderLink}
    await park(paired, "a", 1)
    assert world.parked() == 1


async def test_a_namespace_that_refuses_our_protocol_has_links_of_the_sdk(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise errors.WireUnavailableError("the namespace refuses our protocol", "amqp:not-implemented")

    monkeypatch.setattr(ReconnectingConnection, "sender", refuse)
    paired = await forced(world, 2, **PATIENT)
    assert kinds(paired) == {SdkSenderLink}
    await park(paired, "a", 1)
    assert world.parked() == 1
    assert [warned.text for warned in world.told(Warned) if "own connection" in warned.text] == [
        "each link to a backlog queue opens its own connection: the namespace refuses our protocol"
    ]


@pytest.mark.parametrize(("pump", "kind"), [("sdk", SdkSenderLink), ("auto", BacklogLink)])
async def test_whoever_asks_for_the_sdk_gets_its_links(world: World, pump: str, kind: type) -> None:
    paired = await world.pair(pump=pump, **PATIENT)
    assert kinds(paired) == {kind}


@pytest.mark.parametrize("condition", [None, "x:unknown", *KIND_BY_CONDITION])
@pytest.mark.parametrize(
    "error",
    [
        errors.WireError,
        errors.WireAuthenticationError,
        errors.WireConnectionError,
        errors.WireLinkError,
        errors.WireOutcomeError,
        errors.WireTimeoutError,
    ],
)
def test_an_error_of_the_sdk_is_judged_as_that_of_the_wire(
    error: type[errors.WireError], condition: str | None
) -> None:
    """Section 5: the kinds decide, and a caller's own judge sees the SDK's errors."""
    wire = error("orders failed", condition)
    raised = sdk_error(wire)
    assert isinstance(raised, ServiceBusError)
    assert kind_of(raised) is kind_of(wire)
    assert "orders failed" in str(raised)


async def test_a_message_that_the_sdk_cannot_encode_fails_alone_and_as_before(world: World) -> None:
    seen: dict[str, str] = {}
    for pump in ("sdk", "auto"):
        paired = await forced(world, 1, pump=pump, **PATIENT)
        async with paired.get_queue_sender("orders") as sender:
            with pytest.raises(ServiceBusError) as raised:
                await sender.send_messages(ServiceBusMessage(b"x", application_properties={"a": 2**70}))
            seen[pump] = f"{type(raised.value).__name__} {kind_of(raised.value)}"
        assert not world.told(QueuePulled)
        await paired.close()
    assert seen["auto"] == seen["sdk"]


def test_a_cut_connection_is_a_lost_connection() -> None:
    assert kind_of(ConnectionCutError()) is kind_of(errors.WireConnectionError(""))


async def test_a_message_larger_than_the_queue_accepts_is_refused_before_it_is_sent(world: World) -> None:
    paired = await forced(world, 1, **PATIENT)
    link = paired._standby.queues[0].link
    with pytest.raises(MessageSizeExceededError):
        await link.send([message(b"x" * (link.limit() + 1))], 5.0)
    assert link.is_open
