"""No message is called lost because its receiver is slow, whatever the time and whichever journal is late.

`PAIRED_SEEDS=50` plays fifty worlds; CI plays a few.
"""

from __future__ import annotations

import os
import random

import pytest

from paired_servicebus.pipeline.judging.audit_sql import SECOND
from tests.pipeline.judged import judge
from tests.pipeline.slow_receivers import Played, SlowWorld

SEEDS = range(int(os.environ.get("PAIRED_SEEDS", "1")))
LOOKS = 6


def looks_of(played: Played, seed: int) -> list[tuple[float, dict[str, float]]]:
    """Times of a judgement, each with the time that every engine's journal reaches: some are late.

    Each has begun: an engine of which nothing is here is not known to be missing.
    """
    rng = random.Random(seed)
    first = min(played.written_at)
    engines = sorted({record.engine for record in played.records})
    found = []
    for _ in range(LOOKS):
        at = rng.uniform(first + 600, played.end)
        late = {engine: max(first, at - rng.choice([0, 0, 0, 60, 1200, 7200])) for engine in engines}
        found.append((at, late))
    return [*found, (played.end + 1, dict.fromkeys(engines, played.end + 1))]


@pytest.mark.parametrize("deletes", [0, 5])
@pytest.mark.parametrize("seed", SEEDS)
def test_of_slow_receivers_messages_those_that_are_deleted_are_lost_at_most(seed: int, deletes: int) -> None:
    played = SlowWorld(1000 * bool(deletes) + seed, deletes=deletes).play(hours=6)
    for at, reach in looks_of(played, seed):
        here = [
            record
            for record, written in zip(played.records, played.written_at, strict=True)
            if written <= reach[record.engine]
        ]
        found = judge(here, now=round(at * SECOND)).statuses().items()
        assert {name for name, status in found if status in ("lost", "missing", "unexpected")} <= played.deleted, at


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_deleted_beside_healthy_receivers_is_lost_in_the_end(seed: int) -> None:
    played = SlowWorld(2000 + seed, deletes=5, healthy=True).play(hours=8)
    found = judge(played.records, now=round((played.end + 1) * SECOND)).statuses()
    assert {name for name, status in found.items() if status == "lost"} <= played.deleted
    assert {found[name] for name in played.deleted} <= {"lost", "in flight"}, (
        "the last of a queue have none behind them"
    )
    assert len(played.deleted) == 5
    assert [found[name] for name in played.deleted].count("lost") >= 3
