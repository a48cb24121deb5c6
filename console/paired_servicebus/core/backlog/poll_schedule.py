"""How often the depths of the backlog are read: as often as somebody looks or a rule needs it (SPEC.md section 12).

A reading is one list of the secondary's queues, and costs that namespace credits which it may need for messages. So the
rows below say for whom it is made; where no row holds, nobody asks. The first row that holds counts.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class PollReason(StrEnum):
    """Why the depths may be wanted now."""

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
    (frozenset({PollReason.SYPHON}), 300.0),  # a pump that receives nothing though messages lie there
    (frozenset({PollReason.UNMOVED}), 300.0),  # the rule "has not fallen for 15 min"
)
"""Reasons that hold together, and the seconds between two readings then."""


def every(reasons: frozenset[PollReason]) -> float | None:
    """Return the seconds between two readings; None: nobody wants any."""
    return next((seconds for row, seconds in EVERY if row <= reasons), None)
