"""Core and broker call nothing that reaches a clock, chance or the world; `lint-imports` checks what they import."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import paired_servicebus

ROOT = Path(paired_servicebus.__file__).parents[1]
CLOCKLESS_ROOMS = ("paired_servicebus/core", "servicebus_sandbox/broker")
WORLDLY_CALLS = frozenset(
    {"open", "print", "input", "exec", "eval", "__import__", "now", "utcnow", "today", "uuid1", "uuid4"}
)
"""Called by these names, whatever of: what reaches the world without an import of its own."""


def worldly(text: str) -> set[str]:
    calls = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    names = {call.id for call in calls if isinstance(call, ast.Name)}
    return WORLDLY_CALLS & (names | {call.attr for call in calls if isinstance(call, ast.Attribute)})


@pytest.mark.parametrize("room", CLOCKLESS_ROOMS)
def test_a_clockless_room_calls_neither_clock_nor_chance_nor_the_world(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    assert {path.name: found for path in files if (found := worldly(path.read_text("utf-8")))} == {}


@pytest.mark.parametrize(
    ("text", "found"), [("x = datetime.now(UTC)", {"now"}), ("open('x')", {"open"}), ("y()", set())]
)
def test_the_check_itself_sees(text: str, found: set[str]) -> None:
    assert worldly(text) == found
