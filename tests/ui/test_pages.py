"""The pages beside the dashboard, as text: what they say of each state, at each size, and of names from outside."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.gateway.gateway_sentences import with_gateway
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.snapshot import (
    DeadLettersView,
    Finding,
    FindingVerdict,
    OldestView,
    ParkedView,
    Readiness,
    UnusedView,
)
from paired_servicebus.ui.screens.pages import DashboardScreen
from paired_servicebus.ui.screens.questions import Prompt
from paired_servicebus.ui.shell.preferences import load_preferences
from paired_servicebus.ui.state.view import Page, Records
from paired_servicebus.ui.widgets.frame.page_lines import HeaderNames
from tests.gateway_views import PRIMARY, client, many, outage

from .plays import MADE, Play, fed, holds, lacks, on, play, run, sees, told, viewed

SIZES = [(60, 20), (80, 24), (140, 40), (250, 80)]
KEYS = {page: str(number) for number, page in enumerate(Page, start=1)}
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()


def readiness() -> Readiness:
    """One finding of each verdict, the worst last."""
    verdicts = (FindingVerdict.OK, FindingVerdict.UNKNOWN, FindingVerdict.WARN, FindingVerdict.NO)
    return Readiness(
        at=MADE.AT - 12,
        findings=tuple(
            Finding(
                what=f"finding {number}",
                verdict=verdict,
                evidence=f"what is seen of it \x1b[2J, {'in many words, ' * 6}end-of-{verdict}",
                read_at=MADE.AT - 75 if verdict is not FindingVerdict.UNKNOWN else None,
                todo="raise backlog_queue_count" if verdict is FindingVerdict.WARN else "",
            )
            for number, verdict in enumerate(verdicts)
        ),
    )


EVIL = client(1, "[bold red]x\x1b[2J", "[/]", {"orders": PRIMARY}, key="\u202eyek")
BACKLOG, STORY = MADE.backlog(), Records(MADE.records())
OLD = replace(
    BACKLOG, queues=tuple(replace(queue, read_at=MADE.at("14:01:00")) for queue in BACKLOG.queues), parked=None
)
WARNINGS = [MADE.record(e.Warned(at=MADE.AT, about="a", text=str(number)), number) for number in range(500)]
TURNED = outage(clients=tuple(reversed(outage().clients)))

PLAYS: dict[str, Play] = {
    "enter shows the selected entity, two routes in one row, and escape goes back": play(
        STORY, BACKLOG, "enter",
        sees("── payments ──", "in 52 s", "✓✗✓✓✓  p50 12", "1,221            2        0.2 %", "14:01:58 failed"),
        "down", sees("── orders ──"), "escape", on(DashboardScreen),
    ),
    "old depths are no base for an outlook": play(MADE.counted(OLD), "3", sees(", old · "), lacks("full 1")),
    "the unused queues are listed anew with one key": play(
        BACKLOG, "3", "r", fed(looks=[("", "stranded", 1, "")]), sees("listed anew"),
        "4", "r", sees("it works on the backlog"),
    ),
    "what is armed on the backlog page is for its selection": play(
        BACKLOG, "3", *["down"] * 8, viewed(queue="8"), "R", sees("Re-drive: backlog/8")
    ),
    "the timeline filters while it is typed and escape undoes it": play(
        STORY, BACKLOG, "4", "P", "slash", *"pulled", sees("“pulled”"), "escape", sees("── 4 events"),
        "slash", *"ping-failed", "enter", sees("“ping-failed”"),
    ),
    "the timeline goes to a time": play(
        STORY, BACKLOG, "4", "P", "ctrl+g", *"14:02", "enter", sees("2026-11-20 14:02:01.000 UTC"),
        "ctrl+g", *"noon", "enter", sees("“noon”"), "end", sees("─ live ─"),
    ),
    "a history of thousands is there at once": play(
        *[Records((warned,)) for warned in WARNINGS], BACKLOG, "4", "home",
        sees("── 500 events", "▸14:02:11 a             0"),
    ),
    # the bug: a minute of an outage became "168,904,865 in 30 days"
    "nothing counted is projected": play(replace(BACKLOG, started_at=MADE.AT - 60), "5", lacks("30 days")),
    "a filter lists while it is typed": play(
        BACKLOG, "slash", *"pay", on(Prompt), sees("1 of 3"), lacks("● orders"), told(BACKLOG), sees("1 of 3"),
        "enter", "escape", sees("── 3 entities"),
    ),
    "the worst finding comes first and escape leads back": play(
        MADE.snapshot(readiness=readiness()), "exclamation_mark",
        holds(lambda console: re.findall(r"finding (\d)", console.screen())[:3] == ["3", "2", "1"]),
        "escape", on(DashboardScreen),
    ),
    "1,000 clients are counted and 50 listed": play(
        MADE.outage(gateway=many(1000)), "8", "end", sees("1,000 clients", "from 127.0.0.1:52050")
    ),
    "a stranger's text is no markup": play(
        MADE.outage(gateway=outage(clients=(EVIL,), count=1)), "8", sees("[bold red]"), lacks("\x1b[2J", "\u202e")
    ),
    "a selection follows its client": play(
        MADE.outage(gateway=outage()), "8", "down", told(MADE.outage(gateway=TURNED)), sees("JavaScript 7.9.5")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAYS)
async def test_a_page_beside_the_dashboard(open_console: Any, name: str) -> None:
    await run(open_console, PLAYS[name])


@pytest.mark.parametrize(
    "size",
    [pytest.param(size, marks=pytest.mark.slow if size[0] > 80 else []) for size in SIZES],
    ids=lambda size: f"{size[0]}x{size[1]}",
)
async def test_every_page_fits_every_terminal_and_says_what_is_wrong(
    open_console: Any, made: Any, size: tuple[int, int]
) -> None:
    async with open_console(Records(made.records()), made.backlog(), size=size) as console:
        for page in Page:
            await console.press(KEYS[page])
            assert len(console.app.screen_stack) == (1 if page is Page.PAIRING else 2), "one page at a time"
            assert {cell_len(row) for row in console.rows()} == {size[0]}, page
            assert len(console.rows()) == size[1], page
            assert "1 of 3" in console.rows()[1], page
            assert "? help" in console.rows()[-1], page


async def test_every_page_stands_before_any_news_with_few_and_after_the_engine_is_lost(
    open_console: Any, made: Any
) -> None:
    """Few: those of an engine without options, trends, or a list of unused queues. Nothing is guessed of them."""
    async with open_console() as console:
        for page in Page:
            await console.press(KEYS[page])
            assert "of orders" in console.screen(), page
        await console.told(replace(made.outage(), unused=UnusedView()))
        for page in Page:
            await console.press(KEYS[page])
            assert console.app.view.page is page
            assert "0 unused" not in console.screen()
        console.feed.lose()
        for page in Page:
            await console.press(KEYS[page])
            assert console.rows()[1].startswith(" ✗ engine"), page


# -- the backlog -------------------------------------------------------------------------------------------------


async def test_the_rows_of_the_backlog_add_up_to_its_one_figure(open_console: Any, made: Any) -> None:
    """Seen: `parked 0 … draining 0.5/s  empty` 30 s after it was empty, and rows that contradict the sum (C7)."""
    queues = [replace(queue, parked=0, growth=0.0) for queue in made.backlog().queues]
    queues[3] = replace(queues[3], parked=230, growth=-23.0)
    told = ParkedView(messages=230, read_at=made.AT - 4, known=10, queues=10, drained_per_second=23.0)
    async with open_console(replace(made.backlog(), queues=tuple(queues), parked=told), size=(140, 40)) as console:
        assert "payments                          part of all" in console.screen()
        await console.press("3")
        draining = next(row for row in console.rows() if row.startswith("   3 "))
        for text in ("230", "draining 23/s", "empty 14:02:21"):
            assert text in draining
        emptied = next(row for row in console.rows() if row.startswith("   !  8 ") or row.split()[:2] == ["!", "8"])
        assert "steady" in emptied
        assert "empty" not in emptied
        assert "draining" not in emptied
        assert "230 parked" in console.screen()


REASONS = (
    ({}, "19; sample of 7, read 6 s ago: 4 × MaxDeliveryCountExceeded (and 1 more reason)"),
    ({"looked_at": 19}, "19; read 6 s ago: 4 × MaxDeliveryCountExceeded (and 1 more reason)"),
    ({"looked_at": 0, "reasons": ()}, "19; a peek 6 s ago saw none"),
    ({"trouble": "timeout"}, "19; sample of 7, read 6 s ago, then peek failed (timeout): 4 × MaxDelivery"),
    ({"read_at": None}, "19; by this engine since it started: 12 × no x-ms-path (and 1 more reason)"),
    ({"read_at": None, "trouble": "timeout"}, "19; peek failed (timeout), by this engine since it started: 12 ×"),
)


async def test_reasons_for_dead_letters_are_those_that_a_peek_found(open_console: Any, made: Any) -> None:
    reasons = (("MaxDeliveryCountExceeded", 4), ("no x-ms-path", 3))
    peeked = DeadLettersView(read_at=made.at("14:02:05"), looked_at=7, reasons=reasons)
    queues = list(made.backlog().queues)
    async with open_console(made.backlog(), size=(120, 24)) as console:
        await console.press("3", *["down"] * 8)
        for changes, words in REASONS:
            queues[8] = replace(queues[8], dead_letters=replace(peeked, **changes))
            await console.told(replace(made.backlog(), queues=tuple(queues)))
            assert words in console.screen(), changes


WAITS = (
    (17, {}, ""),
    (17, {"enqueued_at": NOON}, "oldest waits 2h02m · "),
    (17, {"enqueued_at": NOON, "trouble": "timeout"}, "oldest waits 2h02m, then timeout · "),
    (17, {"read_at": None, "trouble": "timeout"}, "oldest unknown: timeout · "),
    (0, {"enqueued_at": NOON}, ""),
)


async def test_how_long_the_oldest_message_waits_is_said_with_when_that_was_read(open_console: Any, made: Any) -> None:
    queues = list(made.backlog().queues)
    async with open_console(made.backlog(), size=(120, 24)) as console:
        await console.press("3", *["down"] * 8)
        for depth, changes, words in WAITS:
            oldest = OldestView(**{"read_at": made.at("12:05:00")} | changes)
            queues[8] = replace(queues[8], depth=depth, oldest=oldest)
            await console.told(replace(made.backlog(), queues=tuple(queues)))
            assert words in console.screen(), changes
            assert ("oldest" in console.screen()) == bool(words), changes


# -- the cost ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ('million_operations = 0.8\ncurrency = "USD"', Price(million_operations=0.8, currency="USD")),
        ('million_operations = "0.8"\ncurrency = "USD"', None),
        ("million_operations = -1\ncurrency = 'USD'", None),
        ("million_operations = 0.8", None),
    ],
)
def test_a_price_that_cannot_be_used_costs_a_notice(tmp_path: Path, text: str, price: Price | None) -> None:
    (tmp_path / "console.toml").write_text(f"[prices]\n{text}\n")
    chosen = load_preferences(tmp_path)
    assert chosen.price == price
    assert bool(chosen.notice) is (price is None)


# -- what is chosen -------------------------------------------------------------------------------------------------


async def palette_lists(console: Any, text: str) -> None:
    """The palette looks for what is typed in a task of its own."""
    async with asyncio.timeout(60):
        while text not in console.screen():
            await console.pilot.pause()


async def test_the_palette_does_what_the_table_says(open_console: Any, made: Any) -> None:
    async with open_console(made.backlog()) as console:
        await console.press("colon", *"events")
        await palette_lists(console, "open events")
        await console.press("enter")
        await console.pilot.pause()
        assert console.app.view.page is Page.TIMELINE


async def test_the_palette_refuses_what_is_not_possible(open_console: Any, made: Any) -> None:
    async with open_console(made.backlog(), read_only=True) as console:
        await console.press("colon", *"force")
        await palette_lists(console, "not now: this dashboard is read-only")
        await console.press("enter")
        await console.pilot.pause()
        assert "is read-only" in console.screen()
        assert console.feed.orders == []


@pytest.mark.parametrize("viewer", [True, False], ids=["console", "engine"])
async def test_read_only_is_said_on_every_page(open_console: Any, made: Any, viewer: bool) -> None:
    async with open_console(made.backlog(read_only=not viewer), size=(60, 20), read_only=viewer) as console:
        for page in Page:
            console.app.turn_to(page)
            assert "read-only" in "".join(line.text for line in HeaderNames().lines(console.app.view, 48, 1)), page


# -- The readiness page: what `paired check` prints, on the screen.


KEY = "exclamation_mark"


@pytest.mark.parametrize("size", [(60, 20), pytest.param((140, 40), marks=pytest.mark.slow)])
async def test_each_finding_has_verdict_evidence_age_and_remedy(
    open_console: Any, made: Any, size: tuple[int, int]
) -> None:
    async with open_console(made.snapshot(readiness=readiness()), size=size) as console:
        await console.press(KEY)
        seen = console.screen()
        for _ in range(10):
            await console.press("down", "down", "down")
            seen += console.screen()
        assert "1 obstacle" in seen
        for number, verdict in enumerate(("ok", "unknown", "warn", "no")):
            assert f"{verdict:<9}finding {number}" in seen
            assert f"end-of-{verdict}" in seen, "nothing is cut"
        assert "ago" in seen
        assert "do: raise" in seen
        assert "not examined" in seen
        assert "\x1b[2J" not in seen


# -- The page of the gateway's clients, in the words that an operator looks for in an outage.


@pytest.mark.parametrize("size", [(60, 20), (80, 24)])
async def test_the_page_answers_who_with_what_failing_since_when_where_and_what_to_do(
    open_console: Any, made: Any, size: tuple[int, int]
) -> None:
    async with open_console(made.outage(gateway=outage()), size=size) as console:
        await console.press("8")
        text = console.screen()
        asked = (".NET 7.20.1", "Java 7.17.8", "billing", "6 clients, 1 failing", "since 14:01:10")
        if size[0] >= 80:
            asked += ("1 backlog, 2 primary", "held", "127.0.0.1:5673", "send smaller messages", "80 sends/s")
        assert [part for part in asked if part not in text] == []
        await console.press("down")
        assert "JavaScript 7.9.5" in console.screen()
        await console.press("down")
        assert "backlog: payments" in console.screen()


@pytest.mark.parametrize("key", ["1", "2"])
async def test_an_entitys_senders_through_the_gateway_are_counted(open_console: Any, made: Any, key: str) -> None:
    snapshot = with_gateway(
        made.snapshot(made.entity("orders"), made.entity("audit")), outage(senders=(("Orders", 2),))
    )
    async with open_console(snapshot) as console:
        await console.press(*(["enter"] if key == "2" else []))
        text = console.screen()
    assert text.count("gateway sender") == 1, text
    assert "2 gateway senders" in text
