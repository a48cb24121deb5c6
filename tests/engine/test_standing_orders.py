"""Orders that stand: the engine after the one that took them takes them up, or says that they ended."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.model.pairing_events import Commanded, CommandEnded, Warned
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.core.operator.actions import BY_ID
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.engine.commands import guard
from paired_servicebus.engine.commands.guard import CommandTarget, StandingOrders
from paired_servicebus.engine.control.control_client import ControlClient, user_name
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.journal import records, spool
from paired_servicebus.engine.journal.records import UnreadableLines
from paired_servicebus.engine.journal.timeline_replay import unfinished
from paired_servicebus.engine.service.engine_host import EngineHost
from tests.engine.conftest import FakePairing
from tests.journal_files import read_records

FORCE = CommandTarget(scope=Scope.ENTITY, target="orders", by="ada", why="drill")
PAUSE = CommandTarget(scope=Scope.ALL, target="", by="ada")


def fresh() -> FakePairing:
    pairing = FakePairing()
    pairing.watch("orders")
    return pairing


@asynccontextmanager
async def boot(folder: Path, pairing: FakePairing, *, take_up: bool = True) -> Any:
    """An engine as its process runs it; without `take_up` as an application does."""
    identity = EngineIdentity.of("orders")
    async with EngineHost(identity, spool=folder / "spool", socket=folder / "s", policy=Policy()) as host:
        if take_up:
            await host.take_up(pairing)
        await host.adopt(pairing)
        yield host


def said(folder: Path) -> list[str]:
    """What the timeline says about orders that stood."""
    events = (record.event for record in read_records(folder / "spool"))
    return [event.text for event in events if isinstance(event, Warned) and event.about == "standing"]


async def ordered(host: EngineHost, *orders: tuple[Any, ...]) -> None:
    client = await ControlClient.connect(host._socket)
    for action_id, *targets in orders:
        more = {"typed": targets[0]} if action_id in ("force", "pin", "release") else {}
        done = await client.order(action_id, targets=tuple(targets), by="ada", why="drill", **more)
        assert done.ok, done.text
    await client.close()


async def test_what_was_forced_and_paused_is_so_in_the_next_engine(short: Path) -> None:
    async with boot(short, fresh()) as host:
        await ordered(host, ("force", "orders"), ("pause-syphon",))
    next_one = fresh()
    async with boot(short, next_one):
        assert next_one.acts == [("force", "orders", user_name(), "drill"), ("pause", user_name(), "drill")]
        assert next_one.syphon.status is SyphonStatus.PAUSED
    force, pause = said(short)
    assert force.startswith("still stands: force orders, ordered ")
    assert force.endswith(f' by {user_name()} "drill"; taken up from the engine before')
    assert pause.startswith("still stands: pause-syphon, ordered ")


async def test_what_stands_is_taken_up_by_every_engine_after_it(short: Path) -> None:
    async with boot(short, fresh()) as host:
        await ordered(host, ("force", "orders"))
    async with boot(short, fresh()):
        pass
    third = fresh()
    async with boot(short, third):
        assert third.acts == [("force", "orders", user_name(), "drill")]


async def test_what_was_taken_back_is_not_taken_up(short: Path) -> None:
    async with boot(short, fresh()) as host:
        await ordered(host, ("force", "orders"), ("pause-syphon",), ("release", "orders"), ("resume-syphon",))
    next_one = fresh()
    async with boot(short, next_one):
        assert next_one.acts == []
    assert said(short) == []


async def test_an_engine_made_read_only_by_hand_starts_so_again(short: Path) -> None:
    async with boot(short, fresh()) as host:
        await ordered(host, ("read-only",))
    async with boot(short, fresh()) as host:
        assert host.latest().read_only


async def test_in_an_application_orders_end_with_the_process_and_that_is_said_once(short: Path) -> None:
    async with boot(short, fresh()) as host:
        await ordered(host, ("force", "orders"))
    next_one = fresh()
    async with boot(short, next_one, take_up=False):
        assert next_one.acts == []
    (text,) = said(short)
    assert text.startswith("stands no longer: force orders, ordered ")
    async with boot(short, fresh(), take_up=False):
        pass
    assert len(said(short)) == 1


async def test_an_order_that_the_pairing_refuses_now_is_named(short: Path) -> None:
    async with boot(short, fresh()) as host:
        await ordered(host, ("force", "orders"))
    broken = fresh()
    broken.force = refuse  # type: ignore[method-assign]
    async with boot(short, broken):
        pass
    (text,) = said(short)
    assert text.startswith("cannot be taken up: force orders, ordered ")
    assert text.endswith("; there are no senders")


def refuse(*_args: object, **_named: object) -> str:
    raise IllegalEventError("there are no senders")


async def test_orders_that_cannot_be_read_are_said_and_the_engine_starts(short: Path) -> None:
    (short / "spool").mkdir()
    (short / "spool" / "standing.json").write_text("{")
    async with boot(short, fresh()):
        pass
    (text,) = said(short)
    assert text.startswith("the standing orders of the engine before cannot be read (")


async def test_an_answer_says_when_the_order_could_not_be_kept(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(guard, "replace_file", full)
    async with boot(short, fresh()) as host:
        client = await ControlClient.connect(host._socket)
        done = await client.command("pause-syphon", by="ada")
        await client.close()
    assert done.ok
    assert "(the engine after this one will not know: No space left on device in " in done.text


@pytest.mark.parametrize(
    ("deeds", "left"),
    [
        ([("force", FORCE), ("pin", FORCE)], ["pin"]),
        ([("force", FORCE), ("release", replace(FORCE, target="ORDERS"))], []),
        ([("pause-syphon", PAUSE), ("force", FORCE)], ["pause-syphon", "force"]),
        ([("read-only", PAUSE), ("read-write", PAUSE)], []),
        ([("redrive", PAUSE)], []),
    ],
)
async def test_the_newest_order_about_a_target_stands(
    tmp_path: Path, deeds: list[tuple[str, CommandTarget]], left: list[str]
) -> None:
    orders = StandingOrders(tmp_path)
    for action_id, deed in deeds:
        orders.note(BY_ID[action_id], deed, at=1.0)
    assert await orders.keep() == ""
    assert [order.action_id for order in StandingOrders(tmp_path).read()] == left


# -- An engine killed between the audit line and the end of an act: the next one says that its outcome is unknown.


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
