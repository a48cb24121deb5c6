"""Count habits of wording in docstrings and in strings for users: `python -m tests.wording [FOLDER ...]`.

The habits are those that make technical prose hard to read: a clause where a noun belongs ("what comes"), people as the
subjects of machines ("nobody"), and everyday verbs for technical acts ("says", "tells"). Counted per 1,000 words over
every docstring and every string of four words or more. By this count h11 has 2.6, httpx 0.3 and harlequin 14.0.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1] / "console"
LIMIT: Final = 6.0
"""Habits per 1,000 words."""
SHORTEST: Final = 3
"""Spaces in a string that is prose."""
HABITS: Final = {
    "a clause for a noun": re.compile(r"\b(?:what|whatever|who|whoever|whom|whose)\b", re.IGNORECASE),
    "say": re.compile(r"\b(?:say|says|said|saying)\b", re.IGNORECASE),
    "tell": re.compile(r"\b(?:tell|tells|told|telling)\b", re.IGNORECASE),
    "nobody": re.compile(r"\b(?:nobody|somebody|anybody|everybody)\b", re.IGNORECASE),
}
_WORD: Final = re.compile(r"[A-Za-z']+")


def prose(path: Path) -> Iterator[str]:
    """Yield the docstrings and the prose strings of a module."""
    tree = ast.parse(path.read_text("utf-8"))
    seen = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text)) as constant):
                    seen.add(id(constant))
                    yield text
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in seen and text.count(" ") >= SHORTEST:
                yield text


def count(folder: Path) -> tuple[int, Counter[str]]:
    """Count the words and the habits of every module below a folder."""
    words, found = 0, Counter[str]()
    for path in sorted(folder.rglob("*.py")):
        for text in prose(path):
            words += len(_WORD.findall(text))
            found.update({habit: len(pattern.findall(text)) for habit, pattern in HABITS.items()})
    return words, found


def main(*folders: str) -> int:
    """Print the habits of each folder; 1 if one has more than LIMIT."""
    worst = 0.0
    for folder in map(Path, folders or (str(ROOT),)):
        words, found = count(folder)
        rate = 1000 * found.total() / max(words, 1)
        worst = max(worst, rate)
        print(f"{folder}: {words:,} words, {rate:.1f} habits per 1,000: {dict(found)}")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
