"""The bench of the console runs, small, and says what it promises; how fast anything was is not judged here."""

from __future__ import annotations

import json

import pytest

from paired_servicebus.bench import result_tables
from tests.bench import developer_tables
from tests.bench.__main__ import main
from tests.bench.developer_plans import ScreenPlan
from tests.bench.screen.key_bench import FIRSTS, KEYS, ScreenFigures, measure_screen


@pytest.mark.slow
async def test_it_types_every_key_on_a_real_terminal_over_a_real_engine() -> None:
    found = await measure_screen(ScreenPlan(entities=120, keys=1, seconds=0.1, runs=1))
    assert set(found.keys_p95_ms) == {key.name for key in KEYS}
    assert min(found.keys_p50_ms.values()) > 0
    assert set(found.firsts_ms) == {key.name for key in FIRSTS}
    assert found.first_bytes > 1000
    assert found.loop_wall_ms >= found.loop_own_ms > 0
    assert json.loads(result_tables.as_json("console", found))["bench"] == "console"
    assert "120 entities" in developer_tables.screen_table(found)


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
