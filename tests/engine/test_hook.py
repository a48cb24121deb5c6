"""The operator's command, with real processes: what it is given, how it ends, and that it holds nobody up."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.model.pairing_events import Event, PingSent, Record, StateChanged, Warned
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.journal import records
from paired_servicebus.engine.service import hook as hook_module
from paired_servicebus.engine.service.hook import MAX_WAITING_CALLS, Hook

Until = Callable[[Callable[[], bool]], Awaitable[None]]
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
