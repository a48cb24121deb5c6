"""A drain of this pairing beside its engine: what it says of itself, once a second, in the journal's folder.

Written by `paired drain`, read by the engine for its snapshot. What is old is of a drain that was killed, and nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

FRESH: Final = 10.0
"""Seconds for which what it said holds."""
_NAME: Final = "drain.json"


class News(msgspec.Struct, frozen=True, kw_only=True):
    """How far it is, as a sentence, at seconds since 1970."""

    at: float
    text: str


def tell(spool: Path, news: News) -> None:
    """Replace what was said before. Raises OSError."""
    new = spool / f".{_NAME}.new"
    new.write_bytes(msgspec.json.encode(news))
    new.replace(spool / _NAME)


def fall_silent(spool: Path) -> None:
    """It is over. Raises OSError."""
    (spool / _NAME).unlink(missing_ok=True)


def news(spool: Path, *, now: float) -> str:
    """What a drain that runs says; empty: none does."""
    try:
        found = msgspec.json.decode((spool / _NAME).read_bytes(), type=News)
    except (OSError, msgspec.MsgspecError):
        return ""
    return found.text if abs(now - found.at) <= FRESH else ""
