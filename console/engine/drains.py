"""A drain of this pairing beside its engine: what it says of itself, once a second, in the journal's folder.

Written by `paired drain`, read by the engine for its snapshot. What is old is of a drain that was killed, and nothing.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

import msgspec

FRESH: Final = 10.0
"""Seconds for which what it said holds."""
_NAME: Final = "drain.json"


class News(msgspec.Struct, frozen=True, kw_only=True):
    """How far it is, as a sentence, at seconds since 1970; and which process says so, where."""

    at: float
    text: str
    pid: int = msgspec.field(default_factory=os.getpid)
    host: str = msgspec.field(default_factory=socket.gethostname)


def tell(spool: Path, news: News) -> None:
    """Replace what was said before. Raises OSError."""
    new = spool / f".{_NAME}.new"
    new.write_bytes(msgspec.json.encode(news))
    new.replace(spool / _NAME)


def fall_silent(spool: Path) -> None:
    """It is over. Raises OSError."""
    (spool / _NAME).unlink(missing_ok=True)


def latest(spool: Path, *, now: float) -> News | None:
    """What a drain that runs says; None: none does."""
    try:
        found = msgspec.json.decode((spool / _NAME).read_bytes(), type=News)
    except (OSError, msgspec.MsgspecError):
        return None
    return found if abs(now - found.at) <= FRESH else None
