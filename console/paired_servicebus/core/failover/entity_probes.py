"""Which entities are asked for while nothing is sent to them, and when (SPEC.md section 6, "traffic nor probe").

Off unless an operator names an entity: a probe costs an operation. What an attempt of a sender finds out makes the next
probe wait a whole interval; one that failed is followed by another in time for the failover interval, so that a single
lost one fails nothing over. While an entity diverts, pings do this work.
"""

from __future__ import annotations

import heapq
from typing import Final

SECOND_LOOK: Final = 0.5
"""After a probe that failed, the next one comes when this share of the failover interval has passed."""
LEAST: Final = 1.0
"""Seconds between two probes of one entity, at least."""


class EntityProbes:
    """The entities to probe, by key; each is due at one time, or has a probe under way.

    Args:
        interval: seconds between two probes of an entity that nothing is sent to.
        failover_interval: seconds in which a second probe has to follow one that failed.
    """

    def __init__(self, *, interval: float, failover_interval: float) -> None:
        self._interval = interval
        self._soon = min(interval, max(LEAST, SECOND_LOOK * failover_interval))
        self._heard: dict[str, float] = {}
        """When a sender last found out about the entity; its keys are all that are probed."""
        self._due: list[tuple[float, str]] = []

    def start(self, key: str, *, at: float) -> None:
        """Probe the entity from now on, first at once."""
        if key not in self._heard:
            self._heard[key] = at - self._interval
            heapq.heappush(self._due, (at, key))

    def heard(self, key: str, *, at: float) -> None:
        """A sender attempted the entity: no probe is needed for a while."""
        if key in self._heard:
            self._heard[key] = at

    def next(self) -> float | None:
        """When the next one is due."""
        return self._due[0][0] if self._due else None

    def due(self, at: float) -> list[str]:
        """Those whose time has come; each is handed out once, until `answered` or `later`."""
        found: list[str] = []
        while self._due and self._due[0][0] <= at:
            _, key = heapq.heappop(self._due)
            quiet_until = self._heard[key] + self._interval
            if quiet_until > at:
                heapq.heappush(self._due, (quiet_until, key))
            else:
                found.append(key)
        return found

    def later(self, key: str, *, at: float) -> None:
        """It is not to be probed now: looked at again after an interval."""
        heapq.heappush(self._due, (at + self._interval, key))

    def answered(self, key: str, *, began: float, good: bool, earliest: float) -> None:
        """A probe that left at `began` has its outcome; the next one leaves at `earliest` or later."""
        distance = self._interval if good else self._soon
        heapq.heappush(self._due, (max(began + distance, earliest), key))
