"""One circuit per destination: when it may be tried again, and when its messages are undeliverable (section 8)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.approval import Approve
from tests.core.retries import next_try

from paired_servicebus.core.failover.send_router import MAX_PROBE_INTERVALS, Rotation
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.core.pump.destination_circuits import (
    FATES,
    MAX_BACKOFF_SECONDS,
    MAX_RUN_GAP_SECONDS,
    MIN_BACKOFF_SECONDS,
    DestinationCircuits,
    Fate,
)

NOW = 1_700_000_000.0
LONG = 900.0


@pytest.fixture
def destinations() -> DestinationCircuits:
    return DestinationCircuits(throttle_wait=10.0, undeliverable_after=LONG)


def fail(
    made: DestinationCircuits, at: float = NOW, kind: FailureKind = FailureKind.TIMEOUT, path: str = "orders"
) -> float:
    """A failure; the seconds until the next try."""
    return made.failed(path, at=at, kind=kind, reason=str(kind)).retry_at - at


def fail_at_every_try(made: DestinationCircuits, kind: FailureKind, tries: int) -> list[float]:
    """The waits after each of so many tries."""
    at, waits = NOW, []
    for _ in range(tries):
        waits.append(fail(made, at, kind))
        at += waits[-1]
    return waits


def go_missing(made: DestinationCircuits, at: float, seconds: float) -> None:
    """Tried, and not found, as often as the back-off says."""
    for after in range(0, int(seconds) + 1, int(MAX_BACKOFF_SECONDS)):
        fail(made, at + after, FailureKind.NOT_FOUND)


Act = Callable[[DestinationCircuits], object]


def fails(after: float = 0.0, kind: FailureKind = FailureKind.TIMEOUT, path: str = "orders") -> Act:
    return lambda made: fail(made, NOW + after, kind, path)


def missing(after: float, seconds: float) -> Act:
    return lambda made: go_missing(made, NOW + after, seconds)


def succeeds(after: float, *, began: float, ends: bool, path: str = "orders") -> Act:
    """A try that began then is accepted; whether that ends the failure."""

    def act(made: DestinationCircuits) -> None:
        assert made.delivered(path, at=NOW + after, sent_at=NOW + began) is ends

    return act


def open_at(after: float, path: str = "orders", *, is_open: bool = True) -> Act:
    """Whether it may be tried then."""

    def act(made: DestinationCircuits) -> None:
        assert made.available(path, NOW + after) is is_open

    return act


def lost_at(after: float, path: str = "orders", *, is_lost: bool = True) -> Act:
    """Whether its messages are undeliverable then."""

    def act(made: DestinationCircuits) -> None:
        assert bool(made.undeliverable(path, NOW + after)) is is_lost

    return act


def next_at(after: float | None) -> Act:
    def act(made: DestinationCircuits) -> None:
        assert next_try(made) == (None if after is None else NOW + after)

    return act


BUSY, FULL, NOT_FOUND = FailureKind.BUSY, FailureKind.FULL, FailureKind.NOT_FOUND

COURSES: dict[str, tuple[Act, ...]] = {
    # Ten pumps may have tried at the same time: that is one failure, not ten.
    "what was tried before the wait is no further try": (fails(), fails(0.1), fails(0.2), next_at(MIN_BACKOFF_SECONDS)),
    "one that never failed may be tried": (open_at(0), next_at(None), lost_at(0, is_lost=False)),
    "after a failure it may be tried again when its back-off has ended": (
        fails(), open_at(0, is_open=False), open_at(MIN_BACKOFF_SECONDS - 0.1, is_open=False),
        open_at(MIN_BACKOFF_SECONDS),
    ),
    "one failed destination does not delay another": (fails(), open_at(0, "payments")),
    "paths compare without case": (
        fails(path="Orders"), open_at(0, "ORDERS", is_open=False), succeeds(60, began=60, ends=True, path="oRDERS"),
        open_at(0),
    ),
    # Section 5: "not attempted again for >= 10 s by anyone". Of two pumps' tries, one was throttled and one not.
    "a success that began before the failure ends no wait": (
        fails(kind=BUSY), succeeds(0.1, began=-0.1, ends=False), open_at(9.9, is_open=False),
        succeeds(10, began=-0.1, ends=False), succeeds(10, began=10, ends=True),
    ),
    # Section 5: "not attempted again for >= 10 s by anyone".
    "another failure does not shorten the wait of a throttled one": (fails(kind=BUSY), fails(0.1, FULL), next_at(10)),
    "a throttled try makes the wait of another failure longer": (fails(kind=FULL), fails(0.5, BUSY), next_at(10.5)),
    "the next try is the nearest": (fails(5), fails(path="payments"), next_at(1)),
    # Section 8: "Not found: retried with back-off for `undeliverable_after`, then the same".
    "not found for long enough is undeliverable": (
        missing(0, LONG), lost_at(LONG - 0.1, is_lost=False), lost_at(LONG, "ORDERS")
    ),
    # Only what was missing all the time is known not to exist.
    "another failure in between starts the wait for a missing one anew": (
        fails(kind=NOT_FOUND), fails(100, FailureKind.CONNECTION), lost_at(LONG, is_lost=False), missing(200, LONG),
        lost_at(LONG + 199, is_lost=False), lost_at(LONG + 200),
    ),
    # Section 8: between tries that are far apart, by a pause, a failover or for want of messages, it may have existed.
    "a long silence starts the wait for a missing one anew": (
        missing(0, LONG - 30), fails(LONG + 3600, NOT_FOUND), lost_at(LONG + 3600, is_lost=False)
    ),
    # Another pump's try may be accepted during the wait.
    "whoever got through in between has shown that it exists": (
        missing(0, LONG - 30), succeeds(LONG - 29, began=LONG - 29, ends=False), fails(LONG, NOT_FOUND),
        lost_at(LONG, is_lost=False),
    ),
    # Section 8: "retried with back-off for `undeliverable_after`": one try long ago is no retrying.
    "time without a try does not make it undeliverable": (fails(kind=NOT_FOUND), lost_at(2 * LONG, is_lost=False)),
}  # fmt: skip


@pytest.mark.parametrize("name", COURSES)
def test_a_destination_is_tried_waited_for_or_lost(destinations: DestinationCircuits, name: str) -> None:
    for act in COURSES[name]:
        act(destinations)


def test_the_back_off_doubles_up_to_a_limit_and_stays_there_for_days(destinations: DestinationCircuits) -> None:
    waits = fail_at_every_try(destinations, FailureKind.TIMEOUT, 3000)
    assert waits[:6] == [1, 2, 4, 8, 16, MAX_BACKOFF_SECONDS]
    assert set(waits[6:]) == {MAX_BACKOFF_SECONDS}


def test_a_busy_destination_is_left_alone_for_ten_seconds_at_least(destinations: DestinationCircuits) -> None:
    """Section 5: "not attempted again for >= 10 s by anyone"."""
    waits = fail_at_every_try(destinations, FailureKind.BUSY, 7)
    assert waits == [10, 10, 10, 10, 16, 30, 30]


def test_a_success_forgets_everything(destinations: DestinationCircuits) -> None:
    assert not destinations.delivered("orders", at=NOW, sent_at=NOW)
    fail_at_every_try(destinations, FailureKind.TIMEOUT, 5)
    later = NOW + 60
    assert destinations.delivered("orders", at=later, sent_at=later)
    assert not destinations.delivered("orders", at=later, sent_at=later)
    assert fail(destinations, later) == MIN_BACKOFF_SECONDS


def test_a_circuit_says_since_when_why_and_how_often(destinations: DestinationCircuits) -> None:
    fail(destinations, NOW)
    fail(destinations, NOW + 1, FailureKind.FULL)
    (circuit,) = destinations.open.values()
    found = (circuit.path, circuit.since, circuit.reason, circuit.failures, circuit.retry_at)
    assert found == ("orders", NOW, "entity full", 2, NOW + 3)


def test_every_failure_has_a_fate_and_only_the_messages_own_fault_ends_it_at_once() -> None:
    """Section 8: "The destination says too large or invalid: the same"; what is its own trouble makes messages wait."""
    assert set(FATES) == set(FailureKind)
    at_once = {kind for kind, fate in FATES.items() if fate is Fate.DEAD_LETTERED}
    a_while = {kind for kind, fate in FATES.items() if fate is Fate.WAITS_A_WHILE}
    assert (at_once, a_while) == (
        {FailureKind.TOO_LARGE, FailureKind.ARGUMENT, FailureKind.IMPOSSIBLE},
        {FailureKind.NOT_FOUND},
    )


def test_a_destination_that_pings_do_not_find_is_undeliverable_while_it_is_failed_over() -> None:
    """While the entity is failed over, its pings are the tries."""
    circuits = DestinationCircuits(throttle_wait=10.0, undeliverable_after=900.0, ping_interval=60.0)
    for at in range(0, 900, 60):
        circuits.pinged("Orders", at=float(at), is_missing=True)
        assert circuits.undeliverable("orders", float(at)) == ""
    circuits.pinged("orders", at=900.0, is_missing=True)
    assert circuits.undeliverable("orders", 930.0) == "orders was not found for 930 s"
    assert circuits.undeliverable("orders", 1100.0) == "", "no ping since"
    circuits.pinged("orders", at=960.0, is_missing=False)
    assert circuits.undeliverable("orders", 961.0) == ""
    circuits.pinged("orders", at=1000.0, is_missing=True)
    circuits.pinged("orders", at=5000.0, is_missing=True)
    assert circuits.undeliverable("orders", 5000.0) == "", "it may have existed in between"


# -- The circuits under any sequence of tries: several pumps try one destination, at once or overlapping.


BEGAN = 1_700_000_000.0
THROTTLE = 10.0
UNDELIVERABLE = 60.0
KINDS = [kind for kind, fate in FATES.items() if fate is not Fate.DEAD_LETTERED]


class AnyTries(RuleBasedStateMachine):
    """A try begins only where `available` says so, and ends whenever it likes."""

    @initialize()
    def begin(self) -> None:
        self.made = DestinationCircuits(throttle_wait=THROTTLE, undeliverable_after=UNDELIVERABLE)
        self.now = BEGAN
        self.under_way: list[float] = []
        """When each try began."""
        self.busy_until = 0.0
        self.missing: list[float] = []
        """The latest run of "not found": when each was heard."""

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 3.0, 9.5, 30.0, 31.0, 61.0, 900.0]))
    def passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.made.available("orders", self.now))
    @rule()
    def tries(self) -> None:
        assert self.now >= self.busy_until, "section 5: not attempted again for ten seconds by anyone"
        self.under_way.append(self.now)

    @precondition(lambda self: self.under_way)
    @rule(kind=st.sampled_from(KINDS))
    def fails(self, kind: FailureKind) -> None:
        self.under_way.pop(0)
        before = next_try(self.made)
        circuit = self.made.failed("ORDERS", at=self.now, kind=kind, reason=str(kind))
        assert before is None or circuit.retry_at >= before, "no wait is ever shortened"
        if kind is FailureKind.BUSY:
            self.busy_until = self.now + THROTTLE
        if kind is not FailureKind.NOT_FOUND:
            self.missing = []
        elif self.missing and self.now - self.missing[-1] <= MAX_RUN_GAP_SECONDS:
            self.missing.append(self.now)
        else:
            self.missing = [self.now]

    @precondition(lambda self: self.under_way)
    @rule()
    def is_accepted(self) -> None:
        began, self.missing = self.under_way.pop(0), []
        circuit = self.made.open.get("orders")
        if self.made.delivered("orders", at=self.now, sent_at=began):
            assert circuit is not None
            assert began > circuit.failed_at, "an earlier try proves nothing"
            assert self.now >= self.busy_until
            assert "orders" not in self.made.open

    @invariant()
    def every_wait_ends(self) -> None:
        due = next_try(self.made)
        assert due is None or due <= self.now + max(MAX_BACKOFF_SECONDS, THROTTLE)

    @invariant()
    def undeliverable_is_only_what_was_missing_try_after_try(self) -> None:
        """Section 8: "Not found: retried with back-off for `undeliverable_after`"."""
        if self.made.undeliverable("orders", self.now):
            assert self.missing
            assert self.missing[-1] - self.missing[0] >= UNDELIVERABLE


TestAnyTries = AnyTries.TestCase
TestAnyTries.settings = settings(stateful_step_count=40)


# -- The rotation: who is in, who is out, and when one that is out is tried again (SPEC.md section 7.1).


DRAW = st.floats(0, 1, exclude_max=True)


def rotation(count: int = 4, *, out: tuple[int, ...] = ()) -> Rotation:
    made = Rotation(range(count), probe_interval=10)
    for index in out:
        made.pull(index, at=NOW, reason="timeout")
    return made


def test_queues_are_named_by_their_indices_which_may_have_gaps() -> None:
    """Section 4.3: "its real indices, not their number: creation may leave gaps"."""
    made = Rotation((3, 0, 2), probe_interval=10)
    assert made.indices == (0, 2, 3)
    assert [made.pick(draw) for draw in (0.0, 0.5, 0.9)] == [0, 2, 3]
    assert [made.holds(index) for index in range(5)] == [True, False, True, True, False]
    assert made.pull(3, at=NOW, reason="timeout")
    assert made.probes_due(NOW + 10) == [3]
    assert made.probed(3, at=NOW + 11, accepted=True)


def distances(made: Rotation, count: int) -> list[float]:
    """How far apart the probes of queue 0 are while each of them fails."""
    found, last = [], NOW
    for _ in range(count):
        due = made.next_probe()
        assert due is not None
        assert made.probes_due(due) == [0]
        made.probed(0, at=due, accepted=False)
        found.append(due - last)
        last = due
    return found


def test_all_queues_are_in_at_first() -> None:
    made = rotation(3)
    assert [made.holds(index) for index in (-1, 0, 1, 2, 3)] == [False, True, True, True, False]
    assert (made.next_probe(), made.probes_due(NOW)) == (None, [])


@given(draws=st.lists(DRAW, min_size=1))
def test_every_draw_picks_a_queue_that_is_in_and_not_avoided(draws: list[float]) -> None:
    made = rotation(5, out=(1, 4))
    assert {made.pick(draw, avoid=[2]) for draw in draws} <= {0, 3}


@given(count=st.integers(1, 20), data=st.data())
def test_draws_are_spread_evenly(count: int, data: st.DataObject) -> None:
    """ "Many clients that don't know each other balance so": equal parts of [0, 1) for each queue that is in."""
    out = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    made = rotation(count, out=tuple(out))
    left = [index for index in range(count) if index not in out]
    assert [made.pick((place + 0.5) / len(left)) for place in range(len(left))] == left


@pytest.mark.parametrize(("out", "avoid"), [((0, 1), ()), ((), (0, 1)), ((0,), (1,))])
def test_none_is_picked_where_none_is_left(out: tuple[int, ...], avoid: tuple[int, ...]) -> None:
    assert rotation(2, out=out).pick(0.5, avoid=avoid) is None


def test_a_pulled_queue_says_since_when_and_why() -> None:
    made = rotation()
    assert made.pull(2, at=NOW, reason="timeout")
    place = made.places[2]
    assert (place.pulled, place.since, place.reason) == (True, NOW, "timeout")


def test_a_queue_that_is_out_already_is_left_as_it_is() -> None:
    made = rotation(out=(2,))
    assert not made.pull(2, at=NOW + 5, reason="connection lost")
    assert (made.places[2].since, made.places[2].reason, made.next_probe()) == (NOW, "timeout", NOW + 10)


def test_a_probe_is_handed_out_once_until_its_outcome_is_known() -> None:
    made = rotation(out=(0,))
    assert made.probes_due(NOW + 9.9) == []
    assert made.probes_due(NOW + 10) == [0]
    assert (made.probes_due(NOW + 99), made.next_probe()) == ([], None)


def test_probes_of_a_queue_that_keeps_failing_grow_apart_up_to_a_limit() -> None:
    found = distances(rotation(1, out=(0,)), 3000)  # eight hours at a probe every eight seconds, and longer
    assert found[:4] == [10, 20, 40, 80]
    assert set(found[3:]) == {MAX_PROBE_INTERVALS * 10}


def test_an_accepted_probe_brings_the_queue_back() -> None:
    made = rotation(out=(0,))
    made.probes_due(NOW + 10)
    assert made.probed(0, at=NOW + 11, accepted=True)
    place = made.places[0]
    assert (place.pulled, place.reason, place.probe_due, made.holds(0)) == (False, "", None, True)


def test_a_failed_probe_tells_its_own_reason(approve: Approve) -> None:
    made = rotation(out=(0, 1))
    assert not made.probed(0, at=NOW + 10, accepted=False, reason="entity not found")
    assert not made.probed(1, at=NOW + 10, accepted=False)
    approve.part([place.reason for place in made.places[:2]], "rules")


def test_a_probe_of_a_queue_that_is_in_brings_nothing_back() -> None:
    assert not rotation().probed(0, at=NOW, accepted=True)


@pytest.mark.parametrize(("lasted", "distance"), [(79, 20), (80, 10)])
def test_a_return_that_did_not_last_makes_probes_rarer(lasted: float, distance: float) -> None:
    made = rotation(1, out=(0,))
    made.probes_due(NOW + 10)
    made.probed(0, at=NOW + 10, accepted=True)
    made.pull(0, at=NOW + 10 + lasted, reason="timeout")
    assert made.next_probe() == NOW + 10 + lasted + distance


def test_the_next_probe_is_the_nearest() -> None:
    made = rotation()
    made.pull(3, at=NOW + 2, reason="timeout")
    made.pull(1, at=NOW, reason="timeout")
    assert (made.next_probe(), made.probes_due(NOW + 12)) == (NOW + 10, [1, 3])
