"""The stream of batches: what is repeated after a failure, where it goes on, and which files it reads again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.pipeline.ingest import batch_loop
from paired_servicebus.pipeline.ingest.batch_loop import CHECKPOINTS, TRIES, BatchLoop
from paired_servicebus.pipeline.table_store.lake import Change, Lake

GONE = "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file {}. File does not exist. It is possible"


class Query:
    """A stream's query that ends as given: with an error, or with all read."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def awaitTermination(self, _: float) -> bool:
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        pass


class Texts:
    """Spark's reader of texts, which notes what is read."""

    def __init__(self) -> None:
        self.read = self
        self.conf = {"spark.master": "local[2]"}
        self.paths: list[str] = []

    def option(self, *_: str) -> Texts:
        return self

    def text(self, paths: list[str]) -> Texts:
        self.paths += paths
        return self

    def select(self, *_: str) -> Texts:
        return self

    def newSession(self) -> Texts:
        return self


class Played:
    """The tables of a batch, which only commit its fields."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    def add(self, _: object, fields: dict[str, Any]) -> None:
        self.lake.commit(lambda _: Change(fields=fields))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / "a.jsonl").write_text("{}\n")
    return tmp_path / "j"


@pytest.fixture
def loop_of(journal: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Lake], BatchLoop]:
    monkeypatch.setattr(batch_loop, "PAUSE", 0.0)
    monkeypatch.setattr(batch_loop, "BatchTables", lambda _, lake: Played(lake))
    return lambda lake: BatchLoop(Texts(), lake, [journal])


def run(loop: BatchLoop, monkeypatch: pytest.MonkeyPatch, *errors: Exception | None) -> int:
    """Run a stream whose queries end so; how many were started."""
    left = list(errors)
    monkeypatch.setattr(loop, "_start", lambda _: Query(left.pop(0)))
    loop._run(lambda _: None)
    return len(errors) - len(left)


def test_a_passing_error_is_no_end(
    loop_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Lake(tmp_path / "t") as lake:
        assert run(loop_of(lake), monkeypatch, RuntimeError("lost a task"), RuntimeError("lost a task"), None) == 3
    assert "a batch is repeated (2 of 3): RuntimeError: lost a task" in capsys.readouterr().out


def test_an_error_that_stays_is_raised(loop_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Lake(tmp_path / "t") as lake, pytest.raises(RuntimeError, match="connect back"):
        run(loop_of(lake), monkeypatch, *[RuntimeError("failed to connect back")] * TRIES, None)


def test_a_full_disk_is_an_end_at_once(loop_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Lake(tmp_path / "t") as lake, pytest.raises(OSError, match="No space"):
        run(loop_of(lake), monkeypatch, OSError(28, "No space left on device"), None)


def test_files_that_the_journal_gave_up_are_left_out(
    loop_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = RuntimeError(GONE.format("file:///nowhere/a.jsonl"))
    with Lake(tmp_path / "t") as lake:
        loop = loop_of(lake)
        assert run(loop, monkeypatch, error, None) == 2
        assert loop._leaves_gone_files


def test_a_file_that_only_this_process_sees_is_one_sentence(
    loop_of: Any, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = RuntimeError(GONE.format((journal / "a.jsonl").as_uri()))
    with Lake(tmp_path / "t") as lake:
        loop = loop_of(lake)
        with pytest.raises(PipelineError, match=r"a worker of Spark's does not see .*a\.jsonl"):
            run(loop, monkeypatch, error, None)
        assert not loop._leaves_gone_files


def name(loop_of: Any, lake: Lake) -> str:
    found: str = loop_of(lake)._name
    return found


@pytest.mark.parametrize(
    ("taken", "offsets", "commits", "goes_on"),
    [
        (-1, [], [], True),
        (-1, [0], [], True),  # killed before the first batch was in the tables
        (0, [0], [], True),  # killed between the tables' commit and the checkpoint's
        (3, [2, 3], [2], True),
        (3, [2, 3], [2, 3], True),
        (3, [2, 3, 4], [2, 3, 4], False),  # the tables lost their newest version
        (0, [], [], False),  # the checkpoint is lost
        (3, [0], [0], False),
    ],
)
def test_the_stream_goes_on_with_its_checkpoint_or_reads_all_files_again(
    loop_of: Any, tmp_path: Path, taken: int, offsets: list[int], commits: list[int], goes_on: bool
) -> None:
    """What the tables have already is known by its numbers."""
    with Lake(tmp_path / "t") as lake:
        first = name(loop_of, lake)
        for folder, numbers in (("offsets", offsets), ("commits", commits)):
            place = tmp_path / "t" / CHECKPOINTS / first / folder
            place.mkdir(parents=True)
            for number in numbers:
                (place / str(number)).touch()
        lake.commit(lambda _: Change(fields={"stream": first, "stream_batch": taken}))
        assert (name(loop_of, lake) == first) is goes_on


def test_a_batch_that_was_committed_and_comes_again_is_not_taken(loop_of: Any, tmp_path: Path) -> None:
    with Lake(tmp_path / "t") as lake:
        loop = loop_of(lake)
        for number in (0, 1, 1, 0):
            loop.add_batch(None, number)
        assert lake.manifest.batch == 2


def test_a_file_that_grew_since_it_was_read_is_read_again(loop_of: Any, journal: Path, tmp_path: Path) -> None:
    path = journal / "a.jsonl"
    with Lake(tmp_path / "t") as lake:
        loop = loop_of(lake)
        loop.add_batch(None, 0)
        loop.read_changed()
        assert loop._spark.paths == []
        path.write_text("{}\n{}\n")
        loop.read_changed()
        loop.read_changed()
        assert loop._spark.paths == [str(path)]


def test_half_a_copy_waits_until_it_is_whole(loop_of: Any, journal: Path, tmp_path: Path) -> None:
    path = journal / "a.jsonl"
    with Lake(tmp_path / "t") as lake:
        lake.commit(lambda _: Change(fields={"young": {str(path): -1}}))
        loop = loop_of(lake)
        path.write_text('{"v":1')
        loop.read_changed()
        assert loop._spark.paths == []
        path.write_text('{"v":1}\n')
        loop.read_changed()
        assert loop._spark.paths == [str(path)]
