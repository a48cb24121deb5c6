"""Journal lines as rows: every field of an event in its column, and every kind of bad line as a row that says so."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.engine.journal import records
from paired_servicebus.pipeline.ingest.event_writer import events_of
from paired_servicebus.pipeline.table_store.schema import EVENTS
from tests.bench.spark.synthetic_journal import events
from tests.pipeline.made_tables import event_rows, utc

GOOD: dict[str, Any] = {
    "v": 1, "engine": "e", "boot": "b", "seq": 7, "ts": 9, "kind": "ping-accepted", "entity": "orders",
    "number": 3, "took": 0.5,
}  # fmt: skip


ROW: dict[str, Any] = {name: value for name, value in GOOD.items() if name != "ts"} | {"event_time": utc(9e-6)}


def rows(*lines: bytes) -> list[dict[str, Any]]:
    table = events_of(list(lines), ["f.jsonl"] * len(lines))
    assert table.column_names == list(EVENTS)
    return [{name: _plain(value) for name, value in row.items() if value is not None} for row in table.to_pylist()]


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def line(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def test_what_an_engine_writes_is_what_the_tables_hold() -> None:
    told = list(events(3000, per_second=10, start=1_790_000_000.0))
    written = [
        records.encode(Record(engine="e1", boot="b1", seq=seq, event=event)) for seq, event in enumerate(told, start=1)
    ]
    wanted = [{name: value for name, value in row.items() if value is not None} for row in event_rows(told)]
    assert rows(*written) == wanted


@pytest.mark.parametrize(
    ("bad", "trouble"),
    [
        (line()[:40], "torn"),
        (line() + line(), "torn"),
        (b'"a text"', "torn"),
        (b"[1]", "torn"),
        (b"null", "torn"),
        (b"\x00\x00\x00", "torn"),
        (line(seq="seven"), "torn"),
        (line(took="long"), "torn"),
        (line(seq=7.5), "torn"),
        (line(seq=1 << 70), "torn"),
        (line(entity="\x7f").replace(b"\\u007f", b"\xff"), "torn"),
        (b"{}", "foreign"),
        (b'{"somebody": {"else": ["s"]}}', "foreign"),
        (line(kind=None), "foreign"),
        (line(seq=0), "foreign"),
        (line(v=2), "other format"),
        (line(kind="from-tomorrow"), "unknown kind"),
    ],
)
def test_a_bad_line_is_a_row_that_says_so_and_spoils_no_other(bad: bytes, trouble: str) -> None:
    before, found, after = rows(line(seq=1), bad, line(seq=2))
    assert (before, after) == ({**ROW, "seq": 1}, {**ROW, "seq": 2})
    assert (found["trouble"], found["file"]) == (trouble, "f.jsonl")
    assert found["line"] == bad.decode(errors="replace")
    assert ("seq" in found) == (trouble in ("other format", "unknown kind"))


def test_blank_lines_are_nothing_and_fields_of_tomorrow_are_left_out() -> None:
    assert rows(b"", b"  ", line(tomorrow=[{"a": 1}]), b"\r") == [ROW]
    assert rows(b"") == []


def test_a_whole_number_is_a_measure_too() -> None:
    assert rows(line(took=1)) == [{**ROW, "took": 1.0}]


def test_a_fields_time_is_a_time_and_an_impossible_one_is_a_trouble() -> None:
    retry = {**GOOD, "kind": "destination-failed", "reason": "busy", "retry_at": 1.5}
    (found,) = rows(json.dumps(retry).encode())
    assert found["retry_at"] == utc(1.5)
    (bad,) = rows(json.dumps({**retry, "retry_at": 1e300}).encode())
    assert (bad["trouble"], bad.get("retry_at")) == ("impossible", None)


def test_a_number_that_is_kept_has_no_impossible_time() -> None:
    (found,) = rows(line(v=2, ts=-1))
    assert (found["trouble"], found["seq"], found.get("event_time")) == ("other format", 7, None)
