"""A person's own choices for the screen, from console.toml in the config folder; every key may be left out:

    theme = "light"
    profile = "slow"        # full, slow or plain; else what the terminal's variables say
    mouse = false
    [keys]                  # an action's id, as help lists them, and the key that is to stand for it
    force = "F"
    [prices]                # for the page "cost"; without it, operations are shown and no money
    million_operations = 0.80
    currency = "USD"

What cannot be used is left out and said in one notice: no mistake in it keeps anybody from the screen. A flag goes
before it. Not here: what a theme looks like (theme.py), which actions there are (actions.py).
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from console.core.billing import Price
from console.ui.profile import ProfileName

NAME: Final = "console.toml"
_KNOWN: Final = ("theme", "profile", "mouse", "keys", "prices")
_KEY: Final = re.compile(
    r"[A-Za-z0-9]|(ctrl\+|shift\+)?(f\d{1,2}|[a-z]|up|down|left|right|space|tab|delete|insert)|[a-z_]+"
)
"""Textual's names for keys: a letter or digit, ctrl+x, f5, or a word such as question_mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What console.toml says; None: nothing."""

    theme: str | None = None
    profile: ProfileName | None = None
    mouse: bool | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    price: Price | None = None
    notice: str = ""
    """What is wrong with the file, as one sentence; empty if nothing is."""


def config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """$XDG_CONFIG_HOME/paired, or ~/.config/paired."""
    given = Path(environ.get("XDG_CONFIG_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".config") / "paired"


def load_preferences(folder: Path) -> Preferences:
    """What the folder's console.toml says, as far as it can be used."""
    path = folder / NAME
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Preferences()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        return Preferences(notice=f"{path} cannot be read: {error}")
    wrong: list[str] = [f"{key} is no setting" for key in values if key not in _KNOWN]
    theme, profile, mouse = values.get("theme"), values.get("profile"), values.get("mouse")
    if theme is not None and not isinstance(theme, str):
        wrong.append("theme is the name of one")
        theme = None
    if profile is not None and profile not in list(ProfileName):
        wrong.append(f"profile is one of {', '.join(ProfileName)}")
        profile = None
    if mouse is not None and not isinstance(mouse, bool):
        wrong.append("mouse is true or false")
        mouse = None
    return Preferences(
        theme=theme,
        profile=ProfileName(profile) if profile else None,
        mouse=mouse,
        keys=_keys(values.get("keys", {}), wrong),
        price=_price(values.get("prices"), wrong),
        notice=f"{path}: {'; '.join(wrong)}" if wrong else "",
    )


def _keys(values: object, wrong: list[str]) -> dict[str, str]:
    if not isinstance(values, dict):
        wrong.append("[keys] is a table of action = key")
        return {}
    kept: dict[str, str] = {}
    for action, key in values.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            wrong.append(f'keys.{action} is {key!r}; a key is like "F", "f5" or "ctrl+x"')
        elif key in kept.values():
            wrong.append(f"keys.{action}: {key} stands for another action already")
        else:
            kept[action] = key
    return kept


def _price(values: object, wrong: list[str]) -> Price | None:
    if values is None:
        return None
    match values:
        case {"million_operations": float() | int() as number, "currency": str() as currency} if number >= 0:
            return Price(million_operations=float(number), currency=currency[:4])
    wrong.append('[prices] is million_operations = a number, and currency = a text such as "USD"')
    return None
