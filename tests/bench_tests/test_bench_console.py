"""The bench of the console runs, small, and says what it promises; how fast anything was is not judged here."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest

from paired_servicebus.bench import bench_command
from paired_servicebus.bench.bench_command import as_json
from tests.bench import engine_bench
from tests.bench.__main__ import main
from tests.bench.developer_plans import BytesPlan, EnginePlan, GatewayPlan, ScreenPlan
from tests.bench.engine_bench import measure_engine
from tests.bench.figures import figures_table
from tests.bench.gateway.gateway_bench import measure_gateway
from tests.bench.gateway.gateway_figures import (
    DrainTimes,
    FloodLap,
    FloodRate,
    GatewayFigures,
    IdleClients,
    SendTimes,
)
from tests.bench.screen.byte_bench import ALL, HEALTHY, QUIET, TENTH, measure_bytes
from tests.bench.screen.key_bench import FIRSTS, KEYS, measure_screen


@pytest.mark.slow
async def test_it_types_every_key_on_a_real_terminal_over_a_real_engine() -> None:
    found = await measure_screen(ScreenPlan(entities=120, keys=1, seconds=0.1, runs=1))
    assert set(found.keys_p95_ms) == {key.name for key in KEYS}
    assert min(found.keys_p50_ms.values()) > 0
    assert set(found.firsts_ms) == {key.name for key in FIRSTS}
    assert found.first_bytes > 1000
    assert found.loop_wall_ms >= found.loop_own_ms > 0
    assert json.loads(bench_command.as_json("console", found))["bench"] == "console"


def test_an_engine_without_entities_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", "--entities", "1"]) == 2
    assert "there are two entities" in capsys.readouterr().err


# -- The bench of bytes runs, small, and says what it promises; how many bytes there were is not judged here.


@pytest.mark.slow
async def test_it_counts_what_three_dashboards_write_in_each_situation() -> None:
    found = await measure_bytes(BytesPlan(entities=10, seconds=1.5, settle_seconds=1.0))
    assert list(found.per_second) == [QUIET, HEALTHY, TENTH, ALL]
    assert found.per_second[ALL]["full"] > 0
    assert 0 < found.first_bytes["plain"] < found.first_bytes["full"]
    assert json.loads(bench_command.as_json("console-bytes", found))["bench"] == "console-bytes"


def test_an_engine_with_few_entities_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console-bytes", "--entities", "1"]) == 2
    assert "ten entities at least" in capsys.readouterr().err


# -- The bench of the engine runs, small, and says what it promises; how late anything was is not judged here.


@pytest.mark.slow
async def test_it_sees_pings_and_sends_with_none_one_and_five_consoles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_bench, "WINDOW", 1.3)
    monkeypatch.setattr(engine_bench, "SETTLE", 0.1)
    found = await measure_engine(EnginePlan(entities=3, seconds=2.6))
    assert set(found.lateness_p95_ms) == set(found.send_p50_ms) == {"0", "1", "5"}
    assert min(found.pings.values()) >= 3
    assert set(found.send_ratio) == {"1", "5"}
    told = json.loads(bench_command.as_json("engine", found))
    assert told["bench"] == "engine"
    assert told["targets"]["lateness_p95_ms"]["target"] == 100


def test_a_lap_that_is_too_short_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["engine", "--seconds", "1"]) == 2
    assert "a lap has 10 s at least" in capsys.readouterr().err


# -- The bench of the gateway runs, small, and says what it promises; how fast anything was is not judged here.


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="weighs processes as Linux tells it")
async def test_it_measures_sends_floods_idle_clients_and_a_drain() -> None:
    plan = GatewayPlan(
        messages=20,
        rounds=1,
        connections=5,
        backlog=5_000,
        flood_seconds=0.1,
        taken=200,
        idle_timeout=1.0,
        idle_seconds=0.2,
    )
    found = await measure_gateway(plan)
    assert (found.direct.sends, found.through.sends) == (20, 20)
    assert 0 < found.direct.p50_ms <= found.direct.p99_ms
    assert found.flood.per_second > 0
    assert found.flood.gateway_us > 0 == found.flood_direct.gateway_us
    assert (found.idle.connections, found.idle.idle_timeout) == (5, 1.0)
    assert found.idle.resident_mb > found.idle.grown_mb
    assert found.taken.per_second > 0
    assert found.taken.gateway_us > 0 == found.taken_direct.gateway_us
    assert found.drain.through.sends == found.drain.direct.sends == found.drain.apart.sends > 0
    assert 0 < found.drain.drained <= 5_000


def figures(**changed: Any) -> GatewayFigures:
    """Figures that reach each target by a little."""
    times = SendTimes(sends=1, p50_ms=1.0, p99_ms=5.0)
    rate = FloodRate(laps=1, per_second=10_000, low=1, high=1, gateway_us=60.0)
    idle = IdleClients(connections=1000, seconds=6, idle_timeout=10, resident_mb=200, grown_mb=150.0, cpu_share=0.019)
    drain = DrainTimes(direct=times, through=times, apart=times, drained=1, drained_per_second=1)
    found = GatewayFigures(
        size=1024, rounds=1, direct=times, through=times, added_ms=0.3, added_p99_ms=1.5, flood_direct=rate,
        flood=rate, flood_ratio=1.0, taken_direct=rate, taken=rate, taken_ratio=1.0, idle=idle, drain=drain,
    )  # fmt: skip
    for name, value in changed.items():
        part, _, figure = name.partition("__")
        found = replace(found, **{part: replace(getattr(found, part), **{figure: value}) if figure else value})
    return found


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({}, None),
        ({"added_ms": 0.31}, "added_ms"),
        ({"added_p99_ms": 1.51}, "added_p99_ms"),
        ({"flood__per_second": 9_999}, "pipelined_per_second"),
        ({"taken__per_second": 9_999}, "taken_per_second"),
        ({"flood__gateway_us": 60.1}, "cpu_us"),
        ({"idle__grown_mb": 150.1}, "idle_mb"),
        ({"idle__cpu_share": 0.02}, "idle_cpu_share"),
        ({"drain__through": SendTimes(sends=1, p50_ms=1.0, p99_ms=5.1)}, "drain_p99_ms"),
    ],
    ids=str,
)
def test_its_targets_are_those_of_the_gateway(changed: dict[str, Any], missed: str | None) -> None:
    """≤ 0.3 ms median, ≤ 1.5 ms p99; ≥ 10,000/s each; ≤ 60 µs; ≤ 150 MB, < 2 % of a core; p99 ≤ 5 ms."""
    found = figures(**changed)
    told = json.loads(as_json("gateway", found))
    assert told["bench"] == "gateway"
    assert [name for name, each in told["targets"].items() if not each["reached"]] == ([missed] if missed else [])
    assert told["reached"] is (missed is None)
    assert figures_table(found).count("missed") == (missed is not None)


def test_figures_are_medians_and_cpu_is_the_gateways_alone() -> None:
    laps = [FloodLap(messages=100, seconds=seconds, gateway_seconds=seconds / 2) for seconds in (1.0, 4.0, 2.0)]
    rate = FloodRate.of(laps)
    assert (rate.low, rate.per_second, rate.high, rate.gateway_us) == (25, 50, 100, 10_000)
    slow = SendTimes.of([1.0] * 98 + [30.0] * 2)
    assert (slow.sends, slow.p50_ms, slow.p99_ms) == (100, 1.0, 30.0)
    idle = IdleClients.of(10, seconds=2.0, idle_timeout=1.0, before=50_000_000, after=62_000_000, cpu_seconds=0.1)
    assert (idle.resident_mb, idle.grown_mb, idle.cpu_share) == (62.0, 12.0, 0.05)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--connections", "0"], "--connections is 0"),
        (["--backlog", "0"], "--backlog is 0"),
        (["--messages", "0"], "--messages is 0"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
