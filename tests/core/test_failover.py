"""From the first failure to the failback, one sentence of SPEC.md sections 3, 5 and 6 at a time."""

from __future__ import annotations

import pytest

from paired_servicebus.core.failover.effects import Announce, SendPing
from paired_servicebus.core.failover.inactivity import QUIET_AFTER
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import PingAccepted, PingFailed, PingSent, StateChanged
from paired_servicebus.core.model.verdict import VERDICTS, FailureKind, Verdict
from paired_servicebus.core.operator.why_line import why

COUNTED = sorted(kind for kind, verdict in VERDICTS.items() if verdict is Verdict.COUNTS)
UNCOUNTED = sorted(kind for kind, verdict in VERDICTS.items() if verdict is not Verdict.COUNTS)


class TestSuspect:
    def test_an_entity_without_traffic_is_unknown(self, told) -> None:
        """Section 6: "An entity with neither traffic nor probe is shown as unknown, not as healthy"."""
        assert told().state() is State.UNKNOWN

    def test_a_first_success_makes_it_healthy(self, told) -> None:
        """Section 6: healthy is what a successful send has shown."""
        pairing = told()
        pairing.accepts()
        assert pairing.changes() == [("unknown", "healthy")]

    @pytest.mark.parametrize("failure", COUNTED)
    @pytest.mark.parametrize("state", [State.HEALTHY, State.UNKNOWN])
    def test_a_failure_that_counts_makes_it_suspect(self, told, state, failure) -> None:
        """Section 6: "healthy -> (a failure that counts) suspect"."""
        pairing = told()
        if state is State.HEALTHY:
            pairing.accepts()
        pairing.fails(failure=failure)
        assert pairing.changes() == [(state, "suspect")]

    def test_the_time_of_the_first_failure_stays_until_the_entity_is_healthy(self, told) -> None:
        """When the failure was that the present episode began with; None: there is none."""
        pairing = told(failover_interval=60)
        pairing.accepts()
        assert pairing.entity().first_failure_at is None
        pairing.fails()
        first = pairing.entity().last_failure_at
        pairing.now += 5
        pairing.fails()
        assert pairing.entity().last_failure_at == first + 5
        assert pairing.entity().first_failure_at == first
        pairing.accepts()
        assert pairing.entity().first_failure_at is None

    def test_the_timer_starts_once(self, told) -> None:
        """Section 6: "the failover timer starts once; later failures don't restart it"."""
        pairing = told(failover_interval=60)
        pairing.fails()
        pairing.now = 50
        pairing.fails()
        assert pairing.due() == 60
        pairing.ticks(to=60)
        assert pairing.state() is State.FAILED_OVER

    def test_the_first_failure_is_the_one_that_is_told(self, told) -> None:
        """Section 6: later failures don't restart the timer, so the first one is why it runs."""
        pairing = told(failover_interval=60)
        pairing.fails(reason="connection lost")
        pairing.fails(reason="timeout")
        pairing.ticks(to=60)
        assert [change.why for change in pairing.announced(StateChanged)] == [
            'no send accepted for 60 s after "connection lost"'
        ]

    def test_a_success_cancels_the_timer(self, told) -> None:
        """Section 6: "suspect -> (a *successful* send) healthy, timer cancelled"."""
        pairing = told(failover_interval=60)
        pairing.fails()
        pairing.now = 59
        pairing.accepts()
        assert (pairing.state(), pairing.due()) == (State.HEALTHY, 59 + QUIET_AFTER)
        pairing.ticks(to=60)
        assert pairing.effects == []

    def test_a_new_failure_after_a_success_starts_a_whole_interval(self, told) -> None:
        """Section 6: the timer was cancelled, so it starts anew."""
        pairing = told(failover_interval=60)
        pairing.fails()
        pairing.now = 30
        pairing.accepts()
        pairing.fails()
        assert pairing.ticks(to=89) == []
        pairing.ticks(to=90)
        assert pairing.changes() == [("suspect", "failed over")]

    def test_a_success_of_the_backlog_does_not_cancel_it(self, told) -> None:
        """Section 6: the state is the primary's; a message parked for it says nothing of it."""
        pairing = told()
        pairing.fails()
        pairing.accepts(queue=1)
        assert pairing.state() is State.SUSPECT

    def test_silence_counts(self, told) -> None:
        """Section 6: "suspect -> (timer ends with no successful send; silence counts) failed over"."""
        pairing = told(failover_interval=60)
        pairing.fails()
        assert pairing.ticks(to=59.9) == []
        pairing.ticks(to=60)
        assert pairing.changes() == [("suspect", "failed over")]

    def test_a_failure_at_the_end_of_the_interval_fails_over_in_its_own_step(self, told) -> None:
        """Section 6: the timer has ended; the call that failed need not wait for a tick to go on to the backlog."""
        pairing = told(failover_interval=60)
        pairing.fails()
        pairing.now = 60
        pairing.fails()
        assert pairing.changes() == [("suspect", "failed over")]

    def test_an_interval_of_zero_fails_over_in_the_same_step(self, told) -> None:
        """Section 3: "0 = fail over on the first failure that counts"."""
        pairing = told(failover_interval=0)
        pairing.fails(reason="connection lost")
        assert pairing.changes() == [("unknown", "suspect"), ("suspect", "failed over")]
        assert pairing.announced(StateChanged)[-1].why == "connection lost"

    @pytest.mark.parametrize("failure", UNCOUNTED)
    def test_what_does_not_count_moves_nothing(self, told, failure) -> None:
        """Section 5: server busy, not authenticated, not authorized, too large, bad argument, not listed: "no"."""
        pairing = told(failover_interval=0)
        pairing.accepts()
        assert pairing.fails(failure=failure) == []
        assert (pairing.state(), pairing.due()) == (State.HEALTHY, QUIET_AFTER)

    def test_throttling_leaves_the_suspects_timer_running(self, told) -> None:
        """Section 6: only a successful send cancels it; a throttled one is neither a success nor a failure."""
        pairing = told(failover_interval=60)
        pairing.fails()
        pairing.now = 30
        pairing.fails(failure=FailureKind.BUSY)
        assert (pairing.state(), pairing.due()) == (State.SUSPECT, 60)

    def test_the_why_line_of_a_throttled_entity_recalls_partitioning(self, told) -> None:
        """Section 5: "The why-line recalls that partitioning an entity makes throttling less likely"."""
        pairing = told()
        pairing.accepts()
        pairing.fails(failure=FailureKind.BUSY, reason="server busy")
        assert "server busy: partitioning the entity makes throttling less likely" in why(pairing.entity())


class TestFailedOver:
    def test_the_first_ping_leaves_one_interval_after_failover(self, told) -> None:
        """Section 6: "one ping an interval, the first one interval after failover"."""
        pairing = told(failover_interval=10, ping_primary_interval=30)
        pairing.fail_over()
        assert pairing.pings() == []
        assert pairing.due() == 40
        assert pairing.ticks(to=39.9) == []
        pairing.ticks(to=40)
        assert pairing.pings() == [SendPing("orders", 1)]
        assert [(event.entity, event.number) for event in pairing.announced(PingSent)] == [("orders", 1)]

    def test_a_first_ping_comes_an_interval_after_an_immediate_failover(self, told) -> None:
        """Section 6, with interval 0: nothing is due before the first ping."""
        pairing = told(failover_interval=0, ping_primary_interval=30)
        pairing.fails()
        assert pairing.due() == 30

    def test_one_ping_an_interval_from_start_to_start(self, told) -> None:
        """Section 6: "one ping an interval ... until one is accepted"."""
        pairing = told(failover_interval=0, ping_primary_interval=30)
        pairing.fails()
        pairing.ticks(to=30)
        pairing.now = 42
        pairing.ping_failed(1, took=12)
        assert pairing.due() == 60
        pairing.ticks(to=60)
        assert pairing.pings() == [SendPing("orders", 2)]

    def test_one_ping_at_a_time(self, told) -> None:
        """Section 6: "one ping task for this entity and engine"; a slow one is awaited, not overtaken."""
        pairing = told(failover_interval=0, ping_primary_interval=30, ping_timeout=120)
        pairing.fails()
        pairing.ticks(to=30)
        assert pairing.due() is None
        assert pairing.ticks(to=140) == []
        pairing.now = 150
        pairing.ping_failed(1, took=120)
        pairing.ticks(to=150)
        assert pairing.pings() == [SendPing("orders", 2)]

    def test_an_accepted_ping_fails_back_at_once_and_pings_stop(self, told) -> None:
        """Section 6: "(`failback_pings` pings accepted in a row ...) healthy: all senders use the primary at once,
        pings stop"."""
        pairing = told(failover_interval=0, ping_primary_interval=30)
        pairing.fails()
        pairing.ticks(to=30)
        pairing.now = 31
        pairing.ping_accepted(1, took=1)
        assert pairing.changes() == [("failed over", "healthy")]
        assert not pairing.entity().diverting
        assert (pairing.due(), pairing.entity().ping_due) == (31 + QUIET_AFTER, None)

    def test_pings_have_to_be_accepted_in_a_row(self, told) -> None:
        """Section 6: "`failback_pings` pings accepted in a row"; a refused one starts the count again."""
        pairing = told(failover_interval=0, ping_primary_interval=10, failback_pings=3)
        pairing.fails()
        for number, accepted in enumerate([True, True, False, True, True], start=1):
            pairing.ticks(to=10.0 * number)
            _ = pairing.ping_accepted(number) if accepted else pairing.ping_failed(number)
            assert pairing.state() is State.FAILED_OVER
        pairing.ticks(to=60)
        pairing.ping_accepted(6)
        assert pairing.state() is State.HEALTHY
        assert pairing.announced(StateChanged)[0].why == "3 pings in a row were accepted"

    def test_a_throttled_ping_breaks_the_row(self, told) -> None:
        """Section 5: "A throttled ping is not an accepted one"."""
        pairing = told(failover_interval=0, ping_primary_interval=10, failback_pings=2)
        pairing.fails()
        pairing.ticks(to=10)
        pairing.ping_accepted(1)
        pairing.ticks(to=20)
        pairing.ping_failed(2, reason="server busy", throttled=True)
        pairing.ticks(to=30)
        pairing.ping_accepted(3)
        assert pairing.state() is State.FAILED_OVER

    @pytest.mark.parametrize(("interval", "next_ping"), [(2, 12.5), (10, 20.5), (30, 60)])
    def test_after_a_throttled_ping_the_pinger_waits_as_well(self, told, interval, next_ping) -> None:
        """Section 5, server busy: "not attempted again for >= 10 s by anyone (SDK, sender, pinger, pump)"."""
        pairing = told(failover_interval=0, ping_primary_interval=interval)
        pairing.fails()
        pairing.ticks(to=interval)
        pairing.now = interval + 0.5
        pairing.ping_failed(1, took=0.5, reason="server busy", throttled=True)
        assert pairing.due() == next_ping

    def test_a_throttled_ping_rests_also_where_a_person_comes_between(self, told) -> None:
        """Section 5: "not attempted again for >= 10 s by anyone"; a release and a new failover end no throttling."""
        pairing = told(failover_interval=0, ping_primary_interval=2)
        pairing.fails()
        pairing.ticks(to=2)
        pairing.ping_failed(1, reason="server busy", throttled=True)
        pairing.now = 4.0
        pairing.releases()
        pairing.forces()
        assert pairing.due() == 12

    def test_it_stays_for_the_cool_down(self, told) -> None:
        """Section 6: "and at least `cool_down` in this state"."""
        pairing = told(failover_interval=0, ping_primary_interval=10, cool_down=25)
        pairing.fails()
        for number, to in [(1, 10.0), (2, 20.0)]:
            pairing.ticks(to=to)
            pairing.ping_accepted(number)
            assert pairing.state() is State.FAILED_OVER
        pairing.ticks(to=30)
        pairing.ping_accepted(3)
        assert pairing.state() is State.HEALTHY

    def test_a_late_success_is_recorded_and_nothing_more(self, told) -> None:
        """Section 6: "A send in flight at failover that succeeds late is recorded, nothing more"."""
        pairing = told(failover_interval=0, ping_primary_interval=30)
        pairing.fails()
        pairing.now = 5
        assert pairing.accepts() == []
        assert (pairing.state(), pairing.due()) == (State.FAILED_OVER, 30)
        assert pairing.entity().primary_good is True

    def test_a_late_failure_moves_nothing(self, told) -> None:
        """Section 6: "one that fails after failover began goes on to the backlog in the same call"."""
        pairing = told(failover_interval=0, ping_primary_interval=30)
        pairing.fails(reason="timeout")
        pairing.now = 5
        assert pairing.fails(reason="connection lost") == []
        entity = pairing.entity()
        assert (entity.state, entity.first_failure, entity.last_failure) == (
            State.FAILED_OVER,
            "timeout",
            "connection lost",
        )
        assert pairing.due() == 30

    def test_the_answer_of_a_ping_that_a_failback_overtook_moves_nothing(self, told) -> None:
        """Section 6: pings stop at failback; one that was under way then is only late."""
        pairing = told(failover_interval=0, ping_primary_interval=10)
        pairing.fails()
        pairing.ticks(to=10)
        pairing.releases()
        before = pairing.entity()
        pairing.ping_failed(1)
        assert [type(effect.event) for effect in pairing.effects if isinstance(effect, Announce)] == [PingFailed]
        pairing.ping_accepted(1)
        assert len(pairing.announced(PingAccepted)) == len(pairing.effects) == 1
        assert pairing.entity() == before

    def test_the_answer_of_an_earlier_failovers_ping_is_not_taken_for_this_ones(self, told) -> None:
        """Section 6: pings in a row are those of this failover; numbers begin again with each."""
        pairing = told(failover_interval=0, ping_primary_interval=10, ping_timeout=120)
        pairing.fails()
        pairing.ticks(to=10)
        pairing.now = 11
        pairing.releases()
        pairing.now = 12
        pairing.fails()
        pairing.ticks(to=22)
        assert pairing.pings() == [SendPing("orders", 1)]
        pairing.now = 23
        pairing.ping_accepted(1, took=13)
        assert (pairing.state(), pairing.entity().ping_in_flight) == (State.FAILED_OVER, True)
        pairing.ping_accepted(1, took=1)
        assert pairing.state() is State.HEALTHY

    def test_the_answer_of_a_ping_to_an_entity_nobody_knows_is_illegal(self, told, refused) -> None:
        """Pings go to entities that failed over: there is none of that name."""
        pairing = told()
        assert "unknown entity 'orders'" in refused(pairing, lambda: pairing.ping_accepted(1))
        assert "unknown entity 'orders'" in refused(pairing, lambda: pairing.ping_failed(1))

    def test_episodes_are_counted_and_timed(self, told) -> None:
        """Section 6: failed over ends with failback; the time between is what senders spent on the backlog."""
        pairing = told(failover_interval=10, ping_primary_interval=30)
        pairing.fail_over()
        pairing.ticks(to=40)
        pairing.now = 41
        pairing.ping_accepted(1)
        entity = pairing.entity()
        assert (entity.failovers, entity.failbacks, entity.seconds_failed_over) == (1, 1, 31.0)
