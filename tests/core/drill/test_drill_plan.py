"""A drill's promises are SPEC.md section 3's for the options in force; its bounds and costs follow from them."""

from __future__ import annotations

import pytest
from tests.approval import Approve

from paired_servicebus.core.drill.drill_plan import DrillPlan, EntityKind, Phase
from paired_servicebus.core.model.namespace_info import ServiceTier
from paired_servicebus.core.model.policy import Policy

STANDARD, BASIC = ServiceTier.STANDARD, ServiceTier.BASIC


def plan(policy: Policy | None = None, *, tier: ServiceTier = STANDARD, as_configured: bool = True) -> DrillPlan:
    return DrillPlan.of(policy or Policy(), tier, as_configured=as_configured)


def test_the_promises_are_those_of_the_options() -> None:
    """An outage is detected within send_timeout + failover_interval."""
    own = plan(
        Policy(send_timeout=20, failover_interval=40, ping_timeout=9, ping_primary_interval=11, failback_pings=3)
    )
    assert own.promise(Phase.DETECT) == 60
    assert own.promise(Phase.DIVERT) == 21
    assert own.promise(Phase.RETURN) == 60
    assert own.promise(Phase.DRAIN) is None


@pytest.mark.parametrize(("in_failover", "promise"), [(0.0, 120), (60.0, 60), (99.0, 21), (100.0, 20), (500.0, 20)])
def test_a_cool_down_extends_the_promise_of_the_return(in_failover: float, promise: float) -> None:
    own = plan(Policy(ping_timeout=9, ping_primary_interval=11, cool_down=100.0))
    assert own.return_promise(in_failover) == promise


def test_short_times_are_the_drills_own_and_other_options_the_pairings() -> None:
    configured = Policy(backlog_queue_count=40, ttl_policy="elapsed", failback_pings=5, cool_down=600, throttle_wait=30)
    short = plan(configured, as_configured=False)
    assert (short.policy.backlog_queue_count, short.policy.failback_pings, short.policy.cool_down) == (2, 1, 0)
    assert (short.policy.ttl_policy, short.policy.throttle_wait) == ("elapsed", 30)
    assert short.expected_seconds < 60


@pytest.mark.parametrize("as_configured", [True, False])
def test_a_drill_always_has_a_syphon_of_its_own_that_delivers_to_its_entities(as_configured: bool) -> None:
    configured = Policy(enable_syphon=False, start_degraded=True, destinations=("orders",))
    policy = plan(configured, as_configured=as_configured).policy
    assert (policy.enable_syphon, policy.start_degraded, policy.destinations) == (True, False, None)


def test_basic_has_plain_queues_and_says_so(approve: Approve) -> None:
    assert {part.kind for part in plan(tier=BASIC).parts} == {EntityKind.QUEUE}
    approve.part(plan(tier=BASIC).left_out, "drill")
    assert plan().left_out == plan(tier=ServiceTier.UNKNOWN).left_out == ""


@pytest.mark.parametrize("policy", [Policy(), Policy(failover_interval=3600, cool_down=7200, send_timeout=300)])
@pytest.mark.parametrize("as_configured", [True, False])
def test_every_drill_is_over_before_its_note_says_so(policy: Policy, as_configured: bool) -> None:
    own = plan(policy, as_configured=as_configured)
    promised = (own.promise(Phase.DETECT) or 0) + (own.promise(Phase.DIVERT) or 0) + own.return_promise(0)
    assert own.most_seconds > promised + own.expected_seconds - own.policy.failover_interval - own.policy.cool_down
    assert own.most_seconds < promised + 3600


def test_longer_times_cost_more_and_pings_by_link_are_free() -> None:
    assert plan().expected_operations > plan(as_configured=False).expected_operations > 100
    assert plan(Policy(ping="link")).expected_operations < plan().expected_operations
