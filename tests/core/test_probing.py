"""Probes of entities that nothing is sent to: off unless asked for; they move the state as a send would."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.approval import Approve

from paired_servicebus.core.accounting.billing import probes_a_day
from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.failover.effects import ProbeEntity
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import EntityProbed
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.core.operator.why_line import why

from .conftest import BEGAN, Told

Make = Callable[..., Told]


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
