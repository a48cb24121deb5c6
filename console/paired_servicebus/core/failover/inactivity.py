"""The rule that a healthy entity becomes unknown after a long silence (SPEC.md section 6).

Any finished send, probe or ping of this engine ends the silence, whatever its result. After `QUIET_AFTER` without one
the primary's state is unknown. Each entity is checked at most once per `QUIET_AFTER`, whatever its load.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Final

from paired_servicebus.core.model.entity_state import Entity, State

QUIET_AFTER: Final = 15 * 60.0
"""Seconds without a send, probe or ping after which a healthy entity becomes unknown."""
SILENCE: Final = f"neither a send nor a probe for {QUIET_AFTER / 60:g} min"


class InactivityTimer:
    """The last activity of each entity, and the deadlines of the healthy ones."""

    def __init__(self) -> None:
        self._heard: dict[str, float] = {}
        self._healthy: set[str] = set()
        self._deadlines: list[tuple[float, str]] = []
        self._scheduled: set[str] = set()
        """Keys in `_deadlines`, once each; `_drop_first` removes keys that are no longer healthy."""

    def heard(self, key: str, *, at: float) -> None:
        """Record that a send, probe or ping has ended."""
        self._heard[key] = at

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
