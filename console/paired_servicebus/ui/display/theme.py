"""Themes: one TOML file each, checked before use; a broken one costs a notice, never the screen.

A file has `name`, `dark`, `[colours]` (the fields of Textual's Theme) and `[roles]` (our own variables, see ROLES);
with `monochrome = true` no colours are written. Shipped files are in the package's folder `themes`, in a source tree at
its top. The operator's own, in `themes` of the config folder, replace shipped ones of the same name. dark.toml is
first.
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
from paired_servicebus.core.text.untrusted_text import parse_toml, repeated
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
"""Our variables with their defaults, for the fallback and for themes that omit one."""
COLOURS: Final = frozenset(
    {"primary", "secondary", "warning", "error", "success", "accent", "foreground", "background", "surface", "panel"}
)
SIXTEEN: Final = "sixteen"
"""The shipped theme for terminals of 16 colours."""
MONO: Final = "mono"
"""The shipped theme without colours."""
NEEDED: Final = frozenset({"primary", "foreground", "background", "surface", "panel"})


_OF_16: Final = {dark: BUILTIN_THEMES[name].variables for dark, name in ((True, "ansi-dark"), (False, "ansi-light"))}
"""Variables that Textual needs in a theme of the terminal's own colours."""
_KEYS: Final = {"name", "dark", "monochrome", "colours", "roles"}


class ThemeError(ValueError):
    """An invalid theme file; the text names the place and the reason."""


@dataclass
class PairedTheme(Theme):
    """A theme of a file."""

    monochrome: bool = False
    """Whether only the terminal's own colours are written."""


@dataclass(frozen=True, slots=True)
class Themes:
    """The valid themes, never empty, and one sentence for each invalid file."""

    themes: tuple[Theme, ...]
    notices: tuple[str, ...] = ()

    def named(self, name: str) -> Theme | None:
        return next((theme for theme in self.themes if theme.name == name), None)

    def chosen(self, name: str | None) -> tuple[Theme, str]:
        """Return the theme of that name, or the first; and a sentence if the name is unknown."""
        found = self.named(name) if name is not None else self.themes[0]
        if found is not None:
            return found, ""
        return self.themes[0], f"unknown theme {name!r}; known are {', '.join(each.name for each in self.themes)}"

    def after(self, name: str) -> Theme:
        """Return the theme after the one of that name, the first after the last."""
        names = [theme.name for theme in self.themes]
        place = names.index(name) if name in names else -1
        return self.themes[(place + 1) % len(names)]


def theme_for(environ: Mapping[str, str], *, ascii_only: bool = False) -> str:
    """Return the theme's name for a terminal with these variables: without colours, with sixteen, or with more."""
    if ascii_only or without_colours(environ):
        return MONO
    colours = Console(force_terminal=True, _environ=environ).color_system
    return FIRST if colours in ("256", "truecolor") else SIXTEEN


def folder() -> Path:
    """Return the folder of the shipped themes."""
    ui = Path(__file__).resolve().parents[1]
    installed = ui / "themes"
    return installed if installed.is_dir() else ui.parents[2] / "themes"


def load_all(*places: Path) -> Themes:
    """Load every theme file in these folders (default: the shipped ones).

    The default theme is first. Of two with one name the later counts.
    """
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
    """Load and check one theme. Raises ThemeError: naming the file, the key and a correct value."""
    try:
        values = parse_toml(path.read_bytes())
    except (OSError, UnreadableError) as error:
        raise ThemeError(f"theme {path.name} cannot be read: {error}") from error
    _check_keys(path, "", values, allowed=_KEYS, needed={"name", "dark", "colours"})
    colours = _colours(path, "colours", values["colours"], allowed=COLOURS, needed=NEEDED)
    roles = _colours(path, "roles", values.get("roles", {}), allowed=ROLES.keys(), needed=())
    monochrome = values.get("monochrome", False)
    if not isinstance(values["name"], str) or not isinstance(values["dark"], bool) or not isinstance(monochrome, bool):
        raise ThemeError(f"theme {path.name}: name must be a text, dark and monochrome true or false")
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
        raise ThemeError(f"theme {path.name} has invalid colours: {error}") from error
    return theme


def _colours(
    path: Path, table: str, values: object, *, allowed: Iterable[str], needed: Iterable[str]
) -> dict[str, str]:
    if not isinstance(values, dict):
        raise ThemeError(f"theme {path.name}: {table} must be a table of colours")
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
