"""That what a rehearsal says of the flapping scenario hangs on no ping that falls together with a fault's end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paired_servicebus.core.model.policy import Policy
from paired_servicebus.demo.player import STREAMS
from paired_servicebus.demo.scenarios import ENTITIES, QUEUES, scenario_named
from paired_servicebus.pipeline.rehearsal.policy_ranking import replay
from paired_servicebus.pipeline.rehearsal.recorded_history import (
    OfferedLoad,
    RateStep,
    RecordedHistory,
    TimeBounds,
)
from tests.pipeline.rehearsed import DURATION, known, policies_for

FLAPPING = scenario_named("flapping")
EARLY_OR_LATE = (-0.25, 0.0, 0.25)
"""Seconds that a busy machine's faults and pings may be apart from where the script and the clock have them."""


def shifted(seconds: float) -> RecordedHistory:
    """The scenario, its faults all ending so much later."""
    loads = tuple(
        OfferedLoad(
            path=stream.entity, steps=(RateStep(0.0, stream.batch / stream.every), RateStep(DURATION, 0.0)), waits=True
        )
        for stream in STREAMS
    )
    played = RecordedHistory(source="a script", seconds=DURATION + 30.0, entities=ENTITIES, queues=QUEUES, loads=loads)
    history = known(FLAPPING, played)
    moved = [one._replace(ended=TimeBounds(*(at + seconds for at in one.ended))) for one in history.outages]
    return replace(history, outages=tuple(moved))


POLICIES = [
    pytest.param(policy, marks=pytest.mark.slow if place % 4 else [])
    for place, policy in enumerate(policies_for(FLAPPING))
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda it: f"{it.failover_interval}-{it.failback_pings}")
def test_a_quarter_of_a_second_changes_no_failover(policy: Policy) -> None:
    runs = [replay(shifted(seconds), policy, 1) for seconds in EARLY_OR_LATE]
    assert len({run.failovers for run in runs}) == 1, runs
    assert max(run.parked for run in runs) <= 1.1 * min(run.parked for run in runs), runs
