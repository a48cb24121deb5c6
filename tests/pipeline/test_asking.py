"""When an engine is asked for its journal: in time before Spark looks, once, and where there is an engine at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.engine import spool
from console.pipeline.asking import Asking

TRIGGER = 5.0


def asks(folder: Path, *moments: float) -> list[bool]:
    """Whether it asked at each of these moments, of the clock's seconds."""
    now = iter(moments)
    asking = Asking(folder, TRIGGER, clock=lambda: next(now))
    found = []
    for _ in moments:
        (folder / spool.ASKED).unlink(missing_ok=True)
        asking.look()
        found.append(spool.asked(folder) > 0)
    return found


def test_it_asks_once_before_each_look_of_sparks(tmp_path: Path) -> None:
    spool.prepare(tmp_path)
    assert asks(tmp_path, 101.0, 102.0, 103.4, 103.6, 104.0, 105.1, 108.4, 108.6) == [
        True, False, False, True, False, False, False, True,
    ]  # fmt: skip


def test_a_folder_that_is_no_engines_is_left_as_it_is(tmp_path: Path) -> None:
    Asking(tmp_path, TRIGGER).look()
    assert not list(tmp_path.iterdir())


def test_a_journal_that_may_not_be_written_to_is_followed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spool.prepare(tmp_path)

    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(spool, "ask", refuse)
    now = iter((101.0, 106.0))
    asking = Asking(tmp_path, TRIGGER, clock=lambda: next(now))
    asking.look()
    asking.look()
    assert [record.message.count("Permission denied") for record in caplog.records] == [1]
