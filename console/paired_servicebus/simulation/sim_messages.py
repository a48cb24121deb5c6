"""The World's messages. A message is a value; every change on its way makes a copy.

The envelope is core's. `park` and `unpark` move its four properties between fields and application properties.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from paired_servicebus.core.model.envelope import RESERVED, EnvelopeProperties, wrap
from paired_servicebus.core.model.verdict import FailureKind

BEGAN: Final = 1_700_000_000.0
"""Start of every run, seconds since the epoch."""


@dataclass(slots=True)
class SimMessage:
    """One message. `body` is the World's own number for the balance, since message ids are under test."""

    body: str
    message_id: str
    path: str
    """The entity it was sent to."""
    stream: str
    """The unit of order: the entity, or one of its sessions."""
    number: int
    session_id: str | None = None
    time_to_live: timedelta | None = None
    scheduled: datetime | None = None
    poison: bool = False
    """Whether every entity rejects it: as a bad argument, or as too large."""
    properties: dict[object, object] = field(default_factory=dict)
    parked_at: tuple[int, int, float] | None = None
    """The backlog queue that it came from, with its number there, and the time of its arrival there."""

    @property
    def refusal(self) -> FailureKind:
        """Return why every entity rejects it. The link is lost with a message that is too large."""
        return FailureKind.TOO_LARGE if self.number % 2 else FailureKind.ARGUMENT


def park(message: SimMessage, path: str) -> SimMessage:
    properties = dict(message.properties)
    properties.update(
        wrap(
            EnvelopeProperties(
                path=path,
                session_id=message.session_id,
                time_to_live=message.time_to_live,
                scheduled=message.scheduled,
            )
        )
    )
    return _copy(message, EnvelopeProperties(path=path), properties, message.parked_at)


def unpark(message: SimMessage, content: EnvelopeProperties, parked_at: tuple[int, int, float]) -> SimMessage:
    kept = {name: value for name, value in message.properties.items() if name not in RESERVED}
    return _copy(message, content, kept, parked_at)


def _copy(
    message: SimMessage,
    content: EnvelopeProperties,
    properties: dict[object, object],
    parked_at: tuple[int, int, float] | None,
) -> SimMessage:
    """Copy field by field: dataclasses.replace is several times slower, and every message is copied."""
    return SimMessage(
        message.body,
        message.message_id,
        message.path,
        message.stream,
        message.number,
        content.session_id,
        content.time_to_live,
        content.scheduled,
        message.poison,
        properties,
        parked_at,
    )
