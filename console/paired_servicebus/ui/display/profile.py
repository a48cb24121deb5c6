"""How much a terminal is asked to show: `full`, `slow` for a bad link, `plain` for one that knows only letters.

Chosen from the terminal's own variables unless a flag or the person's console.toml says otherwise. Standard library
only: the command line reads this without the terminal library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class ProfileName(StrEnum):
    """What `--profile` takes."""

    FULL = "full"
    SLOW = "slow"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One profile. What happens is shown at once in each; a figure that only moved may wait."""

    name: ProfileName
    figures_every: float = 0.0
    """Seconds between two paints at least, if nothing happened but that figures moved."""
    clock_every: float = 1.0
    """Seconds between two paints of clock, ages and countdowns."""
    ascii: bool = False
    """Letters and signs of ASCII alone, and no colours."""
    mouse: bool = False
    """Whether the mouse is the dashboard's; otherwise selecting and copying stay the terminal's."""


PROFILES: Final[dict[ProfileName, Profile]] = {
    ProfileName.FULL: Profile(name=ProfileName.FULL, mouse=True),
    ProfileName.SLOW: Profile(name=ProfileName.SLOW, figures_every=5.0, clock_every=5.0),
    ProfileName.PLAIN: Profile(name=ProfileName.PLAIN, ascii=True),
}
LETTERS_ONLY: Final = ("dumb", "unknown", "vt52", "vt100", "vt102", "vt220", "ansi")
"""Values of TERM that promise neither colours nor signs beyond ASCII."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenOptions:
    """What the command line asks of the screen; what it does not, the person's console.toml or the terminal says."""

    profile: ProfileName | None = None
    """How much the terminal is asked to show: full, slow for a bad link, plain for letters alone."""
    theme: str | None = None
    """The theme to begin with."""
    no_mouse: bool = False
    """Leave the mouse to the terminal, for selecting and copying."""
    no_bell: bool = False
    """Make no sound when an entity fails over or comes back, or an alarm begins or is over."""


def profile_for(environ: Mapping[str, str]) -> Profile:
    """The profile for a terminal with these variables: `plain` where TERM or the locale says so, else `full`. Whether
    a link is slow no variable tells."""
    plain = environ.get("TERM", "") in ("", *LETTERS_ONLY) or not _speaks_utf8(environ)
    return PROFILES[ProfileName.PLAIN if plain else ProfileName.FULL]


def without_colours(environ: Mapping[str, str]) -> bool:
    """Whether NO_COLOR asks for none (no-color.org: set, and not empty)."""
    return bool(environ.get("NO_COLOR"))


def _speaks_utf8(environ: Mapping[str, str]) -> bool:
    """By the rule of locales: the first that is set counts. None set says nothing, as in many containers."""
    named = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "UTF-8")
    return "utf8" in named.casefold().replace("-", "")
