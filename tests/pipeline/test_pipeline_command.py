"""`paired pipeline` as a terminal sees it, over a pipeline that Ctrl-C meets."""

from __future__ import annotations

from pathlib import Path

import pytest
from paired_servicebus.pipeline.ingest.journal_source import require_files, require_whole_files

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.engine.journal import spool
from paired_servicebus.engine.journal.spool import CLOSED
from paired_servicebus.pipeline import pipeline_command
from paired_servicebus.pipeline.pipeline_command import run_pipeline
from paired_servicebus.pipeline.spark_processes import PipelineOrder
from paired_servicebus.pipeline.table_store.lake import Lake


class Interrupted:
    """A pipeline whose person has had enough."""

    def __init__(self) -> None:
        self.log = Path("pipeline.log")
        self.running = True

    def wait(self, timeout: float | None = None) -> int:
        raise KeyboardInterrupt

    def stop(self) -> None:
        self.running = False


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Interrupted:
    pipeline = Interrupted()
    monkeypatch.setattr(pipeline_command, "start_pipeline", lambda _: pipeline)
    return pipeline


def run(folder: Path, *, once: bool) -> int:
    return run_pipeline(PipelineOrder(journals=(folder,), tables=folder, once=once))


def test_ctrl_c_is_the_end_of_one_that_follows(
    pipeline: Interrupted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Lake(tmp_path):
        pass
    assert run(tmp_path, once=False) == 0
    assert not pipeline.running
    assert "0 events" in capsys.readouterr().out


def test_tables_that_were_not_all_made_are_not_called_done(pipeline: Interrupted, tmp_path: Path) -> None:
    """The bug: the exit status was 0, and what came next in a script read old tables."""
    with Lake(tmp_path):
        pass
    (tmp_path / CLOSED / "e-1-1.jsonl").touch()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, once=True)
    assert not pipeline.running


@pytest.mark.parametrize("has_events", [True, False])
def test_once_over_no_journal_file_is_an_error_that_says_where_it_looked(
    pipeline: Interrupted, tmp_path: Path, has_events: bool
) -> None:
    """Tables of nothing would look like a success: exit status 0, 0 events, nothing lost."""
    looked = tmp_path / CLOSED if has_events else tmp_path
    looked.mkdir(exist_ok=True)
    with pytest.raises(PipelineError, match=f"there are no journal files in {tmp_path}: "):
        run(tmp_path, once=True)


def test_following_no_journal_file_waits_and_says_where(
    pipeline: Interrupted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Lake(tmp_path):
        pass
    assert run(tmp_path, once=False) == 0
    assert f"there are no journal files in {tmp_path} yet: waiting for an engine" in capsys.readouterr().out


def test_a_file_that_an_engine_still_writes_is_one_and_is_waited_for(tmp_path: Path) -> None:
    spool.prepare(tmp_path)
    (tmp_path / spool.OPEN / "e-1-1.jsonl").touch()
    require_files(tmp_path)
    with pytest.raises(PipelineError, match="no whole journal files"):
        require_whole_files(tmp_path)
