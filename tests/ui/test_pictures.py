"""A few screens compared with their baselines, colour by colour: each theme, each profile and each page once.

The words of all screens are scenes in `tests/approved/`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus, TroubleKind
from paired_servicebus.demo.scenarios import scenario_named
from paired_servicebus.ui.display.profile import PROFILES, ProfileName
from paired_servicebus.ui.state.view import Neighbour, Neighbours, Records
from tests import fleet_views, gateway_views, graph_views
from tests.alarm_views import obstacle, trouble
from tests.ui.scripted import snapshot_of
from tests.ui.test_messages import QUEUE, page, parked, row

PLAIN: dict[str, Any] = {"profile": PROFILES[ProfileName.PLAIN], "theme": "mono"}
SCREENS: dict[str, tuple[tuple[int, int], dict[str, Any], tuple[str, ...]]] = {
    "failed-over-80x24": ((80, 24), {}, ()),
    "failed-over-light": ((80, 24), {"theme": "light"}, ()),
    "failed-over-plain": ((80, 24), PLAIN, ()),
    "failed-over-contrast": ((80, 24), {"theme": "contrast"}, ()),
    "unreachable": ((80, 24), {"lose": True}, ()),
    "force": ((80, 24), {}, ("F",)),
    "help": ((80, 24), {}, ("question_mark",)),
    "marked-and-sorted": ((80, 24), {}, ("s", "space", "space")),
    "entity-80x24": ((80, 24), {}, ("enter",)),
    "backlog-80x24": ((80, 24), {}, ("3", *["down"] * 8)),
    "timeline-80x24": ((80, 24), {}, ("4",)),
    "cost-80x24": ((80, 24), {}, ("5",)),
    "engines-80x24": ((80, 24), {}, ("7", "down", "space")),
    "clients-80x24": ((80, 24), {}, ("8",)),
    "states-140x40": ((140, 40), {}, ()),
    "states-colour-blind": ((80, 24), {"theme": "colour-blind"}, ()),
    "states-sixteen": ((80, 24), {"theme": "sixteen"}, ()),
    "states-plain": ((80, 24), PLAIN, ()),
    "alarms": ((80, 24), {}, ()),
    "fleet-80x24": ((80, 24), {}, ()),
    "fleet-page-80x24": ((80, 24), {}, ("7",)),
    "total-loss-80x24": ((80, 24), {}, ()),
    "messages-80x24": ((80, 24), {}, ("3", "enter")),
    "readiness-80x24": ((80, 24), {}, ("exclamation_mark",)),
    "acts-80x24": ((80, 24), {}, ("x",)),
}
PAGES = ("marked", "entity", "backlog", "timeline", "cost")
"""Pictures of an engine that tells everything it can; the others are of one that tells what it always did."""


BOTH_DOWN = 0.45
"""The share of the scenario at which both namespaces are away."""
CURVED = ("failed-over", "entity", "fleet-80x24", "total-loss")
"""Pictures with figures over time."""


def every_state(made: Any) -> Snapshot:
    """An entity in each state."""
    suspect = "connection lost 14:01:58; fails over at 14:02:58 unless a send succeeds"
    pinned = 'pinned by kim 13:50:00 "let it fail"; stays until released'
    unknown = 'no sends by this engine; set probe = ["orders"] to watch it'
    entities = (
        made.entity("orders"),
        made.entity("invoices", State.SUSPECT, since=made.at("14:01:58"), why=suspect, sends_per_second=0.0),
        made.failed_over("payments"),
        made.forced("audit"),
        made.entity("refunds", State.PINNED, since=made.at("13:50:00"), why=pinned),
        made.entity("returns", State.UNKNOWN, why=unknown, sends_per_second=0.0, accepted=0),
    )
    return replace(made.outage(), entities=entities)


SITUATIONS: dict[str, Callable[[Any], Snapshot]] = {
    "states": every_state,
    "fleet": lambda made: made.snapshot(fleet=fleet_views.outage()),
    "clients": lambda made: made.outage(gateway=gateway_views.outage()),
    "alarms": lambda made: replace(
        made.outage(),
        syphon=made.syphon(SyphonStatus.OFF, text="this engine has none"),
        troubles=(trouble(TroubleKind.BACKLOG_STALLED, reason="1,221 parked, no syphon is known"),),
        readiness=obstacle(made.AT, "no backlog queue is open"),
    ),
    "total-loss": lambda made: snapshot_of(scenario_named("both-down"), BOTH_DOWN),
    "messages": lambda _: parked(),
}
"""What an engine tells on a picture whose name begins so; the others tell of the outage."""


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
    for situation, told in SITUATIONS.items():
        if name.startswith(situation):
            outage_news = (Records(made.records()), told(made))
    if name.startswith("engines"):
        gone = "no engine answers at /run/user/1000/paired/audit.sock (Connection refused): start one with paired up"
        billing = Neighbour("billing", "degraded", made.outage(at=made.AT - 4))
        outage_news = (*outage_news, Neighbours((Neighbour("audit", "unreachable", None, gone), billing)))
    if name.startswith(CURVED):
        outage_news = (*outage_news, graph_views.graphs())
    app, feed = new_app(**{key: value for key, value in options.items() if key != "lose"})
    feed.pages = {(QUEUE, "active", 1): page(*(row(number) for number in range(1, 31)), row(31, deliveries=3))}
    lose = bool(options.get("lose"))
    assert snap_compare(app, terminal_size=size, run_before=prepare(feed, outage_news, keys, lose=lose))
