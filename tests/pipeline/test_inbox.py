"""What Spark is shown of a journal: each file until it is in the tables, a delivery at a time; no name for ever."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paired_servicebus.pipeline.ingest import journal_source as inboxes
from paired_servicebus.pipeline.ingest.journal_source import EMPTY, Inbox


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "events"
    folder.mkdir()
    return folder


@pytest.fixture
def inbox(tmp_path: Path, files: Path) -> Inbox:
    return begun(tmp_path, files)


def begun(tmp_path: Path, files: Path) -> Inbox:
    inbox = Inbox(tmp_path / "inbox", files)
    inbox.begin()
    return inbox


def close(files: Path, name: str, *, at: int = 1, size: int = 10) -> None:
    """A file of the journal becomes whole."""
    (files / name).write_bytes(b"x" * size)
    os.utime(files / name, (at, at))


def shown(inbox: Inbox) -> list[str]:
    """The journal's files that are."""
    assert all(path.is_file() for path in inbox.shown.glob("*/*"))
    return sorted(path.name for path in inbox.shown.glob("*/*") if path.name != EMPTY)


def test_what_is_new_is_shown_until_it_is_in_the_tables_and_never_again(files: Path, inbox: Inbox) -> None:
    close(files, "a.jsonl")
    inbox.deliver()
    assert shown(inbox) == ["a.jsonl"]
    inbox.settle()
    close(files, "b.jsonl")
    inbox.deliver()
    assert shown(inbox) == ["b.jsonl"]


@pytest.mark.parametrize(("is_wanted", "following"), [(True, ["b.jsonl"]), (False, [])])
def test_one_delivery_at_a_time_and_the_next_at_once_where_it_was_wanted_meanwhile(
    files: Path, inbox: Inbox, is_wanted: bool, following: list[str]
) -> None:
    """Not wanted, it waits for the next look: what an engine closes just before that would wait for one more."""
    close(files, "a.jsonl")
    inbox.deliver(100)
    close(files, "b.jsonl")
    if is_wanted:
        inbox.deliver(100)
    assert shown(inbox) == ["a.jsonl"]
    inbox.settle()
    assert shown(inbox) == following


def test_a_delivery_that_is_a_batch_has_the_oldest_that_fit(files: Path, inbox: Inbox) -> None:
    close(files, "c.jsonl", at=1)
    close(files, "b.jsonl", at=2)
    close(files, "a.jsonl", at=3)
    inbox.deliver(25)
    assert shown(inbox) == ["b.jsonl", "c.jsonl"]


def test_a_delivery_has_a_file_however_large(files: Path, inbox: Inbox) -> None:
    close(files, "a.jsonl", size=100)
    inbox.deliver(25)
    assert shown(inbox) == ["a.jsonl"]


def test_a_delivery_that_is_a_batch_has_so_many_files(
    files: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inboxes, "MOST_FILES", 2)
    for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
        close(files, name)
    inbox.deliver(1000)
    assert shown(inbox) == ["a.jsonl", "b.jsonl"]


def test_what_is_being_written_or_is_no_journals_is_not_shown(files: Path, inbox: Inbox) -> None:
    for name in (".a.jsonl", "_b.jsonl", "c.txt"):
        close(files, name)
    inbox.deliver()
    assert shown(inbox) == []


def test_what_was_shown_and_not_taken_is_shown_again_after_a_crash(tmp_path: Path, files: Path, inbox: Inbox) -> None:
    close(files, "a.jsonl")
    inbox.deliver()
    inbox.settle()
    close(files, "b.jsonl")
    inbox.deliver()
    again = begun(tmp_path, files)
    assert shown(again) == []
    again.deliver()
    assert shown(again) == ["b.jsonl"]


def test_a_record_torn_by_a_crash_shows_a_file_again(tmp_path: Path, files: Path, inbox: Inbox) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        close(files, name)
    inbox.deliver()
    inbox.settle()
    record = tmp_path / "inbox" / "taken"
    record.write_bytes(record.read_bytes()[:-3])
    again = begun(tmp_path, files)
    again.deliver()
    assert shown(again) == ["b.jsonl"]


def test_names_of_files_that_the_journal_has_no_more_are_forgotten(tmp_path: Path, files: Path) -> None:
    sizes = []
    for life in range(3):
        inbox = begun(tmp_path, files)
        for index in range(50):
            close(files, f"{life}-{index:03d}.jsonl")
        inbox.deliver()
        inbox.settle()
        sizes.append((tmp_path / "inbox" / "taken").stat().st_size)
        for path in files.iterdir():  # the journal gives them up
            path.unlink()
    assert len(set(sizes)) == 1


def test_another_journals_files_are_shown_though_they_are_called_the_same(tmp_path: Path, files: Path) -> None:
    close(files, "a.jsonl")
    inbox = begun(tmp_path, files)
    inbox.deliver()
    inbox.settle()
    other = tmp_path / "other"
    other.mkdir()
    close(other, "a.jsonl")
    inbox = begun(tmp_path, other)
    inbox.deliver()
    assert shown(inbox) == ["a.jsonl"]


def test_it_says_when_spark_has_seen_so_many_and_has_nothing_to_do(tmp_path: Path, files: Path, inbox: Inbox) -> None:
    close(files, "a.jsonl")
    inbox.deliver()
    assert not inbox.is_idle_after(2)
    inbox.settle()
    assert inbox.is_idle_after(2)  # the delivery's own, too
    assert not inbox.is_idle_after(3)
    inbox.begin()
    assert not inbox.is_idle_after(1)


def test_a_file_whose_name_is_no_text_is_said_once_and_holds_up_no_other(
    files: Path, inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    """The bug: the record of what was taken could not be written, at this start and every one after it."""
    close(files, "a.jsonl")
    for name in (b"b\xff.jsonl", b"c\n.jsonl"):
        close(files, os.fsdecode(name))
    for _ in range(2):
        inbox.deliver()
        inbox.settle()
    assert sorted(record.getMessage() for record in caplog.records) == [
        f"the journal file {name} is not read: its name is no text; rename it"
        for name in (r"b\udcff.jsonl", r"c .jsonl")
    ]
    assert (inbox.shown.parent / "taken").read_text().splitlines()[1:] == ["a.jsonl"]
