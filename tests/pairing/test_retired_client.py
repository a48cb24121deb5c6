"""What the retired .NET client left in a backlog: its queues are used, its messages delivered (SPEC.md 4 and 7).

The bytes are written out here, constructor by constructor, in the encodings a .NET writer chooses (the smallest), so
that neither our own writer nor the SDK's decides what is read.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus.management import QueueProperties

from paired_servicebus.core.model.pairing_events import DeadLettered, Moved
from servicebus_amqp.encoding.message_sections import read_header, read_map, read_properties
from servicebus_sandbox import Sandbox

from .backlogs import lying_in, put, queue_path, sections
from .conftest import World, until

TICKS_A_SECOND = 10_000_000
MIDNIGHT = datetime(2031, 5, 6, tzinfo=UTC)


@pytest.fixture(params=["amqp", "sdk"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
        yield World(sandbox, stack, pump=request.param)


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


async def test_a_message_of_the_retired_client_is_delivered_with_its_own_properties(world: World) -> None:
    """Backlog messages of the retired client are readable: timespan = described type com.microsoft:timespan, long,
    100 ns ticks."""
    envelope = (
        (string("x-ms-path"), string("payments")),
        (string("x-ms-sessionid"), string("amsterdam")),
        (string("x-ms-timetolive"), timespan(90)),
    )
    put_first = await _queues_of_the_retired_client(world)
    put(world, [left_behind("m-1", envelope)], path=put_first)
    await world.pair(enable_syphon=True)
    await until(lambda: world.told(Moved))
    (stored,) = lying_in(world, "payments")
    arrived = sections(stored)
    found = read_properties(arrived.properties)
    assert (found.message_id, found.group_id) == ("m-1", "amsterdam")
    assert read_header(arrived.header).ttl == 90_000
    assert read_map(arrived.application_properties) == {"colour": "red"}
    assert arrived.body == section(0x75, b"\xa0\x05order")


async def test_a_scheduled_message_of_the_retired_client_keeps_its_time(world: World) -> None:
    """scheduled_enqueue_time_utc is kept as x-ms-scheduledenqueuetimeutc (timestamp)."""
    envelope = (
        (string("x-ms-path"), string("orders")),
        (string("x-ms-scheduledenqueuetimeutc"), timestamp(MIDNIGHT)),
    )
    put_first = await _queues_of_the_retired_client(world)
    put(world, [left_behind("m-2", envelope)], path=put_first)
    await world.pair(enable_syphon=True)
    await until(lambda: world.told(Moved))
    assert world.depth("orders") == 0, "it is not due yet"
    counts = world.sandbox["primary"].node.namespace.queue("orders").counts()
    assert counts.scheduled == 1


async def test_a_time_without_end_is_no_time_to_live(world: World) -> None:
    """TimeSpan.MaxValue, which the retired client wrote for a message without a time to live."""
    longest = b"\x00" + symbol("com.microsoft:timespan") + long(2**63 - 1)
    envelope = ((string("x-ms-path"), string("orders")), (string("x-ms-timetolive"), longest))
    put_first = await _queues_of_the_retired_client(world)
    put(world, [left_behind("m-3", envelope)], path=put_first)
    await world.pair(enable_syphon=True)
    await until(lambda: world.told(Moved))
    assert not world.told(DeadLettered)
    (stored,) = lying_in(world, "orders")
    assert read_header(sections(stored).header).ttl in (None, 2**32 - 1)


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
