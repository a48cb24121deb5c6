"""The look of each state: glyph, role and meaning, as one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.model.entity_state import GLYPHS, State
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.ui.render.spans import Role, Span


@dataclass(frozen=True, slots=True)
class StateLook:
    """A look. The greater `weight`, the earlier the state is named."""

    glyph: str
    role: Role
    weight: int
    meaning: str


LOOKS: Final[dict[State, StateLook]] = {
    State.HEALTHY: StateLook(GLYPHS[State.HEALTHY], Role.HEALTHY, 0, "sends go to the primary"),
    State.UNKNOWN: StateLook(GLYPHS[State.UNKNOWN], Role.UNKNOWN, 1, "no recent send by this engine: state unknown"),
    State.PINNED: StateLook(GLYPHS[State.PINNED], Role.PINNED, 2, "held on the primary by hand, even if it fails"),
    State.SUSPECT: StateLook(GLYPHS[State.SUSPECT], Role.SUSPECT, 3, "a send failed; fails over unless one succeeds"),
    State.FORCED: StateLook(GLYPHS[State.FORCED], Role.FORCED, 4, "sends go to the backlog by hand, until released"),
    State.FAILED_OVER: StateLook(
        GLYPHS[State.FAILED_OVER], Role.FAILED_OVER, 5, "sends go to the backlog until a ping is accepted"
    ),
}

SYPHON_LOOKS: Final[dict[SyphonStatus, StateLook]] = {
    SyphonStatus.RUNNING: StateLook("●", Role.HEALTHY, 0, "messages move from the backlog to their destinations"),
    SyphonStatus.IDLE: StateLook("○", Role.TEXT, 0, "nothing to move"),
    SyphonStatus.WAITING: StateLook("◐", Role.SUSPECT, 3, "parked messages wait for unavailable destinations"),
    SyphonStatus.PAUSED: StateLook("■", Role.FORCED, 4, "paused; parked messages wait"),
    SyphonStatus.STUCK: StateLook("▲", Role.FAILED_OVER, 5, "messages wait and none moves"),
    SyphonStatus.OFF: StateLook("–", Role.MUTED, 0, "this engine runs no syphon"),
}


def ping_mark(good: bool | None) -> Span:
    """Return a ping's outcome: a tick, a cross, or a dash if there is none."""
    if good is None:
        return Span("–", Role.MUTED)
    return Span("✓", Role.HEALTHY) if good else Span("✗", Role.FAILED_OVER)


QUIET: Final = (State.HEALTHY, State.UNKNOWN)
"""States that need no operator."""
