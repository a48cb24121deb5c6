"""An order is one row, one handler and one method of the pairing, and no other module names it.

Then a new order needs these places only (HOW_IT_WORKS.md, "To add an order"). The command line, the control protocol
and the console have it from its row.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from cyclopts import App

import paired_servicebus
from paired_servicebus.cli import app
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.operator import actions
from paired_servicebus.core.operator.action_row import Action
from paired_servicebus.core.operator.actions import ACTIONS, BY_ID, BY_VERB, VERB_GROUPS
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.engine.commands import guard
from paired_servicebus.engine.commands.guard import (
    COMMAND_HANDLERS,
    CommandContext,
    CommandTarget,
    StandingOrder,
)
from paired_servicebus.engine.control.protocol import Arm, Command
from paired_servicebus.pairing.paired_client import OperatorOrders
from paired_servicebus.ui.commands.action_table import CONSOLE_ACTIONS
from paired_servicebus.ui.state.view import Page
from paired_servicebus.verbs import order_verbs

ROOT = Path(paired_servicebus.__file__).parent
LOOKS = ("_", "look_at_")
PORT = {name for name, it in vars(OperatorOrders).items() if inspect.isfunction(it) and not name.startswith(LOOKS)}
"""The orders that a pairing executes."""
OF_THE_ENGINE = {"drain", "end-drain", "read-only", "read-write", "stop"}
"""Orders that the engine executes without its pairing."""

ALIKE = {
    "core/drill/drill_plan.py": {"drain"},
    "core/model/fleet_view.py": {"read-only"},
    "demo/fleet/fleet_player.py": {"force", "release"},
    "demo/result.py": {"read-only"},
    "engine/commands/drain_process.py": {"drain"},
    "engine/service/launcher.py": {"read-only"},
    "engine/service/main.py": {"drain"},
    "pipeline/drain/drain_command.py": {"drain", "stop"},
    "pipeline/drain/drain_files.py": {"stop"},
    "pipeline/drain/drain_main.py": {"drain", "stop"},
    "pipeline/rehearsal/histories/journal_history.py": {"force", "pin", "release"},
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
    target = {Scope.ALL: "", Scope.DEAD_LETTERS: "0/1"}.get(action.scope, "0")
    assert await COMMAND_HANDLERS[action.id](context, CommandTarget(scope=action.scope, target=target, by="ada"))
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
    assert sorted(called) == sorted(PORT), "one order each"
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
    for path in sorted(set(ROOT.rglob("*.py")) - tables):
        named = {
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in BY_ID
        }
        name = path.relative_to(ROOT).as_posix()
        if named - ALIKE.get(name, set()):
            found[name] = named
    assert found == {}


def test_the_id_of_an_action_keeps_its_name_on_the_wire_and_on_disk() -> None:
    order = StandingOrder(action_id="pin", scope=Scope.ENTITY, target="orders", by="ada", at=1.0)
    for message in (Arm(id=1, action_id="pin", by="ada"), Command(id=1, action_id="pin", by="ada"), order):
        assert msgspec.to_builtins(message)["verb"] == "pin"
        assert "action_id" not in msgspec.to_builtins(message)


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
    assert (request.action, request.scope, request.targets) == (DROP, scope, targets)
    assert (request.consent.why, request.confirmed) == (("drill", True) if scope is Scope.QUEUE else ("", False))


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
