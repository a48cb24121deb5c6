"""The entities that ended drills left in both namespaces: found by name, note and age, and deleted."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paired_servicebus.core.drill.drill_names import PREFIX, drill_name, marker_path, run_of
from paired_servicebus.core.drill.leftover_rules import DrillKnowledge, Leftovers, sort_entities
from paired_servicebus.drill.drill_preflight import find_entities
from paired_servicebus.temporary_entities.managed_namespace import ManagedNamespace, Side
from paired_servicebus.temporary_entities.run_record import RecordKind, RunRecord, known_runs, past_records

RECORDS: Final = RecordKind(folder="drill", prefix=PREFIX, run_of=run_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanResult:
    """deleted: entities. remains: a sentence for each that should be deleted. notes: about others, that stay."""

    deleted: int
    remains: tuple[str, ...]
    notes: tuple[str, ...]


def known_drills(
    state: Path, *, ended: Iterable[RunRecord], named: str = "", begun: Iterable[str] = ()
) -> DrillKnowledge:
    """Return this machine's knowledge about drills; call it after the listing, because a record precedes its entities.

    Args:
        ended: locked records of ended drills.
        named: the id of a drill that the operator declares as ended.
        begun: ids with a record before the listing: such a drill may have ended since, and deleted what was listed.
    """
    over = {record.run for record in ended}
    running = known_runs(RECORDS, state).union(begun) - over
    return DrillKnowledge(now=time.time(), running=running, ended=over, named=named)


@contextmanager
def lock_records(state: Path) -> Iterator[list[RunRecord]]:
    """Yield the records of ended drills on this machine, locked."""
    with ExitStack() as stack:
        records = list(past_records(RECORDS, state))
        for record in records:
            stack.callback(record.end)
        yield records


async def clean(namespaces: Mapping[Side, ManagedNamespace], state: Path, *, named: str = "") -> CleanResult:
    """Delete what ended drills left. named: a drill that the operator declares as ended. Raises DrillError."""
    with lock_records(state) as records:
        begun = known_runs(RECORDS, state)
        listed = {side: await find_entities(namespace) for side, namespace in namespaces.items()}
        known = known_drills(state, ended=records, named=named, begun=begun)
        found = {side: sort_entities(entities, known) for side, entities in listed.items()}
        deleted, remains = 0, []
        for side, namespace in namespaces.items():
            gone, left = await _delete(namespace, found[side])
            deleted += gone
            remains += left
        remains += [text for record in records for text in _settle(namespaces, record, remains)]
    young = dict.fromkeys(text for one in found.values() for text in one.young)
    running = dict.fromkeys(run for one in found.values() for run in one.running)
    notes = [f"{drill_name(run)} runs on this machine: it stays" for run in running]
    notes += [f"{side} namespace: {text}" for side, one in found.items() for text in one.foreign]
    return CleanResult(deleted=deleted, remains=(*remains, *young), notes=tuple(notes))


async def _delete(namespace: ManagedNamespace, found: Leftovers) -> tuple[int, list[str]]:
    """Delete in the given order; keep the marker queue of a drill whose backlog queues remain."""
    deleted, remains = 0, []
    stuck: set[str] = set()
    for one in found.leftover:
        run = run_of(one.path)
        is_needed = one.path == marker_path(run) and run in stuck
        if not is_needed and await namespace.delete(one.path, is_topic=one.is_topic):
            deleted += 1
        else:
            stuck.add(run)
            remains.append(f"{one.path} in the {namespace.side} namespace cannot be deleted")
    return deleted, remains


def _settle(namespaces: Mapping[Side, ManagedNamespace], record: RunRecord, remains: list[str]) -> list[str]:
    """Remove the deleted entities from a record; return a sentence if the rest is in other namespaces."""
    if any(drill_name(record.run) in text for text in remains):
        return []
    elsewhere = 0
    for entity in record.entities:
        if entity.side in {*Side} and namespaces[Side(entity.side)].host == entity.host:
            record.forget(entity.path)
        else:
            elsewhere += 1
    name = drill_name(record.run)
    return [f"{name} left entities in another namespace than pairing.toml has now"] if elsewhere else []
