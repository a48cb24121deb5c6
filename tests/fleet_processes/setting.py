"""The names and times that all parts of these proofs share."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
ENTITY: Final = "payments"
SIDES: Final = ("primary", "secondary")
BACKLOG: Final = "primary/x-servicebus-transfer/0"
START: Final = 120.0
"""Seconds in which a process has to pair."""
PATIENCE: Final = 90.0
"""Seconds to wait for a condition that has no bound of its own."""


class Broken(AssertionError):
    """A promise that does not hold."""
