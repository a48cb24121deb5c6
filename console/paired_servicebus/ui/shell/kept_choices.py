"""Theme, sort order and filter of a pairing's dashboard, kept over its restarts in the user's state folder.

The file holds only what a key changed. It is written while the dashboard runs, since a lost SSH connection ends it
without a last word. Not here: console.toml, which the operator writes (preferences.py).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.durable_file import replace_file
from paired_servicebus.foreign_json import read_json
from paired_servicebus.ui.state.view import SORTS, WORST_FIRST, View

NAME: Final = "dashboard.json"
MAX_FILTER: Final = 200
"""Characters of a filter that is kept."""


class KeptChoices(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of the file. Unknown fields are ignored."""

    theme: str = ""
    """The theme that a key chose; empty: none."""
    instead_of: str = ""
    """The theme at the start when it was chosen; another one since then, by console.toml or terminal, counts more."""
    sort: str = WORST_FIRST
    filter: str = ""


_DECODER: Final = msgspec.json.Decoder(KeptChoices)
NOTHING: Final = KeptChoices()


class ChoiceKeeper:
    """Reads the file once, and writes what the operator chose since.

    Args:
        path: the file; its folder is made when it is first written.
        pairing: the pairing whose choices are kept.
    """

    def __init__(self, path: Path, *, pairing: str) -> None:
        self._path = path
        self._pairing = pairing
        self.trouble = ""
        """Why the file could not be read or written; empty: it could."""
        self._read_first = self._kept = self._read()
        self._told = self.trouble
        self._usual = self._started = ""

    def _read(self) -> KeptChoices:
        try:
            kept = read_json(_DECODER, self._path.read_bytes())
        except FileNotFoundError:
            return NOTHING
        except (OSError, UnreadableError) as error:
            self.trouble = f"the kept theme, sort and filter cannot be read ({self._path}): {error}"
            return NOTHING
        sort = kept.sort if kept.sort in SORTS else WORST_FIRST
        words = one_line(kept.filter, most=MAX_FILTER)
        return KeptChoices(theme=kept.theme, instead_of=kept.instead_of, sort=sort, filter=words)

    def theme(self, usual: str, option: str | None) -> str:
        """Return the theme to start with.

        Args:
            usual: the theme of console.toml or the terminal.
            option: the theme of the command line, which counts once and is not kept.
        """
        kept = self._kept
        self._usual = usual
        self._started = option or (kept.theme if kept.theme and kept.instead_of == usual else usual)
        return self._started

    def begin(self, view: View) -> View:
        """Return the first view with the kept order and filter."""
        return replace(view, sort=self._kept.sort, filter=self._kept.filter)

    def notice(self) -> str:
        """Return what a person should know at the start: a filter hides rows. Empty: nothing."""
        return self.trouble or (f"filter “{self._kept.filter}” kept; esc shows all" if self._kept.filter else "")

    def take(self, theme: str, view: View) -> bool:
        """Take the present choices; return whether they have to be written. Another pairing's are not kept."""
        if view.pairing != self._pairing:
            return False
        chosen, instead_of = self._read_first.theme, self._read_first.instead_of
        if theme != self._started:
            chosen, instead_of = (theme, self._usual) if theme != self._usual else ("", "")
        now = KeptChoices(theme=chosen, instead_of=instead_of, sort=view.sort, filter=view.filter)
        changed, self._kept = now != self._kept, now
        return changed

    def write(self) -> None:
        """Write the file, or remember why not; blocks for the disk."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path, msgspec.json.encode(self._kept))
        except OSError as error:
            self.trouble = f"theme, sort and filter are not kept ({self._path}): {error.strerror or error}"

    def new_trouble(self) -> str:
        """Return why the file could not be written, once; empty if it could."""
        trouble, self._told = ("" if self._told == self.trouble else self.trouble), self.trouble
        return trouble
