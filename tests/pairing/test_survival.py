"""Messages that would not survive a failover are counted while all is well (SPEC.md section 7.4)."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

from paired_servicebus.pairing.sending.backlog_fit import rough_size, too_large
from paired_servicebus.pairing.sending.sdk_messages import park
from paired_servicebus.pairing.sending.sender_link import STANDARD_LIMIT, size_of

from .conftest import World


def never() -> int:
    raise AssertionError("the limit was asked for a small message")


def counted(message: Any, limit: int = STANDARD_LIMIT) -> int:
    return too_large([message], None, "orders", lambda: limit)


def largest_that_fits(limit: int) -> int:
    """Bytes of the largest body whose envelope is just as large as the limit."""
    message = ServiceBusMessage(b"x" * 250_000, message_id="1")
    return limit - (size_of(park(message, "orders")) - 250_000)


def test_a_small_message_is_not_even_measured() -> None:
    assert too_large([ServiceBusMessage(b"x" * 1000)], None, "orders", never) == 0


def test_a_small_batch_is_judged_by_the_size_it_knows() -> None:
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
    assert counted(message) == (size_of(park(message, "orders")) > STANDARD_LIMIT)


async def test_a_message_that_would_not_survive_failover_is_counted_while_healthy(world: World) -> None:
    """Those that "would not survive failover" are counted while healthy."""
    paired = await world.pair()
    async with paired.get_queue_sender("orders") as sender:
        large = ServiceBusMessage(b"x" * (largest_that_fits(STANDARD_LIMIT) + 1), message_id="1")
        await sender.send_messages(large)
        await sender.send_messages(ServiceBusMessage(b"x" * 1000))
    assert [view.too_large for view in paired.entity_views()] == [1]
