"""What is done just before each look of Spark's for new files: the engine is asked for its open file.

Spark looks at whole multiples of the trigger's seconds, by the clock. What the engine has in its open file is whole by
that time, however little it is; an engine that nobody follows makes fewer files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from paired_servicebus.engine.journal import spool

ASK: Final = 1.8
"""Seconds before Spark looks: an engine looks once a second whether somebody asks, and the disk has to answer."""
SHOW: Final = 0.5
"""Seconds before Spark looks; whoever shows is not always in time to the tenth of a second."""

log = logging.getLogger(__name__)


class PollCountdown:
    """Says, once each time, that Spark looks within `ahead` seconds."""

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
    """Asks the engine of one journal. Where there is none, or it may not be written to, nobody is asked."""

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
