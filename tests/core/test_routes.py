"""A send's way: every path of SendRouter's diagram, its times, and what a sender remembers (SPEC.md sections 5 to
7)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.failover.send_router import (
    PRIMARY,
    GiveUp,
    Next,
    Rotation,
    Route,
    SenderMemory,
    SendRouter,
    Try,
    Wait,
)
from paired_servicebus.core.model.entity_state import Entity, State
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import Verdict

BEGAN = 1_700_000_000.0
DIVERTING = [State.FAILED_OVER, State.FORCED]
DIRECT = [state for state in State if state not in DIVERTING]


class Call:
    """One call of a sender, on a clock that only the test moves; `now` counts seconds from its beginning."""

    def __init__(
        self,
        state: State = State.HEALTHY,
        *,
        queues: int = 3,
        timeout: float | None = None,
        sender: SenderMemory | None = None,
        rotation: Rotation | None = None,
        **options: object,
    ) -> None:
        policy = Policy(**{"send_timeout": 30.0, **options})
        self.now = 0.0
        self.entity = Entity(path="orders", state=state, since=BEGAN)
        self.sender = sender or SenderMemory()
        self.rotation = rotation or Rotation(range(queues), probe_interval=60)
        self.journey = SendRouter(self.sender, policy, at=BEGAN, timeout=timeout)

    def next(self, draw: float = 0.0) -> Next:
        step = self.journey.next(self.entity, self.rotation, at=BEGAN + self.now, draw=draw)
        return Wait(step.until - BEGAN) if isinstance(step, Wait) else step

    def becomes(self, state: State, **facts: object) -> None:
        self.entity = replace(self.entity, state=state, **facts)

    def loses_its_link(self) -> None:
        """The attempt at the primary ends in a detach or a lost connection; the entity is suspect."""
        assert isinstance(self.next(), Try)
        self.journey.ended(PRIMARY, Verdict.COUNTS, at=BEGAN + self.now, is_cut=True)
        self.becomes(State.SUSPECT)

    def fails(self, verdict: Verdict = Verdict.COUNTS) -> None:
        """What was to be tried now ends with `verdict`; one that counts pulls a backlog queue."""
        step = self.next()
        assert isinstance(step, Try), step
        if verdict is Verdict.COUNTS and step.route.queue is not None:
            self.rotation.pull(step.route.queue, at=BEGAN + self.now, reason="timeout")
        self.journey.ended(step.route, verdict, at=BEGAN + self.now)


def backlog(queue: int, timeout: float = 30.0) -> Try:
    return Try(Route(queue), timeout)


def test_a_route_is_named_as_on_the_screen() -> None:
    assert (str(PRIMARY), str(Route(3))) == ("primary", "backlog/3")


class TestPrimary:
    @pytest.mark.parametrize("state", DIRECT)
    def test_it_is_tried_for_one_attempts_time(self, state) -> None:
        """Section 6: "While suspect, sends still go to the primary"; unknown, healthy and pinned as well."""
        assert Call(state).next() == Try(PRIMARY, 30)

    @pytest.mark.parametrize("state", DIRECT)
    def test_a_failure_is_raised_to_the_caller(self, state) -> None:
        """Section 6: "a failure is raised to the caller"."""
        call = Call()
        call.fails()
        call.becomes(state)
        assert call.next() is GiveUp.FAILED

    @pytest.mark.parametrize("state", DIVERTING)
    def test_a_failure_that_fails_the_entity_over_goes_on_to_the_backlog(self, state) -> None:
        """Section 6: "with interval 0 the same call goes on to the backlog and the caller sees no error"."""
        call = Call()
        call.fails()
        call.becomes(state)
        assert call.next(draw=0.5) == backlog(1)

    def test_the_callers_own_timeout_bounds_the_attempt(self) -> None:
        assert Call(timeout=5).next() == Try(PRIMARY, 5)

    def test_one_attempt_takes_no_more_than_send_timeout_however_long_the_caller_would_wait(self) -> None:
        """Section 3: send_timeout is one attempt's."""
        assert Call(timeout=300).next() == Try(PRIMARY, 30)

    def test_a_call_whose_time_is_over_before_it_began_is_not_tried(self) -> None:
        call = Call(timeout=5)
        call.now = 5
        assert call.next() is GiveUp.FAILED


class TestBusyPrimary:
    def test_the_sender_waits_ten_seconds_and_sends_again(self) -> None:
        """Section 5: "the correct pattern is to wait 10 seconds, then send the message again"."""
        call = Call()
        call.fails(Verdict.THROTTLED)
        assert call.next() == Wait(10)
        call.now = 9.9
        assert call.next() == Wait(10)
        call.now = 10
        assert call.next() == Try(PRIMARY, 20)

    def test_it_waits_as_long_as_the_policy_says(self) -> None:
        call = Call(throttle_wait=15)
        call.fails(Verdict.THROTTLED)
        assert call.next() == Wait(15)

    def test_it_waits_inside_the_call_up_to_its_timeout_then_raises(self) -> None:
        """Section 5: "the sender waits inside the call, up to its timeout, then raises"."""
        call = Call(timeout=8)
        call.fails(Verdict.THROTTLED)
        assert call.next() == Wait(8)
        call.now = 8
        assert call.next() is GiveUp.BUSY

    @pytest.mark.parametrize(("timeout", "then"), [(10.5, GiveUp.BUSY), (11.5, Try(PRIMARY, 1.5))])
    def test_what_is_left_after_the_rest_has_to_suffice_for_an_attempt(self, timeout: float, then: Next) -> None:
        """Section 10: "throttling: sends after waiting; no failover"; an attempt for want of time would time out."""
        call = Call(timeout=timeout)
        call.fails(Verdict.THROTTLED)
        assert call.next() == Wait(10)
        call.now = 10
        assert call.next() == then

    def test_a_call_that_is_short_by_its_callers_wish_is_tried_all_the_same(self) -> None:
        assert Call(timeout=0.125).next() == Try(PRIMARY, 0.125)

    def test_a_namespace_that_stays_busy_is_what_the_caller_is_told(self) -> None:
        call = Call()
        for _ in range(3):
            call.fails(Verdict.THROTTLED)
            call.now += 10
        assert (call.now, call.next()) == (30, GiveUp.BUSY)

    def test_another_call_of_the_same_sender_waits_as_well(self) -> None:
        """Section 5: the message is not attempted again by anyone; what one call learnt holds for the next."""
        call = Call()
        call.fails(Verdict.THROTTLED)
        assert Call(sender=call.sender).next() == Wait(10)

    def test_what_has_rested_enough_is_forgotten(self) -> None:
        """A sender that was throttled once is as any other afterwards."""
        call = Call()
        call.fails(Verdict.THROTTLED)
        SendRouter(call.sender, Policy(), at=BEGAN + 10)
        assert call.sender.busy == {}

    def test_another_sender_does_not_wait(self) -> None:
        """Section 5: "each sender on its own"."""
        call = Call()
        call.fails(Verdict.THROTTLED)
        assert Call().next() == Try(PRIMARY, 30)

    def test_a_busy_primary_that_fails_over_is_waited_for_no_longer(self) -> None:
        """Section 6: failed over, "no send touches the primary"."""
        call = Call()
        call.fails(Verdict.THROTTLED)
        call.now = 3
        call.becomes(State.FAILED_OVER)
        assert call.next() == backlog(0)

    def test_a_failure_after_a_busy_answer_is_raised(self) -> None:
        call = Call()
        call.fails(Verdict.THROTTLED)
        call.now = 10
        call.fails()
        call.becomes(State.SUSPECT)
        assert call.next() is GiveUp.FAILED


class TestLostLink:
    """Section 5: "An attempt that ends in a detach or a lost connection is made again on a fresh link as the SDK
    would (three times, 0.8 s exponential, within send_timeout) before the failure is raised"."""

    def test_it_is_made_again_three_times_after_the_sdks_pauses(self) -> None:
        call = Call()
        for pause in (1.6, 3.2, 6.4):
            call.loses_its_link()
            assert call.next() == Wait(pytest.approx(call.now + pause))
            call.now += pause
        call.loses_its_link()
        assert call.next() is GiveUp.FAILED
        assert call.now == pytest.approx(11.2)

    def test_it_is_not_made_again_where_too_little_time_would_be_left(self) -> None:
        call = Call(timeout=2.5)
        call.loses_its_link()
        assert call.next() is GiveUp.FAILED

    @pytest.mark.parametrize("state", [State.PINNED, State.UNKNOWN, State.SUSPECT])
    def test_it_is_made_again_in_every_state_that_uses_the_primary(self, state: State) -> None:
        call = Call()
        call.loses_its_link()
        call.becomes(state)
        call.now = 1.6
        assert call.next() == Try(PRIMARY, pytest.approx(28.4))

    def test_it_is_made_again_at_once_when_another_send_was_accepted(self) -> None:
        call = Call()
        call.loses_its_link()
        call.now = 0.5
        call.becomes(State.HEALTHY)
        assert call.next() == Try(PRIMARY, 29.5)

    def test_with_interval_0_it_fails_over_at_once(self) -> None:
        """Section 5: "With failover_interval 0 it fails over at once, as documented"."""
        call = Call()
        call.loses_its_link()
        call.becomes(State.FAILED_OVER)
        assert call.next() == backlog(0)

    def test_a_client_with_retries_of_its_own_gets_none_on_top(self) -> None:
        """Section 5: "A client that was handed in with retries of its own gets none of ours on top"."""
        call = Call(sender=SenderMemory(retry_pauses=()))
        call.loses_its_link()
        assert call.next() is GiveUp.FAILED

    def test_any_other_failure_is_raised(self) -> None:
        call = Call()
        call.loses_its_link()
        call.now = 1.6
        call.fails()
        assert call.next() is GiveUp.FAILED


class TestShortAttempt:
    """Section 7: "A route is tried only with time enough to be answered"."""

    @pytest.mark.parametrize(("left", "then"), [(0.9, GiveUp.NO_BACKLOG), (1.5, backlog(0, 1.5))])
    def test_a_call_reaches_the_backlog_with_time_enough_or_not_at_all(self, left: float, then: Next) -> None:
        call = Call(timeout=25, send_timeout=10, hold_until_failover=True)
        call.now = 10
        call.fails()
        call.now = 25 - left
        call.becomes(State.FAILED_OVER)
        assert call.next() == then

    @pytest.mark.parametrize(
        ("timeout", "now", "is_short"),
        [(None, 0, False), (5, 0, False), (25, 5, False), (25, 20, True), (0.1, 0, True)],
    )
    def test_a_time_out_of_what_is_left_is_no_silence(self, timeout: float | None, now: float, is_short: bool) -> None:
        """Section 7: "a time-out of an attempt that had less than its own limit is no silence"."""
        call = Call(State.FAILED_OVER, timeout=timeout, send_timeout=10)
        call.now = now
        step = call.next()
        assert isinstance(step, Try)
        assert step.is_short is is_short

    def test_the_straight_way_has_the_same_limit(self) -> None:
        assert [Call(timeout=limit).journey.first().is_short for limit in (None, 60, 5, 0.1)] == [False] * 3 + [True]


class TestAllQueuesOut:
    """Section 7: "Then sends are the probe"."""

    @staticmethod
    def out(*failed: float, **options: object) -> Call:
        """A call while every queue is out, each since a time of its own."""
        call = Call(State.FAILED_OVER, queues=len(failed), **options)
        for index, at in enumerate(failed):
            call.rotation.pull(index, at=BEGAN + at, reason="timeout")
        return call

    def beside(self, call: Call, **options: object) -> Call:
        other = Call(State.FAILED_OVER, rotation=call.rotation, **options)
        other.now = call.now
        return other

    def test_one_call_goes_round_the_queues_the_one_that_failed_longest_ago_first(self) -> None:
        call = self.out(-10, -30, -20)
        tried = []
        while isinstance(step := call.next(), Try):
            tried.append(step.route.queue)
            call.now += 1
            call.rotation.pull(step.route.queue, at=BEGAN + call.now, reason="timeout")
            call.journey.ended(step.route, Verdict.COUNTS, at=BEGAN + call.now)
        assert (tried, step) == ([1, 2, 0], GiveUp.NO_BACKLOG)

    def test_an_attempt_has_at_most_5_seconds(self) -> None:
        step = self.out(-10).next()
        assert step == backlog(0, 5)
        assert isinstance(step, Try)
        assert not step.is_short

    def test_the_others_wait_for_its_result_within_their_time(self) -> None:
        call = self.out(-10)
        call.next()
        other = self.beside(call, timeout=0.5)
        assert other.next() == Wait(0.5)
        other.now = 0.5
        assert other.next() is GiveUp.NO_BACKLOG
        assert other.journey.waited == 0.5

    def test_a_failed_round_is_the_answer_for_those_who_waited(self) -> None:
        call = self.out(-10)
        call.next()
        other = self.beside(call)
        assert isinstance(other.next(), Wait)
        call.fails()
        assert call.next() is GiveUp.NO_BACKLOG
        other.now = 3
        assert other.next() is GiveUp.NO_BACKLOG
        assert other.journey.waited == 3
        assert self.beside(call).next() == backlog(0, 5)

    def test_an_acceptance_is_the_answer_as_well(self) -> None:
        call = self.out(-10)
        call.next()
        other = self.beside(call)
        assert isinstance(other.next(), Wait)
        call.rotation.probed(0, at=BEGAN, accepted=True)
        assert other.next() == backlog(0)

    def test_the_next_call_goes_on_where_one_left(self) -> None:
        call = self.out(-10, -30)
        call.fails()
        other = self.beside(call)
        assert isinstance(other.next(), Wait)
        assert call.journey.leave(call.rotation)
        assert other.next() == backlog(0, 5)

    def test_queues_that_failed_in_this_call_are_not_tried_twice(self) -> None:
        call = Call(State.FAILED_OVER, queues=2)
        call.rotation.pull(1, at=BEGAN, reason="timeout")
        call.fails()
        assert call.next() == backlog(1, 5)


class TestHold:
    """Section 6: "`hold_until_failover`: the send waits instead of raising, bounded by its timeout"."""

    @staticmethod
    def held(**options: object) -> Call:
        call = Call(hold_until_failover=True, **options)
        call.fails()
        call.becomes(State.SUSPECT)
        return call

    def test_it_tries_the_primary_each_second_while_suspect(self) -> None:
        """Section 6: "A held send tries the primary again every second (with jitter, one in flight an entity) while
        the entity is suspect"."""
        call = self.held(timeout=20)
        assert call.next(draw=0.5) == Wait(1)
        call.now = 1
        assert call.next() == Try(PRIMARY, 19)
        call.journey.ended(PRIMARY, Verdict.COUNTS, at=BEGAN + 1)
        assert [call.next(draw) for draw in (0.0, 0.9)] == [Wait(1.75)] * 2

    def test_one_of_them_is_in_flight(self) -> None:
        call = self.held(timeout=20)
        call.next(draw=0.5)
        other = self.held(timeout=20, sender=SenderMemory(trial=call.sender.trial))
        call.now = other.now = 1
        assert isinstance(call.next(), Try)
        assert other.next() == Wait(2)
        call.journey.leave(call.rotation)
        assert other.next(draw=0.5) == Wait(2)
        other.now = 2
        assert isinstance(other.next(), Try)

    def test_a_try_ends_before_the_failover(self) -> None:
        """Section 6: "Holding never causes a failover that not holding would not have had"; nor a late one."""
        call = self.held(timeout=20)
        call.becomes(State.SUSPECT, fails_over_at=BEGAN + 6)
        call.next(draw=0.5)
        call.now = 1
        step = call.next()
        assert step == Try(PRIMARY, 5)
        assert isinstance(step, Try)
        assert step.is_short

    @pytest.mark.parametrize("now", [5.5, 19.5])
    def test_no_try_begins_that_could_not_be_answered(self, now: float) -> None:
        call = self.held(timeout=20)
        call.becomes(State.SUSPECT, fails_over_at=BEGAN + (6 if now < 6 else 60))
        call.now = now
        assert call.next() == Wait(20)

    def test_a_new_suspicion_has_a_first_pause_of_its_own(self) -> None:
        call = self.held(timeout=60)
        call.next(draw=0.5)
        call.now = 10
        call.becomes(State.SUSPECT, since=BEGAN + 10)
        assert call.next(draw=0.5) == Wait(11)

    def test_it_goes_on_to_the_backlog_at_failover(self) -> None:
        call = self.held(timeout=20)
        call.now = 12
        call.becomes(State.FAILED_OVER)
        assert call.next() == backlog(0, 8)

    def test_it_tries_the_primary_again_once_another_send_has_proven_it(self) -> None:
        call = self.held(timeout=20)
        call.now = 12
        call.becomes(State.HEALTHY)
        assert call.next() == Try(PRIMARY, 8)

    def test_it_raises_at_its_timeout(self) -> None:
        call = self.held(timeout=20)
        call.now = 20
        assert call.next() is GiveUp.FAILED

    def test_it_is_bounded_by_send_timeout_where_the_caller_has_none(self) -> None:
        call = self.held()
        call.now = 29.5
        assert call.next() == Wait(30)

    def test_it_does_not_wait_where_nothing_will_change_by_itself(self) -> None:
        call = self.held(timeout=20)
        call.becomes(State.PINNED)
        assert call.next() is GiveUp.FAILED


class TestBacklog:
    @pytest.mark.parametrize("state", DIVERTING)
    def test_no_send_touches_the_primary(self, state) -> None:
        """Section 6: "failed over: no send touches the primary"; forced as well."""
        assert Call(state).next() == backlog(0)

    @given(draw=st.floats(0, 1, exclude_max=True))
    def test_a_sender_picks_at_random_and_keeps_its_queue(self, draw) -> None:
        """Section 7.1: "Each sender picks one backlog queue at random and keeps it"."""
        first = Call(State.FAILED_OVER, queues=10)
        step = first.next(draw)
        assert step == backlog(int(draw * 10))
        for other_draw in (0.0, 0.99):
            assert Call(State.FAILED_OVER, queues=10, sender=first.sender).next(other_draw) == step

    def test_a_failed_queue_is_replaced_in_the_same_call(self) -> None:
        """Section 7.1: "a new one is selected. The same call goes on with it"."""
        call = Call(State.FAILED_OVER)
        call.fails()
        assert call.next() == backlog(1)

    def test_a_queue_that_another_sender_saw_fail_is_not_used(self) -> None:
        """Section 7.1: out of the rotation "for every sender of the pairing"."""
        call = Call(State.FAILED_OVER, sender=SenderMemory(queue=0))
        call.rotation.pull(0, at=BEGAN, reason="timeout")
        assert call.next() == backlog(1)
        assert call.sender.queue == 1

    def test_none_left_is_said_at_once(self) -> None:
        """Section 7.1: "None left: BacklogUnavailableError, and the caller still owns the message"."""
        call = Call(State.FAILED_OVER, queues=2)
        call.fails()
        call.fails()
        assert call.next() is GiveUp.NO_BACKLOG

    def test_a_queue_that_returned_is_used_again(self) -> None:
        call = Call(State.FAILED_OVER, queues=1)
        call.fails()
        call.rotation.probed(0, at=BEGAN + 1, accepted=True)
        assert call.next() == backlog(0)

    def test_it_goes_on_until_its_timeout(self) -> None:
        """Section 7.1: "The same call goes on with it, until its timeout"."""
        call = Call(State.FAILED_OVER, timeout=20)
        call.now = 15
        call.fails()
        assert call.next() == backlog(1, 5)
        call.now = 20
        assert call.next() is GiveUp.NO_BACKLOG

    def test_a_callers_timeout_holds_for_primary_and_backlog_together(self) -> None:
        call = Call(timeout=40)
        call.now = 30
        call.fails()
        call.becomes(State.FAILED_OVER)
        assert call.next() == backlog(0, 10)

    def test_without_one_the_backlog_has_time_for_two_attempts_of_its_own(self) -> None:
        """Section 7.1: "The same call goes on with" another queue, also when the first used up a whole attempt."""
        call = Call()
        call.now = 29
        call.fails()
        call.becomes(State.FAILED_OVER)
        assert call.next() == backlog(0)
        call.now = 59
        call.fails()
        assert call.next() == backlog(1)
        call.now = 79
        call.fails()
        assert call.next() == backlog(2, 10)
        call.now = 89
        assert call.next() is GiveUp.NO_BACKLOG

    def test_a_backlogs_failure_is_not_the_callers_once_the_primary_is_back(self) -> None:
        """Section 6: healthy again, "all senders use the primary at once"; section 7.1: the call goes on."""
        call = Call(State.FAILED_OVER)
        call.now = 5
        call.fails()
        call.becomes(State.HEALTHY)
        assert call.next() == Try(PRIMARY, 30)
        call.fails()
        assert call.next() is GiveUp.FAILED

    @pytest.mark.parametrize("now", [State.PINNED, State.SUSPECT])
    def test_the_primary_is_tried_once_more_and_not_for_ever(self, now) -> None:
        call = Call()
        call.fails()
        call.becomes(State.FAILED_OVER)
        call.fails()
        call.becomes(now)
        assert call.next() == Try(PRIMARY, 30)
        call.fails()
        assert call.next() is GiveUp.FAILED


class TestBusyBacklog:
    def test_another_queue_is_tried_before_anyone_waits(self) -> None:
        """Section 5: "A busy backlog queue is not pulled; another is tried before anyone waits"."""
        call = Call(State.FAILED_OVER, queues=2)
        call.fails(Verdict.THROTTLED)
        assert call.rotation.holds(0)
        assert call.next() == backlog(1)

    def test_when_all_are_busy_it_waits_for_the_first_of_them(self) -> None:
        call = Call(State.FAILED_OVER, queues=2)
        call.fails(Verdict.THROTTLED)
        call.now = 4
        call.fails(Verdict.THROTTLED)
        assert call.next() == Wait(10)
        call.now = 10
        assert call.next() == backlog(0)

    def test_busy_queues_are_waited_for_where_the_others_are_out(self) -> None:
        call = Call(State.FAILED_OVER, queues=2)
        call.fails(Verdict.THROTTLED)
        call.fails()
        assert call.next() == Wait(10)

    def test_a_busy_queue_that_is_pulled_is_not_waited_for(self) -> None:
        call = Call(State.FAILED_OVER, queues=1)
        call.fails(Verdict.THROTTLED)
        call.rotation.pull(0, at=BEGAN, reason="timeout")
        assert call.next() is GiveUp.NO_BACKLOG

    def test_the_wait_ends_with_the_call(self) -> None:
        """Section 5: "up to its timeout, then raises"."""
        call = Call(State.FAILED_OVER, queues=1, timeout=6)
        call.fails(Verdict.THROTTLED)
        assert call.next() == Wait(6)
        call.now = 6
        assert call.next() is GiveUp.BUSY

    def test_a_sender_comes_back_to_its_queue_when_no_other_was_found(self) -> None:
        """Section 7.1: it keeps its queue."""
        call = Call(State.FAILED_OVER, queues=1)
        call.fails(Verdict.THROTTLED)
        call.next()
        call.now = 10
        assert call.next(draw=0.99) == backlog(0)

    def test_the_busy_time_of_a_queue_is_the_senders_own(self) -> None:
        call = Call(State.FAILED_OVER, queues=2)
        call.fails(Verdict.THROTTLED)
        assert Call(State.FAILED_OVER, queues=2).next() == backlog(0)
        assert Call(State.FAILED_OVER, queues=2, sender=SenderMemory(busy=call.sender.busy)).next() == backlog(1)


@given(data=st.data(), timeout=st.none() | st.floats(1, 100), hold=st.booleans())
def test_every_call_ends_in_time_and_never_goes_where_it_must_not(
    data: st.DataObject, timeout: float | None, hold: bool
) -> None:
    """No attempt on the primary while diverting, on a queue that is pulled or rests, or beyond the end."""
    call = Call(timeout=timeout, hold_until_failover=hold)
    limit = timeout if timeout is not None else 3 * 30.0
    for _ in range(400):
        call.becomes(data.draw(st.sampled_from(State)))
        step = call.next(data.draw(st.floats(0, 1, exclude_max=True)))
        if isinstance(step, GiveUp):
            return
        if isinstance(step, Wait):
            assert call.now < step.until <= limit + 1e-6
            call.now = step.until
            continue
        assert (step.route == PRIMARY) == (not call.entity.diverting)
        is_probe = call.rotation.is_all_out and step.timeout <= 5
        assert step.route.queue is None or call.rotation.holds(step.route.queue) or is_probe
        assert not call.sender.rests(step.route, BEGAN + call.now)
        assert 0 < step.timeout <= 30.0
        assert call.now + step.timeout <= limit + 1e-6
        call.now += data.draw(st.floats(0.5, 30.0).map(lambda took, most=step.timeout: min(took, most)))
        verdict = data.draw(st.sampled_from([Verdict.COUNTS, Verdict.THROTTLED]))
        if verdict is Verdict.COUNTS and step.route.queue is not None:
            call.rotation.pull(step.route.queue, at=BEGAN + call.now, reason="timeout")
        call.journey.ended(step.route, verdict, at=BEGAN + call.now, is_cut=data.draw(st.booleans()))
    pytest.fail("the call went on for ever")
