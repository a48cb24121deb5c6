"""What the machine asks of the world. Not here: when it does (engine.py)."""

from __future__ import annotations

from dataclasses import dataclass

from paired_servicebus.core.model.pairing_events import Event


@dataclass(frozen=True, slots=True)
class SendPing:
    """Send ping `number` to the primary's entity; tell the machine PingAccepted or PingFailed."""

    entity: str
    number: int


@dataclass(frozen=True, slots=True)
class ProbeQueue:
    """Try a pulled backlog queue; tell the machine QueueProbed."""

    queue: int


@dataclass(frozen=True, slots=True)
class ProbeEntity:
    """Send a ping to an entity of the primary that nothing is sent to; tell the machine EntityProbed."""

    entity: str


@dataclass(frozen=True, slots=True)
class Announce:
    """Write the event down and show it; wake whoever waits for a change."""

    event: Event


Effect = SendPing | ProbeQueue | ProbeEntity | Announce
