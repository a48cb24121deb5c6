"""Whom an order to one engine reaches, whom not, and what that engine cannot know (SPEC.md section 12).

An engine steers the senders of its own process. Screens, previews, answers and why-lines take their sentences here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import EntityView

ELSEWHERE: Final = "applications elsewhere decide for themselves"
STILL_MOVED: Final = "engines elsewhere may still move messages"
PAUSED_HERE: Final = f"paused here: {STILL_MOVED}"
USERS_UNKNOWN: Final = (
    "whether engines or applications of other hosts or users still use it: no engine can know; one that does loses "
    "the queue"
)
_NOT_DONE: Final = {
    "force": "no sender is diverted",
    "pin": "no sender is pinned",
    "release": "no sender is led back",
}
_BY_STATE: Final = {
    State.FORCED: _NOT_DONE["force"],
    State.FAILED_OVER: _NOT_DONE["force"],
    State.PINNED: _NOT_DONE["pin"],
}


def carries(entity: EntityView) -> bool:
    """Whether the engine's own process sends to the entity. An older engine does not say; there its counts do."""
    if entity.carried is not None:
        return entity.carried
    return bool(entity.accepted or entity.diverted or entity.failed or entity.refused)


def not_reached(verb: str, entities: Sequence[EntityView]) -> str:
    """Say of an order for entities that it reaches no sender of some of them; empty where it reaches one of each."""
    silent = [one for one in entities if not carries(one)]
    if not silent or verb not in _NOT_DONE:
        return ""
    some = "them" if len(silent) == len(entities) else f"{len(silent)} of them"
    whom = silent[0].path if len(entities) == 1 else some
    return f"this engine sends nothing to {whom}: {_NOT_DONE[verb]}; {ELSEWHERE}"


def unseen(state: State) -> str:
    """Say what an engine that sends nothing to an entity does not know, or does not do; empty where that is clear."""
    if state is State.UNKNOWN:
        return ""
    said = _BY_STATE.get(state)
    return f"this engine sends nothing to it: {f'{said}; ' if said else ''}senders elsewhere are unknown"


def held_back(paths: Sequence[str]) -> str:
    """Say which parked messages a syphon leaves because their entity is forced in its own engine; empty if none."""
    if not paths:
        return ""
    return f"leaves what is parked for {', '.join(paths)}: forced here; release it to have that moved"
