"""Pauses between tries: growing, and such that no two engines share them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FIRST: Final = 1.0
MOST: Final = 30.0
HEALTHY: Final = 30.0
"""Seconds after which a link or a connection that lived so long counts as a success."""


class Backoff:
    """Pauses in seconds that double from `first` to `most`, each of them shortened by up to a half by chance.

    draw: a number from 0 up to, not including, 1.
    """

    def __init__(self, draw: Callable[[], float], *, first: float = FIRST, most: float = MOST) -> None:
        self._draw = draw
        self._first = first
        self._most = most
        self._next = first

    def next(self) -> float:
        pause = self._next * (1.0 - self._draw() / 2)
        self._next = min(self._most, 2 * self._next)
        return pause

    def reset(self) -> None:
        """The next pause is the first one again."""
        self._next = self._first
