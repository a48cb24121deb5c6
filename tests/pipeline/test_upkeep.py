"""When messages are judged and files are merged; and that merging files changes no row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.pipeline.ingest import batch_loop
from paired_servicebus.pipeline.ingest.batch_loop import AGAIN, FAN, LARGE, REST, compact, crowds, judgement_is_due
from paired_servicebus.pipeline.table_store.lake import Change, Lake, Staged
from paired_servicebus.pipeline.table_store.manifest import File, Manifest
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.pipeline.made_tables import event_rows, put

NOW = 1_790_000_000.0


def files(count: int, *, date: str = "2026-09-21", rows: int = 5, merged: int = 0, first: int = 1) -> tuple[File, ...]:
    return tuple(
        File(name=f"date={date}/{number}-{merged}.parquet", rows=rows, batch=number, merged=merged)
        for number in range(first, first + count)
    )


def manifest(**fields: object) -> Manifest:
    given = {"batch": 9, "judged": 8, "judged_at": NOW - REST, "files": {"events": files(1, first=9)}, **fields}
    return Manifest(**given)  # type: ignore[arg-type]


def test_new_receipts_that_are_many_are_judged() -> None:
    known = {"events": files(1, first=9), "receipts": files(1, rows=40)}
    assert judgement_is_due(manifest(receipts=10, receipts_batch=9, files=known), NOW)
    assert not judgement_is_due(manifest(receipts=9, receipts_batch=9, files=known), NOW)


def test_few_receipts_are_judged_when_no_more_follow_or_they_are_old() -> None:
    known = {"events": files(1, first=9), "receipts": files(1, rows=1000)}
    assert judgement_is_due(manifest(receipts=1, receipts_batch=8, files=known), NOW)
    assert judgement_is_due(manifest(receipts=1, receipts_batch=9, judged_at=NOW - AGAIN, files=known), NOW)


def test_open_fates_are_judged_again() -> None:
    assert judgement_is_due(manifest(unsettled=1, judged_at=NOW - AGAIN), NOW)
    assert not judgement_is_due(manifest(unsettled=1), NOW)
    assert not judgement_is_due(manifest(unsettled=0, judged_at=0.0), NOW)
    assert not judgement_is_due(manifest(unsettled=1, judged=9, judged_at=0.0), NOW), "nothing is new"


def test_a_judgement_follows_no_other_at_once() -> None:
    assert not judgement_is_due(manifest(receipts=1000, receipts_batch=8, judged_at=NOW - 1), NOW)


def test_files_are_merged_by_ten_that_were_merged_as_often() -> None:
    assert crowds(Manifest(files={"events": files(FAN - 1)})) == []
    (crowd,) = crowds(Manifest(files={"events": (*files(FAN), *files(3, merged=1))}))
    assert crowd.files == files(FAN)
    assert crowds(Manifest(files={"events": files(FAN, rows=LARGE)})) == []


def test_judged_and_new_events_are_not_mixed() -> None:
    assert crowds(Manifest(judged=4, files={"events": files(FAN)})) == []


def test_a_day_that_is_over_has_one_file_of_each_table() -> None:
    today = files(1, date="2026-09-22", first=50)
    (crowd,) = crowds(Manifest(judged=60, files={"events": (*files(2), *files(1, merged=1, first=3), *today)}))
    assert len(crowd.files) == 3


def test_a_day_of_a_quiet_engine_has_few_files() -> None:
    """17,280 batches, one every 5 s, each with a file of events and one of the timeline."""
    found: dict[str, list[File]] = {"events": [], "timeline": []}
    most = 0
    for batch in range(1, 17_281):
        for table, held in found.items():
            held.append(File(name=f"date=2026-09-21/{batch}", rows=5, batch=batch))
            while some := [c for c in crowds(Manifest(judged=batch, files={table: tuple(held)})) if c.table == table]:
                (crowd,) = some
                one = File(name=crowd.files[0].name, rows=5, batch=batch, merged=crowd.files[0].merged + 1)
                held[:] = [*(file for file in held if file not in crowd.files), one]
        most = max(most, sum(len(held) for held in found.values()))
    assert most <= 90, "the other tables have one file each"


def add(lake: Lake, folder: Path, number: int) -> None:
    """A batch's file of one event."""
    path = folder / f"{number}.parquet"
    put(path, "events", event_rows([Warned(at=NOW + number, about="here", text=str(number))]))
    file = File(name=f"date=2026-09-21/{number}.parquet", rows=1, batch=number)
    lake.commit(lambda now: Change(files={"events": [*now.of("events"), Staged(path, file)]}))


def texts(folder: Path) -> list[str]:
    with Tables.open(folder) as tables:
        return [row["text"] for row in tables.rows("select text from events order by event_time")]


def test_merged_files_say_the_same_and_later_ones_stay(tmp_path: Path) -> None:
    with Lake(tmp_path / "t") as lake:
        for number in range(1, FAN + 1):
            add(lake, tmp_path, number)
        compact(lake)
        add(lake, tmp_path, FAN + 1)
        assert [file.rows for file in lake.manifest.of("events")] == [FAN, 1]
    assert texts(tmp_path / "t") == [str(number) for number in range(1, FAN + 2)]


def test_files_that_were_replaced_meanwhile_are_not_brought_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Lake(tmp_path / "t") as lake:
        for number in range(1, FAN + 1):
            add(lake, tmp_path, number)

        def merged_late(*given: Any) -> None:
            merge(*given)
            lake.commit(lambda now: Change(files={"events": now.of("events")[1:]}))

        merge = batch_loop.merge_parts
        monkeypatch.setattr(batch_loop, "merge_parts", merged_late)
        compact(lake)
    assert texts(tmp_path / "t") == [str(number) for number in range(2, FAN + 1)]
