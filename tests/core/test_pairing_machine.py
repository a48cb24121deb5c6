"""The pairing's machine, one sentence of SPEC.md sections 3 and 5 to 8 at a time; what cannot be changes nothing."""

from __future__ import annotations

import pytest

from paired_servicebus.core.failover.inactivity import QUIET_AFTER
from paired_servicebus.core.failover.pairing_machine import DEADLINES_PER_TICK
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.verdict import BACKLOG_VERDICTS, VERDICTS, FailureKind, Verdict
from paired_servicebus.core.operator.why_line import why

from .conftest import BEGAN, Step, Told, announces, at, changed, does, due, has, nothing, pinged, refuses

Courses = dict[str, tuple[dict[str, object], tuple[Step, ...]]]
"""The options and the steps of each; see `Told.run`."""
COUNTED = sorted(kind for kind, verdict in VERDICTS.items() if verdict is Verdict.COUNTS)
UNCOUNTED = sorted(kind for kind, verdict in VERDICTS.items() if verdict is not Verdict.COUNTS)
STAYING = sorted(kind for kind, verdict in BACKLOG_VERDICTS.items() if verdict is not Verdict.COUNTS)
UNKNOWN, HEALTHY, SUSPECT, OVER, FORCED, PINNED = State
BUSY = FailureKind.BUSY
ACCEPTS, FORCES, PINS, RELEASES = Told.accepts, Told.forces, Told.pins, Told.releases
GIVES_UP = changed(("suspect", "failed over"))


def fails(entity: str = "orders", **options: object) -> Step:
    return does(Told.fails, entity, **options)


FAILS = fails()


def ping(number: int, **options: object) -> Step:
    return does(Told.ping_accepted, number, **options)


def no_ping(number: int, **options: object) -> Step:
    return does(Told.ping_failed, number, **options)


def busy_ping(number: int, *, took: float = 0.0) -> Step:
    return no_ping(number, took=took, reason="server busy", throttled=True)


def probed(queue: int, **options: object) -> Step:
    return does(Told.probed, queue, **options)


def minute(**options: object) -> dict[str, object]:
    return {"failover_interval": 60, **options}


def at_once(ping_interval: float = 30, **options: object) -> dict[str, object]:
    return {"failover_interval": 0, "ping_primary_interval": ping_interval, **options}


def last_why(text: str) -> Step:
    """The sentence of the latest event's last change of state."""

    def check(pairing: Told) -> None:
        assert pairing.announced(e.StateChanged)[-1].why == text

    return check


def says(text: str) -> Step:
    """The why-line has this text."""

    def check(pairing: Told) -> None:
        assert text in why(pairing.entity())

    return check


def unmoved(act: Step, answer: type) -> Step:
    """An act announces itself alone, and the entity stays as it is."""

    def check(pairing: Told) -> None:
        before = pairing.entity()
        act(pairing)  # type: ignore[operator]
        assert len(pairing.announced(answer)) == len(pairing.effects) == 1
        assert pairing.entity() == before

    return check


def knows(*entities: tuple[str, State]) -> Step:
    """The machine has these entities and no others."""

    def check(pairing: Told) -> None:
        assert [(one.path, one.state) for one in pairing.machine.entities()] == list(entities)

    return check


def holds(*queues: int) -> Step:
    """These of the three backlog queues are in the rotation."""

    def check(pairing: Told) -> None:
        assert [index for index in range(3) if pairing.machine.rotation.holds(index)] == list(queues)

    return check


def probes(*queues: int) -> Step:
    """The latest event had these queues probed."""

    def check(pairing: Told) -> None:
        assert pairing.probes() == list(queues)

    return check


def delivers(path: str, *, may: bool = True) -> Step:
    """Whether a pump may try the destination."""

    def check(pairing: Told) -> None:
        assert pairing.machine.may_deliver(path, at=pairing.at) is may

    return check


FAILOVER: Courses = {
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
        (Told.fail_over, pinged(), due(40), 39.9, nothing, 40, pinged(1), announces(e.PingSent)),
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
    # Section 6: "healthy -> (a failure that counts) suspect".
    **{
        f"{kind} makes a {state} entity suspect": (
            {}, (*((ACCEPTS,) if state is HEALTHY else ()), fails(failure=kind), changed((state, "suspect")))
        )
        for kind in COUNTED for state in (HEALTHY, UNKNOWN)
    },
    # Section 5: server busy, not authenticated, not authorized, too large, bad argument, not listed: "no".
    **{
        f"{kind} moves nothing": (
            {"failover_interval": 0}, (ACCEPTS, fails(failure=kind), nothing, HEALTHY, due(QUIET_AFTER))
        )
        for kind in UNCOUNTED
    },
    # When the failure was that the present episode began with; None: there is none.
    "the time of the first failure stays until the entity is healthy": (
        minute(),
        (ACCEPTS, has(first_failure_at=None), FAILS, has(last_failure_at=BEGAN, first_failure_at=BEGAN), at(5), FAILS,
         has(last_failure_at=BEGAN + 5, first_failure_at=BEGAN), ACCEPTS, has(first_failure_at=None)),
    ),
    # Section 6: later failures don't restart the timer, so the first one is why it runs.
    "the first failure is the one that is told": (
        minute(),
        (fails(reason="connection lost"), FAILS, 60, last_why('no send accepted for 60 s after "connection lost"')),
    ),
    # Section 5: "The why-line recalls that partitioning an entity makes throttling less likely".
    "the why line of a throttled entity recalls partitioning": (
        {},
        (ACCEPTS, fails(failure=BUSY, reason="server busy"),
         says("server busy: partitioning the entity makes throttling less likely")),
    ),
    # Section 6: "`failback_pings` pings accepted in a row"; a refused one starts the count again.
    "pings have to be accepted in a row": (
        at_once(10, failback_pings=3),
        (FAILS, 10, ping(1), 20, ping(2), OVER, 30, no_ping(3), 40, ping(4), 50, ping(5), OVER, 60, ping(6), HEALTHY,
         last_why("3 pings in a row were accepted")),
    ),
    # Section 5, server busy: "not attempted again for >= 10 s by anyone (SDK, sender, pinger, pump)".
    **{
        f"after a throttled ping the pinger of {interval} s waits as well": (
            at_once(interval), (FAILS, interval, at(interval + 0.5), busy_ping(1, took=0.5), due(next_ping))
        )
        for interval, next_ping in ((2, 12.5), (10, 20.5), (30, 60))
    },
    # Section 6: "one that fails after failover began goes on to the backlog in the same call".
    "a late failure moves nothing": (
        at_once(),
        (FAILS, at(5), fails(reason="connection lost"), nothing, OVER,
         has(first_failure="timeout", last_failure="connection lost"), due(30)),
    ),
    # Section 6: pings stop at failback; one that was under way then is only late.
    "the answer of a ping that a failback overtook moves nothing": (
        at_once(10), (FAILS, 10, RELEASES, unmoved(no_ping(1), e.PingFailed), unmoved(ping(1), e.PingAccepted))
    ),
    # Pings go to entities that failed over: there is none of that name.
    "the answer of a ping to an entity nobody knows is illegal": (
        {}, (refuses("unknown entity 'orders'", ping(1)), refuses("unknown entity 'orders'", no_ping(1)))
    ),
    # Section 6: failed over ends with failback; the time between is what senders spent on the backlog.
    "episodes are counted and timed": (
        {"failover_interval": 10, "ping_primary_interval": 30},
        (Told.fail_over, 40, at(41), ping(1), has(failovers=1, failbacks=1, seconds_failed_over=31.0)),
    ),
}  # fmt: skip

APART: Courses = {
    # Section 6: "Failover is entity by entity; a failure in one says nothing of another".
    "failover is entity by entity": (
        at_once(10),
        (ACCEPTS, does(ACCEPTS, "audit"), FAILS, knows(("orders", OVER), ("audit", HEALTHY)), 10, pinged(1)),
    ),
    # Section 8: "Per entity, per pairing, per process".
    "pings are numbered entity by entity": (
        at_once(10),
        (FAILS, at(3), fails("audit"), 13, pinged(1, entities=("orders", "audit")), ping(1, entity="audit"),
         knows(("orders", OVER), ("audit", HEALTHY))),
    ),
    # Section 6: "one per pairing and entity path; paths compare case-insensitively".
    "paths compare without case": (
        minute(ping_primary_interval=10),
        (does(ACCEPTS, "Orders"), fails("ORDERS"), 60, does(FORCES, "orders"), 70, ping(1, entity="oRDERS"),
         does(RELEASES, "orderS"), knows(("Orders", HEALTHY))),
    ),
    # Section 6: "Pumps skip destinations that are failed over or forced in their own engine".
    **{
        f"whether pumps deliver to a destination that is {state}": (
            {}, (does(Told.reach, state), delivers("ORDERS", may=state not in (OVER, FORCED)))
        )
        for state in State
    },
    # Section 6: "in their own engine": of another engine's entities nothing is known.
    "pumps may try a destination nobody here sends to": ({}, (delivers("elsewhere"), knows())),
    # Section 8: "one send try per destination, not per message".
    "pumps skip a destination that failed them": (
        {},
        (lambda pairing: pairing.machine.destinations.failed(
            "orders", at=pairing.at, kind=FailureKind.TIMEOUT, reason="timeout"
         ), delivers("Orders", may=False), at(1), delivers("Orders")),
    ),
    # Section 7.1: "A failed send takes that queue out of the rotation for every sender of the pairing".
    "a failed send takes its queue out for every sender": (
        {}, (fails(queue=1), announces(e.QueuePulled, queue=1, reason="timeout"), holds(0, 2), knows())
    ),
    # Section 7.1: what is out already is not taken out again by the sends that were in flight.
    "a queue is pulled once": ({}, (fails(queue=1), fails(queue=1), nothing)),
    # Section 7.1: "A failed send takes that queue out of the rotation"; section 5: not authenticated, not authorized:
    # no; raised to the caller.
    **{
        f"{kind} pulls a queue and fails no entity over": (
            {"failover_interval": 0}, (ACCEPTS, fails(queue=1, failure=kind), holds(0, 2), fails(failure=kind), HEALTHY)
        )
        for kind in (FailureKind.UNAUTHENTICATED, FailureKind.UNAUTHORIZED)
    },
    # Section 7.1: "size and argument errors never pull a queue"; section 5: "A busy backlog queue is not pulled".
    **{
        f"{kind} pulls no queue": ({}, (fails(queue=1, failure=kind), nothing, holds(0, 1, 2))) for kind in STAYING
    },
    # Section 6: "Only senders, pings and operators move the state": by what the primary answers.
    "a backlog failure says nothing of the entity": ({"failover_interval": 0}, (ACCEPTS, fails(queue=0), HEALTHY)),
    # Section 7.1: "a pulled queue returns after a probe succeeded".
    "a pulled queue returns after a probe succeeded": (
        {"ping_primary_interval": 10},
        (fails(queue=1), due(10), 10, probes(1), probed(1, accepted=True), announces(e.QueueRestored, queue=1),
         holds(0, 1, 2), due(None)),
    ),
    # Section 7.1: the same; and it is probed again.
    "a pulled queue stays out after a probe failed": (
        {"ping_primary_interval": 10},
        (fails(queue=1), 10, probed(1, accepted=False, reason="connection lost"), nothing, holds(0, 2), due(30), 30,
         probes(1)),
    ),
    # Section 4.1: the index is in [0, backlog_queue_count).
    **{
        f"backlog queue {queue} is none of the pairing's": (
            {}, (refuses(f"no backlog queue {queue}", fails(queue=queue)),
                 refuses(f"no backlog queue {queue}", probed(queue, accepted=True)))
        )
        for queue in (3, -1)
    },
    # What only the journal wants is a mistake here.
    "events for others are refused": (
        {},
        (refuses("does not handle EngineStopped",
                 lambda pairing: pairing.step(e.EngineStopped(at=pairing.at, reason="asked to"))),),
    ),
    # A Ticked is wanted at the first of: an interval's end, a ping, a probe.
    "the next deadline is the nearest of all": (
        minute(ping_primary_interval=20),
        (due(None), FAILS, due(60), at(5), does(Told.entity, "audit"), does(FORCES, "audit"), due(25), at(4),
         fails(queue=0), due(24), 60, probes(0), pinged(1, entities=("audit",)), due(80)),
    ),
    # A flapping entity leaves no trail of timers behind: whether it has fallen quiet is one look.
    "deadlines that nobody wants any more are forgotten": (
        minute(), (*[step for second in range(50) for step in (at(second), FAILS, ACCEPTS)], due(QUIET_AFTER))
    ),
}  # fmt: skip


def pauses(pairing: Told) -> None:
    pairing.step(e.SyphonPaused(at=pairing.at, by="anna"))


def resumes(pairing: Told) -> None:
    pairing.step(e.SyphonResumed(at=pairing.at, by="anna"))


def is_paused(paused: bool) -> Step:
    def check(pairing: Told) -> None:
        assert pairing.machine.pauses.all is paused

    return check


BY_HAND: Courses = {
    # Section 6: "forced: failed over by hand"; "Each carries who, when, why".
    **{
        f"force fails over from {state}": (
            {"ping_primary_interval": 30},
            (does(Told.reach, state), FORCES, FORCED, has(diverting=True, by="anna", by_why="a drill"),
             announces(e.StateChanged, by="anna")),
        )
        for state in State if state is not FORCED
    },
    # Section 6: "forced: ... pings go on and are shown, no automatic failback".
    "pings go on while forced and nothing fails back": (
        {"ping_primary_interval": 10},
        (ACCEPTS, FORCES,
         *[step for n in (1, 2, 3) for step in (10 * n, pinged(n), ping(n), announces(e.PingAccepted, number=n))],
         FORCED, has(pings_in_a_row=3), due(40)),
    ),
    # Section 6: it is failed over already; it only stays longer.
    "forcing a failed over entity keeps its episode and its pings": (
        at_once(10),
        (FAILS, 10, at(12), FORCES, has(failovers=1, pings=1, ping_in_flight=True), ping(1, took=2), FORCED, due(20)),
    ),
    # Section 6: "pinned: stays on the primary whatever fails".
    "pinned stays whatever fails": (
        {"failover_interval": 0},
        (ACCEPTS, PINS, FAILS, nothing, FAILS, nothing, PINNED, has(diverting=False, failures_while_pinned=2),
         due(None)),
    ),
    # Section 6: pinned stays on the primary, so no interval runs.
    "pinning a suspect stops its timer": (minute(), (FAILS, PINS, due(None), 60, PINNED)),
    # Section 6: it is on the primary from then on; pings stop.
    "pinning a failed over entity ends its episode": (
        at_once(10), (FAILS, at(7), PINS, has(failbacks=1, seconds_failed_over=7.0, ping_due=None))
    ),
    # Section 6: "`release` clears forced or pinned: to healthy if the last ping was accepted".
    "release of a forced entity whose last ping was accepted": (
        {"ping_primary_interval": 10},
        (ACCEPTS, FORCES, 10, ping(1), RELEASES, changed(("forced", "healthy")), has(by="", by_why=""),
         due(10 + QUIET_AFTER)),
    ),
    # Section 6: "else to failed over with automatic failback".
    "release of a forced entity whose ping is not answered": (
        {"ping_primary_interval": 10},
        (ACCEPTS, FORCES, 10, RELEASES, changed(("forced", "failed over")), has(failovers=1), ping(1), HEALTHY),
    ),
    "release of a forced entity whose last ping was not accepted": (
        {"ping_primary_interval": 10},
        (ACCEPTS, FORCES, 10, no_ping(1), RELEASES, changed(("forced", "failed over")), 20, ping(2), HEALTHY),
    ),
    # Section 6: to healthy; a pinned entity is not pinged, so its sends are what answers.
    "release of a pinned entity that answers": (
        {"failover_interval": 0}, (ACCEPTS, PINS, FAILS, ACCEPTS, RELEASES, changed(("pinned", "healthy")))
    ),
    # Section 6: "else to failed over with automatic failback": a whole episode, first ping in an interval.
    "release of a pinned entity that fails": (
        minute(ping_primary_interval=10),
        (ACCEPTS, PINS, FAILS, at(5), RELEASES, changed(("pinned", "failed over")), due(15)),
    ),
    # Section 6: "on an entity that failed over by itself it fails back now".
    "release of an entity that failed over by itself": (
        {"failover_interval": 0}, (FAILS, RELEASES, changed(("failed over", "healthy")))
    ),
    # Section 6: "Each carries who, when, why"; an old failure is not why it is failed over now.
    "a failure from before a recovery is not told again": (
        minute(), (FAILS, ACCEPTS, FORCES, RELEASES, OVER, says("the primary accepted no send since the release"))
    ),
    # An operator's act that makes no sense now is refused in words; who and why stay as they were.
    **{
        f"{act} while {state} is refused": (
            {},
            (does(Told.reach, state), refuses(rf"^invalid transition for orders: {act[:-1]}.* while {state}$",
                                              does(getattr(Told, act)))),
        )
        for act, states in (("forces", [FORCED]), ("pins", [PINNED]), ("releases", [UNKNOWN, HEALTHY, SUSPECT]))
        for state in states
    },
    # A misspelt name must not make an entity.
    **{
        f"{act} on an entity nobody knows names those that are known": (
            {},
            (refuses("unknown entity 'ordres'; this engine has: none", does(getattr(Told, act), "ordres")), ACCEPTS,
             does(ACCEPTS, "audit"), refuses("this engine has: orders, audit", does(getattr(Told, act), "ordres"))),
        )
        for act in ("forces", "pins", "releases")
    },
    # Section 10: an operator's order, told to everybody who watches; an act that cannot be is refused.
    "the syphon is paused and resumed once": (
        {},
        (refuses("not paused", resumes), pauses, announces(e.SyphonPaused), is_paused(True),
         refuses("paused already", pauses), resumes, announces(e.SyphonResumed), is_paused(False)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILOVER)
def test_an_entity_fails_over_and_back(told, name: str) -> None:
    options, steps = FAILOVER[name]
    told(**options).run(*steps)


@pytest.mark.parametrize("name", APART)
def test_entities_queues_and_deadlines_are_apart(told, name: str) -> None:
    options, steps = APART[name]
    told(**options).run(*steps)


@pytest.mark.parametrize("name", BY_HAND)
def test_a_person_orders(told, name: str) -> None:
    options, steps = BY_HAND[name]
    told(**options).run(*steps)


def test_thousands_that_are_due_at_once_are_seen_to_a_portion_at_a_time(told) -> None:
    """One tick leaves the rest due, so that sends come in between."""
    pairing = told(failover_interval=0, ping_primary_interval=10)
    for number in range(2 * DEADLINES_PER_TICK + 1):
        pairing.fails(f"entity-{number}")
    seen = []
    for _ in range(3):
        pairing.ticks(to=10)
        seen.append(len(pairing.pings()))
    assert seen == [DEADLINES_PER_TICK, DEADLINES_PER_TICK, 1]
    assert pairing.due() is None


def test_a_healthy_send_has_no_effect_at_all(told) -> None:
    """Section 6: 'While healthy, "no behavior changes occur"'."""
    pairing = told()
    pairing.accepts()
    before = pairing.entity()
    pairing.now = 100
    assert pairing.accepts() == []
    assert pairing.entity() is before
