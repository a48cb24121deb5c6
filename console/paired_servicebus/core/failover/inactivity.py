"""Entities without sends: after a long silence they become unknown, unless they are probed (SPEC.md section 6).

Any finished send, probe or ping of this engine ends the silence, whatever its result. After `QUIET_AFTER` without one
the primary's state is unknown. Each entity is checked at most once per `QUIET_AFTER`, whatever its load. A deleted
entity becomes unknown after `QUIET_AFTER` without a send to primary or backlog, whatever its pings.

Probes of entities without sends are off unless an operator names an entity, since a probe costs an operation. A send
postpones the next probe by one interval. After a failed probe the next one follows within the failover interval, so one
lost probe fails nothing over. While an entity diverts, pings replace probes.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Final

from paired_servicebus.core.model.entity_state import Entity, State

QUIET_AFTER: Final = 15 * 60.0
"""Seconds without a send, probe or ping after which a healthy entity becomes unknown."""
SILENCE: Final = f"neither a send nor a probe for {QUIET_AFTER / 60:g} min"
DELETED: Final = f"the primary has no entity of this name, and nothing was sent to it for {QUIET_AFTER / 60:g} min"


class InactivityTimer:
    """The last activity of each entity, and the deadlines of the healthy ones."""

    def __init__(self) -> None:
        self._heard: dict[str, float] = {}
        self._diverted: dict[str, float] = {}
        """The end of each entity's latest send to the backlog."""
        self._healthy: set[str] = set()
        self._deadlines: list[tuple[float, str]] = []
        self._scheduled: set[str] = set()
        """Keys in `_deadlines`, once each; `_drop_first` removes keys that are no longer healthy."""

    def heard(self, key: str, *, at: float) -> None:
        """Record that a send, probe or ping has ended."""
        self._heard[key] = at

    def diverted(self, key: str, *, at: float) -> None:
        """Record that a send to the backlog has ended."""
        self._diverted[key] = at

    def unused_since(self, entity: Entity) -> float:
        """Return the end of a failed-over entity's latest send, or the failover if there was none after it."""
        left = entity.since if entity.left_primary_at is None else entity.left_primary_at
        return max(left, self._diverted.get(entity.path.casefold(), 0.0))

    def is_quiet(self, key: str, *, at: float) -> bool:
        """Return whether the entity had no activity for QUIET_AFTER, or none ever."""
        return self._ends(key) <= at

    def discard_answer(self, entity: Entity) -> Entity:
        """Return the entity with the primary's last answer discarded, as too old or absent."""
        return replace(entity, primary_good=None, quiet_since=self._heard.get(entity.path.casefold()))

    def entered(self, key: str, state: State) -> None:
        """Handle a change of state: only healthy entities are watched."""
        if state is not State.HEALTHY:
            self._healthy.discard(key)
            return
        self._healthy.add(key)
        if key not in self._scheduled:
            self._scheduled.add(key)
            heapq.heappush(self._deadlines, (self._ends(key), key))

    def next(self) -> float | None:
        """Return the next deadline; apply counted sends first. None: no entity is healthy."""
        while self._deadlines and self._deadlines[0][1] not in self._healthy:
            self._drop_first()
        return self._deadlines[0][0] if self._deadlines else None

    def due(self, at: float, *, most: int) -> list[str]:
        """Return at most `most` entities that have fallen silent; move the others' deadlines."""
        found: list[str] = []
        while len(found) < most and (look := self.next()) is not None and look <= at:
            key = self._deadlines[0][1]
            ends = self._ends(key)
            if ends > at:
                heapq.heapreplace(self._deadlines, (ends, key))
            else:
                self._drop_first()
                found.append(key)
        return found

    def _drop_first(self) -> None:
        _, key = heapq.heappop(self._deadlines)
        self._scheduled.discard(key)

    def _ends(self, key: str) -> float:
        return self._heard.get(key, 0.0) + QUIET_AFTER


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
