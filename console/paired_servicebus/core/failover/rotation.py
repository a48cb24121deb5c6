"""The rotation of backlog queues for senders (SPEC.md section 7.1).

A failed send pulls its queue for every sender of the pairing; a successful probe restores it. A busy queue is not
pulled. The interval between probes of a failing queue grows up to `MAX_PROBE_INTERVALS` intervals. While all queues
are out, sends are the probe: one call at a time goes round them, and an acceptance restores the queue at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.failover.turns import Turn

MAX_PROBE_INTERVALS: Final = 8
"""Maximum time between two probes of one queue, in probe intervals."""


@dataclass(slots=True)
class QueuePlace:
    """One backlog queue's place in the rotation."""

    index: int
    pulled: bool = False
    reason: str = ""
    since: float = 0.0
    failed_at: float = 0.0
    """Time of its latest failure."""
    probe_due: float | None = None
    """Time of the next probe; None while the queue is in, or during a probe."""
    probes: int = 0
    """Failed probes since it was pulled, plus returns that did not last."""
    withheld: bool = False
    """Whether its settings can lose a message: it is out, and no probe returns it."""


class Rotation:
    """The backlog queues of a pairing by index, all of them in at first. Indices may have gaps."""

    def __init__(self, indices: Iterable[int], *, probe_interval: float) -> None:
        self._by_index = {index: QueuePlace(index) for index in sorted(indices)}
        self._interval = probe_interval
        self.turn = Turn()
        """The turn to go round the queues while all of them are out."""

    @property
    def places(self) -> tuple[QueuePlace, ...]:
        """Return every queue's place, by index."""
        return tuple(self._by_index.values())

    @property
    def indices(self) -> tuple[int, ...]:
        """Return the indices in use, ascending."""
        return tuple(self._by_index)

    def pick(self, draw: float, *, avoid: Collection[int] = ()) -> int | None:
        """Return a queue that is in and not in `avoid`, chosen by `draw` in [0, 1); None: there is none."""
        choice = [place.index for place in self._by_index.values() if not place.pulled and place.index not in avoid]
        return choice[int(draw * len(choice))] if choice else None

    def holds(self, index: int) -> bool:
        """Return whether the queue is in."""
        place = self._by_index.get(index)
        return place is not None and not place.pulled

    @property
    def is_all_out(self) -> bool:
        """Return whether every queue is pulled."""
        return all(place.pulled for place in self._by_index.values())

    def first_out(self, *, avoid: Collection[int] = ()) -> int | None:
        """Return the pulled queue that failed longest ago, not in `avoid`; None: there is none."""
        places = self._by_index.values()
        out = [place for place in places if place.pulled and not place.withheld and place.index not in avoid]
        return min(out, key=lambda place: (place.failed_at, place.index)).index if out else None

    def pull(self, index: int, *, at: float, reason: str) -> bool:
        """Pull a queue; return False if it was out already."""
        place = self._by_index[index]
        place.failed_at = at
        if place.pulled:
            return False
        # A queue that fails again after its return is probed less often.
        place.probes = (
            place.probes + 1 if place.since and at - place.since < MAX_PROBE_INTERVALS * self._interval else 0
        )
        place.pulled, place.reason, place.since = True, reason, at
        place.probe_due = at + self._distance(place)
        return True

    def withhold(self, index: int, *, at: float, reason: str) -> bool:
        """Keep a queue out because of its settings; return False if it is out for this reason already."""
        place = self._by_index[index]
        if place.withheld and place.reason == reason:
            return False
        place.withheld = place.pulled = True
        place.reason, place.since, place.probe_due = reason, at, None
        return True

    def admit(self, index: int, *, at: float) -> bool:
        """End `withhold`: a probe, due now, decides about the return. Return False if the queue was not withheld."""
        place = self._by_index[index]
        if not place.withheld:
            return False
        place.withheld, place.probes, place.probe_due = False, 0, at
        return True

    def probed(self, index: int, *, at: float, accepted: bool, reason: str = "") -> bool:
        """Apply a probe's result; return whether the queue is in again."""
        place = self._by_index[index]
        if not place.pulled or place.withheld:
            return False
        if accepted:
            place.pulled, place.reason, place.since, place.probe_due = False, "", at, None
            return True
        place.probes += 1
        place.failed_at = at
        place.reason = reason or place.reason
        place.probe_due = at + self._distance(place)
        return False

    def probes_due(self, at: float) -> list[int]:
        """Return the queues to probe now; each is returned once until its probe's result."""
        due = [place for place in self._by_index.values() if place.probe_due is not None and place.probe_due <= at]
        for place in due:
            place.probe_due = None
        return [place.index for place in due]

    def next_probe(self) -> float | None:
        """Return the time of the next probe; None: none is due."""
        return min((place.probe_due for place in self.places if place.probe_due is not None), default=None)

    def _distance(self, place: QueuePlace) -> float:
        return self._interval * min(2.0 ** min(place.probes, MAX_PROBE_INTERVALS), MAX_PROBE_INTERVALS)
