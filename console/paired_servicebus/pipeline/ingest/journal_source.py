"""The folder of a journal's whole files, and whether it has any; without Spark."""

from __future__ import annotations

from pathlib import Path

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.engine.journal.spool import CLOSED, OPEN, SUFFIX


def journal_files(journal: Path) -> Path:
    """Return the folder of whole journal files: a journal's `events`, or the folder itself.

    Raises:
        PipelineError: there is none.
    """
    for folder in (journal / CLOSED, journal):
        if folder.is_dir():
            return folder
    raise PipelineError(f"there is no journal in {journal}: an engine writes one, or name its folder with --journal")


def none_yet(journal: Path) -> str:
    """Why there is nothing to read, as a sentence; empty where there is a journal file, or one that is being written.

    Raises:
        PipelineError: there is no journal, or it cannot be looked into.
    """
    whole = journal_files(journal)
    try:
        if any(whole.glob(f"*{SUFFIX}")) or any((journal / OPEN).glob(f"*{SUFFIX}")):
            return ""
    except OSError as error:
        raise PipelineError(f"the journal in {journal} cannot be read: {error.strerror or error}") from error
    return f"there are no journal files in {whole}"


def require_files(journal: Path) -> None:
    """Raise PipelineError where there is nothing to read: tables of nothing would look like a success."""
    if text := none_yet(journal):
        raise PipelineError(f"{text}: an engine writes them, or name its journal's folder with --journal")


def require_whole_files(journal: Path) -> None:
    """Raise PipelineError where no file is whole, after the engine was asked for the one that it writes."""
    require_files(journal)
    whole = journal_files(journal)
    if not any(whole.glob(f"*{SUFFIX}")):
        raise PipelineError(
            f"there are no whole journal files in {whole}, and the one in {journal / OPEN} is not ended: start its "
            "engine, which recovers it"
        )
