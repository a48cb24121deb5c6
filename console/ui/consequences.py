"""What a dangerous action would do, said before it is fired: one table of facts for each, made from the newest view.

Rules: every fact is recomputed from each snapshot while the question is open; what is not known says so, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from console.core.entity import State
from console.core.snapshot import EntityView, Snapshot, SyphonStatus
from console.core.why import clock
from console.ui.figures import plural, rate
from console.ui.states import LOOKS
from console.ui.summary import parked
from console.ui.view import View


class Fact(NamedTuple):
    """A label and a sentence."""

    label: str
    text: str


NOT_KNOWN: Final = "not known"


def facts(action_id: str, view: View, target: str) -> tuple[Fact, ...]:
    """What firing `action_id` at `target` would mean now.

    Raises:
        KeyError: the action is none that is armed.
    """
    table = _FACTS[action_id]
    entity = view.entity_at(target)
    if view.snapshot is None or entity is None:
        return tuple(Fact(label, NOT_KNOWN) for label, _ in table)
    return tuple(Fact(label, say(view.snapshot, entity)) for label, say in table)


def _force_from_now(snapshot: Snapshot, entity: EntityView) -> str:
    sends = f"sends for {entity.path}, now {rate(entity.sends_per_second)}/s"
    usable = [queue for queue in snapshot.queues if queue.in_rotation]
    if not usable:
        return f"{sends}, go to a backlog that takes nothing now: no queue of {snapshot.secondary} is in rotation"
    return f"{sends}, go to the backlog on {snapshot.secondary}; nothing is sent to {snapshot.primary}"


def _release_from_now(snapshot: Snapshot, entity: EntityView) -> str:
    sends = f"sends for {entity.path}, now {rate(entity.sends_per_second)}/s"
    if entity.state is State.PINNED:
        return f"{sends}, fail over by themselves again; at once, if {snapshot.primary} refused the last one"
    if entity.state is State.FORCED and not entity.last_ping_good:
        return f"{entity.path} stays failed over, since no ping was accepted; it fails back by itself after one is"
    if entity.last_ping_good:
        return f"{sends}, go to {snapshot.primary} at once; it accepted the last ping"
    return f"{sends}, go to {snapshot.primary} at once, although it has not accepted a ping"


def _reaches(snapshot: Snapshot, _entity: EntityView) -> str:
    return (
        f"one engine: {snapshot.engine} (process {snapshot.pid}) of the pairing {snapshot.pairing}; "
        "senders elsewhere are not affected"
    )


def _now(_snapshot: Snapshot, entity: EntityView) -> str:
    return f"{LOOKS[entity.state].glyph} {entity.state} since {clock(entity.since)}: {entity.why}"


def _evidence(snapshot: Snapshot, entity: EntityView) -> str:
    sends = f"{entity.accepted:,} accepted, {entity.diverted:,} parked, {plural(entity.failed, 'failed attempt')}"
    if entity.last_ping_good is None or entity.last_ping_at is None:
        return f"last ping: {NOT_KNOWN}, none was answered; sends: {sends}"
    outcome = "accepted" if entity.last_ping_good else f"not accepted ({entity.last_ping_text})"
    return f"last ping {clock(entity.last_ping_at)} {outcome}; sends: {sends}"


def _room(snapshot: Snapshot, _entity: EntityView) -> str:
    usable = sum(queue.in_rotation for queue in snapshot.queues)
    return f"{usable} of {plural(len(snapshot.queues), 'backlog queue')} in rotation; {_parked(snapshot)}"


def _parked(snapshot: Snapshot) -> str:
    sums = parked(snapshot)
    if not sums.known or sums.read_at is None:
        return f"parked messages: {NOT_KNOWN}"
    unread = "" if sums.known == sums.queues else f" in the {sums.known} queues that could be read"
    return f"{plural(sums.messages, 'message')} parked{unread} (read {clock(sums.read_at)})"


def _waiting(snapshot: Snapshot, _entity: EntityView) -> str:
    return f"{_parked(snapshot)}; {_syphon(snapshot)}"


def _syphon(snapshot: Snapshot) -> str:
    status = snapshot.syphon.status
    if status is SyphonStatus.OFF:
        return "this engine runs no syphon, so what is parked waits for one elsewhere"
    if status in (SyphonStatus.PAUSED, SyphonStatus.STUCK):
        return f"the syphon is {status}, so what is parked waits"
    return "the syphon moves what is parked once its destination accepts; order may change"


def _cost(_snapshot: Snapshot, _entity: EntityView) -> str:
    return "4 billed operations a message instead of 2, and a ping an interval"


def _undo_force(snapshot: Snapshot, _entity: EntityView) -> str:
    return f"key b, release; {_syphon(snapshot)}"


def _undo_release(_snapshot: Snapshot, _entity: EntityView) -> str:
    return "key f, force failover"


Say = Callable[[Snapshot, EntityView], str]

_FACTS: Final[dict[str, tuple[tuple[str, Say], ...]]] = {
    "force": (
        ("From now on", _force_from_now),
        ("Reaches", _reaches),
        ("Now", _now),
        ("Evidence", _evidence),
        ("Room", _room),
        ("Cost", _cost),
        ("Undo", _undo_force),
    ),
    "release": (
        ("From now on", _release_from_now),
        ("Reaches", _reaches),
        ("Now", _now),
        ("Evidence", _evidence),
        ("Parked", _waiting),
        ("Undo", _undo_release),
    ),
}
ARMABLE: Final = frozenset(_FACTS)
"""Ids of the actions that have their consequences written down."""
