"""Events as files: each date's in one, and what they hold. Blocks are cut where lines end."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

import pyarrow.parquet as pq

from paired_servicebus.core.model.pairing_events import Record, Warned
from paired_servicebus.engine.journal import records
from paired_servicebus.pipeline.ingest import event_writer
from paired_servicebus.pipeline.ingest.event_writer import Contents, write_files
from paired_servicebus.pipeline.table_store.manifest import Manifest, RecordSpan

DAY: Final = 86_400.0
GOOD: Final = b'{"v":1,"engine":"e","boot":"b","seq":%d,"ts":9,"kind":"warning","about":"a","text":"t"}'


def line(seq: int, *, at: float = 0.0, engine: str = "e") -> bytes:
    return records.encode(Record(engine=engine, boot="b", seq=seq, event=Warned(at=at, about="a", text="t")))


def written(folder: Path, *contents: bytes) -> Contents:
    """Write files of these contents as events."""
    files = []
    for number, content in enumerate(contents):
        path = folder / f"{number}.jsonl"
        path.write_bytes(content)
        files.append((str(path), len(content)))
    return write_files(files, str(folder / "events"))


def rows(found: Contents) -> list[dict[str, Any]]:
    return [row for path in sorted(found.files) for row in pq.ParquetFile(path).read().to_pylist()]


def test_each_date_is_a_file_and_rows_without_a_time_are_of_the_first(tmp_path: Path) -> None:
    found = written(tmp_path, b"\n".join([line(1, at=DAY - 1), line(2, at=DAY), line(3, at=DAY + 9), b"torn"]))
    days = {Path(path).parent.name: count for path, count in found.files.items()}
    assert days == {"date=1970-01-01": 2, "date=1970-01-02": 2}
    assert {path: pq.read_metadata(path).num_rows for path in found.files} == found.files


@pytest.mark.parametrize(
    ("content", "seqs"),
    [
        (b"", []),
        (b"\n", []),
        (b"\r\n \n", []),
        (line(1) + b"\n" + line(2), [1, 2]),
        (b"\xef\xbb\xbf" + line(1) + b"\n", [1]),
        (line(1) + b"\r\n\n" + line(2) + b"\n", [1, 2]),
        (line(1) + b"\n" + line(2)[:-5] + b"\n" + line(3) + b"\n", [1, None, 3]),
        (line(1) + b"\n" + line(2) + line(3) + b"\n\n" + line(4) + b"\n", [1, None, 4]),
    ],
)
@pytest.mark.parametrize("block", [1, 100, 1 << 20])
def test_every_line_is_a_row_wherever_blocks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, seqs: list[int | None], block: int
) -> None:
    monkeypatch.setattr(event_writer, "BLOCK", block)
    found = written(tmp_path, content)
    assert [row["seq"] for row in rows(found)] == seqs
    assert found.bytes == len(content)


def test_a_file_is_read_as_far_as_it_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(line(1) + b"\n" + line(2) + b"\n")
    found = write_files([(str(path), len(line(1)) + 1)], str(tmp_path / "events"))
    assert [row["seq"] for row in rows(found)] == [1]


def test_a_file_that_is_not_there_has_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(line(1))
    found = write_files([(str(tmp_path / name), len(line(1))) for name in ("a.jsonl", "b.jsonl")], str(tmp_path / "e"))
    assert (found.bytes, found.numbered) == (len(line(1)), 1)


def test_what_events_hold(tmp_path: Path) -> None:
    got = GOOD.replace(b'"warning"', b'"received","entity":"o","message_id":"m","stream":""')
    found = written(
        tmp_path,
        b"\n".join([line(3), line(1, at=1.0), line(2), line(7), line(9, engine="f"), b"{", got % 8]),
        b"no line of ours",
    )
    assert found.spans == (
        RecordSpan("e", "b", 1, 3, 1_000_000, 0), RecordSpan("e", "b", 7, 8, 0, 9), RecordSpan("f", "b", 9, 9),
    )  # fmt: skip
    assert (found.numbered, found.receipts, found.receiving) == (6, 1, (("e", "b"),))
    assert found.troubled == ("0.jsonl", "1.jsonl")


@pytest.mark.parametrize(
    ("seqs", "seen", "repeats"),
    [([1, 2], (), False), ([1, 1], (), True), ([3, 4], (1, 2), False), ([2, 3], (1, 2), True)],
)
def test_records_that_may_be_there_already(
    tmp_path: Path, seqs: list[int], seen: tuple[int, int] | tuple[()], repeats: bool
) -> None:
    found = written(tmp_path, b"\n".join(map(line, seqs)))
    assert found.repeats(Manifest(seen=(RecordSpan("e", "b", *seen),) if seen else ())) == repeats
