"""What clients were refused, said in the log once for each reason: a flood of nonsense is not to fill a disk."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

log = logging.getLogger(__name__)

LONGEST: Final = 300


class RefusalLog:
    """Those of one server, `who`; `counts` tells how often each reason was met."""

    def __init__(self, who: str) -> None:
        self._who = who
        self.counts: Counter[str] = Counter()

    def about(self, reason: str, sentence: str) -> None:
        """`reason` is one of a few, such as a condition; what clients sent may stand in the sentence."""
        self.counts[reason] += 1
        if self.counts[reason] == 1:
            log.warning("%s %.*s (%s, told once)", self._who, LONGEST, sentence, reason)
