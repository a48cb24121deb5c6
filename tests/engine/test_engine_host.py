"""An engine around a pairing: what it writes down, what it shows, the command that it runs, a full disk."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import logging
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.model.pairing_events import (
    CommandEnded,
    Diverted,
    EngineStarted,
    EngineStopped,
    Event,
    PingSent,
    Record,
    SendsCounted,
    StateChanged,
    Warned,
)
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus
from paired_servicebus.core.operator.alarms import alarms
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.protocol import Position
from paired_servicebus.engine.instance import logs
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.instance.logs import RepeatFilter, log_to, new_log_file
from paired_servicebus.engine.journal import records, spool, timeline_replay
from paired_servicebus.engine.journal import writer as journal_module
from paired_servicebus.engine.journal.records import UnreadableLines
from paired_servicebus.engine.journal.spool import SpoolFile
from paired_servicebus.engine.journal.timeline_replay import replay_records
from paired_servicebus.engine.service import hook as hook_module
from paired_servicebus.engine.service.hook import MAX_WAITING_CALLS, Hook
from tests.journal_files import read_records

from .conftest import newest_snapshot

Engine = Callable[..., Any]
Until = Callable[[Callable[[], bool]], Awaitable[None]]


async def test_a_boot_is_written_down_from_start_to_stop_without_gaps(engine: Engine) -> None:
    async with engine() as hosted, hosted.console() as client:
        await client.execute(Command(action_id="pause-syphon", by="ada"))
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
    async with engine() as hosted, hosted.console() as client:
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
    assert told == ["engine-started", "warned"]
    assert {"diverted", "sends"} <= {record.event.kind for record in read_records(hosted.spool)}


async def test_a_snapshot_carries_everything_a_screen_needs(engine: Engine) -> None:
    async with engine(read_only=True) as hosted, hosted.console() as client:
        snapshot = await newest_snapshot(client, lambda _: True)
    assert (snapshot.pairing, snapshot.environment, snapshot.pid) == ("orders", "test", os.getpid())
    assert snapshot.read_only
    assert [queue.index for queue in snapshot.queues] == [0, 1]
    assert snapshot.billed.total == 3
    assert snapshot.troubles == hosted.pairing.troubled
    assert snapshot.times == "send 30 s · failover 60 s · ping 60 s"


async def test_snapshots_go_on_though_one_could_not_be_made(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    async with engine() as hosted, hosted.console() as client:
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
    async with engine() as hosted, hosted.console() as client:
        full = True
        done = await client.order(Command(action_id="force", targets=("orders",), by="ada"), typed="orders")
        assert "the audit is not written: No space left on device" in done.text
        snapshot = await newest_snapshot(client, lambda each: each.syphon.status is SyphonStatus.PAUSED)
        (alarm,) = [one for one in alarms(condition_of(snapshot)) if one.name == "journal_not_written"]
        assert alarm.sentence.startswith("the journal is not written (No space left on device")
        full = False
        await until(lambda: hosted.pairing.syphon.status is SyphonStatus.IDLE)
    assert [act[0] for act in hosted.pairing.acts] == ["force", "pause", "resume"]
    texts = [record.event.text for record in read_records(hosted.spool) if isinstance(record.event, Warned)]
    assert any("the journal is written again" in text and "missing" in text for text in texts)


async def test_that_old_files_are_deleted_is_said_once(engine: Engine, until: Until) -> None:
    async with engine() as hosted, hosted.console() as client:
        hosted.host._journal.deleted = 3
        await newest_snapshot(client, lambda snapshot: snapshot.seq > 1)
        before = hosted.host.record(Warned(at=1.0, about="test", text="later"))
        await newest_snapshot(client, lambda snapshot: snapshot.seq >= before)
    texts = [record.event.text for record in read_records(hosted.spool) if isinstance(record.event, Warned)]
    assert len([text for text in texts if "its oldest files are deleted from now on" in text]) == 1


# -- An engine's log stays small, whatever is written to it, and tells of itself what it leaves out.


FLOOD = """
import logging, os, sys
from pathlib import Path
from paired_servicebus.engine.instance import logs
logs.MAX_FILE_BYTES = 20_000
logs.log_to_file(Path(sys.argv[1]))
log = logging.getLogger("paired_servicebus.engine")
for number in range(3000):
    log.warning("line %d of the log", number)
    print(f"line {number} of a library", file=sys.stderr)
os.write(2, b"the interpreter's own last words\\n")
"""


@pytest.fixture
def record() -> logging.LogRecord:
    return logging.LogRecord("paired_servicebus.engine", logging.WARNING, __file__, 1, "it failed: %s", ("why",), None)


def test_the_log_and_standard_error_together_stay_below_a_bound(tmp_path: Path) -> None:
    """The bug: one file for each start, of any length; 189 MB were reached."""
    path = tmp_path / "engine-1.log"
    done = subprocess.run([sys.executable, "-c", FLOOD, str(path)], capture_output=True, text=True, check=True)
    files = sorted(tmp_path.iterdir())
    assert [each.name for each in files] == ["engine-1.log", "engine-1.log.1"]
    assert sum(each.stat().st_size for each in files) <= 2 * 20_000 + 100
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    text = path.read_text()
    assert "line 2999 of the log" in text
    assert "on standard error: line 2999 of a library" in text
    assert text.endswith("the interpreter's own last words\n"), "standard error goes on in the newest file"
    assert (done.stdout, done.stderr) == ("", "")


def test_a_line_that_repeats_is_counted_instead_of_written(record: logging.LogRecord) -> None:
    repeats = RepeatFilter()
    assert repeats.filter(record)
    for _ in range(999):
        assert not repeats.filter(logging.makeLogRecord(record.__dict__))
    later = logging.makeLogRecord(record.__dict__)
    later.created += logs.FOLD_SECONDS
    assert repeats.filter(later)
    assert later.getMessage() == "it failed: why (and 999 more times since then)"


def test_other_lines_pass_and_what_is_remembered_of_them_is_bounded(record: logging.LogRecord) -> None:
    repeats = RepeatFilter()
    for number in range(2 * logs.MAX_REMEMBERED_LINES):
        other = logging.makeLogRecord(record.__dict__ | {"args": (number,)})
        assert repeats.filter(other)
    assert len(repeats._seen) == logs.MAX_REMEMBERED_LINES


def test_the_log_folds(request: pytest.FixtureRequest) -> None:
    root, ours = logging.getLogger(), logging.getLogger("paired_servicebus")
    before = root.handlers[:], root.level, ours.level

    def restore() -> None:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        ours.setLevel(before[2])
        logging.captureWarnings(False)

    request.addfinalizer(restore)
    stream = io.StringIO()
    log_to(stream)
    for _ in range(100):
        logging.getLogger("asyncio").error("socket.accept() out of system resource")
    assert stream.getvalue().count("out of system resource") == 1


def test_a_start_removes_the_oldest_logs_beyond_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_KEPT_BYTES", 250)
    for day in range(1, 5):
        (tmp_path / f"engine-2025010{day}T000000.000000Z.log").write_bytes(b"x" * 100)
    (tmp_path / "drain-1.log").write_bytes(b"x" * 1000)
    new_log_file(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "drain-1.log",
        "engine-20250103T000000.000000Z.log",
        "engine-20250104T000000.000000Z.log",
    ]


# -- What engines told before this one: read from their journal, within bounds, and told to consoles that come.


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
    spool.prepare(tmp_path)
    assert texts(tmp_path) == []
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


# -- The operator's command, with real processes: what it is given, how it ends, and that it holds nobody up ---------

IDENTITY = EngineIdentity.of("orders", environment="production")
OVER = StateChanged(at=1.0, entity="orders", was="suspect", now="failed over", why="no send accepted")
SECRET = "Endpoint=sb://contoso/;SharedAccessKeyName=Root;SharedAccessKey=c4n4ry"


class Calls:
    """A hook that runs, what it said was wrong, and how to tell it an event."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.said: list[str] = []

    def note(self, event: Event) -> None:
        record = Record(engine=IDENTITY.engine, boot=IDENTITY.boot, seq=7, event=event)
        self.hook.note(record, records.encode(record))


@asynccontextmanager
async def calling(command: tuple[str, ...], folder: Path, **options: Any) -> AsyncIterator[Calls]:
    calls = Calls(Hook(command, folder=folder, identity=IDENTITY, **options))
    running = asyncio.create_task(calls.hook.run(calls.said.append))
    yield calls
    running.cancel()
    await asyncio.wait([running])


def program(folder: Path, text: str) -> tuple[str, ...]:
    """A Python program as the command."""
    path = folder / "hook.py"
    path.write_text(text)
    return (sys.executable, str(path))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_it_is_given_the_event_and_a_few_variables_and_no_secret(tmp_path: Path, until: Until) -> None:
    text = """
import json, os, sys
told = {"stdin": sys.stdin.read(), "environ": dict(os.environ), "folder": os.getcwd(), "argv": sys.argv[1:]}
open("told.part", "w").write(json.dumps(told))
os.rename("told.part", "told")
"""
    environ = {"PATH": os.environ["PATH"], "PRIMARY": SECRET, "AZURE_CLIENT_SECRET": "c4n4ry", "LANG": "C.UTF-8"}
    command = (*program(tmp_path, text), "$PRIMARY", "a b")
    async with calling(command, tmp_path, environ=environ) as calls:
        calls.note(StateChanged(at=1.0, entity="a\nb", was="suspect", now="failed over", why=f"refused {SECRET}"))
        await until(lambda: (tmp_path / "told").exists())
    told = json.loads((tmp_path / "told").read_text())
    event = json.loads(told["stdin"])
    assert (event["kind"], event["entity"], event["now"], event["seq"]) == ("state-changed", "a\nb", "failed over", 7)
    assert {name: told["environ"][name] for name in told["environ"] if name.startswith("PAIRED")} == {
        "PAIRED_PAIRING": "orders",
        "PAIRED_ENVIRONMENT": "production",
        "PAIRED_ENGINE": IDENTITY.engine,
        "PAIRED_SUBJECT": "a b",
        "PAIRED_STATE": "failed over",
        "PAIRED_TEXT": "a b failed over: refused Endpoint=sb://contoso/;SharedAccessKeyName=Root;SharedAccessKey=***",
    }
    assert "c4n4ry" not in json.dumps(told)
    assert told["argv"] == ["$PRIMARY", "a b"], "no shell is between"
    assert Path(told["folder"]) == tmp_path


async def test_a_name_of_any_kind_and_length_still_calls(tmp_path: Path, until: Until) -> None:
    """The kernel refuses a program with a variable of more than 128 KiB, and any with a NUL in it."""
    text = (
        "import json, os, sys\nline = json.loads(sys.stdin.read())\nopen('t', 'w').write(os.environ['PAIRED_SUBJECT'])"
    )
    name = "\0--help\n\x1b[2J" + "\U0001f525" * 70_000
    async with calling(program(tmp_path, text + "\nos.rename('t', 'told')"), tmp_path) as calls:
        calls.note(StateChanged(at=1.0, entity=name, was="suspect", now="failed over", why=name))
        await until(lambda: (tmp_path / "told").exists() or bool(calls.said))
    assert calls.said == []
    told = (tmp_path / "told").read_text()
    assert told.startswith("\\x00--help \\x1b[2J")
    assert len(told) == hook_module.MAX_VARIABLE_CHARS


async def test_only_what_calls_a_person_runs_it(tmp_path: Path, until: Until) -> None:
    text = "import os\nopen('calls', 'a').write(os.environ['PAIRED_SUBJECT'] + ' ')"
    async with calling(program(tmp_path, text), tmp_path) as calls:
        for event in (
            PingSent(at=1.0, entity="ping", number=1),
            StateChanged(at=1.0, entity="suspected", was="healthy", now="suspect", why="because"),
            Warned(at=1.0, about="on_change", text="it failed"),
            OVER,
            Warned(at=1.0, about="alarm", text="nearly full"),
        ):
            calls.note(event)
        await until(lambda: (tmp_path / "calls").exists() and "alarm" in (tmp_path / "calls").read_text())
    assert (tmp_path / "calls").read_text() == "orders alarm "
    assert calls.said == []


async def test_what_takes_too_long_is_killed_with_its_children(tmp_path: Path, until: Until) -> None:
    text = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("pids.part", "w").write(f"{os.getpid()} {child.pid}")
os.rename("pids.part", "pids")
time.sleep(600)
"""
    async with calling(program(tmp_path, text), tmp_path, timeout=3.0) as calls:
        calls.note(OVER)
        await until(lambda: bool(calls.said))
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        await until(lambda: not any(map(alive, pids)))
    assert calls.said == [f"on_change ({sys.executable}) was killed: it had not ended after 3 s"]


async def test_what_it_leaves_behind_ends_with_it(tmp_path: Path, until: Until) -> None:
    command = ("sh", "-c", "sleep 600 & echo $! > pid.part; mv pid.part pid")
    async with calling(command, tmp_path) as calls:
        calls.note(OVER)
        await until(lambda: (tmp_path / "pid").exists())
        left = int((tmp_path / "pid").read_text())
        await until(lambda: not alive(left))
    assert calls.said == []


async def test_an_engine_that_ends_takes_it_along(tmp_path: Path, until: Until) -> None:
    async with calling(("sh", "-c", "echo $$ > pid.part; mv pid.part pid; sleep 600"), tmp_path) as calls:
        calls.note(OVER)
        await until(lambda: (tmp_path / "pid").exists())
    assert not alive(int((tmp_path / "pid").read_text()))


async def test_an_engine_that_ends_while_it_starts_takes_it_along(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    start, is_told = loop.subprocess_exec, asyncio.Event()

    async def slowly(*arguments: Any, **how: Any) -> Any:
        started = await start(*arguments, **how)
        await until(lambda: (tmp_path / "pid").exists())
        is_told.set()
        await asyncio.sleep(0.2)
        return started

    monkeypatch.setattr(loop, "subprocess_exec", slowly)
    async with calling(("sh", "-c", "echo $$ > pid.part; mv pid.part pid; sleep 600"), tmp_path) as calls:
        calls.note(OVER)
        await is_told.wait()
    assert not alive(int((tmp_path / "pid").read_text()))


async def test_a_failure_is_said_with_the_last_it_said_itself(tmp_path: Path, until: Until) -> None:
    text = f"import sys\nsys.stderr.write('x' * 100_000 + '\\ncurl: (22) error: 404 {SECRET}\\x1b[2J\\n')\nsys.exit(22)"
    async with calling(program(tmp_path, text), tmp_path) as calls:
        calls.note(OVER)
        await until(lambda: bool(calls.said))
    (said,) = calls.said
    assert "ended with exit status 22: " in said
    assert said.endswith("SharedAccessKey=***")
    assert len(said) < 600
    assert said.isprintable()


@pytest.mark.parametrize("command", ["no-such-program", "./neither"])
async def test_a_program_that_is_not_there_is_said_before_it_is_needed(
    tmp_path: Path, until: Until, command: str
) -> None:
    async with calling((command,), tmp_path) as calls:
        await until(lambda: bool(calls.said))
        assert calls.said == [f"on_change names {command}, which is no program here: it will not be run"]
        calls.note(OVER)
        await until(lambda: len(calls.said) == 2)
    assert "could not be run: " in calls.said[1]


async def test_one_at_a_time_and_what_has_no_room_is_counted(tmp_path: Path, until: Until) -> None:
    text = """
mkdir running || touch two
while [ ! -e go ]; do sleep 0.05; done
printf '%s ' "$PAIRED_SUBJECT" >> calls
rmdir running
"""
    async with calling(("sh", "-c", text), tmp_path) as calls:
        calls.note(OVER)
        await until(lambda: (tmp_path / "running").exists())
        for number in range(MAX_WAITING_CALLS + 3):
            calls.note(StateChanged(at=1.0, entity=str(number), was="suspect", now="failed over", why="because"))
        (tmp_path / "go").touch()
        expected = ["orders", *(str(number) for number in range(3, MAX_WAITING_CALLS + 3))]
        await until(lambda: (tmp_path / "calls").exists() and (tmp_path / "calls").read_text().split() == expected)
    assert calls.said == ["on_change is too slow: 3 waiting changes were dropped, the oldest first"]
    assert not (tmp_path / "two").exists()


async def test_one_that_reads_nothing_and_closes_its_ears_is_no_trouble(tmp_path: Path, until: Until) -> None:
    async with calling(("sh", "-c", "exec <&-; echo x >> calls"), tmp_path) as calls:
        for _ in range(3):
            calls.note(OVER)
        await until(lambda: (tmp_path / "calls").exists() and (tmp_path / "calls").read_text() == "x\n" * 3)
    assert calls.said == []


async def test_what_makes_itself_a_session_of_its_own_holds_nobody_up(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_module, "KILL_TIMEOUT", 0.1)
    text = """
import os, subprocess, sys
away = [sys.executable, "-c", "import time; time.sleep(600)"]
child = subprocess.Popen(away, start_new_session=True)
open("pids", "a").write(f"{child.pid} ")
"""
    async with calling(program(tmp_path, text), tmp_path) as calls:
        calls.note(OVER)
        calls.note(OVER)
        await until(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    still_there = [alive(pid) for pid in pids]
    for pid in pids:
        os.kill(pid, 9)
    assert still_there == [True, True]
