"""SPEC.md section 6: "An entity with neither traffic nor probe is shown as **unknown**, not as healthy"."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.approval import Approve

from paired_servicebus.core.accounting.billing import probes_a_day
from paired_servicebus.core.failover.inactivity import QUIET_AFTER, InactivityTimer
from paired_servicebus.core.failover.pairing_machine import ProbeEntity
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import EntityProbed, SendsCounted, StateChanged, SyphonPaused
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.core.operator.why_line import why

from .conftest import BEGAN, Step, Told, at, changed, does, due, has, nothing, refuses

Make = Callable[..., Told]


def counted(pairing: Told, *, route: str = "primary", accepted: int = 5) -> None:
    event = SendsCounted(at=pairing.at, entity="orders", route=route, accepted=accepted, failed=0, seconds=1.0)
    pairing.step(event)


@pytest.fixture
def healthy(told: Make) -> Told:
    pairing = told(ping_primary_interval=60)
    pairing.accepts()
    assert pairing.state() is State.HEALTHY
    return pairing


HEALTHY, UNKNOWN, SUSPECT, OVER = State.HEALTHY, State.UNKNOWN, State.SUSPECT, State.FAILED_OVER
ACCEPTS, COUNTS, PINS, RELEASES = Told.accepts, counted, Told.pins, Told.releases

QUIET: dict[str, tuple[Step, ...]] = {
    # Section 6: an entity with neither traffic nor probe is shown as unknown, after 15 minutes and no sooner.
    "a healthy entity falls quiet after 15 minutes and no sooner": (
        899.9, HEALTHY, due(900), 900, changed(("healthy", "unknown")), has(primary_good=None), due(None)
    ),
    # No event a send: that there was one since the last count is enough.
    "one count a second keeps it healthy and moves no timer": (
        at(600), COUNTS, nothing, due(900), 900, HEALTHY, due(1500), 1500, UNKNOWN
    ),
    "sends to the backlog say nothing of the primary": (
        at(600), does(counted, route="backlog/0"), does(Told.accepts, queue=0), 900, UNKNOWN
    ),
    "a success makes it healthy again": (
        900, at(5000), ACCEPTS, changed(("unknown", "healthy")), has(quiet_since=None), due(5900)
    ),
    "a counted success makes it healthy again": (
        900, at(5000), COUNTS, changed(("unknown", "healthy")), has(quiet_since=None), due(5900)
    ),
    # Nothing of an earlier episode is told again.
    "a failure makes it suspect with its own reason": (
        does(Told.fails, reason="connection lost"), ACCEPTS, 900, has(first_failure="", first_failure_at=None),
        does(Told.fails, reason="timeout"), changed(("unknown", "suspect")),
        has(first_failure="timeout", first_failure_at=BEGAN + 900),
    ),
    # Section 6: "to healthy if the last ping was accepted".
    "a ping is evidence for 15 minutes and not for ever": (
        Told.forces, 60, does(Told.ping_accepted, 1), at(70), RELEASES, HEALTHY, 960, UNKNOWN
    ),
    "pin then release is unknown where nobody asked for long": (
        PINS, at(899), RELEASES, HEALTHY, PINS, at(900), RELEASES, changed(("pinned", "unknown"))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUIET)
def test_an_entity_falls_quiet_and_wakes(healthy: Told, name: str) -> None:
    assert QUIET_AFTER == 15 * 60
    healthy.run(*QUIET[name])


def test_pin_then_release_is_unknown_where_nobody_asked(told: Make) -> None:
    told().run(Told.entity, PINS, RELEASES, changed(("pinned", "unknown")))


def test_the_why_line_says_since_when_nothing_was_sent(healthy: Told, approve: Approve) -> None:
    healthy.ticks(to=1000)
    approve.part(why(healthy.entity()), "rules", has=("22:13:20",))


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
    """Section 6: "to unknown if the entity was never tried and no ping was answered"."""
    pairing = told()
    pairing.reach(State.FORCED)
    pairing.releases()
    assert pairing.changes() == [("forced", "unknown")]
    assert (pairing.entity().diverting, pairing.due()) == (False, None)
    approve.part(why(pairing.entity()), "rules")


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


def probes(*entities: str) -> Step:
    """The latest event made these entities be probed."""

    def check(pairing: Told) -> None:
        assert asked(pairing) == list(entities)

    return check


def no_answer(kind: FailureKind = FailureKind.TIMEOUT) -> Step:
    return does(answers, kind)


PROBED: dict[str, tuple[Step, ...]] = {
    # Only senders, pings and operators move the state.
    "an accepted probe makes it healthy and the next comes an interval later": (
        0.2, does(answers, took=0.2), HEALTHY, due(60.0), 59.9, probes(), 60.0, probes("orders")
    ),
    "one probe is under way at a time": (300.0, probes()),
    "traffic makes a probe needless for an interval": (
        answers, 50.0, ACCEPTS, 60.0, probes(), 110.0, probes("orders")
    ),
    # Suspect: timer ends with no successful send; silence counts.
    "a failed probe is a failure that counts and silence then fails over": (no_answer(), SUSPECT, 60.0, OVER),
    "one lost probe fails nothing over another comes in time": (
        no_answer(), 30.0, probes("orders"), answers, HEALTHY, 60.0, HEALTHY
    ),
    "while it diverts pings do the work": (
        no_answer(), 30.0, no_answer(), *[step for now in range(31, 500, 10) for step in (float(now), probes())], OVER
    ),
    "after the failback it is probed again": (
        Told.forces, answers, State.FORCED, RELEASES, RELEASES, HEALTHY, 200.0, probes("orders")
    ),
    "asking twice probes once": (
        lambda pairing: pairing.machine.probe("ORDERS", at=pairing.at), 10.0, probes()
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROBED)
def test_a_probe_moves_the_state_as_a_send_would(probed: Told, name: str) -> None:
    probed.run(*PROBED[name])


def test_a_throttled_probe_moves_nothing_and_leaves_the_namespace_alone(told: Make) -> None:
    """That message is not attempted again for >= 10 s by anyone; a throttled ping is not an accepted one."""
    pairing = told(ping_primary_interval=1.0, throttle_wait=10.0)
    pairing.machine.probe("orders", at=pairing.at)
    pairing.run(0.0, no_answer(FailureKind.BUSY), UNKNOWN, 9.9, probes(), 10.0, probes("orders"))


def test_a_probe_without_the_right_moves_nothing_and_says_so(probed: Told) -> None:
    probed.run(no_answer(FailureKind.UNAUTHORIZED), UNKNOWN)
    assert str(FailureKind.UNAUTHORIZED) in why(probed.entity())


def test_nothing_is_probed_by_default(told: Make, approve: Approve) -> None:
    """An entity with neither traffic nor probe is shown as unknown, not as healthy."""
    pairing = told()
    pairing.machine.entity("orders", at=pairing.at)
    pairing.ticks(to=1000.0)
    assert asked(pairing) == []
    assert pairing.state() is State.UNKNOWN
    assert pairing.machine.next_deadline is None
    approve.part(why(pairing.entity()), "rules")


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


def test_an_answer_for_an_entity_that_is_not_probed_is_refused(told: Make) -> None:
    not_probed = refuses("^orders is not probed$", answers)
    told().run(ACCEPTS, not_probed, refuses("unknown entity", does(answers, entity="nobody")))
