"""Unreadable lines of a journal: file, line number or count, and reason. Each is reported once.

A line is identified by its file and offset, so several readers of one journal can share an UnreadableLines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from paired_servicebus.core.text.untrusted_text import repeated

MAX_NAMED_FILES: Final = 5
"""Files that get their own sentence; the rest is counted."""
_BLOCK: Final = 1024 * 1024


class UnreadableLines:
    """Collects lines that could not be read. `count` is how many in all."""

    def __init__(self) -> None:
        self.count = 0
        self._known: set[tuple[str, int]] = set()
        self._new: dict[Path, list[tuple[int, str]]] = {}

    def note(self, path: Path, at: int, why: object) -> None:
        """Note the line that begins at byte `at` of a file, unless it is known."""
        if (path.name, at) in self._known:
            return
        self._known.add((path.name, at))
        self._new.setdefault(path, []).append((at, str(why)))
        self.count += 1

    def tell(self) -> tuple[str, ...]:
        """Return a sentence for each file with lines that were noted since the last call."""
        new, self._new = self._new, {}
        told = [_sentence(path, lines) for path, lines in sorted(new.items())[:MAX_NAMED_FILES]]
        rest = [len(lines) for _, lines in sorted(new.items())[MAX_NAMED_FILES:]]
        if rest:
            told.append(f"{sum(rest)} lines of {len(rest)} more files cannot be read")
        return tuple(told)


def _sentence(path: Path, lines: list[tuple[int, str]]) -> str:
    at, why = min(lines)
    name, place = repeated(path.name), _place(path, at)
    if len(lines) == 1:
        return f"{place} of {name} cannot be read ({why}); it is passed over"
    return f"{len(lines)} lines of {name} cannot be read, the first is {place} ({why}); they are passed over"


def _place(path: Path, at: int) -> str:
    """Return the number of the line at an offset; the offset if the file has gone meanwhile."""
    number, left = 1, at
    try:
        with path.open("rb") as file:
            while left and (block := file.read(min(left, _BLOCK))):
                number += block.count(b"\n")
                left -= len(block)
    except OSError:
        return f"the line at byte {at}"
    return f"line {number}"
