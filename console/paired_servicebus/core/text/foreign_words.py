"""Names, reasons and times from documents that anybody with a key may have posted: each one harmless, short line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from paired_servicebus.core.text.time_format import DAY, written
from paired_servicebus.core.text.untrusted_text import one_line

MAX_NAME: Final = 40
MAX_REASON: Final = 120


def name(text: str) -> str:
    """Return a foreign name as one short, harmless line."""
    return one_line(text, most=MAX_NAME) or "(no name)"


def reason(text: str) -> str:
    """Return a foreign reason as one short, harmless line."""
    return one_line(text, most=MAX_REASON)


def names(found: Sequence[str], most: int | None = None) -> str:
    """Return the names, or the first ones and the number of the others."""
    shown = [name(one) for one in (found if most is None else found[:most])]
    left = len(found) - len(shown)
    return ", ".join(shown) + (f" and {left:,} more" if left else "")


def minute(at: float, now: float) -> str:
    """Format a time as HH:MM, with its day if it is over a day away."""
    return written(at, "%H:%M") if abs(at - now) < DAY else written(at, "%d %b %H:%M")


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts web-2 before web-10; digits beyond ASCII are text."""
    return tuple(
        (int(part[:18]) if part.isascii() and part.isdigit() else -1, part) for part in re.split(r"([0-9]+)", text)
    )
