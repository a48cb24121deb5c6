"""From the first failure to the failback, one sentence of SPEC.md sections 3, 5 and 6 at a time."""

from __future__ import annotations

import pytest

from paired_servicebus.core.failover.inactivity import QUIET_AFTER
from paired_servicebus.core.failover.pairing_machine import Announce
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import PingAccepted, PingFailed, PingSent, StateChanged
from paired_servicebus.core.model.verdict import VERDICTS, FailureKind, Verdict
from paired_servicebus.core.operator.why_line import why

from .conftest import Step, Told, at, changed, does, due, nothing, pinged

COUNTED = sorted(kind for kind, verdict in VERDICTS.items() if verdict is Verdict.COUNTS)
UNCOUNTED = sorted(kind for kind, verdict in VERDICTS.items() if verdict is not Verdict.COUNTS)
UNKNOWN, HEALTHY, SUSPECT, OVER = State.UNKNOWN, State.HEALTHY, State.SUSPECT, State.FAILED_OVER
FAILS, ACCEPTS = does(Told.fails), does(Told.accepts)
GIVES_UP = changed(("suspect", "failed over"))


def ping(number: int, *, took: float = 0.0) -> Step:
    return does(Told.ping_accepted, number, took=took)


def no_ping(number: int, *, took: float = 0.0) -> Step:
    return does(Told.ping_failed, number, took=took)


def busy_ping(number: int) -> Step:
    return does(Told.ping_failed, number, reason="server busy", throttled=True)


def minute(**options: object) -> dict[str, object]:
    return {"failover_interval": 60, **options}


def at_once(ping_interval: float = 30, **options: object) -> dict[str, object]:
    return {"failover_interval": 0, "ping_primary_interval": ping_interval, **options}


def has(**facts: object) -> Step:
    def check(pairing: Told) -> None:
        assert {name: getattr(pairing.entity(), name) for name in facts} == facts

    return check


def last_why(text: str) -> Step:
    def check(pairing: Told) -> None:
        assert pairing.announced(StateChanged)[-1].why == text

    return check


COURSES: dict[str, tuple[dict[str, object], tuple[Step, ...]]] = {
    # Section 6: "An entity with neither traffic nor probe is shown as unknown, not as healthy".
    "an entity without traffic is unknown": ({}, (UNKNOWN,)),
    # Section 6: healthy is what a successful send has shown.
    "a first success makes it healthy": ({}, (ACCEPTS, changed(("unknown", "healthy")))),
    # Section 6: "the failover timer starts once; later failures don't restart it".
    "the timer starts once": (minute(), (FAILS, at(50), FAILS, due(60), 60, OVER)),
    # Section 6: "suspect -> (a *successful* send) healthy, timer cancelled".
    "a success cancels the timer": (minute(), (FAILS, at(59), ACCEPTS, HEALTHY, due(59 + QUIET_AFTER), 60, nothing)),
    # Section 6: the timer was cancelled, so it starts anew.
    "a new failure after a success starts a whole interval": (
        minute(), (FAILS, at(30), ACCEPTS, FAILS, 89, nothing, 90, GIVES_UP)
    ),
    # Section 6: the state is the primary's; a message parked for it says nothing of it.
    "a success of the backlog does not cancel it": ({}, (FAILS, does(Told.accepts, queue=1), SUSPECT)),
    # Section 6: "suspect -> (timer ends with no successful send; silence counts) failed over".
    "silence counts": (minute(), (FAILS, 59.9, nothing, 60, GIVES_UP)),
    # Section 6: the timer has ended; the call that failed need not wait for a tick to go on to the backlog.
    "a failure at the end of the interval fails over in its own step": (minute(), (FAILS, at(60), FAILS, GIVES_UP)),
    # Section 3: "0 = fail over on the first failure that counts".
    "an interval of zero fails over in the same step": (
        {"failover_interval": 0},
        (does(Told.fails, reason="connection lost"), changed(("unknown", "suspect"), ("suspect", "failed over")),
         last_why("connection lost")),
    ),
    # Section 6: only a successful send cancels it; a throttled one is neither a success nor a failure.
    "throttling leaves the suspects timer running": (
        minute(), (FAILS, at(30), does(Told.fails, failure=FailureKind.BUSY), SUSPECT, due(60))
    ),
    # Section 6: "one ping an interval, the first one interval after failover".
    "the first ping leaves one interval after failover": (
        {"failover_interval": 10, "ping_primary_interval": 30},
        (Told.fail_over, pinged(), due(40), 39.9, nothing, 40, pinged(1),
         lambda pairing: [(event.entity, event.number) for event in pairing.announced(PingSent)].index(("orders", 1))),
    ),
    # Section 6, with interval 0: nothing is due before the first ping.
    "a first ping comes an interval after an immediate failover": (at_once(), (FAILS, due(30))),
    # Section 6: "one ping an interval ... until one is accepted".
    "one ping an interval from start to start": (
        at_once(), (FAILS, 30, at(42), no_ping(1, took=12), due(60), 60, pinged(2))
    ),
    # Section 6: "one ping task for this entity and engine"; a slow one is awaited, not overtaken.
    "one ping at a time": (
        at_once(ping_timeout=120), (FAILS, 30, due(None), 140, nothing, at(150), no_ping(1, took=120), 150, pinged(2))
    ),
    # Section 6: "(`failback_pings` pings accepted in a row ...) healthy: all senders use the primary at once, pings
    # stop".
    "an accepted ping fails back at once and pings stop": (
        at_once(),
        (FAILS, 30, at(31), ping(1, took=1), changed(("failed over", "healthy")), has(diverting=False, ping_due=None),
         due(31 + QUIET_AFTER)),
    ),
    # Section 5: "A throttled ping is not an accepted one".
    "a throttled ping breaks the row": (
        at_once(10, failback_pings=2), (FAILS, 10, ping(1), 20, busy_ping(2), 30, ping(3), OVER)
    ),
    # Section 5: "not attempted again for >= 10 s by anyone"; a release and a new failover end no throttling.
    "a throttled ping rests also where a person comes between": (
        at_once(2), (FAILS, 2, busy_ping(1), at(4.0), Told.releases, Told.forces, due(12))
    ),
    # Section 6: "and at least `cool_down` in this state".
    "it stays for the cool down": (
        at_once(10, cool_down=25), (FAILS, 10.0, ping(1), OVER, 20.0, ping(2), OVER, 30, ping(3), HEALTHY)
    ),
    # Section 6: "A send in flight at failover that succeeds late is recorded, nothing more".
    "a late success is recorded and nothing more": (
        at_once(), (FAILS, at(5), ACCEPTS, nothing, OVER, due(30), has(primary_good=True))
    ),
    # Section 6: pings in a row are those of this failover; numbers begin again with each.
    "the answer of an earlier failovers ping is not taken for this ones": (
        at_once(10, ping_timeout=120),
        (FAILS, 10, at(11), Told.releases, at(12), FAILS, 22, pinged(1), at(23), ping(1, took=13), OVER,
         has(ping_in_flight=True), ping(1, took=1), HEALTHY),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COURSES)
def test_an_entity_fails_over_and_back(told, name: str) -> None:
    options, steps = COURSES[name]
    told(**options).run(*steps)


@pytest.mark.parametrize("failure", COUNTED)
@pytest.mark.parametrize("state", [State.HEALTHY, State.UNKNOWN])
def test_a_failure_that_counts_makes_it_suspect(told, state, failure) -> None:
    """Section 6: "healthy -> (a failure that counts) suspect"."""
    pairing = told()
    if state is State.HEALTHY:
        pairing.accepts()
    pairing.fails(failure=failure)
    assert pairing.changes() == [(state, "suspect")]


def test_the_time_of_the_first_failure_stays_until_the_entity_is_healthy(told) -> None:
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


def test_the_first_failure_is_the_one_that_is_told(told) -> None:
    """Section 6: later failures don't restart the timer, so the first one is why it runs."""
    pairing = told(failover_interval=60)
    pairing.fails(reason="connection lost")
    pairing.fails(reason="timeout")
    pairing.ticks(to=60)
    assert [change.why for change in pairing.announced(StateChanged)] == [
        'no send accepted for 60 s after "connection lost"'
    ]


@pytest.mark.parametrize("failure", UNCOUNTED)
def test_what_does_not_count_moves_nothing(told, failure) -> None:
    """Section 5: server busy, not authenticated, not authorized, too large, bad argument, not listed: "no"."""
    pairing = told(failover_interval=0)
    pairing.accepts()
    assert pairing.fails(failure=failure) == []
    assert (pairing.state(), pairing.due()) == (State.HEALTHY, QUIET_AFTER)


def test_the_why_line_of_a_throttled_entity_recalls_partitioning(told) -> None:
    """Section 5: "The why-line recalls that partitioning an entity makes throttling less likely"."""
    pairing = told()
    pairing.accepts()
    pairing.fails(failure=FailureKind.BUSY, reason="server busy")
    assert "server busy: partitioning the entity makes throttling less likely" in why(pairing.entity())


def test_pings_have_to_be_accepted_in_a_row(told) -> None:
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


@pytest.mark.parametrize(("interval", "next_ping"), [(2, 12.5), (10, 20.5), (30, 60)])
def test_after_a_throttled_ping_the_pinger_waits_as_well(told, interval, next_ping) -> None:
    """Section 5, server busy: "not attempted again for >= 10 s by anyone (SDK, sender, pinger, pump)"."""
    pairing = told(failover_interval=0, ping_primary_interval=interval)
    pairing.fails()
    pairing.ticks(to=interval)
    pairing.now = interval + 0.5
    pairing.ping_failed(1, took=0.5, reason="server busy", throttled=True)
    assert pairing.due() == next_ping


def test_a_late_failure_moves_nothing(told) -> None:
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


def test_the_answer_of_a_ping_that_a_failback_overtook_moves_nothing(told) -> None:
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


def test_the_answer_of_a_ping_to_an_entity_nobody_knows_is_illegal(told, refused) -> None:
    """Pings go to entities that failed over: there is none of that name."""
    pairing = told()
    assert "unknown entity 'orders'" in refused(pairing, lambda: pairing.ping_accepted(1))
    assert "unknown entity 'orders'" in refused(pairing, lambda: pairing.ping_failed(1))


def test_episodes_are_counted_and_timed(told) -> None:
    """Section 6: failed over ends with failback; the time between is what senders spent on the backlog."""
    pairing = told(failover_interval=10, ping_primary_interval=30)
    pairing.fail_over()
    pairing.ticks(to=40)
    pairing.now = 41
    pairing.ping_accepted(1)
    entity = pairing.entity()
    assert (entity.failovers, entity.failbacks, entity.seconds_failed_over) == (1, 1, 31.0)
