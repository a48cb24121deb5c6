"""The state machine's requests to its runtime (pairing_machine.py decides when)."""

from __future__ import annotations

from dataclasses import dataclass

from paired_servicebus.core.model.pairing_events import Event


@dataclass(frozen=True, slots=True)
class SendPing:
    """Send ping `number` to the primary's entity; answer with PingAccepted or PingFailed."""

    entity: str
    number: int


@dataclass(frozen=True, slots=True)
class ProbeQueue:
    """Try a pulled backlog queue; answer with QueueProbed."""

    queue: int


@dataclass(frozen=True, slots=True)
class ProbeEntity:
    """Send a ping to an entity of the primary without sends; answer with EntityProbed."""

    entity: str


@dataclass(frozen=True, slots=True)
class Announce:
    """Journal and show the event; wake the tasks that wait for a change."""

    event: Event


Effect = SendPing | ProbeQueue | ProbeEntity | Announce
