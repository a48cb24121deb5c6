"""Which rows are in sight, and what a key acts on: no failure goes unmentioned, nothing unseen is hit."""

from __future__ import annotations

import asyncio
import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import SyphonStatus, UnusedQueue, UnusedView
from paired_servicebus.ui.screens.pages import DashboardScreen
from paired_servicebus.ui.screens.questions import ArmDialog, ConfirmDialog
from paired_servicebus.ui.state import selection
from paired_servicebus.ui.state.view import SORTS, Page, View, apply_news
from paired_servicebus.ui.widgets.entity_table import EntityRows, pings_in_a_row

from .plays import MADE, Play, holds, named, on, ordered, play, row, run, sees, table, tabled, told, viewed

SIZES = [
    (60, 20), (80, 24),
    *(pytest.param(size, marks=pytest.mark.slow) for size in ((70, 22), (100, 30), (140, 40), (200, 50))),
]  # fmt: skip


STRANDED = UnusedView(
    queues=tuple(
        UnusedQueue(path=f"u/{index}", index=index, status="Active", messages=3 if index == 7 else 0, dead_lettered=0)
        for index in (5, 6, 7)
    ),
    read_at=MADE.AT,
)
PAUSED = MADE.syphon(SyphonStatus.PAUSED, text="paused by kim")

PLAYS: dict[str, Play] = {
    "the eighth and the tenth of ten are on the screen when they fail": play(
        MADE.snapshot(*named(10)), told(MADE.snapshot(*named(10, 7, 9))), tabled("▲ queue-007", "▲ queue-009"),
        sees("2 failed"),
    ),
    "sorting again shows the first rows": play(
        MADE.snapshot(*named(40, 3)), "end", "s", sees("40 entities, name"),
        holds(lambda console: "queue-000" in table(console)[0]), "s", sees("of 14:02:11"),
    ),
    "arrows on a page without rows move nothing": play(
        MADE.snapshot(), "5", "down", viewed(selected="orders"), sees("page cost")
    ),
    "the page of an entity acts on what it shows, and only the mark of what was ordered is spent": play(
        MADE.snapshot(), "a", "down", "enter", "F", sees("failover: payments"), *"payments", "enter",
        ordered("force payments"), viewed(marks={"orders", "audit"}),
    ),
    "the title says how many of the marked an order would hit": play(
        MADE.snapshot(), "a", "slash", *"pay", "enter", sees("on 1 listed"), "F", sees("failover: payments")
    ),
    "a reason goes with the order where one is required": play(
        MADE.outage(require_reason=True), "W", "right", "enter", ordered(), "escape", "W", "shift+tab", *"audit",
        "enter", "right", "enter", ordered("read-only"), holds(lambda console: console.feed.fired[0][2] == "audit"),
    ),
    "on the page of queues the selected one is paused or all, and resuming asks nothing": play(
        MADE.backlog(), "3", *["down"] * 3, "S", sees("Pause backlog/3", "Pause all"), "right", "enter",
        ordered("pause-syphon 3"),
        told(MADE.backlog(syphon=MADE.syphon(SyphonStatus.RUNNING, text="moving", paused_queues=(3,)))), "S",
        ordered("pause-syphon 3", "resume-syphon 3"),
    ),
    "a key stands for the act that fits even where none is possible": play(
        MADE.snapshot(syphon=PAUSED, read_only=True), row(-1, "(S resume"), "S", sees("is read-only")
    ),
    "every failed row comes before reasons, and as many reasons as leave them in sight": play(
        MADE.snapshot(*named(300, *range(6))), tabled("● 294 healthy"),
        holds(lambda console: sum("▲" in row for row in table(console)) == 6),
        holds(lambda console: sum("connection lost" in row for row in table(console)) == 3), size=(140, 40),
    ),
    "wide screens give every failed entity its reason": play(
        MADE.snapshot(*named(40, 0, 1, 2, 3)), sees("36 healthy"),
        holds(lambda console: sum("connection lost" in row for row in table(console)) == 4), size=(140, 40),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAYS)
async def test_no_failure_goes_unmentioned_and_nothing_unseen_is_hit(open_console: Any, name: str) -> None:
    await run(open_console, PLAYS[name])


@pytest.mark.parametrize(("key", "stops"), [("S", "stay where they are"), ("W", "refuses every command")])
async def test_what_stops_something_asks_first_and_names_it(open_console: Any, key: str, stops: str) -> None:
    """Cancel is in focus."""
    asks = on(ConfirmDialog), sees(stops), holds(lambda console: "a restart" in " ".join(console.screen().split()))
    await run(open_console, play(MADE.outage(), key, *asks, "enter", on(DashboardScreen), ordered()))


@pytest.mark.parametrize("word", ["ps", "w", "python -m x", "who", "pwd"])
async def test_no_word_typed_into_the_wrong_window_stops_anything(open_console: Any, word: str) -> None:
    await run(open_console, play(MADE.outage(), *word, "enter", ordered()))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_stranded_messages_are_said_on_both_pages_at_every_size(open_console: Any, size: tuple[int, int]) -> None:
    steps = row(2, "queue 7"), "3", sees("3 stranded · 0 dead", "3 messages")
    await run(open_console, play(MADE.snapshot(unused=STRANDED), *steps, size=size))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_every_row_is_in_sight_or_counted(open_console: Any, made: Any, size: tuple[int, int]) -> None:
    failed = [5 * place for place in range(55)]
    async with open_console(made.snapshot(*named(300, *failed)), size=size) as console:
        for keys in ((), ("pagedown",), ("end",), ("home",)):
            await console.press(*keys)
            *rows, last = table(console)
            seen = [row for row in rows if "queue-" in row[:20]]
            folded = [int(number) for row in rows for number in re.findall(r"● (\d+) healthy", row)]
            counted = [int(part.split()[0].replace(",", "")) for part in last.replace("↓", "↑").split("↑")[1:]]
            assert len(seen) + sum(folded) + sum(counted) == 300, last
            bad = sum("▲" in row for row in seen)
            hidden = [int(number) for number in re.findall(r"\((\d+) failed over\)", last)]
            assert bad + sum(hidden) == 55, last


async def test_with_55_of_300_failed_the_window_shows_failed_ones_wherever_the_cursor_is(
    open_console: Any, made: Any
) -> None:
    async with open_console(made.snapshot(*named(300))) as console:
        await console.told(made.snapshot(*named(300, *range(245, 300))))
        *rows, last = table(console)
        assert all("▲" in row for row in rows if "queue-" in row)
        assert "queue-000" in last
        assert console.app.view.selected == "queue-000", "the selection is not moved under a finger"


# -- what keys act on ----------------------------------------------------------------------------------------------


async def test_nothing_is_marked_or_sorted_where_there_are_no_such_rows(open_console: Any, made: Any) -> None:
    async with open_console(made.backlog()) as console:
        before = console.app.view
        for page, key in itertools.product("3456", ("a", "space", "s")):
            await console.press(page, key)
            assert f"page {console.app.view.page}" in console.screen(), (page, key)
        after = console.app.view
        assert (after.marks, after.selected, after.sort) == (before.marks, before.selected, before.sort)


async def test_marks_are_said_wherever_an_order_would_hit_them(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        await console.press("a")
        for page in Page:
            console.app.turn_to(page)
            await console.pilot.pause()
            assert ("3 marked" in console.rows()[0]) == (page is not Page.ENTITY), page


# -- an engine that does not answer ------------------------------------------------------------------------------------


class Slow:
    """Holds an engine's answer to an arming back."""

    def __init__(self, console: Any) -> None:
        self.go_on = asyncio.Event()
        arm = console.feed.arm

        async def later(*words: Any, **order: Any) -> Any:
            await self.go_on.wait()
            return await arm(*words, **order)

        console.feed.arm = later
        console.app.source = console.feed


async def test_what_is_asked_of_a_silent_engine_is_said_at_once(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        slow = Slow(console)
        await console.press("F")
        assert "esc cancels" in console.screen()
        slow.go_on.set()
        await console.pilot.pause()
        assert isinstance(console.app.screen, ArmDialog)
        assert console.app.view.asking == ""


@pytest.mark.parametrize("keys", [("j",), ("3",), ("escape",), ("slash",), ("question_mark",)])
async def test_a_question_that_came_too_late_does_not_open(open_console: Any, made: Any, keys: tuple[str, ...]) -> None:
    async with open_console(made.snapshot()) as console:
        slow = Slow(console)
        await console.press("F", *keys)
        slow.go_on.set()
        await console.pilot.pause()
        await console.pilot.pause()
        assert not isinstance(console.app.screen, ArmDialog)
        assert console.app.view.asking == ""
        assert console.feed.orders == []


async def test_escape_says_that_nothing_was_ordered_and_leaves_the_page(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        Slow(console)
        await console.press("2", "F", "escape")
        assert console.app.view.page is Page.ENTITY
        assert "cancelled, nothing" in console.screen()


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({"pings": 40, "pings_accepted": 0, "recent_pings": (None,) * 20}, 40),
        ({"pings": 40, "pings_accepted": 5, "recent_pings": (0.1, None, None)}, 2),
        ({"last_ping_good": True, "pings_in_a_row": 3}, 3),
        ({"pings": 0, "recent_pings": ()}, 0),
    ],
    ids=["all failed", "some accepted", "accepted", "an engine that does not tell"],
)
def test_pings_in_a_row(made: Any, changes: dict[str, Any], number: int) -> None:
    assert pings_in_a_row(made.failed_over("payments", **changes)) == number


async def test_rows_out_of_sight_have_states_and_a_few_names(open_console: Any, made: Any) -> None:
    failed = [made.failed_over(f"queue-{number}") for number in range(6)]
    quiet = made.entity("audit", state=State.UNKNOWN), made.entity("orders")
    async with open_console(made.snapshot(*failed, *quiet), size=(80, 24)) as console:
        shown = EntityRows(console.app.view, 80, 8)
        assert shown.out_of_sight(0).text.strip() == "↓ 2 more (1 unknown · 1 healthy)  audit and orders"


# -- Which rows are listed, marked and selected; and that rows keep their places when data come.


@pytest.fixture
def view(made: Any) -> View:
    return apply_news(View(pairing="orders"), made.backlog())


def paths(view: View) -> list[str]:
    return [entity.path for entity in view.listed]


@pytest.mark.parametrize(
    ("words", "listed"),
    [
        ("", ["payments", "orders", "audit"]),
        ("PAY", ["payments"]),
        ("healthy", ["orders", "audit"]),
        ("healthy or", ["orders"]),
        ("!healthy", ["payments"]),
        ("!healthy !failed", []),
        ("!", []),
    ],
)
def test_a_filter_is_words_that_a_row_has_or_has_not(view: View, words: str, listed: list[str]) -> None:
    assert paths(selection.apply_filter(view, words)) == listed


def test_the_selection_stays_if_it_is_still_listed(view: View) -> None:
    at_audit = selection.move_selection(view, 9)
    assert selection.apply_filter(at_audit, "audit").selected == "audit"
    assert selection.apply_filter(at_audit, "orders").selected == "orders"
    assert selection.apply_filter(at_audit, "nothing").selected == ""


def test_news_keep_filter_and_marks_but_not_the_mark_of_what_is_gone(view: View, made: Any) -> None:
    chosen = replace(selection.apply_filter(view, "healthy"), marks=frozenset({"orders", "audit"}))
    after = apply_news(chosen, made.snapshot(made.entity("audit"), made.failed_over("payments")))
    assert (after.marks, after.filter, paths(after)) == ({"audit"}, "healthy", ["audit"])


def test_marking_goes_on_to_the_next_row_and_unmarks_what_is_marked(view: View) -> None:
    marked = selection.mark(selection.mark(view))
    assert (marked.marked, marked.selected) == (("payments", "orders"), "audit")
    assert selection.mark(selection.move_selection(marked, -1)).marked == ("payments",)
    assert selection.unmark_all(marked).marked == ()


def test_what_is_marked_and_not_listed_is_no_target(view: View) -> None:
    """What a command would do must be in sight."""
    marked = selection.mark(selection.mark(view))
    assert selection.apply_filter(marked, "pay").marked == ("payments",)


def test_worst_first_is_live_and_the_selection_follows_its_entity(view: View, made: Any) -> None:
    assert (view.sort, paths(view)) == ("worst first", ["payments", "orders", "audit"])
    at_audit = selection.move_selection(view, 2)
    worse = apply_news(
        at_audit, made.snapshot(made.entity("orders"), made.entity("payments"), made.failed_over("audit"))
    )
    assert paths(worse) == ["audit", "orders", "payments"]
    assert worse.selected == "audit"


def test_an_entity_whose_sends_are_refused_comes_before_one_that_failed_over(view: View, made: Any) -> None:
    lost = made.entity("orders", State.SUSPECT, refused_per_second=2.0)
    assert paths(apply_news(view, made.snapshot(made.failed_over("payments"), lost))) == ["orders", "payments"]


def test_an_order_by_rates_is_of_its_moment(view: View, made: Any) -> None:
    """Rates move every second, and rows under a finger must not."""
    busiest = selection.next_sort_order(selection.next_sort_order(view))
    assert (busiest.sort, paths(busiest)) == ("busiest first", ["orders", "audit", "payments"])
    entities = (made.entity("audit", sends_per_second=999.0), made.entity("orders"), made.entity("new"))
    later = apply_news(busiest, made.snapshot(*entities, at=made.AT + 9))
    assert paths(later) == ["orders", "audit", "new"], "no row moves; a new one comes last"
    assert later.sorted_at == made.AT


def test_every_way_of_sorting_comes_round_again(view: View) -> None:
    again = view
    for _ in SORTS:
        again = selection.next_sort_order(again)
    assert (again.sort, paths(again)) == (view.sort, paths(view))


def test_in_the_backlog_the_selection_goes_from_queues_in_use_to_unused_ones(view: View) -> None:
    here = selection.turn_to_page(view, Page.BACKLOG)
    assert (here.queue, here.on_unused) == ("0", False)
    last = selection.move_selection(here, 99)
    assert (last.unused, last.on_unused) == (view.snapshot.unused.queues[-1].path, True)  # type: ignore[union-attr]
    back = selection.move_selection(last, -2)
    assert (back.queue, back.on_unused) == ("9", False)
    assert selection.move_selection(back, -99).queue == "0"


def test_commands_are_for_the_marked_ones(view: View) -> None:
    from paired_servicebus.ui.commands.action_table import CONSOLE_BY_ID

    assert CONSOLE_BY_ID["force"].aim(view).targets == ("payments",)
    marked = selection.mark(selection.mark(view))
    assert CONSOLE_BY_ID["force"].aim(marked).targets == ("payments", "orders")
    assert marked.entity is not None
    assert marked.entity.state is State.HEALTHY
