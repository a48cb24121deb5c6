"""A request to the engine before each poll of Spark: close the open journal file.

Spark polls at whole multiples of the trigger's seconds. The engine's open file is complete by then, however small; an
engine without a follower makes fewer files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from paired_servicebus.engine.journal import spool

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
