"""Each state of the screen, as text, at both sizes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len

from paired_servicebus.core.model.snapshot import Finding, FindingVerdict, Readiness
from paired_servicebus.ui.render.spans import fit_name
from paired_servicebus.ui.screens.pages import DashboardScreen
from paired_servicebus.ui.screens.pick_list import Choice, PickList, narrowed
from paired_servicebus.ui.screens.questions import ArmDialog
from paired_servicebus.ui.state.view import Page, Unreachable, View, alarms_of, apply_news
from paired_servicebus.ui.widgets.entity_table import EntityTable
from paired_servicebus.ui.widgets.frame.page_lines import AnswerLine, HeaderNames, KeyLine, PairingLine, SummaryLines
from tests import fleet_views, gateway_views

from .conftest import AT


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (FindingVerdict.OK, "● … ready"),
        (FindingVerdict.WARN, "! … ready, 1 warning"),
        (FindingVerdict.NO, "✗ … not ready, checked <1 min ago"),
    ],
)
def test_whether_a_failover_would_work_stands_beside_the_secondary(
    made: Any, verdict: FindingVerdict, said: str
) -> None:
    found = Finding(what="send to the backlog", verdict=verdict, evidence="seen")
    snapshot = replace(made.snapshot(), readiness=Readiness(at=AT, findings=(found,)))
    (line,) = PairingLine().lines(apply_news(View(pairing="orders"), snapshot), 140, 1)
    glyph, words = said.split(" … ")
    assert f"contoso backed by {glyph} contoso-backup  {words} " in line.text


async def test_an_unreachable_engine_is_a_full_width_statement_and_its_figures_are_grey(
    open_console: Any, outage_news: Any
) -> None:
    async with open_console(*outage_news) as console:
        console.feed.lose("the engine ended")
        await console.pilot.pause()
        assert console.rows()[1].startswith(" ✗ engine unreachable")
        assert "retrying:" in console.screen()
        styles = {segment.style.color for segment in strip_of(console, 7) if segment.text.strip()}
        assert styles == {muted(console)}
        statement = strip_of(console, 1)
        assert all(segment.style.reverse for segment in statement)
        await console.told(outage_news[-1])
        assert "unreachable" not in console.screen()


async def test_silence_is_said_after_a_while(open_console: Any, made: Any) -> None:
    clock = [0.0]
    async with open_console(made.snapshot(), monotonic=lambda: clock[0]) as console:
        clock[0] = 2.9
        console.app._check_silence()
        assert console.app.view.fresh
        clock[0] = 3.1
        console.app._check_silence()
        await console.pilot.pause()
        assert "✗ engine silent" in console.rows()[1]
        await console.told(made.snapshot())
        assert "3 entities" in console.rows()[1]


@pytest.mark.parametrize("size", [(59, 24), (80, 19), (40, 10), (20, 4)])
async def test_a_small_terminal_is_told_so_and_still_says_what_is_wrong(
    open_console: Any, outage_news: Any, size: tuple[int, int]
) -> None:
    async with open_console(*outage_news, size=size) as console:
        words = " ".join(console.screen().split())
        assert words.startswith("▲ OUTAGE")
        assert f"terminal has {size[0]}" in words or size[1] < 10
        await console.press("F")
        assert isinstance(console.app.screen, DashboardScreen)
        await console.pilot.resize_terminal(80, 24)
        await console.pilot.pause()
        assert "3 entities" in console.screen()


async def test_nothing_moves_when_states_change(open_console: Any, made: Any, outage_news: Any) -> None:
    """Each heading keeps its row and column; entities are sorted, the worst first."""

    def places(rows: list[str]) -> dict[str, tuple[int, int]]:
        marks = [
            "── last 5 min",
            " syphon",
            "── what changed",
        ]
        return {
            mark: next((y, row.index(mark)) for y, row in enumerate(rows) if mark in row and y > 5) for mark in marks
        }

    async with open_console(made.snapshot()) as console:
        before = places(console.rows())
        await console.told(*outage_news)
        assert places(console.rows()) == before


async def test_many_entities_scroll_and_the_selection_stays_in_sight(open_console: Any, made: Any) -> None:
    entities = [made.entity(f"queue-{number:02}") for number in range(40)]
    entities[2] = made.failed_over("queue-02")
    async with open_console(made.snapshot(*entities)) as console:
        table = console.app.screen.query_one(EntityTable)
        assert "in 52 s" in console.screen(), "the failed one has its why-line"
        await console.press("down", "enter", *["down"] * 30)
        assert "▸● queue-30" in console.screen()
        assert "no failure" in console.screen(), "so has the selected one"
        await console.told(made.snapshot(*entities))
        assert "▸● queue-30" in console.screen()
        assert table.scroll_offset.y > 0
        await console.press(*["k"] * 40)
        assert "▸▲ queue-02" in console.screen()


async def test_when_most_entities_go_the_rest_is_in_sight(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(*(made.entity(f"queue-{number:02}") for number in range(40)))) as console:
        await console.press(*["down"] * 39)
        await console.told(made.snapshot())
        assert "▸● orders" in console.screen()


async def test_wide_names_keep_the_columns(open_console: Any, made: Any) -> None:
    news = made.snapshot(made.entity("注文キュー"), made.entity("orders"))
    async with open_console(news) as console:
        columns = {
            cell_len(row[: row.index("healthy")]) for row in console.rows() if "● " in row and "healthy  " in row
        }
        assert len(columns) == 1


def strip_of(console: Any, y: int) -> list[Any]:
    return list(console.app.screen._compositor.render_strips()[y])


def muted(console: Any) -> Any:
    from paired_servicebus.ui.render.spans import Role

    table = console.app.screen.query_one(EntityTable)
    return table._style(Role.MUTED).color


@pytest.mark.parametrize("jump", [-86_400.0, -5.0, 86_400.0])
async def test_an_engines_clock_that_jumps_leaves_the_screen_alive_and_true(
    open_console: Any, made: Any, jump: float
) -> None:
    async with open_console(made.backlog()) as console:
        for number, key in enumerate("12345"):
            await console.press(key)
            at = made.AT + jump + number
            await console.told(
                made.counted(
                    replace(made.backlog(), at=at, parked=None, queues=made.queues({3: 7 + number}, read_at=at))
                )
            )
            assert console.app.view.fresh, "that news come is told by a clock that does not jump"
            assert "14:02:15 UTC" in console.rows()[0]
            assert key not in "13" or f"{7 + number} parked" in console.screen()


# -- A screen without figures says what is waited for, and since when: as `paired attach` and the demo begin.


async def test_a_hostile_reason_stays_one_text(open_console: Any) -> None:
    async with open_console(Unreachable(AT, "\x1b]52;c;ZXZpbA==\x07 [b]" + "x" * 400)) as console:
        assert "\x1b" not in console.screen()
        assert "[b]" in console.screen()


# -- Where one can go is on the screen: tabs, menu, command bar and mouse end where the keys end.


@pytest.mark.parametrize(
    "size", [(60, 20), *(pytest.param(size, marks=pytest.mark.slow) for size in ((80, 24), (140, 40), (200, 50)))]
)
async def test_the_present_page_is_in_the_header(open_console: Any, made: Any, size: tuple[int, int]) -> None:
    crowd = made.backlog(gateway=gateway_views.outage(), fleet=fleet_views.outage())
    async with open_console(crowd, size=size) as console:
        for number, page in enumerate(Page, start=1):
            await console.press(str(number))
            header = console.rows()[0]
            assert re.search(rf"\[{number} {page.title()}[ 0-9]*\]", header), header
            assert " PRODUCTION " in header


async def test_a_click_on_a_tab_opens_its_page(open_console: Any, made: Any) -> None:
    async with open_console(made.backlog(), size=(140, 40)) as console:
        for word, page in (("4 Events", Page.TIMELINE), ("3 Backlog", Page.BACKLOG), ("1 Overview", Page.PAIRING)):
            await console.pilot.click(HeaderNames, offset=(console.rows()[0].index(word), 0))
            assert console.app.view.page is page


async def test_a_click_selects_a_row_and_the_wheel_the_next(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        top = console.app.screen.query_one(EntityTable).region.y
        place = next(y for y, row in enumerate(console.rows()) if y >= top and "audit" in row)
        await console.pilot.click(EntityTable, offset=(5, place - top))
        assert console.app.view.selected == "audit"
        before = console.app.view.selected
        console.app.screen.on_mouse_scroll_up()
        assert console.app.view.selected != before


async def test_a_click_on_the_key_line_is_its_key(open_console: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        await console.pilot.click(KeyLine, offset=(console.rows()[-1].index("F force") + 1, 0))
        await console.pilot.pause()
        assert isinstance(console.app.screen, ArmDialog)


async def test_the_menu_names_targets_and_reasons_and_a_key_picks(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        await console.press("x")
        screen = console.screen()
        assert "F      force" in screen
        assert "not now" in screen
        await console.press("U")
        assert isinstance(console.app.screen, DashboardScreen)
        assert "not possible" in console.screen()
        await console.press("x", "F")
        assert isinstance(console.app.screen, ArmDialog)
        assert console.feed.orders == []


async def test_the_command_bar_knows_other_words_and_entities_and_says_if_nothing_is_found(
    open_console: Any, made: Any
) -> None:
    async with open_console(made.backlog()) as console:
        await console.press("colon", *"delete")
        assert "clean up" in console.screen()
        await console.press("escape", "colon", *"payments", "enter")
        assert (console.app.view.page, console.app.view.selected) == (Page.ENTITY, "payments")
        await console.press("colon", *"zebra")
        assert "“zebra”" in console.screen()
        await console.press("enter")
        assert isinstance(console.app.screen, PickList)


def test_a_label_that_begins_with_the_words_comes_first() -> None:
    def row(label: str, words: str = "") -> Choice:
        return Choice(label=label, about="", do=lambda: None, words=words)

    rows = [row("a", "force"), row("reinforce"), row("force failover"), row("b")]
    assert [one.label for one in narrowed(rows, "force")] == ["force failover", "reinforce", "a"]


async def test_an_answer_leaves_the_screen(open_console: Any, made: Any) -> None:
    passed = [0.0]
    async with open_console(made.snapshot(), now=lambda: made.AT + passed[0]) as console:
        await console.press("U")
        assert "not possible" in console.screen()
        passed[0] = 31.0
        await console.told(made.snapshot())
        assert console.app.screen.query_one(AnswerLine)
        assert "not possible" not in console.screen()


ASKED = {
    "who forced": "events", "eta": "backlog", "lost": "backlog", "pause": "pause syphon", "what is wrong?": "why",
    "how long was the outage": "incidents", "where is": "engines",
}  # fmt: skip


async def test_the_command_bar_understands_what_people_ask(open_console: Any, made: Any) -> None:
    """The command bar finds by words that people use."""
    async with open_console(made.outage()) as console:
        await console.press("colon")
        for asked, found in ASKED.items():
            console.app.focused.value = asked
            await console.pilot.pause()
            assert isinstance(console.app.screen, PickList)
            assert found in [one.label for one in console.app.screen.listed], asked


async def test_a_key_and_a_click_open_the_page_that_explains_the_first_lines(open_console: Any, made: Any) -> None:
    """Every alarm names its page."""
    async with open_console(made.snapshot()) as console:
        await console.press("0")
        assert "nothing is known to be wrong" in console.screen()
        await console.told(made.outage())
        worst = alarms_of(made.outage())[0]
        await console.press("0")
        page = list(Page)[worst.page - 1]
        assert console.app.view.page is (Page.ENTITY if page is Page.PAIRING else page)
        await console.press("1")
        await console.pilot.click(SummaryLines, offset=(5, 0))
        assert console.app.view.page is not Page.PAIRING


def test_long_names_of_a_family_stay_apart() -> None:
    """Names are cut in the middle."""
    names = [f"contoso.production.westeurope.orders-{number}" for number in range(300)]
    shown = {fit_name(name, 23) for name in names}
    assert len(shown) == 300
    assert all(cell_len(one) == 23 and one.startswith("contoso.pro…") for one in shown)
    assert cell_len(fit_name("界" * 40, 11)) == 11
