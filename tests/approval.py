"""Texts that a person approved: a test compares a whole text with its file, and shows a difference as a diff.

A scene is one file in `tests/approved/`. Several tests may own parts of one scene; a part's title is the words of the
test's name, or a row of its table. `pytest --approve` writes what it receives: review it with `git diff`.
"""

from __future__ import annotations

import difflib
import fcntl
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(__file__).parent / "approved"
TITLE: Final = "==== "
"""Begins the line above each part of a scene."""
PORT: Final = re.compile(r"(127\.0\.0\.1|localhost)(:|, port )\d{5}\b")


@dataclass(frozen=True)
class Approve:
    """Compares texts with approved files on behalf of one test."""

    title: str
    """The words of the test's name, with its parameters."""
    writes: bool
    """Whether `--approve` was given."""
    folder: Path
    """Where a text that differs is written; its path is replaced in all texts."""

    titled: list[str] = field(default_factory=list)
    """The titles of parts so far: those of a second part of the same name end in a number."""

    def __call__(self, text: object, scene: str, hide: Mapping[str, str] | None = None) -> None:
        """Compare a whole scene; `hide` maps what differs from run to run to what is shown for it."""
        received = self._stable(str(text), hide)
        file = FOLDER / f"{scene}.txt"
        if self.writes:
            file.write_text(received, "utf-8")
            return
        self._compare(file.read_text("utf-8") if file.exists() else "", received, scene)

    def part(
        self,
        text: object,
        scene: str,
        title: str = "",
        *,
        has: Sequence[str] = (),
        hide: Mapping[str, str] | None = None,
    ) -> None:
        """Compare the part of a scene with that title; without one it is the words of this test's name.

        `has` are figures and advice that the text must have, whatever its other words are.
        """
        self.titled.append(title or self.title)
        number = self.titled.count(self.titled[-1])
        title = self.titled[-1] + (f" ({number})" if number > 1 else "")
        rows = text if isinstance(text, list | tuple) else (text,)
        received = self._stable("\n".join(str(row) for row in rows), hide)
        missing = [value for value in has if value not in received]
        assert not missing, f"{missing} missing in: {received}"
        file = FOLDER / f"{scene}.txt"
        if self.writes:
            _write_part(file, title, received)
            return
        approved = read_parts(file.read_text("utf-8") if file.exists() else "")
        self._compare(approved.get(title, ""), received, scene)

    def _stable(self, text: str, hide: Mapping[str, str] | None) -> str:
        for varying, shown in {**(hide or {}), str(self.folder): "TMP"}.items():
            text = text.replace(varying, shown)
        text = PORT.sub(r"\1\2PORT", text)
        return "\n".join(row.rstrip() for row in text.strip("\n").split("\n")) + "\n"

    def _compare(self, approved: str, received: str, scene: str) -> None:
        if approved == received:
            return
        (self.folder / f"{scene}.received.txt").write_text(received, "utf-8")
        rows = difflib.unified_diff(approved.splitlines(), received.splitlines(), "approved", "received", lineterm="")
        shown = "\n".join(rows)
        pytest.fail(f"{scene}: {self.title}: not as approved; --approve writes what was received\n{shown}", False)


def read_parts(scene: str) -> dict[str, str]:
    """The parts of a scene by their titles."""
    _, *parts = re.split(f"^{TITLE}", scene, flags=re.MULTILINE)
    titled = (part.partition("\n") for part in parts)
    return {title: text.strip("\n") + "\n" for title, _, text in titled}


def _write_part(file: Path, title: str, text: str) -> None:
    """Put one part into its file, in order of the titles; tests run in several processes."""
    with (FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        parts = read_parts(file.read_text("utf-8") if file.exists() else "")
        parts[title] = text
        file.write_text("\n".join(f"{TITLE}{title}\n{parts[title]}" for title in sorted(parts)), "utf-8")


def title_of(test: str) -> str:
    """`test_a_full_disk[80x24]` as words."""
    name, bracket, rest = test.removeprefix("test_").partition("[")
    return name.replace("_", " ") + (f" ({rest.removesuffix(']')})" if bracket else "")
