"""Which journal files are new: by name and size, whole ones only, and never more than a batch."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from paired_servicebus.pipeline.ingest import journal_files
from paired_servicebus.pipeline.ingest.journal_files import Countdown, JournalFlusher, NewFiles

LIFE = "a-life"


def a_file(path: Path, text: str = "{}\n", *, age: float = 0.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def opened(tmp_path: Path, *, batch: int = 0, life: str = LIFE) -> NewFiles:
    return NewFiles([tmp_path / "j"], tmp_path / "taken", life=life, batch=batch)


def names(files: NewFiles) -> list[str]:
    return [one.path.name for one in files.batch()]


def test_a_file_is_taken_once_also_by_the_next_process(tmp_path: Path) -> None:
    a_file(tmp_path / "j" / "a.jsonl", age=9)
    a_file(tmp_path / "j" / "host" / "events" / "b.jsonl")
    files = opened(tmp_path)
    assert names(files) == ["a.jsonl", "b.jsonl"]
    files.settle(files.batch()[:1], batch=1)
    assert names(files) == ["b.jsonl"]
    assert names(opened(tmp_path, batch=1)) == ["b.jsonl"]


def test_files_of_a_version_that_was_given_up_are_new_again(tmp_path: Path) -> None:
    a_file(tmp_path / "j" / "a.jsonl")
    files = opened(tmp_path)
    files.settle(files.batch(), batch=2)
    assert names(opened(tmp_path, batch=2)) == []
    assert names(opened(tmp_path, batch=1)) == ["a.jsonl"]
    assert names(opened(tmp_path, batch=2)) == ["a.jsonl"], "what was given up once is not taken later"
    assert names(opened(tmp_path, batch=9, life="another")) == ["a.jsonl"]


@pytest.mark.parametrize("damage", ["", "\0\0\0", "a-life\nhalf a li", "a-life\nx\ty\tz\n"])
def test_a_damaged_record_only_costs_work(tmp_path: Path, damage: str) -> None:
    a_file(tmp_path / "j" / "a.jsonl")
    (tmp_path / "taken").write_text(damage)
    assert names(opened(tmp_path, batch=9)) == ["a.jsonl"]


def test_a_file_that_has_grown_is_new(tmp_path: Path) -> None:
    path = a_file(tmp_path / "j" / "a.jsonl", "{}\n")
    files = opened(tmp_path)
    files.settle(files.batch(), batch=1)
    a_file(path, "{}\n{}\n")
    assert names(files) == ["a.jsonl"]


def test_half_a_copy_waits_until_it_is_whole_or_old(tmp_path: Path) -> None:
    path = a_file(tmp_path / "j" / "a.jsonl", '{"v":1')
    files = opened(tmp_path)
    assert (names(files), files.unfinished) == ([], 1)
    a_file(path, '{"v":1', age=journal_files.SETTLED + 1)
    assert (names(files), files.unfinished) == (["a.jsonl"], 0)
    a_file(path, '{"v":1}\n')
    assert names(files) == ["a.jsonl"]


def test_a_batch_has_a_most_of_files_and_bytes_and_one_at_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        a_file(tmp_path / "j" / f"{number}.jsonl", "{}\n", age=9 - number)
    files = opened(tmp_path)
    monkeypatch.setattr(journal_files, "MOST_FILES", 2)
    assert names(files) == ["0.jsonl", "1.jsonl"]
    monkeypatch.setattr(journal_files, "MOST_FILES", 9)
    monkeypatch.setattr(journal_files, "MOST_BYTES", 10)
    assert names(files) == ["0.jsonl", "1.jsonl", "2.jsonl"]
    monkeypatch.setattr(journal_files, "MOST_BYTES", 1)
    assert names(files) == ["0.jsonl"]


def test_an_engine_is_asked_before_each_look_and_once() -> None:
    now = 0.0
    countdown = Countdown(1.8, 5.0, clock=lambda: now)
    due = []
    for tenth in range(150):
        now = tenth / 10
        if countdown.is_due():
            due.append(now)
    assert due == [0.0, 3.2, 8.2, 13.2]


def test_a_journal_that_cannot_be_written_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flusher = JournalFlusher()
    for _ in range(3):
        flusher.ask([tmp_path / "nowhere"])
    assert len(caplog.records) == 1
    (tmp_path / "events").mkdir()
    flusher.ask([tmp_path])
    assert (tmp_path / "asked").exists()
