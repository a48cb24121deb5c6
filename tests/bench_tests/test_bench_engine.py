"""The bench of the engine runs, small, and says what it promises; how late anything was is not judged here."""

from __future__ import annotations

import json

import pytest

from paired_servicebus.bench import result_tables
from tests.bench import developer_tables, engine_bench
from tests.bench.__main__ import main
from tests.bench.developer_plans import EnginePlan
from tests.bench.engine_bench import EngineFigures, measure_engine


@pytest.mark.slow
async def test_it_sees_pings_and_sends_with_none_one_and_five_consoles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_bench, "WINDOW", 1.3)
    monkeypatch.setattr(engine_bench, "SETTLE", 0.1)
    found = await measure_engine(EnginePlan(entities=3, seconds=2.6))
    assert set(found.lateness_p95_ms) == set(found.send_p50_ms) == {"0", "1", "5"}
    assert min(found.pings.values()) >= 3
    assert set(found.send_ratio) == {"1", "5"}
    told = json.loads(result_tables.as_json("engine", found))
    assert told["bench"] == "engine"
    assert told["targets"]["lateness_p95_ms"]["target"] == 100
    assert "5 consoles" in developer_tables.engine_table(found)


@pytest.mark.parametrize(("late", "ratio", "reached"), [(99.0, 1.1, True), (101.0, 1.1, False), (99.0, 1.3, False)])
def test_its_targets_are_those_that_were_asked_for(late: float, ratio: float, reached: bool) -> None:
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
