"""The figures of an engine's memory, and what is made of them."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from tests.bench.flapping_memory import FlappingMemory, _slope, measure_flapping
from tests.bench.watched_engine import WARM, kernel_figures, malloc_figures, python_figures

ARENA = 2**20


def reading(at: float, rss: int) -> dict[str, Any]:
    return {"at": at, "rss": rss}


def test_growth_is_counted_from_the_first_warm_reading() -> None:
    cold, warm, last = reading(0, 10_000_000), reading(WARM, 60_000_000), reading(WARM + 1800, 63_000_000)
    assert _slope([cold, warm, last], "rss") == 6.0
    assert _slope([cold, warm], "rss") == 0.0, "one warm reading tells no growth"


def test_one_reading_beside_the_others_is_no_growth() -> None:
    found = [reading(WARM + 300 * number, 60_000_000) for number in range(5)]
    found[-1]["rss"] += 1_000_000
    assert _slope(found, "rss") == 0.0


@pytest.mark.skipif(sys.platform != "linux", reason="Linux counts it")
def test_the_allocators_figures_are_parts_of_the_kernels() -> None:
    kernel, malloc, python = kernel_figures(os.getpid()), malloc_figures(), python_figures()
    assert kernel["rss"] >= kernel["pss"] >= kernel["private"] > 0
    assert 0 < python["python_used"] <= python["python_arenas"] * ARENA
    if malloc:
        assert 0 < malloc["malloc_used"] <= malloc["malloc_heap"] + malloc["malloc_mapped"]


@pytest.mark.slow
@pytest.mark.timeout(420)
async def test_four_engines_are_measured_while_two_of_them_flap() -> None:
    figures = await measure_flapping(0.2, 4.0)
    assert isinstance(figures, FlappingMemory)
    assert figures.flaps == 1
    assert {name: len(found) > 1 for name, found in figures.readings.items()} == {
        "idle": False, "foreground": False, "flapping": True, "traced": True,
    }  # fmt: skip
    assert figures.readings["traced"][-1]["traced"] > 0
    assert figures.idle_mb > figures.idle_pss_mb > 10
