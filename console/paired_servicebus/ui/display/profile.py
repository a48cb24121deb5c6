"""Profiles of terminals: `full`, `slow` for a bad link, `plain` for one that shows only ASCII.

Chosen from the terminal's variables, unless a flag or console.toml names one. Standard library only: the command line
imports this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final


class ProfileName(StrEnum):
    """The values of `--profile`."""

    FULL = "full"
    SLOW = "slow"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One profile. Events are shown immediately in each; a changed figure may be delayed."""

    name: ProfileName
    figures_every: float = 0.0
    """Minimal seconds between two paints of changed figures."""
    clock_every: float = 1.0
    """Seconds between two paints of clock, ages and countdowns."""
    ascii: bool = False
    """ASCII without colours."""
    few_signs: bool = False
    """ASCII with colours: the terminal's font lacks our signs."""
    mouse: bool = False
    """Whether the dashboard handles the mouse; otherwise the terminal selects and copies."""
    notifies_once: bool = False
    """Whether the terminal would show a notification for each of OSC 9 and OSC 777."""

    @property
    def has_window(self) -> bool:
        """Whether the terminal takes a title and notifications; others might print them."""
        return not (self.ascii or self.few_signs)


PROFILES: Final[dict[ProfileName, Profile]] = {
    ProfileName.FULL: Profile(name=ProfileName.FULL, mouse=True),
    ProfileName.SLOW: Profile(name=ProfileName.SLOW, figures_every=5.0, clock_every=5.0),
    ProfileName.PLAIN: Profile(name=ProfileName.PLAIN, ascii=True),
}
LETTERS_ONLY: Final = ("dumb", "unknown", "vt52", "vt100", "vt102", "vt220", "ansi")
"""Values of TERM without colours or signs beyond ASCII."""
FEW_SIGNS: Final = ("linux",)
"""Values of TERM with colours and with few signs beyond ASCII: a kernel's console."""

NOTIFIES_TWICE: Final = ("xterm-kitty", "xterm-ghostty", "ghostty", "foot", "foot-extra", "wezterm", "WezTerm")
"""Values of TERM or TERM_PROGRAM: terminals that know OSC 9 and OSC 777."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenOptions:
    """Options of the command line; console.toml or the terminal decides the rest."""

    profile: ProfileName | None = None
    """How much the terminal is asked to show: full, slow for a bad link, plain for ASCII only."""
    theme: str | None = None
    """The theme to begin with."""
    no_mouse: bool = False
    """Leave the mouse to the terminal, for selecting and copying."""
    no_bell: bool = False
    """Make no sound when an entity fails over or returns, or an alarm begins or ends."""


def profile_for(environ: Mapping[str, str]) -> Profile:
    """Return the profile for these variables: `plain` by TERM or locale, else `full`. None reports a slow link."""
    term = environ.get("TERM", "")
    if term in ("", *LETTERS_ONLY) or not _speaks_utf8(environ):
        return PROFILES[ProfileName.PLAIN]
    return replace(PROFILES[ProfileName.FULL], few_signs=term in FEW_SIGNS, notifies_once=notifies_once(environ))


def notifies_once(environ: Mapping[str, str]) -> bool:
    """Return whether one of the two sequences for a notification is enough."""
    return environ.get("TERM") in NOTIFIES_TWICE or environ.get("TERM_PROGRAM") in NOTIFIES_TWICE


def without_colours(environ: Mapping[str, str]) -> bool:
    """Return whether NO_COLOR is set and not empty (no-color.org)."""
    return bool(environ.get("NO_COLOR"))


def _speaks_utf8(environ: Mapping[str, str]) -> bool:
    """Return whether the first locale that is set has UTF-8. Without any, as in many containers, it has."""
    locale = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "UTF-8")
    return "utf8" in locale.casefold().replace("-", "")
