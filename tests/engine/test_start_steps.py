"""The steps of a start: from the engine through the pipe to the terminal of the person who waits."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from paired_servicebus.core.errors import EngineStartError
from paired_servicebus.engine.service.launcher import Failed, Launch, Ready, Step, report
from paired_servicebus.verbs.start_display import StartDisplay
from tests.approval import Approve

READY = Ready(pid=1, socket="/s", log="/l", backlog_queues=10)
REACHED = Step(name="contoso-backup", text="reached in 0.2 s", is_over=True)
WAITING = Step(name="contoso", text="no answer yet (timeout after 10 s)")


class Gone:
    """A process that has ended."""

    def terminate(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int:
        return 0


def steps_then(outcome: Ready | Failed, tmp_path: Path) -> tuple[Launch, list[Step | None]]:
    reading, writing = os.pipe()
    for said in (WAITING, REACHED, outcome):
        report(writing, said)
    return Launch(Gone(), reading, tmp_path / "log"), []  # type: ignore[arg-type]


def test_the_starter_gets_each_step_before_the_report(tmp_path: Path) -> None:
    launch, told = steps_then(READY, tmp_path)
    with launch:
        assert launch.wait(5, told=told.append) == READY
    assert told == [WAITING, REACHED]


def test_a_failure_after_some_steps_is_its_own_sentence(tmp_path: Path) -> None:
    launch, told = steps_then(Failed(text="the secondary does not answer"), tmp_path)
    with launch, pytest.raises(EngineStartError, match="the secondary does not answer"):
        launch.wait(5, told=told.append)


def test_a_live_terminal_shows_what_is_waited_for_and_how_long(approve: Approve) -> None:
    out, now = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), [0.0]
    shown = StartDisplay("orders", out, is_live=True, monotonic=lambda: now[0])
    shown(WAITING)
    shown(REACHED)
    now[0] = 6.0
    shown(None)
    out.seek(0)
    last = out.read().split("\x1b[3A")[-1]
    approve.part(last, "errors of the engine", has=("10 s", "6 s", "0.2 s"))


def test_a_terminal_that_cannot_move_its_cursor_gets_the_steps_that_are_over(approve: Approve) -> None:
    out = io.StringIO()
    shown = StartDisplay("orders", out, is_live=False)
    for step in (WAITING, None, REACHED):
        shown(step)
    approve.part(out.getvalue(), "errors of the engine", has=("0.2 s",))


def test_a_strangers_text_in_a_step_moves_no_cursor() -> None:
    out = io.StringIO()
    StartDisplay("orders", out, is_live=False)(Step(name="a\x1b[2Jb", text="c\x1b]52;x", is_over=True))
    assert "\x1b" not in out.getvalue()
