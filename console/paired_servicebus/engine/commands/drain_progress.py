"""Progress of a drain beside its engine: one file in the journal's folder, written once a second.

`paired drain` writes it; the engine reads it for its snapshot. An old file belongs to a killed drain and is ignored.
"""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import msgspec

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.model.snapshot import SyphonView
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.foreign_json import read_json

MAX_AGE_SECONDS: Final = 10.0
"""Seconds for which a report is valid."""
_NAME: Final = "drain.json"


class DrainProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress as a sentence, at seconds since 1970, with the reporting process and its host."""

    at: float
    text: str
    pid: int = msgspec.field(default_factory=os.getpid)
    host: str = msgspec.field(default_factory=socket.gethostname)


class _StoredProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The same as a file has it.

    Signals go to the process: a number that none can have would reach others, and one that is missing is not our own.
    """

    at: float
    text: str
    pid: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    host: str


_PROGRESS_DECODER: Final = msgspec.json.Decoder(_StoredProgress)


def write_progress(spool: Path, news: DrainProgress) -> None:
    """Replace the last report. Raises OSError."""
    new = spool / f".{_NAME}.new"
    new.write_bytes(msgspec.json.encode(news))
    new.replace(spool / _NAME)


def clear_progress(spool: Path) -> None:
    """Remove the report. Raises OSError."""
    (spool / _NAME).unlink(missing_ok=True)


def latest(spool: Path, *, now: float) -> DrainProgress | None:
    """Return the report of a running drain; None: no drain runs."""
    try:
        found = read_json(_PROGRESS_DECODER, (spool / _NAME).read_bytes())
    except (OSError, UnreadableError):
        return None
    if abs(now - found.at) > MAX_AGE_SECONDS:
        return None
    return DrainProgress(at=found.at, text=repeated(found.text), pid=found.pid, host=found.host)


def add_to(syphon: SyphonView, spool: Path, *, now: float) -> SyphonView:
    """Return the syphon's view, including a drain that moves the same messages."""
    said = latest(spool, now=now)
    return replace(syphon, text=f"{syphon.text}; {said.text}") if said is not None else syphon
