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
from paired_servicebus.ui.screens.arm_dialog import ArmDialog
from paired_servicebus.ui.screens.pages import DashboardScreen
from paired_servicebus.ui.screens.question_dialogs import ConfirmDialog
from paired_servicebus.ui.state import selection
from paired_servicebus.ui.state.row_order import SORTS
from paired_servicebus.ui.state.view import Page, View, apply_news
from paired_servicebus.ui.widgets.entity_table import EntityRows, pings_in_a_row

SIZES = [
    (60, 20), (80, 24), (140, 40),
    *(pytest.param(size, marks=pytest.mark.slow) for size in ((70, 22), (100, 30), (200, 50))),
]  # fmt: skip


def named(made: Any, number: int, *failed: int) -> list[Any]:
    return [
        made.failed_over(f"queue-{place:03}") if place in failed else made.entity(f"queue-{place:03}")
        for place in range(number)
    ]


def table(console: Any) -> list[str]:
    """The rows of the table of entities, with what is said to be out of sight."""
    rows = console.rows()
    top = next(y for y, row in enumerate(rows) if "worst first ─" in row or ("entities" in row and row[0] == "─"))
    return rows[top + 2 : next(y for y, row in enumerate(rows) if row.startswith("── last 5 min"))]


# -- rows in sight -----------------------------------------------------------------------------------------------


async def test_the_eighth_and_the_tenth_of_ten_are_on_the_screen_when_they_fail(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(*named(made, 10))) as console:
        await console.told(made.snapshot(*named(made, 10, 7, 9)))
        rows = table(console)
        assert "▲ queue-007" in "".join(rows)
        assert "▲ queue-009" in "".join(rows)
        assert "2 failed" in console.screen()


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_every_row_is_in_sight_or_counted(open_console: Any, made: Any, size: tuple[int, int]) -> None:
    failed = [5 * place for place in range(55)]
    async with open_console(made.snapshot(*named(made, 300, *failed)), size=size) as console:
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
    async with open_console(made.snapshot(*named(made, 300))) as console:
        await console.told(made.snapshot(*named(made, 300, *range(245, 300))))
        *rows, last = table(console)
        assert all("▲" in row for row in rows if "queue-" in row)
        assert "queue-000" in last
        assert console.app.view.selected == "queue-000", "the selection is not moved under a finger"


async def test_sorting_again_shows_the_first_rows(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(*named(made, 40, 3))) as console:
        await console.press("end", "s")
        assert "40 entities, name" in console.screen()
        assert "queue-000" in table(console)[0]
        await console.press("s")
        assert "of 14:02:11" in console.screen()


# -- what keys act on ----------------------------------------------------------------------------------------------


async def test_nothing_is_marked_or_sorted_where_there_are_no_such_rows(open_console: Any, made: Any) -> None:
    async with open_console(made.backlog()) as console:
        before = console.app.view
        for page, key in itertools.product("3456", ("a", "space", "s")):
            await console.press(page, key)
            assert f"page {console.app.view.page}" in console.screen(), (page, key)
        after = console.app.view
        assert (after.marks, after.selected, after.sort) == (before.marks, before.selected, before.sort)


async def test_arrows_on_a_page_without_rows_move_nothing(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        await console.press("5", "down")
        assert console.app.view.selected == "orders"
        assert "page cost" in console.screen()


async def test_the_page_of_an_entity_acts_on_what_it_shows_whatever_is_marked(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        await console.press("a", "down", "enter", "F")
        assert "failover: payments" in console.screen()
        await console.press(*"payments", "enter")
        assert console.feed.orders == [("force", "payments", "kim")]
        assert console.app.view.marks == {"orders", "audit"}, "only the mark of what was ordered is spent"


async def test_marks_are_said_wherever_an_order_would_hit_them(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        await console.press("a")
        for page in Page:
            console.app.turn_to(page)
            await console.pilot.pause()
            assert ("3 marked" in console.rows()[0]) == (page is not Page.ENTITY), page


async def test_the_title_says_how_many_of_the_marked_an_order_would_hit(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        await console.press("a", "slash", *"pay", "enter")
        assert "on 1 listed" in console.screen()
        await console.press("F")
        assert "failover: payments" in console.screen()


# -- questions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "stops"), [("S", "stay where they are"), ("W", "refuses every command")])
async def test_what_stops_something_asks_first_and_names_it(open_console: Any, made: Any, key: str, stops: str) -> None:
    async with open_console(made.outage()) as console:
        await console.press(key)
        assert isinstance(console.app.screen, ConfirmDialog)
        assert stops in console.screen()
        assert "a restart" in " ".join(console.screen().split())
        await console.press("enter")
        assert isinstance(console.app.screen, DashboardScreen)
        assert console.feed.orders == [], "Cancel is in focus"


@pytest.mark.parametrize("word", ["ps", "w", "python -m x", "who", "pwd"])
async def test_no_word_typed_into_the_wrong_window_stops_anything(open_console: Any, made: Any, word: str) -> None:
    keys = ["space" if letter == " " else "minus" if letter == "-" else letter for letter in word]
    async with open_console(made.outage()) as console:
        await console.press(*keys, "enter")
        assert [verb for verb, *_ in console.feed.orders if verb in ("pause-syphon", "read-only")] == []


async def test_a_reason_goes_with_the_order(open_console: Any, made: Any) -> None:
    async with open_console(made.outage(require_reason=True)) as console:
        await console.press("W", "right", "enter")
        assert console.feed.orders == [], "a reason is required here"
        await console.press("escape", "W", "shift+tab", *"audit", "enter")
        await console.press("right", "enter")
        assert console.feed.orders == [("read-only", "", "kim")]
        assert console.feed.fired[0].why == "audit"


async def test_on_the_page_of_queues_the_selected_one_is_paused_or_all(open_console: Any, made: Any) -> None:
    async with open_console(made.backlog()) as console:
        await console.press("3", *["down"] * 3, "S")
        assert "Pause backlog/3" in console.screen()
        assert "Pause all" in console.screen()
        await console.press("right", "enter")
        assert console.feed.orders == [("pause-syphon", "3", "kim")]
        paused = made.syphon(SyphonStatus.RUNNING, text="moving", paused_queues=(3,))
        await console.told(made.backlog(syphon=paused))
        await console.press("S")
        assert console.feed.orders[1:] == [("resume-syphon", "3", "kim")], "resuming asks nothing"


async def test_a_key_stands_for_the_act_that_fits_even_where_none_is_possible(open_console: Any, made: Any) -> None:
    paused = made.syphon(SyphonStatus.PAUSED, text="paused by kim")
    async with open_console(made.snapshot(syphon=paused, read_only=True)) as console:
        assert "(S resume" in console.rows()[-1]
        await console.press("S")
        assert "is read-only" in console.screen()


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
        console.app._dispatch._feed = console.feed


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


# -- the backlog -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_stranded_messages_are_said_on_both_pages_at_every_size(
    open_console: Any, made: Any, size: tuple[int, int]
) -> None:
    queues = tuple(
        UnusedQueue(path=f"u/{index}", index=index, status="Active", messages=3 if index == 7 else 0, dead_lettered=0)
        for index in (5, 6, 7)
    )
    unused = UnusedView(queues=queues, read_at=made.AT)
    async with open_console(made.snapshot(unused=unused), size=size) as console:
        assert "queue 7" in console.rows()[2]
        await console.press("3")
        assert "3 stranded · 0 dead" in console.screen()
        assert "3 messages" in console.screen()


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


async def test_wide_screens_give_every_failed_entity_its_reason(open_console: Any, made: Any) -> None:
    entities = [
        made.failed_over(f"queue-{number}") if number < 4 else made.entity(f"queue-{number}") for number in range(40)
    ]
    async with open_console(made.snapshot(*entities), size=(140, 40)) as console:
        assert console.screen().count("connection lost") == 4
        assert "36 healthy" in console.screen()


async def test_every_failed_row_comes_before_reasons(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(*named(made, 300, *range(6))), size=(140, 40)) as console:
        rows = table(console)
        assert sum("▲" in row for row in rows) == 6
        assert sum("connection lost" in row for row in rows) == 2, "as many reasons as leave them in sight"
        assert any("● 294 healthy" in row for row in rows)


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
