"""Which backlog queues senders may pick (SPEC.md section 7.1).

A failed send pulls its queue for every sender of the pairing; it returns after a probe succeeded. A queue that is
merely busy is not pulled. Probes of a queue that keeps failing grow apart, up to `MAX_PROBE_INTERVALS` intervals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

MAX_PROBE_INTERVALS: Final = 8
"""The longest distance between two probes of one queue, in probe intervals."""


@dataclass(slots=True)
class QueuePlace:
    """One backlog queue's standing."""

    index: int
    pulled: bool = False
    reason: str = ""
    since: float = 0.0
    probe_due: float | None = None
    """When to try it again; None while it is in, or while a probe is under way."""
    probes: int = 0
    """Probes that failed since it was pulled, and returns that did not last."""


class Rotation:
    """The backlog queues of a pairing by their indices, all of them in at first. Indices may have gaps."""

    def __init__(self, indices: Iterable[int], *, probe_interval: float) -> None:
        self._by_index = {index: QueuePlace(index) for index in sorted(indices)}
        self._interval = probe_interval

    @property
    def places(self) -> tuple[QueuePlace, ...]:
        """Every queue's standing, by index."""
        return tuple(self._by_index.values())

    @property
    def indices(self) -> tuple[int, ...]:
        """The indices in use, ascending."""
        return tuple(self._by_index)

    def pick(self, draw: float, *, avoid: Collection[int] = ()) -> int | None:
        """A queue that is in and not to be avoided, chosen by `draw` in [0, 1); None when there is none."""
        choice = [place.index for place in self._by_index.values() if not place.pulled and place.index not in avoid]
        return choice[int(draw * len(choice))] if choice else None

    def holds(self, index: int) -> bool:
        """Whether the queue is in."""
        place = self._by_index.get(index)
        return place is not None and not place.pulled

    def pull(self, index: int, *, at: float, reason: str) -> bool:
        """Take a queue out; False when it was out already."""
        place = self._by_index[index]
        if place.pulled:
            return False
        # One that comes back only to fail again is probed less and less often.
        place.probes = (
            place.probes + 1 if place.since and at - place.since < MAX_PROBE_INTERVALS * self._interval else 0
        )
        place.pulled, place.reason, place.since = True, reason, at
        place.probe_due = at + self._distance(place)
        return True

    def probed(self, index: int, *, at: float, accepted: bool, reason: str = "") -> bool:
        """What a probe found; True when the queue is back in."""
        place = self._by_index[index]
        if not place.pulled:
            return False
        if accepted:
            place.pulled, place.reason, place.since, place.probe_due = False, "", at, None
            return True
        place.probes += 1
        place.reason = reason or place.reason
        place.probe_due = at + self._distance(place)
        return False

    def probes_due(self, at: float) -> list[int]:
        """The queues to probe now; each is handed out once until its probe's outcome is known."""
        due = [place for place in self._by_index.values() if place.probe_due is not None and place.probe_due <= at]
        for place in due:
            place.probe_due = None
        return [place.index for place in due]

    def next_probe(self) -> float | None:
        """When the next probe is due."""
        return min((place.probe_due for place in self.places if place.probe_due is not None), default=None)

    def _distance(self, place: QueuePlace) -> float:
        return self._interval * min(2.0 ** min(place.probes, MAX_PROBE_INTERVALS), MAX_PROBE_INTERVALS)
