"""A drill on a sandbox: balanced, within the promises, and gone afterwards; or refused with a sentence."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from paired_servicebus.core.drill import drill_plan
from paired_servicebus.core.drill.drill_plan import DrillMeasures, DrillPlan, DrillRole, broken_promises
from paired_servicebus.core.errors import DrillError
from paired_servicebus.core.model.namespace_info import ServiceTier
from paired_servicebus.drill.drill_command import look_around
from paired_servicebus.engine.clients import client_factory
from servicebus_sandbox import Tier
from servicebus_sandbox.access.token_credentials import AsyncSandboxCredential
from servicebus_sandbox.broker.broker_errors import QuotaExceeded
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace
from servicebus_sandbox.faults import FaultKind, FaultTerms, Operation

from .conftest import WORKER_KEY, Lab, laboratory

WORKER = ("worker", WORKER_KEY)


def broken(lab: Lab, found: DrillMeasures, tier: ServiceTier = ServiceTier.STANDARD) -> tuple[str, ...]:
    return broken_promises(DrillPlan.of(lab.config().policy, tier, as_configured=True), found)


def assert_whole(lab: Lab, found: DrillMeasures, tier: ServiceTier = ServiceTier.STANDARD) -> None:
    """Balanced and within the promises; two entities failed over and back once; nothing is left."""
    assert broken(lab, found, tier) == ()
    assert found.ledger.verdict == "balanced"
    assert found.ledger.accepted == found.ledger.delivered >= 30
    assert found.diverted >= 6
    assert [one.failovers for one in found.parts] == [1, 1, 0]
    assert all(one.pings_refused and one.pings_accepted == 1 for one in found.parts if one.part.fails)
    assert (lab.entities(), lab.records) == ([], [])


@pytest.mark.real_time
async def test_a_drill_is_balanced_keeps_the_promises_and_leaves_nothing(lab: Lab) -> None:
    found = await lab.drill()
    assert_whole(lab, found)
    estimated = DrillPlan.of(lab.config().policy, ServiceTier.STANDARD, as_configured=True).expected_operations
    assert 0.6 * estimated < found.operations < 1.6 * estimated


@pytest.mark.slow
async def test_basic_is_drilled_with_plain_queues(tmp_path: Path) -> None:
    async with laboratory(tmp_path, Tier.BASIC) as lab:
        around = await look_around(lab.config(), lab.places)
        assert around.tier is ServiceTier.BASIC
        assert_whole(lab, await lab.drill(tier=around.tier), around.tier)


@pytest.mark.slow
async def test_resource_manager_and_identities_do_as_well(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        client_factory, "_make", lambda _: AsyncSandboxCredential(lab.sandbox.control_url, "Data Owner")
    )
    config = lab.config()
    by_role = {"management": "arm", "subscription": "s", "resource_group": "g", "arm_url": lab.sandbox.arm_url}
    sides = {
        side: replace(namespace, name=name, **by_role)
        for side, namespace, name in (
            ("primary", config.primary, "contoso-north"),
            ("secondary", config.secondary, "contoso-south"),
        )
    }
    config = replace(config, **sides)
    assert (await look_around(config, lab.places)).tier is ServiceTier.STANDARD
    assert_whole(lab, await lab.drill(config))


@pytest.mark.slow
async def test_a_primary_that_does_not_heal_breaks_its_promise_and_its_messages_are_parked(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drill_plan, "PATIENCE", 2.0)
    monkeypatch.setattr(drill_plan, "MAX_DRAIN_SECONDS", 2.0)
    running = asyncio.create_task(lab.drill())
    while not any("accepts sends again" in line for line in lab.lines):
        assert not running.done(), lab.lines
        if any("disabled is set to SendDisabled" in line for line in lab.lines) and "broken" not in lab.lines:
            (path,) = (path for path in lab.entities() if path.endswith(f"/{DrillRole.DISABLED}"))
            lab.sandbox["contoso-north"].node.faults.add(FaultKind.DISABLED, entity=path)
            lab.lines.append("broken")
        await asyncio.sleep(0.05)
    found = await running
    said = broken(lab, found)
    assert "disabled did not fail back" in said
    assert any(text.endswith("still parked") for text in said)
    assert found.ledger.lost == 0
    assert lab.entities() == []


@pytest.mark.parametrize("side", ["", "primary", "secondary"])
async def test_without_manage_it_is_refused_before_anything_is_made(lab: Lab, side: str) -> None:
    with pytest.raises(DrillError, match=f"credential of the {side or 'primary'} namespace lacks Manage") as raised:
        await look_around(lab.config(rule=WORKER, only=side), lab.places)
    assert "paired check" in str(raised.value)
    assert lab.entities() == []


@pytest.mark.parametrize(("side", "allowed"), [("primary", 0), ("primary", 1), ("secondary", 0), ("secondary", 1)])
async def test_a_full_namespace_is_a_sentence_and_what_was_made_is_deleted(
    lab: Lab, side: str, allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The namespace has room for `allowed` more queues."""
    make, made = BrokerNamespace.create_queue, []

    def create(space: BrokerNamespace, path: str, *given: object, **more: object) -> object:
        if space is lab.space(side):
            made.append(path)
            if len(made) > allowed:
                raise QuotaExceeded(path, 1)
        return make(space, path, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(BrokerNamespace, "create_queue", create)
    with pytest.raises(DrillError, match="40300") as raised:
        await lab.drill()
    assert f"the {side} namespace" in str(raised.value)
    assert (lab.entities(), lab.records) == ([], [])


async def test_a_namespace_that_does_not_answer_is_a_sentence(lab: Lab) -> None:
    config = lab.config()
    gone = replace(config, secondary=replace(config.secondary, host="127.0.0.1:1"))
    with pytest.raises(DrillError, match="does not answer its management"):
        await look_around(gone, lab.places)


async def test_messages_that_never_arrive_end_it_before_the_outage(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drill_plan, "MAX_WARM_UP_SECONDS", 1.0)
    lab.sandbox["contoso-north"].node.faults.add(
        FaultKind.UNAUTHORIZED, terms=FaultTerms(operations=frozenset({Operation.RECEIVE}))
    )
    with pytest.raises(DrillError, match=r"no message of .* arrived within 1 s, before any outage"):
        await lab.drill()
    assert (lab.entities(), lab.records) == ([], [])


async def test_an_interrupted_drill_leaves_nothing_however_often_it_is_interrupted(lab: Lab) -> None:
    running = asyncio.create_task(lab.drill())
    while not any("is deleted" in line for line in lab.lines):
        assert not running.done(), lab.lines
        await asyncio.sleep(0.02)
    running.cancel()
    while not running.done():
        await asyncio.sleep(0.1)
        running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (lab.entities(), lab.records) == ([], [])
