"""One task of a drain, without Spark: what it moves, how it ends, what it writes down."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paired_servicebus.core.errors import DrainError
from paired_servicebus.core.model.pairing_events import Moved, Record
from paired_servicebus.engine.journal import records
from paired_servicebus.pipeline.drain import drain_files
from paired_servicebus.pipeline.drain import drain_task as drain_task
from paired_servicebus.pipeline.drain.drain_task import report
from servicebus_sandbox.amqp_server.message_codec import read_message
from tests.pairing.backlogs import parked, queue_path
from tests.pipeline.drains import Grounds, grounds, until

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def standing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Grounds]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(drain_task, "QUIET", 1.6)
    async with grounds(tmp_path) as found:
        yield found


async def drained(standing: Grounds, queue: int = 0, **changes: object) -> drain_files.TaskReport:
    order = standing.order(**changes)
    found = await asyncio.to_thread(report, order.folder, queue, share=1)
    drain_files.gather(order.folder, standing.places.spool, drain_files.ReceiptTally())
    return found


async def test_a_task_moves_a_queue_and_writes_a_receipt_for_each_message(standing: Grounds) -> None:
    """A receipt is written before the settlement that depends on it."""
    standing.fill(400)
    found = await drained(standing)
    assert (found.end, found.moved) == (drain_files.TaskEnd.EMPTY, 200)
    assert standing.left() == 200
    assert standing.arrived() == standing.receipts()
    numbers = [record.seq for record in standing.records()]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_a_task_ends_at_its_bound_and_leaves_the_rest_as_it_lay(standing: Grounds) -> None:
    standing.fill(400)
    found = await drained(standing, wave_messages=50)
    assert (found.end, found.moved) == (drain_files.TaskEnd.BOUND, 50)
    assert {stored.delivery_count for stored in standing.lying(queue_path(0), "secondary")} == {0}
    assert len(standing.receipts()) == 50


async def test_a_task_drains_the_queue_with_its_index_where_the_order_has_a_gap(standing: Grounds) -> None:
    """The order names …/1 alone: …/0 could not be created."""
    standing.fill(20)
    found = await drained(standing, 1, queues=[queue_path(1)])
    assert (found.queue, found.end, found.moved) == (1, drain_files.TaskEnd.EMPTY, 10)
    assert {record.event.queue for record in standing.records() if isinstance(record.event, Moved)} == {1}
    assert standing.left() == 10


def test_an_order_that_names_what_is_no_backlog_queue_is_refused(standing: Grounds) -> None:
    with pytest.raises(DrainError, match="'orders', which is no backlog queue"):
        _ = standing.order(queues=[queue_path(0), "orders"]).by_index


async def test_a_task_keeps_to_its_rate(standing: Grounds) -> None:
    standing.fill(4000)
    found = await drained(standing, rate=50.0, wave_seconds=4.0)
    assert found.end is drain_files.TaskEnd.BOUND
    assert found.moved <= 50 * (4.0 + 2.5)  # its time, what is saved up at most, what is under way in the end


async def test_a_task_that_is_told_to_ends_in_order(standing: Grounds) -> None:
    standing.fill(400)
    order = standing.order(rate=20.0)
    task = asyncio.create_task(asyncio.to_thread(report, order.folder, 0, share=1))
    await until(lambda: drain_files.progress_of(order.folder, drain_files.ReceiptTally()).moved > 0)
    (order.folder / "stop").touch()
    found = await task
    assert drain_files.is_stopped(order.folder)
    assert found.end is drain_files.TaskEnd.STOPPED
    assert 0 < found.moved < 200
    assert {stored.delivery_count for stored in standing.lying(queue_path(0), "secondary")} == {0}


async def test_what_a_destination_does_not_take_is_set_aside_and_what_leads_nowhere_is_dead_lettered(
    standing: Grounds,
) -> None:
    """No x-ms-path [...]: dead-letter in the backlog queue with a reason. Unreachable, disabled [...]: it stays."""
    standing.sandbox["primary"].node.faults.add("disabled", entity="audit")
    standing.fill(10, queues=1, destination="audit")
    standing.fill(10, queues=1, start=10)
    node = standing.sandbox["secondary"].node
    node.namespace.send_target(queue_path()).intake.send([read_message(parked("", "nowhere"))])
    node.wake()
    found = await drained(standing)
    assert (found.end, found.moved, found.dead_lettered, found.set_aside) == (drain_files.TaskEnd.EMPTY, 10, 1, 10)
    assert standing.buried() == 1
    assert standing.left() == 10


async def test_an_executor_without_the_folder_or_the_configuration_says_so_once_and_for_all(standing: Grounds) -> None:
    nowhere = await asyncio.to_thread(report, Path("/nowhere"), 0, share=1)
    assert nowhere.end is drain_files.TaskEnd.UNFIT
    assert "--journal" in nowhere.text
    unread = await drained(standing, config="/nowhere/pairing.toml")
    assert unread.end is drain_files.TaskEnd.UNFIT
    assert "/nowhere/pairing.toml" in unread.text


async def test_a_namespace_that_cannot_be_reached_ends_a_task_with_the_reason(
    standing: Grounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_task, "FAILING", 1.0)
    standing.sandbox["secondary"].node.faults.add("refused")
    found = await drained(standing)
    assert (found.end, found.moved) == (drain_files.TaskEnd.FAILING, 0)
    assert "cannot receive" in found.text


# -- receipts ---------------------------------------------------------------------------------------------------------

KILLED = """
import asyncio, os, sys
from pathlib import Path
from paired_servicebus.core.model.pairing_events import Moved
from paired_servicebus.pipeline.drain.drain_files import Receipts
async def main():
    async with Receipts(Path(sys.argv[1]), "drained") as receipts:
        for number in range(100):
            receipts.record(Moved(at=1.0, entity="orders", message_id=f"m{number}", queue=0))
        with open(next((receipts.folder / ".open").iterdir()), "ab") as torn:
            torn.write(b'{"v":1,"engine":"dra')
        print("written", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_a_killed_attempt_loses_no_receipt_and_one_that_lives_is_left_alone(standing: Grounds) -> None:
    order = standing.order()
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(order.folder)], stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "written\n"
        assert drain_files.gather(order.folder, standing.places.spool, drain_files.ReceiptTally())
        assert standing.receipts().total() == 0
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    tally = drain_files.ReceiptTally()
    assert not drain_files.gather(order.folder, standing.places.spool, tally)
    assert tally.moved == 100
    assert standing.receipts().total() == len(standing.receipts()) == 100
    assert list(drain_files.attempts(order.folder)) == []


async def test_the_next_drain_brings_in_what_one_that_was_killed_left(standing: Grounds) -> None:
    order = standing.order()
    async with drain_files.Receipts(order.folder, "drained") as receipts:
        receipts.record(Moved(at=1.0, entity="orders", message_id="m", queue=0))
    assert drain_files.left_by_others(standing.places.spool) == 1
    assert not order.folder.exists()
    assert standing.receipts() == {"m": 1}


def test_a_line_of_a_receipt_is_what_is_counted() -> None:
    tally = drain_files.ReceiptTally()
    event = Moved(at=1.0, entity="orders", message_id='"kind":"moved"', queue=0)
    tally.count(records.encode(Record(engine="e", boot="b", seq=1, event=event)) + b"\n")
    assert tally.moved == 1
