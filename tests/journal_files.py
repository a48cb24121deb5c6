"""The complete files of a journal's folder, read as records."""

from __future__ import annotations

from pathlib import Path

from paired_servicebus.engine.journal.reader import JournalReader
from paired_servicebus.engine.journal.spool import CLOSED, SUFFIX


def read_records(folder: Path) -> JournalReader:
    """Return the records of the complete files in a journal's folder."""
    return JournalReader(lambda: sorted((folder / CLOSED).glob(f"*{SUFFIX}")))
