"""What would change the state next, and when."""

from __future__ import annotations

from typing import Any

import pytest
from tests.approval import Approve

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import EntityView
from paired_servicebus.core.operator.state_outlook import outlook, percentile, pings

NOON = 1_777_636_800.0  # 2026-05-01 12:00:00 UTC


def ways(state: State, policy: Policy | None = None, **more: Any) -> list[tuple[State, str]]:
    given: dict[str, Any] = {"path": "orders", "state": state, "since": NOON, "why": "", "route": "primary"}
    counts: dict[str, Any] = {"sends_per_second": 0.0, "accepted": 0, "diverted": 0, "failed": 0}
    return [tuple(change) for change in outlook(EntityView(**given, **counts, **more), policy, NOON)]


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_way_out(state: State) -> None:
    assert ways(state)


def test_suspect_says_when_it_fails_over() -> None:
    """Section 6: "suspect -> (timer ends with no successful send; silence counts) failed over"."""
    first, second = ways(State.SUSPECT, fails_over_at=NOON + 60)
    assert first == (State.FAILED_OVER, "in 1m00s, unless a send succeeds before; silence counts as failure")
    assert second[0] is State.HEALTHY


def test_with_no_interval_the_first_failure_fails_over(approve: Approve) -> None:
    """Section 3: "0 = fail over on the first failure that counts"."""
    assert ways(State.HEALTHY, Policy(failover_interval=0))[0][0] is State.FAILED_OVER
    approve.part(ways(State.HEALTHY, Policy())[0][1], "rules", has=("60 s",))


def test_failed_over_counts_the_pings_that_are_missing_and_names_the_cool_down(approve: Approve) -> None:
    """Section 6: "(`failback_pings` pings accepted in a row, and at least `cool_down` in this state) healthy"."""
    policy = Policy(failback_pings=3, cool_down=300)
    said = ways(State.FAILED_OVER, policy, pings_in_a_row=1, next_ping_at=NOON + 120)[0][1]
    approve.part(said, "rules", has=("2 more", "2m00s", "5m00s"))


def test_a_deleted_entity_has_an_end_besides_a_failback() -> None:
    """Section 6: "nothing was sent to it for 15 min) unknown: it is deleted, and nobody's outage"."""
    deleted = ways(State.FAILED_OVER, Policy(), missing_since=NOON)
    (end,) = (when for to, when in deleted if to is State.UNKNOWN)
    assert "15 min after its last send" in end
    assert not [to for to, _ in ways(State.FAILED_OVER, Policy()) if to is State.UNKNOWN]


@pytest.mark.parametrize(("good", "to"), [(True, State.HEALTHY), (False, State.FAILED_OVER), (None, State.FAILED_OVER)])
def test_forced_ends_by_a_person_alone(good: bool | None, to: State) -> None:
    """Section 6: "`release` clears forced or pinned: to healthy if the last ping was accepted, else to failed over"."""
    where, said = ways(State.FORCED, last_ping_good=good)[0]
    assert where is to
    assert said.startswith("only when released")


def test_percentiles_are_of_accepted_pings_by_nearest_rank() -> None:
    assert pings([0.3, None, 0.1, 0.2]) == (4, 3, 0.2, 0.3)
    assert pings([None]) == (1, 0, None, None)
    assert pings([]) == (0, 0, None, None)
    assert percentile([float(number) for number in range(1, 101)], 0.95) == 95.0
