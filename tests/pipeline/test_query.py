"""A query that ended with an error is begun again, until one batch has failed too often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paired_servicebus.pipeline.spark import restarted_query
from paired_servicebus.pipeline.spark.restarted_query import TRIES, Query

Step = Callable[[], None]
NOWHERE = Path("/no/checkpoint")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarted_query, "PAUSE", 0.0)


class Running:
    """A query as Spark gives it, which ends as told."""

    def __init__(self, end: Step) -> None:
        self.awaitTermination = end
        self.isActive = False


def fails() -> None:
    raise RuntimeError("Python worker failed to connect back.")


def ends() -> None:
    pass


def begun(*steps: Step, place: Callable[[], object] = lambda: 7) -> tuple[Query, Iterator[Step]]:
    """A query whose starts end one by one as `steps` do; and the steps that are left."""
    left = iter(steps)
    return Query("story", NOWHERE, lambda: Running(next(left)), place), left


def test_a_passing_error_is_no_end(capsys: pytest.CaptureFixture[str]) -> None:
    found, left = begun(fails, fails, ends)
    found.finish()
    assert list(left) == []
    assert "story is begun again (2 of 3): RuntimeError: Python worker failed" in capsys.readouterr().out


def test_an_error_that_stays_is_raised() -> None:
    found, left = begun(*[fails] * TRIES, ends)
    with pytest.raises(RuntimeError, match="connect back"):
        found.finish()
    assert len(list(left)) == 1


def test_each_batch_has_its_own_tries() -> None:
    places = iter(range(3 * TRIES))
    found, left = begun(*[fails] * 2 * TRIES, ends, place=lambda: next(places))
    found.finish()
    assert list(left) == []


def test_one_that_is_followed_is_begun_again_and_waited_for_no_longer() -> None:
    found, left = begun(fails, fails, fails)
    found.keep_up()
    assert len(list(left)) == 1


def test_where_spark_itself_has_gone_that_is_said_at_once() -> None:
    def gone() -> None:
        raise ConnectionError("the JVM")

    def start() -> Running:
        if started:
            gone()
        started.append(True)
        return Running(fails)

    started: list[bool] = []
    with pytest.raises(ConnectionError, match="the JVM"):
        Query("story", NOWHERE, start, lambda: 7).finish()


def test_a_checkpoint_that_is_not_whole_is_done_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "story" / "commits").mkdir(parents=True)
    (tmp_path / "story" / "commits" / "0").write_text("v1")
    Query("story", tmp_path / "story", lambda: Running(ends), lambda: 7).finish()
    assert not (tmp_path / "story").exists()
    assert "checkpoint of the story" in capsys.readouterr().out


def test_one_that_somebody_removed_meanwhile_is_done_without(tmp_path: Path) -> None:
    def lacks() -> None:
        raise RuntimeError("[STREAM_FAILED] the checkpoint's file offsets/7 does not exist")

    ending = iter([lacks, ends])
    Query("story", tmp_path / "story", lambda: Running(next(ending)), lambda: 7).finish()
    assert list(ending) == []


def test_so_is_one_that_spark_cannot_use_and_once_only(tmp_path: Path) -> None:
    def lacks() -> None:
        raise RuntimeError("[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot restart")

    starts: list[bool] = []

    def start() -> Running:
        starts.append(checkpoint.exists())
        checkpoint.mkdir(exist_ok=True)
        return Running(lacks)

    checkpoint = tmp_path / "story"
    checkpoint.mkdir()
    with pytest.raises(RuntimeError, match="MISSING_STATE"):
        Query("story", checkpoint, start, lambda: 7).finish()
    assert starts == [True, False, *[True] * (TRIES - 1)]
