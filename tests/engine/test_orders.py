"""Orders: one row, one handler and one method of the pairing each; those that stand are taken up by the next engine."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from cyclopts import App

import paired_servicebus
from paired_servicebus.cli import app
from paired_servicebus.core.errors import ConfigurationError, IllegalEventError
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.pairing_events import Commanded, CommandEnded, Warned
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.core.operator import actions
from paired_servicebus.core.operator.action_row import Action
from paired_servicebus.core.operator.actions import ACTIONS, BY_ID, BY_VERB, VERB_GROUPS
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.engine.commands import guard
from paired_servicebus.engine.commands.guard import (
    COMMAND_HANDLERS,
    CommandContext,
    StandingOrder,
    StandingOrders,
)
from paired_servicebus.engine.control.control_client import ControlClient, user_name
from paired_servicebus.engine.control.protocol import Arm, Execute
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.journal import records, spool
from paired_servicebus.engine.journal.records import UnreadableLines
from paired_servicebus.engine.journal.timeline_replay import unfinished
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.pairing.paired_client import OperatorOrders
from paired_servicebus.ui.commands.action_table import CONSOLE_ACTIONS
from paired_servicebus.ui.state.view import Page
from paired_servicebus.verbs import order_verbs
from tests.journal_files import read_records

from .conftest import FakePairing

ROOT = Path(paired_servicebus.__file__).parent
LOOKS = ("_", "look_at_", "list_")
PORT = {name for name, it in vars(OperatorOrders).items() if inspect.isfunction(it) and not name.startswith(LOOKS)}
"""The orders that a pairing executes."""
OF_THE_ENGINE = {"drain", "end-drain", "read-only", "read-write", "stop"}
"""Orders that the engine executes without its pairing."""

ALIKE = {
    "core/drill/drill_plan.py": {"drain"},
    "core/model/fleet_view.py": {"read-only"},
    "core/model/pairing_fold.py": {"force", "pin"},
    "demo/fleet_player.py": {"force", "release"},
    "demo/result.py": {"read-only"},
    "engine/commands/drain_process.py": {"drain"},
    "engine/service/launcher.py": {"read-only"},
    "engine/service/main.py": {"drain"},
    "pipeline/drain/drain_command.py": {"drain", "stop"},
    "pipeline/drain/drain_files.py": {"stop"},
    "pipeline/drain/drain_main.py": {"drain", "stop"},
    "pipeline/rehearsal/recorded_history.py": {"force", "pin", "release"},
    "pipeline/spark/spark_session.py": {"release"},
    "ui/commands/action_table.py": {"release", "pause-syphon"},
    "ui/screens/messages_screen.py": {"redrive"},
    "ui/shell/app.py": set(BY_ID),  # synonyms: an order without any is found by its label
    "simulation/fleet/fleet_plan.py": {
        "force",
        "pause-syphon",
        "pin",
        "read-only",
        "read-write",
        "redrive",
        "release",
        "resume-syphon",
    },
    "simulation/fleet/sim_enemy.py": {"force"},
    "simulation/fleet/sim_fleet_engine.py": {"pause-syphon", "resume-syphon"},
    "simulation/fleet/sim_guard.py": {"force", "pin"},
    "simulation/plan_generator.py": {"force", "pin", "release"},
    "simulation/run_plan.py": {"force", "pin", "release"},
    "simulation/sim_engine.py": {"force", "pin", "release"},
    "simulation/world.py": {"release"},
    "ui/widgets/frame/page_lines.py": {"read-only"},
}
"""Equal strings of another meaning: `paired drain`, names of files, a word on screen, the simulation's acts."""


def by_id(action: Action) -> str:
    return action.id


class Recording:
    """A pairing that notes which of its methods were called."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        declared = getattr(OperatorOrders, name)

        def call(*args: Any, **more: Any) -> Any:
            inspect.signature(declared).bind(self, *args, **more)
            self.called.append(name)
            return later() if inspect.iscoroutinefunction(declared) else "done"

        async def later() -> str:
            return "done"

        return call


class NoDrains:
    async def start(self, *, why: str) -> str:
        return "it drains"

    def end(self) -> str:
        return "it ends"


async def methods_of(action: Action) -> list[str]:
    """The pairing's methods that the handler of an action calls."""
    paired = Recording()
    context: Any = CommandContext(paired, end=lambda _reason: None, drains=NoDrains())  # type: ignore[arg-type]
    targets: tuple[str, ...] = {Scope.ALL: (), Scope.DEAD_LETTERS: ("0/1",)}.get(action.scope, ("0",))
    command = Command(action_id=action.id, scope=action.scope, targets=targets, by="ada")
    assert await COMMAND_HANDLERS[action.id](context, command)
    return paired.called


def test_every_row_has_one_handler_and_every_handler_a_row() -> None:
    assert COMMAND_HANDLERS.keys() == BY_ID.keys()
    assert len(BY_ID) == len(ACTIONS)
    assert len(set(COMMAND_HANDLERS.values())) == len(ACTIONS)
    assert {handler.__module__ for handler in COMMAND_HANDLERS.values()} == {guard.__name__}


@pytest.mark.parametrize("action", ACTIONS, ids=by_id)
async def test_a_handler_calls_one_method_of_the_pairing(action: Action) -> None:
    assert len(await methods_of(action)) == (0 if action.id in OF_THE_ENGINE else 1)


async def test_every_method_of_the_pairing_is_of_one_order_and_answers_with_a_sentence() -> None:
    called = [name for action in ACTIONS for name in await methods_of(action)]
    assert set(called) == PORT, "each is of an order"
    for name in PORT:
        assert get_type_hints(getattr(OperatorOrders, name))["return"] is str, name


@pytest.mark.parametrize("action", ACTIONS, ids=by_id)
def test_a_row_has_one_verb_and_the_command_line_has_it(action: Action) -> None:
    assert BY_VERB[action.verb] is action
    word, *rest = action.verb.split()
    assert len(rest) <= 1
    assert not rest or word in VERB_GROUPS
    command = app
    for part in action.verb.split():
        command = command[part]
    assert command.default_command is not None


@pytest.mark.parametrize("action", ACTIONS, ids=by_id)
def test_a_row_with_a_key_has_one_action_of_the_console(action: Action) -> None:
    found = [one for one in CONSOLE_ACTIONS if one.order is action]
    assert [one.id for one in found] == ([action.id] if action.key else [])
    assert action.key_line.keys() <= {page.value for page in Page}
    assert action.key or not action.key_line


@pytest.mark.parametrize("action", ACTIONS, ids=by_id)
def test_a_row_has_all_its_words(action: Action) -> None:
    assert action.label
    assert action.help
    assert bool(action.facts) == (action.dangerous and bool(action.key)), "what is armed on screen has a preview"
    assert not (action.dangerous and action.ask), "what is armed asks nothing else"
    assert bool(action.confirms) == bool(action.confirms_help)
    assert not action.undo or BY_ID[action.undo].key
    assert action.undo or action.undo_note or not action.facts, "the way back, or that there is none"
    assert not action.revokes or action.stands_for
    assert get_type_hints(Action).keys() == {*Action.__dataclass_fields__}, "every column is typed"


def test_no_other_module_names_an_order() -> None:
    """Else the number of places that a new order needs grows again."""
    tables = {Path(actions.__file__), Path(guard.__file__)}
    found: dict[str, set[str]] = {}
    quoted = [f'"{name}"' for name in BY_ID]
    for path in sorted(set(ROOT.rglob("*.py")) - tables):
        text = path.read_text()
        if not any(one in text for one in quoted):
            continue
        named = {
            node.value
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in BY_ID
        }
        name = path.relative_to(ROOT).as_posix()
        if named - ALIKE.get(name, set()):
            found[name] = named
    assert found == {}


def test_the_same_command_is_on_the_wire_and_on_disk() -> None:
    command = Command(action_id="pin", scope=Scope.ENTITY, targets=("orders",), by="ada", why="drill")
    for message in (Arm(id=1, command=command), Execute(id=1, command=command), StandingOrder(command=command, at=1.0)):
        assert msgspec.json.decode(msgspec.json.encode(message), type=type(message)).command == command


DROP = Action(
    id="drop",
    label="drop",
    help="drop deferred messages",
    verb="syphon drop-deferred",
    scopes=(Scope.ENTITY, Scope.QUEUE),
    dangerous=True,
    confirms="no one waits",
    confirms_help="You know it.",
)
"""A row of two words and two scopes that no code knows."""


@pytest.mark.parametrize(
    ("words", "scope", "targets"),
    [
        (["orders", "audit", "--yes", "2"], Scope.ENTITY, ("orders", "audit")),
        (["--queue", "3", "--no-one-waits", "--why", "drill"], Scope.QUEUE, ("3",)),
        (["--matching", "or"], Scope.ENTITY, ()),
    ],
)
def test_a_verb_is_made_from_its_row_alone(
    monkeypatch: pytest.MonkeyPatch, words: list[str], scope: Scope, targets: tuple[str, ...]
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(order_verbs, "order", lambda request, _engines: asked.append(request) or 0)
    group = App(name="syphon", result_action="return_value")
    group.command(order_verbs.make_verb(DROP))
    assert group(["drop-deferred", *words]) == 0
    (request,) = asked
    command = request.command
    assert (command.action_id, command.scope, command.targets) == (DROP.id, scope, targets)
    assert (command.why, request.confirmed) == (("drill", True) if scope is Scope.QUEUE else ("", False))


@pytest.mark.parametrize(
    ("names", "more", "sentence"),
    [
        (("orders",), {"queue": "3"}, "the names and --queue are two orders: give them one after the other"),
        ((), {}, "name the entities, or --matching TEXT"),
        (("orders",), {"matching": "x"}, "name the entities, or --matching TEXT"),
    ],
)
def test_a_verb_gives_one_order(names: tuple[str, ...], more: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        order_verbs.make_verb(DROP)(*names, **more)


# -- Orders that stand: the engine after the one that took them takes them up, or says that they ended ---------------

FORCE = Command(action_id="force", scope=Scope.ENTITY, targets=("orders",), by="ada", why="drill")
PAUSE = Command(action_id="pause-syphon", scope=Scope.ALL, by="ada")


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
        done = await client.order(Command(action_id=action_id, targets=tuple(targets), by="ada", why="drill"), **more)
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
    third = fresh()
    async with boot(short, third):
        assert third.acts == next_one.acts, "every engine after it takes them up"


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
        done = await client.execute(Command(action_id="pause-syphon", by="ada"))
        await client.close()
    assert done.ok
    assert "(the engine after this one will not know: No space left on device in " in done.text


@pytest.mark.parametrize(
    ("commands", "left"),
    [
        ([FORCE, replace(FORCE, action_id="pin")], ["pin"]),
        ([FORCE, replace(FORCE, action_id="release", targets=("ORDERS",))], []),
        ([PAUSE, FORCE], ["pause-syphon", "force"]),
        ([replace(PAUSE, action_id="read-only"), replace(PAUSE, action_id="read-write")], []),
        ([replace(PAUSE, action_id="redrive")], []),
    ],
)
async def test_the_newest_order_about_a_target_stands(tmp_path: Path, commands: list[Command], left: list[str]) -> None:
    orders = StandingOrders(tmp_path)
    for command in commands:
        orders.note(command, at=1.0)
    assert await orders.keep() == ""
    assert [order.command.action_id for order in StandingOrders(tmp_path).read()] == left


# -- An engine killed between the audit line and the end of an act: the next one says that its outcome is unknown.


TREE = Path(__file__).parents[2]
KILLED_WHILE_ACTING = """
import asyncio, os, signal, sys
from pathlib import Path
from paired_servicebus.core.model.command import Command
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
        await client.execute(Command(action_id="pause-syphon", by="ada"))
        force = Command(action_id="force", targets=("orders",), by="ada", why="drill")
        await client.order(force, typed="orders")

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_an_engine_killed_after_the_audit_line_leaves_the_outcome_unknown(engine: Any, short: Path) -> None:
    environ = os.environ | {"PYTHONPATH": str(TREE)}  # the program imports from tests, wherever this one was started
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
