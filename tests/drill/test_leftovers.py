"""`--clean` deletes what an ended drill left, at once if this machine knows its end, and nothing else."""

from __future__ import annotations

import asyncio
import time

import pytest

from paired_servicebus.core.drill.drill_plan import (
    CLOCK_MARGIN,
    DrillNote,
    DrillPlan,
    DrillRole,
    drill_name,
    marker_path,
    role_path,
)
from paired_servicebus.core.errors import DrillError
from paired_servicebus.core.model.namespace_info import ServiceTier
from paired_servicebus.drill.drill_command import RECORDS, open_namespaces
from paired_servicebus.drill.drill_run import DrillEntities
from paired_servicebus.pairing.management.management_port import BACKLOG_QUEUE
from paired_servicebus.temporary_entities.managed_namespace import Side
from paired_servicebus.temporary_entities.run_record import RunRecord
from servicebus_sandbox.broker.broker_errors import QuotaExceeded
from servicebus_sandbox.broker.entity_settings import QueueSettings, TopicSettings
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace

from .conftest import WORKER_KEY, Lab

RUN = "0123456789ab"
NAME = drill_name(RUN)
NOTE = DrillNote(RUN, made=time.time(), until=time.time() + 900)


async def abandon(lab: Lab, *, recorded: bool, note: DrillNote = NOTE) -> RunRecord | None:
    """A drill's entities, with two backlog queues, and its record if it ran on this machine."""
    record = RunRecord.begin(RECORDS, lab.places.state) if recorded else None
    if record is not None:
        note = DrillNote(record.run, note.made, note.until)
        record.note("secondary", lab.config().secondary.host, marker_path(record.run))
    plan = DrillPlan.of(lab.config().policy, ServiceTier.STANDARD, as_configured=True)
    async with open_namespaces(lab.config()) as namespaces:
        await DrillEntities(namespaces, plan, note).make()
        for index in range(2):
            path = f"{drill_name(note.run)}/x-servicebus-transfer/{index}"
            await namespaces[Side.SECONDARY].admin.create_queue(path, BACKLOG_QUEUE)
    return record


async def test_a_killed_drill_of_this_machine_is_cleaned_whatever_its_age(lab: Lab) -> None:
    record = await abandon(lab, recorded=True)
    assert record is not None
    assert len(lab.entities()) == 6
    record.end()  # as the system does for a dead process
    found = await lab.clean()
    assert (found.deleted, found.remains, found.notes) == (6, (), ())
    assert (lab.entities(), lab.records) == ([], [])
    assert (await lab.clean()).deleted == 0


async def test_a_running_drill_of_this_machine_stays_even_if_it_is_named(lab: Lab) -> None:
    record = await abandon(lab, recorded=True, note=DrillNote(RUN, 0.0, 1.0))
    assert record is not None
    before = lab.entities()
    for named in ("", record.run):
        found = await lab.clean(named=named)
        assert (found.deleted, found.remains) == (0, ())
        assert found.notes == (f"{drill_name(record.run)} runs on this machine: it stays",)
        assert lab.entities() == before
    record.end()


async def test_a_young_drill_of_another_machine_stays_until_it_is_named(lab: Lab) -> None:
    await abandon(lab, recorded=False)
    found = await lab.clean()
    assert found.deleted == 0
    (said,) = found.remains
    assert f"{NAME} may still run, on another machine" in said
    assert (await lab.clean(named=RUN)).deleted == 6
    assert lab.entities() == []


@pytest.mark.parametrize(("seconds", "deleted"), [(-60.0, 0), (60.0, 6)])
async def test_a_drill_without_a_record_is_left_over_once_its_time_is_over(
    lab: Lab, seconds: float, deleted: int
) -> None:
    until = time.time() - CLOCK_MARGIN - seconds
    await abandon(lab, recorded=False, note=DrillNote(RUN, until - 900, until))
    found = await lab.clean()
    assert (found.deleted, bool(found.remains)) == (deleted, not deleted)


async def test_real_entities_stay_whatever_they_are_called(lab: Lab) -> None:
    note = str(DrillNote(RUN, 0.0, 1.0))
    primary, secondary = lab.space("primary"), lab.space("secondary")
    for path in ("orders", "x-paired-drill-", "x-paired-drill-orders", NAME, role_path(RUN, DrillRole.DELETED)):
        primary.create_queue(path)
    primary.create_queue("x-paired-drill-orders/disabled", QueueSettings(user_metadata=note))
    primary.create_queue(f"{NAME}/orders", QueueSettings(user_metadata=note))
    primary.create_topic(role_path(RUN, DrillRole.UNTOUCHED), TopicSettings(user_metadata="ours"))
    secondary.create_queue(f"{NAME}/x-servicebus-transfer/0")
    secondary.create_queue(marker_path(RUN))
    secondary.create_queue(marker_path("ba9876543210"), QueueSettings(user_metadata=note))
    before = lab.entities()
    record = await abandon(lab, recorded=True)
    assert record is not None
    record.end()
    found = await lab.clean(named=RUN)
    assert (found.deleted, found.remains) == (6, ())
    assert lab.entities() == before
    assert len(found.notes) == len([path for path in before if path.startswith("x-paired-drill-")])


async def test_a_record_of_other_namespaces_stays(lab: Lab) -> None:
    record = RunRecord.begin(RECORDS, lab.places.state)
    record.note("secondary", "other.servicebus.windows.net", marker_path(record.run))
    record.end()
    found = await lab.clean()
    assert found.remains == (f"{drill_name(record.run)} left entities in another namespace than pairing.toml has now",)
    assert len(lab.records) == 1


async def test_without_manage_nothing_is_cleaned_and_the_record_stays(lab: Lab) -> None:
    record = await abandon(lab, recorded=True)
    assert record is not None
    record.end()
    with pytest.raises(DrillError, match="lacks Manage"):
        await lab.clean(rule=("worker", WORKER_KEY))
    assert (len(lab.entities()), len(lab.records)) == (6, 1)


@pytest.mark.slow
async def test_a_drill_beside_a_cleaning_and_another_drill_is_not_disturbed(lab: Lab) -> None:
    first, second = asyncio.create_task(lab.drill()), asyncio.create_task(lab.drill())
    cleanings = 0
    while not (first.done() and second.done()):
        found = await lab.clean()
        assert (found.deleted, found.remains) == (0, ())
        cleanings += 1
        await asyncio.sleep(0.5)
    for one in (first, second):
        measures = await one
        assert (measures.ledger.verdict, measures.drain is not None) == ("balanced", True)
        assert [part.failovers for part in measures.parts] == [1, 1, 0]
    assert cleanings > 5
    assert lab.entities() == []


async def test_entities_that_cannot_be_deleted_are_named_and_the_marker_stays_with_them(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backlog queue without its marker queue would never be recognized again."""
    monkeypatch.setattr("paired_servicebus.drill.drill_run.RETRY_PAUSE", 0.0)
    delete = BrokerNamespace.delete

    def refuse(space: BrokerNamespace, path: str) -> None:
        if path == f"{NAME}/x-servicebus-transfer/1":
            raise QuotaExceeded(path, 1)  # any lasting refusal
        delete(space, path)

    await abandon(lab, recorded=False)
    plan = DrillPlan.of(lab.config().policy, ServiceTier.STANDARD, as_configured=True)
    async with open_namespaces(lab.config()) as namespaces:
        entities = DrillEntities(namespaces, plan, NOTE)
        with monkeypatch.context() as patch:
            patch.setattr(BrokerNamespace, "delete", refuse)
            assert await entities.remove() == [f"{NAME}/x-servicebus-transfer/1"]
            assert sorted(lab.entities()) == [marker_path(RUN), f"{NAME}/x-servicebus-transfer/1"]
            found = await lab.clean(named=RUN)
            assert (found.deleted, len(found.remains)) == (0, 2)
        assert await entities.remove() == []
    assert lab.entities() == []
