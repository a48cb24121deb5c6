"""A drain that runs beside an engine is in its snapshot, as long as it says something."""

from __future__ import annotations

import time
from pathlib import Path

from console.engine.drains import FRESH, News, fall_silent, news, tell

from .conftest import Engine, newest_snapshot

SAID = "a drain runs beside: 12 moved"


def test_what_is_old_or_torn_is_nothing(tmp_path: Path) -> None:
    assert news(tmp_path, now=100.0) == ""
    tell(tmp_path, News(at=100.0, text=SAID))
    assert news(tmp_path, now=101.0) == SAID
    assert news(tmp_path, now=101.0 + FRESH) == ""
    (tmp_path / "drain.json").write_bytes(b'{"at":')
    assert news(tmp_path, now=101.0) == ""


def test_a_drain_that_is_over_says_nothing_and_may_end_twice(tmp_path: Path) -> None:
    tell(tmp_path, News(at=100.0, text=SAID))
    fall_silent(tmp_path)
    fall_silent(tmp_path)
    assert news(tmp_path, now=100.0) == ""


async def test_the_engine_says_that_a_drain_runs_and_no_more_when_it_is_over(engine: Engine) -> None:
    async with engine() as hosted:
        client = await hosted.connect()
        tell(hosted.spool, News(at=time.time(), text=SAID))
        snapshot = await newest_snapshot(client, lambda each: SAID in each.syphon.text)
        assert snapshot.syphon.text == f"{hosted.pairing.syphon.text}; {SAID}"
        fall_silent(hosted.spool)
        snapshot = await newest_snapshot(client, lambda each: SAID not in each.syphon.text)
        assert snapshot.syphon.text == hosted.pairing.syphon.text
        await client.close()
