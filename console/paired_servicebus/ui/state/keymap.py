"""The operator's own keys, in place of those of the table of actions.

    [keys]                  # in console.toml: an action as the help names it, and a key
    filter = "ctrl+t"
    "force failover" = "X"

Only a capital letter can be the key of an action that changes anything: small letters only look. An unknown action,
an invalid or reserved key, and a key for two actions are ignored and reported. Actions that share a key, of which one
is possible at a time, change their key together.

Not here: the actions (action_table.py).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

KEY_SIGNS: Final = {
    "/": "slash", "?": "question_mark", ":": "colon", ".": "full_stop", ",": "comma", ";": "semicolon",
    "-": "minus", "+": "plus", "*": "asterisk", "=": "equals_sign", "!": "exclamation_mark", "_": "underscore",
    "<": "less_than_sign", ">": "greater_than_sign", "#": "number_sign", "@": "at", "&": "ampersand",
    "'": "apostrophe", '"': "quotation_mark", "(": "left_parenthesis", ")": "right_parenthesis",
    "[": "left_square_bracket", "]": "right_square_bracket", "~": "tilde", "|": "vertical_line",
}  # fmt: skip
"""Textual's names of signs."""
NAMED: Final = {
    "space": "space", "up": "↑", "down": "↓", "left": "←", "right": "→", "home": "home", "end": "end",
    "pageup": "PgUp", "pagedown": "PgDn", "insert": "ins", "delete": "del", "backspace": "bksp",
}  # fmt: skip
"""Keys with a name, and their label."""
_OTHERS: Final = re.compile(r"[A-Za-z0-9]|f([1-9]|1[0-2])|ctrl\+[a-z]")
_CAPITAL: Final = re.compile("[A-Z]")
RESERVED: Final = frozenset(["escape", "enter", "tab", "shift+tab", *(f"ctrl+{letter}" for letter in "chijlmqsz")])
"""Keys of dialogs and terminals, keys that terminals cannot distinguish, and ctrl+c."""


class HasKeys(Protocol):
    """An action with keys."""

    @property
    def id(self) -> str: ...

    @property
    def keys(self) -> tuple[str, ...]: ...

    @property
    def key_label(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def changes(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Keymap:
    """The keys in force. `own`: Textual's name of a key, by the action's id."""

    own: Mapping[str, str] = field(default_factory=dict)

    def names(self, action: HasKeys) -> tuple[str, ...]:
        """Return Textual's names; the first is shown. Empty: it has no key."""
        return (self.own[action.id],) if action.id in self.own else action.keys

    def label(self, action: HasKeys) -> str:
        """Return the key's label; empty if it has no key."""
        if action.id in self.own:
            return key_text(self.own[action.id])
        return action.key_label or (action.keys[0] if action.keys else "")


DEFAULT_KEYMAP: Final = Keymap()
"""The keys of the table of actions."""


def read_key(text: object) -> str:
    """Return Textual's name of the key; empty if it is invalid."""
    if not isinstance(text, str):
        return ""
    if text in KEY_SIGNS:
        return KEY_SIGNS[text]
    known = text in NAMED or text in KEY_SIGNS.values() or text in RESERVED or _OTHERS.fullmatch(text)
    return text if known else ""


def key_text(key: str) -> str:
    """Return the key's label on screen."""
    sign = next((sign for sign, name in KEY_SIGNS.items() if name == key), "")
    return sign or NAMED.get(key) or key.replace("ctrl+", "^")


def keymap_of(values: object, actions: Sequence[HasKeys]) -> tuple[Keymap, tuple[str, ...]]:
    """Return the keymap of a [keys] section, and a clause for each entry that is ignored."""
    if not isinstance(values, dict):
        return Keymap(), ("must be a section of actions and their keys",)
    wrong: list[str] = []
    wanted: dict[str, str] = {}
    for name, text in values.items():
        together = _sharing_key(name, actions)
        trouble = _trouble(name, text, actions)
        if not trouble and any(wanted.get(one, read_key(text)) != read_key(text) for one in together):
            trouble = f"{name} shares its key with another action, which has a key of its own here"
        if trouble:
            wrong.append(trouble)
        else:
            wanted |= dict.fromkeys(together, read_key(text))
    return Keymap(_drop_duplicates(wanted, actions, wrong)), tuple(wrong)


def _trouble(name: str, text: object, actions: Sequence[HasKeys]) -> str:
    """Return the error of one entry; empty if it is valid."""
    if not _sharing_key(name, actions):
        known = [one for action in actions for one in (action.id, action.label)]
        close = difflib.get_close_matches(name, known, n=1)
        return f"unknown action {name}" + (f"; did you mean {close[0]}?" if close else "")
    if not read_key(text):
        return f"{name}: {text!r} is not a key such as F, ctrl+g, f5 or space"
    changes = any(action.changes for action in actions if name in (action.id, action.label))
    if changes and not _CAPITAL.fullmatch(read_key(text)):
        return f"{name} changes the system, so that only a capital letter can be its key, not {text}"
    return f"{name}: {text} is reserved" if read_key(text) in RESERVED else ""


def _sharing_key(name: str, actions: Sequence[HasKeys]) -> tuple[str, ...]:
    """Return the actions that share the key of that one, itself included."""
    found = next((action for action in actions if name in (action.id, action.label)), None)
    if found is None:
        return ()
    return tuple(one.id for one in actions if one is found or (found.keys and one.keys[:1] == found.keys[:1]))


def _drop_duplicates(wanted: dict[str, str], actions: Sequence[HasKeys], wrong: list[str]) -> dict[str, str]:
    """Drop the keys of two actions, until none is left: the table itself has no duplicates."""
    while True:
        keymap = Keymap(wanted)
        holders: dict[str, set[str]] = {}
        for action in actions:
            for key in keymap.names(action):
                holders.setdefault(key, set()).add(action.keys[0] if action.keys else action.id)
        doubled = {key for key, groups in holders.items() if len(groups) > 1}
        taken = [name for name, key in wanted.items() if key in doubled]
        if not taken:
            return wanted
        wrong.extend(f"{key_text(key)} would be the key of {_named(key, keymap, actions)}" for key in sorted(doubled))
        wanted = {name: key for name, key in wanted.items() if name not in taken}


def _named(key: str, keymap: Keymap, actions: Sequence[HasKeys]) -> str:
    return " and ".join(action.label for action in actions if key in keymap.names(action))
