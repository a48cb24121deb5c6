"""A batch that failed is repeated, until it has failed too often; what the files did meanwhile decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.pipeline.ingest import batch_loop
from paired_servicebus.pipeline.ingest.batch_loop import TRIES, BatchLoop
from paired_servicebus.pipeline.ingest.batch_tables import ShortReadError
from paired_servicebus.pipeline.ingest.journal_files import JournalFile
from paired_servicebus.pipeline.table_store.lake import Lake
from paired_servicebus.pipeline.table_store.manifest import Manifest

Step = Callable[[Sequence[JournalFile]], None]
GONE = "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file"


def fails(_: Sequence[JournalFile]) -> None:
    raise RuntimeError("Python worker failed to connect back.")


def is_short(_: Sequence[JournalFile]) -> None:
    raise ShortReadError("workers read 1 of 3 bytes")


def is_blind(_: Sequence[JournalFile]) -> None:
    raise RuntimeError(GONE)


def ends(_: Sequence[JournalFile]) -> None:
    pass


class Played:
    """The tables of a batch, whose takes end as given."""

    def __init__(self, *steps: Step) -> None:
        self.left = list(steps)
        self.taken: list[str] = []

    def take(self, files: Sequence[JournalFile]) -> Manifest:
        self.left.pop(0)(files)
        self.taken += [one.path.name for one in files]
        return Manifest(batch=len(self.taken))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / "a.jsonl").write_text("{}\n")
    return tmp_path / "j"


@pytest.fixture
def loop(tmp_path: Path, journal: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[BatchLoop, Played]]:
    monkeypatch.setattr(batch_loop, "PAUSE", 0.0)

    def made(*steps: Step) -> tuple[BatchLoop, Played]:
        played = Played(*steps)
        monkeypatch.setattr(batch_loop, "BatchTables", lambda *_: played)
        with Lake(tmp_path / "t") as lake:
            return BatchLoop(None, lake, [journal]), played

    return made


def test_a_passing_error_is_no_end(loop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found, played = loop(fails, fails, ends)
    assert found.take_next()
    assert played.taken == ["a.jsonl"]
    assert not found.take_next(), "it is taken"
    assert "repeated (2 of 3): RuntimeError: Python worker failed" in capsys.readouterr().out


def test_an_error_that_stays_is_raised(loop: Any) -> None:
    found, played = loop(*[fails] * TRIES, ends)
    with pytest.raises(RuntimeError, match="connect back"):
        found.take_next()
    assert len(played.left) == 1


def test_a_full_disk_is_an_end_at_once(loop: Any) -> None:
    def is_full(_: Sequence[JournalFile]) -> None:
        raise OSError(28, "No space left on device")

    found, _ = loop(is_full)
    with pytest.raises(OSError, match="No space"):
        found.take_next()


def test_a_short_read_of_unchanged_files_is_an_end_at_once(loop: Any) -> None:
    found, _ = loop(is_short)
    with pytest.raises(ShortReadError):
        found.take_next()


def test_a_short_read_of_a_file_that_grew_is_repeated(loop: Any, journal: Path) -> None:
    def grows(files: Sequence[JournalFile]) -> None:
        (journal / "a.jsonl").write_text("{}\n{}\n")
        is_short(files)

    found, played = loop(grows, ends)
    (taken,) = found.take_next()
    assert taken.size == 6
    assert played.taken == ["a.jsonl"]


def test_files_that_only_this_process_sees_are_one_sentence(loop: Any) -> None:
    found, _ = loop(is_blind)
    with pytest.raises(PipelineError, match=r"a worker of Spark's does not see .*a\.jsonl"):
        found.take_next()


def test_files_that_are_gone_are_listed_again(loop: Any, journal: Path) -> None:
    def given_up(files: Sequence[JournalFile]) -> None:
        (journal / "a.jsonl").rename(journal / "b.jsonl")
        is_blind(files)

    found, played = loop(given_up, ends)
    assert found.take_next()
    assert played.taken == ["b.jsonl"]
