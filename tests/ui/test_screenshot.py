"""Pictures without a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from paired_servicebus.ui.shell.screenshot import draw_svg, render_svg


def words(svg: str) -> str:
    return svg.replace("&#160;", " ")


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_a_picture_shows_snapshot_and_events(made: Any, theme: str) -> None:
    svg = words(render_svg(made.outage(), made.records(), size=(140, 40), theme=theme))
    assert svg.startswith("<svg")
    for text in (
        "failed over: payments",
        "next ping in 52 s",
        "PRODUCTION",
        "pulled from the rotation",
        ">paired orders<",
    ):
        assert text in svg


def test_no_text_starts_with_a_space(made: Any) -> None:
    assert ">&#160;" not in render_svg(made.outage(), size=(80, 24), theme="dark")


async def test_inside_a_running_loop(made: Any) -> None:
    assert "orders" in await draw_svg(made.snapshot(), size=(80, 24), theme="dark")


def test_the_same_news_make_the_same_picture(made: Any) -> None:
    first, second = (render_svg(made.outage(), made.records(), size=(80, 24), theme="dark") for _ in range(2))
    assert first == second


def test_an_unknown_theme_is_named(made: Any) -> None:
    with pytest.raises(ValueError, match="unknown theme 'neon'; known are dark, colour-blind,"):
        render_svg(made.snapshot(), size=(80, 24), theme="neon")
