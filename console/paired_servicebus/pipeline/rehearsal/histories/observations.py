"""Observations of an entity in a journal: the primary's answers, its sends, and sends in doubt."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.pipeline.rehearsal.histories.recorded_history import kind_of_reason


@dataclass(frozen=True, slots=True)
class Observation:
    """An observation of the primary: requested at `asked`, answered at `told`. A `window` has both counts."""

    asked: float
    told: float
    good: int
    bad: int
    reason: str = ""
    window: bool = False


@dataclass(slots=True)
class EntityObservations:
    """All that was seen of one entity."""

    path: str
    sightings: list[Observation] = field(default_factory=list)
    accepted: list[tuple[float, float, int]] = field(default_factory=list)
    """From, to and how many, by any route."""
    refusing: list[list[float]] = field(default_factory=list)
    """Return the start and end of each period without an accepted send."""
    kinds: list[tuple[float, FailureKind]] = field(default_factory=list)
    """Failures that were counted, by when."""
    doubts: dict[str, list[float]] = field(default_factory=dict)
    """When each message was in doubt."""

    def served(self, since: float) -> None:
        """Return whether a send was accepted after `since`: before the first refusal it does not mark the end of
        one."""
        if self.refusing and self.refusing[-1][1] == inf and since >= self.refusing[-1][0]:
            self.refusing[-1][1] = since


def is_unanswered(sight: Observation) -> bool:
    """Return whether no send was answered."""
    return kind_of_reason(sight.reason) is FailureKind.TIMEOUT
