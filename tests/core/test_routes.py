"""A send's way: every path of SendRouter's diagram, its times, and what a sender remembers (SPEC.md sections 5 to
7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

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

    def run(self, *steps: Step) -> None:
        """The clock moves to a number; an attempt ends with a verdict; the entity enters a state; any other step is
        what the router has to answer then."""
        for place, step in enumerate(steps):
            if step is CUT:
                self.loses_its_link()
            elif isinstance(step, Verdict):
                self.fails(step)
            elif isinstance(step, State):
                self.becomes(step)
            elif isinstance(step, (int, float)):
                self.now = step
            elif callable(step):
                step(self)
            else:
                assert self.next() == step, f"step {place} of {steps}"


def backlog(queue: int, timeout: float = 30.0) -> Try:
    return Try(Route(queue), timeout)


def primary(timeout: float = 30.0) -> Try:
    return Try(PRIMARY, timeout)


def draws(draw: float, answer: Next) -> Callable[[Call], None]:
    """The answer to a draw."""

    def check(call: Call) -> None:
        assert call.next(draw=draw) == answer

    return check


def probed(queue: int, *, at: float = 0.0) -> Callable[[Call], None]:
    """A probe of the queue is accepted."""
    return lambda call: call.rotation.probed(queue, at=BEGAN + at, accepted=True)


def holds(queue: int) -> Callable[[Call], None]:
    """The queue is in the rotation."""

    def check(call: Call) -> None:
        assert call.rotation.holds(queue)

    return check


def pulled(queue: int) -> Callable[[Call], None]:
    """Another sender saw the queue fail."""
    return lambda call: call.rotation.pull(queue, at=BEGAN, reason="timeout")


CUT: Final = "the link is lost"
Step = int | float | Verdict | State | Next | str | Callable[[Call], object]
BUSY, FAILED = Verdict.THROTTLED, Verdict.COUNTS
SUSPECT, HEALTHY, OVER, PINNED = State.SUSPECT, State.HEALTHY, State.FAILED_OVER, State.PINNED
GIVEN_UP, NO_BACKLOG, STILL_BUSY = GiveUp.FAILED, GiveUp.NO_BACKLOG, GiveUp.BUSY
HELD = {"hold_until_failover": True, "timeout": 20}
ALREADY = {"state": OVER}

WAYS: dict[str, tuple[dict[str, object], tuple[Step, ...]]] = {
    "the callers own timeout bounds the attempt": ({"timeout": 5}, (primary(5),)),
    # Section 3: send_timeout is one attempt's, however long the caller would wait.
    "one attempt takes no more than send_timeout": ({"timeout": 300}, (primary(30),)),
    "a call whose time is over before it began is not tried": ({"timeout": 5}, (5, GIVEN_UP)),
    # -- a busy primary
    # Section 5: "the correct pattern is to wait 10 seconds, then send the message again".
    "it waits ten seconds and sends again": ({}, (BUSY, Wait(10), 9.9, Wait(10), 10, primary(20))),
    "it waits as long as the policy says": ({"throttle_wait": 15}, (BUSY, Wait(15))),
    # Section 5: "the sender waits inside the call, up to its timeout, then raises".
    "it waits up to its timeout then raises": ({"timeout": 8}, (BUSY, Wait(8), 8, STILL_BUSY)),
    "it waits up to a timeout of less than a second too": ({"timeout": 0.5}, (BUSY, Wait(0.5), 0.5, STILL_BUSY)),
    # Section 10: "throttling: sends after waiting; no failover"; an attempt for want of time would time out.
    "too little is left after the rest": ({"timeout": 10.5}, (BUSY, Wait(10), 10, STILL_BUSY)),
    "enough is left after the rest": ({"timeout": 11.5}, (BUSY, Wait(10), 10, primary(1.5))),
    "a call that is short by its callers wish is tried all the same": ({"timeout": 0.125}, (primary(0.125),)),
    "a namespace that stays busy is what the caller is told": ({}, (BUSY, 10, BUSY, 20, BUSY, 30, STILL_BUSY)),
    # Section 6: failed over, "no send touches the primary".
    "a busy primary that fails over is waited for no longer": ({}, (BUSY, 3, OVER, backlog(0))),
    "a failure after a busy answer is raised": ({}, (BUSY, 10, FAILED, SUSPECT, GIVEN_UP)),
    # -- a lost link
    # Section 5: "An attempt that ends in a detach or a lost connection is made again on a fresh link as the SDK would
    # (three times, 0.8 s exponential, within send_timeout) before the failure is raised".
    "a lost link is made again three times": (
        {},
        (CUT, Wait(pytest.approx(1.6)), 1.6, CUT, Wait(pytest.approx(4.8)), 4.8, CUT, Wait(pytest.approx(11.2)), 11.2,
         CUT, GIVEN_UP),
    ),
    "a lost link is not made again where too little time would be left": ({"timeout": 2.5}, (CUT, GIVEN_UP)),
    "a lost link is made again while pinned": ({}, (CUT, PINNED, 1.6, primary(pytest.approx(28.4)))),
    "a lost link is made again while unknown": ({}, (CUT, State.UNKNOWN, 1.6, primary(pytest.approx(28.4)))),
    "a lost link is made again while suspect": ({}, (CUT, 1.6, primary(pytest.approx(28.4)))),
    "a lost link is made again at once when another send was accepted": ({}, (CUT, 0.5, HEALTHY, primary(29.5))),
    # Section 5: "With failover_interval 0 it fails over at once, as documented".
    "a lost link with interval 0 fails over at once": ({}, (CUT, OVER, backlog(0))),
    # Section 5: "A client that was handed in with retries of its own gets none of ours on top".
    "a client with retries of its own gets none on top": ({"sender": SenderMemory(retry_pauses=())}, (CUT, GIVEN_UP)),
    "any other failure after a lost link is raised": ({}, (CUT, 1.6, FAILED, GIVEN_UP)),
    # -- Section 7: "A route is tried only with time enough to be answered"
    "with too little time the backlog is not tried": (
        {"timeout": 25, "send_timeout": 10, "hold_until_failover": True}, (10, FAILED, 24.1, OVER, NO_BACKLOG)
    ),
    "with time enough the backlog is tried": (
        {"timeout": 25, "send_timeout": 10, "hold_until_failover": True}, (10, FAILED, 23.5, OVER, backlog(0, 1.5))
    ),
    # -- Section 6: "`hold_until_failover`: the send waits instead of raising, bounded by its timeout"
    # "A held send tries the primary again every second (with jitter, one in flight an entity) while the entity is
    # suspect".
    "a held send tries the primary each second while suspect": (
        HELD, (FAILED, SUSPECT, draws(0.5, Wait(1)), 1, primary(19), FAILED, draws(0.0, Wait(1.75)),
               draws(0.9, Wait(1.75)))
    ),
    "no try of a held send begins that would run into the failover": (
        HELD, (FAILED, lambda call: call.becomes(SUSPECT, fails_over_at=BEGAN + 6), 5.5, Wait(20))
    ),
    "no try of a held send begins that would run into its end": (
        HELD, (FAILED, lambda call: call.becomes(SUSPECT, fails_over_at=BEGAN + 60), 19.5, Wait(20))
    ),
    "a new suspicion has a first pause of its own": (
        {**HELD, "timeout": 60},
        (FAILED, SUSPECT, draws(0.5, Wait(1)), 10, lambda call: call.becomes(SUSPECT, since=BEGAN + 10),
         draws(0.5, Wait(11)))
    ),
    "a held send goes on to the backlog at failover": (HELD, (FAILED, SUSPECT, 12, OVER, backlog(0, 8))),
    "a held send tries again once another one has proven the primary": (
        HELD, (FAILED, SUSPECT, 12, HEALTHY, primary(8))
    ),
    "a held send raises at its timeout": (HELD, (FAILED, SUSPECT, 20, GIVEN_UP)),
    "a held send is bounded by send_timeout where the caller has none": (
        {"hold_until_failover": True}, (FAILED, SUSPECT, 29.5, Wait(30))
    ),
    "a held send does not wait where nothing will change by itself": (HELD, (FAILED, PINNED, GIVEN_UP)),
    # -- Section 7.1: the backlog
    # "a new one is selected. The same call goes on with it"
    "a failed queue is replaced in the same call": (ALREADY, (FAILED, backlog(1))),
    # "None left: BacklogUnavailableError, and the caller still owns the message"
    "none left is said at once": ({**ALREADY, "queues": 2}, (FAILED, FAILED, NO_BACKLOG)),
    "a queue that returned is used again": ({**ALREADY, "queues": 1}, (FAILED, probed(0, at=1), backlog(0))),
    # "The same call goes on with it, until its timeout"
    "it goes on until its timeout": ({**ALREADY, "timeout": 20}, (15, FAILED, backlog(1, 5), 20, NO_BACKLOG)),
    "a callers timeout holds for primary and backlog together": ({"timeout": 40}, (30, FAILED, OVER, backlog(0, 10))),
    # "The same call goes on with" another queue, also when the first used up a whole attempt.
    "without a timeout the backlog has time for two attempts of its own": (
        {}, (29, FAILED, OVER, backlog(0), 59, FAILED, backlog(1), 79, FAILED, backlog(2, 10), 89, NO_BACKLOG)
    ),
    # Section 6: healthy again, "all senders use the primary at once"; section 7.1: the call goes on.
    "a backlogs failure is not the callers once the primary is back": (
        ALREADY, (5, FAILED, HEALTHY, primary(), FAILED, GIVEN_UP)
    ),
    "pinned, the primary is tried once more and not for ever": (
        {}, (FAILED, OVER, FAILED, PINNED, primary(), FAILED, GIVEN_UP)
    ),
    "suspect, the primary is tried once more and not for ever": (
        {}, (FAILED, OVER, FAILED, SUSPECT, primary(), FAILED, GIVEN_UP)
    ),
    # -- Section 5: "A busy backlog queue is not pulled; another is tried before anyone waits"
    "another queue is tried before anyone waits": (
        {**ALREADY, "queues": 2}, (BUSY, holds(0), backlog(1))
    ),
    "when all are busy it waits for the first of them": (
        {**ALREADY, "queues": 2}, (BUSY, 4, BUSY, Wait(10), 10, backlog(0))
    ),
    "busy queues are waited for where the others are out": ({**ALREADY, "queues": 2}, (BUSY, FAILED, Wait(10))),
    "a busy queue that is pulled is not waited for": ({**ALREADY, "queues": 1}, (BUSY, pulled(0), NO_BACKLOG)),
    # Section 5: "up to its timeout, then raises".
    "the wait ends with the call": ({**ALREADY, "queues": 1, "timeout": 6}, (BUSY, Wait(6), 6, STILL_BUSY)),
    # Section 7.1: it keeps its queue.
    "a sender comes back to its queue when no other was found": (
        {**ALREADY, "queues": 1}, (BUSY, Wait(10), 10, draws(0.99, backlog(0)))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_a_send_goes_this_way(name: str) -> None:
    options, steps = WAYS[name]
    Call(**options).run(*steps)  # type: ignore[arg-type]


def test_a_route_is_named_as_on_the_screen() -> None:
    assert (str(PRIMARY), str(Route(3))) == ("primary", "backlog/3")


@pytest.mark.parametrize("state", DIRECT)
def test_the_primary_is_tried_and_its_failure_is_raised(state: State) -> None:
    """Section 6: "While suspect, sends still go to the primary", unknown, healthy and pinned as well; "a failure is
    raised to the caller"."""
    Call(state).run(primary())
    Call().run(FAILED, state, GIVEN_UP)


@pytest.mark.parametrize("state", DIVERTING)
def test_while_an_entity_diverts_no_send_touches_the_primary(state: State) -> None:
    """Section 6: "failed over: no send touches the primary"; forced as well; "with interval 0 the same call goes on to
    the backlog and the caller sees no error"."""
    Call(state).run(backlog(0))
    Call().run(FAILED, state, draws(0.5, backlog(1)))


def test_what_a_sender_learnt_of_a_busy_primary_holds_for_its_calls_and_no_others() -> None:
    """Section 5: the message is not attempted again by anyone; "each sender on its own"."""
    call = Call()
    call.run(BUSY)
    Call(sender=call.sender).run(Wait(10))
    Call().run(primary())
    SendRouter(call.sender, Policy(), at=BEGAN + 10)
    assert call.sender.busy == {}, "what has rested enough is forgotten"


def test_the_busy_time_of_a_queue_is_the_senders_own() -> None:
    call = Call(OVER, queues=2)
    call.run(BUSY)
    Call(OVER, queues=2).run(backlog(0))
    Call(OVER, queues=2, sender=SenderMemory(busy=call.sender.busy)).run(backlog(1))


def test_a_queue_that_another_sender_saw_fail_is_not_used() -> None:
    """Section 7.1: out of the rotation "for every sender of the pairing"."""
    call = Call(OVER, sender=SenderMemory(queue=0))
    call.run(pulled(0), backlog(1))
    assert call.sender.queue == 1


@given(draw=st.floats(0, 1, exclude_max=True))
def test_a_sender_picks_at_random_and_keeps_its_queue(draw: float) -> None:
    """Section 7.1: "Each sender picks one backlog queue at random and keeps it"."""
    first = Call(OVER, queues=10)
    step = first.next(draw)
    assert step == backlog(int(draw * 10))
    for other_draw in (0.0, 0.99):
        assert Call(OVER, queues=10, sender=first.sender).next(other_draw) == step


@pytest.mark.parametrize(
    ("timeout", "now", "is_short"),
    [(None, 0, False), (5, 0, False), (25, 5, False), (25, 20, True), (0.1, 0, True)],
)
def test_a_time_out_of_what_is_left_is_no_silence(timeout: float | None, now: float, is_short: bool) -> None:
    """Section 7: "a time-out of an attempt that had less than its own limit is no silence"."""
    call = Call(OVER, timeout=timeout, send_timeout=10)
    call.now = now
    step = call.next()
    assert isinstance(step, Try)
    assert step.is_short is is_short


def test_the_straight_way_has_the_same_limit() -> None:
    assert [Call(timeout=limit).journey.first().is_short for limit in (None, 60, 5, 0.1)] == [False] * 3 + [True]


def held(sender: SenderMemory | None = None) -> Call:
    call = Call(hold_until_failover=True, timeout=20, sender=sender)
    call.run(FAILED, SUSPECT)
    return call


def test_one_try_of_held_sends_is_in_flight() -> None:
    call = held()
    call.next(draw=0.5)
    other = held(SenderMemory(trial=call.sender.trial))
    call.now = other.now = 1
    assert isinstance(call.next(), Try)
    assert other.next() == Wait(2)
    call.journey.leave(call.rotation)
    assert other.next(draw=0.5) == Wait(2)
    other.now = 2
    assert isinstance(other.next(), Try)


def test_a_try_of_a_held_send_ends_before_the_failover() -> None:
    """Section 6: "Holding never causes a failover that not holding would not have had"; nor a late one."""
    call = held()
    call.becomes(SUSPECT, fails_over_at=BEGAN + 6)
    call.next(draw=0.5)
    call.now = 1
    step = call.next()
    assert step == primary(5)
    assert isinstance(step, Try)
    assert step.is_short


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
