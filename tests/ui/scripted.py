"""How an engine stands at one moment of a demo's scenario, made from the script: the same at any speed of a machine.

Rules, as the machine has them: a break that refuses sends fails its entities with its first send; after the failover
interval they are failed over. A break of the whole secondary takes every backlog queue out of the rotation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import (
    EntityView,
    Finding,
    FindingVerdict,
    ParkedView,
    Readiness,
    Snapshot,
    SyphonStatus,
)
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.demo.scenarios import BACKLOG_IN_USE, ENTITIES, PRIMARY, SECONDARY, FaultWindow, Scenario

from .conftest import AT, MadeUp

DURATION: Final = 60.0
CAUSES: Final = {
    "black-holed": "timeout",
    "refused": "connection refused",
    "reset": "connection lost",
    "disabled": "entity disabled",
    "full": "quota exceeded",
    "acknowledgement-lost": "timeout",
}
"""What the engine calls the failures that those faults cause; others fail no send."""
LATE_BY: Final = 1.0
"""Seconds after a break begins until its first failure: the send timeout."""
A_SECOND: Final = 12.0
IN_USE: Final = 2
"""The backlog queue that stands for the one in use."""


def snapshot_of(scenario: Scenario, share: float) -> Snapshot:
    """How the engine stands `share` of the duration after the play began; the moment is AT."""
    entities = tuple(_entity(scenario, path, share) for path in ENTITIES)
    queues = _queues(scenario, share)
    parked = sum(one.diverted for one in entities)
    alarm = _not_ready(scenario, share)
    finding = Finding(
        what="secondary reachable", verdict=FindingVerdict.NO, evidence=alarm, todo="check the network to the secondary"
    )
    unread = _reads_from(scenario, share)
    return MadeUp().snapshot(
        *entities,
        queues=queues,
        syphon=MadeUp().syphon(SyphonStatus.WAITING if parked else SyphonStatus.IDLE),
        parked=ParkedView(messages=parked, read_at=unread, known=len(queues), queues=len(queues)),
        policy=scenario.policy,
        environment="demo",
        caption=[one.text for one in scenario.captions if one.at <= share][-1],
        readiness=Readiness(at=AT, findings=(finding,) if alarm else ()),
    )


def _active(scenario: Scenario, share: float, namespace: str, **wanted: Any) -> list[FaultWindow]:
    return [
        one
        for one in scenario.breaks
        if one.namespace == namespace
        and one.begins <= share < one.ends
        and all(getattr(one, name) == value for name, value in wanted.items())
    ]


def _seconds(share: float, begins: float) -> float:
    return (share - begins) * DURATION


def _entity(scenario: Scenario, path: str, share: float) -> EntityView:
    made, entity = MadeUp(), MadeUp().entity(path, sends_per_second=A_SECOND, since=AT - share * DURATION)
    on_primary = [one for one in _active(scenario, share, PRIMARY) if not one.entities or path in one.entities]
    if any(one.fault == "busy" for one in on_primary):
        busy = "sends go to the primary; last failure 14:02:09 (server busy: partitioning the entity helps)"
        return replace(entity, why=busy)
    failing = [one for one in on_primary if one.fault in CAUSES and not one.operations]
    if not failing:
        return entity
    cause, lasts = CAUSES[failing[0].fault], _seconds(share, failing[0].begins) - LATE_BY
    first = AT - lasts
    left = scenario.policy.failover_interval - lasts
    errors = int(min(lasts, scenario.policy.failover_interval) * A_SECOND)
    if left > 0:
        refusing = {"refused": errors, "refused_per_second": A_SECOND, "refused_since": first}
        why = f"{cause} {first:.0f}; fails over soon unless a send succeeds"
        return replace(
            entity,
            state=State.SUSPECT,
            since=first,
            why=why,
            first_failure_at=first,
            fails_over_at=AT + left,
            **refusing,
        )
    nowhere = _secondary_gone(scenario, share)
    lost = _seconds(share, nowhere[0].begins) if nowhere else 0.0
    parked = int((lasts - scenario.policy.failover_interval - lost) * A_SECOND)
    return made.failed_over(
        path,
        since=first + scenario.policy.failover_interval,
        first_failure_at=first,
        why=f"{cause} since {clock(first)}; ping 3 failed 14:02:09 ({cause})",
        last_ping_at=AT - 1,
        last_ping_text=cause,
        next_ping_at=AT + 1,
        route="nowhere" if nowhere else f"backlog/{IN_USE}",
        sends_per_second=0.0 if nowhere else A_SECOND,
        diverted=parked,
        refused=errors + int(lost * A_SECOND),
        refused_per_second=A_SECOND if nowhere else 0.0,
        refused_since=AT - lost if nowhere else None,
    )


def _secondary_gone(scenario: Scenario, share: float) -> list[FaultWindow]:
    return _active(scenario, share, SECONDARY, fault="refused", entities=(), operations=())


def _queues(scenario: Scenario, share: float) -> tuple[Any, ...]:
    queues = list(MadeUp().queues(number=scenario.policy.backlog_queue_count, read_at=_reads_from(scenario, share)))
    gone = _secondary_gone(scenario, share)
    single = [one for one in _active(scenario, share, SECONDARY, entities=(BACKLOG_IN_USE,)) if one.fault in CAUSES]
    for index in range(len(queues)):
        broken = gone or (single if index == IN_USE else [])
        if broken:
            since = AT - _seconds(share, broken[0].begins)
            reason = CAUSES[broken[0].fault]
            queues[index] = replace(queues[index], in_rotation=False, pulled_since=since, pulled_reason=reason)
        if any(at <= share for at in scenario.poison):
            queues[index] = replace(queues[index], dead_lettered=1)
    return tuple(queues)


def _not_ready(scenario: Scenario, share: float) -> str:
    if not _secondary_gone(scenario, share):
        return ""
    return "the secondary namespace does not answer: connection refused"


def _reads_from(scenario: Scenario, share: float) -> float:
    """When depths could be read last: before management of the secondary stopped answering."""
    silent = _active(scenario, share, SECONDARY, operations=("manage",))
    return AT - _seconds(share, silent[0].begins) if silent else AT - 1
