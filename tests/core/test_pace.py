"""How fast the syphon may go: what the owner set, what throttling taught, and the share of live senders."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.approval import Approve

from paired_servicebus.core.backlog.depth_readings import GrowthDetector
from paired_servicebus.core.backlog.syphon_status_rules import (
    STALLED_AFTER,
    StallDetector,
    Standstill,
    SyphonEvidence,
    UnavailableDestinations,
    are_healthy,
    judge,
)
from paired_servicebus.core.model.entity_state import Entity, State
from paired_servicebus.core.model.snapshot import SyphonStatus, UnusedQueue
from paired_servicebus.core.pump.intake_limit import BURST, LIVE_SECONDS, MIN_RATE, SyphonRateLimit

REST = 10.0
NOW = 1_700_000_000.0


def moving(pace: SyphonRateLimit, rate: int, *, seconds: int = 3, at: float = NOW) -> float:
    """So many messages a second are moved for a while; the time then."""
    for second in range(seconds):
        assert pace.left(at + second) >= 1
        pace.took(rate)
    return at + seconds


def test_without_a_rate_and_without_throttling_nothing_is_held_back() -> None:
    pace = SyphonRateLimit(rest=REST)
    at = moving(pace, 1_000_000)
    pace.live_at = at
    assert (pace.limit(at), pace.left(at), pace.why(at)) == (inf, inf, "")


@given(
    rate=st.floats(0.1, 100_000),
    steps=st.lists(st.tuples(st.floats(0, 5), st.integers(0, 10**6)), max_size=60),
)
def test_a_rate_is_kept_over_any_time(rate: float, steps: list[tuple[float, int]]) -> None:
    """However irregularly it is asked: never more than the rate and one burst."""
    pace, at, taken = SyphonRateLimit(rate=rate, rest=REST), NOW, 0
    for pause, wish in steps:
        at += pause
        took = min(wish, int(pace.left(at)))
        pace.took(took)
        taken += took
        assert taken <= rate * (at - NOW + 2 * BURST) + 2


@given(rate=st.floats(0.1, 1000), seconds=st.integers(2, 30))
def test_whoever_asks_often_gets_the_rate(rate: float, seconds: int) -> None:
    pace, taken = SyphonRateLimit(rate=rate, rest=REST), 0
    for tick in range(10 * seconds):
        took = int(pace.left(NOW + tick / 10))
        pace.took(took)
        taken += took
    assert taken >= int(rate * (seconds - 0.2)) - 1


def test_throttled_it_halves_what_was_moved_and_grows_again_by_equal_steps_until_nothing_holds(
    approve: Approve,
) -> None:
    pace = SyphonRateLimit(rest=REST)
    at = moving(pace, 1000)
    assert pace.throttled(at) == pytest.approx(500)
    approve.part(pace.why(at), "rules", has=("500 a",))
    assert pace.limit(at + REST) == pytest.approx(500)
    grown = [pace.limit(at + REST + second) for second in range(1, 30)]
    assert [later - earlier for earlier, later in pairwise(grown)] == pytest.approx([50] * 28)
    assert pace.limit(at + REST + 30) == inf
    assert pace.why(at + REST + 31) == ""


def test_refusals_of_the_same_moment_halve_once() -> None:
    pace = SyphonRateLimit(rest=REST)
    at = moving(pace, 1000)
    pace.throttled(at)
    assert [pace.throttled(at + late) for late in (0, 0.01, REST - 0.01)] == [None] * 3
    assert pace.limit(at + REST) == pytest.approx(500)


def test_throttled_again_and_again_it_goes_on_slowly() -> None:
    pace, at = SyphonRateLimit(rest=REST), NOW
    moving(pace, 1000)
    limits = []
    for _ in range(40):
        at += REST
        limits.append(pace.throttled(at))
    assert limits[-1] is not None
    assert MIN_RATE <= limits[-1] < 10


def test_throttling_before_anything_was_moved_was_not_the_syphons() -> None:
    pace = SyphonRateLimit(rest=REST)
    assert pace.throttled(NOW) is None
    assert pace.left(NOW) == inf


@given(
    rate=st.floats(0, 10_000),
    share=st.floats(0, 0.9),
    told=st.lists(
        st.tuples(st.floats(0, 20), st.sampled_from(["throttled", "live", "took"]), st.integers(1, 5000)), max_size=80
    ),
)
def test_whatever_it_is_told_it_never_goes_beyond_the_owners_rate_nor_stands_still(
    rate: float, share: float, told: list[tuple[float, str, int]]
) -> None:
    pace, at = SyphonRateLimit(rate=rate, live_share=share, rest=REST), NOW
    for pause, what, count in told:
        at += pause
        pace.left(at)
        if what == "throttled":
            pace.throttled(at)
        elif what == "live":
            pace.live_at = at
        else:
            pace.took(count)
        assert pace.limit(at) <= (rate or inf)
        assert pace.limit(at) >= min(MIN_RATE, rate or inf)
        assert bool(pace.why(at)) == (pace.limit(at) < inf)


def test_live_senders_have_their_share_as_long_as_they_send(approve: Approve) -> None:
    pace = SyphonRateLimit(rate=100, live_share=0.25, rest=REST)
    pace.live_at = NOW
    assert pace.limit(NOW) == pytest.approx(75)
    approve.part(pace.why(NOW), "rules", has=("75 a", "syphon_rate"))
    assert pace.limit(NOW + LIVE_SECONDS) == 100
    approve.part(pace.why(NOW + LIVE_SECONDS), "rules", has=("100 a", "syphon_rate"))


def test_what_was_moved_without_a_limit_is_no_debt_when_there_is_one() -> None:
    pace = SyphonRateLimit(rest=REST)
    at = moving(pace, 10_000)
    pace.throttled(at)
    assert pace.left(at + 0.1) >= 1


def test_what_is_put_aside_instead_was_not_moved() -> None:
    pace = SyphonRateLimit(rate=10, rest=REST)
    before = pace.left(NOW)
    pace.took(5)
    pace.gave_back(5)
    assert pace.left(NOW) == before


# -- Status by messages moved, and by what explains those that were not (SPEC.md section 8).


PAUSED, STUCK, RUNNING = SyphonStatus.PAUSED, SyphonStatus.STUCK, SyphonStatus.RUNNING
WAITING, IDLE = SyphonStatus.WAITING, SyphonStatus.IDLE
OUTAGE = UnavailableDestinations(outage=("orders",))
REFUSED = UnavailableDestinations(refused=(("orders", "timeout"),))
PACE = "at most 5 a second"
UNEXPLAINED = "for an unknown reason"
LIES: dict[str, Any] = {"parked": 348, "lies_still": 348}


@pytest.mark.parametrize(
    ("status", "sight"),
    [
        (PAUSED, {"paused": "paused here", **LIES}),
        (STUCK, {"failing": "backlog queue 0: cannot receive"}),
        (STUCK, LIES),
        (STUCK, LIES | {"others": True}),
        (STUCK, LIES | {"away": REFUSED, "takes": True}),
        (RUNNING, {"parked": 5, "moves_now": True}),
        (RUNNING, {"parked": 5, "moved_lately": True}),
        (RUNNING, {"parked": 0, "moves_now": True}),
        (RUNNING, LIES | {"moves_now": True}),
        # "stuck" is not said while every destination that was looked at takes nothing
        (WAITING, LIES | {"away": OUTAGE}),
        (WAITING, LIES | {"away": REFUSED}),
        (WAITING, LIES | {"away": UnavailableDestinations(forced=("orders",))}),
        (WAITING, LIES | {"away": UnavailableDestinations(paused=("orders",))}),
        # nor while another engine on the same queues is known, or cannot be excluded, and moves
        (WAITING, LIES | {"others_busy": True}),
        (WAITING, LIES | {"away": REFUSED, "takes": True, "others": True}),
        # "idle" is: nothing parked and nothing to do
        (WAITING, {"parked": 8}),
        (WAITING, {"parked": 8, "is_whole": False}),
        (WAITING, {"parked": 8, "paused_queues": "backlog queue 1"}),
        (IDLE, {"parked": 0}),
        (IDLE, {"parked": 0, "moved_lately": True}),
        (IDLE, {"parked": 0, "away": OUTAGE}),
        (IDLE, {"parked": None}),
    ],
)
def test_the_rule(status: SyphonStatus, sight: dict[str, Any]) -> None:
    assert judge(SyphonEvidence(**sight))[0] is status


@pytest.mark.parametrize(
    ("text", "sight"),
    [
        ("holds 924 messages for an outage of orders; moves them when it is healthy again", {"away": OUTAGE}),
        ("holds 924 messages for orders (timeout); moves them when it is healthy again", {"away": REFUSED}),
        (
            "holds 924 messages for an outage of orders, audit; moves them when each is healthy again",
            {"away": UnavailableDestinations(outage=("orders", "audit"))},
        ),
        ("holds 924 messages for orders (forced here)", {"away": UnavailableDestinations(forced=("orders",))}),
        (
            "holds 924 messages for an outage of a and b (paused by an operator); moves them when it is healthy again",
            {"away": UnavailableDestinations(outage=("a",), paused=("b",))},
        ),
        (
            "holds 924 messages for an outage of a, b, c and 2 more; moves them when each is healthy again",
            {"away": UnavailableDestinations(outage=tuple("abcde"))},
        ),
        ("924 messages parked; an operator paused backlog queue 1", {"paused_queues": "backlog queue 1"}),
        ("924 messages parked; another engine moves them, or holds them for an outage", {"others_busy": True}),
        ("924 messages parked, and none received since the start", {}),
        (f"924 messages in the backlog, none moved, {UNEXPLAINED}", {"lies_still": 924}),
        (f"1 message in the backlog, none moved, {UNEXPLAINED}", {"lies_still": 1}),
        ("moving messages to their destinations; at most 5 a second", {"moves_now": True, "pace": PACE}),
    ],
)  # fmt: skip
def test_it_says_why(text: str, sight: dict[str, Any]) -> None:
    assert judge(SyphonEvidence(**{"parked": 924} | sight))[1] == text


def test_unknown_is_not_idle_with_nothing_to_move(approve: Approve) -> None:
    approve.part(judge(SyphonEvidence(parked=None))[1], "rules")
    approve.part(judge(SyphonEvidence(parked=0, is_whole=False))[1], "rules")
    approve.part(judge(SyphonEvidence())[1], "rules")


# -- since when they lie still ----------------------------------------------------------------------------------------


def look(still: Standstill, at: float, **changes: Any) -> bool:
    """A second with messages that nothing explains; whether they are proven to lie still for 30 s."""
    known = {"unexplained": 9, "empty_at": 0.0, "read_at": at, "moved_at": 0.0, "away": False}
    still.look(at, **known | changes)  # type: ignore[arg-type] # by their names
    return still.is_proven(30)


def test_it_takes_a_reading_after_the_time_to_prove_it() -> None:
    still = Standstill()
    assert not look(still, 100, read_at=99)
    assert not look(still, 140, read_at=99), "somebody may have moved them since"
    assert look(still, 141, read_at=130)


@pytest.mark.parametrize(
    ("looks", "proven_at"),
    [
        pytest.param([(125, {"moved_at": 124})], 154, id="whoever moves some begins it anew"),
        pytest.param([(120, {"unexplained": 0}), (121, {})], 151, id="messages that are explained end it"),
        pytest.param([(200, {"away": True})], 260, id="after an outage every engine pauses for 30 s before it tries"),
    ],
)
def test_what_happens_meanwhile_delays_the_proof(looks: list[tuple[int, dict[str, Any]]], proven_at: int) -> None:
    still = Standstill()
    for at, more in [(100, {}), *looks]:
        look(still, at, **more)
    assert not look(still, proven_at - 1)
    assert look(still, proven_at)


# -- When a backlog without a known syphon stands still: SPEC.md section 4.6.


def alarm_after(*readings: tuple[int, float], healthy: bool = True) -> str:
    """The alarm once these readings, messages and time, were made."""
    stalled = StallDetector()
    for messages, at in readings:
        stalled.read(messages, at=at, healthy=healthy)
    return stalled.trouble.reason if stalled.trouble is not None else ""


def test_the_alarm_is_due_once_the_depth_has_not_fallen_for_15_min(approve: Approve) -> None:
    """ "An alarm once … the depth has not fallen for 15 min while the destinations are healthy"."""
    assert alarm_after((5, 100.0), (5, 100.0 + STALLED_AFTER - 1)) == ""
    approve.part(alarm_after((5, 100.0), (7, 500.0), (7, 100.0 + STALLED_AFTER)), "rules", has=("7 parked",))


def test_a_depth_that_falls_is_moved_by_somebody() -> None:
    assert alarm_after((5, 100.0), (4, 600.0), (4, 100.0 + STALLED_AFTER)) == ""


def test_an_old_reading_proves_nothing_however_often_it_is_looked_at() -> None:
    assert alarm_after((5, 100.0), (5, 100.0), (5, 100.0)) == ""


@pytest.mark.parametrize("readings", [((0, 100.0), (0, 2000.0)), ((5, 100.0), (0, 500.0), (5, 1100.0))])
def test_an_empty_backlog_is_no_alarm(readings: tuple[tuple[int, float], ...]) -> None:
    assert alarm_after(*readings) == ""


def test_while_destinations_are_not_known_to_be_healthy_nothing_has_to_move() -> None:
    assert alarm_after((5, 100.0), (5, 2000.0), healthy=False) == ""


@pytest.mark.parametrize(
    ("states", "healthy"),
    [
        ((), False),
        ((State.UNKNOWN,), False),
        ((State.HEALTHY, State.UNKNOWN), True),
        ((State.HEALTHY, State.SUSPECT), False),
        ((State.HEALTHY, State.FAILED_OVER), False),
        ((State.HEALTHY, State.FORCED), False),
    ],
)
def test_unknown_destinations_are_not_healthy(states: tuple[State, ...], healthy: bool) -> None:
    assert are_healthy(tuple(Entity(path=f"e{n}", since=0.0, state=one) for n, one in enumerate(states))) is healthy


def test_what_fell_quiet_was_healthy_when_last_heard_of() -> None:
    """Both take 15 minutes: the alarm of an application that sends nothing must not be lost to its own silence."""
    quiet = Entity(path="orders", since=0.0, quiet_since=0.0)
    assert are_healthy((quiet,))
    assert not are_healthy((quiet, Entity(path="audit", since=0.0, state=State.SUSPECT)))


# -- When an unused backlog queue grows, and what is said then.


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
