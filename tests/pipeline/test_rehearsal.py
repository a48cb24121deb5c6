"""Many runs to one recommendation: the grid, the table, the words."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from paired_servicebus.core.errors import ConfigurationError, PipelineError
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.demo.player import STREAMS
from paired_servicebus.demo.scenarios import ENTITIES, QUEUES, scenario_named
from paired_servicebus.pipeline.rehearsal import policy_ranking
from paired_servicebus.pipeline.rehearsal.recorded_history import (
    HOUR,
    OfferedLoad,
    Outage,
    RateStep,
    RecordedHistory,
    TimeBounds,
)
from paired_servicebus.pipeline.rehearsal.rehearsal_command import (
    RehearsalRequest,
    as_object,
    as_text,
    history_for,
    rehearsal_order,
)
from tests.pipeline.rehearsed import DURATION, known, policies_for

NOW = Policy(send_timeout=2.0, failover_interval=60.0, ping_primary_interval=30.0, ping_timeout=5.0)
SMALL = RecordedHistory(
    source="a test",
    seconds=600.0,
    entities=("orders",),
    queues=2,
    loads=(OfferedLoad(path="orders", steps=(RateStep(0.0, 1.0),)),),
    outages=(Outage("orders", FailureKind.DISABLED, TimeBounds(100.0, 101.0), TimeBounds(300.0, 320.0)),),
    unknown=("when it ended",),
)
ASKED = RehearsalRequest(intervals="0s,5s", pings="1,2", ping_intervals="30s", seeds=3)


def small() -> policy_ranking.Order:
    return rehearsal_order(ASKED, SMALL, NOW)


def rows_of(order: policy_ranking.Order) -> list[policy_ranking.Row]:
    return [row for chunk in range(order.chunks) for row in policy_ranking.run_chunk(order, chunk)]


def test_the_policy_in_force_comes_first_and_no_policy_twice() -> None:
    found = policy_ranking.policies_of(NOW, intervals=(5.0, 60.0, 5.0), pings=(1,), ping_intervals=(30.0,))

    assert [policy.failover_interval for policy in found] == [60.0, 5.0]


def test_every_policy_and_seed_is_run_once_whatever_the_chunks() -> None:
    order = policy_ranking.order_of(SMALL, small().policies, 9)
    assert order.chunks == 3

    assert sorted(row[:2] for row in rows_of(order)) == [(policy, seed) for policy in range(5) for seed in range(1, 10)]


def test_an_order_survives_its_way_to_another_machine() -> None:
    order = policy_ranking.order_of(HOUR, small().policies, 2)

    assert msgspec.json.decode(msgspec.json.encode(order), type=policy_ranking.Order) == order


def test_the_result_does_not_depend_on_the_order_of_rows() -> None:
    order, rows = small(), rows_of(small())
    shuffled = random.Random(1).sample(rows, len(rows))

    assert as_text(order, policy_ranking.rehearsed(order, shuffled), known=True) == as_text(
        order, policy_ranking.rehearsed(order, rows), known=True
    )


def test_what_is_recommended_weighs_least() -> None:
    order = small()
    found = policy_ranking.rehearsed(order, rows_of(order))

    weights = [line.score for line in found.lines]
    assert found.best == weights.index(min(weights))
    assert found.recommended.failover_interval == 0.0
    assert found.lines[0]["unavailable_ms"].least > 60_000
    assert found.lines[found.best].score == policy_ranking.FAILOVER


def test_the_reason_compares_with_the_policy_in_force() -> None:
    order = small()

    assert policy_ranking.rehearsed(order, rows_of(order)).reason.startswith(
        "senders are refused for 0 s instead of 61 s; 1 failovers as"
    )


def test_nothing_to_choose_by_is_said() -> None:
    quiet = rehearsal_order(ASKED, _without_outages(), NOW)

    assert "nothing to choose by" in policy_ranking.rehearsed(quiet, rows_of(quiet)).reason


def _without_outages() -> RecordedHistory:
    return RecordedHistory(source="a test", seconds=60.0, entities=("orders",), queues=1, loads=SMALL.loads)


def test_the_text_says_what_was_replayed_what_is_recommended_and_what_is_not_known() -> None:
    order = small()
    said = "\n".join(as_text(order, policy_ranking.rehearsed(order, rows_of(order)), known=False))

    assert "replayed: a test, 600 s; about 600 messages to orders" in said
    assert "orders: entity disabled from 100 s–101 s to 300 s–320 s" in said
    assert "the defaults" in said
    assert 'recommended: failover_interval = "0s"' in said
    assert "the record cannot tell:\n  when it ended" in said


def test_the_object_has_a_row_a_policy_with_bounds() -> None:
    order = small()
    told = json.loads(as_object(order, policy_ranking.rehearsed(order, rows_of(order))))

    assert told["recommended"] in range(5)
    middle, least, greatest = told["policies"][0]["parked"]
    assert least <= middle <= greatest
    assert all(policy["broken"] == [0, 0, 0] and policy["lost"] == [0, 0, 0] for policy in told["policies"])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (RehearsalRequest(intervals="soon", pings="1", ping_intervals="1s", seeds=2), "--failover-interval is 'soon'"),
        (RehearsalRequest(intervals="5s", pings="few", ping_intervals="1s", seeds=2), "--failback-pings is 'few'"),
        (RehearsalRequest(intervals="5s", pings="1", ping_intervals="0s", seeds=2), "ping_primary_interval is 0"),
        (RehearsalRequest(intervals="5s", pings="1", ping_intervals="1s", seeds=1), "--seeds is 1"),
    ],
)
def test_what_cannot_be_rehearsed_is_said_in_a_sentence(asked: RehearsalRequest, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        rehearsal_order(asked, SMALL, NOW)


def test_where_nothing_is_recorded_an_hour_is_made_up(tmp_path: Path) -> None:
    assert history_for([], NOW) is HOUR
    with pytest.raises(PipelineError, match="no journal"):
        history_for([tmp_path], NOW)


# -- What a rehearsal says of the flapping scenario hangs on no ping that falls together with a fault's end.


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
    runs = [policy_ranking.replay(shifted(seconds), policy, 1) for seconds in EARLY_OR_LATE]
    assert len({run.failovers for run in runs}) == 1, runs
    assert max(run.parked for run in runs) <= 1.1 * min(run.parked for run in runs), runs
