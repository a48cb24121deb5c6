"""The bench of the sandbox runs, small, and says what it promises; how fast anything was is not judged here."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.__main__ import main
from tests.bench.developer_plans import SandboxPlan
from tests.bench.developer_tables import sandbox_json, sandbox_table
from tests.bench.sandbox.sandbox_bench import measure_sandbox
from tests.bench.sandbox.sandbox_figures import (
    MILLION,
    LoadRate,
    LoadRound,
    MemoryHeld,
    RoundTrip,
    SandboxFigures,
)

ROOT = Path(__file__).parents[2]
RATE_KEYS = {
    "messages", "rounds", "per_second", "low", "high", "server_us", "client_us", "server_share", "target",
    "reached",
}  # fmt: skip

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="weighs processes as Linux tells it")


@pytest.fixture(scope="module")
def figures() -> SandboxFigures:
    """One small run."""
    plan = SandboxPlan(
        messages=300,
        rounds=2,
        links=5,
        idle_seconds=0.2,
        round_trip_seconds=0.1,
        round_trips=20,
        credits=40,
        throttled_seconds=1,
    )
    return asyncio.run(measure_sandbox(plan))


@pytest.fixture
def told(figures: SandboxFigures) -> dict[str, Any]:
    line = sandbox_json(figures)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_the_line_has_every_figure_with_its_target(told: dict[str, Any]) -> None:
    assert told["bench"] == "sandbox"
    assert told["size"] == 1024
    parts = {name: part for name, part in told.items() if isinstance(part, dict)}
    assert set(parts) == {"ingest", "move", "held", "idle", "round_trip", "throttled"}
    assert told["reached"] is all(part["reached"] for part in parts.values())
    assert {name: part["target"] for name, part in parts.items()} == {
        "ingest": 60_000,
        "move": 25_000,
        "held": 2_500_000_000,
        "idle": 0.02,
        "round_trip": 20.0,
        "throttled": 40,
    }


@pytest.mark.parametrize("part", ["ingest", "move"])
def test_a_rate_tells_the_cost_of_both_processes(told: dict[str, Any], part: str) -> None:
    rate = told[part]
    assert set(rate) == RATE_KEYS
    assert rate["messages"] == 300
    assert rate["rounds"] == 2
    assert 0 < rate["low"] <= rate["per_second"] <= rate["high"]
    assert rate["server_us"] > 0
    assert rate["client_us"] > 0


def test_memory_for_a_million_is_marked_as_projected(told: dict[str, Any]) -> None:
    held = told["held"]
    assert held["messages"] == 300
    assert held["is_projected"] is True
    assert held["rss_bytes"] >= held["empty_rss_bytes"] > 0


def test_the_other_figures_say_over_what_they_were_taken(told: dict[str, Any]) -> None:
    assert told["idle"]["links"] == 5
    assert told["idle"]["cpu_share"] >= 0
    trip = told["round_trip"]
    assert trip["samples"] >= 20
    assert 0 < trip["p50_ms"] <= trip["p99_ms"] <= trip["max_ms"]
    assert trip["flood_per_second"] > 0


def test_credits_bound_both_rates(told: dict[str, Any]) -> None:
    throttled = told["throttled"]
    assert 0 < throttled["sent_per_second"] < 80
    assert 0 < throttled["received_per_second"] < 80


def test_people_get_a_row_for_each(figures: SandboxFigures) -> None:
    rows = sandbox_table(figures).splitlines()
    assert [row.split("  ")[0] for row in rows[1:]] == [
        "ingest", "moves", "a million held", "5 idle links", "round trip in a flood", "with credits",
    ]  # fmt: skip
    assert all(("reached" in row) != ("missed" in row) for row in rows[1:])


def test_a_rate_is_the_median_of_its_rounds() -> None:
    rounds = [
        LoadRound(messages=100, seconds=seconds, server_seconds=seconds / 2, client_seconds=seconds / 4)
        for seconds in (1.0, 4.0, 2.0)
    ]
    rate = LoadRate.of(rounds, target=50)
    assert (rate.low, rate.per_second, rate.high) == (25, 50, 100)
    assert (rate.server_us, rate.client_us) == (10_000, 5_000)
    assert rate.server_share == 0.5
    assert rate.reached
    assert not LoadRate.of(rounds, target=51).reached


def test_memory_is_projected_from_what_a_message_added() -> None:
    held = MemoryHeld.of(1000, empty=50_000_000, full=52_000_000)
    assert held.bytes_per_message == 2000
    assert held.million_bytes == 2_050_000_000
    assert held.reached
    assert not MemoryHeld.of(1000, empty=50_000_000, full=52_500_000).reached


def test_memory_with_a_million_in_it_is_told_as_measured() -> None:
    held = MemoryHeld.of(MILLION, empty=50_000_000, full=2_400_000_000)
    assert not held.is_projected
    assert held.million_bytes == 2_400_000_000


def test_the_round_trip_that_counts_is_the_99th_of_a_hundred() -> None:
    slow = RoundTrip.of([1.0] * 98 + [30.0] * 2, flood_per_second=1.0)
    assert (slow.p50_ms, slow.p99_ms, slow.reached) == (1.0, 30.0, False)
    assert RoundTrip.of([1.0] * 99 + [30.0], flood_per_second=1.0).p99_ms == 30.0
    assert RoundTrip.of([1.0] * 199 + [30.0], flood_per_second=1.0).reached


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--messages", "0"], "--messages is 0"),
        (["--size", "-1"], "--size is -1"),
        (["--size", "300000"], "between 0 and 250000"),
        (["--messages", "many"], "--messages"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1


def test_the_command_line_loads_the_bench_only_when_it_is_asked_for() -> None:
    loaded = "(name for name in sys.modules if name.startswith('paired_servicebus.bench.'))"
    code = f"import sys, paired_servicebus.cli; print(*{loaded})"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["paired_servicebus.bench.bench_plans"]
