"""The measurement of a dead destination at the head runs, small; how fast anything was is not judged here."""

from __future__ import annotations

from tests.bench.dead_destination import measure_dead_head


async def test_the_healthy_ones_arrive_and_the_others_after_the_healing() -> None:
    figures = await measure_dead_head(300, 30)
    assert (figures.many, figures.few) == (300, 30)
    assert min(figures.plain, figures.alone, figures.behind, figures.later, figures.healed) > 0
