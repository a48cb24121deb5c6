"""The journal on a real disk: what a crash or a damaged disk leaves, when files become whole, what a full disk does."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from paired_servicebus import config
from paired_servicebus.config import NamespaceConfig
from paired_servicebus.core.errors import ConfigurationError, UnreadableError
from paired_servicebus.core.model.pairing_events import KINDS, Event, PingSent, QueueProbed, Record, Warned
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.engine.clients.start_checks import read_primary_info
from paired_servicebus.engine.commands import drain_process
from paired_servicebus.engine.commands.drain_process import _outcome
from paired_servicebus.engine.commands.guard import StandingOrders
from paired_servicebus.engine.control import protocol
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.discovery import find_socket
from paired_servicebus.engine.instance import lock
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.journal import records, spool
from paired_servicebus.engine.journal import writer as journal_module
from paired_servicebus.engine.journal.message_trace import find
from paired_servicebus.engine.journal.records import UnreadableLineError, UnreadableLines
from paired_servicebus.engine.journal.spool import SpoolFile
from paired_servicebus.engine.journal.timeline_replay import replay_records, unfinished
from paired_servicebus.engine.journal.writer import Journal
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.engine.service.launcher import Failed, Launch, wait_until_gone
from tests.damaged import START, UNREADABLE, between, flipped, write
from tests.journal_files import read_records

from .conftest import FakePairing

Until = Callable[[Callable[[], bool]], Awaitable[None]]


def line(seq: int, text: str = "orders") -> bytes:
    return records.encode(Record(engine="e", boot="b", seq=seq, event=PingSent(at=1.0, entity=text, number=seq)))


def numbers(folder: Path) -> list[int]:
    return [record.seq for record in read_records(folder)]


async def test_a_journal_with_no_events_leaves_no_file(tmp_path: Path) -> None:
    async with Journal(tmp_path, engine="e"):
        pass
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


async def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    async with Journal(tmp_path / "spool", engine="e") as journal:
        journal.append(line(1))
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "spool").rglob("*")}
    assert modes == {0o700, 0o600}


async def test_a_file_is_whole_after_so_many_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "MAX_FILE_LINES", 10)
    async with Journal(tmp_path, engine="e") as journal:
        for seq in range(1, 26):
            journal.append(line(seq))
        await journal.sync()
        assert numbers(tmp_path) == list(range(1, 21))
    assert numbers(tmp_path) == list(range(1, 26))
    assert len(list((tmp_path / "events").iterdir())) == 3
    assert not list((tmp_path / ".open").iterdir())


async def test_a_file_is_whole_after_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "MAX_FILE_BYTES", 1000)
    async with Journal(tmp_path, engine="e") as journal:
        for seq in range(1, 5):
            journal.append(line(seq, "x" * 600))
        await journal.sync()
        assert numbers(tmp_path) == [1, 2]


async def test_a_file_with_events_is_whole_after_so_many_seconds(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "ROUND_SECONDS", 0.02)
    async with Journal(tmp_path, engine="e", roll_after=0.05) as journal:
        journal.append(line(1))
        await until(lambda: numbers(tmp_path) == [1])
        assert not list((tmp_path / ".open").iterdir())


async def test_a_file_is_whole_soon_after_somebody_asked_and_not_before(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "ROUND_SECONDS", 0.02)
    synced: list[int] = []
    monkeypatch.setattr(SpoolFile, "sync", lambda file: synced.append(file.lines))
    async with Journal(tmp_path, engine="e", roll_after=3600) as journal:
        journal.append(line(1))
        await until(lambda: bool(synced))  # a round is over
        assert numbers(tmp_path) == []
        spool.ask(tmp_path)
        await until(lambda: numbers(tmp_path) == [1])
        journal.append(line(2))
        await until(lambda: len(synced) > 1)
        assert numbers(tmp_path) == [1]
        spool.ask(tmp_path)
        await until(lambda: numbers(tmp_path) == [1, 2])


async def test_who_asks_a_journal_with_no_events_makes_no_file(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "ROUND_SECONDS", 0.02)
    rounds: list[int] = []

    def trim(*_: object) -> int:
        rounds.append(1)
        return 0

    monkeypatch.setattr(journal_module, "TRIM_INTERVAL", 0.0)
    monkeypatch.setattr(spool, "trim", trim)
    async with Journal(tmp_path, engine="e"):
        spool.ask(tmp_path)
        await until(lambda: len(rounds) > 2)
        assert not list(tmp_path.rglob(f"*{spool.SUFFIX}"))


async def test_syncing_reaches_the_disk_once_for_all_who_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(SpoolFile, "sync", lambda file: synced.append(file.lines))
    async with Journal(tmp_path, engine="e") as journal:
        journal.append(line(1))
        journal.append(line(2))
        assert await journal.sync()
        assert await journal.sync()
    assert synced == [2]


async def test_the_disk_is_waited_for_once_a_round_and_not_for_each_line(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 11: "fsync is grouped, once a second"."""
    assert journal_module.ROUND_SECONDS == 1.0
    monkeypatch.setattr(journal_module, "ROUND_SECONDS", 0.02)
    synced: list[int] = []
    monkeypatch.setattr(SpoolFile, "sync", lambda file: synced.append(file.lines))
    async with Journal(tmp_path, engine="e") as journal:
        for number in range(100):
            journal.append(line(number + 1))
        await until(lambda: synced)
        journal.append(line(101))
        await until(lambda: len(synced) == 2)
    assert synced == [100, 101]


# -- crashes -----------------------------------------------------------------------------------------------------


def left_behind(folder: Path, data: bytes, name: str = "e-0000000000001-000000000001.jsonl") -> None:
    spool.prepare(folder)
    (folder / ".open" / name).write_bytes(data)


NESTED = b"[" * 100_000 + b"]" * 100_000
TORN = [
    b'{"v":1,"eng', b"\0" * 50, b'{"v":1}\n', b"{}\n\0\0\n",
    bytes(200_000), b"x" * 10_000_000, b"\xff" * 100_000, NESTED,
]  # fmt: skip


@pytest.mark.parametrize("torn", TORN, ids=lambda torn: f"{len(torn)} bytes")
async def test_a_torn_end_is_cut_off_and_the_rest_is_kept(tmp_path: Path, torn: bytes) -> None:
    """The bug: of a file that ended with 64 KB without a newline nothing was kept."""
    left_behind(tmp_path, line(1) + b"\n" + line(2) + b"\n" + torn)
    async with Journal(tmp_path, engine="e") as journal:
        (recovered,) = journal.recovered
    assert recovered.torn_bytes == len(torn)
    assert numbers(tmp_path) == [1, 2]


async def test_a_boot_names_the_last_record_of_the_one_before(tmp_path: Path) -> None:
    """Section 11: "A killed boot is complete up to its last record only, unless its successor's `engine-started` names
    the last number that it wrote".
    """
    async with Journal(tmp_path, engine="e") as first:
        assert first.predecessor is None
    left_behind(tmp_path, line(1) + b"\n" + line(2) + b"\n" + line(3)[:9])
    (tmp_path / spool.CLOSED / "e-2-0000000000009-000000000001.jsonl").write_bytes(line(7) + b"\n")
    async with Journal(tmp_path, engine="e") as second:
        assert second.predecessor is not None
        assert (second.predecessor.boot, second.predecessor.seq) == ("b", 2), "of this engine, without the torn line"


async def test_a_file_that_is_nothing_but_torn_vanishes(tmp_path: Path) -> None:
    left_behind(tmp_path, b'{"v":1,"eng')
    async with Journal(tmp_path, engine="e") as journal:
        assert [found.torn_bytes for found in journal.recovered] == [11]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


async def test_a_line_longer_than_the_block_that_is_looked_at_is_kept(tmp_path: Path) -> None:
    left_behind(tmp_path, line(1, "x" * 200_000) + b"\n" + b'{"v"')
    async with Journal(tmp_path, engine="e"):
        pass
    assert numbers(tmp_path) == [1]


async def test_unknown_and_unreadable_lines_are_counted_and_passed_over(tmp_path: Path) -> None:
    spool.prepare(tmp_path)
    new = b'{"v":1,"engine":"e","boot":"b","seq":2,"ts":0,"kind":"new"}'
    (tmp_path / "events" / "e-1-1.jsonl").write_bytes(b"\n".join([line(1), new, b"garbage", line(3), b""]))
    reader = read_records(tmp_path)
    assert [record.seq for record in reader] == [1, 3]
    assert (reader.unknown, reader.unread.count) == (1, 1)
    (said,) = reader.unread.tell()
    assert said.startswith("line 3 of e-1-1.jsonl cannot be read (not a record: ")
    assert reader.unread.tell() == (), "once"


def test_a_killed_process_loses_nothing_that_it_appended(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import asyncio, os, signal, sys
        from pathlib import Path
        from paired_servicebus.core.model.pairing_events import PingSent, Record
        from paired_servicebus.engine.journal import records
        from paired_servicebus.engine.journal.writer import Journal

        async def main():
            async with Journal(Path(sys.argv[1]), engine="e") as journal:
                for seq in range(1, 501):
                    event = PingSent(at=1.0, entity="orders", number=seq)
                    journal.append(records.encode(Record(engine="e", boot="b", seq=seq, event=event)))
                os.kill(os.getpid(), signal.SIGKILL)

        asyncio.run(main())
    """)
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert numbers(tmp_path) == []
    (found,) = spool.recover(tmp_path)
    assert found.torn_bytes == 0
    assert numbers(tmp_path) == list(range(1, 501))


# -- what gives way ------------------------------------------------------------------------------------------------


async def test_the_newest_files_are_kept_and_the_oldest_give_way(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "MAX_FILE_LINES", 10)
    monkeypatch.setattr(journal_module, "ROUND_SECONDS", 0.02)
    monkeypatch.setattr(journal_module, "TRIM_INTERVAL", 0.02)
    size = 11 * len(line(100))
    async with Journal(tmp_path, engine="e", keep=2 * size) as journal:
        for seq in range(101, 146):
            journal.append(line(seq))
        await until(lambda: journal.deleted == 2)
        assert numbers(tmp_path) == list(range(121, 141)), "whole files only, and no open one"


async def test_what_cannot_be_deleted_is_logged_and_the_journal_goes_on(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(journal_module, "ROUND_SECONDS", 0.02)
    monkeypatch.setattr(spool, "trim", refuse)
    async with Journal(tmp_path, engine="e") as journal:
        await until(lambda: "cannot be deleted" in caplog.text)
        journal.append(line(1))
        assert await journal.sync()


# -- disks that refuse --------------------------------------------------------------------------------------------


class FullDisk:
    """Refuses what is written to spool files while `full`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.full = False
        write, probe = SpoolFile.append, spool.probe
        patch.setattr(SpoolFile, "append", lambda file, *lines: self._refuse() or write(file, *lines))
        patch.setattr(spool, "probe", lambda folder: self._refuse() or probe(folder))

    def _refuse(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    monkeypatch.setattr(journal_module, "ROUND_SECONDS", 0.02)
    return FullDisk(monkeypatch)


async def test_a_full_disk_is_counted_said_and_outlived(tmp_path: Path, disk: FullDisk, until: Until) -> None:
    changes: list[bool] = []
    async with Journal(tmp_path, engine="e", on_change=lambda: changes.append(journal.healthy)) as journal:
        journal.append(line(1))
        disk.full = True
        journal.append(line(2))
        journal.append(line(3))
        assert not journal.healthy
        assert "No space left" in journal.trouble
        assert str(tmp_path) in journal.trouble
        assert journal.lost == 2
        assert not await journal.sync()
        disk.full = False
        await until(lambda: journal.healthy)
        journal.append(line(4))
        assert await journal.sync()
    assert numbers(tmp_path) == [1, 4]
    assert changes == [False, True]


async def test_half_a_line_never_stays_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    async with Journal(tmp_path, engine="e") as journal:
        journal.append(line(1))
        monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:5]))
        journal.append(line(2))
        monkeypatch.undo()
        assert journal.lost == 1
    (file,) = (tmp_path / "events").iterdir()
    assert file.read_bytes() == line(1) + b"\n"


async def test_what_is_appended_together_is_one_write_and_there_when_it_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: written.append(data) or write(fd, data))
    async with Journal(tmp_path, engine="e") as journal:
        with journal.together():
            for seq in range(1, 4):
                journal.append(line(seq))
            assert not written
        assert written == [b"".join(line(seq) + b"\n" for seq in range(1, 4))]
        journal.append(line(4))
    assert numbers(tmp_path) == [1, 2, 3, 4]


async def test_a_disk_that_fills_up_keeps_the_whole_lines_of_those_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    async with Journal(tmp_path, engine="e") as journal:
        monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[: 2 * len(line(1)) + 10]))
        with journal.together():
            for seq in range(1, 5):
                journal.append(line(seq))
        monkeypatch.undo()
        assert (journal.lines, journal.lost, journal.healthy) == (4, 2, False)
    assert numbers(tmp_path) == [1, 2]


async def test_a_disk_that_does_not_answer_counts_as_one_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    answer = threading.Event()
    monkeypatch.setattr(journal_module, "DISK_TIMEOUT", 0.05)
    monkeypatch.setattr(SpoolFile, "sync", lambda file: answer.wait(10))
    async with Journal(tmp_path, engine="e") as journal:
        journal.append(line(1))
        assert not await journal.sync()
        assert "no answer from the disk" in journal.trouble
        answer.set()


# -- Records as lines: every kind goes there and back, and what is not ours is told apart.


HEADER = ("v", "engine", "boot", "seq", "ts", "kind")
TIMES = some.integers(0, 2**51).map(lambda micros: micros / 1_000_000)  # until 2041 a float holds microseconds
VALUES = {
    "str": some.text(),
    "int": some.integers(0, 2**63 - 1),
    "float": some.floats(allow_nan=False, allow_infinity=False),
    "float | None": some.none() | some.floats(allow_nan=False, allow_infinity=False),
    "bool": some.booleans(),
    "bool | None": some.none() | some.booleans(),
    "FailureKind": some.sampled_from(FailureKind),
    "str | None": some.none() | some.text(),
    "int | None": some.none() | some.integers(0, 2**31),
}


def events(kind: type[Event]) -> some.SearchStrategy[Event]:
    values = {field.name: TIMES if field.name == "at" else VALUES[str(field.type)] for field in fields(kind)}
    return some.builds(kind, **values)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.kind)
@given(data=some.data(), seq=some.integers(1, 2**62))
def test_every_kind_goes_to_a_line_and_back(kind: type[Event], data: some.DataObject, seq: int) -> None:
    record = Record(engine="orders@host", boot="b1", seq=seq, event=data.draw(events(kind)))
    line = records.encode(record)
    assert b"\n" not in line
    assert records.decode(line) == record


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.kind)
def test_no_field_hides_behind_a_name_of_the_header(kind: type[Event]) -> None:
    assert not {field.name for field in fields(kind)} & set(HEADER)


def test_a_line_is_flat_with_whole_microseconds() -> None:
    event = PingSent(at=1.2500004, entity="orders", number=3)
    line = records.encode(Record(engine="e", boot="b", seq=7, event=event))
    header = {"v": 1, "engine": "e", "boot": "b", "seq": 7, "ts": 1_250_000, "kind": "ping-sent"}
    assert json.loads(line) == header | {"entity": "orders", "number": 3}


PING = PingSent(at=0.0, entity="o", number=3)


@pytest.mark.parametrize(
    ("form", "rest", "event"),
    [
        (1, b'"kind":"something-new","colour":"red"}', None),
        (2, b'"kind":"ping-sent","entity":"o","number":3}', None),
        (1, b'"kind":"ping-sent","entity":"o","number":3,"new":1}', PING),
    ],
    ids=["another kind", "another form of lines", "another field"],
)
def test_what_a_newer_engine_writes_is_passed_over_and_not_guessed_at(form: int, rest: bytes, event: object) -> None:
    found = records.decode(b'{"v":%d,"engine":"e","boot":"b","seq":1,"ts":0,' % form + rest)
    assert getattr(found, "event", None) == event


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b'{"v":1}', bytes(40), b'{"v":1,"engine":"e","boot":"b","seq":1,"ts":0,"kind":"ping-sent"}'],
    ids=["empty", "torn", "a list", "no header", "zeros", "a field missing"],
)
def test_what_is_no_record_is_said_to_be_none(line: bytes) -> None:
    with pytest.raises(UnreadableLineError, match="not a record"):
        records.decode(line)


def test_only_journalled_events_have_kinds() -> None:
    assert QueueProbed.kind not in KINDS


# -- Whatever a disk has done to the files that an engine left: the next one starts, reads the rest, and says what it
# could not read, once.

DAMAGE = {
    "zeros": bytes(3000),
    "not UTF-8": b"\xff\xfe",
    "not UTF-8 inside": b'{"pid":"\xff"}',
    "nested": NESTED,
    "null": b"null",
    "a huge number": b"9" * 5000,
    "an endless number": b'{"at":1e999}',
    "half a surrogate": b'"\\ud800"',
    "nothing": b"",
}
"""What may stand in a small file of JSON."""


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A whole file of a journal, as the journal writes it."""
    return asyncio.run(write(tmp_path_factory.mktemp("journal"))).read_bytes()


def spooled(folder: Path, data: bytes, place: str = spool.CLOSED) -> Path:
    spool.prepare(folder)
    path = folder / place / f"orders@here-{int(START * 1000):013d}-000000000001{spool.SUFFIX}"
    path.write_bytes(data)
    return path


def read_all(folder: Path) -> tuple[set[int], UnreadableLines]:
    """All that an engine's start and `paired find` read; the numbers of records that can be read."""
    unread = UnreadableLines()
    spool.recover(folder)
    unfinished(folder, unread)
    replay_records(folder, besides="b1", since=START, most=10_000, untold=[], unread=unread)
    found = find(folder, "m-1-1")
    assert found.torn == len({place for _, place in found_places(folder)})
    return {record.seq for record in read_records(folder)}, unread


def found_places(folder: Path) -> list[tuple[str, int]]:
    """Lines that are no records, one by one."""
    places: list[tuple[str, int]] = []
    for path in (folder / spool.CLOSED).iterdir():
        for number, line in enumerate(path.read_bytes().split(b"\n")):
            try:
                records.decode(line)
            except UnreadableError:
                places += [(path.name, number)] if line.strip() else []
    return places


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=some.integers(0, 2**32), places=some.integers(1, 30), place=some.sampled_from([spool.CLOSED, spool.OPEN]))
def test_bytes_changed_at_random_places_cost_the_lines_they_are_in(
    tmp_path_factory: pytest.TempPathFactory, journal: bytes, seed: int, places: int, place: str
) -> None:
    data, sound = flipped(journal, Random(seed), places)
    folder = tmp_path_factory.mktemp("spool")
    spooled(folder, data, place)
    numbers, _ = read_all(folder)
    assert {number + 1 for number in sound} <= numbers


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("place", [spool.CLOSED, spool.OPEN])
def test_a_strange_line_is_passed_over_and_said_with_its_place(
    tmp_path: Path, journal: bytes, name: str, place: str
) -> None:
    lines = journal.splitlines()
    path = spooled(tmp_path, between(lines, UNREADABLE[name]), place)
    numbers, unread = read_all(tmp_path)
    assert numbers == set(range(1, len(lines) + 1))
    (said,) = unread.tell()
    assert said.startswith(f"line {len(lines) // 2 + 1} of {path.name} cannot be read (not a record: ")
    assert len(said) < 400
    assert said.isprintable()
    assert find(tmp_path, "m-1-1").unread == (said,)


async def test_the_engine_starts_and_says_what_it_could_not_read_once(
    short: Path, journal: bytes, until: Until
) -> None:
    lines = journal.splitlines()
    folder = short / "spool"
    path = spooled(folder, between(lines, UNREADABLE["a byte that is not UTF-8"]).replace(b'"pin"', b'"p\xffn"'))
    os.utime(path)
    (folder / "standing.json").write_bytes(b'[{"command":{"action_id":"\xff"}}]')

    told: list[Event] = []

    def now() -> float:
        return START + 60

    def note(record: Record, _line: bytes) -> None:
        told.append(record.event)

    identity = EngineIdentity.of("orders")
    async with EngineHost(identity, spool=folder, socket=short / "s", policy=Policy(), clock=now, note=note) as host:
        pairing = FakePairing()
        await host.take_up(pairing)
        await host.adopt(pairing)
        await until(lambda: any(_is_of_lines(event) for event in told))
    (text,) = [event.text for event in told if _is_of_lines(event)]
    assert text.startswith(f"2 lines of {path.name} cannot be read, the first is line {len(lines) // 2 + 1} (")
    (standing,) = [event.text for event in told if isinstance(event, Warned) and event.about == "standing"]
    assert standing.startswith("the standing orders of the engine before cannot be read (")


def _is_of_lines(event: Event) -> bool:
    return isinstance(event, Warned) and "cannot be read, the first is" in event.text


@pytest.mark.parametrize("data", DAMAGE.values(), ids=DAMAGE)
def test_small_files_of_a_dead_engine_are_as_good_as_none(tmp_path: Path, data: bytes) -> None:
    places = EnginePaths(state=tmp_path, socket=tmp_path / "s")
    places.lock.write_bytes(data)
    assert (lock.running(places.lock), lock.crashed_holder(places.lock)) == (None, None)
    (tmp_path / "drain.json").write_bytes(data)
    assert drain_process.latest(tmp_path, now=time.time()) is None
    assert _outcome(data) is None
    assert isinstance(_reported(data), Failed)
    (tmp_path / "standing.json").write_bytes(data)
    with pytest.raises(UnreadableError):
        StandingOrders(tmp_path).read()


def test_an_engine_whose_lock_says_nothing_any_more_still_runs(tmp_path: Path) -> None:
    places = EnginePaths(state=tmp_path, socket=tmp_path / "s")
    taken = lock.acquire(places.lock, lock.LockHolder(pid=4711, socket="elsewhere", log="log"))
    try:
        assert find_socket(places) == Path("elsewhere")
        places.lock.write_bytes(b'{"pid":"\xff"}')
        assert find_socket(places) == places.socket
        assert not wait_until_gone(places, 0.0)
    finally:
        os.close(taken)
    assert find_socket(places) is None
    assert wait_until_gone(places, 0.0)


def _reported(data: bytes) -> object:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as file:
        file.write(data[:4096])
    try:
        launch: Any = Launch(None, reading, Path("log"))  # type: ignore[arg-type]
        return launch._read(1.0, lambda _: None)
    finally:
        os.close(reading)


@pytest.mark.parametrize("pid", [-1, 0, 1 << 40, None])
def test_a_drain_whose_process_cannot_be_is_never_told_to_end(tmp_path: Path, pid: int | None) -> None:
    """A signal to process -1 reaches every process of this user, one to 0 our own."""
    told = {"at": time.time(), "text": "12 moved", "host": "here"} | ({} if pid is None else {"pid": pid})
    (tmp_path / "drain.json").write_text(json.dumps(told))
    assert drain_process.latest(tmp_path, now=time.time()) is None


async def test_a_standing_order_that_means_nothing_is_said_and_the_rest_is_taken_up(short: Path) -> None:
    folder = short / "spool"
    spool.prepare(folder)
    pause = {"action_id": "pause-syphon", "by": "ada"}
    strange = {"command": {**pause, "scope": "queue", "targets": ["x\x1b[2J"]}, "at": 1e30}
    good = {"command": {**pause, "scope": "all"}, "at": START}
    (folder / "standing.json").write_text(json.dumps([strange, good]))
    pairing = FakePairing()
    async with EngineHost(EngineIdentity.of("orders"), spool=folder, socket=short / "s", policy=Policy()) as host:
        await host.take_up(pairing)
        await host.adopt(pairing)
    texts = [
        one.event.text
        for one in read_records(folder)
        if isinstance(one.event, Warned) and one.event.about == "standing"
    ]
    assert [text.partition(":")[0] for text in texts] == ["cannot be taken up", "still stands"]
    assert "ordered an impossible time by ada" in texts[0]
    assert texts[0].isprintable()


@pytest.mark.parametrize("line", [*DAMAGE.values(), b'{"t":"hello","x":' + NESTED + b"}"], ids=[*DAMAGE, "in a field"])
def test_a_peer_that_says_nonsense_is_refused_in_the_protocols_own_words(line: bytes) -> None:
    with pytest.raises(protocol.ControlProtocolError, match="control protocol"):
        protocol.decode_from_client(line)
    with pytest.raises(protocol.ControlProtocolError, match="control protocol"):
        protocol.decode_from_engine(line)


async def test_a_console_goes_on_to_the_sentence_when_the_engine_sends_nonsense(short: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b'{"t":"welcome","engine":"\xff"}\n')
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(answer, short / "s"):
        with pytest.raises(protocol.ControlProtocolError, match="no message of the control protocol"):
            await ControlClient.connect(short / "s")


async def test_a_name_that_was_remembered_and_changed_on_disk_is_forgotten(tmp_path: Path) -> None:
    places = EnginePaths(state=tmp_path, socket=tmp_path / "s")
    places.named.write_bytes(b"\xff")
    found = await read_primary_info(NamespaceConfig(host="contoso.example"), places)
    assert found.name == "contoso"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'[pairing]\nname = "\xff"', r"is not UTF-8 \(byte 18\)"),
        (b"a = " + NESTED, "nested too deeply"),
        (b"a = " + b"9" * 5000, "is not TOML"),
        (b"a = \x00", "is not TOML"),
    ],
    ids=["not UTF-8", "nested", "a huge number", "a zero"],
)
def test_a_pairing_toml_that_is_none_is_a_sentence(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "pairing.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=why) as raised:
        config.load_config(path)
    assert str(raised.value).isprintable()
