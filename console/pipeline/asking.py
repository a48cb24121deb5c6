"""Asks an engine for its journal's open file, just before each look of Spark's for new files.

Spark looks at whole multiples of the trigger's seconds, by the clock. What the engine has in its open file is whole by
that time, however little it is; an engine that nobody follows makes fewer files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from console.engine import spool

AHEAD: Final = 1.5
"""Seconds before Spark looks: an engine looks once a second whether somebody asks, and the disk has to answer."""

log = logging.getLogger(__name__)


class Asking:
    """For one journal. Where there is no engine's, or it may not be written to, nobody is asked."""

    def __init__(self, journal: Path, trigger: float, clock: Callable[[], float] = time.time) -> None:
        self._journal = journal
        self._trigger = trigger
        self._clock = clock
        self._asked = -1
        self._is_possible = (journal / spool.CLOSED).is_dir()

    def look(self) -> None:
        """Asks, if it is time to."""
        coming = int((self._clock() + AHEAD) // self._trigger)
        if coming == self._asked or not self._is_possible:
            return
        self._asked = coming
        try:
            spool.ask(self._journal)
        except OSError as error:
            self._is_possible = False
            log.warning("the tables are some seconds later: the engine cannot be asked for its journal: %s", error)
