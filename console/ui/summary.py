"""Is anything wrong? The first thing the eye should find, as one sentence with the worst first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from console.core.entity import DIVERTING, State
from console.core.moments import clock
from console.core.snapshot import QueueView, Snapshot, SyphonStatus
from console.ui.figures import count, plural
from console.ui.states import LOOKS
from console.ui.view import Link, View

NAMED: Final = 2
"""So many entities in one state are named; more are counted."""


class Level(IntEnum):
    """How bad it is."""

    WELL = 0
    NOTABLE = 1
    WRONG = 2
    BLIND = 3
    """The engine's present state is not known."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The sentence, its glyph and level."""

    level: Level
    glyph: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """What lies in the backlog queues. `known` says how many of the queues' depths were read at all."""

    messages: int
    dead_lettered: int
    known: int
    queues: int
    read_at: float | None
    """The oldest of the readings."""
    old: bool
    """Older than twice the interval of reading."""


def parked(snapshot: Snapshot) -> Parked:
    """The sum over the backlog queues."""
    read = [queue for queue in snapshot.queues if queue.depth is not None]
    oldest = min((queue.read_at for queue in read if queue.read_at is not None), default=None)
    return Parked(
        messages=sum(queue.depth or 0 for queue in read),
        dead_lettered=sum(queue.dead_lettered or 0 for queue in read),
        known=len(read),
        queues=len(snapshot.queues),
        read_at=oldest,
        old=any(is_old(queue, snapshot.at) for queue in read),
    )


def is_old(queue: QueueView, now: float) -> bool:
    """Whether the queue's depth was read longer ago than twice the interval."""
    return queue.read_at is None or now - queue.read_at > 2 * queue.read_every


def summary(view: View) -> Summary:
    """The one sentence about everything."""
    if view.link is Link.UNREACHABLE and view.snapshot is None:
        return Summary(
            Level.NOTABLE, "○", f"no engine of {view.pairing} yet, looked for since {clock(view.link_since)}"
        )
    if view.link is Link.UNREACHABLE:
        return Summary(Level.BLIND, "✗", f"engine unreachable since {clock(view.link_since)}{_blind(view)}")
    if view.link is Link.SILENT:
        return Summary(Level.BLIND, "✗", f"no news from the engine since {clock(view.link_since)}{_blind(view)}")
    if view.snapshot is None:
        return Summary(Level.NOTABLE, "○", f"connecting to the engine of {view.pairing}")
    return _of_snapshot(view.snapshot)


def _blind(view: View) -> str:
    """Why, then how old the figures are: of a narrow screen's line the end is cut off, and its head says that, too."""
    figures = f"; figures are of {clock(view.snapshot.at)}" if view.snapshot else ""
    return f": {view.link_reason or 'it is connected and says nothing'}{figures}"


def _of_snapshot(snapshot: Snapshot) -> Summary:
    worst = max((entity.state for entity in snapshot.entities), key=lambda state: LOOKS[state].weight, default=None)
    parts = [*_alarms(snapshot), *_states(snapshot), _parked_text(snapshot), _syphon_text(snapshot)]
    level = _level(snapshot, worst)
    if worst is None:
        glyph = "!" if snapshot.alarms else "○"
    else:
        glyph = "!" if snapshot.alarms and worst in (State.HEALTHY, State.UNKNOWN) else LOOKS[worst].glyph
    return Summary(level, glyph, " · ".join(part for part in parts if part))


def _level(snapshot: Snapshot, worst: State | None) -> Level:
    stuck = snapshot.syphon.status is SyphonStatus.STUCK
    if snapshot.alarms or stuck or worst is State.FAILED_OVER:
        return Level.WRONG
    quiet = worst in (State.HEALTHY, State.UNKNOWN) and snapshot.syphon.status is not SyphonStatus.PAUSED
    return Level.WELL if quiet and all(queue.in_rotation for queue in snapshot.queues) else Level.NOTABLE


def _alarms(snapshot: Snapshot) -> list[str]:
    if not snapshot.alarms:
        return []
    more = len(snapshot.alarms) - 1
    return [snapshot.alarms[0] + (f" (and {plural(more, 'more alarm')})" if more else "")]


def _states(snapshot: Snapshot) -> list[str]:
    """The states other than healthy, worst first; or that all is healthy."""
    total = len(snapshot.entities)
    if not total:
        return ["no entity known yet"]
    numbers = Counter(entity.state for entity in snapshot.entities)
    unhealthy = sorted((state for state in numbers if state is not State.HEALTHY), key=lambda s: -LOOKS[s].weight)
    if not unhealthy:
        return [f"all {total} entities healthy" if total > 1 else f"{snapshot.entities[0].path} healthy"]
    return [_who(snapshot, state, numbers[state], total) for state in unhealthy]


def _who(snapshot: Snapshot, state: State, number: int, total: int) -> str:
    if number == total > 1:
        return f"all {total} entities {state}"
    if number <= NAMED and state is not State.UNKNOWN:
        names = " and ".join(entity.path for entity in snapshot.entities if entity.state is state)
        return f"{names} {state}"
    return f"{number} of {total} entities {state}"


def _parked_text(snapshot: Snapshot) -> str:
    sums = parked(snapshot)
    if not sums.known:
        return "parked messages not known" if sums.queues else "no backlog queue"
    number = f"{count(sums.messages)} parked" if sums.messages else "nothing parked"
    if sums.known < sums.queues:
        number += f" in {sums.known} of {sums.queues} queues"
    return f"{number} at {clock(sums.read_at)}" if sums.old and sums.read_at is not None else number


def _syphon_text(snapshot: Snapshot) -> str:
    status = snapshot.syphon.status
    if status is SyphonStatus.OFF:
        return "no syphon here"
    if status is SyphonStatus.RUNNING:
        eta = empty_at(snapshot)
        return f"syphon running, empty about {clock(eta)}" if eta else "syphon running"
    return f"syphon {status}"


def empty_at(snapshot: Snapshot) -> float | None:
    """When the backlog is empty if the syphon goes on as in the last seconds; None where that would be a guess: while
    an entity still diverts, or a depth is old or not known."""
    sums = parked(snapshot)
    recent = snapshot.syphon.history[-10:]
    per_second = sum(recent) / len(recent) if recent else snapshot.syphon.per_second
    diverting = any(entity.state in DIVERTING for entity in snapshot.entities)
    if diverting or sums.old or sums.known < sums.queues or sums.read_at is None or not sums.messages:
        return None
    if per_second < 0.1:
        return None
    eta = sums.read_at + sums.messages / per_second
    return eta if eta > snapshot.at else None
