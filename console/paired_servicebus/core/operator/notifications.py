"""What calls a person: an entity leaves the primary or comes back to it, an alarm begins or is over.

One rule for the terminal's bell and for the command that an engine runs (paired_servicebus.engine.service.hook). Pure.

Not here: which alarms there are (backlog_alarms.py, readiness.py, paired_servicebus.pairing.monitoring.snapshot_views).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from paired_servicebus.core.model.entity_state import DIVERTING
from paired_servicebus.core.model.pairing_events import Event, StateChanged, Warned

ALARM: Final = "alarm"
"""What a warning is about that says that an alarm began or is over."""
CALLING: Final = frozenset({ALARM, "readiness", "journal"})
"""Warnings about these are alarms as well."""
_FIGURES: Final = re.compile(r"\d[\d,.:%]*")
_AND_MORE: Final = re.compile(r"[:,] ")


def calls(event: Event) -> bool:
    """Whether a person should hear of it."""
    match event:
        case StateChanged(was=was, now=now):
            return turned(was, now)
        case Warned(about=about):
            return about in CALLING
    return False


def turned(was: str, now: str) -> bool:
    """Whether an entity that went from one state to the other left the primary, or came back to it."""
    return (was in DIVERTING) != (now in DIVERTING)


def begun(before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    """The alarms of `after` that were not among those before; those that are over are `begun(after, before)`. What an
    alarm is comes before its first colon or comma: other figures, or another cause, make no other alarm."""
    known = Counter(map(_named, before))
    new: list[str] = []
    for alarm in after:
        name = _named(alarm)
        if known[name]:
            known[name] -= 1
        else:
            new.append(alarm)
    return tuple(new)


def _named(alarm: str) -> str:
    return _FIGURES.sub("#", _AND_MORE.split(alarm)[0])
