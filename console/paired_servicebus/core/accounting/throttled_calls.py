"""Calls that wait because their namespace is busy. Pure.

Throttling never fails over (SPEC.md section 5), so nothing else shows that callers wait.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from paired_servicebus.core.text.number_format import plural

SHOWN_AFTER_SECONDS: Final = 1.0
"""Seconds of the longest wait from which the condition is an alarm."""


class ThrottledCalls:
    """The waiting calls of one pairing."""

    def __init__(self) -> None:
        self._since: dict[str, dict[Hashable, float]] = {}
        """When each waiting call met "busy" first, by entity."""

    def wait(self, entity: str, call: Hashable, *, at: float) -> None:
        """Record that a call waits for a busy route; a call that waits again keeps its first time."""
        self._since.setdefault(entity, {}).setdefault(call, at)

    def end(self, entity: str, call: Hashable) -> None:
        """Forget a call that has ended."""
        waiting = self._since.get(entity)
        if waiting is not None:
            waiting.pop(call, None)
            if not waiting:
                del self._since[entity]

    def alarm(self, at: float) -> str:
        """Return which entities' calls wait and for how long; empty if none waits noticeably."""
        shown = [
            f"{entity}: {plural(len(waiting), 'call')} for up to {at - min(waiting.values()):.0f} s"
            for entity, waiting in sorted(self._since.items())
            if at - min(waiting.values()) >= SHOWN_AFTER_SECONDS
        ]
        if not shown:
            return ""
        return (
            f"calls wait because the namespace is busy ({'; '.join(shown)}); throttling fails nothing over: send less, "
            "raise the tier, or partition the entity"
        )
