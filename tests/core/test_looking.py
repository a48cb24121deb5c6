"""How often the depths are read, reason by reason: the rows of core/backlog/depth_readings.py."""

from __future__ import annotations

from itertools import combinations

import pytest

from paired_servicebus.core.backlog.depth_readings import PollReason, every

WATCHED, SCRAPED, SYPHON, DIVERTING, PARKED, LYING, UNMOVED = PollReason


@pytest.mark.parametrize(
    ("reasons", "seconds"),
    [
        ((), None),
        ((PARKED, LYING), None),  # a sender that knows a syphon elsewhere
        ((DIVERTING, PARKED, LYING, UNMOVED), 60),
        ((PARKED, LYING, UNMOVED), 300),
        ((SYPHON,), 300),
        ((SYPHON, PARKED), 300),  # all of it is held aside
        ((SYPHON, PARKED, LYING), 30),
        ((SCRAPED,), 30),
        ((WATCHED,), 15),
        ((WATCHED, SCRAPED, SYPHON, PARKED, LYING), 5),
    ],
)
def test_management_is_asked_only_where_somebody_looks_or_a_rule_needs_it(
    reasons: tuple[PollReason, ...], seconds: float | None
) -> None:
    """Section 12: "Management is asked only where somebody looks or a rule needs it; a sender-only process in good
    health asks nothing."."""
    assert every(frozenset(reasons)) == seconds


def test_a_further_reason_never_has_the_depths_read_less_often() -> None:
    for number in range(len(PollReason)):
        for held in map(frozenset, combinations(PollReason, number)):
            for more in PollReason:
                assert (every(held | {more}) or 1e9) <= (every(held) or 1e9)


def test_a_sender_that_nobody_watches_asks_once_a_minute_at_most() -> None:
    """It was 40 Atom reads a minute while healthy, 120 failed over."""
    mine = (DIVERTING, PARKED, LYING, UNMOVED)
    assert min(every(frozenset(held)) or 60 for n in range(5) for held in combinations(mine, n)) == 60
