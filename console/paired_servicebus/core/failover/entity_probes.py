"""The schedule of probes for entities without sends (SPEC.md section 6, "traffic nor probe").

Off unless an operator names an entity, since a probe costs an operation. A send postpones the next probe by one
interval. After a failed probe the next one follows within the failover interval, so one lost probe fails nothing over.
While an entity diverts, pings replace probes.
"""

from __future__ import annotations

import heapq
from typing import Final

RETRY_SHARE: Final = 0.5
"""Share of the failover interval between a failed probe and the next one."""
MIN_INTERVAL_SECONDS: Final = 1.0
"""Minimum seconds between two probes of one entity."""


class EntityProbes:
    """The probed entities by key; each has one due time or one probe under way.

    Args:
        interval: seconds between two probes of an entity without sends.
        failover_interval: seconds within which a second probe follows a failed one.
    """

    def __init__(self, *, interval: float, failover_interval: float) -> None:
        self._interval = interval
        self._soon = min(interval, max(MIN_INTERVAL_SECONDS, RETRY_SHARE * failover_interval))
        self._heard: dict[str, float] = {}
        """Time of the latest send by key; the keys are the probed entities."""
        self._due: list[tuple[float, str]] = []

    def start(self, key: str, *, at: float) -> None:
        if key not in self._heard:
            self._heard[key] = at - self._interval
            heapq.heappush(self._due, (at, key))

    def heard(self, key: str, *, at: float) -> None:
        """Postpone the entity's probe after a send."""
        if key in self._heard:
            self._heard[key] = at

    def next(self) -> float | None:
        """Return the time of the next probe; None: none is due."""
        return self._due[0][0] if self._due else None

    def due(self, at: float) -> list[str]:
        """Return the due entities; each is returned once until `answered` or `later`."""
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
        """Postpone the entity's probe by one interval."""
        heapq.heappush(self._due, (at + self._interval, key))

    def answered(self, key: str, *, began: float, good: bool, earliest: float) -> None:
        """Schedule the probe after the one that began at `began`, never before `earliest`."""
        distance = self._interval if good else self._soon
        heapq.heappush(self._due, (max(began + distance, earliest), key))
