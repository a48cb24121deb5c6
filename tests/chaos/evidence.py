"""What is known of a message that a verdict complains of: lists, journals, where it was last seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.chaos.lists import SUFFIX

MOST: Final = 10
"""Messages that evidence is shown for."""
MOST_LINES: Final = 40


def evidence(folder: Path, suspects: Iterable[str]) -> Iterator[str]:
    """Lines for a person: every line of every list and journal that names the message, by file."""
    shown = list(suspects)
    files = sorted([*folder.glob(f"*{SUFFIX}"), *folder.rglob("*.jsonl")])
    for name in shown[:MOST]:
        yield f"--- {name}"
        found = [f"{path.relative_to(folder)}: {line}" for path in files for line in _naming(path, name)]
        yield from found[:MOST_LINES]
        if len(found) > MOST_LINES:
            yield f"and {len(found) - MOST_LINES} lines more"
    if len(shown) > MOST:
        yield f"and {len(shown) - MOST} messages more"


def _naming(path: Path, name: str) -> Iterator[str]:
    for line in path.read_text(errors="replace").splitlines():
        if f'"{name}"' in line:
            yield line
