"""Themes are checked before use; in each, states differ and every text can be read."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from rich.color import ColorSystem
from textual.color import Color
from textual.theme import Theme

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.ui.commands.action_table import CONSOLE_BY_ID
from paired_servicebus.ui.display import theme
from paired_servicebus.ui.display.terminal_app import to_ascii
from paired_servicebus.ui.display.theme import FALLBACK, ROLES, ThemeError, load, load_all, theme_for
from paired_servicebus.ui.render.spans import LOOKS, Role

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

STATES = [name for name in ROLES if name.startswith("state-")]
MISSING_CONES: dict[str, tuple[tuple[float, float, float], ...]] = {
    "none": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
"""What is left of linear red, green and blue without one kind of cone: Machado, Oliveira and Fernandes (2009)."""
XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))

each_coloured = pytest.mark.parametrize(
    "shipped", [each for each in SHIPPED.themes if each.name != "mono"], ids=lambda shipped: shipped.name
)
each_theme = pytest.mark.parametrize("shipped", SHIPPED.themes, ids=lambda shipped: shipped.name)


def contrast(one: Color, other: Color) -> float:
    """As WCAG 2 defines it."""

    def luminance(colour: Color) -> float:
        parts = [part / 255 for part in colour.rgb]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def as_seen(seen: Color, cones: tuple[tuple[float, float, float], ...]) -> tuple[float, float, float]:
    """CIE L*a*b* of a colour for eyes with these cones."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in seen.normalized]
    left = [min(1.0, max(0.0, sum(a * b for a, b in zip(row, linear, strict=True)))) for row in cones]
    xyz = [sum(a * b for a, b in zip(row, left, strict=True)) for row in XYZ]
    x, y, z = (
        ratio ** (1 / 3) if ratio > 0.008856 else 7.787 * ratio + 16 / 116
        for ratio in (part / white for part, white in zip(xyz, (0.9505, 1.0, 1.089), strict=True))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def colour(shipped: Theme, name: str) -> Color:
    found = shipped.variables.get(name) or getattr(shipped, name)
    return Color.parse(found)


def number(shipped: Theme, name: str, system: ColorSystem) -> int | None:
    """The terminal's number of that colour."""
    return colour(shipped, name).rich_color.downgrade(system).number


def test_every_shipped_theme_loads_without_a_notice() -> None:
    assert [each.name for each in SHIPPED.themes] == ["dark", "colour-blind", "contrast", "light", "mono", "sixteen"]
    assert [each.name for each in SHIPPED.themes if not each.dark] == ["light"]
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
@pytest.mark.parametrize("system", [ColorSystem.STANDARD, ColorSystem.EIGHT_BIT])
def test_no_text_vanishes_in_few_colours(shipped: Theme, system: ColorSystem) -> None:
    ground = number(shipped, "background", system)
    assert all(number(shipped, text, system) != ground for text in [*TEXTS, "foreground"])


@each_coloured
@pytest.mark.parametrize("system", [ColorSystem.STANDARD, ColorSystem.EIGHT_BIT])
def test_all_six_states_differ_in_few_colours(shipped: Theme, system: ColorSystem) -> None:
    assert len({number(shipped, name, system) for name in STATES}) == len(State)


@pytest.mark.parametrize("eyes", MISSING_CONES)
def test_the_states_keep_their_distance_for_every_kind_of_colour_vision(eyes: str) -> None:
    shipped = SHIPPED.named("colour-blind")
    assert shipped is not None
    seen = [as_seen(colour(shipped, name), MISSING_CONES[eyes]) for name in STATES]
    assert min(math.dist(one, other) for one, other in itertools.combinations(seen, 2)) >= 20


def test_the_states_differ_in_ascii_too() -> None:
    assert len({to_ascii(look.glyph) for look in LOOKS.values()}) == len(State)


def test_states_differ_without_any_colour() -> None:
    assert set(LOOKS) == set(State)
    assert len({look.glyph for look in LOOKS.values()}) == len(State)
    assert len({look.role for look in LOOKS.values()}) == len(State)


@pytest.mark.parametrize("name", ROLES)
def test_every_role_of_a_theme_is_used(name: str) -> None:
    from paired_servicebus.ui.widgets.frame.lines_widget import ROLE_CSS

    kind, _, role = name.partition("-")
    assert f"${name}" in ROLE_CSS
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
        (GOOD.replace("dark = true", "dark = 1"), "dark and monochrome true or false"),
        (GOOD.replace("dark = true\n", ""), "dark is missing"),
        (GOOD.replace('panel = "#21262d"\n', ""), "colours.panel is missing"),
        (GOOD.replace("panel", "pannel"), "unknown key colours.pannel"),
        (GOOD.replace("#21262d", "reddish"), "colours.panel is 'reddish'; a colour is like"),
        (GOOD.replace('"#21262d"', "7"), "colours.panel is 7; a colour is like"),
        (GOOD + "[roles]\nstate-dead = '#000000'\n", "unknown key roles.state-dead"),
        (GOOD.replace("[colours]", "colours = 3\n[roles]"), "colours must be a table"),
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


def test_a_theme_of_ones_own_takes_the_place_of_a_shipped_one_of_that_name(tmp_path: Path) -> None:
    written(tmp_path, GOOD.replace("mine", "light"))
    found = load_all(theme.folder(), tmp_path)
    assert len(found.themes) == len(SHIPPED.themes)
    mine = found.named("light")
    assert mine is not None
    assert mine.dark


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"TERM": "xterm-256color"}, "dark"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "dark"),
        ({"TERM": "xterm"}, "sixteen"),
        ({"TERM": "linux"}, "sixteen"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "mono"),
    ],
)
def test_the_first_theme_is_one_that_the_terminal_can_show(environ: dict[str, str], name: str) -> None:
    assert theme_for(environ) == name


async def test_a_theme_that_is_not_there_costs_a_notice(open_console: Any, made: Any) -> None:
    async with open_console(made.outage(), theme="pink") as console:
        assert "'pink'" in console.screen()
        assert console.app.theme == "dark"


async def test_a_monochrome_theme_writes_no_colour(open_console: Any, made: Any) -> None:
    async with open_console(made.outage(), theme="mono") as console:
        styles = [segment.style for strip in console.app.screen._compositor.render_strips() for segment in strip]
        assert all(style is None or (style.color is None and style.bgcolor is None) for style in styles)


def test_without_any_theme_the_librarys_own_is_used(tmp_path: Path) -> None:
    found = load_all(tmp_path)
    assert found.themes == (FALLBACK,)
    assert "no theme" in found.notices[-1]


def test_the_next_theme_goes_around() -> None:
    assert SHIPPED.after("dark").name == "colour-blind"
    assert SHIPPED.after("sixteen").name == "dark"


async def test_a_notice_is_shown_and_the_screen_works_in_the_fallback(
    tmp_path: Path, open_console: Any, made: Any
) -> None:
    written(tmp_path, "name = ", "bad.toml")
    async with open_console(made.outage(), themes=load_all(tmp_path)) as console:
        assert "bad.toml" in console.screen()
        assert "▲ payments" in console.screen()


async def test_the_next_theme_is_taken_and_the_last_is_followed_by_the_first(open_console: Any, made: Any) -> None:
    async with open_console(made.outage()) as console:
        for _ in range(3):
            console.app.do(CONSOLE_BY_ID["next-theme"])
        assert console.app.theme == "light"
        await console.pilot.pause()
        background = console.app.screen.styles.background
        assert background == Color.parse("#ffffff")
        for _ in range(3):
            console.app.do(CONSOLE_BY_ID["next-theme"])
        assert console.app.theme == "dark"


@pytest.mark.parametrize(
    "data",
    [b'name = "\xff"', b"a = " + b"[" * 100_000, b"a = " + b"9" * 5000, b'"\\u001b[2J" = 1'],
    ids=["not UTF-8", "nested", "a huge number", "a key that clears the screen"],
)
def test_whatever_a_file_holds_costs_a_notice_that_can_be_shown(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "mine.toml").write_bytes(data)
    found = load_all(theme.folder(), tmp_path)
    assert [each.name for each in found.themes] == [each.name for each in SHIPPED.themes]
    (notice,) = found.notices
    assert notice.startswith("theme mine.toml")
    assert notice.isprintable()
    assert len(notice) < 400
