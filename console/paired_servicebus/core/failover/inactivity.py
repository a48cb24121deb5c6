"""When an entity that is healthy has been quiet for too long to be called so (SPEC.md section 6).

What is heard of an entity is the end of a send, of a probe or of a ping of this engine, whatever came of it. After
`QUIET_AFTER` without any, nobody here knows how the primary is: it is unknown, which is no illness. Each entity is
looked at once in that time at most, however much is sent.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Final

from paired_servicebus.core.model.entity_state import Entity, State

QUIET_AFTER: Final = 15 * 60.0
"""Seconds with neither a send nor a probe or ping, after which an entity is healthy for all we know, and no more."""
SILENCE: Final = f"neither a send nor a probe for {QUIET_AFTER / 60:g} min"


class InactivityTimer:
    """When entities were last heard of, by key, and which of the healthy ones have fallen quiet."""

    def __init__(self) -> None:
        self._heard: dict[str, float] = {}
        self._healthy: set[str] = set()
        self._looks: list[tuple[float, str]] = []
        self._has_look: set[str] = set()
        """Keys in `_looks`, each once; what is healthy no longer is dropped once it is the first there."""

    def heard(self, key: str, *, at: float) -> None:
        """A send, a probe or a ping has ended."""
        self._heard[key] = at

    def is_quiet(self, key: str, *, at: float) -> bool:
        """Whether nothing was heard of it for too long, or ever."""
        return self._ends(key) <= at

    def not_known(self, entity: Entity) -> Entity:
        """The entity, of which the last answer is too old to say anything, or of which there never was one."""
        return replace(entity, primary_good=None, quiet_since=self._heard.get(entity.path.casefold()))

    def entered(self, key: str, state: State) -> None:
        """The entity's state has changed: look after it as long as it is healthy."""
        if state is not State.HEALTHY:
            self._healthy.discard(key)
            return
        self._healthy.add(key)
        if key not in self._has_look:
            self._has_look.add(key)
            heapq.heappush(self._looks, (self._ends(key), key))

    def next(self) -> float | None:
        """When to look next; what was sent and only counted has to be told before. None: nobody is healthy."""
        while self._looks and self._looks[0][1] not in self._healthy:
            self._drop_first()
        return self._looks[0][0] if self._looks else None

    def due(self, at: float, *, most: int) -> list[str]:
        """Those that have fallen quiet, at most so many; the others' times move on."""
        found: list[str] = []
        while len(found) < most and (look := self.next()) is not None and look <= at:
            key = self._looks[0][1]
            ends = self._ends(key)
            if ends > at:
                heapq.heapreplace(self._looks, (ends, key))
            else:
                self._drop_first()
                found.append(key)
        return found

    def _drop_first(self) -> None:
        _, key = heapq.heappop(self._looks)
        self._has_look.discard(key)

    def _ends(self, key: str) -> float:
        return self._heard.get(key, 0.0) + QUIET_AFTER
