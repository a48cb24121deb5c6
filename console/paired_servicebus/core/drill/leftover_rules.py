"""Which entities of a namespace a drill has left, and which stay: by name, by note, and by age.

An entity that lacks one of a drill's marks is never deleted, whatever its name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.drill.drill_names import DrillNote, drill_name, is_backlog, marker_path, run_of
from paired_servicebus.core.text.time_format import day_and_clock

CLOCK_MARGIN: Final = 600.0
"""Seconds by which the clocks of two machines may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEntity:
    """An entity whose path begins as a drill's does.

    differences: of a queue from the settings of a new backlog queue, a text each.
    """

    path: str
    is_topic: bool = False
    metadata: str = ""
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillKnowledge:
    """The knowledge about drills outside of the namespaces.

    now: seconds since the epoch. running, ended: the ids of drills with a record on this machine. named: the id of the
    drill that the operator declares as ended.
    """

    now: float
    running: Collection[str] = ()
    ended: Collection[str] = ()
    named: str = ""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """leftover: to delete, a drill's marker queue last. young: a sentence each for entities that may be in use.

    running: the ids of drills that run on this machine. foreign: a sentence each for entities of other origin.
    """

    leftover: tuple[FoundEntity, ...]
    young: tuple[str, ...]
    running: tuple[str, ...]
    foreign: tuple[str, ...]


def sort_entities(found: Sequence[FoundEntity], known: DrillKnowledge) -> Leftovers:
    """Sort the entities of one namespace."""
    markers = {one.path: note for one in found if not one.is_topic and (note := _own_note(one)) is not None}
    leftover: list[FoundEntity] = []
    young: dict[str, str] = {}
    running: dict[str, None] = {}
    foreign: list[str] = []
    for one in found:
        note = _note_of(one, markers)
        if note is None:
            foreign.append(f"{one.path} was not made by a drill, or its note is gone: it stays")
        elif note.run in known.running:
            running[note.run] = None
        elif known.named == note.run or note.run in known.ended or known.now > note.until + CLOCK_MARGIN:
            leftover.append(one)
        else:
            young[note.run] = _young(note)
    leftover.sort(key=lambda one: one.path == marker_path(run_of(one.path)))
    return Leftovers(tuple(leftover), tuple(young.values()), tuple(running), tuple(foreign))


def _note_of(one: FoundEntity, markers: dict[str, DrillNote]) -> DrillNote | None:
    """Return the note about an entity: its own, or its marker queue's; None: it is of other origin."""
    if not is_backlog(one.path):
        return _own_note(one)
    is_as_made = not (one.is_topic or one.metadata or one.differences)
    return markers.get(marker_path(run_of(one.path))) if is_as_made else None


def _own_note(one: FoundEntity) -> DrillNote | None:
    run, note = run_of(one.path), DrillNote.read(one.metadata)
    return note if run and note is not None and note.run == run else None


def _young(note: DrillNote) -> str:
    name = drill_name(note.run)
    return (
        f"{name} may still run, on another machine or for another user: it is over by "
        f"{day_and_clock(note.until)} UTC; if it has ended, paired drill --clean --yes {name} deletes it now"
    )
