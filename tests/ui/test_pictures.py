"""A few screens compared with their baselines, cell by cell and colour by colour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.pilot import Pilot

SCREENS = {
    "failed-over-80x24": ((80, 24), {}, ()),
    "failed-over-140x40": ((140, 40), {}, ()),
    "failed-over-light": ((80, 24), {}, ("t",)),
    "unreachable": ((80, 24), {"lose": True}, ()),
    "force": ((80, 24), {}, ("down", "f")),
    "help": ((80, 24), {}, ("question_mark",)),
}


def prepare(
    feed: Any, news: Any, keys: tuple[str, ...], *, lose: bool = False
) -> Callable[[Pilot[int]], Awaitable[None]]:
    async def run_before(pilot: Pilot[int]) -> None:
        await pilot.pause()
        feed.tell(*news)
        await pilot.pause()
        await pilot.press(*keys)
        if lose:
            feed.lose()
        await pilot.pause()

    return run_before


@pytest.mark.parametrize("name", SCREENS)
def test_picture(name: str, snap_compare: Any, new_app: Any, outage_news: Any) -> None:
    size, options, keys = SCREENS[name]
    app, feed = new_app()
    assert snap_compare(app, terminal_size=size, run_before=prepare(feed, outage_news, keys, **options))
