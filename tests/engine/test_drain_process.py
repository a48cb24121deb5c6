"""A drain that runs beside an engine is in its snapshot, as long as it says something."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from paired_servicebus.core.errors import DrainError
from paired_servicebus.engine.commands.drain_process import (
    MAX_AGE_SECONDS,
    NO_SPARK,
    DrainProcess,
    DrainProgress,
    clear_progress,
    latest,
    write_progress,
)

from .conftest import Engine, newest_snapshot

SAID = "a drain runs beside: 12 moved"


def test_what_is_old_or_torn_is_nothing(tmp_path: Path) -> None:
    assert latest(tmp_path, now=100.0) is None
    write_progress(tmp_path, DrainProgress(at=100.0, text=SAID))
    assert latest(tmp_path, now=101.0) == DrainProgress(at=100.0, text=SAID)
    assert latest(tmp_path, now=101.0 + MAX_AGE_SECONDS) is None
    (tmp_path / "drain.json").write_bytes(b'{"at":')
    assert latest(tmp_path, now=101.0) is None


def test_a_drain_that_is_over_says_nothing_and_may_end_twice(tmp_path: Path) -> None:
    write_progress(tmp_path, DrainProgress(at=100.0, text=SAID))
    clear_progress(tmp_path)
    clear_progress(tmp_path)
    assert latest(tmp_path, now=100.0) is None


async def test_the_engine_says_that_a_drain_runs_and_no_more_when_it_is_over(engine: Engine) -> None:
    async with engine() as hosted:
        client = await hosted.connect()
        write_progress(hosted.spool, DrainProgress(at=time.time(), text=SAID))
        snapshot = await newest_snapshot(client, lambda each: SAID in each.syphon.text)
        assert snapshot.syphon.text == f"{hosted.pairing.syphon.text}; {SAID}"
        clear_progress(hosted.spool)
        snapshot = await newest_snapshot(client, lambda each: SAID not in each.syphon.text)
        assert snapshot.syphon.text == hosted.pairing.syphon.text
        await client.close()


# -- one that is ordered from the engine -------------------------------------------------------------------------------

STANDS_IN = """
import json, signal, sys, time
from pathlib import Path
from paired_servicebus.engine.commands.drain_process import DrainProgress, write_progress
spool, end = Path(sys.argv[1]), sys.argv[2]
if end == "refused":
    sys.exit("paired: orders@here syphons the same backlog queues")
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
while not told and end == "when told":
    write_progress(spool, DrainProgress(at=time.time(), text="12 moved"))
    time.sleep(0.05)
write_progress(spool, DrainProgress(at=time.time(), text="12 moved"))
print(json.dumps({"complete": end == "at once", "moved": 12, "text": "it was told to end"}))
sys.exit(end != "at once")
"""
"""In place of `paired drain`: says how far it is, ends in order at SIGTERM, and says what came of it."""


Drains = Callable[[str], DrainProcess]


@pytest.fixture
async def drains(tmp_path: Path) -> AsyncIterator[Drains]:
    made: list[DrainProcess] = []

    def drain(end: str) -> DrainProcess:
        command = (sys.executable, "-c", STANDS_IN, str(tmp_path), end)
        made.append(
            DrainProcess(tmp_path / "pairing.toml", pairing="orders", spool=tmp_path, say=said.append, command=command)
        )
        return made[-1]

    said.clear()
    yield drain
    for one in made:
        await one.close()


said: list[str] = []


async def told() -> str:
    """What is said first, as soon as it is."""
    async with asyncio.timeout(60):
        while not said:
            await asyncio.sleep(0.02)
    return said[0]


async def test_it_runs_beside_the_engine_and_ends_in_order_when_told(drains: Drains) -> None:
    draining = drains("when told")
    assert draining.view(time.time()).text == ""
    started = await draining.start(why="the outage of Tuesday")
    assert "the syphon's line shows its progress" in started
    assert draining.view(time.time()).text == "12 moved"
    with pytest.raises(DrainError, match="drains already"):
        await draining.start(why="")
    assert "settles its messages in flight" in draining.end()
    ended = "the drain ended, and not all is drained (it was told to end): 12 messages moved"
    assert await told() == ended


async def test_what_it_moved_is_said_when_it_is_done(drains: Drains) -> None:
    await drains("at once").start(why="")
    assert await told() == "the drain is done: 12 messages moved"


async def test_why_it_does_not_begin_is_the_answer(drains: Drains) -> None:
    draining = drains("refused")
    with pytest.raises(DrainError, match="orders@here syphons the same backlog queues"):
        await draining.start(why="")
    assert draining.view(time.time()).text == ""
    with pytest.raises(DrainError, match="no drain of this pairing runs"):
        draining.end()


async def test_it_ends_with_the_engine(drains: Drains) -> None:
    draining = drains("when told")
    await draining.start(why="")
    await draining.close()
    assert any("12 messages moved" in text for text in said)


def test_one_that_a_person_started_is_ended_too_unless_it_is_elsewhere(
    tmp_path: Path, drains: Drains, monkeypatch: pytest.MonkeyPatch
) -> None:
    draining, killed = drains("at once"), []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    write_progress(tmp_path, DrainProgress(at=time.time(), text="12 moved", pid=4711))
    draining.end()
    assert killed == [(4711, signal.SIGTERM)]
    write_progress(tmp_path, DrainProgress(at=time.time(), text="12 moved", pid=4711, host="far"))
    with pytest.raises(DrainError, match="runs on far: end it there"):
        draining.end()


def test_without_spark_the_act_is_grey_and_says_so(drains: Drains, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paired_servicebus.engine.commands.drain_process.find_spec", lambda _: None)
    assert drains("at once").view(time.time()).trouble == NO_SPARK
