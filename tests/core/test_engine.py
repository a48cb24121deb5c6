"""The machine, one sentence of SPEC.md at a time; each test quotes its sentence."""

from __future__ import annotations

import pytest

from console.core.engine import Announce, SendPing
from console.core.entity import State
from console.core.events import (
    EngineStopped,
    PingAccepted,
    PingFailed,
    PingSent,
    QueuePulled,
    QueueRestored,
    StateChanged,
    SyphonPaused,
    SyphonResumed,
)
from console.core.verdict import VERDICTS, FailureKind, Verdict
from console.core.why import why

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
        assert (pairing.state(), pairing.due()) == (State.HEALTHY, None)
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
        assert (pairing.state(), pairing.due()) == (State.HEALTHY, None)

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
        assert (pairing.due(), pairing.entity().pinging) == (None, False)

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
        refused(pairing, lambda: pairing.ping_accepted(1), "knows no entity 'orders'")
        refused(pairing, lambda: pairing.ping_failed(1), "knows no entity 'orders'")

    def test_episodes_are_counted_and_timed(self, told) -> None:
        """Section 6: failed over ends with failback; the time between is what senders spent on the backlog."""
        pairing = told(failover_interval=10, ping_primary_interval=30)
        pairing.fail_over()
        pairing.ticks(to=40)
        pairing.now = 41
        pairing.ping_accepted(1)
        entity = pairing.entity()
        assert (entity.failovers, entity.failbacks, entity.seconds_failed_over) == (1, 1, 31.0)


class TestByHand:
    @pytest.mark.parametrize("state", [state for state in State if state is not State.FORCED])
    def test_force_fails_over_from_anywhere(self, told, state) -> None:
        """Section 6: "forced: failed over by hand"; "Each carries who, when, why"."""
        pairing = told(ping_primary_interval=30)
        pairing.reach(state)
        pairing.forces()
        entity = pairing.entity()
        assert (entity.state, entity.diverting, entity.pinging) == (State.FORCED, True, True)
        assert (entity.by, entity.since, entity.by_why) == ("anna", pairing.at, "a drill")
        assert pairing.announced(StateChanged)[0].by == "anna"

    def test_pings_go_on_while_forced_and_nothing_fails_back(self, told) -> None:
        """Section 6: "forced: ... pings go on and are shown, no automatic failback"."""
        pairing = told(ping_primary_interval=10)
        pairing.accepts()
        pairing.forces()
        for number in (1, 2, 3):
            pairing.ticks(to=10.0 * number)
            assert pairing.pings() == [SendPing("orders", number)]
            pairing.ping_accepted(number)
            assert pairing.announced(PingAccepted)
        assert (pairing.state(), pairing.entity().pings_in_a_row, pairing.due()) == (State.FORCED, 3, 40)

    def test_forcing_a_failed_over_entity_keeps_its_episode_and_its_pings(self, told) -> None:
        """Section 6: it is failed over already; it only stays longer."""
        pairing = told(failover_interval=0, ping_primary_interval=10)
        pairing.fails()
        pairing.ticks(to=10)
        pairing.now = 12
        pairing.forces()
        entity = pairing.entity()
        assert (entity.failovers, entity.pings, entity.ping_in_flight) == (1, 1, True)
        pairing.ping_accepted(1, took=2)
        assert (pairing.state(), pairing.due()) == (State.FORCED, 20)

    def test_pinned_stays_whatever_fails(self, told) -> None:
        """Section 6: "pinned: stays on the primary whatever fails"."""
        pairing = told(failover_interval=0)
        pairing.accepts()
        pairing.pins()
        for _ in range(3):
            assert pairing.fails() == []
        entity = pairing.entity()
        assert (entity.state, entity.diverting, entity.failures_while_pinned) == (State.PINNED, False, 3)
        assert pairing.due() is None

    def test_pinning_a_suspect_stops_its_timer(self, told) -> None:
        """Section 6: pinned stays on the primary, so no interval runs."""
        pairing = told(failover_interval=60)
        pairing.fails()
        pairing.pins()
        assert pairing.due() is None
        pairing.ticks(to=60)
        assert pairing.state() is State.PINNED

    def test_pinning_a_failed_over_entity_ends_its_episode(self, told) -> None:
        """Section 6: it is on the primary from then on; pings stop."""
        pairing = told(failover_interval=0, ping_primary_interval=10)
        pairing.fails()
        pairing.now = 7
        pairing.pins()
        entity = pairing.entity()
        assert (entity.failbacks, entity.seconds_failed_over, entity.pinging) == (1, 7.0, False)

    def test_release_of_a_forced_entity_whose_last_ping_was_accepted(self, told) -> None:
        """Section 6: "`release` clears forced or pinned: to healthy if the last ping was accepted"."""
        pairing = told(ping_primary_interval=10)
        pairing.accepts()
        pairing.forces()
        pairing.ticks(to=10)
        pairing.ping_accepted(1)
        pairing.releases()
        assert pairing.changes() == [("forced", "healthy")]
        assert (pairing.entity().by, pairing.entity().by_why, pairing.due()) == ("", "", None)

    @pytest.mark.parametrize("pinged", [False, True])
    def test_release_of_a_forced_entity_whose_last_ping_was_not_accepted(self, told, pinged) -> None:
        """Section 6: "else to failed over with automatic failback"."""
        pairing = told(ping_primary_interval=10)
        pairing.accepts()
        pairing.forces()
        pairing.ticks(to=10)
        if pinged:
            pairing.ping_failed(1)
        pairing.releases()
        assert pairing.changes() == [("forced", "failed over")]
        assert pairing.entity().failovers == 1
        if pinged:
            pairing.ticks(to=20)
        pairing.ping_accepted(pairing.entity().pings)
        assert pairing.state() is State.HEALTHY

    def test_release_of_a_pinned_entity_that_answers(self, told) -> None:
        """Section 6: to healthy; a pinned entity is not pinged, so its sends are what answers."""
        pairing = told(failover_interval=0)
        pairing.accepts()
        pairing.pins()
        pairing.fails()
        pairing.accepts()
        pairing.releases()
        assert pairing.changes() == [("pinned", "healthy")]

    def test_release_of_a_pinned_entity_that_fails(self, told) -> None:
        """Section 6: "else to failed over with automatic failback": a whole episode, first ping in an interval."""
        pairing = told(failover_interval=60, ping_primary_interval=10)
        pairing.accepts()
        pairing.pins()
        pairing.fails()
        pairing.now = 5
        pairing.releases()
        assert pairing.changes() == [("pinned", "failed over")]
        assert pairing.due() == 15

    def test_release_of_an_entity_that_failed_over_by_itself(self, told) -> None:
        """Section 6: "on an entity that failed over by itself it fails back now"."""
        pairing = told(failover_interval=0)
        pairing.fails()
        pairing.releases()
        assert pairing.changes() == [("failed over", "healthy")]

    def test_a_failure_from_before_a_recovery_is_not_told_again(self, told) -> None:
        """Section 6: "Each carries who, when, why"; an old failure is not why it is failed over now."""
        pairing = told(failover_interval=60)
        pairing.fails()
        pairing.accepts()
        pairing.forces()
        pairing.releases()
        assert pairing.state() is State.FAILED_OVER
        assert why(pairing.entity()).startswith('no send accepted since "released"')

    @pytest.mark.parametrize(
        ("state", "act"),
        [
            (State.FORCED, "forces"),
            (State.PINNED, "pins"),
            (State.UNKNOWN, "releases"),
            (State.HEALTHY, "releases"),
            (State.SUSPECT, "releases"),
        ],
    )
    def test_an_act_that_cannot_be_leaves_everything_alone(self, told, refused, state, act) -> None:
        """An operator's act that makes no sense now is refused in words; who and why stay as they were."""
        pairing = told()
        pairing.reach(state)
        pairing.entity()
        refused(pairing, getattr(pairing, act), f"orders is {state}: it cannot be that an operator")

    @pytest.mark.parametrize("act", ["forces", "pins", "releases"])
    def test_an_act_on_an_entity_nobody_knows_names_those_that_are_known(self, told, refused, act) -> None:
        """A misspelt name must not make an entity."""
        pairing = told()
        refused(pairing, lambda: getattr(pairing, act)("ordres"), "knows no entity 'ordres'; it knows: none")
        pairing.accepts("orders")
        pairing.accepts("audit")
        refused(pairing, lambda: getattr(pairing, act)("ordres"), "it knows: orders, audit")


class TestEntities:
    def test_failover_is_entity_by_entity(self, told) -> None:
        """Section 6: "Failover is entity by entity; a failure in one says nothing of another"."""
        pairing = told(failover_interval=0, ping_primary_interval=10)
        pairing.accepts("orders")
        pairing.accepts("audit")
        pairing.fails("orders")
        assert (pairing.state("orders"), pairing.state("audit")) == (State.FAILED_OVER, State.HEALTHY)
        pairing.ticks(to=10)
        assert pairing.pings() == [SendPing("orders", 1)]

    def test_pings_are_numbered_entity_by_entity(self, told) -> None:
        """Section 8: "Per entity, per pairing, per process"."""
        pairing = told(failover_interval=0, ping_primary_interval=10)
        pairing.fails("orders")
        pairing.now = 3
        pairing.fails("audit")
        pairing.ticks(to=13)
        assert pairing.pings() == [SendPing("orders", 1), SendPing("audit", 1)]
        pairing.ping_accepted(1, entity="audit")
        assert (pairing.state("orders"), pairing.state("audit")) == (State.FAILED_OVER, State.HEALTHY)

    def test_paths_compare_without_case(self, told) -> None:
        """Section 6: "one per pairing and entity path; paths compare case-insensitively"."""
        pairing = told(failover_interval=60, ping_primary_interval=10)
        pairing.accepts("Orders")
        pairing.fails("ORDERS")
        pairing.ticks(to=60)
        pairing.forces("orders")
        pairing.ticks(to=70)
        pairing.ping_accepted(1, entity="oRDERS")
        pairing.releases("orderS")
        assert [(entity.path, entity.state) for entity in pairing.machine.entities()] == [("Orders", State.HEALTHY)]

    def test_pumps_skip_diverting_destinations(self, told) -> None:
        """Section 6: "Pumps skip destinations that are failed over or forced in their own engine"."""
        allowed = set()
        for state in State:
            pairing = told()
            pairing.reach(state)
            if pairing.machine.may_deliver("ORDERS", at=pairing.at):
                allowed.add(state)
        assert allowed == set(State) - {State.FAILED_OVER, State.FORCED}

    def test_pumps_may_try_a_destination_nobody_here_sends_to(self, told) -> None:
        """Section 6: "in their own engine": of another engine's entities nothing is known."""
        pairing = told()
        assert pairing.machine.may_deliver("elsewhere", at=pairing.at)
        assert pairing.machine.entities() == ()

    def test_pumps_skip_a_destination_that_failed_them(self, told) -> None:
        """Section 8: "one send try per destination, not per message"."""
        pairing = told()
        pairing.machine.destinations.failed("orders", at=pairing.at, kind=FailureKind.TIMEOUT, reason="timeout")
        assert not pairing.machine.may_deliver("Orders", at=pairing.at)
        assert pairing.machine.may_deliver("Orders", at=pairing.at + 1)


class TestBacklog:
    def test_a_failed_send_takes_its_queue_out_for_every_sender(self, told) -> None:
        """Section 7.1: "A failed send takes that queue out of the rotation for every sender of the pairing"."""
        pairing = told()
        pairing.fails(queue=1, reason="timeout")
        assert [(event.queue, event.reason) for event in pairing.announced(QueuePulled)] == [(1, "timeout")]
        assert [pairing.machine.rotation.holds(index) for index in range(3)] == [True, False, True]
        assert pairing.machine.entities() == ()

    def test_a_queue_is_pulled_once(self, told) -> None:
        """Section 7.1: what is out already is not taken out again by the sends that were in flight."""
        pairing = told()
        pairing.fails(queue=1)
        assert pairing.fails(queue=1) == []

    @pytest.mark.parametrize("failure", UNCOUNTED)
    def test_only_failures_that_count_pull_a_queue(self, told, failure) -> None:
        """Section 7.1: "size and argument errors never pull a queue"; section 5: "A busy backlog queue is not
        pulled"."""
        pairing = told()
        assert pairing.fails(queue=1, failure=failure) == []
        assert pairing.machine.rotation.holds(1)

    def test_a_backlog_failure_says_nothing_of_the_entity(self, told) -> None:
        """Section 6: "Only senders, pings and operators move the state": by what the primary answers."""
        pairing = told(failover_interval=0)
        pairing.accepts()
        pairing.fails(queue=0)
        assert pairing.state() is State.HEALTHY

    def test_a_pulled_queue_returns_after_a_probe_succeeded(self, told) -> None:
        """Section 7.1: "a pulled queue returns after a probe succeeded"."""
        pairing = told(ping_primary_interval=10)
        pairing.fails(queue=1)
        assert pairing.due() == 10
        pairing.ticks(to=10)
        assert pairing.probes() == [1]
        pairing.probed(1, accepted=True)
        assert [event.queue for event in pairing.announced(QueueRestored)] == [1]
        assert (pairing.machine.rotation.holds(1), pairing.due()) == (True, None)

    def test_a_pulled_queue_stays_out_after_a_probe_failed(self, told) -> None:
        """Section 7.1: the same; and it is probed again."""
        pairing = told(ping_primary_interval=10)
        pairing.fails(queue=1)
        pairing.ticks(to=10)
        assert pairing.probed(1, accepted=False, reason="connection lost") == []
        assert not pairing.machine.rotation.holds(1)
        pairing.ticks(to=pairing.due())
        assert pairing.probes() == [1]

    @pytest.mark.parametrize("queue", [3, -1])
    def test_a_queue_that_the_pairing_does_not_have_is_illegal(self, told, refused, queue) -> None:
        """Section 4.1: the index is in [0, backlog_queue_count)."""
        pairing = told(queues=3)
        refused(pairing, lambda: pairing.fails(queue=queue), f"no backlog queue {queue}")
        refused(pairing, lambda: pairing.probed(queue, accepted=True), f"no backlog queue {queue}")


class TestSyphon:
    def test_it_is_paused_and_resumed(self, told) -> None:
        """Section 10: an operator's order, told to everybody who watches."""
        pairing = told()
        for event, paused in [
            (SyphonPaused(at=pairing.at, by="anna"), True),
            (SyphonResumed(at=pairing.at, by="anna"), False),
        ]:
            assert pairing.step(event) == [Announce(event)]
            assert pairing.machine.syphon_paused is paused

    def test_pausing_or_resuming_twice_changes_nothing(self, told, refused) -> None:
        """An act that cannot be is refused."""
        pairing = told()
        refused(pairing, lambda: pairing.step(SyphonResumed(at=pairing.at, by="anna")), "not paused")
        pairing.step(SyphonPaused(at=pairing.at, by="anna"))
        refused(pairing, lambda: pairing.step(SyphonPaused(at=pairing.at, by="anna")), "paused already")


class TestMachine:
    def test_a_healthy_send_has_no_effect_at_all(self, told) -> None:
        """Section 6: 'While healthy, "no behavior changes occur"'."""
        pairing = told()
        pairing.accepts()
        before = pairing.entity()
        pairing.now = 100
        assert pairing.accepts() == []
        assert pairing.entity() is before

    def test_events_for_others_are_refused(self, told, refused) -> None:
        """What only the journal wants is a mistake here."""
        pairing = told()
        stopped = EngineStopped(at=pairing.at, reason="asked to")
        refused(pairing, lambda: pairing.step(stopped), "EngineStopped is told to others")

    def test_the_next_deadline_is_the_nearest_of_all(self, told) -> None:
        """A Ticked is wanted at the first of: an interval's end, a ping, a probe."""
        pairing = told(failover_interval=60, ping_primary_interval=20)
        assert pairing.due() is None
        pairing.fails("orders")
        assert pairing.due() == 60
        pairing.now = 5
        pairing.entity("audit")
        pairing.forces("audit")
        assert pairing.due() == 25
        pairing.now = 4
        pairing.fails(queue=0)
        assert pairing.due() == 24
        pairing.ticks(to=60)
        assert (pairing.probes(), pairing.pings()) == ([0], [SendPing("audit", 1)])
        assert pairing.due() == 80

    def test_deadlines_that_nobody_wants_any_more_are_forgotten(self, told) -> None:
        """A flapping entity leaves no trail of timers behind."""
        pairing = told(failover_interval=60)
        for second in range(50):
            pairing.now = float(second)
            pairing.fails()
            pairing.accepts()
        assert pairing.due() is None
