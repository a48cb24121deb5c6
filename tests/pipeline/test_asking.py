"""When an engine is asked for its journal: in time before Spark looks, once, and where there is an engine at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from paired_servicebus.engine.journal import spool
from paired_servicebus.pipeline.ingest.journal_source import JournalFlusher, PollCountdown


def test_it_is_due_once_before_each_look_of_sparks() -> None:
    moments = (101.0, 102.0, 103.4, 103.6, 104.0, 105.1, 108.4, 108.6)
    now = iter(moments)
    before = PollCountdown(1.5, 5.0, clock=lambda: next(now))
    assert [before.is_due() for _ in moments] == [True, False, False, True, False, False, False, True]


def test_an_engines_journal_is_asked_for(tmp_path: Path) -> None:
    spool.prepare(tmp_path)
    JournalFlusher(tmp_path).ask()
    assert spool.asked(tmp_path) > 0


def test_a_folder_that_is_no_engines_is_left_as_it_is(tmp_path: Path) -> None:
    JournalFlusher(tmp_path).ask()
    assert not list(tmp_path.iterdir())


def test_a_journal_that_may_not_be_written_to_is_followed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spool.prepare(tmp_path)

    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(spool, "ask", refuse)
    asking = JournalFlusher(tmp_path)
    asking.ask()
    asking.ask()
    assert [record.message.count("Permission denied") for record in caplog.records] == [1]


def test_one_that_could_not_be_written_to_for_a_while_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.prepare(tmp_path)
    asking = JournalFlusher(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(spool, "REQUEST_FILE", "no/such/folder")
        asking.ask()
    asking.ask()
    assert spool.asked(tmp_path) > 0
