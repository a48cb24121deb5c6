"""An unexpected error ends in a file and one sentence, never on the screen."""

from __future__ import annotations

import contextlib
import logging
import os
import pty
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.worker import WorkerFailed

from paired_servicebus.ui.display.crash_log import CrashLog

KEY = "c4n4ry"
CANARY = f"Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={KEY}"
PROGRAM = """
import sys
from pathlib import Path
from paired_servicebus.ui import run_dashboard
from paired_servicebus.ui.shell import app

def broken(*_):
    connection_string = sys.argv[2]
    raise RuntimeError(f"cannot use {connection_string}")

app.PairedApp.compose = broken
sys.exit(run_dashboard(Path(sys.argv[1]), config_name="orders"))
"""


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
        raise RuntimeError("something unforeseen") from ValueError(CANARY)
    except RuntimeError as error:
        log.report(error)


def test_the_file_has_the_traceback_and_no_locals(state_folder: Path) -> None:
    log = CrashLog("orders")
    crash_with(log)
    file = next(state_folder.rglob("dashboard.log"))
    assert "RuntimeError:" in file.read_text()
    assert KEY not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert log.sentence.endswith(str(file))
    assert "\n" not in log.sentence


def test_a_folder_that_cannot_be_made_is_said(state_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = state_folder / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    log = CrashLog("orders")
    crash_with(log)
    assert "written to" in log.sentence


def test_libraries_log_into_the_file(
    state_folder: Path, root_logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    CrashLog("orders").quiet_libraries()
    assert list(state_folder.rglob("dashboard.log")) == [], "made when there is something to write"
    logging.getLogger("some.library").warning("a library's log line about %s", CANARY)
    written = next(state_folder.rglob("dashboard.log")).read_text()
    assert "library's log" in written
    assert KEY not in written
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
    assert "RuntimeError:" in next(state_folder.rglob("dashboard.log")).read_text()


async def test_the_app_ends_with_1_and_prints_nothing(
    new_app: Any, made: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[BaseException] = []
    app, feed = new_app(report=reported.append)

    def broken(*_: Any) -> None:
        raise RuntimeError("something unforeseen")

    async def watch() -> None:
        async with app.run_test() as pilot:
            monkeypatch.setattr("paired_servicebus.ui.widgets.frame.page_lines.HeaderClock.lines", broken)
            feed.tell(made.snapshot())
            await pilot.pause()

    with pytest.raises(RuntimeError, match="something unforeseen"):  # Pilot hands it on; the terminal sees nothing
        await watch()
    assert app.return_code == 1
    assert [str(error) for error in reported] == ["something unforeseen"]
    assert "".join(capsys.readouterr()) == ""


def test_a_crash_of_a_real_dashboard_shows_no_secret_on_the_terminal_or_in_its_file(state_folder: Path) -> None:
    """A canary connection string appears in no log, screen, journal, crash report or `ps` line."""
    pid, terminal = pty.fork()
    if pid == 0:
        environ = {**os.environ, "TERM": "xterm-256color"}
        os.execve(sys.executable, [sys.executable, "-c", PROGRAM, str(state_folder / "s"), CANARY], environ)
    painted = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while chunk := os.read(terminal, 65536):
            painted += chunk
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    file = next(state_folder.rglob("dashboard.log"))
    assert os.waitstatus_to_exitcode(status) == 1
    assert b"the dashboard ended on an unexpected error (RuntimeError)" in painted
    assert "Endpoint=sb://" in file.read_text()
    assert KEY not in file.read_text() + painted.decode(errors="replace")
