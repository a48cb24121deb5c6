"""Documents of unsigned boards, bounded: foreign text made harmless, lengths and numbers limited.

Anyone with Send can post a report, so its values must neither grow this engine's memory nor reach a terminal as
they are. The codec has checked the types.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import MAX_NOT_WELL, PRESENCE_INTERVAL, Author, Presence, Report
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetEntityState, FleetFigures
from paired_servicebus.core.model.snapshot import EntityView, Snapshot
from paired_servicebus.core.text.untrusted_text import one_line

MAX_NAME: Final = 80
MAX_PATH: Final = 260
MAX_QUEUES: Final = 100
MAX_STANDING: Final = 50
MAX_DIFFERENCES: Final = 10
MAX_ALARMS: Final = 5
MAX_ENTITIES: Final = 1000
"""Entities kept of one report."""
MAX_COUNT: Final = 10**15
MAX_REASON: Final = 160

EntityRow = tuple[str, State, float, float, float]
"""Path, state, since, sends and refused messages a second."""


def bound_author(author: Author) -> Author:
    """Return the author with harmless texts of limited length."""
    return Author(
        engine=bound_text(author.engine),
        boot=bound_text(author.boot),
        host=bound_text(author.host),
        pid=bound_count(author.pid),
        program=bound_text(author.program),
        version=bound_text(author.version),
        pairing=bound_text(author.pairing),
        environment=bound_text(author.environment),
        primary=bound_text(author.primary, MAX_PATH),
        secondary=bound_text(author.secondary, MAX_PATH),
    )


def bound_presence(presence: Presence) -> Presence:
    """Return the presence with harmless texts and limited lengths and numbers."""
    offset = presence.clock_offset
    return replace(
        presence,
        id="",
        author=bound_author(presence.author),
        started_at=bound_number(presence.started_at),
        queues=tuple(bound_count(index) for index in presence.queues[:MAX_QUEUES]),
        syphon=bound_text(presence.syphon),
        paused_queues=tuple(bound_count(index) for index in presence.paused_queues[:MAX_QUEUES]),
        states=tuple((state, bound_count(count)) for state, count in presence.states[: len(State)]),
        not_well=tuple(
            FleetEntityState(path=bound_text(one.path, MAX_PATH), state=one.state, since=bound_number(one.since))
            for one in presence.not_well[:MAX_NOT_WELL]
        ),
        signers=bound_text(presence.signers),
        standing=tuple(bound_text(one) for one in presence.standing[:MAX_STANDING]),
        newest_order=bound_count(presence.newest_order),
        clock_offset=offset if offset is not None and isfinite(offset) else None,
        differs=tuple(bound_text(one, MAX_REASON) for one in presence.differs[:MAX_DIFFERENCES]),
        next_within=min(max(bound_number(presence.next_within), 60.0), PRESENCE_INTERVAL),
    )


def bound_entities(report: Report) -> tuple[EntityRow, ...]:
    """Return the rows of a report's entities, at most MAX_ENTITIES."""
    return tuple(_row(entity) for entity in report.snapshot.entities[:MAX_ENTITIES])


def _row(entity: EntityView) -> EntityRow:
    path = bound_text(entity.path, MAX_PATH)
    rates = bound_number(entity.sends_per_second), bound_number(entity.refused_per_second)
    return path, entity.state, bound_number(entity.since), *rates


def sum_figures(snapshot: Snapshot, at: float) -> FleetFigures:
    """Return the sums over a snapshot's entities. at: the time of its report."""
    entities, parked = snapshot.entities[:MAX_ENTITIES], snapshot.parked
    return FleetFigures(
        at=at,
        sends_per_second=sum(bound_number(entity.sends_per_second) for entity in entities),
        accepted=sum(bound_count(entity.accepted) for entity in entities),
        diverted=sum(bound_count(entity.diverted) for entity in entities),
        refused=sum(bound_count(entity.refused) for entity in entities),
        refused_per_second=sum(bound_number(entity.refused_per_second) for entity in entities),
        moved=bound_count(snapshot.syphon.moved),
        parked=None if parked is None else bound_count(parked.messages),
        alarms=tuple(one_line(alarm[: 2 * MAX_REASON], most=MAX_REASON) for alarm in snapshot.alarms[:MAX_ALARMS]),
        gateway_clients=None if snapshot.gateway is None else bound_count(snapshot.gateway.count),
    )


def bound_text(text: str, most: int = MAX_NAME) -> str:
    """Return one harmless line of at most `most` characters."""
    return one_line(text[: 2 * most], most=most)


def bound_number(value: float) -> float:
    """Return a finite number from 0 on."""
    return min(max(float(value), 0.0), float(MAX_COUNT)) if abs(value) < MAX_COUNT else 0.0


def bound_count(value: int) -> int:
    """Return a count from 0 on."""
    return min(max(value, 0), MAX_COUNT)
