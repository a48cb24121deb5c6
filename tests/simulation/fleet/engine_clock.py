"""The clock of one engine's host: ahead, drifting, and set right once."""

from __future__ import annotations

from tests.simulation.fleet.fleet_plan import PlannedEngine


class EngineClock:
    """A clock that is ahead and drifts, until it is set."""

    def __init__(self, planned: PlannedEngine, began: float) -> None:
        self.drift = planned.drift
        self._skew, self._since = planned.skew, began
        self.set_at = 0.0
        self.worst = abs(planned.skew)
        """The largest offset that evidence from before may still suggest."""

    def offset(self, now: float) -> float:
        """Return the seconds that it is ahead."""
        return self._skew + self.drift * (now - self._since)

    def time(self, now: float) -> float:
        """Return its time."""
        return now + self.offset(now)

    def set_right(self, now: float) -> None:
        """Set it."""
        self.worst = max(self.worst, abs(self.offset(now)))
        self._skew, self._since, self.set_at = 0.0, now, now

    @property
    def is_steady(self) -> bool:
        """Return whether evidence stays true. Else it is contradicted later, and the latest alone counts."""
        return not self.drift and not self.set_at
