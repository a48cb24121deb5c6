"""Pictures without a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from paired_servicebus.ui.shell.screenshot import draw_page
from paired_servicebus.ui.state.view import Page
from paired_servicebus.ui.widgets.graph_strip import NONE_YET
from tests.graph_views import graphs
from tests.pictures.draw import draw_svg


def words(svg: str) -> str:
    return svg.replace("&#160;", " ")


@pytest.mark.parametrize("theme", ["dark", "light"])
async def test_a_picture_shows_snapshot_and_events(made: Any, theme: str) -> None:
    svg = words(await draw_svg(made.outage(), made.records(), size=(140, 40), theme=theme))
    assert svg.startswith("<svg")
    for text in (
        "failed over: payments",
        "next ping in 52 s",
        "PRODUCTION",
        "not accepting",
        ">paired orders<",
    ):
        assert text in svg


async def test_no_text_starts_with_a_space(made: Any) -> None:
    assert ">&#160;" not in await draw_svg(made.outage(), size=(80, 24), theme="dark")


async def test_the_same_news_make_the_same_picture(made: Any) -> None:
    first, second = [await draw_svg(made.outage(), made.records(), size=(80, 24), theme="dark") for _ in range(2)]
    assert first == second


async def test_an_unknown_theme_is_named(made: Any) -> None:
    with pytest.raises(ValueError, match="'neon'"):
        await draw_svg(made.snapshot(), size=(80, 24), theme="neon")


@pytest.mark.parametrize(
    ("page", "words"),
    [(Page.PAIRING, "payments"), (Page.BACKLOG, "1,204"), (Page.COST, "operations"), (Page.HISTORY, "unknown")],
)
async def test_a_page_as_text(page: Page, words: str, made: Any) -> None:
    text = await draw_page(made.outage(), made.records(), page=page, size=(80, 24), as_text=True)
    assert words in text
    assert len(text.split("\n")) == 24
    assert max(map(len, text.split("\n"))) <= 80


async def test_a_page_as_a_picture(made: Any) -> None:
    drawn = words(await draw_page(made.outage(), page=Page.COST, size=(100, 30), theme="light"))
    assert drawn.startswith("<svg")
    assert "operations" in drawn


async def test_a_page_shows_the_figures_over_time(made: Any) -> None:
    text = await draw_page(made.outage(), page=Page.PAIRING, size=(80, 24), as_text=True, graphs=graphs())
    assert "to backlog" in text
    assert NONE_YET not in text


async def test_a_picture_shows_the_figures_over_time(made: Any) -> None:
    svg = words(await draw_svg(made.outage(), size=(140, 40), theme="dark", graphs=graphs()))
    assert "in ms" in svg


async def test_a_page_without_figures_says_why(made: Any) -> None:
    text = await draw_page(made.outage(), page=Page.PAIRING, size=(80, 24), as_text=True)
    assert NONE_YET in text


@pytest.mark.parametrize("size", [(1, 1), (20, 5)])
async def test_a_size_too_small_for_the_dashboard_is_drawn(size: tuple[int, int], made: Any) -> None:
    text = await draw_page(made.outage(), page=Page.PAIRING, size=size, as_text=True)
    assert len(text.split("\n")) == size[1]


async def test_an_unknown_theme_of_a_page_is_named(made: Any) -> None:
    with pytest.raises(ValueError, match="'neon'"):
        await draw_page(made.outage(), page=Page.PAIRING, size=(80, 24), theme="neon")
