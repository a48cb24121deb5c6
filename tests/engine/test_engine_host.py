"""An engine around a pairing: what it writes down, what it shows, what it does when the disk is full."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.model.pairing_events import (
    CommandEnded,
    Diverted,
    EngineStarted,
    EngineStopped,
    SendsCounted,
    Warned,
)
from paired_servicebus.core.model.policy import Policy, times_line
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus
from paired_servicebus.engine.journal import spool
from paired_servicebus.engine.journal import writer as journal_module
from paired_servicebus.engine.journal.spool import SpoolFile
from tests.journal_files import read_records

from .conftest import newest_snapshot

Engine = Callable[..., Any]
Until = Callable[[Callable[[], bool]], Awaitable[None]]


async def test_a_boot_is_written_down_from_start_to_stop_without_gaps(engine: Engine) -> None:
    async with engine() as hosted:
        client = await hosted.connect()
        await client.command("pause-syphon", by="ada")
        await client.close()
        hosted.host.stop("done")
    found = list(read_records(hosted.spool))
    assert [record.seq for record in found] == list(range(1, len(found) + 1))
    assert len({(record.engine, record.boot) for record in found}) == 1
    started, *_, stopped = (record.event for record in found)
    assert isinstance(started, EngineStarted)
    assert (started.primary, started.secondary, started.backlog_queues) == ("contoso", "contoso-backup", 2)
    assert isinstance(stopped, EngineStopped)
    assert stopped.reason == "done"
    assert any(isinstance(record.event, CommandEnded) for record in found)


async def test_receipts_and_counts_go_to_the_journal_and_not_to_consoles(engine: Engine) -> None:
    async with engine() as hosted:
        client = await hosted.connect()
        hosted.host.record(Diverted(at=1.0, entity="orders", message_id="m1", queue=0))
        hosted.host.record(SendsCounted(at=1.0, entity="orders", route="primary", accepted=1, failed=0, seconds=1.0))
        hosted.host.record(Warned(at=1.0, about="test", text="the end"))
        told = []
        async with asyncio.timeout(60):
            async for update in client.updates():
                if not isinstance(update, Snapshot):
                    told.append(update.event.kind)
                    if told[-1] == "warned":
                        break
        await client.close()
    assert told == ["engine-started", "warned"]
    assert {"diverted", "sends"} <= {record.event.kind for record in read_records(hosted.spool)}


async def test_a_snapshot_carries_everything_a_screen_needs(engine: Engine) -> None:
    async with engine(read_only=True) as hosted:
        client = await hosted.connect()
        snapshot = await newest_snapshot(client, lambda _: True)
        await client.close()
    assert (snapshot.pairing, snapshot.environment, snapshot.pid) == ("orders", "test", os.getpid())
    assert snapshot.read_only
    assert [queue.index for queue in snapshot.queues] == [0, 1]
    assert snapshot.billed.total == 3
    assert snapshot.alarms == ("messages are parked and no syphon is known",)
    assert snapshot.times == "send 30 s · failover 60 s · ping 60 s"


async def test_snapshots_go_on_though_one_could_not_be_made(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    async with engine() as hosted:
        client = await hosted.connect()
        views = hosted.pairing.entity_views
        hosted.pairing.entity_views = lambda: 1 / 0
        await asyncio.sleep(0)
        hosted.host._wake()
        async with asyncio.timeout(60):
            while "no snapshot could be made" not in caplog.text:
                await asyncio.sleep(0.01)
        hosted.pairing.entity_views = views
        before = hosted.host.record(Warned(at=1.0, about="test", text="later"))
        assert await newest_snapshot(client, lambda snapshot: snapshot.seq >= before)
        await client.close()


async def test_an_error_in_the_body_comes_out_as_it_is_and_is_the_reason(engine: Engine) -> None:
    with pytest.raises(LookupError, match="as it is"):
        async with engine() as hosted:
            raise LookupError("as it is")
    assert list(read_records(hosted.spool))[-1].event.reason == "failed: LookupError"


async def test_an_owner_that_is_cancelled_closes_the_engine_and_nothing_failed(engine: Engine) -> None:
    with pytest.raises(asyncio.CancelledError):
        async with engine() as hosted:
            raise asyncio.CancelledError
    assert list(read_records(hosted.spool))[-1].event.reason == "its owner closed it"


async def test_a_crashed_predecessors_file_is_recovered_and_said(engine: Engine, short: Any) -> None:
    spool.prepare(short / "spool")
    (short / "spool" / ".open" / "orders@host-0000000000001-000000000001.jsonl").write_bytes(b'{"torn')
    async with engine() as hosted:
        pass
    first = next(iter(read_records(hosted.spool))).event
    assert isinstance(first, Warned)
    assert "was killed" in first.text
    assert "6 bytes" in first.text


async def test_one_that_cannot_read_what_its_predecessor_left_serves_and_says_so(engine: Engine, short: Path) -> None:
    (short / "spool" / "standing.json").mkdir(parents=True)
    before = asyncio.all_tasks()
    async with engine() as hosted:
        pass
    said = [record.event.text for record in read_records(hosted.spool) if isinstance(record.event, Warned)]
    assert any("the standing orders of the engine before cannot be read" in text for text in said)
    assert asyncio.all_tasks() == before


async def test_a_full_disk_pauses_the_syphon_is_said_and_outlived(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    full = False
    write, probe = SpoolFile.append, spool.probe

    def refuse() -> None:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(journal_module, "ROUND_SECONDS", 0.02)
    monkeypatch.setattr(SpoolFile, "append", lambda file, data: refuse() or write(file, data))
    monkeypatch.setattr(spool, "probe", lambda folder: refuse() or probe(folder))
    async with engine() as hosted:
        client = await hosted.connect()
        full = True
        done = await client.order("force", targets=("orders",), typed="orders", by="ada")
        assert "the audit is not written: No space left on device" in done.text
        snapshot = await newest_snapshot(client, lambda each: each.syphon.status is SyphonStatus.PAUSED)
        assert snapshot.alarms[0].startswith("the journal is not written (No space left on device")
        full = False
        await until(lambda: hosted.pairing.syphon.status is SyphonStatus.IDLE)
        await client.close()
    assert [act[0] for act in hosted.pairing.acts] == ["force", "pause", "resume"]
    texts = [record.event.text for record in read_records(hosted.spool) if isinstance(record.event, Warned)]
    assert any("the journal is written again" in text and "missing" in text for text in texts)


async def test_that_old_files_are_deleted_is_said_once(engine: Engine, until: Until) -> None:
    async with engine() as hosted:
        client = await hosted.connect()
        hosted.host._journal.deleted = 3
        await newest_snapshot(client, lambda snapshot: snapshot.seq > 1)
        before = hosted.host.record(Warned(at=1.0, about="test", text="later"))
        await newest_snapshot(client, lambda snapshot: snapshot.seq >= before)
        await client.close()
    texts = [record.event.text for record in read_records(hosted.spool) if isinstance(record.event, Warned)]
    assert len([text for text in texts if "its oldest files are deleted from now on" in text]) == 1


def test_the_times_in_force_are_one_line() -> None:
    times = Policy(send_timeout=1.0, failover_interval=3.0, ping_primary_interval=2.0)
    assert times_line(times) == "send 1 s · failover 3 s · ping 2 s"
