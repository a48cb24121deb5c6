"""The bench of the console runs, small, and says what it promises; how fast anything was is not judged here."""

from __future__ import annotations

import json

import pytest

from paired_servicebus.bench import bench_command
from tests.bench import engine_bench
from tests.bench.__main__ import main
from tests.bench.developer_plans import BytesPlan, EnginePlan, ScreenPlan
from tests.bench.engine_bench import EngineFigures, measure_engine
from tests.bench.screen.byte_bench import ALL, HEALTHY, QUIET, TENTH, ByteFigures, measure_bytes
from tests.bench.screen.key_bench import FIRSTS, KEYS, ScreenFigures, measure_screen


@pytest.mark.slow
async def test_it_types_every_key_on_a_real_terminal_over_a_real_engine() -> None:
    found = await measure_screen(ScreenPlan(entities=120, keys=1, seconds=0.1, runs=1))
    assert set(found.keys_p95_ms) == {key.name for key in KEYS}
    assert min(found.keys_p50_ms.values()) > 0
    assert set(found.firsts_ms) == {key.name for key in FIRSTS}
    assert found.first_bytes > 1000
    assert found.loop_wall_ms >= found.loop_own_ms > 0
    assert json.loads(bench_command.as_json("console", found))["bench"] == "console"


@pytest.mark.parametrize(
    ("key", "opening", "own", "first", "reached"),
    [
        (99.0, 99.0, 49.0, 1.4, True),
        (101.0, 99.0, 49.0, 1.4, False),
        (99.0, 101.0, 49.0, 1.4, False),
        (99.0, 99.0, 51.0, 1.4, False),
        (99.0, 99.0, 49.0, 1.6, False),
    ],
)
def test_its_targets_are_those_that_were_asked_for(
    key: float, opening: float, own: float, first: float, reached: bool
) -> None:
    """Key to screen at most 100 ms at p95, the loop never blocked longer than 50 ms, first paint at most 1.5 s."""
    found = ScreenFigures(
        entities=1000, first_s=first, first_cpu_s=1.0, first_bytes=1, keys_p50_ms={"down": 1.0},
        keys_p95_ms={"down": 1.0, "sort": key}, keys_cpu_p95_ms={"down": 1.0}, firsts_ms={"help": opening},
        firsts_cpu_ms={"help": 1.0}, loop_own_ms=own, loop_wall_ms=500.0, loop_step="",
        loop_step_ms=1.0, bytes_per_second=0.0,
    )  # fmt: skip
    assert found.reached is reached


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


@pytest.mark.parametrize(
    ("situation", "profile", "bytes_a_second", "reached"),
    [(QUIET, "full", 60.0, True), (QUIET, "full", 60.1, False), (TENTH, "slow", 150.1, False),
     (TENTH, "full", 500.1, False), (ALL, "full", 1_500.1, False), (HEALTHY, "full", 9_999.0, True)],
)  # fmt: skip
def test_targets_of_bytes_are_those_that_were_asked_for(
    situation: str, profile: str, bytes_a_second: float, reached: bool
) -> None:
    rates = {name: {"full": 1.0, "slow": 1.0, "plain": 1.0} for name in (QUIET, HEALTHY, TENTH, ALL)}
    rates[situation][profile] = bytes_a_second
    firsts = {"full": 18_000, "slow": 18_000, "plain": 6_000}
    assert ByteFigures(entities=30, seconds=1.0, first_bytes=firsts, per_second=rates).reached is reached


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


@pytest.mark.parametrize(("late", "ratio", "reached"), [(99.0, 1.1, True), (101.0, 1.1, False), (99.0, 1.3, False)])
def test_targets_of_the_engine_are_those_that_were_asked_for(late: float, ratio: float, reached: bool) -> None:
    """Ping lateness in the engine p95 ≤ 100 ms, and send times inside the run's own A/A band."""
    zero = {"0": 1.0, "1": 1.0, "5": 1.0}
    found = EngineFigures(
        entities=1, seconds=60, rounds=1, pings={}, lateness_p95_ms=zero | {"5": late}, lateness_max_ms=zero,
        send_p50_ms=zero, send_p95_ms=zero, send_ratio={"1": 1.0, "5": ratio}, aa_low=0.8, aa_high=1.2,
    )  # fmt: skip
    assert found.reached is reached


def test_a_lap_that_is_too_short_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["engine", "--seconds", "1"]) == 2
    assert "a lap has 10 s at least" in capsys.readouterr().err
