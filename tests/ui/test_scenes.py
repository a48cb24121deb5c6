"""What a person reads on the screen, in whole scenes that a person approved, at 80x24 and at 140x40.

A scene is a few frames of one running dashboard. The figures and the advice of a frame are asserted by value in the
tests of the widgets; here each word of the whole screen is. The scenes are what was one test a sentence in the modules
of the dashboard, its pages, its questions and its answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from textual.widgets import Input

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetOrder
from paired_servicebus.core.model.message_view import MessageContent, MessageKind, MessagePage, MessageRow
from paired_servicebus.core.model.snapshot import (
    DeadLettersView,
    Finding,
    FindingVerdict,
    OldestView,
    ParkedView,
    Readiness,
    SyphonStatus,
    UnusedView,
)
from paired_servicebus.demo.scenarios import scenario_named
from paired_servicebus.ui.engines.feed import OrderSigner
from paired_servicebus.ui.state.view import Neighbour, Neighbours, Reached, Records, Unreachable
from tests import fleet_views, gateway_views
from tests.alarm_views import remarks
from tests.approval import Approve
from tests.graph_views import graphs

from .conftest import AT, Console, MadeUp, at
from .scripted import snapshot_of

SIZES = pytest.mark.parametrize(
    "size", [pytest.param((80, 24), marks=pytest.mark.slow), (140, 40)], ids=["80x24", "140x40"]
)
PARKED: Final = "contoso/x-servicebus-transfer/0"


class Film:
    """Frames of one dashboard, each with a title."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.frames: list[str] = []
        self.first_row = 0
        """The rows of the screen that are shown begin here."""

    def shoot(self, title: str) -> None:
        above = f"──── {title} ".ljust(self.console.app.size.width, "─")
        self.frames.append("\n".join((above, *self.console.rows()[self.first_row :])))

    async def told(self, title: str, *news: Any) -> None:
        await self.console.told(*news)
        self.shoot(title)

    async def press(self, title: str, *keys: str) -> None:
        await self.console.press(*keys)
        await self.settle()
        self.shoot(title)

    async def settle(self) -> None:
        """Wait until the screen stays: a scroll bar follows its text by some turns of the loop."""
        before, rows = [], self.console.rows()
        while rows != before:
            await self.console.pilot.wait_for_scheduled_animations()
            before, rows = rows, self.console.rows()

    async def lost(self, title: str, reason: str = "the engine ended") -> None:
        self.console.feed.lose(reason)
        async with asyncio.timeout(60):
            while not any("unreachable since" in row for row in self.console.rows()):
                await asyncio.sleep(0.01)  # below a dialog the page is painted after the dialog
        await self.settle()
        self.shoot(title)


Play = Callable[[Film, MadeUp], Awaitable[None]]


async def _sign(signed: bytes) -> str:
    return f"signature of {len(signed)} bytes"


SIGNER: Final = OrderSigner(key="~/.ssh/id_ed25519", sign=_sign)


async def starting(film: Film, made: MadeUp) -> None:
    film.shoot("before any news")
    await film.told("no engine answers", Unreachable(AT - 2, "no engine answers at /run/s; start one with paired up"))
    await film.told("it answered", Reached())
    await film.told("its first figures", made.snapshot())


async def healthy(film: Film, made: MadeUp) -> None:
    await film.told("nothing happens", made.snapshot(), graphs())
    await film.told("two alarms", made.snapshot(troubles=remarks("no syphon known to run", "not ready to fail over")))
    paused = made.syphon(SyphonStatus.PAUSED, text="paused by kim 13:40:00")
    await film.told("a paused syphon", made.snapshot(syphon=paused))
    some = made.syphon(paused_queues=(3,), paused_destinations=("payments",))
    await film.told("a queue and a destination are paused", made.snapshot(syphon=some))
    old = tuple(replace(queue, read_at=at("14:01:00")) for queue in made.queues({3: 1_204}))
    await film.told("depths of 1m11s ago", made.snapshot(queues=old))
    await film.told("a caption of the demo", made.snapshot(caption="contoso refuses every connection"))
    await film.told("an idle entity", made.snapshot(made.entity("orders", State.UNKNOWN, why="no sends yet")))


async def outage(film: Film, made: MadeUp) -> None:
    await film.told("one of three failed over", Records(made.records()), made.outage(), graphs())
    await film.press("each ping listed", "P")
    await film.press("the menu", "x")
    await film.press("the help", "escape", "question_mark")
    await film.press("the end of the help", "end")
    await film.press("filtered", "escape", "slash", *"pay")
    await film.press("marked and filtered", "enter", "a")
    await film.press("the command bar", "escape", "colon", *"zebra")
    await film.console.press("escape")
    await film.lost("the engine ended")


async def pages(film: Film, made: MadeUp) -> None:
    await film.told("1", Records(made.records()), made.backlog(gateway=gateway_views.outage()), graphs())
    for key in "2345678":
        await film.press(key, key)
    await film.press("3, the unused ones", "3", "G")
    await film.press("4, to a time", "4", "P", "ctrl+g", *"14:02", "enter")
    await film.press("4, no time", "ctrl+g", *"noon", "enter")


async def states(film: Film, made: MadeUp) -> None:
    await film.told("forced", made.snapshot(made.forced("payments")))
    pinned = made.entity("payments", State.PINNED, why='pinned by kim 13:40:00 "planned work"; stays until released')
    await film.told("pinned", made.snapshot(pinned))
    why = "timeout 14:01:59; fails over at 14:02:59 unless a send succeeds"
    suspect = made.entity(
        "orders", State.SUSPECT, since=AT - 12, why=why, fails_over_at=AT + 48, refused=31, refused_per_second=2.6,
        refused_since=AT - 12, first_failure_at=AT - 12,
    )  # fmt: skip
    await film.told("suspect", made.snapshot(suspect, made.entity("audit")))
    await film.told("both namespaces down", snapshot_of(scenario_named("both-down"), 0.45))
    await film.told("a read-only engine", made.snapshot(read_only=True))


async def many(film: Film, made: MadeUp) -> None:
    def named(number: int, *failed: int) -> list[Any]:
        names = [f"queue-{place:03}" for place in range(number)]
        return [made.failed_over(name) if place in failed else made.entity(name) for place, name in enumerate(names)]

    await film.told("two of ten failed over", made.snapshot(*named(10, 7, 9)))
    await film.told("one of thirty", made.snapshot(*named(30, 7)))
    await film.press("the fold is selected", "down")
    await film.press("no order reaches folded ones", "F")
    await film.press("unfolded", "enter")
    await film.told("55 of 300", made.snapshot(*named(300, *range(245, 300))))
    await film.press("by name", "s")
    await film.press("the busiest first", "s")


async def questions(film: Film, made: MadeUp) -> None:
    outage = made.outage()
    await film.told("an outage", outage)
    await film.press("force failover", "F")
    await film.press("a wrong name", *"paymnts", "enter")
    await film.told("not possible any more", made.snapshot(made.entity("other")))
    await film.lost("the engine is lost")
    await film.console.press("escape")
    await film.told("the engine is back", outage)
    await film.press("release", "U")
    await film.press("pause the syphon", "escape", "S")
    await film.press("look only", "escape", "W")
    await film.press("clean up", "escape", "3", "G", "C")
    await film.press("move stranded messages", "escape", "M")
    await film.console.press("escape")
    dead = tuple(replace(queue, dead_lettered=7) for queue in made.queues())
    await film.console.told(made.snapshot(queues=dead))
    await film.press("re-drive", "3", "g", "R")
    await film.press("pause one queue", "escape", "S")
    await film.press("two entities", "escape", "1", "space", "space", "F")


async def answers(film: Film, made: MadeUp) -> None:
    film.first_row = -3
    await film.told("healthy", made.snapshot())
    for title, *keys in (
        ("nothing to release", "U"),
        ("ctrl+c", "ctrl+c"),
        ("cancelled", "F", "escape"),
        ("paused", "S", "right", "enter"),
        ("forced", "F", *"orders", "enter"),
        ("no rows on this page", "5", "down"),
        ("nothing to mark", "a"),
    ):
        await film.press(title, *keys)
    film.console.feed.refusal = "refused: this engine is read-only"
    await film.press("refused by the engine", "1", "F")
    await film.press("opened to look only", "W", "right", "enter")


async def fleet(film: Film, made: MadeUp) -> None:
    await film.told("the outage of twenty engines", made.snapshot(fleet=fleet_views.outage(orders=())))
    away = fleet_views.outage(trouble="connection refused", trouble_since=at("13:58:00"))
    await film.told("the board is not reached", made.snapshot(fleet=away))
    await film.told("an order stands", made.snapshot(fleet=fleet_views.outage()))
    await film.press("7", "7")
    await film.press("who does it", "1", "F")
    await film.press("the question", "right", "enter")
    await film.press("the evidence", *["pagedown"] * 5)
    await film.console.press("escape")
    await film.told("no fleet is known", made.snapshot(fleet=fleet_views.outage(trouble="timeout")))
    await film.press("one engine alone", "F")
    await film.console.press("escape")
    await film.console.told(made.snapshot(fleet=fleet_views.calm()))
    await film.console.press("F", "right", "enter")
    film.console.app.screen.query_one("#typed", Input).value = "3 engines"
    await film.console.pilot.pause()
    film.console.app.screen.query_one("#typed").focus()
    await film.press("ordered", "enter")
    order = FleetOrder(
        id=film.console.feed.posted[0][0].id, verb="force", targets=("orders",), by="operator-a", at=AT,
        until=at("18:02:00"), done=("web-1",), silent=(("web-2", AT), ("web-3", AT)),
    )  # fmt: skip
    await film.told("one has done it", made.snapshot(fleet=replace(fleet_views.calm(), orders=(order,))))
    refused = replace(order, done=("web-1", "web-2"), silent=(), refused=(("web-3", "read-only"),))
    await film.told("one has refused", made.snapshot(fleet=replace(fleet_views.calm(), orders=(refused,))))


async def gateway(film: Film, made: MadeUp) -> None:
    view = gateway_views.outage(turned_away=(gateway_views.wrong_key(),))
    await film.told("an alarm of the gateway", made.snapshot(gateway=view))
    await film.press("clients", "8")
    await film.press("the next one", "down")
    await film.told("none any more", made.outage(gateway=gateway_views.outage(clients=(), count=0, failing=0)))
    gone = gateway_views.outage(since=None, trouble="port 5673 is taken", clients=(), count=0)
    await film.told("it does not listen", made.outage(gateway=gone))
    await film.told("no gateway", made.outage())
    await film.told("a thousand", made.outage(gateway=gateway_views.many(1000)))


def _row(number: int, **changes: Any) -> MessageRow:
    base = MessageRow(
        number=number, destination="payments", message_id=f"8f1c-{number:04}", enqueued_at=AT - 100 + number,
        size=1_234, deliveries=0,
    )  # fmt: skip
    return replace(base, **changes)


async def messages(film: Film, made: MadeUp) -> None:
    def page(*rows: MessageRow, kind: MessageKind = MessageKind.ACTIVE) -> MessagePage:
        return MessagePage(queue=PARKED, kind=kind, rows=rows, looked_at=len(rows), read_at=AT + 1)

    queue = replace(made.queues()[0], depth=5, dead_lettered=2)
    feed = film.console.feed
    feed.pages[PARKED, "active", 1] = page(_row(1, session="eu-7", destination="stock-audit-01"), _row(2, deliveries=3))
    feed.pages[PARKED, "dead", 1] = page(_row(118, reason="too often"), _row(121), kind=MessageKind.DEAD)
    properties = (("content-type", "application/json"), ("app: tenant", "acme"))
    body = b'{"orderId": 118277, "total": 41.9}'
    feed.contents[1] = MessageContent(
        row=_row(1), properties=properties, body=body, body_size=len(body), read_at=AT + 1
    )
    await film.console.told(made.snapshot(queues=(queue, *made.queues()[1:]), unused=made.unused()))
    await film.press("active ones", "3", "enter")
    await film.press("one is marked", "space")
    await film.press("one of them", "k", "enter")
    await film.press("its body in bytes", "tab")
    await film.press("a search", "escape", "slash", *"8f1c", "enter")
    await film.press("dead ones", "escape", "tab", "tab")
    await film.press("two are marked", "space", "j", "space")
    await film.press("the menu", "x")
    await film.press("re-drive them", "escape", "R")
    feed.refusal = "unknown: contoso/x-servicebus-transfer/0 cannot be read: timeout"
    await film.press("not read", "escape", "escape", "escape", "enter")


async def backlog(film: Film, made: MadeUp) -> None:
    parked = ParkedView(messages=1_350, read_at=AT - 4, known=10, queues=10)
    waiting = made.syphon(SyphonStatus.WAITING, text="holds 1,221 messages until their destinations take them")
    dead = DeadLettersView(read_at=AT, looked_at=3, reasons=(("TTLExpired", 2), ("of the owner", 1)))
    queues = list(made.backlog().queues)
    queues[3] = replace(queues[3], dead_letters=dead, oldest=OldestView(read_at=AT, enqueued_at=at("13:58:01")))
    snapshot = made.backlog(parked=parked)
    await film.console.press("3")
    await film.told("draining and growing", replace(snapshot, syphon=waiting, queues=tuple(queues)))
    await film.press("the selected one", *["down"] * 3)
    await film.told("not listed", made.snapshot(unused=UnusedView(read_at=AT - 60, trouble="connection lost")))
    unread = tuple(replace(queue, depth=None, dead_lettered=None, read_at=None) for queue in made.queues())
    await film.told("not read", made.snapshot(queues=unread))
    await film.press("cost", "5")
    billed = replace(made.backlog().billed, waits=193, searches=194, attaches=11)
    await film.told("what an idle syphon costs", replace(made.backlog(), billed=billed))


async def readiness(film: Film, made: MadeUp) -> None:
    evidence = {FindingVerdict.NO: "the secondary does not answer", FindingVerdict.WARN: "4 of 10 queues are ready"}
    findings = tuple(
        Finding(
            what=f"finding {number}",
            verdict=verdict,
            evidence=evidence.get(verdict, "as it should be"),
            read_at=AT - 75 if verdict is not FindingVerdict.UNKNOWN else None,
            todo="raise backlog_queue_count" if verdict is FindingVerdict.WARN else "",
        )
        for number, verdict in enumerate(FindingVerdict)
    )
    await film.console.press("exclamation_mark")
    await film.told("not checked", made.snapshot(readiness=None))
    await film.told("each verdict", made.snapshot(readiness=Readiness(at=AT - 12, findings=findings)))
    await film.press("its end", "end")
    await film.lost("the engine is lost")


async def engines(film: Film, made: MadeUp) -> None:
    gone = Neighbour("three", "unreachable", None)
    await film.told("their page", made.outage(), Neighbours((Neighbour("two", "", made.snapshot()), gone)))
    await film.press("7", "7")
    await film.press("all are marked", "a", "1")


PLAYS: Final[dict[str, tuple[Play, dict[str, Any]]]] = {
    "starting": (starting, {"start_steps": lambda: ["two namespaces", "an engine"]}),
    "looked for": (starting, {}),
    "healthy": (healthy, {}),
    "outage": (outage, {}),
    "pages": (pages, {"price": Price(million_operations=0.8, currency="USD")}),
    "states": (states, {}),
    "many entities": (many, {}),
    "questions": (questions, {}),
    "answers": (answers, {}),
    "fleet": (fleet, {"signer": SIGNER}),
    "gateway": (gateway, {}),
    "messages": (messages, {}),
    "backlog": (backlog, {}),
    "readiness": (readiness, {}),
    "engines": (engines, {"read_only": True}),
}


@SIZES
@pytest.mark.parametrize("play", PLAYS)
async def test_a_scene_is_as_approved(
    open_console: Any, made: MadeUp, approve: Approve, play: str, size: tuple[int, int]
) -> None:
    act, options = PLAYS[play]
    async with open_console(size=size, **options) as console:
        film = Film(console)
        await act(film, made)
    approve("\n".join(film.frames), f"screen {play} {size[0]}x{size[1]}")
