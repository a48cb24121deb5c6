"""Turns: of many calls that could try something that failed, one at a time does. Pure.

A held call tries a suspect primary, one of an entity at a time; a call tries the backlog queues when all of them are
out of the rotation. The others wait for its result, and ask again every LOOK_SECONDS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LOOK_SECONDS: Final = 1.0
"""Seconds after which a waiting call asks again for the turn: the holder may have been cancelled."""


@dataclass(slots=True)
class Turn:
    """The turn to try, and who has it. failures: how many turns over all choices ended without success."""

    failures: int = 0
    _holder: object | None = None
    _since: float | None = None
    _due: float | None = None

    def take(self, call: object) -> bool:
        """Take the turn; return False if another call has it."""
        if self._holder is None:
            self._holder = call
        return self._holder is call

    def release(self, call: object) -> bool:
        """Free the turn for others; return False if the call does not have it."""
        if self._holder is not call:
            return False
        self._holder = self._due = None
        return True

    def fail(self, call: object) -> None:
        """Free the turn after a failure that the waiting calls share."""
        self.failures += self.release(call)

    def due_at(self, since: float, otherwise: float) -> float:
        """Return when the turn may be taken next: `otherwise`, unless a time was set since then.

        since: the beginning of the present trouble; an earlier one's times are forgotten.
        """
        if self._since != since or self._due is None:
            self._since, self._due = since, otherwise
        return self._due
