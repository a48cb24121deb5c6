"""The pipeline makes tables of a journal of lines that nobody would write."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from paired_servicebus.cli import main
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.pipeline.batches import MINUTES_OF_SPARK
from tests.pipeline.fuzzed_lines import WHOLE, fuzzed


@MINUTES_OF_SPARK
def test_the_pipeline_takes_a_journal_of_such_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(4)
    (tmp_path / "j").mkdir()
    strange = [fuzzed(chance) for _ in range(2000)]
    for number in range(4):
        lines = [*WHOLE[number * 75 : (number + 1) * 75], *strange[number * 500 : (number + 1) * 500]]
        chance.shuffle(lines)
        (tmp_path / "j" / f"e-{number}.jsonl").write_bytes(b"null\n" + b"\n".join(lines) + b"\n")
    tables = tmp_path / "t"
    assert main(["pipeline", "--journal", str(tmp_path / "j"), "--tables", str(tables), "--once"]) == 0
    with Tables.open(tables) as opened:
        found = opened.row("select count(*) as lines from events where trouble is null and engine = 'e' and boot = 'b'")
        assert found is not None
        assert found["lines"] == len(WHOLE)
        assert opened.unreadable()[0] > 1000
    assert main(["tables", "query", "--tables", str(tables), "select line, trouble from events"]) == 0
    assert "\x1b" not in capsys.readouterr().out
