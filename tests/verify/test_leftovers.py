"""What a killed run leaves is recorded before it exists, and `--clean` deletes it, and nothing else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.temporary_entities.managed_namespace import Side
from paired_servicebus.temporary_entities.run_record import RunRecord, past_records
from paired_servicebus.verify.trial import Trial
from paired_servicebus.verify.verify_run import FOREIGN_SECONDS, RECORDS, clean, open_namespaces, run_of

from .conftest import PRIMARY, SECONDARY, WORKER_KEY, Lab

FOREIGN = (
    "orders",
    "paired-verify-",
    "paired-verify-0123456789ab",
    "paired-verify-0123456789ab-x",
    "paired-verify-0123456789AB-1",
    "paired-verify-0123456789abc-1",
    "x-paired-verify-0123456789ab-1",
    "paired-verify-0123456789ab-1/x",
)
STRAY = "paired-verify-0123456789ab-3"


async def cleaned(lab: Lab, **options: str) -> tuple[int, list[str]]:
    async with open_namespaces(lab.config(**options)) as namespaces:
        return await clean(namespaces, lab.places.state)


async def abandon(lab: Lab) -> RunRecord:
    """Two queues of a run that ends without a word."""
    async with open_namespaces(lab.config()) as namespaces:
        record = RunRecord.begin(RECORDS, lab.places.state)
        trial = Trial(namespaces, record)
        await trial.queue()
        await trial.queue(side=Side.PRIMARY)
    return record


@pytest.mark.parametrize("path", FOREIGN)
def test_only_the_exact_pattern_is_ours(path: str) -> None:
    assert run_of(path) == ""
    assert run_of(STRAY) == "0123456789ab"


async def test_the_queues_of_a_killed_run_are_deleted(lab: Lab) -> None:
    record = await abandon(lab)
    assert len(lab.queues()) == 2
    record.end()  # as the system does for a dead process
    assert await cleaned(lab) == (2, [])
    assert (lab.queues(), lab.records) == ([], [])
    assert await cleaned(lab) == (0, [])


async def test_the_queues_of_a_living_run_stay(lab: Lab) -> None:
    record = await abandon(lab)
    assert await cleaned(lab) == (0, [])
    assert len(lab.queues()) == 2
    record.end()


async def test_other_queues_stay_whatever_they_are_called(lab: Lab) -> None:
    """Only names with the exact prefix pattern, never others."""
    space = lab.sandbox[SECONDARY].node.namespace
    for path in FOREIGN:
        if path != "paired-verify-0123456789AB-1":  # one queue with the stray in any case
            space.create_queue(path)
    lab.sandbox[SECONDARY].node.clock.advance(2 * FOREIGN_SECONDS)
    before = lab.queues()
    record = await abandon(lab)
    record.end()
    assert (await cleaned(lab))[0] == 2
    assert lab.queues() == before


@pytest.mark.parametrize("age", [0.0, FOREIGN_SECONDS + 60])
async def test_a_queue_without_a_record_is_deleted_once_it_is_old(
    lab: Lab, age: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.sandbox[PRIMARY].node.namespace.create_queue(STRAY)
    monkeypatch.setattr("paired_servicebus.verify.verify_run.FOREIGN_SECONDS", FOREIGN_SECONDS - age)
    deleted, remains = await cleaned(lab)
    if age:
        assert (deleted, remains, lab.queues()) == (1, [], [])
    else:
        assert deleted == 0
        assert remains == [f"{STRAY} is less than an hour old and may belong to a run on another machine"]


async def test_a_record_of_another_namespace_is_kept_with_its_queues(lab: Lab) -> None:
    record = RunRecord.begin(RECORDS, lab.places.state)
    record.note("secondary", "other.servicebus.windows.net", f"{record.prefix}-0")
    record.end()
    deleted, remains = await cleaned(lab)
    assert (deleted, len(remains)) == (0, 1)
    assert "another namespace" in remains[0]
    assert len(lab.records) == 1


async def test_what_cannot_be_deleted_remains_in_the_record(lab: Lab) -> None:
    record = await abandon(lab)
    record.end()
    deleted, remains = await cleaned(lab, rule=("worker", WORKER_KEY))
    assert (deleted, len(remains)) == (0, 2)
    assert len(lab.records) == 1
    assert await cleaned(lab) == (2, [])


def test_a_queue_is_on_disk_before_it_is_made_and_torn_lines_are_none(tmp_path: Path) -> None:
    record = RunRecord.begin(RECORDS, tmp_path)
    path = f"{record.prefix}-0"
    record.note("secondary", "host", path)
    (file,) = (tmp_path / "verify").iterdir()
    assert json.loads(file.read_text())["queue"] == path
    record.end()
    with file.open("a") as more:
        more.write('[]\n{"queue": "orders", "side": "secondary", "host": "host"}\n{"queue": "paired-ver')
    (again,) = past_records(RECORDS, tmp_path)
    assert [queue.path for queue in again.entities] == [path]
    again.forget(path)
    again.end()
    assert not file.exists()


def test_a_state_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "verify").write_text("in the way")
    with pytest.raises(ConfigurationError, match="cannot be made"):
        RunRecord.begin(RECORDS, tmp_path)


async def test_an_interrupted_run_leaves_nothing(lab: Lab) -> None:
    """Deleted at the end and after Ctrl-C."""
    running = asyncio.create_task(lab.run())
    while len(lab.queues()) < 3:
        await asyncio.sleep(0.02)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (lab.queues(), lab.records) == ([], [])
