"""What is known of a pairing at one moment: the frozen value that every alarm is a function of.

It has this engine's entities, and the fold over all engines of the pairing. One library without an engine fills it too,
with less. None means unknown; a state that is unknown says since when, and every reading has its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

from paired_servicebus.core.model.entity_state import DIVERTING, State
from paired_servicebus.core.model.pairing_fold import PairingView, fold
from paired_servicebus.core.model.snapshot import (
    NOWHERE,
    PRIMARY,
    EntityView,
    PairingFacts,
    QueueView,
    Snapshot,
    TroubleKind,
)


@dataclass(frozen=True, kw_only=True)
class PairingCondition(PairingFacts):
    """The condition of one pairing. `at`: the reader's time; `read_at`: when the engine made the figures."""

    read_at: float

    @cached_property
    def pairing(self) -> PairingView:
        """The fold over all engines."""
        return fold(self.entities, self.fleet, self.read_at, self.syphon.destinations)

    @property
    def everywhere(self) -> Sequence[EntityView]:
        """The entities over all engines."""
        return self.entities if self.fleet is None else self.pairing.entities

    @property
    def open_queues(self) -> tuple[QueueView, ...]:
        """The backlog queues that accept sends."""
        return tuple(queue for queue in self.queues if queue.in_rotation)

    @property
    def is_primary_away(self) -> bool:
        """Whether the primary is known not to answer, and no send proves the contrary."""
        return self._is_primary(TroubleKind.NAMESPACE_UNREACHABLE)

    def _is_primary(self, *kinds: TroubleKind) -> bool:
        known = any(one.kind in kinds and one.what == PRIMARY for one in self.troubles)
        return known and not any(one.state is State.HEALTHY for one in self.entities)

    def has_no_route(self, entity: EntityView) -> bool:
        """Return whether the entity's sends can reach neither namespace."""
        closed = bool(self.queues) and not self.open_queues
        closed_there = self._is_primary(TroubleKind.NAMESPACE_UNREACHABLE, TroubleKind.CREDENTIAL_REFUSED)
        away = entity.state is State.UNKNOWN and closed_there
        return entity.route == NOWHERE or (closed and (away or entity.state in DIVERTING))


def condition_of(snapshot: Snapshot, now: float | None = None) -> PairingCondition:
    """Return the condition that a snapshot shows. now: the reader's time; None: that of the snapshot."""
    known = {one.name: getattr(snapshot, one.name) for one in fields(PairingFacts)}
    return PairingCondition(**known | {"at": snapshot.at if now is None else now}, read_at=snapshot.at)
