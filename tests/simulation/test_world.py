"""The rules as shipped, under what seeds draw: no rule of SPEC.md is broken, whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from paired_servicebus.core.accounting.ledger import SendOutcome
from paired_servicebus.core.model.entity_state import TABLE, State
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.simulation.run_plan import (
    Crash,
    EntityPlan,
    InjectedCondition,
    InjectedFault,
    OperatorAct,
    PlannedCall,
    QueuePlan,
)
from tests.simulation.campaign import Totals, run_seeds
from tests.simulation.campaign_plan import CampaignPlan
from tests.simulation.checked_world import CheckedWorld, run_seed
from tests.simulation.pairing_campaign import PAIRING

CHUNKS = [
    pytest.param(range(start, start + 15), id=f"{start}-{start + 14}", marks=() if start < 30 else pytest.mark.slow)
    for start in range(1, 61, 15)
]


@pytest.mark.parametrize("seeds", CHUNKS)
def test_no_seed_breaks_a_rule(seeds: range) -> None:
    """Section 11: "accepted = delivered ∪ parked ∪ dead-lettered ∪ expired by its own TTL ∪ lost, each id once"."""
    totals = run_seeds(PAIRING, seeds)
    counts = totals.counts
    assert totals.failing == []
    assert (counts["lost"], counts["unexpected"], counts["stuck"]) == (0, 0, 0)
    assert counts["events"] >= 2000 * totals.seeds
    assert counts["duplicates"], "the three windows were never open: the seeds are too kind"


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(5105, id="a throttled ping rests its time across a release and a force"),
        pytest.param(13962, id="an entity that hidden messages fill has not healed"),
        pytest.param(762, id="a timer of an earlier boot wakes nobody"),
    ],
)
def test_what_a_seed_once_found_stays_found(seed: int) -> None:
    assert run_seed(seed).broken == ()


@pytest.mark.slow
def test_the_seeds_reach_most_lines_of_the_table() -> None:
    """All of them take some hundred seeds, which the command runs."""
    totals = run_seeds(PAIRING, range(1, 41))
    assert len(totals.seen) >= len(TABLE) - 4


def test_a_seed_replays_exactly() -> None:
    assert run_seed(7, traced=True) == run_seed(7, traced=True)


RUN = "from tests.simulation.checked_world import run_seed; r = run_seed(7); print(r.events, r.ledger)"
FLEET_RUN = "from tests.simulation.fleet.fleet_world import run_fleet_seed as run; print(run(3, traced=True))"


@pytest.mark.parametrize("program", [RUN, pytest.param(FLEET_RUN, marks=pytest.mark.slow)], ids=["pairing", "fleet"])
def test_a_seed_is_the_same_in_another_process_whatever_its_hashes(program: str) -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


def test_totals_add_up() -> None:
    apart = run_seeds(PAIRING, [1])
    apart.add(run_seeds(PAIRING, [2]))
    together = run_seeds(PAIRING, [1, 2])
    together.seconds = apart.seconds
    assert apart == together
    assert Totals().seeds == 0


# -- plans by hand: that the World does what faults are named for ------------------------------------------------------


def plan(*, calls: int = 10, faults: tuple[InjectedFault, ...] = (), **more: object) -> CampaignPlan:
    """One call a second to one entity, one engine that moves messages."""
    made = {
        "policy": Policy(failover_interval=2.0, ping_primary_interval=5.0, ping_timeout=2.0, send_timeout=2.0),
        "entities": (EntityPlan(path="orders"),),
        "queues": (QueuePlan(), QueuePlan()),
        "syphons": (True,),
        "calls": tuple(PlannedCall(1.0 + at, 0, 0, "orders", 1) for at in range(calls)),
        "faults": faults,
        "heals_at": 60.0,
        "ends_at": 2000.0,
    }
    return CampaignPlan(**{**made, **more})  # type: ignore[arg-type]


def run(made: CampaignPlan) -> CheckedWorld:
    """The World after a run that broke no rule."""
    world = CheckedWorld(made, 1)
    result = world.run()
    assert result.broken == ()
    return world


def answers(world: CheckedWorld) -> dict[SendOutcome, int]:
    found = list(world.watch.answers.values())
    return {answer: found.count(answer) for answer in SendOutcome if answer in found}


def failovers(world: CheckedWorld) -> int:
    (entity,) = world.engines[0].machine.entities()
    return entity.failovers


def test_a_healthy_system_behaves_as_if_nobody_were_there() -> None:
    world = run(plan())
    assert (answers(world), failovers(world)) == ({SendOutcome.ACCEPTED: 10}, 0)


def test_a_refusing_primary_fails_over_and_everything_parked_comes_home() -> None:
    world = run(plan(calls=30, faults=(InjectedFault(5.0, 40.0, ("orders",), InjectedCondition.REFUSED),)))
    (entity,) = world.engines[0].machine.entities()
    assert (entity.failovers, entity.failbacks) == (1, 1)
    assert answers(world)[SendOutcome.ACCEPTED] > 25


def test_what_lands_unheard_is_delivered_though_in_doubt() -> None:
    """Section 11: "An id in doubt that was delivered is *recovered*"."""
    ledger = (
        CheckedWorld(plan(faults=(InjectedFault(3.5, 5.5, ("orders",), InjectedCondition.ACK_LOST),)), 1).run().ledger
    )
    assert ledger.in_doubt == ledger.recovered > 0


def test_throttling_fails_nothing_over() -> None:
    """Section 5: "server busy | no"."""
    assert failovers(run(plan(faults=(InjectedFault(3.5, 20.0, ("orders",), InjectedCondition.BUSY),)))) == 0


def test_what_a_crash_leaves_behind_is_moved_by_the_next_boot() -> None:
    """Section 8: "found again after a crash with no list kept"."""
    faults = (InjectedFault(0.5, 40.0, ("orders",), InjectedCondition.REFUSED),)
    assert answers(run(plan(calls=30, faults=faults, crashes=(Crash(20.0, 30.0, 0),))))[SendOutcome.ACCEPTED]


def test_a_forced_entity_stays_until_it_is_released() -> None:
    """Section 6: "pings go on and are shown, no automatic failback"."""
    result = CheckedWorld(plan(acts=(OperatorAct(5.0, 0, "force", "orders"),)), 1).run()
    assert result.broken == ()
    assert {("healthy", "FORCE"), ("forced", "PINGS_ENOUGH"), ("forced", "RELEASE")} <= result.reached


@pytest.mark.parametrize(("ends_at", "state"), [(903.0, State.HEALTHY), (904.0, State.UNKNOWN), (951.0, State.HEALTHY)])
def test_an_entity_that_rests_is_unknown_and_a_send_makes_it_healthy_again(ends_at: float, state: State) -> None:
    """Section 6: "An entity with neither traffic nor probe is shown as **unknown**, not as healthy"."""
    calls = tuple(PlannedCall(at, 0, 0, "orders", 1) for at in (1.0, 3.0, 950.0))
    world = run(replace(plan(ends_at=ends_at), calls=calls))
    (entity,) = world.engines[0].machine.entities()
    assert entity.state is state
