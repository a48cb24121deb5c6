"""The folder of a journal's whole files, whether it has any, and the request for the open one; without Spark.

Spark polls at whole multiples of the trigger's seconds. The engine is asked before each poll to close its open file,
however small; an engine without a follower makes fewer files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.engine.journal import spool
from paired_servicebus.engine.journal.spool import CLOSED, OPEN, SUFFIX


def journal_files(journal: Path) -> Path:
    """Return the folder of whole journal files: a journal's `events`, or the folder itself.

    Raises PipelineError: there is none.
    """
    for folder in (journal / CLOSED, journal):
        if folder.is_dir():
            return folder
    raise PipelineError(f"there is no journal in {journal}: an engine writes one, or name its folder with --journal")


def none_yet(journal: Path) -> str:
    """Why there is nothing to read, as a sentence; empty where there is a journal file, or one that is being written.

    Raises PipelineError: there is no journal, or it cannot be looked into.
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


ASK: Final = 1.8
"""Seconds before Spark's poll: an engine checks for a request once a second, and the disk needs time."""
SHOW: Final = 0.5
"""Seconds before Spark's poll; the delivery may be a tenth of a second late."""

log = logging.getLogger(__name__)


class PollCountdown:
    """Signal once for each poll of Spark that it is due within `ahead` seconds."""

    def __init__(self, ahead: float, trigger: float, clock: Callable[[], float] = time.time) -> None:
        self._ahead = ahead
        self._trigger = trigger
        self._clock = clock
        self._said = -1

    def is_due(self) -> bool:
        """Whether this is the first time since the last look that so little is left."""
        coming = int((self._clock() + self._ahead) // self._trigger)
        before, self._said = self._said, coming
        return coming != before


class JournalFlusher:
    """Requests the open file from the engine of one journal; does nothing without an engine or write access."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._is_said = False

    def ask(self) -> None:
        """For its open file."""
        if not (self._journal / spool.CLOSED).is_dir():
            return
        try:
            spool.ask(self._journal)
        except OSError as error:  # for good, or while the disk is full
            if not self._is_said:
                log.warning("the tables are some seconds later: the engine cannot be asked for its journal: %s", error)
            self._is_said = True
        else:
            self._is_said = False
