"""When the dashboard's process collects garbage: between keys, and never among widgets that stay.

A full collection takes as long as a key is allowed to: it looks at every object, and ends what a closed dialog left.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

EVERY_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 10.0
"""Seconds between full collections; seconds without a key before one; seconds until one that does not wait for that."""
_THRESHOLDS: Final = (700, 10, 100_000)
"""Python collects young objects by itself, as ever; the rest is done here."""


class IdleCollector:
    """Collects in full while nobody types. Until `start`, Python's own collector is left alone."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._key_at = self._collected_at = monotonic()
        self._is_started = False
        self._before = gc.get_threshold()

    def start(self) -> None:
        """Collect from now on, but never look again at what exists already, such as modules."""
        gc.freeze()
        gc.set_threshold(*_THRESHOLDS)
        gc.enable()
        self._is_started = True

    def stop(self) -> None:
        """Leave it to Python again."""
        self._is_started = False
        gc.set_threshold(*self._before)
        gc.enable()

    def note_key(self) -> None:
        """Wait, since somebody types."""
        self._key_at = self._monotonic()

    def keep_page(self) -> None:
        """Never look at a page again that was just opened."""
        if self._is_started:
            gc.collect()
            gc.freeze()

    def tick(self) -> None:
        """Collect if it is time. Call it about once a second."""
        now = self._monotonic()
        waited, idle = now - self._collected_at, now - self._key_at
        if self._is_started and waited >= EVERY_SECONDS and (idle >= IDLE_SECONDS or waited >= LONGEST_SECONDS):
            gc.collect()
            self._collected_at = now
