"""Themes: one TOML file each, checked before use; a broken one costs a notice, never the screen.

A file has `name`, `dark`, `[colours]` (the fields of Textual's Theme) and `[roles]` (our own variables, see ROLES). In
the wheel the files lie beside this module, in a source tree in `themes` at its top. dark.toml comes first.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES, Theme

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
NEEDED: Final = frozenset({"primary", "foreground", "background", "surface", "panel"})


class ThemeError(ValueError):
    """A theme file that cannot be used; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Themes:
    """What could be loaded, never empty, and one sentence for each file that could not."""

    themes: tuple[Theme, ...]
    notices: tuple[str, ...] = ()

    def after(self, name: str) -> Theme:
        """The theme that follows the one of that name, around the corner at the end."""
        names = [theme.name for theme in self.themes]
        place = names.index(name) if name in names else -1
        return self.themes[(place + 1) % len(names)]


def folder() -> Path:
    """Where the theme files lie."""
    here = Path(__file__).resolve().parent
    installed = here / "themes"
    return installed if installed.is_dir() else here.parent.parent / "themes"


def load_all(place: Path | None = None) -> Themes:
    """Every theme file in a folder, the default one first."""
    themes: list[Theme] = []
    notices: list[str] = []
    for path in _files(place or folder()):
        try:
            themes.append(load(path))
        except ThemeError as error:
            notices.append(str(error))
    if not themes:
        notices.append("no theme file could be used: the terminal library's own dark theme is shown")
        return Themes((FALLBACK,), tuple(notices))
    return Themes(tuple(themes), tuple(notices))


def _files(place: Path) -> list[Path]:
    return sorted(place.glob("*.toml"), key=lambda path: (path.stem != FIRST, path.name))


def load(path: Path) -> Theme:
    """One theme, checked.

    Raises:
        ThemeError: naming the file, the key and what would be right.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ThemeError(f"theme {path.name} cannot be read: {error}") from error
    _check_keys(path, "", values, allowed={"name", "dark", "colours", "roles"}, needed={"name", "dark", "colours"})
    colours = _colours(path, "colours", values["colours"], allowed=COLOURS, needed=NEEDED)
    roles = _colours(path, "roles", values.get("roles", {}), allowed=ROLES.keys(), needed=())
    if not isinstance(values["name"], str) or not isinstance(values["dark"], bool):
        raise ThemeError(f"theme {path.name}: name is a text and dark is true or false")
    theme = Theme(name=values["name"], primary=colours["primary"], dark=values["dark"], variables={**ROLES, **roles})
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
            raise ThemeError(f'theme {path.name}: {table}.{key} is {value!r}; a colour is like "#1e88e5"') from error
    return values


def _check_keys(path: Path, prefix: str, values: dict[str, object], *, allowed: set[str], needed: set[str]) -> None:
    for key in values:
        if key not in allowed:
            raise ThemeError(f"theme {path.name}: unknown key {prefix}{key}; known are {', '.join(sorted(allowed))}")
    for key in sorted(needed - values.keys()):
        raise ThemeError(f"theme {path.name}: {prefix}{key} is missing")
