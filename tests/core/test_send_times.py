"""How long calls took: what was taken, and the last minute (SPEC.md section 8)."""

from __future__ import annotations

import pytest

from paired_servicebus.core.accounting.send_times import WINDOW_SECONDS, SendTimes


def test_each_call_is_taken_once() -> None:
    times = SendTimes()
    times.add(0.1)
    times.count()
    assert sum(times.take().values()) == 1
    assert not times.take()
    times.add(0.1)
    assert sum(times.take().values()) == 1


def test_the_p99_is_of_the_last_minute() -> None:
    times = SendTimes()
    assert times.p99 is None
    for _ in range(98):
        times.add(0.001)
    times.add(5.0)
    times.add(5.0)
    times.count()
    assert times.p99 == pytest.approx(5.0, rel=0.07)
    for _ in range(1000):
        times.add(0.001)
    times.count()
    assert times.p99 == pytest.approx(0.001, rel=0.07)
    for _ in range(WINDOW_SECONDS + 1):
        times.count()
    assert times.p99 is None
