"""The events that notify the operator: an entity leaves or rejoins the primary, an alarm begins or ends.

One rule for the terminal's bell and for the engine's command (paired_servicebus.engine.service.hook). Pure.

Not here: the alarms (failover_readiness.py, paired_servicebus.pairing.monitoring.snapshot_views).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from paired_servicebus.core.model.entity_state import DIVERTING
from paired_servicebus.core.model.pairing_events import Event, StateChanged, Warned

ALARM: Final = "alarm"
"""The topic of a warning that an alarm began or ended."""
CALLING: Final = frozenset({ALARM, "readiness", "journal"})
"""Topics of warnings that count as alarms."""
_FIGURES: Final = re.compile(r"\d[\d,.:%]*")
_AND_MORE: Final = re.compile(r"[:,] ")


def calls(event: Event) -> bool:
    """Return whether the event notifies the operator."""
    match event:
        case StateChanged(was=was, now=now):
            return turned(was, now)
        case Warned(about=about):
            return about in CALLING
    return False


def turned(was: str, now: str) -> bool:
    """Return whether an entity left the primary or came back to it with this change of state."""
    return (was in DIVERTING) != (now in DIVERTING)


def begun(before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    """Return the alarms of `after` that are new; the ended ones are `begun(after, before)`.

    The text before its first colon or comma identifies an alarm, without figures.
    """
    known = Counter(map(_alarm_name, before))
    new: list[str] = []
    for alarm in after:
        name = _alarm_name(alarm)
        if known[name]:
            known[name] -= 1
        else:
            new.append(alarm)
    return tuple(new)


def _alarm_name(alarm: str) -> str:
    return _FIGURES.sub("#", _AND_MORE.split(alarm)[0])
