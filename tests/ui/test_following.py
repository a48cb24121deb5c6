"""Engines followed without a screen: "One line a change, the same sentences, no colour codes"."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.ui.state.view import Missed, Reached, Records, Unreachable
from paired_servicebus.verbs import status as follow_module
from paired_servicebus.verbs.status import Follower, follow
from tests.approval import Approve


@pytest.fixture
def said() -> list[str]:
    return []


async def test_an_engine_that_is_not_there_yet_is_waited_for(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_module, "LOOK_AROUND", 0.0)
    places = EnginePaths(state=tmp_path / "orders", socket=tmp_path / "s")
    found: list[EnginePaths] = []
    started: list[Path] = []
    monkeypatch.setattr(follow_module, "find_socket", lambda each: each.socket)

    class Feed:
        def __init__(self, socket: Path) -> None:
            started.append(socket)

        async def run(self, tell: Any) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(follow_module, "EngineFeed", Feed)
    task = asyncio.create_task(follow(lambda: found, said.append, named=True))
    async with asyncio.timeout(60):
        while not said:
            await asyncio.sleep(0)
        found.append(places)
        while not started:
            await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    assert "here yet" in said[0]
    assert started == [tmp_path / "s"], "followed once"


def test_what_was_told_before_the_engine_was_met_is_no_news(made: Any, said: list[str]) -> None:
    follower = Follower("orders", said.append, named=False)
    follower.tell(made.snapshot(boot="b2", seq=3))
    follower.tell(Records([made.record(e.Warned(at=made.AT - 60, about="journal", text="old"), 900, "b1")]))
    assert [line for line in said if "old" in line] == []


def test_followed_engines_are_as_approved(made: Any, said: list[str], approve: Approve) -> None:
    """`14:01:58 payments failed over: no send accepted for 60 s after "connection lost"`"""
    follower = Follower("orders", said.append, named=True)
    follower.tell(Reached())
    follower.tell(made.snapshot(seq=10))
    follower.tell(Records(made.records()))  # numbers 9 to 12: 9 and 10 are told already
    assert len(said) == 3
    for _ in range(3):
        follower.tell(Unreachable(made.at("14:05:00"), "it ended"))
    follower.tell(Missed(4))
    said[-1] = said[-1].replace(said[-1].split()[0], "NOW")
    follower.tell(made.snapshot(boot="b2", seq=1))
    follower.tell(Records([made.record(e.Warned(at=made.AT, about="journal", text="\x1b[2Jred\nline"), 1, "b2")]))
    assert len(said) == 7
    assert not any("\x1b" in line or "\n" in line for line in said)
    approve("\n".join(said), "followed engines")
