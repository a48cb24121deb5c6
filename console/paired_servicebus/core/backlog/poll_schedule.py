"""The interval for reading backlog depths, by its present uses (SPEC.md section 12).

A reading lists the secondary's queues, and so uses credits that messages may need. Each row below names a use; the
first matching row counts. Without a match no depths are read.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class PollReason(StrEnum):
    """The uses of backlog depths."""

    WATCHED = "a console is attached and shows them"
    SCRAPED = "figures are scraped"
    SYPHON = "this engine runs a syphon"
    DIVERTING = "an entity is failed over or forced"
    PARKED = "messages are parked, or were since the last reading"
    LYING = "messages lie there that this engine does not hold aside"
    UNMOVED = "messages lie there that no known syphon moves"


EVERY: Final[tuple[tuple[frozenset[PollReason], float], ...]] = (
    (frozenset({PollReason.WATCHED, PollReason.PARKED}), 5.0),
    (frozenset({PollReason.WATCHED, PollReason.DIVERTING}), 5.0),
    (frozenset({PollReason.WATCHED}), 15.0),
    (frozenset({PollReason.SCRAPED}), 30.0),
    (frozenset({PollReason.SYPHON, PollReason.LYING}), 30.0),  # the rule "stuck" compares two readings
    (frozenset({PollReason.SYPHON, PollReason.DIVERTING}), 30.0),
    (frozenset({PollReason.DIVERTING}), 60.0),  # so that "parked" has a figure in the journal
    (frozenset({PollReason.SYPHON}), 300.0),  # detects a pump that receives nothing despite messages
    (frozenset({PollReason.UNMOVED}), 300.0),  # the rule "has not fallen for 15 min"
)
"""Combinations of uses, with the seconds between two readings."""


def every(reasons: frozenset[PollReason]) -> float | None:
    """Return the seconds between two readings; None: no use."""
    return next((seconds for row, seconds in EVERY if row <= reasons), None)
