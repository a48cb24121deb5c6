"""The journal on a real disk: what a crash leaves, when files become whole, what a full disk does."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from paired_servicebus.core.model.pairing_events import KINDS, Event, PingSent, QueueProbed, Record
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.engine.journal import records, spool
from paired_servicebus.engine.journal import writer as journal_module
from paired_servicebus.engine.journal.records import UnreadableLineError
from paired_servicebus.engine.journal.spool import SpoolFile
from paired_servicebus.engine.journal.writer import Journal
from tests.journal_files import read_records

Until = Callable[[Callable[[], bool]], Awaitable[None]]


def line(seq: int, text: str = "orders") -> bytes:
    return records.encode(Record(engine="e", boot="b", seq=seq, event=PingSent(at=1.0, entity=text, number=seq)))


def numbers(folder: Path) -> list[int]:
    return [record.seq for record in read_records(folder)]


async def test_what_was_appended_can_be_read_back_once_the_journal_is_closed(tmp_path: Path) -> None:
    async with Journal(tmp_path, engine="e") as journal:
        for seq in range(1, 4):
            journal.append(line(seq))
    assert numbers(tmp_path) == [1, 2, 3]
    assert not list((tmp_path / ".open").iterdir())


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


@pytest.mark.parametrize("torn", [b'{"v":1,"eng', b"\0" * 50, b'{"v":1}\n', b"{}\n\0\0\n"])
async def test_a_torn_end_is_cut_off_and_the_rest_is_kept(tmp_path: Path, torn: bytes) -> None:
    left_behind(tmp_path, line(1) + b"\n" + line(2) + b"\n" + torn)
    async with Journal(tmp_path, engine="e") as journal:
        (recovered,) = journal.recovered
    assert recovered.torn_bytes == len(torn)
    assert numbers(tmp_path) == [1, 2]


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


def test_a_kind_of_a_newer_engine_is_not_an_error() -> None:
    line = b'{"v":1,"engine":"e","boot":"b","seq":1,"ts":0,"kind":"something-new","colour":"red"}'
    assert records.decode(line) is None


def test_a_newer_form_of_lines_is_not_guessed_at() -> None:
    line = b'{"v":2,"engine":"e","boot":"b","seq":1,"ts":0,"kind":"ping-sent","entity":"orders","number":3}'
    assert records.decode(line) is None


def test_a_field_of_a_newer_engine_is_passed_over() -> None:
    line = b'{"v":1,"engine":"e","boot":"b","seq":1,"ts":0,"kind":"ping-sent","entity":"o","number":3,"new":1}'
    record = records.decode(line)
    assert record is not None
    assert record.event == PingSent(at=0.0, entity="o", number=3)


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
