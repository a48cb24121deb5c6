"""Refusals, logged once for each reason: a flood of invalid requests must not fill a disk."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

log = logging.getLogger(__name__)

MAX_TEXT: Final = 300


class RefusalLog:
    """The refusals of the server `who`; `counts` has the number for each reason."""

    def __init__(self, who: str, logger: logging.Logger = log) -> None:
        self._who = who
        self._logger = logger
        self.counts: Counter[str] = Counter()

    def about(self, reason: str, sentence: str) -> None:
        """Count a refusal. `reason` is one of a few, such as a condition; `sentence` may quote the client."""
        self.counts[reason] += 1
        if self.counts[reason] == 1:
            self._logger.warning("%s %.*s (%s, logged once)", self._who, MAX_TEXT, sentence, reason)
