"""What was seen of an entity, as a journal tells it: every answer of the primary, what was sent, what was in doubt."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.pipeline.rehearsal.histories.recorded_history import kind_of_reason


@dataclass(frozen=True, slots=True)
class Observation:
    """What somebody saw of the primary: asked at `asked`, told at `told`. Of `window`s both counts are known."""

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
    """From and to of the times in which nobody was told yes."""
    kinds: list[tuple[float, FailureKind]] = field(default_factory=list)
    """Failures that were counted, by when."""
    doubts: dict[str, list[float]] = field(default_factory=dict)
    """When each message was in doubt."""

    def served(self, since: float) -> None:
        """A caller was told yes after `since`: before the refusals began, that says nothing of their end."""
        if self.refusing and self.refusing[-1][1] == inf and since >= self.refusing[-1][0]:
            self.refusing[-1][1] = since


def is_unanswered(sight: Observation) -> bool:
    """Whether nobody was told anything."""
    return kind_of_reason(sight.reason) is FailureKind.TIMEOUT
