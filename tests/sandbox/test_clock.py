"""The clock, set forward over the control URL: locks, expiries, schedules, duplicate windows and tokens follow it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import MessageLockLostError

from servicebus_sandbox import Sandbox
from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.clock import SandboxClock
from servicebus_sandbox.specs import NamespaceSpec, QueueSpec

Advance = Callable[[float], Awaitable[None]]


@pytest.fixture
async def running() -> AsyncIterator[Sandbox]:
    once = QueueSettings(requires_duplicate_detection=True, duplicate_window=timedelta(minutes=1))
    expiring = QueueSettings(default_ttl=timedelta(hours=1), dead_letter_on_expiration=True)
    queues = (QueueSpec("orders"), QueueSpec("once", once), QueueSpec("expiring", expiring))
    async with asyncio.timeout(60), Sandbox.start([NamespaceSpec("contoso", queues=queues)]) as sandbox:
        yield sandbox


@pytest.fixture
async def control(running: Sandbox) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(running.control_url + "/") as session:
        yield session


@pytest.fixture
def advance(control: aiohttp.ClientSession) -> Advance:
    async def advance(seconds: float) -> None:
        async with control.post("clock", json={"advance_s": seconds}) as answer:
            assert answer.status == 200

    return advance


@pytest.fixture
async def client(running: Sandbox) -> AsyncIterator[ServiceBusClient]:
    connection_string = running["contoso"].connection_string
    async with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as opened:
        yield opened


def test_a_clock_goes_with_the_time_of_day_and_never_back() -> None:
    clock = SandboxClock(lambda: 1000.0)
    clock.advance(5)
    clock.advance(0.5)
    assert (clock(), clock.ahead) == (1005.5, 5.5)
    for seconds in (0, -1, 1e12, float("nan")):
        with pytest.raises(ValueError, match="cannot be made"):
            clock.advance(seconds)
    assert clock() == 1005.5


async def test_the_new_time_is_told(running: Sandbox, control: aiohttp.ClientSession) -> None:
    async with control.post("clock", json={"advance_s": 3600}) as answer:
        told = await answer.json()
    async with control.get("clock") as answer:
        later = await answer.json()
    assert told["ahead_s"] == later["ahead_s"] == 3600
    assert told["epoch_s"] <= later["epoch_s"] <= running["contoso"].node.clock()
    ahead = datetime.fromisoformat(told["now"]) - datetime.now(UTC)
    assert timedelta(minutes=59) < ahead <= timedelta(hours=1)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({}, "advance_s has to be a number of seconds, not null"),
        ({"advance_s": "60"}, 'not "60"'),
        ({"advance_s": True}, "not true"),
        ({"advance_s": -5}, "a jump of -5 seconds cannot be made; allowed is more than 0"),
        ({"advance_s": 1e300}, "cannot be made"),
        ({"to": 5}, "unknown field 'to'; known are advance_s"),
    ],
)
async def test_what_is_no_jump(control: aiohttp.ClientSession, body: dict[str, Any], complaint: str) -> None:
    async with control.post("clock", json=body) as answer:
        told = await answer.json()
    assert answer.status == 400
    assert complaint in told["error"]


async def test_a_lock_passes(client: ServiceBusClient, advance: Advance) -> None:
    async with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        (first,) = await receiver.receive_messages(1, max_wait_time=5)
        await advance(61)
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(first)
        (again,) = await receiver.receive_messages(1, max_wait_time=5)
        assert again.delivery_count == 1


async def test_a_duplicate_window_passes(running: Sandbox, client: ServiceBusClient, advance: Advance) -> None:
    queue = running["contoso"].node.namespace.queue("once")
    async with client.get_queue_sender("once") as sender:
        for _ in range(2):
            await sender.send_messages(ServiceBusMessage("x", message_id="same"))
        assert queue.counts().active == 1
        await advance(61)
        await sender.send_messages(ServiceBusMessage("x", message_id="same"))
        assert queue.counts().active == 2


async def test_tokens_end_by_the_clock_and_new_ones_are_good(
    running: Sandbox, client: ServiceBusClient, advance: Advance
) -> None:
    node = running["contoso"].node
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("1"))
        (connection,) = node.connections
        assert any(link.path == "orders" for link in connection.links.values())
        await advance(24 * 3600)
        assert not any(link.path == "orders" for link in connection.links.values())
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("2"))
    assert node.namespace.queue("orders").counts().active == 2


async def test_a_jump_short_of_a_deadline_brings_it_nearer(
    running: Sandbox, client: ServiceBusClient, advance: Advance
) -> None:
    async with client.get_queue_sender("expiring") as sender:
        await sender.send_messages(ServiceBusMessage("x", time_to_live=timedelta(seconds=60)))
        await advance(58)
        counts = running["contoso"].node.namespace.queue("expiring").counts
        assert counts().active == 1
    async with asyncio.timeout(60):
        while counts().active:
            await asyncio.sleep(0.01)
    assert counts().dead_letter == 1


# A test may freeze or set the time of day: the sandbox follows it forwards, and never goes back.


def test_the_time_of_day_is_asked_for_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A freezer of time replaces `time.time` after the sandbox has started."""
    clock = SandboxClock()
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert clock.time_of_day() == 4e9
    assert clock() == 4e9


def test_the_clock_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SandboxClock()
    before = clock()
    monkeypatch.setattr(time, "time", lambda: 1e9)
    assert clock() == before
    monkeypatch.setattr(time, "time", lambda: 1e9 + 5)
    assert clock() == pytest.approx(before + 5)
    assert clock.time_of_day() == 1e9 + 5, "clients date their tokens by it"


def test_a_jump_counts_beside_a_time_that_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SandboxClock()
    before = clock()
    monkeypatch.setattr(time, "time", lambda: 1e9)
    clock.advance(60)
    assert clock() == pytest.approx(before + 60, abs=1)
