"""The bench of bytes runs, small, and says what it promises; how many bytes there were is not judged here."""

from __future__ import annotations

import json

import pytest

from paired_servicebus.bench import result_tables
from tests.bench import developer_tables
from tests.bench.__main__ import main
from tests.bench.developer_plans import BytesPlan
from tests.bench.screen.byte_bench import ALL, HEALTHY, QUIET, TENTH, ByteFigures, measure_bytes


@pytest.mark.slow
async def test_it_counts_what_three_dashboards_write_in_each_situation() -> None:
    found = await measure_bytes(BytesPlan(entities=10, seconds=1.5, settle_seconds=1.0))
    assert list(found.per_second) == [QUIET, HEALTHY, TENTH, ALL]
    assert found.per_second[ALL]["full"] > 0
    assert 0 < found.first_bytes["plain"] < found.first_bytes["full"]
    assert json.loads(result_tables.as_json("console-bytes", found))["bench"] == "console-bytes"
    assert "10 entities" in developer_tables.bytes_table(found)


@pytest.mark.parametrize(
    ("situation", "profile", "bytes_a_second", "reached"),
    [(QUIET, "full", 60.0, True), (QUIET, "full", 60.1, False), (TENTH, "slow", 150.1, False),
     (TENTH, "full", 500.1, False), (ALL, "full", 1_500.1, False), (HEALTHY, "full", 9_999.0, True)],
)  # fmt: skip
def test_its_targets_are_those_that_were_asked_for(
    situation: str, profile: str, bytes_a_second: float, reached: bool
) -> None:
    rates = {name: {"full": 1.0, "slow": 1.0, "plain": 1.0} for name in (QUIET, HEALTHY, TENTH, ALL)}
    rates[situation][profile] = bytes_a_second
    firsts = {"full": 18_000, "slow": 18_000, "plain": 6_000}
    assert ByteFigures(entities=30, seconds=1.0, first_bytes=firsts, per_second=rates).reached is reached


def test_an_engine_with_few_entities_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console-bytes", "--entities", "1"]) == 2
    assert "ten entities at least" in capsys.readouterr().err
