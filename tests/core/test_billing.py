"""What the pairing adds to the bill (SPEC.md section 8, cost)."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.accounting.billing import PARKED_MESSAGE_OPERATIONS, Meter, idle_receives
from paired_servicebus.core.model.snapshot import BilledView

HOUR = 3600.0
PARTS = ("waits", "searches", "attaches")
"""Of the receives."""
NAMES = [field.name for field in fields(Meter) if not field.name.endswith("_bytes") and field.name not in PARTS]


def test_a_parked_message_costs_four_operations() -> None:
    """Section 8: "send to and receive from backlog, send to and receive from primary"."""
    assert PARKED_MESSAGE_OPERATIONS == 4


@pytest.mark.parametrize(("hours", "calls"), [(1, 40), (24, 960), (30 * 24, 28_800)])
def test_an_idle_syphon_on_ten_queues(hours: int, calls: int) -> None:
    """Section 8: "40 receive calls an hour, 960 a day, 28,800 in 30 days"."""
    assert idle_receives(backlog_queues=10, window=15 * 60, engines=1, seconds=hours * HOUR) == calls


def test_every_engine_that_syphons_costs_the_same_again() -> None:
    """Section 8: "times the engines that syphon"."""
    assert idle_receives(backlog_queues=10, window=15 * 60, engines=3, seconds=HOUR) == 120


@given(counts=st.fixed_dictionaries(dict.fromkeys(NAMES, st.integers(0, 10**9))))
def test_the_total_is_the_sum_of_all_causes(counts: dict[str, int]) -> None:
    assert Meter(**counts).total == BilledView(**counts).total == sum(counts.values())


def test_a_new_meter_stands_at_zero() -> None:
    assert Meter().total == 0


def test_the_snapshot_shows_every_cause_the_meter_counts() -> None:
    counted_by_the_engine = ["fleet"]
    shown = [field.name for field in fields(BilledView)]
    assert shown == [field.name for field in fields(Meter)] + counted_by_the_engine
