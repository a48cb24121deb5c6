"""`paired pipeline` as a terminal sees it, over a pipeline that Ctrl-C meets."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.pipeline import command
from console.pipeline.command import run_pipeline
from console.pipeline.lake import Lake


class Interrupted:
    """A pipeline whose person has had enough."""

    def __init__(self) -> None:
        self.log = Path("pipeline.log")
        self.running = True

    def wait(self) -> int:
        raise KeyboardInterrupt

    def stop(self) -> None:
        self.running = False

    def note(self) -> str:
        return ""


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Interrupted:
    pipeline = Interrupted()
    monkeypatch.setattr(command, "start_pipeline", lambda **_: pipeline)
    return pipeline


def run(folder: Path, *, once: bool) -> int:
    return run_pipeline(journal=folder, tables=folder, once=once, master=None, trigger=5.0, java_home=None)


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
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, once=True)
    assert not pipeline.running
