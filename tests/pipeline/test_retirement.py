"""`paired tables retire`: an engine that is gone for good no longer makes every later loss unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.pipeline.journal_tables import JournalTables
from paired_servicebus.pipeline.table_commands import retire, run_retire
from tests.pipeline.batches import write_file
from tests.pipeline.worlds import World, some

WORLD = World(senders=2, gone={"send1": 20}, lost=some(40))


def journal_of(folder: Path) -> Path:
    write_file(folder / "events" / "a-0000000000001-000000000001.jsonl", WORLD.journals())
    records = [one for one in WORLD.journals() if one.engine == "orders@send1"]
    write_file(folder / "other" / "events" / "b-0000000000001-000000000001.jsonl", records)
    return folder


def finding(folder: Path) -> tuple[str, str]:
    with JournalTables.open([folder]) as tables:
        row = tables.verdict()
        assert row is not None
        return row["finding"], row["rests_on"]


def test_a_retired_engine_s_end_is_its_last_record_and_the_verdict_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Section 11: "declares an engine gone for good: its end is its last record, and the verdict says so"."""
    journal = journal_of(tmp_path)
    assert finding(journal)[0] == "unknown"
    assert run_retire(journal, "orders@send1", why="its host was scrapped") == 0
    assert "orders@send1 is declared gone" in capsys.readouterr().out
    found, grounds = finding(journal)
    assert found == "lost"
    assert "orders@send1 was declared gone for good; its last record is of" in grounds
    with JournalTables.open([journal]) as tables:
        (row,) = tables.rows("select ended, end_reason, retired_why from engines where retired_at is not null")
    assert row["ended"] == "retired"
    assert row["retired_why"] == "its host was scrapped"


@pytest.mark.parametrize(
    ("engine", "why", "said"),
    [("orders@send9", "gone", "it has orders@send0, orders@send1"), ("orders@send1", " ", "--why")],
)
def test_a_mistake_is_refused(tmp_path: Path, engine: str, why: str, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        retire(journal_of(tmp_path), engine, why=why, by="kim", now=1.0)


def test_an_engine_that_starts_again_counts_as_before(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    retire(journal, "orders@send1", why="gone", by="kim", now=1.0)
    assert finding(journal)[0] == "unknown", "it recorded something after it was declared gone"
