"""Fits the parts of a line to a width: a part has shorter wordings, so that no sentence is cut while one fits.

The last part is shortened first and dropped first; an empty wording makes a part optional.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len

from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.ui.render.spans import fit

BETWEEN: Final = " · "
MAX_NAMES: Final = 8
SHORTEST_NAME: Final = 12
"""Cells of a single name at least."""
SHORTEST_TEXT: Final = 20
STEP: Final = 4

Part = tuple[str, ...]
"""Wordings of one part, the longest first."""


def pack(parts: Sequence[Part], width: int) -> str:
    """Return the parts in at most `width` cells, each in the longest wording that leaves room for those before it."""
    chosen = [0] * len(parts)
    for place in range(len(parts) - 1, -1, -1):
        while cell_len(_joined(parts, chosen)) > width and chosen[place] + 1 < len(parts[place]):
            chosen[place] += 1
    text = _joined(parts, chosen)
    if cell_len(text) > width and len(parts) > 1:
        return pack(parts[:-1], width)
    return fit(text, width).rstrip()


def _joined(parts: Sequence[Part], chosen: Sequence[int]) -> str:
    texts = (part[number] for part, number in zip(parts, chosen, strict=True) if part)
    return BETWEEN.join(text for text in texts if text)


def shortenable(text: str, *, least: int = SHORTEST_TEXT, after: str = "") -> Part:
    """Return an untrusted text in many lengths, each followed by `after`, which is never cut."""
    text = harmless(text)
    lengths = range(cell_len(text) - STEP, least - 1, -STEP)
    return (text + after, *(fit(text, length).rstrip() + after for length in lengths))


def name_list(paths: Sequence[str], *, before: str = "") -> Part:
    """Return the names in as many wordings as there is room for: all, then fewer and the number of the others."""
    paths = [harmless(path) for path in paths]
    listed = [_listed(paths, number) for number in range(min(len(paths), MAX_NAMES), 0, -1)]
    if not listed:
        return (before,)
    rest = f" and {len(paths) - 1} more" if paths[1:] else ""
    shorter = shortenable(paths[0], least=SHORTEST_NAME, after=rest)[1:]
    return tuple(before + text for text in (*listed, *shorter))


def _listed(paths: Sequence[str], number: int) -> str:
    first, left = list(paths[:number]), len(paths) - number
    if left:
        return f"{', '.join(first)} and {left:,} more"
    return ", ".join(first[:-1]) + (" and " if first[:-1] else "") + first[-1]
