"""The manifest: spans of numbers, the gaps between them, and what a reader is told where there are no tables."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from paired_servicebus.core.errors import NoTablesError
from paired_servicebus.pipeline.table_store import manifest as manifests
from paired_servicebus.pipeline.table_store.manifest import Gap, Manifest, RecordSpan, merged
from paired_servicebus.pipeline.table_store.table_reader import Tables


def span(first: int, last: int, boot: str = "b") -> RecordSpan:
    return RecordSpan("e", boot, first, last)


def numbers(spans: tuple[RecordSpan, ...]) -> set[int]:
    return {number for one in spans for number in range(one.first, one.last + 1)}


SPANS = some.lists(some.tuples(some.integers(1, 60), some.integers(0, 9)).map(lambda it: span(it[0], sum(it))))


@given(SPANS)
def test_merged_spans_hold_the_same_numbers_and_do_not_touch(spans: list[RecordSpan]) -> None:
    found = merged(tuple(spans))
    assert numbers(found) == numbers(tuple(spans))
    assert all(later.first > earlier.last + 1 for earlier, later in pairwise(found))


@given(SPANS)
def test_gaps_are_what_is_missing_up_to_the_last(spans: list[RecordSpan]) -> None:
    found = Manifest(seen=merged(tuple(spans)))
    missing = {number for gap in found.gaps() for number in range(gap.first, gap.last + 1)}
    there = numbers(tuple(spans))
    assert missing == set(range(1, max(there, default=0) + 1)) - there


def test_boots_have_gaps_of_their_own() -> None:
    found = Manifest(seen=(span(1, 5), span(8, 9), span(3, 4, "c")))
    assert found.gaps() == (Gap("e", "b", 6, 7), Gap("e", "c", 1, 2))


def test_a_gap_is_a_row_that_says_so(tmp_path: Path) -> None:
    manifests.write(tmp_path, Manifest(seen=(span(1, 5), span(8, 9))))
    with Tables.open(tmp_path) as tables:
        (row,) = tables.rows("select engine, boot, seq, kind, trouble from events")
    assert row == {"engine": "e", "boot": "b", "seq": 6, "kind": "gap", "trouble": "gap: 2 records missing"}


def test_no_tables_is_one_sentence_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(NoTablesError, match=r"there are no tables in .*: paired pipeline --once makes them"):
        Tables.open(tmp_path / "nowhere")


def test_tables_of_another_version_are_made_anew(tmp_path: Path) -> None:
    (tmp_path / manifests.NAME).write_text('{"version": 99, "files": "otherwise"}')
    with pytest.raises(NoTablesError, match="of version 99, this program reads 1"):
        Tables.open(tmp_path)


def test_a_manifest_that_is_none(tmp_path: Path) -> None:
    (tmp_path / manifests.NAME).write_text('{"version": 1, "batch"')
    with pytest.raises(NoTablesError, match="is no manifest"):
        Tables.open(tmp_path)
