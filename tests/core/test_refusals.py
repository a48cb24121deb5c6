"""Refused calls as values: episodes, rates, series, reasons, and the sentence about them."""

from __future__ import annotations

import pytest
from tests.alarm_views import condition
from tests.approval import Approve

from paired_servicebus.core.accounting.refused_calls import (
    EPISODE_GAP_SECONDS,
    MAX_REASONS,
    OTHER_REASONS,
    Refusals,
    ThrottledCalls,
    closed_reason,
)
from paired_servicebus.core.accounting.send_times import (
    WINDOW_SECONDS,
    SendAttempt,
    SendTimes,
    detection_start,
    diversion_seconds,
)
from paired_servicebus.core.errors import PairedClientError, PairingClosedError
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import EntityView
from paired_servicebus.core.operator.alarms import alarms

NOON = 1_777_636_800.0  # 2026-05-01 12:00:00 UTC


def test_an_episode_ends_after_a_quiet_time_and_is_given_once() -> None:
    one = Refusals()
    assert one.add(2, "timeout", at=NOON, accepted=0)
    assert not one.add(3, "connection lost", at=NOON + 4, accepted=0)
    assert one.over(NOON + 4 + EPISODE_GAP_SECONDS - 0.1) is None
    episode = one.over(NOON + 4 + EPISODE_GAP_SECONDS)
    assert episode is not None
    assert (episode.messages, episode.began, episode.latest) == (5, NOON, NOON + 4)
    assert one.over(NOON + 100) is None
    assert one.add(1, "timeout", at=NOON + 100, accepted=0)
    assert (one.total, dict(one.reasons)) == (6, {"timeout": 3, "connection lost": 3})


def test_a_series_runs_until_a_call_is_accepted() -> None:
    """None: the latest call did not end in an error."""
    one = Refusals()
    assert one.since(0) is None
    one.add(1, "timeout", at=NOON, accepted=5)
    one.add(1, "timeout", at=NOON + 1, accepted=5)
    assert one.since(5) == NOON
    assert one.since(6) is None
    one.add(1, "timeout", at=NOON + 2, accepted=6)
    assert one.since(6) == NOON + 2


def test_the_rate_is_over_the_last_seconds() -> None:
    one = Refusals()
    one.add(10, "timeout", at=NOON, accepted=0)
    assert one.per_second(NOON) == 10.0
    for second in range(1, 30):
        one.add(10, "timeout", at=NOON + second, accepted=0)
    assert one.per_second(NOON + 29) == pytest.approx(10.0)
    assert 0 < one.per_second(NOON + 29 + EPISODE_GAP_SECONDS / 2) < 10.0
    assert one.per_second(NOON + 29 + EPISODE_GAP_SECONDS) == 0.0


def test_reasons_are_bounded_and_add_up() -> None:
    one = Refusals()
    for number in range(3 * MAX_REASONS):
        one.add(1, f"reason {number}", at=NOON, accepted=0)
    assert len(one.reasons) == MAX_REASONS + 1
    assert one.reasons[OTHER_REASONS] == 2 * MAX_REASONS
    assert one.reasons.total() == one.total


def test_what_was_refused_before_a_failover_is_no_loss_once_sends_are_parked() -> None:
    orders = Refusals()
    orders.add(18, "timeout", at=NOON, accepted=5)
    orders.turn(NOON + 3)
    assert orders.per_second(NOON + 4) == 0
    orders.add(2, "no backlog queue took it", at=NOON + 5, accepted=6)
    assert orders.per_second(NOON + 5) == 1
    assert orders.total == 20


def test_an_ended_pairing_has_few_words(approve: Approve) -> None:
    approve.part(closed_reason(PairingClosedError("…")), "rules")
    approve.part(closed_reason(PairedClientError("…")), "rules")


# -- How long calls took: what was taken, and the last minute (SPEC.md section 8).


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


# -- Calls that wait for a busy namespace: counted while they wait, with the longest wait.


def waiting(waits: ThrottledCalls, at: float) -> list[str]:
    """What the alarm says of the waiting calls at that time."""
    base = {"state": State.HEALTHY, "since": 0.0, "why": "", "route": "primary", "sends_per_second": 0.0}
    counts = {"accepted": 0, "diverted": 0, "failed": 0}
    entities = []
    for path in ("orders", "audit"):
        number, since = waits.waiting(path)
        entities.append(EntityView(path=path, throttled=number, throttled_since=since, **base, **counts))  # type: ignore[arg-type]
    found = alarms(condition(at=at, read_at=at, entities=tuple(entities)))
    return [one.sentence for one in found if one.name == "throttled"]


def test_the_alarm_has_each_entity_its_calls_and_the_longest_wait() -> None:
    waits = ThrottledCalls()
    assert waiting(waits, 0.0) == []
    waits.wait("orders", 1, at=10.0)
    waits.wait("orders", 2, at=12.0)
    waits.wait("orders", 1, at=20.0)
    waits.wait("audit", 3, at=21.5)
    assert "(orders: 2 calls for up to 12 s)" in waiting(waits, 22.0)[0]
    assert "(audit: 1 call for up to 2 s; orders: 2 calls for up to 14 s)" in waiting(waits, 23.5)[0]


def test_a_call_that_ended_is_not_counted() -> None:
    waits = ThrottledCalls()
    waits.wait("orders", 1, at=0.0)
    waits.end("orders", 1)
    waits.end("orders", 1)
    waits.end("audit", 1)
    assert waits.waiting("orders") == (0, None)


# -- Detection counts from the first failure of the last suspicion; diversion from the first call after the
# failover.


Call = tuple[float, float, bool]


def calls(*each: Call) -> list[SendAttempt]:
    return [SendAttempt("orders", began, ended, is_accepted=accepted) for began, ended, accepted in each]


@pytest.mark.parametrize(
    ("each", "start"),
    [
        ([(1, 2, True), (3, 4, False), (5, 6, False)], 3),
        ([(1, 2, False), (3, 4, True), (5, 6, False)], 5),
        ([(1, 2, True), (3, 9, False)], 3),
        ([(1, 2, True), (7, 12, True)], 7),
        ([(1, 2, True), (3, 4, False), (11, 12, True)], 3),
        ([(1, 2, False)], 1),
        ([(1, 2, True)], None),
        ([], None),
        ([(11, 12, True)], None),
    ],
)
def test_detection_begins_with_the_first_failure_after_the_last_accepted_send(
    each: list[Call], start: float | None
) -> None:
    assert detection_start(calls(*each), 10.0) == start


@pytest.mark.parametrize(
    ("each", "seconds"),
    [
        ([(1, 2, True), (11, 12, True)], 1),
        ([(11, 12, False), (13, 15, True), (16, 17, True)], 4),
        ([(9, 12, True)], None),
        ([(11, 12, False)], None),
        ([], None),
    ],
)
def test_a_diversion_lasts_until_the_first_accepted_send(each: list[Call], seconds: float | None) -> None:
    assert diversion_seconds(calls(*each), 10.0) == seconds
