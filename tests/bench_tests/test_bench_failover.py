"""The measurements of the switch and of many entities run, small; how fast anything was is not judged here."""

from __future__ import annotations

import pytest

from tests.bench.failover_bench import measure_failover
from tests.bench.many_entities import measure_entities


async def test_the_switch_is_measured_both_ways() -> None:
    figures = await measure_failover(rounds=1, senders=2)
    assert len(figures.over_ms) == len(figures.back_ms) == 1
    assert figures.p50_ms > 0
    assert figures.back_p50_ms > 0


@pytest.mark.parametrize(("kind", "entities"), [("stub", 60), ("sdk", 3)])
async def test_each_entity_pings_once_an_interval(kind: str, entities: int) -> None:
    figures = await measure_entities(kind, entities, interval=1.0)
    assert figures.entities == entities
    assert figures.median_interval > 0.9
    assert figures.million_bytes > 0
