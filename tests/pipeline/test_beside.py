"""Judging beside batches: nothing waits for it, what comes meanwhile stays, and what is late is given up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.errors import SparkFailedError
from paired_servicebus.pipeline.ingest import table_maintenance
from paired_servicebus.pipeline.ingest.table_maintenance import MaintenanceThread
from paired_servicebus.pipeline.table_store.lake import Lake
from paired_servicebus.pipeline.table_store.manifest import File, Manifest

WITHIN = 30.0


class Session:
    """A session of Spark's, as far as a MaintenanceThread asks: `interrupted` is set when its jobs are."""

    def __init__(self) -> None:
        self.conf: dict[str, str] = {}
        self.interrupted = threading.Event()

    def newSession(self) -> Any:
        class Conf:
            set = self.conf.__setitem__

        session: Any = self
        session.conf = Conf()
        return session

    def addTag(self, tag: str) -> None:
        assert tag == table_maintenance.TAG

    def interruptTag(self, tag: str) -> None:
        assert tag == table_maintenance.TAG
        self.interrupted.set()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with Lake(tmp_path) as lake:
        yield lake


def works(monkeypatch: pytest.MonkeyPatch, *given: table_maintenance.Work) -> None:
    """These are due, one after the other."""
    left = list(given)
    monkeypatch.setattr(table_maintenance, "due_work", lambda _: left.pop(0) if left else None)


def until(look: Callable[[], bool], judge: MaintenanceThread) -> None:
    waited = threading.Event()
    for _ in range(int(WITHIN / 0.01)):
        judge.look()
        if look():
            return
        waited.wait(0.01)
    raise AssertionError("it did not come to that")


def test_a_batch_is_committed_while_a_judgement_works(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: a batch waited for the judgement that it had made due, and the tables were some seconds later."""
    go_on = threading.Event()

    def work(_: Any, lake: Lake) -> None:
        began = lake.manifest
        assert go_on.wait(WITHIN)
        lake.commit(lambda _: {"judged": began.batch})

    works(monkeypatch, work)
    with MaintenanceThread(Session(), lake) as judge:
        judge.look()
        lake.commit(lambda _: {})
        assert lake.manifest.batch == 1
        go_on.set()
        until(lambda: lake.manifest.batch == 2, judge)
    assert lake.manifest.unjudged() == ()


def test_what_came_since_a_judgement_began_stays() -> None:
    old, later, fewer = File("b1", 9, 1, 1), File("b2", 9, 2, 2), File("j1", 9, 1, 1)
    began = Manifest(files={"events": (old,), "story": (old,)})
    now = Manifest(files={"events": (old, later), "story": (old, later)})
    assert table_maintenance.replaced(now, began, {"events": (fewer,)}) == {
        "events": (fewer, later),
        "story": (old, later),
    }


def test_one_work_at_a_time(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, done = threading.Event(), list[int]()

    def first(*_: Any) -> None:
        assert go_on.wait(WITHIN)
        done.append(1)

    works(monkeypatch, first, lambda *_: done.append(2))
    with MaintenanceThread(Session(), lake) as judge:
        judge.look()
        judge.look()
        assert done == []
        go_on.set()
        until(lambda: len(done) == 2, judge)
    assert done == [1, 2]


def test_what_fails_is_raised_by_the_next_look(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*_: Any) -> None:
        raise SparkFailedError("the disk is full")

    works(monkeypatch, work)
    with MaintenanceThread(Session(), lake) as judge, pytest.raises(SparkFailedError, match="the disk is full"):
        until(lambda: False, judge)


def test_what_is_late_is_given_up_and_tried_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session, done = Session(), list[int]()
    monkeypatch.setattr(table_maintenance, "MOST", 0.05)

    def work(*_: Any) -> None:
        if not session.interrupted.wait(WITHIN):
            return
        session.interrupted.clear()
        raise SparkFailedError("interrupted")

    works(monkeypatch, work, lambda *_: done.append(1))
    with MaintenanceThread(session, lake) as judge:
        until(lambda: bool(done), judge)
    assert "was not done within 0.05 s" in caplog.text


def test_what_was_late_between_two_jobs_is_interrupted_in_the_next(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    session, interrupted = Session(), list[bool]()
    monkeypatch.setattr(table_maintenance, "MOST", 0.01)

    def work(*_: Any) -> None:
        assert session.interrupted.wait(WITHIN)
        session.interrupted.clear()  # there was no job then
        interrupted.append(session.interrupted.wait(WITHIN))

    works(monkeypatch, work)
    with MaintenanceThread(session, lake) as judge:
        until(lambda: bool(interrupted), judge)
    assert interrupted == [True]


def test_the_end_of_following_ends_a_work(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    session, ended = Session(), threading.Event()

    def work(*_: Any) -> None:
        assert session.interrupted.wait(WITHIN)
        ended.set()

    works(monkeypatch, work)
    with MaintenanceThread(session, lake) as judge:
        judge.look()
    assert ended.wait(WITHIN)
