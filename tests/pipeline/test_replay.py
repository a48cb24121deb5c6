"""Recorded failures through the shipped rules: what a run counts, and that skipping quiet times changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paired_servicebus.core.failover.inactivity import QUIET_AFTER
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.pipeline.rehearsal.policy_ranking import LONGEST, SHORTEST, Replay, RunOutcome, plan_of
from paired_servicebus.pipeline.rehearsal.recorded_history import (
    CONDITIONS,
    HOUR,
    OfferedLoad,
    Outage,
    RateStep,
    RecordedHistory,
    TimeBounds,
)
from paired_servicebus.simulation.run_plan import Crash, OperatorAct
from paired_servicebus.simulation.sim_namespaces import BEGAN
from tests.simulation.checked_world import RunChecker

QUICK = Policy(send_timeout=2.0, failover_interval=10.0, ping_primary_interval=10.0, ping_timeout=5.0)


def exactly(at: float) -> TimeBounds:
    return TimeBounds(at, at)


def history(
    *outages: Outage, paths: tuple[str, ...] = ("orders", "payments"), seconds: float = 600.0
) -> RecordedHistory:
    """Two messages a second to each entity."""
    loads = tuple(OfferedLoad(path=path, steps=(RateStep(0.0, 2.0),)) for path in paths)
    return RecordedHistory(source="a test", seconds=seconds, entities=paths, queues=3, loads=loads, outages=outages)


REFUSED = Outage("orders", FailureKind.DISABLED, exactly(100.0), exactly(200.0))


class CheckedReplay(Replay):
    """A replay with the invariants of the simulation."""

    watch: RunChecker
    record = RunChecker


def replay(history: RecordedHistory, policy: Policy, seed: int) -> RunOutcome:
    """Run it; no invariant is broken."""
    checked = CheckedReplay(history, policy, seed)
    outcome = checked.outcome()
    assert checked.watch.broken == []
    return outcome


def test_without_an_outage_nothing_happens_and_next_to_nothing_is_played() -> None:
    world = Replay(history(), QUICK, 1)

    outcome = world.outcome()

    assert (outcome.failovers, outcome.parked, outcome.pings, outcome.unavailable_ms) == (0, 0, 0, 0)
    assert outcome.accepted == pytest.approx(2400, abs=2)
    assert world.clock.events < 1000


def test_an_outage_is_failed_over_after_the_interval_and_back_with_the_first_ping_after_it() -> None:
    outcome = replay(history(REFUSED), QUICK, 1)

    assert (outcome.failovers, outcome.flaps) == (1, 0)
    assert outcome.unavailable_ms == pytest.approx(10_500, abs=600)
    assert outcome.failed_over_ms == pytest.approx(90_000, abs=1000)
    assert outcome.parked == pytest.approx(180, abs=3)
    assert outcome.refused == pytest.approx(20, abs=2)
    assert outcome.pings == 9
    assert (outcome.lost, outcome.duplicates, outcome.broken) == (0, 0, 0)


def test_with_interval_zero_no_caller_is_refused() -> None:
    """SPEC.md section 6: 'with interval 0 the same call goes on to the backlog and the caller sees no error'."""
    outcome = replay(history(REFUSED), replace(QUICK, failover_interval=0.0), 1)

    assert (outcome.unavailable_ms, outcome.refused) == (0, 0)
    assert outcome.parked == pytest.approx(200, abs=25)


def test_the_longest_reading_and_the_shortest_are_bounds_of_every_other() -> None:
    unsure = history(Outage("orders", FailureKind.DISABLED, TimeBounds(90.0, 110.0), TimeBounds(150.0, 250.0)))

    runs = [replay(unsure, QUICK, seed) for seed in range(1, 12)]

    failed_over = [run.failed_over_ms for run in runs]
    assert max(failed_over) == failed_over[LONGEST - 1]
    assert min(failed_over) == failed_over[SHORTEST - 1]
    assert len(set(failed_over)) > 3


def test_skipping_quiet_times_changes_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Played in full, the same outages give the same failovers, pings and parked messages."""
    broken = history(
        REFUSED,
        Outage("payments", FailureKind.FULL, exactly(300.0), exactly(330.0)),
        Outage("orders", FailureKind.NOT_FOUND, exactly(400.0), exactly(425.0)),
    )
    quick = replay(broken, QUICK, 3)
    monkeypatch.setattr(Replay, "quiet_until", lambda self, path: None)
    full = replay(broken, QUICK, 3)

    assert (quick.failovers, quick.pings) == (full.failovers, full.pings)
    assert quick.accepted == pytest.approx(full.accepted, abs=3)
    assert quick.parked == pytest.approx(full.parked, abs=3)
    assert quick.failed_over_ms == pytest.approx(full.failed_over_ms, abs=1500)
    assert quick.unavailable_ms == pytest.approx(full.unavailable_ms, abs=1500)


def test_a_failback_into_the_same_outage_is_a_flap() -> None:
    flapping = [Outage("orders", FailureKind.DISABLED, exactly(at), exactly(at + 18.0)) for at in (100.0, 140.0, 180.0)]
    hasty = replay(history(*flapping), QUICK, 1)
    patient = replay(history(*flapping), replace(QUICK, failback_pings=3), 1)

    assert hasty.flaps > patient.flaps


def test_what_people_and_crashes_did_is_replayed() -> None:
    drilled = replace(
        history(), acts=(OperatorAct(50.0, 0, "force", "orders"), OperatorAct(80.0, 0, "release", "orders"))
    )
    crashed = replace(history(REFUSED), crashes=(Crash(150.0, 160.0, 0),))

    assert replay(drilled, QUICK, 1).failed_over_ms == pytest.approx(30_000, abs=100)
    assert replay(crashed, QUICK, 1).failovers == 2


def test_a_caller_that_insists_loses_no_message() -> None:
    insisting = replace(
        history(REFUSED), insists=0.5, loads=(OfferedLoad(path="orders", steps=(RateStep(0.0, 2.0),), waits=True),)
    )

    outcome = replay(insisting, QUICK, 1)

    assert outcome.refused == 0
    assert outcome.parked == pytest.approx(180, abs=5)


def test_a_refusal_that_takes_long_is_noticed_later() -> None:
    quick = replay(history(REFUSED), QUICK, 1)
    slow = replay(replace(history(REFUSED), refusal=1.5), QUICK, 1)

    assert slow.unavailable_ms == pytest.approx(quick.unavailable_ms + 1500, abs=200)


def test_a_run_depends_on_its_seed_alone() -> None:
    first: RunOutcome = replay(HOUR, Policy(), 7)

    assert replay(HOUR, Policy(), 7) == first
    assert (first.lost, first.broken) == (0, 0)


def test_a_reading_draws_the_same_whatever_the_policy() -> None:
    assert plan_of(HOUR, Policy(), 5).faults == plan_of(HOUR, Policy(failback_pings=3), 5).faults


def test_every_failure_that_a_record_can_hold_has_a_condition() -> None:
    callers = {FailureKind.TOO_LARGE, FailureKind.ARGUMENT, FailureKind.IMPOSSIBLE, FailureKind.UNLISTED}

    assert set(CONDITIONS) == set(FailureKind) - callers


def test_calls_that_are_not_played_keep_an_entity_healthy_and_their_absence_does_not() -> None:
    """Section 6: "An entity with neither traffic nor probe is shown as unknown". Two hours of skipped calls, then one
    of none."""
    loads = (OfferedLoad(path="orders", steps=(RateStep(0.0, 0.01), RateStep(7200.0, 0.0))),)
    hours = replace(history(paths=("orders",), seconds=3 * 3600.0), loads=loads)
    world = Replay(hours, QUICK, 1)
    changes: list[tuple[str, float]] = []
    world.changed = lambda change: changes.append((change.now, change.at - BEGAN))  # type: ignore[method-assign]

    outcome = world.outcome()

    assert [now for now, _ in changes] == ["healthy", "unknown"]
    assert changes[1][1] == pytest.approx(7200 + QUIET_AFTER, abs=100.1)
    assert (outcome.accepted, outcome.broken) == (72, 0)
