"""SPEC.md section 6: "An entity with neither traffic nor probe is shown as **unknown**, not as healthy"."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.approval import Approve

from paired_servicebus.core.accounting.billing import probes_a_day
from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.failover.effects import ProbeEntity
from paired_servicebus.core.failover.inactivity import QUIET_AFTER, InactivityTimer
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import EntityProbed, SendsCounted, StateChanged, SyphonPaused
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.core.operator.why_line import why

from .conftest import BEGAN, Told

Make = Callable[..., Told]
TO_WATCH = 'set probe = ["orders"] to watch it'


def counted(pairing: Told, *, route: str = "primary", accepted: int = 5) -> None:
    event = SendsCounted(at=pairing.at, entity="orders", route=route, accepted=accepted, failed=0, seconds=1.0)
    pairing.step(event)


@pytest.fixture
def healthy(told: Make) -> Told:
    pairing = told(ping_primary_interval=60)
    pairing.accepts()
    assert pairing.state() is State.HEALTHY
    return pairing


def test_a_healthy_entity_falls_quiet_after_15_minutes_and_no_sooner(healthy: Told) -> None:
    """Finding A2: "Healthy falls back to unknown when neither sent nor probed for a stated time"."""
    assert QUIET_AFTER == 15 * 60
    healthy.ticks(to=899.9)
    assert healthy.state() is State.HEALTHY
    assert healthy.due() == 900
    healthy.ticks(to=900)
    assert healthy.changes() == [("healthy", "unknown")]
    assert healthy.entity().primary_good is None
    assert healthy.due() is None


def test_the_why_line_says_since_when_nothing_was_sent(healthy: Told, approve: Approve) -> None:
    healthy.ticks(to=1000)
    approve.part(why(healthy.entity()), "rules", has=("22:13:20",))


def test_one_count_a_second_keeps_it_healthy_and_moves_no_timer(healthy: Told) -> None:
    """No event a send: that there was one since the last count is enough."""
    healthy.now = 600
    counted(healthy)
    assert (healthy.effects, healthy.due()) == ([], 900)
    healthy.ticks(to=900)
    assert (healthy.state(), healthy.due()) == (State.HEALTHY, 1500)
    healthy.ticks(to=1500)
    assert healthy.state() is State.UNKNOWN


def test_sends_to_the_backlog_say_nothing_of_the_primary(healthy: Told) -> None:
    healthy.now = 600
    counted(healthy, route="backlog/0")
    healthy.accepts(queue=0)
    healthy.ticks(to=900)
    assert healthy.state() is State.UNKNOWN


@pytest.mark.parametrize("tell", [Told.accepts, counted], ids=["told", "counted"])
def test_a_success_makes_it_healthy_again(healthy: Told, tell: Callable[[Told], object]) -> None:
    healthy.ticks(to=900)
    healthy.now = 5000
    tell(healthy)
    assert healthy.changes() == [("unknown", "healthy")]
    assert (healthy.entity().quiet_since, healthy.due()) == (None, 5900)


def test_a_failure_makes_it_suspect_with_its_own_reason(healthy: Told) -> None:
    """Nothing of an earlier episode is told again."""
    healthy.fails(reason="connection lost")
    healthy.accepts()
    healthy.ticks(to=900)
    assert (healthy.entity().first_failure, healthy.entity().first_failure_at) == ("", None)
    healthy.fails(reason="timeout")
    assert healthy.changes() == [("unknown", "suspect")]
    assert (healthy.entity().first_failure, healthy.entity().first_failure_at) == ("timeout", BEGAN + 900)


@pytest.mark.parametrize("failure", [FailureKind.BUSY, FailureKind.UNAUTHORIZED])
def test_a_send_that_failed_and_does_not_count_is_a_send(healthy: Told, failure: FailureKind) -> None:
    healthy.now = 600
    healthy.fails(failure=failure)
    healthy.ticks(to=900)
    assert healthy.state() is State.HEALTHY
    healthy.ticks(to=1500)
    healthy.now = 1600
    healthy.fails(failure=failure)
    assert healthy.state() is State.UNKNOWN
    assert why(healthy.entity()).startswith("no sends by this engine since 22:40:00; ")


def test_an_accepted_probe_keeps_it_healthy(told: Make) -> None:
    pairing = told(ping_primary_interval=60)
    pairing.machine.probe("orders", at=pairing.at)
    for minute in range(40):
        pairing.ticks(to=60.0 * minute)
        pairing.step(EntityProbed(at=pairing.at, entity="orders", took=0.0))
        assert pairing.state() is State.HEALTHY


@pytest.mark.parametrize("state", [State.SUSPECT, State.FAILED_OVER, State.FORCED, State.PINNED])
def test_what_is_known_or_ordered_stays(told: Make, state: State) -> None:
    pairing = told(failover_interval=3600 if state is State.SUSPECT else 0, ping_primary_interval=60)
    pairing.accepts()
    pairing.reach(state)
    pairing.ticks(to=2000)
    assert pairing.state() is state


def test_force_then_release_with_no_send_since_the_start_is_unknown(told: Make, approve: Approve) -> None:
    """Finding A2: "force, then release, without a send since the start ... SPEC 6 demands unknown"."""
    pairing = told()
    pairing.reach(State.FORCED)
    pairing.releases()
    assert pairing.changes() == [("forced", "unknown")]
    assert (pairing.entity().diverting, pairing.due()) == (False, None)
    approve.part(why(pairing.entity()), "rules")


def test_a_ping_is_evidence_for_15_minutes_and_not_for_ever(told: Make) -> None:
    """Section 6: "to healthy if the last ping was accepted"."""
    pairing = told(ping_primary_interval=60)
    pairing.reach(State.FORCED)
    pairing.ticks(to=60)
    pairing.ping_accepted(1)
    pairing.now = 70
    pairing.releases()
    assert pairing.state() is State.HEALTHY
    pairing.ticks(to=960)
    assert pairing.state() is State.UNKNOWN


def test_pin_then_release_is_unknown_where_nobody_asked(told: Make) -> None:
    pairing = told()
    pairing.reach(State.PINNED)
    pairing.releases()
    assert pairing.changes() == [("pinned", "unknown")]


def test_pin_then_release_is_unknown_where_nobody_asked_for_long(healthy: Told) -> None:
    healthy.pins()
    healthy.now = 899
    healthy.releases()
    assert healthy.state() is State.HEALTHY
    healthy.pins()
    healthy.now = 900
    healthy.releases()
    assert healthy.changes() == [("pinned", "unknown")]
    assert "since 22:13:20" in why(healthy.entity())


def test_thousands_that_fall_quiet_at_once_are_seen_to_a_portion_at_a_time(told: Make) -> None:
    pairing = told()
    for number in range(120):
        pairing.accepts(f"e{number}")
    changed = 0
    while pairing.due() is not None:
        changed += len(pairing.ticks(to=900))
    assert changed == 120


def test_an_entity_that_is_busy_is_looked_at_once_in_15_minutes() -> None:
    quiet = InactivityTimer()
    quiet.heard("orders", at=0.0)
    quiet.entered("orders", State.HEALTHY)
    looks = 0
    for second in range(3600):
        quiet.heard("orders", at=float(second))
        if (quiet.next() or 0.0) <= second:
            looks += 1
            assert quiet.due(second, most=50) == []
    assert looks <= 4


# -- deleted entities --------------------------------------------------------------------------------------------------


def pings(pairing: Told, *, until: float, reason: str = FailureKind.NOT_FOUND) -> list[float]:
    """Fail each ping up to a time; return when each left."""
    left = []
    while (due := pairing.due()) is not None and due <= until:
        pairing.ticks(to=due)
        for ping in pairing.pings():
            left.append(due)
            pairing.ping_failed(ping.number, reason=reason)
    return left


@pytest.fixture
def deleted(told: Make) -> Told:
    """An entity that fails over at 60 s, since the primary has none of its name."""
    pairing = told(ping_primary_interval=60, failover_interval=60)
    pairing.accepts()
    pairing.fails(failure=FailureKind.NOT_FOUND, reason=FailureKind.NOT_FOUND)
    pairing.ticks(to=60)
    assert pairing.state() is State.FAILED_OVER
    return pairing


def test_a_deleted_entity_that_nothing_sends_to_is_red_for_15_minutes_and_not_for_ever(deleted: Told) -> None:
    """Section 6: "each ping for 15 min found no such entity in the primary, and nothing was sent to it for 15 min"."""
    left = pings(deleted, until=100_000)
    assert (left[0], left[-1]) == (120, 120 + QUIET_AFTER)
    (change,) = deleted.announced(StateChanged)
    assert (change.was, change.now) == ("failed over", "unknown")
    assert deleted.due() is None, "pings stop"
    assert (deleted.entity().diverting, deleted.entity().primary_good) == (False, None)


def test_the_why_lines_call_it_deleted_and_name_both_ways_out(deleted: Told, approve: Approve) -> None:
    """Section 6: "screen and status call it deleted, and name the two ways out"."""
    pings(deleted, until=120)
    approve.part(why(deleted.entity()), "rules", has=("deleted", "create it again", "stop its senders", "22:15:20"))
    pings(deleted, until=2000)
    approve.part(why(deleted.entity()), "rules", has=("deleted", "no sends", "22:14:20"))


@pytest.mark.parametrize("accepted", [True, False])
def test_a_deleted_entity_that_is_sent_to_stays_failed_over(deleted: Told, accepted: bool) -> None:
    for now in range(300, 6000, 300):
        pings(deleted, until=now)
        deleted.now = now
        deleted.accepts(queue=0) if accepted else deleted.fails(queue=0)
    assert deleted.state() is State.FAILED_OVER
    left = pings(deleted, until=100_000)
    assert (deleted.state(), left[-1]) == (State.UNKNOWN, 5700 + QUIET_AFTER)


@pytest.mark.parametrize("reason", [FailureKind.TIMEOUT, FailureKind.DISABLED, FailureKind.BUSY])
def test_an_entity_that_is_not_deleted_stays_failed_over(deleted: Told, reason: FailureKind) -> None:
    """Another answer of a ping begins the 15 minutes anew."""
    assert len(pings(deleted, until=10_000, reason=reason)) > 100
    assert deleted.state() is State.FAILED_OVER
    pings(deleted, until=10_600)
    pings(deleted, until=10_680, reason=reason)
    pings(deleted, until=11_400)
    assert deleted.state() is State.FAILED_OVER


def test_a_created_entity_fails_back_as_any_other(deleted: Told) -> None:
    pings(deleted, until=600)
    deleted.ticks(to=deleted.due())
    deleted.ping_accepted(deleted.pings()[0].number if deleted.pings() else deleted.entity().pings)
    assert (deleted.state(), deleted.entity().missing_since) == (State.HEALTHY, None)


def test_the_next_send_to_a_deleted_entity_tries_the_primary(deleted: Told) -> None:
    """Section 6: "The next send tries the primary"."""
    pings(deleted, until=2000)
    deleted.fails(failure=FailureKind.NOT_FOUND, reason=FailureKind.NOT_FOUND)
    assert (deleted.changes(), deleted.entity().missing_since) == ([("unknown", "suspect")], None)
    deleted.accepts()
    assert deleted.state() is State.HEALTHY


def test_a_deleted_entity_that_is_probed_or_forced_stays(told: Make) -> None:
    """Section 6: "A probed entity stays: an operator asked to watch it"; a forced one is an operator's, too."""
    probed, forced = (told(ping_primary_interval=60, failover_interval=0) for _ in range(2))
    probed.machine.probe("orders", at=probed.at)
    probed.fails(failure=FailureKind.NOT_FOUND)
    forced.reach(State.FORCED)
    for pairing, state in ((probed, State.FAILED_OVER), (forced, State.FORCED)):
        pings(pairing, until=5000)
        assert (pairing.state(), pairing.entity().missing_since) == (state, BEGAN + 60)
    forced.releases()
    assert forced.state() is State.FAILED_OVER
    pings(forced, until=10_000)
    assert forced.state() is State.UNKNOWN


def test_a_paused_syphon_keeps_no_deleted_entity_red(deleted: Told) -> None:
    deleted.step(SyphonPaused(at=deleted.at, by="anna"))
    pings(deleted, until=5000)
    assert deleted.state() is State.UNKNOWN


# -- Probes of entities that nothing is sent to: off unless asked for; they move the state as a send would.


def asked(pairing: Told) -> list[str]:
    """The entities that the latest event made be probed."""
    return [effect.entity for effect in pairing.effects if isinstance(effect, ProbeEntity)]


def answers(pairing: Told, failure: FailureKind | None = None, *, took: float = 0.0, entity: str = "orders") -> None:
    reason = str(failure) if failure is not None else ""
    pairing.step(EntityProbed(at=pairing.at, entity=entity, took=took, failure=failure, reason=reason))


@pytest.fixture
def probed(told: Make) -> Told:
    """One entity that is probed; its first probe is under way. Interval and failover interval: 60 s."""
    pairing = told()
    pairing.machine.probe("orders", at=pairing.at)
    pairing.ticks()
    assert asked(pairing) == ["orders"]
    return pairing


def test_nothing_is_probed_by_default(told: Make, approve: Approve) -> None:
    """An entity with neither traffic nor probe is shown as unknown, not as healthy."""
    pairing = told()
    pairing.machine.entity("orders", at=pairing.at)
    pairing.ticks(to=1000.0)
    assert asked(pairing) == []
    assert pairing.state() is State.UNKNOWN
    assert pairing.machine.next_deadline is None
    approve.part(why(pairing.entity()), "rules")


def test_an_accepted_probe_makes_it_healthy_and_the_next_comes_an_interval_later(probed: Told) -> None:
    """Only senders, pings and operators move the state."""
    probed.ticks(to=0.2)
    answers(probed, took=0.2)
    assert probed.state() is State.HEALTHY
    assert probed.machine.next_deadline == BEGAN + 60.0
    probed.ticks(to=59.9)
    assert asked(probed) == []
    probed.ticks(to=60.0)
    assert asked(probed) == ["orders"]


def test_one_probe_is_under_way_at_a_time(probed: Told) -> None:
    probed.ticks(to=300.0)
    assert asked(probed) == []


def test_traffic_makes_a_probe_needless_for_an_interval(probed: Told) -> None:
    answers(probed)
    probed.ticks(to=50.0)
    probed.accepts()
    probed.ticks(to=60.0)
    assert asked(probed) == []
    probed.ticks(to=110.0)
    assert asked(probed) == ["orders"]


def test_a_failed_probe_is_a_failure_that_counts_and_silence_then_fails_over(probed: Told) -> None:
    """Suspect: timer ends with no successful send; silence counts."""
    answers(probed, FailureKind.TIMEOUT)
    assert probed.state() is State.SUSPECT
    probed.ticks(to=60.0)
    assert probed.state() is State.FAILED_OVER


def test_one_lost_probe_fails_nothing_over_another_comes_in_time(probed: Told) -> None:
    answers(probed, FailureKind.TIMEOUT)
    probed.ticks(to=30.0)
    assert asked(probed) == ["orders"]
    answers(probed)
    assert probed.state() is State.HEALTHY
    probed.ticks(to=60.0)
    assert probed.state() is State.HEALTHY


def test_while_it_diverts_pings_do_the_work(probed: Told) -> None:
    answers(probed, FailureKind.TIMEOUT)
    probed.ticks(to=30.0)
    answers(probed, FailureKind.TIMEOUT)
    for now in range(31, 500, 10):
        probed.ticks(to=float(now))
        assert asked(probed) == []
    assert probed.state() is State.FAILED_OVER


def test_after_the_failback_it_is_probed_again(probed: Told) -> None:
    probed.forces()
    answers(probed)
    assert probed.state() is State.FORCED
    probed.releases()
    probed.releases()
    assert probed.state() is State.HEALTHY
    probed.ticks(to=200.0)
    assert asked(probed) == ["orders"]


def test_a_throttled_probe_moves_nothing_and_leaves_the_namespace_alone(told: Make) -> None:
    """That message is not attempted again for >= 10 s by anyone; a throttled ping is not an accepted one."""
    pairing = told(ping_primary_interval=1.0, throttle_wait=10.0)
    pairing.machine.probe("orders", at=pairing.at)
    pairing.ticks()
    answers(pairing, FailureKind.BUSY)
    assert pairing.state() is State.UNKNOWN
    pairing.ticks(to=9.9)
    assert asked(pairing) == []
    pairing.ticks(to=10.0)
    assert asked(pairing) == ["orders"]


def test_a_probe_without_the_right_moves_nothing_and_says_so(probed: Told) -> None:
    answers(probed, FailureKind.UNAUTHORIZED)
    assert probed.state() is State.UNKNOWN
    assert str(FailureKind.UNAUTHORIZED) in why(probed.entity())


def test_a_late_answer_of_an_entity_that_failed_over_is_recorded_nothing_more(probed: Told) -> None:
    """A send in flight at failover that succeeds late is recorded, nothing more."""
    probed.forces()
    before = probed.entity().last_ping_at
    answers(probed)
    assert (probed.state(), probed.entity().last_ping_at) == (State.FORCED, before)


def test_its_cost_stands_on_the_why_line(probed: Told, approve: Approve) -> None:
    answers(probed)
    approve.part(why(probed.entity()), "rules", has=("60 s", "1,440 operations", "43,200 in", "30 days"))


@pytest.mark.parametrize(("interval", "ping", "operations"), [(60.0, "message", 1440), (1.0, "message", 86_400),
                                                              (60.0, "link", 0)])  # fmt: skip
def test_what_probes_cost(interval: float, ping: str, operations: int) -> None:
    assert probes_a_day(interval=interval, ping=ping) == operations  # type: ignore[arg-type]


def test_asking_twice_probes_once(probed: Told) -> None:
    probed.machine.probe("ORDERS", at=probed.at)
    probed.ticks(to=10.0)
    assert asked(probed) == []


def test_an_answer_for_an_entity_that_is_not_probed_is_refused(
    told: Make, refused: Callable[[Told, Callable[[], object], str], None], approve: Approve
) -> None:
    pairing = told()
    pairing.accepts()
    approve.part(refused(pairing, lambda: answers(pairing)), "rules")
    with pytest.raises(IllegalEventError, match="unknown entity"):
        answers(pairing, entity="nobody")
