"""Themes are checked before use; in each, states differ and every text can be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.color import Color as RichColor
from rich.color import ColorSystem
from textual.color import Color
from textual.theme import Theme

from console.core.entity import State
from console.ui import theme
from console.ui.line import Role
from console.ui.states import LOOKS
from console.ui.theme import FALLBACK, ROLES, ThemeError, load, load_all

SHIPPED = load_all()
TEXTS = [name for name in ROLES if name != "ground-selected"]
GOOD = """
name = "mine"
dark = true
[colours]
primary = "#58a6ff"
foreground = "#e6edf3"
background = "#0d1117"
surface = "#161b22"
panel = "#21262d"
"""

each_theme = pytest.mark.parametrize("shipped", SHIPPED.themes, ids=lambda shipped: shipped.name)


def contrast(one: Color, other: Color) -> float:
    """As WCAG 2 defines it."""

    def luminance(colour: Color) -> float:
        parts = [part / 255 for part in colour.rgb]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def colour(shipped: Theme, name: str) -> Color:
    found = shipped.variables.get(name) or getattr(shipped, name)
    return Color.parse(found)


def at_16(shipped: Theme, name: str) -> int | None:
    return RichColor.parse(colour(shipped, name).hex).downgrade(ColorSystem.STANDARD).number


def test_both_shipped_themes_load_without_a_notice() -> None:
    assert [each.name for each in SHIPPED.themes] == ["dark", "light"]
    assert [each.dark for each in SHIPPED.themes] == [True, False]
    assert SHIPPED.notices == ()


@each_theme
@pytest.mark.parametrize("ground", ["background", "ground-selected"])
@pytest.mark.parametrize("text", [*TEXTS, "foreground"])
def test_every_text_has_a_contrast_of_at_least_4_5(shipped: Theme, ground: str, text: str) -> None:
    assert contrast(colour(shipped, text), colour(shipped, ground)) >= 4.5


@each_theme
def test_buttons_can_be_read(shipped: Theme) -> None:
    assert contrast(colour(shipped, "foreground"), colour(shipped, "panel")) >= 4.5
    assert contrast(colour(shipped, "role-muted"), colour(shipped, "panel")) >= 4.5


@each_theme
def test_no_text_vanishes_at_16_colours(shipped: Theme) -> None:
    ground = at_16(shipped, "background")
    assert all(at_16(shipped, text) != ground for text in [*TEXTS, "foreground"])


@each_theme
def test_what_needs_a_person_differs_from_healthy_at_16_colours(shipped: Theme) -> None:
    healthy = at_16(shipped, "state-healthy")
    others = ["state-failed-over", "state-forced", "state-suspect", "state-pinned"]
    assert healthy not in [at_16(shipped, name) for name in others]
    assert at_16(shipped, "state-failed-over") != at_16(shipped, "state-suspect")


def test_states_differ_without_any_colour() -> None:
    assert set(LOOKS) == set(State)
    assert len({look.glyph for look in LOOKS.values()}) == len(State)
    assert len({look.role for look in LOOKS.values()}) == len(State)


@pytest.mark.parametrize("name", ROLES)
def test_every_role_of_a_theme_is_used(name: str) -> None:
    from console.ui.widgets.lines import Lines

    kind, _, role = name.partition("-")
    assert f"${name}" in Lines.DEFAULT_CSS
    assert kind in {"state", "role", "ground"}
    assert role in set(Role)


def written(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_theme_of_ones_own(tmp_path: Path) -> None:
    mine = load(written(tmp_path, GOOD + '[roles]\nstate-healthy = "#00ff00"\n'))
    assert mine.variables == {**ROLES, "state-healthy": "#00ff00"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = ", "theme mine.toml cannot be read"),
        (GOOD.replace("dark = true", "dark = 1"), "dark is true or false"),
        (GOOD.replace("dark = true\n", ""), "dark is missing"),
        (GOOD.replace('panel = "#21262d"\n', ""), "colours.panel is missing"),
        (GOOD.replace("panel", "pannel"), "unknown key colours.pannel"),
        (GOOD.replace("#21262d", "reddish"), "colours.panel is 'reddish'; a colour is like"),
        (GOOD.replace('"#21262d"', "7"), "colours.panel is 7; a colour is like"),
        (GOOD + "[roles]\nstate-dead = '#000000'\n", "unknown key roles.state-dead"),
        (GOOD.replace("[colours]", "colours = 3\n[roles]"), "colours is a table"),
    ],
)
def test_a_broken_theme_is_said_clearly(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ThemeError, match=said.replace(".", r"\.").replace("[", r"\[")):
        load(written(tmp_path, text))


def test_a_broken_theme_costs_a_notice_and_nothing_else(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    written(tmp_path, "name = ", "bad.toml")
    found = load_all(tmp_path)
    assert [each.name for each in found.themes] == ["mine"]
    assert len(found.notices) == 1


def test_without_any_theme_the_librarys_own_is_used(tmp_path: Path) -> None:
    found = load_all(tmp_path)
    assert found.themes == (FALLBACK,)
    assert "no theme file could be used" in found.notices[-1]


def test_the_next_theme_goes_around() -> None:
    assert SHIPPED.after("dark").name == "light"
    assert SHIPPED.after("light").name == "dark"


async def test_a_notice_is_shown_and_the_screen_works_in_the_fallback(
    tmp_path: Path, open_console: Any, made: Any
) -> None:
    written(tmp_path, "name = ", "bad.toml")
    async with open_console(made.outage(), themes=load_all(tmp_path)) as console:
        assert "theme bad.toml cannot be read" in console.screen()
        assert "▲ payments" in console.screen()


async def test_t_takes_the_next_theme(open_console: Any, made: Any) -> None:
    async with open_console(made.outage()) as console:
        await console.press("t")
        assert console.app.theme == "light"
        background = console.app.screen.styles.background
        assert background == Color.parse("#ffffff")
        await console.press("t")
        assert console.app.theme == "dark"


def test_the_folder_is_found() -> None:
    assert (theme.folder() / "dark.toml").is_file()
