"""An entity is deleted only with every mark of an ended drill: name, note, and age or a record."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.approval import Approve

from paired_servicebus.core.drill.drill_plan import (
    CLOCK_MARGIN,
    DrillKnowledge,
    DrillNote,
    FoundEntity,
    drill_name,
    marker_path,
    role_path,
    sort_entities,
)
from paired_servicebus.core.drill.drill_plan import DrillRole as Role

RUN, OTHER = "0123456789ab", "ba9876543210"
UNTIL = 1_800_000_900.0
NOTE = str(DrillNote(RUN, made=UNTIL - 900, until=UNTIL))
OLD = DrillKnowledge(now=UNTIL + CLOCK_MARGIN + 1)
YOUNG = DrillKnowledge(now=UNTIL + CLOCK_MARGIN - 1)

DISABLED = FoundEntity(path=role_path(RUN, Role.DISABLED), metadata=NOTE)
TOPIC = FoundEntity(path=role_path(RUN, Role.UNTOUCHED), metadata=NOTE, is_topic=True)
MARKER = FoundEntity(path=marker_path(RUN), metadata=NOTE)
BACKLOG = FoundEntity(path=f"{drill_name(RUN)}/x-servicebus-transfer/0")


def test_an_old_drills_entities_are_left_over_and_its_marker_is_deleted_last() -> None:
    found = sort_entities([MARKER, DISABLED, BACKLOG, TOPIC], OLD)
    assert found.leftover == (DISABLED, BACKLOG, TOPIC, MARKER)
    assert found.young == found.running == found.foreign == ()


def test_a_young_drills_entities_stay_and_the_sentence_says_until_when(approve: Approve) -> None:
    found = sort_entities([MARKER, BACKLOG], YOUNG)
    assert found.leftover == ()
    assert len(found.young) == 1
    assert "2027-01-15 08:15:00 UTC" in found.young[0]
    approve.part(found.young[0], "drill", has=("paired drill", "--clean", "--yes"))


@pytest.mark.parametrize("known", [replace(YOUNG, named=RUN), replace(YOUNG, ended=[RUN])])
def test_a_young_one_is_deleted_once_it_is_known_to_have_ended(known: DrillKnowledge) -> None:
    assert sort_entities([BACKLOG, MARKER], known).leftover == (BACKLOG, MARKER)


@pytest.mark.parametrize("known", [YOUNG, OLD, replace(OLD, named=RUN)])
def test_a_drill_that_runs_here_stays_whatever_its_age_and_whoever_names_it(known: DrillKnowledge) -> None:
    found = sort_entities([BACKLOG, MARKER, DISABLED], replace(known, running=[RUN]))
    assert (found.leftover, found.running) == ((), (RUN,))


@pytest.mark.parametrize(
    "entity",
    [
        FoundEntity(path="x-paired-drill-orders", metadata=NOTE),
        FoundEntity(path=drill_name(RUN), metadata=NOTE),
        replace(DISABLED, metadata=""),
        replace(DISABLED, metadata="orders of the web shop"),
        replace(DISABLED, path=role_path(OTHER, Role.DISABLED)),
        replace(TOPIC, metadata=NOTE + "!"),
        replace(MARKER, metadata=""),
    ],
)
def test_a_name_or_a_note_alone_is_not_enough(entity: FoundEntity) -> None:
    found = sort_entities([entity], replace(OLD, named=RUN, ended=[RUN, OTHER]))
    assert found.leftover == ()
    assert found.foreign == (f"{entity.path} was not made by a drill, or its note is gone: it stays",)


@pytest.mark.parametrize(
    "others",
    [
        [],
        [replace(MARKER, metadata="")],
        [replace(MARKER, is_topic=True)],
        [FoundEntity(path=marker_path(OTHER), metadata=NOTE.replace(RUN, OTHER))],
        [DISABLED],
    ],
)
def test_a_backlog_queue_without_its_marker_queue_stays(others: list[FoundEntity]) -> None:
    assert BACKLOG not in sort_entities([BACKLOG, *others], OLD).leftover


@pytest.mark.parametrize(
    "other",
    [replace(BACKLOG, metadata="mine"), replace(BACKLOG, differences=("Status",)), replace(BACKLOG, is_topic=True)],
)
def test_a_backlog_queue_that_was_changed_stays(other: FoundEntity) -> None:
    assert sort_entities([other, MARKER], OLD).leftover == (MARKER,)
