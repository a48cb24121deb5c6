"""Detection counts from the first failure of the last suspicion; diversion from the first call after the failover."""

from __future__ import annotations

import pytest

from paired_servicebus.core.accounting.send_times import SendAttempt, detection_start, diversion_seconds

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
