"""What engines told before this one: read from their journal, within bounds, and told to consoles that come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.model.pairing_events import Diverted, EngineStarted, EngineStopped, Event, Record, Warned
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.protocol import Position
from paired_servicebus.engine.journal import records, spool, timeline_replay
from paired_servicebus.engine.journal.records import UnreadableLines
from paired_servicebus.engine.journal.timeline_replay import replay_records

Engine = Callable[..., Any]
Until = Callable[[Callable[[], bool]], Awaitable[None]]
NOW = 1_700_000_000.0


def warned(number: int, *, at: float = NOW) -> Warned:
    return Warned(at=at, about="test", text=str(number))


def write(folder: Path, *events: Event, boot: int = 1, torn: bytes = b"") -> None:
    """A whole file of a boot's events."""
    spool.prepare(folder)
    lines = [
        records.encode(Record(engine="e", boot=f"boot-{boot}", seq=seq, event=event))
        for seq, event in enumerate(events, 1)
    ]
    name = f"e-{boot:013d}-{1:012d}{spool.SUFFIX}"
    (folder / spool.CLOSED / name).write_bytes(b"".join(line + b"\n" for line in lines) + torn)


def texts(folder: Path, *, since: float = NOW - 60, most: int = 100) -> list[str]:
    found = replay_records(
        folder, besides="boot-9", since=since, most=most, untold=[Diverted.kind], unread=UnreadableLines()
    )
    assert all(records.decode(line) == record for record, line in found)
    return [record.event.text for record, _ in found if isinstance(record.event, Warned)]


def test_they_are_told_oldest_first_over_boots(tmp_path: Path) -> None:
    write(tmp_path, warned(1), warned(2), boot=1)
    write(tmp_path, warned(3), boot=2, torn=b'{"v":1,"engine":"e","kind":"war')
    assert texts(tmp_path) == ["1", "2", "3"]


def test_what_consoles_are_not_told_and_what_the_asking_boot_told_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, warned(1), Diverted(at=NOW, entity="orders", message_id="m", queue=0), boot=1)
    write(tmp_path, warned(2), boot=9)
    assert texts(tmp_path) == ["1"]
    found = replay_records(
        tmp_path, besides="boot-9", since=0, most=9, untold=[Diverted.kind], unread=UnreadableLines()
    )
    assert [record.event.kind for record, _ in found] == ["warned"]


def test_it_looks_back_no_further_than_it_is_asked_to(tmp_path: Path) -> None:
    write(tmp_path, warned(1, at=NOW - 61), warned(2, at=NOW - 59), warned(3), warned(4))
    assert texts(tmp_path) == ["2", "3", "4"]
    assert texts(tmp_path, most=2) == ["3", "4"]


def test_of_a_large_journal_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, *(warned(number) for number in range(100)))
    line = len(records.encode(Record(engine="e", boot="boot-1", seq=99, event=warned(99)))) + 1
    monkeypatch.setattr(timeline_replay, "MAX_REPLAY_BYTES", 3 * line + line // 2)
    assert texts(tmp_path) == ["97", "98", "99"]


def test_an_empty_journal_is_none(tmp_path: Path) -> None:
    spool.prepare(tmp_path)
    assert texts(tmp_path) == []


async def told(client: ControlClient) -> list[Event]:
    """Everything up to the start of the engine that answers."""
    events: list[Event] = []
    async with asyncio.timeout(60):
        async for update in client.updates():
            if isinstance(update, Record):
                events.append(update.event)
                if isinstance(update.event, EngineStarted) and update.boot == client.welcome.boot:
                    break
    await client.close()
    return events


async def test_a_console_is_told_what_the_engine_before_told(engine: Engine, until: Until) -> None:
    async with engine() as hosted:
        hosted.host.record(warned(1, at=hosted.host._started_at))
    async with engine() as hosted:
        await until(lambda: bool(hosted.host._control._before))
        kinds = [event.kind for event in await told(await hosted.connect())]
    assert kinds == ["engine-started", "warned", "engine-stopped", "engine-started"]


async def test_a_console_that_was_there_is_told_only_what_it_missed(engine: Engine, until: Until) -> None:
    async with engine() as hosted:
        seen = hosted.host.record(warned(1, at=hosted.host._started_at))
        after = Position(boot=hosted.host._identity.boot, seq=seen)
    async with engine() as hosted:
        await until(lambda: bool(hosted.host._control._before))
        events = await told(await ControlClient.connect(hosted.socket, after=after))
    assert [type(event) for event in events] == [EngineStopped, EngineStarted]
