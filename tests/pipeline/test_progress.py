"""How far a process with Spark is: the lines in its log, and what its parent's terminal shows of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paired_servicebus.pipeline.progress_bar import FIRST_LINE, LINE_EVERY, Bar, LogReader, wait_shown
from paired_servicebus.pipeline.spark_processes import NOTE, PROGRESS, ProgressLines


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def written(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if line]


def test_a_process_writes_its_progress_twice_a_second_at_most(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ProgressLines(clock)
    for done in range(100):
        lines.show("reading", done, 100)
        clock.now += 0.05
    found = written(capsys)
    assert 8 <= len(found) <= 12
    assert found[0] == PROGRESS + '{"what":"reading","done":0,"total":100}'


def test_the_begin_and_the_end_of_a_step_are_always_written(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ProgressLines(clock)
    lines.show("reading", 1, 2)
    lines.show("reading", 2, 2)
    lines.show("judging")
    assert [line.split('"')[3] for line in written(capsys)] == ["reading", "reading", "judging"]


def test_without_a_terminal_there_is_a_line_from_time_to_time(
    clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bug: `--once` wrote nothing until it was done."""
    log = tmp_path / "log"
    log.write_text(PROGRESS + '{"what":"reading journal files","done":5000,"total":20000}\n')
    bar = Bar(clock=clock)
    reader = LogReader(log, bar)
    with bar.shown("starting Spark"):
        reader.look()
        assert capsys.readouterr().err == ""
        for _ in range(5):
            clock.now += max(FIRST_LINE, LINE_EVERY / 2)
            reader.look()
    assert capsys.readouterr().err.splitlines() == ["reading journal files: 5,000 of 20,000 · 0/s"] * 3


def test_notes_are_shown_once_and_torn_lines_not_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    bar = Bar()
    reader = LogReader(log, bar)
    reader.look()  # there is no log yet
    note = f"{NOTE}a file \x1b[2J is not read\n"
    log.write_bytes(f"{note}{note}{PROGRESS}{{torn\n{NOTE}half of a li".encode())
    reader.look()
    with log.open("a") as file:
        file.write("ne\n")
    reader.look()
    assert capsys.readouterr().err.splitlines() == ["a file \\x1b[2J is not read", "half of a line"]


def test_the_wait_is_over_with_the_process(tmp_path: Path) -> None:
    statuses: Iterator[int | None] = iter([None, None, 2])
    waits: list[float] = []

    def wait(seconds: float) -> int | None:
        waits.append(seconds)
        return next(statuses)

    look: Callable[[float], int | None] = wait
    assert wait_shown(look, tmp_path / "log", Bar(quiet=True)) == 2
    assert len(waits) == 3
