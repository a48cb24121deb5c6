"""A few screens compared with their baselines, cell by cell and colour by colour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from console.ui.profile import PROFILES, ProfileName
from console.ui.view import Neighbour, Neighbours, Records

SCREENS: dict[str, tuple[tuple[int, int], dict[str, Any], tuple[str, ...]]] = {
    "failed-over-80x24": ((80, 24), {}, ()),
    "failed-over-140x40": ((140, 40), {}, ()),
    "failed-over-light": ((80, 24), {"theme": "light"}, ()),
    "failed-over-plain": ((80, 24), {"profile": PROFILES[ProfileName.PLAIN], "theme": "mono"}, ()),
    "failed-over-contrast": ((80, 24), {"theme": "contrast"}, ()),
    "unreachable": ((80, 24), {"lose": True}, ()),
    "force": ((80, 24), {}, ("down", "f")),
    "force-60x20": ((60, 20), {}, ("down", "f")),
    "help": ((80, 24), {}, ("question_mark",)),
    "dashboard-60x20": ((60, 20), {}, ()),
    "filter": ((80, 24), {}, ("slash", *"pay")),
    "marked-and-sorted": ((80, 24), {}, ("s", "space", "space")),
    "entity-80x24": ((80, 24), {}, ("down", "enter")),
    "entity-140x40": ((140, 40), {}, ("down", "enter")),
    "entity-plain": ((80, 24), {"profile": PROFILES[ProfileName.PLAIN], "theme": "mono"}, ("down", "enter")),
    "entity-unreachable": ((80, 24), {"lose": True}, ("down", "enter")),
    "backlog-80x24": ((80, 24), {}, ("3", *["down"] * 8)),
    "backlog-140x40": ((140, 40), {}, ("3", *["down"] * 8)),
    "backlog-stranded": ((80, 24), {}, ("3", "end")),
    "timeline-80x24": ((80, 24), {}, ("4",)),
    "timeline-140x40": ((140, 40), {}, ("4", "up")),
    "cost-80x24": ((80, 24), {}, ("5",)),
    "cost-140x40": ((140, 40), {}, ("5",)),
    "engines-80x24": ((80, 24), {}, ("7", "down", "space")),
    "engines-140x40": ((140, 40), {}, ("7", "a")),
}
PAGES = ("dashboard-60x20", "filter", "marked", "entity", "backlog", "timeline", "cost")
"""Pictures of an engine that tells everything it can; the others are of one that tells what it always did."""


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
def test_picture(name: str, snap_compare: Any, new_app: Any, outage_news: Any, made: Any) -> None:
    size, options, keys = SCREENS[name]
    if name.startswith(PAGES):
        outage_news = (Records(made.records()), made.backlog())
    if name.startswith("engines"):
        gone = "no engine answers at /run/user/1000/paired/audit.sock (Connection refused): start one with paired up"
        billing = Neighbour("billing", "degraded", made.outage(at=made.AT - 4))
        outage_news = (*outage_news, Neighbours((Neighbour("audit", "unreachable", None, gone), billing)))
    app, feed = new_app(**{key: value for key, value in options.items() if key != "lose"})
    lose = bool(options.get("lose"))
    assert snap_compare(app, terminal_size=size, run_before=prepare(feed, outage_news, keys, lose=lose))
