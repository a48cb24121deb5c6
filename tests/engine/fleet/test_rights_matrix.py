"""Each key of a board, each verb: what the namespace lets it do, and the sentence with the remedy where it does not."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Final

import pytest

from paired_servicebus.core.errors import FleetBoardError
from paired_servicebus.core.fleet.fleet_documents import Board, Goodbye, Order, Watch, encode_order_text
from paired_servicebus.core.fleet.fleet_events import Clean
from paired_servicebus.engine.fleet import service_bus_board
from paired_servicebus.engine.fleet.board_setup import (
    ENGINES,
    OPENS,
    OPERATORS,
    RULES,
    key_files,
    set_up_boards,
    set_up_rules,
)
from paired_servicebus.engine.fleet.service_bus_board import ServiceBusBoard, find_missing_right
from servicebus_sandbox.broker.entity_settings import ALL_RIGHTS, AuthorizationRule, Right

from .conftest import AUTHOR, ORDERS, REPORTS, World, new_id, presence
from .forgeries import PEN, genuine
from .test_board_codec import report

PATHS: Final = {Board.ORDERS: ORDERS, Board.REPORTS: REPORTS}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine answers late, and no key is refused for that."""
    for name in ("READ_SECONDS", "WRITE_SECONDS", "CLEAN_SECONDS", "STEP_SECONDS"):
        monkeypatch.setattr(service_bus_board, name, 60.0)


@dataclass(frozen=True, kw_only=True)
class Key:
    """A key: the rights of its rule, the place of the rule, and whether the key belongs to it."""

    name: str
    rights: frozenset[Right]
    is_right: bool = True

    def may(self, right: Right) -> bool:
        return self.is_right and right in self.rights


KEYS: Final = [
    Key(name="none", rights=frozenset()),
    Key(name="Listen", rights=frozenset({Right.LISTEN})),
    Key(name="Send", rights=frozenset({Right.SEND})),
    Key(name="Send+Listen", rights=frozenset({Right.SEND, Right.LISTEN})),
    Key(name="Manage", rights=ALL_RIGHTS),
    Key(name="wrong", rights=ALL_RIGHTS, is_right=False),
]
PLACES: Final = ("namespace", "queues")


def order() -> Order:
    text = genuine("force", time.time(), why=new_id())
    signed = encode_order_text(text)
    return Order(signed=signed.decode(), signature=PEN.sign(signed))


Act = Callable[[ServiceBusBoard], Awaitable[object]]
VERBS: Final[dict[str, tuple[Board, str, Right, Act]]] = {
    "read orders": (Board.ORDERS, "reading", Right.LISTEN, lambda board: board.read(Board.ORDERS, 1, 250)),
    "read reports": (Board.REPORTS, "reading", Right.LISTEN, lambda board: board.read(Board.REPORTS, 1, 250)),
    "post a watch": (
        Board.ORDERS, "writing", Right.SEND,
        lambda board: board.write(Watch(id=new_id(), by="op", look=5.0, report=15.0), 60.0),
    ),
    "post an order": (Board.ORDERS, "writing", Right.SEND, lambda board: board.write(order(), 60.0)),
    "post a presence": (Board.REPORTS, "writing", Right.SEND, lambda board: board.write(presence(), 60.0)),
    "post a report": (Board.REPORTS, "writing", Right.SEND, lambda board: board.write(report(1), 60.0)),
    "post a goodbye": (
        Board.REPORTS, "writing", Right.SEND,
        lambda board: board.write(Goodbye(id=new_id(), author=AUTHOR, reason="it ends"), 60.0),
    ),
    "clean orders": (
        Board.ORDERS, "cleaning", Right.LISTEN, lambda board: board.clean(Clean(board=Board.ORDERS, before=1.0))
    ),
    "clean reports": (
        Board.REPORTS, "cleaning", Right.LISTEN, lambda board: board.clean(Clean(board=Board.REPORTS, before=1.0))
    ),
}  # fmt: skip
"""Each verb's board, task, needed right and act."""


def key_of(world: World, key: Key, place: str) -> str:
    """Make the rule of a key at its place, or without rights on another queue; return a connection string with it."""
    namespace, one = world.node.namespace, world.sandbox["secondary"]
    rule = AuthorizationRule(name="mine", rights=key.rights or ALL_RIGHTS, primary_key="k", secondary_key="l")
    if place == "namespace" and key.rights:
        world.node.authorization.rules = (*world.node.authorization.rules, rule)
    for path in (ORDERS, REPORTS) if key.rights else (f"{ORDERS}-of-another",):
        if place == "queues" or not key.rights:
            queue = namespace.create_queue(path) if not key.rights else namespace.queue(path)
            namespace.update(namespace.queue(path), replace(queue.settings, authorization_rules=(rule,)))
    return one.connection_string_for("mine", rule.primary_key if key.is_right else "other")


def expected(key: Key, *, peek_needs_send: bool) -> Iterator[tuple[str, str]]:
    """Yield the sentence of each verb; empty: it succeeds. peek_needs_send: the namespace wants Send beside Listen."""
    for verb, (board, task, right, _) in VERBS.items():
        is_extra = task == "reading" and peek_needs_send and key.may(right) and not key.may(Right.SEND)
        needed = f"{right} and {Right.SEND}" if is_extra else right
        is_allowed = key.may(right) and not is_extra
        yield verb, "" if is_allowed else f"the board {PATHS[board]} refused the key: {task} it needs {needed}"


async def sentence(act: Awaitable[object]) -> str:
    """Return the sentence of a refusal without the namespace's own words; empty: it succeeded."""
    try:
        await act
    except FleetBoardError as error:
        return str(error).partition(" (")[0] if not error.is_busy and not error.is_missing else repr(error)
    return ""


@pytest.mark.parametrize("peeks", ["a peek needs Listen", "a peek needs Send too"])
@pytest.mark.parametrize(("key", "place"), product(KEYS, PLACES), ids=lambda one: getattr(one, "name", one))
async def test_what_a_key_may_do_and_why_not(world: World, key: Key, place: str, peeks: str) -> None:
    needs_send = peeks.endswith("too")
    world.node.namespace.behaves = replace(world.node.namespace.behaves, peek_needs_send=needs_send)
    string = key_of(world, key, place)
    board = world.board(orders=string, reports=string)
    found = {verb: await sentence(act(board)) for verb, (*_, act) in VERBS.items()}
    assert found == dict(expected(key, peek_needs_send=needs_send))


RULE_ROWS: Final = {
    OPERATORS: {"read orders", "post a watch", "post an order", "clean orders"},
    ENGINES: {
        "read orders", "read reports", "post a presence", "post a report", "post a goodbye", "clean orders",
        "clean reports",
    },
}  # fmt: skip
"""What the rules of the boards permit, by the specification."""


@pytest.mark.parametrize("peeks", ["a peek needs Listen", "a peek needs Send too"])
@pytest.mark.parametrize("name", RULE_ROWS)
async def test_the_rules_of_the_boards_permit_what_they_are_for(world: World, name: str, peeks: str) -> None:
    """ "operators Send and Listen on `orders`, engines Listen there, Listen and Send on `reports`; where a namespace
    wants more for a peek, setup gives it and says what that opens"."""
    needs_send = peeks.endswith("too")
    world.node.namespace.behaves = replace(world.node.namespace.behaves, peek_needs_send=needs_send)
    made = await set_up_rules(world.admin(), "primary", partial(find_missing_right, world.client()))
    files = key_files(made, "primary", world.host, is_emulated=True)
    strings = [
        files.get(f"{board}.{name.removeprefix('paired-')}", world.sandbox["secondary"].connection_string)
        for board in Board
    ]
    board = world.board(orders=strings[0], reports=strings[1])
    wanted = {Board.ORDERS: name, Board.REPORTS: name if name in RULES[Board.REPORTS] else ""}
    found = {verb for verb, (where, *_, act) in VERBS.items() if wanted[where] and not await sentence(act(board))}
    opened = {"post a watch", "post an order"} if needs_send and name == ENGINES else set()
    assert found == RULE_ROWS[name] | opened
    assert any(OPENS in remark for remark in made.remarks) is needs_send
    again = await set_up_rules(world.admin(), "primary", partial(find_missing_right, world.client()))
    assert (again.rules, again.remarks) == (made.rules, ())


@pytest.mark.parametrize("key", KEYS, ids=lambda one: one.name)
async def test_only_manage_of_the_namespace_sets_the_boards_up(world: World, key: Key) -> None:
    world.node.namespace.delete(ORDERS)
    admin = world.admin(string=key_of(world, key, "namespace"))
    text = await sentence(set_up_boards(admin, "primary"))
    assert text == ("" if key.may(Right.MANAGE) else "listing the boards was refused")
    assert (ORDERS in {queue.path for queue in world.node.namespace.queues()}) == key.may(Right.MANAGE)
