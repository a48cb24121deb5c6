"""Whether a backlog without a known syphon stands still: read by read, until its alarm is due (SPEC.md section 4.6).

An engine knows no syphon of another host or user. It infers one from the depth: if that falls, messages are moved.
"""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.model.entity_state import DIVERTING, Entity, State

STALLED_AFTER: Final = 900.0
"""Seconds that the depth has to stay without a fall while destinations are healthy."""


class StallDetector:
    """Follows the number of parked messages that no known syphon moves."""

    def __init__(self) -> None:
        self._since: float | None = None
        """The reading since which it has not fallen."""
        self._read_at = 0.0
        self._messages = 0

    def read(self, messages: int, *, at: float, healthy: bool) -> None:
        """Compare a reading with the one before.

        Args:
            at: when the depth was read; the same reading may be given again.
            healthy: whether destinations take messages now.
        """
        if not messages or not healthy:
            self._since = None
        elif self._since is None or messages < self._messages:
            self._since = at
        self._read_at, self._messages = at, messages

    @property
    def alarm(self) -> str:
        """What to do about a backlog that nothing moves; empty while something may."""
        if self._since is None or self._read_at - self._since < STALLED_AFTER:
            return ""
        return (
            f"the backlog has not fallen for {STALLED_AFTER / 60:g} min although destinations were healthy "
            f"when last sent to ({self._messages} parked): no syphon is known here; start an engine with one"
        )


def are_healthy(entities: tuple[Entity, ...]) -> bool:
    """Whether at least one destination was healthy when last heard of, and none is known to be in trouble."""
    away = any(entity.state in DIVERTING or entity.state is State.SUSPECT for entity in entities)
    return not away and any(entity.state is State.HEALTHY or entity.quiet_since is not None for entity in entities)
