"""The tables of a journal without Spark: all of them, from files as engines and copies leave them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.engine.journal import records
from paired_servicebus.pipeline.journal_tables import JournalTables
from paired_servicebus.pipeline.judging.audit_sql import SECOND
from paired_servicebus.pipeline.report.report_queries import last_report
from paired_servicebus.pipeline.table_commands import retire, run_retire
from paired_servicebus.pipeline.table_store.schema import DATED, TABLES
from tests.approval import Approve
from tests.pipeline.batches import write_file
from tests.pipeline.judged import records_of
from tests.pipeline.test_audit import started
from tests.pipeline.worlds import World, some


def put(folder: Path, *groups: Sequence[e.Record]) -> Path:
    """Whole journal files, one for each group, under a tree of hosts."""
    for number, group in enumerate(groups):
        place = folder / f"host-{number}" / "events"
        place.mkdir(parents=True, exist_ok=True)
        lines = b"".join(records.encode(record) + b"\n" for record in group)
        (place / f"orders-{number:013d}-000000000001.jsonl").write_bytes(lines)
    return folder


def change(at: float, was: str, now: str, why: str = "timeout") -> e.Event:
    return e.StateChanged(at=at, entity="orders", was=was, now=now, why=why)


STORY: list[e.Event] = [
    started(10.0),
    e.SendsCounted(at=60.0, entity="orders", route="primary", accepted=5, failed=0, seconds=1.0),
    e.Delivered(at=60.0, entity="orders", message_id="a"),
    change(100.0, "healthy", "suspect", "first timeout"),
    change(101.0, "suspect", "failed over"),
    e.Diverted(at=102.0, entity="orders", message_id="b", queue=0),
    e.QueueRead(at=110.0, queue=0, depth=1, size_bytes=100, dead_lettered=0, scheduled=0),
    e.PingSent(at=120.0, entity="orders", number=1),
    e.PingAccepted(at=121.0, entity="orders", number=1, took=0.25),
    change(121.5, "failed over", "healthy", "a ping was accepted"),
    e.Moved(at=130.0, entity="orders", message_id="b", queue=0),
    e.OperationsCounted(
        at=131.0,
        sends=1,
        parked=1,
        pings=1,
        receives=0,
        moves=1,
        settlements=1,
        sent_bytes=7,
        parked_bytes=8,
        moved_bytes=9,
    ),
    e.Commanded(at=199.0, command="force", target="orders", by="kim"),
    e.Forced(at=199.5, entity="orders", by="kim", why="a rehearsal"),
    change(200.0, "healthy", "forced", "forced by kim"),
]


def test_every_table_has_its_columns_and_the_rows_of_the_journal(tmp_path: Path) -> None:
    with JournalTables.open([put(tmp_path, records_of(STORY))]) as tables:
        for table, columns in TABLES.items():
            names = [row["column_name"] for row in tables.rows(f"describe {table}")]
            assert names == [*columns, *(["date"] if table in DATED else [])]
        first, second = tables.rows(
            "select *, epoch_us(began_at) as began, epoch_us(last_good_at) as good, epoch_us(failed_back_at) as back "
            "from episodes order by began_at"
        )
        assert (first["outcome"], first["cause"], first["began"], first["back"]) == (
            "failed back", "timeout", 100 * SECOND, 121_500_000,
        )  # fmt: skip
        assert (first["parked"], first["moved"], first["good"]) == (1, 1, 59 * SECOND)
        assert (second["outcome"], second["forced"], second["id"]) == (
            "open", True, f"orders@orders@web-1@{200 * SECOND}",
        )  # fmt: skip
        assert [(one["what"], one["by"]) for one in json.loads(second["orders"])] == [("forced", "kim")]
        assert tables.row("select count(*) as n from timeline where kind = 'commanded'") == {"n": 1}
        assert tables.row("select count(*) as n from timeline where kind = 'diverted'") == {"n": 0}
        assert last_report(tables).pairings == ("orders",)


def test_copies_gaps_and_lines_that_are_no_records(tmp_path: Path) -> None:
    """A file twice, a torn line, a kind of a newer program, a missing record."""
    whole = records_of(STORY)
    put(tmp_path, whole[:5], whole[:7], whole[8:])
    with next(tmp_path.rglob("*.jsonl")).open("ab") as file:
        file.write(b'{"v":1,"engine":"orders@web-1","boot":"b1","seq":99,"ts":1,"kind":"of-tomorrow"}\n')
        file.write(b'{"v":1,"engine":"orders@w')
    with JournalTables.open([tmp_path]) as tables:
        (engine,) = tables.rows("select * from engines")
        assert (engine["records"], engine["missing"], engine["last_seq"]) == (15, 84, 99)
        assert [
            (row["first_seq"], row["last_seq"]) for row in tables.rows("select * from gaps order by first_seq")
        ] == [
            (8, 8),
            (16, 98),
        ]
        assert tables.row("select count(*) as n from events where trouble is null") == {"n": 14}
        troubles = tables.rows("select trouble from events where trouble is not null order by trouble")
        assert [row["trouble"] for row in troubles] == ["torn", "unknown kind"]
        assert tables.unreadable()[0] == 2


def test_too_many_events_need_the_pipeline(tmp_path: Path, approve: Approve) -> None:
    put(tmp_path, records_of(STORY))
    with pytest.raises(PipelineError) as refused:
        JournalTables.open([tmp_path], most=10)
    approve.part(refused.value, "errors of the pipeline", has=("15 records", "10 at"))


def test_no_journal_is_one_sentence(tmp_path: Path, approve: Approve) -> None:
    with pytest.raises(PipelineError) as refused:
        JournalTables.open([tmp_path])
    approve.part(refused.value, "errors of the pipeline")


def test_an_engine_that_is_gone_ends_its_episode_with_a_reason(tmp_path: Path, approve: Approve) -> None:
    """A dead pod's episode stayed open for ever; a clock two hours back left one open (E5)."""
    dead = records_of([started(10.0), change(100.0, "healthy", "suspect"), change(101.0, "suspect", "failed over")])
    other = records_of([started(10.0), e.EngineStopped(at=5000.0, reason="done")], engine="orders@web-2")
    back = records_of(
        [
            started(10_000.0),
            change(10_100.0, "healthy", "suspect"),
            change(10_101.0, "suspect", "failed over"),
            change(2_900.0, "failed over", "healthy", "a ping was accepted"),
            e.EngineStopped(at=2_950.0, reason="done"),
        ],
        engine="stock@web-3",
    )
    with JournalTables.open([put(tmp_path, dead, other, back)]) as tables:
        found = {row["engine"]: row for row in tables.rows("select * from episodes")}
    assert found["orders@web-1"]["outcome"] == "engine silent"
    approve.part(found["orders@web-1"]["end_reason"], "errors of the pipeline", has=("15 minutes",))
    assert found["stock@web-3"]["outcome"] == "failed back"


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
