"""Growing pauses between tries, randomised so that engines do not retry together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FIRST_PAUSE: Final = 1.0
MAX_PAUSE: Final = 30.0
HEALTHY: Final = 30.0
"""Seconds of life after which a link or a connection counts as a success."""


class Backoff:
    """Pauses in seconds that double from `first` to `most`, each shortened by a random share up to a half.

    draw: a number from 0 up to, not including, 1.
    """

    def __init__(self, draw: Callable[[], float], *, first: float = FIRST_PAUSE, most: float = MAX_PAUSE) -> None:
        self._draw = draw
        self._first = first
        self._most = most
        self._next = first

    def next(self) -> float:
        pause = self._next * (1.0 - self._draw() / 2)
        self._next = min(self._most, 2 * self._next)
        return pause

    def reset(self) -> None:
        """Start again with the first pause."""
        self._next = self._first
