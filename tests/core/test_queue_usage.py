"""When an unused backlog queue grows, and what is said then."""

from __future__ import annotations

import pytest
from tests.approval import Approve

from paired_servicebus.core.backlog.queue_usage import GrowthDetector, growth_alarm
from paired_servicebus.core.model.snapshot import UnusedQueue


def queue(messages: int | None, active: float | None = None, index: int = 12) -> UnusedQueue:
    return UnusedQueue(path=f"p/x-servicebus-transfer/{index}", index=index, status="Active", messages=messages,
                       last_active=active)  # fmt: skip


@pytest.mark.parametrize(
    ("readings", "grows"),
    [
        ([(5, 1.0)], False),
        ([(5, 1.0), (5, 1.0)], False),
        ([(0, 1.0), (5, 2.0)], True),
        ([(5, 1.0), (9, 2.0)], True),
        ([(5, 1.0), (9, 2.0), (9, 2.0)], True),
        ([(5, 1.0), (9, 2.0), (None, None)], True),
        ([(5, 1.0), (9, 2.0), (0, 3.0)], False),
        ([(9, 1.0), (2, 2.0), (2, 2.0)], False),
        ([(9, 1.0), (2, 2.0), (3, 3.0)], True),
        ([(None, None), (5, 1.0)], False),
        ([(5, None), (9, None)], True),
    ],
)
def test_a_queue_grows_that_holds_more_than_before(readings: list[tuple[int, float]], grows: bool) -> None:
    growing = GrowthDetector()
    for messages, active in readings:
        growing.read([queue(messages, active)])
    assert growing.indices == (frozenset({12}) if grows else frozenset())


def test_a_count_that_throttling_made_zero_is_no_growth_afterwards() -> None:
    """Section 4.3: "counts read 0 while a namespace throttles"."""
    growing = GrowthDetector()
    for messages in (40, 0, 40):
        assert growing.read([queue(messages, 1.0)]) == frozenset()


def test_its_beginning_is_reported_once_and_a_queue_that_is_gone_is_forgotten() -> None:
    growing = GrowthDetector()
    found = [growing.read([queue(messages, float(messages))]) for messages in (1, 2, 3)]
    assert found == [frozenset(), {12}, frozenset()]
    assert growing.read([]) == frozenset()
    assert growing.indices == frozenset()


def test_the_alarm_names_the_indices_and_the_number_of_queues_to_ask_for(approve: Approve) -> None:
    assert growth_alarm(frozenset()) == ""
    approve.part(growth_alarm(frozenset({12})), "rules", has=("12 is",))
    many = growth_alarm(frozenset(range(10, 20)))
    approve.part(many, "rules", has=("10 to", "19 are", "backlog_queue_count", "20 or"))
