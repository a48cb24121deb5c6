"""The detection of a stalled backlog without a known syphon, and its alarm (SPEC.md section 4.6).

An engine does not know the syphons of other hosts or users. It infers one from a falling depth.
"""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.model.entity_state import DIVERTING, Entity, State

STALLED_AFTER: Final = 900.0
"""Seconds without a fall, while destinations are healthy, that make a stall."""


class StallDetector:
    """A detector for parked messages that no syphon moves."""

    def __init__(self) -> None:
        self._since: float | None = None
        """Time of the reading since which the depth has not fallen."""
        self._read_at = 0.0
        self._messages = 0

    def read(self, messages: int, *, at: float, healthy: bool) -> None:
        """Compare a reading with the previous one.

        Args:
            at: when the depth was read; a reading may be repeated.
            healthy: whether destinations accept messages now.
        """
        if not messages or not healthy:
            self._since = None
        elif self._since is None or messages < self._messages:
            self._since = at
        self._read_at, self._messages = at, messages

    @property
    def alarm(self) -> str:
        """Return the alarm for a stalled backlog; empty: a syphon may be at work."""
        if self._since is None or self._read_at - self._since < STALLED_AFTER:
            return ""
        return (
            f"the backlog has not fallen for {STALLED_AFTER / 60:g} min although destinations were healthy "
            f"when last sent to ({self._messages} parked): no syphon is known; start an engine with one"
        )


def are_healthy(entities: tuple[Entity, ...]) -> bool:
    """Return whether some destination was healthy at its last answer, and none is known to fail."""
    away = any(entity.state in DIVERTING or entity.state is State.SUSPECT for entity in entities)
    return not away and any(entity.state is State.HEALTHY or entity.quiet_since is not None for entity in entities)
