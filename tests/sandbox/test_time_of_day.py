"""A test may freeze or set the time of day: the sandbox follows it forwards, and never goes back."""

from __future__ import annotations

import time

import pytest

from servicebus_sandbox.clock import SandboxClock


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
