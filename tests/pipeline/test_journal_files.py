"""Where journal files are found: journals, folders and trees of many hosts; what is skipped, and what is said of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paired_servicebus.core.errors import ConfigurationError, PairedError, PipelineError
from paired_servicebus.engine.journal.spool import CLOSED, OPEN
from paired_servicebus.pipeline.ingest import journal_files
from paired_servicebus.pipeline.table_store.store_path import place_of
from tests.approval import Approve


def lock(monkeypatch: pytest.MonkeyPatch, locked: Path) -> None:
    """Refuse to list a folder, as its mode does for everybody but root."""
    usual = os.scandir

    def scandir(folder: Path) -> object:
        if folder == locked:
            raise PermissionError(13, "Permission denied", str(folder))
        return usual(folder)

    monkeypatch.setattr(os, "scandir", scandir)


def put(path: Path, *, at: int = 1, size: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (at, at))
    return path


def names(found: journal_files.JournalFiles) -> list[str]:
    return [file.path.name for file in found.files]


@pytest.mark.parametrize("place", ["host-1/events/a.jsonl", "a.jsonl", "fleet/eu/host-1/events/a.jsonl"])
def test_a_root_is_a_journal_a_folder_of_files_or_a_tree(tmp_path: Path, place: str) -> None:
    path = put(tmp_path / place, at=7, size=123)
    root = path.parents[1] if place.startswith("host-1") else tmp_path
    found = journal_files.find_journal_files([root])
    assert [(file.path, file.size, file.modified_ns) for file in found.files] == [(path, 123, 7_000_000_000)]
    assert found.notes == ()


def test_journals_of_many_hosts_are_one_listing_the_oldest_file_first(tmp_path: Path) -> None:
    put(tmp_path / "one" / "host-1" / CLOSED / "a.jsonl", at=3)
    put(tmp_path / "one" / "host-2" / CLOSED / "b.jsonl", at=1)
    put(tmp_path / "two" / "c.jsonl", at=2)
    found = journal_files.find_journal_files([tmp_path / "one", tmp_path / "two"])
    assert names(found) == ["b.jsonl", "c.jsonl", "a.jsonl"]
    assert found.journals == (tmp_path / "one" / "host-1", tmp_path / "one" / "host-2")


@pytest.mark.parametrize(
    "name",
    [
        f"{OPEN}/a.jsonl", ".a.jsonl", "_a.jsonl", "a.txt", "a.jsonl.partial", ".azDownload-1-a.jsonl",
        ".a.jsonl.Xy12", "_temporary/a.jsonl", ".drain/run/a.jsonl",
    ],
)  # fmt: skip
def test_files_that_are_not_whole_are_no_journal_files(tmp_path: Path, name: str) -> None:
    put(tmp_path / name)
    put(tmp_path / "b.jsonl")
    assert names(journal_files.find_journal_files([tmp_path])) == ["b.jsonl"]


def test_a_place_that_is_reached_twice_is_listed_once(tmp_path: Path) -> None:
    path = put(tmp_path / "host-1" / CLOSED / "a.jsonl")
    (path.parent / "again.jsonl").symlink_to(path)
    (tmp_path / "host-2").symlink_to(tmp_path / "host-1")
    assert len(journal_files.find_journal_files([tmp_path, tmp_path / "host-1", path.parent]).files) == 1


def test_loops_of_links_end(tmp_path: Path) -> None:
    put(tmp_path / "host-1" / CLOSED / "a.jsonl")
    (tmp_path / "host-1" / "up").symlink_to(tmp_path)
    (tmp_path / "itself").symlink_to(tmp_path / "itself")
    (tmp_path / "itself.jsonl").symlink_to(tmp_path / "itself.jsonl")
    found = journal_files.find_journal_files([tmp_path])
    assert names(found) == ["a.jsonl"]
    (note,) = found.notes
    assert "itself" in note
    assert "symbolic links" in note


SKIPPED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link to a file that is gone": (lambda folder: (folder / "a.jsonl").symlink_to(folder / "gone"), ""),
    "a pipe, which is not waited for": (
        lambda folder: os.mkfifo(folder / "a.jsonl"), "a.jsonl cannot be read (neither a file nor a folder)",
    ),
    "a line end in its name": (lambda folder: put(folder / "a\nb.jsonl"), "its name is no text; rename it"),
    "an escape in its name": (lambda folder: put(folder / "a\x1b[2Jb.jsonl"), "its name is no text; rename it"),
    "no text as its name": (
        lambda folder: put(folder / os.fsdecode(b"a\xffb.jsonl")), "its name is no text; rename it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SKIPPED)
def test_a_place_that_is_no_file_is_skipped_with_a_note(tmp_path: Path, name: str) -> None:
    make, note = SKIPPED[name]
    make(tmp_path)
    put(tmp_path / "b.jsonl")
    found = journal_files.find_journal_files([tmp_path])
    assert names(found) == ["b.jsonl"]
    assert [one.endswith(note) and one.isprintable() for one in found.notes] == [True] * bool(note)
    assert journal_files.find_journal_files([tmp_path]).notes == found.notes


def test_a_folder_whose_name_is_no_text_is_not_entered(tmp_path: Path, approve: Approve) -> None:
    put(tmp_path / "a\nb" / "a.jsonl")
    found = journal_files.find_journal_files([tmp_path])
    assert found.files == ()
    approve.part(found.notes[0], "errors of the pipeline")


def test_many_skipped_places_are_counted(tmp_path: Path, approve: Approve) -> None:
    for number in range(40):
        put(tmp_path / f"a\n{number:02}.jsonl")
    (note,) = journal_files.find_journal_files([tmp_path]).notes
    approve.part(note, "errors of the pipeline", has=("35 more",))


def test_a_folder_that_may_not_be_read_is_reported_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = put(tmp_path / "host-1" / CLOSED / "a.jsonl").parent
    put(tmp_path / "host-2" / CLOSED / "b.jsonl")
    lock(monkeypatch, locked)
    found = journal_files.find_journal_files([tmp_path])
    assert names(found) == ["b.jsonl"]
    assert found.notes == (f"{locked} cannot be read (Permission denied)",)


def test_no_file_in_any_root_is_an_error_with_the_places(tmp_path: Path, approve: Approve) -> None:
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        root.mkdir()
    found = journal_files.find_journal_files(roots)
    approve.part(found.none_yet(), "errors of the pipeline")
    with pytest.raises(PairedError) as refused:
        found.require()
    approve.part(refused.value, "errors of the pipeline")


def test_no_file_that_may_be_read_is_an_error_with_the_reason(tmp_path: Path, approve: Approve) -> None:
    put(tmp_path / "a\nb.jsonl")
    with pytest.raises(PipelineError) as refused:
        journal_files.find_journal_files([tmp_path]).require()
    approve.part(refused.value, "errors of the pipeline")


def test_a_file_that_an_engine_writes_is_waited_for(tmp_path: Path, approve: Approve) -> None:
    put(tmp_path / "host-1" / OPEN / "a.jsonl")
    (tmp_path / "host-1" / CLOSED).mkdir()
    found = journal_files.find_journal_files([tmp_path])
    found.require()
    assert found.none_yet() == ""
    with pytest.raises(PipelineError) as refused:
        found.require_whole()
    approve.part(refused.value, "errors of the pipeline")


@pytest.mark.parametrize("root", ["nowhere", "file.jsonl", "a\x00b"])
def test_a_root_that_is_no_folder_is_refused(tmp_path: Path, root: str) -> None:
    put(tmp_path / "file.jsonl")
    with pytest.raises(PipelineError, match=r"there is no journal in|which is no folder|cannot be read"):
        journal_files.find_journal_files([tmp_path, tmp_path / root])


def test_a_root_that_may_not_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approve: Approve
) -> None:
    lock(monkeypatch, tmp_path)
    with pytest.raises(PipelineError) as refused:
        journal_files.find_journal_files([tmp_path])
    approve.part(refused.value, "errors of the pipeline")


@pytest.mark.parametrize("url", ["https://host/journal", "wasbs://c@account/x"])
def test_a_url_of_no_store_is_refused_with_those_that_are(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"no place for journals or tables: .* s3a://BUCKET/PATH"):
        journal_files.find_journal_files([Path(url)])


@pytest.mark.parametrize("url", ["s3a://key:c4n4ry@bucket/x", "abfss://c@account.dfs.core.windows.net/x?sig=c4n4ry"])
def test_a_key_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError, match="belongs into the environment") as refused:
        place_of(url)
    assert "c4n4ry" not in str(refused.value)


def test_a_place_is_a_folder_or_a_path_in_a_store() -> None:
    assert place_of("file:///srv/journal") == Path("/srv/journal")
    assert place_of(Path("/srv/journal")) == Path("/srv/journal")
    for written in ("s3://bucket/a/b/", "s3a://bucket/a/b", Path("s3a://bucket/a/b")):
        assert str(place_of(written)) == "s3a://bucket/a/b"


# -- Copies in progress: which files may change after they were read


def a_file(path: Path, text: str = "{}\n", *, age: float = 0.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def young(folder: Path) -> dict[str, int]:
    found = journal_files.young_files(journal_files.find_journal_files([folder]).files, time.time())
    return {Path(path).name: size for path, size in found.items()}


def test_files_that_were_changed_lately_are_watched_and_half_a_line_waits(tmp_path: Path) -> None:
    a_file(tmp_path / "old.jsonl", age=journal_files.SETTLED + 9)
    a_file(tmp_path / "old-half.jsonl", '{"v":1', age=journal_files.SETTLED + 9)
    a_file(tmp_path / "new.jsonl")
    a_file(tmp_path / "new-half.jsonl", '{"v":1')
    a_file(tmp_path / "empty.jsonl", "")
    assert young(tmp_path) == {"new.jsonl": 3, "new-half.jsonl": -1, "empty.jsonl": 0}


def test_an_engine_is_asked_before_each_look_and_once() -> None:
    now = 0.0
    countdown = journal_files.Countdown(1.8, 5.0, clock=lambda: now)
    due = []
    for tenth in range(150):
        now = tenth / 10
        if countdown.is_due():
            due.append(now)
    assert due == [0.0, 3.2, 8.2, 13.2]


def test_a_journal_that_cannot_be_written_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flusher = journal_files.JournalFlusher()
    for _ in range(3):
        flusher.ask([tmp_path / "nowhere"])
    assert len(caplog.records) == 1
    (tmp_path / "events").mkdir()
    flusher.ask([tmp_path])
    assert (tmp_path / "asked").exists()
