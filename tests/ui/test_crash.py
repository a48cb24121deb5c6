"""An unexpected error ends in a file and one sentence, never on the screen."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.worker import WorkerFailed

from console.ui.crash import CrashLog

CANARY = "SharedAccessKey=canary"


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before = list(root.handlers)
    yield root
    for handler in set(root.handlers) - set(before):
        root.removeHandler(handler)
        handler.close()


def crash_with(log: CrashLog) -> None:
    secret = CANARY  # noqa: F841 - a local that must not be written
    try:
        raise RuntimeError("something unforeseen")
    except RuntimeError as error:
        log.report(error)


def test_the_file_has_the_traceback_and_no_locals(state_folder: Path) -> None:
    log = CrashLog("orders")
    crash_with(log)
    file = next(state_folder.rglob("dashboard.log"))
    assert "RuntimeError: something unforeseen" in file.read_text()
    assert CANARY not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert log.said.endswith(f"What happened is in {file}")
    assert "\n" not in log.said


def test_a_folder_that_cannot_be_made_is_said(state_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = state_folder / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    log = CrashLog("orders")
    crash_with(log)
    assert "It could not be written to" in log.said


def test_libraries_log_into_the_file(
    state_folder: Path, root_logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    CrashLog("orders").quiet_libraries()
    assert list(state_folder.rglob("dashboard.log")) == [], "made when there is something to write"
    logging.getLogger("some.library").warning("a library's log line")
    assert "a library's log line" in next(state_folder.rglob("dashboard.log")).read_text()
    assert "library" not in "".join(capsys.readouterr())


async def test_what_fails_behind_the_screen_is_reported_with_its_cause(new_app: Any, state_folder: Path) -> None:
    log = CrashLog("orders")
    app, feed = new_app(report=log.report)

    async def fail(_tell: Any) -> None:
        raise RuntimeError("the feed broke")

    feed.run = fail

    async def watch() -> None:
        async with app.run_test() as pilot:
            await pilot.pause()

    with pytest.raises(WorkerFailed):
        await watch()
    assert "RuntimeError: the feed broke" in next(state_folder.rglob("dashboard.log")).read_text()


async def test_the_app_ends_with_1_and_prints_nothing(
    new_app: Any, made: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[BaseException] = []
    app, feed = new_app(report=reported.append)

    def broken(*_: Any) -> None:
        raise RuntimeError("something unforeseen")

    async def watch() -> None:
        async with app.run_test() as pilot:
            monkeypatch.setattr("console.ui.widgets.header_line.HeaderClock.lines", broken)
            feed.tell(made.snapshot())
            await pilot.pause()

    with pytest.raises(RuntimeError, match="something unforeseen"):  # Pilot hands it on; the terminal sees nothing
        await watch()
    assert app.return_code == 1
    assert [str(error) for error in reported] == ["something unforeseen"]
    assert "".join(capsys.readouterr()) == ""
