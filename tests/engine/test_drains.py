"""A drain that runs beside an engine is in its snapshot, as long as it says something."""

from __future__ import annotations

import time
from pathlib import Path

from console.engine.drains import FRESH, News, fall_silent, news, tell
from console.engine.here import first_snapshot

from .conftest import Engine


def test_what_is_old_or_torn_is_nothing(tmp_path: Path) -> None:
    assert news(tmp_path, now=100.0) == ""
    tell(tmp_path, News(at=100.0, text="a drain runs beside"))
    assert news(tmp_path, now=101.0) == "a drain runs beside"
    assert news(tmp_path, now=101.0 + FRESH) == ""
    (tmp_path / "drain.json").write_bytes(b'{"at":')
    assert news(tmp_path, now=101.0) == ""
    fall_silent(tmp_path)
    fall_silent(tmp_path)


async def test_the_engine_says_that_a_drain_runs(engine: Engine) -> None:
    async with engine() as standing:
        tell(standing.spool, News(at=time.time(), text="a drain runs beside: 12 moved"))
        standing.host._wake()
        while True:
            snapshot = await first_snapshot(standing.socket)
            if "a drain runs beside: 12 moved" in snapshot.syphon.text:
                break
