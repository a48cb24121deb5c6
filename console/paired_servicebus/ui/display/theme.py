"""Themes: one TOML file each, checked before use; a broken one costs a notice, never the screen.

A file has `name`, `dark`, `[colours]` (the fields of Textual's Theme) and `[roles]` (our own variables, see ROLES);
with `monochrome = true` its colours are not written at all. In the wheel the files lie beside this module, in a source
tree in `themes` at its top; a person's own lie in `themes` of the config folder and take the place of a shipped one of
the same name. dark.toml comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES, Theme

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.core.text.untrusted_toml import parse_toml
from paired_servicebus.ui.display.profile import without_colours

FALLBACK: Final = BUILTIN_THEMES["textual-dark"]
FIRST: Final = "dark"
ROLES: Final[dict[str, str]] = {
    "state-healthy": "#4ebf71",
    "state-unknown": "#a8b0b8",
    "state-suspect": "#ffc857",
    "state-failed-over": "#ff7b72",
    "state-forced": "#d2a8ff",
    "state-pinned": "#79c0ff",
    "role-muted": "#9aa4ae",
    "role-key": "#79c0ff",
    "role-production": "#ff7b72",
    "ground-selected": "#24303c",
}
"""Our variables with their defaults, which serve a theme that leaves one out and the fallback."""
COLOURS: Final = frozenset(
    {"primary", "secondary", "warning", "error", "success", "accent", "foreground", "background", "surface", "panel"}
)
SIXTEEN: Final = "sixteen"
"""The shipped theme for terminals of 16 colours."""
MONO: Final = "mono"
"""The shipped theme without any."""
NEEDED: Final = frozenset({"primary", "foreground", "background", "surface", "panel"})


_OF_16: Final = {dark: BUILTIN_THEMES[name].variables for dark, name in ((True, "ansi-dark"), (False, "ansi-light"))}
"""Variables that the terminal library asks of a theme in the terminal's own colours."""
_KEYS: Final = {"name", "dark", "monochrome", "colours", "roles"}


class ThemeError(ValueError):
    """A theme file that cannot be used; the text says where and why."""


@dataclass
class PairedTheme(Theme):
    """A theme of a file."""

    monochrome: bool = False
    """Whether nothing but the terminal's own colours is written."""


@dataclass(frozen=True, slots=True)
class Themes:
    """What could be loaded, never empty, and one sentence for each file that could not."""

    themes: tuple[Theme, ...]
    notices: tuple[str, ...] = ()

    def named(self, name: str) -> Theme | None:
        """The theme of that name."""
        return next((theme for theme in self.themes if theme.name == name), None)

    def chosen(self, name: str | None) -> tuple[Theme, str]:
        """The theme asked for, or the first; and a sentence if there is none of that name."""
        found = self.named(name) if name is not None else self.themes[0]
        if found is not None:
            return found, ""
        return self.themes[0], f"there is no theme {name!r}; there are {', '.join(each.name for each in self.themes)}"

    def after(self, name: str) -> Theme:
        """The theme that follows the one of that name, around the corner at the end."""
        names = [theme.name for theme in self.themes]
        place = names.index(name) if name in names else -1
        return self.themes[(place + 1) % len(names)]


def theme_for(environ: Mapping[str, str], *, ascii_only: bool = False) -> str:
    """The name of the theme for a terminal with these variables: none of its colours asked for, sixteen, or more."""
    if ascii_only or without_colours(environ):
        return MONO
    colours = Console(force_terminal=True, _environ=environ).color_system
    return FIRST if colours in ("256", "truecolor") else SIXTEEN


def folder() -> Path:
    """Where the theme files lie."""
    ui = Path(__file__).resolve().parents[1]
    installed = ui / "themes"
    return installed if installed.is_dir() else ui.parents[2] / "themes"


def load_all(*places: Path) -> Themes:
    """Every theme file in these folders (the shipped ones' unless given), the default one first; of two with one name
    the later."""
    themes: dict[str, Theme] = {}
    notices: list[str] = []
    for path in (path for place in places or (folder(),) for path in _files(place)):
        try:
            theme = load(path)
        except ThemeError as error:
            notices.append(str(error))
        else:
            themes[theme.name] = theme
    if not themes:
        notices.append("no theme file could be used: the terminal library's own dark theme is shown")
        return Themes((FALLBACK,), tuple(notices))
    return Themes(tuple(themes.values()), tuple(notices))


def _files(place: Path) -> list[Path]:
    return sorted(place.glob("*.toml"), key=lambda path: (path.stem != FIRST, path.name))


def load(path: Path) -> PairedTheme:
    """One theme, checked.

    Raises:
        ThemeError: naming the file, the key and what would be right.
    """
    try:
        values = parse_toml(path.read_bytes())
    except (OSError, UnreadableError) as error:
        raise ThemeError(f"theme {path.name} cannot be read: {error}") from error
    _check_keys(path, "", values, allowed=_KEYS, needed={"name", "dark", "colours"})
    colours = _colours(path, "colours", values["colours"], allowed=COLOURS, needed=NEEDED)
    roles = _colours(path, "roles", values.get("roles", {}), allowed=ROLES.keys(), needed=())
    monochrome = values.get("monochrome", False)
    if not isinstance(values["name"], str) or not isinstance(values["dark"], bool) or not isinstance(monochrome, bool):
        raise ThemeError(f"theme {path.name}: name is a text, dark and monochrome are true or false")
    ansi = all(colour.startswith("ansi_") for colour in (*colours.values(), *roles.values()))
    theme = PairedTheme(
        name=values["name"],
        primary=colours["primary"],
        dark=values["dark"],
        variables={**(_OF_16[values["dark"]] if ansi else {}), **ROLES, **roles},
        ansi=ansi,
        monochrome=monochrome,
    )
    for field, colour in colours.items():
        setattr(theme, field, colour)
    try:
        theme.to_color_system().generate()
    except (ColorParseError, ValueError) as error:
        raise ThemeError(f"theme {path.name} makes no set of colours: {error}") from error
    return theme


def _colours(
    path: Path, table: str, values: object, *, allowed: Iterable[str], needed: Iterable[str]
) -> dict[str, str]:
    if not isinstance(values, dict):
        raise ThemeError(f"theme {path.name}: {table} is a table of colours")
    _check_keys(path, f"{table}.", values, allowed=set(allowed), needed=set(needed))
    for key, value in values.items():
        try:
            Color.parse(value)
        except (ColorParseError, TypeError, AttributeError) as error:
            raise ThemeError(
                f'theme {path.name}: {table}.{key} is {repeated(repr(value))}; a colour is like "#1e88e5"'
            ) from error
    return values


def _check_keys(path: Path, prefix: str, values: dict[str, object], *, allowed: set[str], needed: set[str]) -> None:
    for key in values:
        if key not in allowed:
            raise ThemeError(
                f"theme {path.name}: unknown key {prefix}{repeated(key)}; known are {', '.join(sorted(allowed))}"
            )
    for key in sorted(needed - values.keys()):
        raise ThemeError(f"theme {path.name}: {prefix}{key} is missing")
