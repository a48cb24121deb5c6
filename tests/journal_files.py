"""The complete files of a journal's folder, read as records."""

from __future__ import annotations

from pathlib import Path

from paired_servicebus.engine.journal.spool import CLOSED, SUFFIX, SpoolReader


def read_records(folder: Path) -> SpoolReader:
    """Return the records of the complete files in a journal's folder."""
    return SpoolReader(lambda: sorted((folder / CLOSED).glob(f"*{SUFFIX}")))
