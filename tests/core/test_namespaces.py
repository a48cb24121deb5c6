"""What a namespace tells about itself, and the sentences that follow from it."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.approval import Approve

from paired_servicebus.core.accounting.billing import PARKED_MESSAGE_OPERATIONS, idle_receives
from paired_servicebus.core.model.namespace_info import UNKNOWN_NAMESPACE, NamespaceInfo, ServiceTier, remarks
from paired_servicebus.core.model.snapshot import Meter


def namespace(name: str = "one", **more: object) -> NamespaceInfo:
    told = {"tier": ServiceTier.STANDARD, "region": "westeurope", "status": "Active"} | more
    return NamespaceInfo(name=name, **told)  # type: ignore[arg-type]


ELSEWHERE = namespace("other", region="northeurope")


@pytest.mark.parametrize(
    ("name", "tier"), [("standard", ServiceTier.STANDARD), ("Premium", ServiceTier.PREMIUM), ("Gold", "")]
)
def test_tiers_are_found_by_name(name: str, tier: str) -> None:
    assert ServiceTier.called(name) == tier
    assert ServiceTier.called(None) is ServiceTier.UNKNOWN


def test_two_healthy_namespaces_in_different_regions_need_no_remark() -> None:
    assert remarks(namespace(), ELSEWHERE) == ()


def test_nothing_is_said_of_what_is_not_known() -> None:
    assert remarks(UNKNOWN_NAMESPACE, UNKNOWN_NAMESPACE) == ()
    assert remarks(namespace(tier=ServiceTier.PREMIUM), UNKNOWN_NAMESPACE) == ()


@pytest.mark.parametrize("region", ["westeurope", "West Europe"])
def test_the_same_region_is_a_warning(region: str) -> None:
    """Preferably in different data centres (a warning when ARM shows the same region)."""
    (said,) = remarks(namespace(), namespace("other", region=region))
    assert said.startswith(f"both namespaces are in {region}: ")
    assert "another region" in said


@pytest.mark.parametrize(
    ("primary", "secondary", "said"),
    [
        (namespace(status="Disabled"), ELSEWHERE, "the primary namespace one is Disabled, not Active"),
        (namespace(), namespace("other", region="x", status="Removing"), "the secondary namespace other is Removing"),
    ],
)
def test_a_namespace_that_is_not_active_is_a_warning(
    primary: NamespaceInfo, secondary: NamespaceInfo, said: str
) -> None:
    (text,) = remarks(primary, secondary)
    assert text.startswith(said)


def test_a_smaller_tier_behind_a_larger_one_says_what_would_not_survive(approve: Approve) -> None:
    """Those that "would not survive failover" … Limits by tier: 256 KB Standard, more on Premium."""
    (said,) = remarks(namespace(tier=ServiceTier.PREMIUM), ELSEWHERE)
    approve.part(said, "rules", has=("256 KB",))
    assert remarks(namespace(), namespace("other", region="x", tier=ServiceTier.PREMIUM)) == ()


def test_the_basic_tier_keeps_messages_for_two_weeks_and_has_no_topics() -> None:
    basic = namespace("other", region="x", tier=ServiceTier.BASIC)
    assert any("14 days" in said for said in remarks(namespace(), basic))
    assert not basic.has_topics
    assert namespace().has_topics


@pytest.mark.parametrize(
    ("tier", "limit"),
    [
        (ServiceTier.BASIC, 262_144),
        (ServiceTier.STANDARD, 262_144),
        (ServiceTier.PREMIUM, 1_048_576),
        (ServiceTier.UNKNOWN, 262_144),
    ],
)
def test_limits_by_tier(tier: ServiceTier, limit: int) -> None:
    assert NamespaceInfo(tier=tier).message_limit == limit


# -- What the pairing adds to the bill (SPEC.md section 8, cost).


HOUR = 3600.0
PARTS = ("waits", "searches", "attaches")
"""Of the receives."""
NAMES = [field.name for field in fields(Meter) if not field.name.endswith("_bytes") and field.name not in PARTS]


def test_a_parked_message_costs_four_operations() -> None:
    """Section 8: "send to and receive from backlog, send to and receive from primary"."""
    assert PARKED_MESSAGE_OPERATIONS == 4


@pytest.mark.parametrize(("hours", "calls"), [(1, 40), (24, 960), (30 * 24, 28_800)])
def test_an_idle_syphon_on_ten_queues(hours: int, calls: int) -> None:
    """Section 8: "40 receive calls an hour, 960 a day, 28,800 in 30 days"."""
    assert idle_receives(backlog_queues=10, window=15 * 60, engines=1, seconds=hours * HOUR) == calls


def test_every_engine_that_syphons_costs_the_same_again() -> None:
    """Section 8: "times the engines that syphon"."""
    assert idle_receives(backlog_queues=10, window=15 * 60, engines=3, seconds=HOUR) == 120


@given(counts=st.fixed_dictionaries(dict.fromkeys(NAMES, st.integers(0, 10**9))))
def test_the_total_is_the_sum_of_all_causes(counts: dict[str, int]) -> None:
    assert Meter().total == 0
    assert Meter(**counts).total == sum(counts.values())
