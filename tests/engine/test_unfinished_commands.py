"""An engine killed between the audit line and the end of an act: the next one says that its outcome is unknown."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.model.pairing_events import Commanded, CommandEnded, Warned
from paired_servicebus.engine.control.control_client import user_name
from paired_servicebus.engine.journal import records, spool
from paired_servicebus.engine.journal.records import UnreadableLines
from paired_servicebus.engine.journal.timeline_replay import unfinished
from tests.journal_files import read_records

ROOT = Path(__file__).parents[2]
KILLED_WHILE_ACTING = """
import asyncio, os, signal, sys
from pathlib import Path
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.engine.instance.identity import EngineIdentity
from tests.engine.conftest import FakePairing

async def main(folder):
    pairing = FakePairing(before_act=lambda: os.kill(os.getpid(), signal.SIGKILL))
    pairing.watch("orders")
    identity = EngineIdentity.of("orders")
    async with EngineHost(identity, spool=folder / "spool", socket=folder / "s", policy=Policy()) as host:
        await host.adopt(pairing)
        client = await ControlClient.connect(folder / "s")
        await client.command("pause-syphon", by="ada")
        await client.order("force", targets=("orders",), by="ada", why="drill", typed="orders")

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_an_engine_killed_after_the_audit_line_leaves_the_outcome_unknown(engine: Any, short: Path) -> None:
    environ = os.environ | {"PYTHONPATH": str(ROOT)}  # the program imports from tests, wherever this one was started
    command = [sys.executable, "-c", KILLED_WHILE_ACTING, str(short)]
    process = await asyncio.create_subprocess_exec(*command, env=environ)
    async with asyncio.timeout(60):
        assert await process.wait() == -signal.SIGKILL
    async with engine() as hosted:
        pass
    told = [record.event for record in read_records(hosted.spool)]
    (said,) = [event.text for event in told if isinstance(event, Warned) and event.about == "audit"]
    assert said.startswith("outcome unknown: force orders, ordered ")
    assert f'by {user_name()} "drill": the engine ended before its outcome was written' in said
    async with engine() as again:
        pass
    told = [record.event for record in read_records(again.spool)]
    assert len([event for event in told if isinstance(event, Warned) and event.about == "audit"]) == 1, "said once"


def write(folder: Path, boot: int, *events: Any, first: int = 1) -> None:
    spool.prepare(folder)
    lines = [
        records.encode(records.Record(engine="e", boot=f"b{boot}", seq=first + place, event=event))
        for place, event in enumerate(events)
    ]
    name = f"orders@host-{boot:013d}-{first:012d}.jsonl"
    (folder / spool.CLOSED / name).write_bytes(b"\n".join(lines) + b"\n{torn")


def commanded(target: str) -> Commanded:
    return Commanded(at=60.0, command="pin", target=target, by="kim")


def ended(seq: int) -> CommandEnded:
    return CommandEnded(at=61.0, command_seq=seq, outcome="done")


def test_an_act_that_ended_is_not_said(tmp_path: Path) -> None:
    write(tmp_path, 1, commanded("orders"), commanded("payments"), ended(1))
    (said,) = unfinished(tmp_path, UnreadableLines())
    assert said.startswith("outcome unknown: pin payments, ordered 00:01:00 by kim: ")


def test_an_end_in_a_later_file_counts(tmp_path: Path) -> None:
    write(tmp_path, 1, commanded("orders"))
    write(tmp_path, 1, ended(1), first=2)
    assert unfinished(tmp_path, UnreadableLines()) == ()


def test_only_the_newest_boot_is_looked_at(tmp_path: Path) -> None:
    write(tmp_path, 1, commanded("orders"))
    write(tmp_path, 2, Warned(at=1.0, about="audit", text="said already"))
    assert unfinished(tmp_path, UnreadableLines()) == ()


@pytest.mark.parametrize("there", [True, False])
def test_an_empty_journal_has_nothing_to_say(tmp_path: Path, there: bool) -> None:
    if there:
        spool.prepare(tmp_path)
    assert unfinished(tmp_path, UnreadableLines()) == ()
