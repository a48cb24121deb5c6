"""Fifteen minutes of figures, one each five seconds, as a console has them. Frozen values, pure functions.

The engine sends all of them once, and then each new value. None is unknown. All curves of one `Graphs` are equally
long; its newest value ends at `at`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final

STEP_SECONDS: Final = 5.0
KEPT: Final = 180
"""Values of a curve."""
MOST_MARKS: Final = 60
MOST_ENTITIES: Final = 250
"""Entities with curves of their own: 0.9 MB in the engine."""

Curve = tuple[float | None, ...]
"""Values from the oldest to the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The curves of one entity, or of the engine."""

    to_primary: Curve = ()
    """Messages a second that the primary accepted."""
    to_backlog: Curve = ()
    """Messages a second that backlog queues accepted."""
    refused: Curve = ()
    """Messages a second of calls that ended in an error at their caller."""
    p50: Curve = ()
    """Milliseconds of a send call, from its start to its end, accepted or refused: the median. None: no call."""
    p99: Curve = ()
    parked: Curve = ()
    """Messages in the backlog queues, and those the syphon moved a second: of the engine only."""
    moved: Curve = ()


NAMES: Final = tuple(each.name for each in fields(Curves))
RATES: Final = ("to_primary", "to_backlog", "refused")
OF_ENTITY: Final = (*RATES, "p50", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that changed the curves: an entity's new state, or an operator's order."""

    at: float
    what: str
    """The state, or the order."""
    subject: str
    order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """The curves of an engine: all of them, or those of the newest step."""

    at: float
    whole: bool
    total: Curves
    entities: Mapping[str, Curves] = field(default_factory=dict)
    """By path: those with sends within the time of the curves, MOST_ENTITIES at most."""
    marks: tuple[Mark, ...] = ()
    crowded: bool = False
    """Whether there are more entities with sends than it keeps."""
    step: float = STEP_SECONDS

    @property
    def length(self) -> int:
        """The number of values of each curve."""
        return len(self.total.to_primary)

    def of(self, path: str) -> Curves | None:
        """Return the curves of an entity; None: it had no sends, or too many entities have."""
        folded = path.casefold()
        return next((curves for name, curves in self.entities.items() if name.casefold() == folded), None)


def follow(before: Graphs | None, new: Graphs) -> Graphs:
    """Return the curves after a step; steps that did not arrive are unknown."""
    if new.whole or before is None or new.step != before.step or new.at <= before.at:
        return replace(new, whole=True)
    missed = min(KEPT, max(0, round((new.at - before.at) / new.step) - new.length))
    length = min(KEPT, before.length + missed + new.length)
    entities: dict[str, Curves] = {}
    for path in before.entities.keys() | new.entities.keys():
        old = before.entities.get(path) or _idle(before.length, OF_ENTITY)
        step = new.entities.get(path) or _idle(new.length, OF_ENTITY)
        grown = _extended(old, step, missed, length)
        if path in new.entities or any(any(getattr(grown, name)) for name in RATES):
            entities[path] = grown
    marks = tuple(mark for mark in (*before.marks, *new.marks) if mark.at > new.at - KEPT * new.step)
    return replace(
        new,
        whole=True,
        total=_extended(before.total, new.total, missed, length),
        entities=entities,
        marks=marks[-MOST_MARKS:],
    )


def _idle(length: int, names: tuple[str, ...]) -> Curves:
    """Return the curves of an entity without sends."""
    return Curves(**{name: (0.0 if name in RATES else None,) * length for name in names})


def _extended(old: Curves, new: Curves, missed: int, length: int) -> Curves:
    gap: Curve = (None,) * missed
    found: dict[str, Curve] = {}
    for name in NAMES:
        step: Curve = getattr(new, name)
        if step:
            found[name] = (getattr(old, name) + gap + step)[-length:]
    return Curves(**found)
