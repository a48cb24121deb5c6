"""What a file of events holds: numbers as spans, and whether any of it came before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from paired_servicebus.pipeline.ingest.partial_aggregates import Contents, look_into
from paired_servicebus.pipeline.table_store.manifest import Manifest, RecordSpan
from tests.pipeline.journals import put


def contents(folder: Path, *numbers: int | None, boot: str = "b") -> Contents:
    rows: list[dict[str, Any]] = [
        {"engine": "e", "boot": boot, "seq": number, "ts": 10 * number}
        if number is not None
        else {"trouble": "torn", "file": "f.jsonl"}
        for number in numbers
    ]
    put(folder / "b1" / "part.parquet", "events", rows)
    return look_into(folder / "b1")


def test_numbers_as_spans_in_whatever_order_they_came(tmp_path: Path) -> None:
    found = contents(tmp_path, 9, 3, 1, None, 2, 8, 5)
    assert found.spans == (RecordSpan("e", "b", 1, 3), RecordSpan("e", "b", 5, 5), RecordSpan("e", "b", 8, 9))
    assert (found.rows, found.numbered, found.last_ts, found.troubled) == (7, 6, 90, ("f.jsonl",))
    assert not found.repeats(Manifest())


def test_nothing_is_seen_in_no_rows(tmp_path: Path) -> None:
    assert contents(tmp_path) == Contents(0, 0, None, (), ())


@pytest.mark.parametrize(
    ("numbers", "manifest", "repeats"),
    [
        ((1, 2, 2), Manifest(), True),
        ((4, 5), Manifest(seen=(RecordSpan("e", "b", 1, 3),)), False),
        ((4, 5), Manifest(seen=(RecordSpan("e", "b", 1, 4),)), True),
        ((4, 6), Manifest(seen=(RecordSpan("e", "b", 5, 5), RecordSpan("e", "b", 7, 9))), False),
        ((4, 5), Manifest(seen=(RecordSpan("e", "another", 1, 9),)), False),
        ((None, 1), Manifest(troubled=("f.jsonl",)), True),
        ((None, 1), Manifest(troubled=("g.jsonl",)), False),
        ((1,), Manifest(troubled=("f.jsonl",)), False),
    ],
)
def test_what_came_before_is_known(
    tmp_path: Path, numbers: tuple[int | None, ...], manifest: Manifest, repeats: bool
) -> None:
    assert contents(tmp_path, *numbers).repeats(manifest) is repeats
