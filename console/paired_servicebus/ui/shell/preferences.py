"""The operator's preferences, from console.toml in the config folder; every key is optional:

    theme = "light"
    profile = "slow"        # full, slow or plain; default: by the terminal's variables
    mouse = false
    bell = false            # no sound when an entity fails over or returns, or an alarm begins or ends
    notify = false          # no notification of the terminal (OSC 9, OSC 777) beside the bell
    [prices]                # for the cost page, which otherwise shows no money
    million_operations = 0.80
    currency = "USD"
    [keys]                  # actions as the help names them, and other keys for them
    "force failover" = "X"

Invalid entries are ignored and reported in one notice. A command line option overrides the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.text.untrusted_text import parse_toml, repeated
from paired_servicebus.ui.display.profile import ProfileName
from paired_servicebus.user_folders import user_folder

NAME: Final = "console.toml"
_KNOWN: Final = ("theme", "profile", "mouse", "bell", "notify", "prices", "keys")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """The content of console.toml; None: no entry."""

    theme: str | None = None
    profile: ProfileName | None = None
    mouse: bool | None = None
    bell: bool | None = None
    notify: bool | None = None
    price: Price | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    """Textual's name of a key, by the action's id."""
    notice: str = ""
    """The file's errors as one sentence; empty if there are none."""


def config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return $XDG_CONFIG_HOME/paired, or ~/.config/paired."""
    return user_folder("XDG_CONFIG_HOME", ".config", environ) / "paired"


def load_preferences(folder: Path) -> Preferences:
    """Return the valid entries of the folder's console.toml."""
    path = folder / NAME
    try:
        values = parse_toml(path.read_bytes())
    except FileNotFoundError:
        return Preferences()
    except (OSError, UnreadableError) as error:
        return Preferences(notice=f"{path} cannot be read: {error}")
    wrong: list[str] = [f"unknown setting {repeated(key)}" for key in values if key not in _KNOWN]
    theme, profile = values.get("theme"), values.get("profile")
    if theme is not None and not isinstance(theme, str):
        wrong.append("theme is not a name")
        theme = None
    if profile is not None and profile not in list(ProfileName):
        wrong.append(f"profile is not one of {', '.join(ProfileName)}")
        profile = None
    return Preferences(
        theme=theme,
        profile=ProfileName(profile) if profile else None,
        mouse=_flag(values, "mouse", wrong),
        bell=_flag(values, "bell", wrong),
        notify=_flag(values, "notify", wrong),
        price=_price(values.get("prices"), wrong),
        keys=_keys(values.get("keys", {}), wrong),
        notice=f"{path}: {'; '.join(wrong)}" if wrong else "",
    )


def _flag(values: Mapping[str, object], key: str, wrong: list[str]) -> bool | None:
    value = values.get(key)
    if value is None or isinstance(value, bool):
        return value
    wrong.append(f"{key} is neither true nor false")
    return None


def _keys(values: object, wrong: list[str]) -> Mapping[str, str]:
    from paired_servicebus.ui.commands.action_table import CONSOLE_ACTIONS, own_keys  # imports Rich

    keys, unusable = own_keys(values, CONSOLE_ACTIONS)
    wrong.extend(f"[keys] {text}" for text in unusable)
    return keys


def _price(values: object, wrong: list[str]) -> Price | None:
    if values is None:
        return None
    match values:
        case {"million_operations": float() | int() as number, "currency": str() as currency} if number >= 0:
            return Price(million_operations=float(number), currency=currency[:4])
    wrong.append('[prices] is million_operations = a number, and currency = a text such as "USD"')
    return None
