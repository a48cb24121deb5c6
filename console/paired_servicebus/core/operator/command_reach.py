"""The senders reached by an order to one engine, and the limits of that engine's knowledge (SPEC.md section 12).

An engine controls the senders of its own process only. Screens, previews, answers and why-lines share these sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import EntityView

ELSEWHERE: Final = "applications elsewhere are unaffected"
STILL_MOVED: Final = "engines elsewhere may still move messages"
PAUSED_HERE: Final = f"paused here: {STILL_MOVED}"
USERS_UNKNOWN: Final = (
    "whether engines or applications of other hosts or users still use it: no engine can know; one that does loses "
    "the queue"
)
NONE_DIVERTED: Final = "no sender is diverted"
NONE_PINNED: Final = "no sender is pinned"
NONE_RETURNS: Final = "no sender returns to the primary"
_BY_STATE: Final = {
    State.FORCED: NONE_DIVERTED,
    State.FAILED_OVER: NONE_DIVERTED,
    State.PINNED: NONE_PINNED,
}


def not_reached(not_done: str, entities: Sequence[EntityView]) -> str:
    """Return a note that an order reaches no sender of some entities; empty if it reaches each.

    Args:
        not_done: what it does not do there; empty: it does not depend on senders.
    """
    silent = [one for one in entities if not one.carried]
    if not silent or not not_done:
        return ""
    some = "them" if len(silent) == len(entities) else f"{len(silent)} of them"
    whom = silent[0].path if len(entities) == 1 else some
    return f"this engine sends nothing to {whom}: {not_done}; {ELSEWHERE}"


def unseen(state: State) -> str:
    """Return a note on the limits of an engine without sends to an entity; empty if there are none."""
    if state is State.UNKNOWN:
        return ""
    effect = _BY_STATE.get(state)
    return f"this engine sends nothing to it: {f'{effect}; ' if effect else ''}senders elsewhere are unknown"


def held_back(paths: Sequence[str]) -> str:
    """Return a note on parked messages whose entity is forced in this engine; empty if there are none."""
    if not paths:
        return ""
    return f"leaves what is parked for {', '.join(paths)}: forced here; release it to have that moved"
