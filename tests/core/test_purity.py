"""The pure rooms import the standard library and themselves; core and broker neither clock, chance, nor I/O."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import paired_servicebus

ROOT = Path(paired_servicebus.__file__).parents[1]
PURE_ROOMS = ("paired_servicebus/core", "servicebus_amqp", "servicebus_sandbox/broker")
CLOCKLESS_ROOMS = ("paired_servicebus/core", "servicebus_sandbox/broker")
WORLDLY = frozenset(
    {
        "asyncio", "builtins", "concurrent", "ctypes", "fcntl", "glob", "http", "importlib", "io", "logging", "mmap",
        "multiprocessing", "os", "pathlib", "platform", "queue", "random", "sched", "secrets", "select", "selectors",
        "shutil", "signal", "socket", "socketserver", "sqlite3", "ssl", "subprocess", "sys", "syslog", "tempfile",
        "threading", "time", "urllib", "warnings"
    }
)  # fmt: skip
"""Modules that know the time, chance, threads, or the world outside."""
WORLDLY_CALLS = frozenset(
    {"open", "print", "input", "exec", "eval", "__import__", "now", "utcnow", "today", "uuid1", "uuid4"}
)
"""Called by these names, whatever of: what reaches the world without an import of its own."""


def files(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Every module named by an import anywhere in the file, type-checking blocks included; dotted, absolute."""
    package = [*path.relative_to(ROOT).parent.parts]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def calls(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr


def foreign(path: Path, room: str) -> list[str]:
    """What the file imports that is neither the standard library's nor its own room's."""
    home = room.replace("/", ".") + "."
    return [
        name
        for name in imports(path)
        if name.partition(".")[0] not in sys.stdlib_module_names and not f"{name}.".startswith(home)
    ]


def worldly(path: Path) -> list[str]:
    names = [name for name in imports(path) if name.partition(".")[0] in WORLDLY]
    return names + [f"{name}()" for name in calls(path) if name in WORLDLY_CALLS]


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_a_pure_room_imports_the_standard_library_and_itself(room: str) -> None:
    found = {str(path.relative_to(ROOT)): foreign(path, room) for path in files(room)}
    assert found
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize("room", CLOCKLESS_ROOMS)
def test_a_clockless_room_reaches_neither_clock_nor_chance_nor_the_world(room: str) -> None:
    found = {str(path.relative_to(ROOT)): worldly(path) for path in files(room)}
    assert found
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("text", "is_foreign", "is_worldly"),
    [
        ("import azure.servicebus", True, False),
        ("from paired_servicebus.pairing import client", True, False),
        ("from paired_servicebus import engine", True, False),
        ("from .. import pairing", True, False),
        ("from ..pairing.client import PairedClient", True, False),
        ("from . import entity", False, False),
        ("from paired_servicebus.core.model.entity_state import Entity", False, False),
        ("from paired_servicebus import core", False, False),
        ("from paired_servicebus.corelike import x", True, False),
        ("def f():\n    import time", False, True),
        ("from random import random", False, True),
        ("import os.path", False, True),
        ("x = datetime.now(UTC)", False, True),
        ("open('x')", False, True),
        ("import heapq", False, False),
    ],
)
def test_the_check_itself_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, is_foreign: bool, is_worldly: bool
) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "paired_servicebus" / "core" / "planted.py"
    path.parent.mkdir(parents=True)
    path.write_text(text, "utf-8")
    assert bool(foreign(path, "paired_servicebus/core")) is is_foreign
    assert bool(worldly(path)) is is_worldly
