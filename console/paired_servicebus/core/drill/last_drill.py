"""The last drill of a pairing, as far as a machine knows: when it was, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass

from paired_servicebus.core.drill.drill_report import DrillOutcome
from paired_servicebus.core.text.time_format import day_and_clock


@dataclass(frozen=True, slots=True, kw_only=True)
class LastDrill:
    """The last drill. began, ended: seconds since the epoch; ended and outcome None: it runs, or was killed.

    text: the verdict, as a sentence. configured: whether it had the pairing's own times.
    """

    began: float
    ended: float | None = None
    outcome: DrillOutcome | None = None
    text: str = ""
    configured: bool = False

    @property
    def sentence(self) -> str:
        """Return when it was and how it ended."""
        times = "the pairing's own times" if self.configured else "short times"
        began = f"{day_and_clock(self.began)} UTC, {times}"
        if self.outcome is None or self.ended is None:
            return f"{began}: it has not ended, or was killed"
        return f"{began}: {self.outcome}{': ' if self.text else ''}{self.text}"
