"""The store: commits of all tables, what a killed or damaged one leaves, and refusals."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as some

from paired_servicebus.core.errors import DamagedTablesError, NoTablesError, PipelineError, PipelineRunningError
from paired_servicebus.core.model.pairing_events import DestinationFailed, SendsCounted, Warned
from paired_servicebus.pipeline.table_store import lake as lakes
from paired_servicebus.pipeline.table_store import manifest as manifests
from paired_servicebus.pipeline.table_store.lake import Change, Lake, Staged
from paired_servicebus.pipeline.table_store.schema import DATED, TABLES
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.approval import Approve
from tests.pipeline.made_tables import event_rows, files_of, make_version, tables_of, utc

DAY = 86_400.0
T0 = 1_790_000_000.0


def minute(at: float, accepted: int) -> dict[str, object]:
    return {"engine": "e1", "entity": "orders", "minute": utc(at), "primary_accepted": accepted}


def accepted(folder: Path) -> list[int]:
    with Tables.open(folder) as tables:
        return [row["primary_accepted"] for row in tables.rows("select primary_accepted from minutes order by minute")]


def test_every_table_is_there_for_a_plain_reader_before_any_record(tmp_path: Path) -> None:
    make_version(tmp_path)
    for table, columns in TABLES.items():
        (path,) = files_of(tmp_path, table)
        found = duckdb.sql(f"select * from '{path}'")
        assert found.fetchall() == []
        assert set(columns) <= set(found.columns)
        assert ("date" in found.columns) is (table in DATED)


def test_a_version_is_one_state_of_all_tables(tmp_path: Path) -> None:
    make_version(tmp_path, minutes=[minute(T0, 1), minute(T0 + DAY, 2)], cost=[{"cause": "sends", "operations": 1}])
    make_version(tmp_path, minutes=[minute(T0, 3)])
    assert accepted(tmp_path) == [3]
    before = [str(path) for path in files_of(tmp_path, "minutes", batch=1)]
    assert duckdb.sql(f"select sum(primary_accepted) from read_parquet({before})").fetchall() == [(3,)]
    assert files_of(tmp_path, "cost") == files_of(tmp_path, "cost", batch=1)


def test_times_are_timestamps_for_the_reader_and_instants_for_others(tmp_path: Path) -> None:
    events = [
        SendsCounted(at=T0, entity="orders", route="primary", accepted=1, failed=0, seconds=1.0),
        DestinationFailed(at=T0 + 1, entity="orders", reason="busy", retry_at=T0 + 60),
        Warned(at=T0 + 2, about="here", text="of all"),
    ]
    make_version(tmp_path, events=event_rows(events))
    with Tables.open(tmp_path) as tables:
        rows = tables.rows("select event_time, retry_at, date::varchar as day from events order by seq")
        assert [row["event_time"] for row in rows] == [utc(T0), utc(T0 + 1), utc(T0 + 2)]
        assert rows[1]["retry_at"] == utc(T0 + 60)
        assert {row["day"] for row in rows} == {"2026-09-21"}
        assert tables.rows("select kind from timeline order by seq") == [
            {"kind": "destination-failed"},
            {"kind": "warned"},
        ]
    (path,) = files_of(tmp_path, "events")
    kind = duckdb.sql(f"select typeof(event_time) from '{path}' limit 1").fetchall()
    assert kind == [("TIMESTAMP WITH TIME ZONE",)]


def test_three_versions_stay_and_older_ones_for_those_who_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        make_version(tmp_path, minutes=[minute(T0, number)])
    assert len(manifests.commit_paths(tmp_path)) == 5
    old = files_of(tmp_path, "minutes", batch=1)
    monkeypatch.setattr(lakes, "GRACE", -1.0)
    with Tables.open(tmp_path) as tables:
        with Lake(tmp_path) as lake:
            with lake.pinned() as pinned:
                for _ in range(4):
                    lake.commit(lambda _: Change())
                assert manifests.commit_path(tmp_path, pinned.manifest.batch).exists()
            lake.commit(lambda _: Change())
            assert not manifests.commit_path(tmp_path, pinned.manifest.batch).exists()
        assert [manifests.number_of(path) for path in manifests.commit_paths(tmp_path)] == [10, 9, 8]
        assert not any(path.exists() for path in old)
        assert all(path.exists() for path in files_of(tmp_path, "minutes"))
        assert tables.rows("select primary_accepted as n from minutes") == [{"n": 4}], "its files are still listed"
        for number in range(5, 9):
            make_version(tmp_path, minutes=[minute(T0, number)])
        assert tables.rows("select primary_accepted as n from minutes") == [{"n": 8}]
        assert tables.batch == 14


def damage_commit(folder: Path) -> None:
    manifests.commit_paths(folder)[0].write_bytes(b'{"version":4,"life":"\xff"}')


def empty_commit(folder: Path) -> None:
    manifests.commit_paths(folder)[0].write_bytes(b"")


def cut_a_file(folder: Path) -> None:
    (path,) = files_of(folder, "minutes")
    path.write_bytes(path.read_bytes()[:-1])


def lose_a_file(folder: Path) -> None:
    (path,) = files_of(folder, "minutes")
    path.unlink()


@pytest.mark.parametrize(
    "damage",
    [
        damage_commit,
        cut_a_file,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (empty_commit, lose_a_file)),
    ],
)
def test_a_damaged_newest_version_gives_way_to_the_one_before_with_a_note(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    make_version(tmp_path, minutes=[minute(T0, 1)])
    make_version(tmp_path, minutes=[minute(T0, 2)])
    damage(tmp_path)
    with Tables.open(tmp_path) as tables:
        assert "damaged" in tables.note
        assert tables.batch == 1
    assert accepted(tmp_path) == [1]
    with Lake(tmp_path) as lake:
        assert "damaged" in lake.note
        assert lake.manifest.batch == 1
        lake.commit(lambda _: Change())
        assert lake.note
    assert accepted(tmp_path) == [1]
    with Tables.open(tmp_path) as tables:
        assert tables.note == ""


def test_tables_of_which_none_is_whole_are_one_sentence_and_stay(tmp_path: Path) -> None:
    make_version(tmp_path, minutes=[minute(T0, 1)])
    damage_commit(tmp_path)
    for opened in (Tables.open, lambda folder: Lake(folder).__enter__()):
        with pytest.raises(DamagedTablesError, match=r"no version of the tables in .* is whole .*: move .* away"):
            opened(tmp_path)
    assert list((tmp_path / "data" / "minutes").rglob("*.parquet"))


def test_tables_of_a_later_program_are_refused_and_stay(tmp_path: Path, approve: Approve) -> None:
    make_version(tmp_path, minutes=[minute(T0, 1)])
    (manifest,) = manifests.commit_paths(tmp_path)
    manifest.write_text('{"version": 99, "files": "otherwise"}')
    for opened in (Tables.open, lambda folder: Lake(folder).__enter__()):
        with pytest.raises(NoTablesError, match="has format 99, and this release has 4"):
            opened(tmp_path)
    approve.part(manifest.read_text(), "errors of the pipeline", has=("99",))


def test_a_folder_of_somebody_else_is_refused_untouched(tmp_path: Path, approve: Approve) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"sun")
    (tmp_path / "logs").mkdir()
    with pytest.raises(PipelineError) as refused:
        Lake(tmp_path).__enter__()
    approve.part(refused.value, "errors of the pipeline")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["holiday.jpg", "logs"]
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError) as refused:
        Lake(tmp_path / "file").__enter__()
    approve.part(refused.value, "errors of the pipeline")


def test_what_was_never_committed_is_removed(tmp_path: Path) -> None:
    make_version(tmp_path, minutes=[minute(T0, 1)])
    half = tmp_path / "data" / "minutes" / "b0000000002.parquet"
    half.write_bytes(b"PAR1")
    staged = tmp_path / "staging" / "b0000000002"
    staged.mkdir(parents=True)
    with Lake(tmp_path):
        assert not half.exists()
        assert not staged.exists()
    assert accepted(tmp_path) == [1]


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    make_version(tmp_path, minutes=[minute(T0, 1)])
    with Lake(tmp_path) as lake:
        never = Staged(tmp_path / "never-written", manifests.File(name="x.parquet", rows=1))
        with pytest.raises(FileNotFoundError):
            lake.commit(lambda _: Change(files={"engines": [never]}))
        assert lake.manifest.batch == 1
    assert [manifests.number_of(path) for path in manifests.commit_paths(tmp_path)] == [1]
    assert accepted(tmp_path) == [1]


def test_a_second_pipeline_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with (
        Lake(tmp_path),
        pytest.raises(PipelineRunningError, match=r"another pipeline \(pid \d+\) writes the tables in"),
    ):
        Lake(tmp_path).__enter__()


def test_a_pipeline_that_has_ended_commits_nothing(tmp_path: Path) -> None:
    with Lake(tmp_path) as ended:
        pass
    with Lake(tmp_path), pytest.raises(PipelineError, match="another writer"):
        ended.commit(lambda _: Change())


def test_no_tables_is_one_sentence_how_to_get_them(tmp_path: Path, approve: Approve) -> None:
    with pytest.raises(NoTablesError) as refused:
        Tables.open(tmp_path / "nowhere")
    approve.part(refused.value, "errors of the pipeline", has=("paired pipeline", "--once"))


@pytest.mark.slow
def test_a_year_of_days_is_one_table(tmp_path: Path) -> None:
    make_version(tmp_path, minutes=[minute(T0 + DAY * day, day) for day in range(365)])
    with Tables.open(tmp_path) as tables:
        assert len(tables.manifest.of("minutes")) == 365
        assert tables.row("select sum(primary_accepted) as n from minutes where date = '2026-09-22'") == {"n": 1}


# -- The tables as the project's own reader gives them: a view for each, with all of its columns.


KEY = {"engine": "e1", "minute": utc(600)}


def test_every_view_is_there_without_any_row(tmp_path: Path) -> None:
    with tables_of(tmp_path, []) as tables:
        for view, columns in TABLES.items():
            assert tables.rows(f"select * from {view}") == []
            names = [row["column_name"] for row in tables.rows(f"describe {view}")]
            assert names == [*columns, *(["date"] if view in DATED else [])]
        assert tables.verdict() is None


def test_columns_that_older_files_lack_are_null(tmp_path: Path) -> None:
    path = tmp_path / "old.parquet"
    duckdb.sql("select 'e1' as engine").write_parquet(str(path))
    with Lake(tmp_path / "t") as lake:
        lake.commit(lambda _: Change(files={"engines": [Staged(path, manifests.File(name="old.parquet", rows=1))]}))
    with Tables.open(tmp_path / "t") as tables:
        assert tables.rows("select engine, boot, last_at from engines") == [
            {"engine": "e1", "boot": None, "last_at": None}
        ]


def test_the_verdict_on_everything_and_on_each_pairing(tmp_path: Path) -> None:
    rows = [{"pairing": pairing, "entity": "", "lost": lost} for pairing, lost in (("", 3), ("a", 1), ("b", 2))]
    with tables_of(tmp_path, [], verdicts=[*rows, {"pairing": "a", "entity": "orders", "lost": 1}]) as tables:
        whole = tables.verdict()
        assert whole is not None
        assert whole["lost"] == 3
        assert [(row["pairing"], row["lost"]) for row in tables.verdicts()] == [("a", 1), ("b", 2)]


def test_unreadable_lines_are_counted_by_file(tmp_path: Path) -> None:
    rows = [{"trouble": "torn", "file": f"{name}.jsonl"} for name in "aab"]
    make_version(tmp_path, events=rows)
    with Tables.open(tmp_path) as tables:
        assert tables.unreadable() == (3, "2 in a.jsonl, 1 in b.jsonl")


def test_a_file_that_is_no_parquet_is_one_sentence(tmp_path: Path) -> None:
    with tables_of(tmp_path, [Warned(at=600, about="a", text="b")]) as tables:
        (path,) = files_of(tmp_path, "events")
        path.write_bytes(bytes(path.stat().st_size))
        with pytest.raises(NoTablesError, match="cannot be read"):
            tables.rows("select * from events")


# -- The manifest: spans of numbers, the gaps between them, and what is held of them.


def span(first: int, last: int, boot: str = "b") -> manifests.RecordSpan:
    return manifests.RecordSpan("e", boot, first, last)


def numbers(spans: tuple[manifests.RecordSpan, ...]) -> set[int]:
    return {number for one in spans for number in range(one.first, one.last + 1)}


SPANS = some.lists(some.tuples(some.integers(1, 60), some.integers(0, 9)).map(lambda it: span(it[0], sum(it))))


@given(SPANS)
def test_merged_spans_hold_the_same_numbers_and_do_not_touch(spans: list[manifests.RecordSpan]) -> None:
    found = manifests.merged(tuple(spans))
    assert numbers(found) == numbers(tuple(spans))
    assert all(later.first > earlier.last + 1 for earlier, later in pairwise(found))


def test_merged_spans_keep_the_times_of_their_ends() -> None:
    one, two, inner = (
        manifests.RecordSpan("e", "b", 1, 5, 10, 50),
        manifests.RecordSpan("e", "b", 6, 9, 60, 90),
        manifests.RecordSpan("e", "b", 2, 3, 20, 30),
    )
    assert manifests.merged((two, inner, one)) == (manifests.RecordSpan("e", "b", 1, 9, 10, 90),)
