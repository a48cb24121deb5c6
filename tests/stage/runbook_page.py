"""The page of runbooks as data: per runbook its parts, and per part the steps that a play performs.

A step is a command with the output that the page shows, a change of a TOML file, or an act: a numbered item's bold
sentence, which says what a person does elsewhere. Whatever else the page says is for readers alone.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

PAGE: Final = Path(__file__).parents[2] / "console/paired_servicebus/deploy/RUNBOOKS.md"
PARTS: Final = ("When", "You see", "Do", "Done when", "Go back")
ANYTHING: Final = "…"
_FENCE: Final = re.compile(r" *```(\w*)")
_PART: Final = re.compile(rf"\*\*({'|'.join(PARTS)})\b")
_ACT: Final = re.compile(r"\d+\. \*\*(.+?\.)\*\*")


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and the lines that its output has, in this order."""

    line: str
    shown: tuple[str, ...] = ()

    def missing(self, output: str) -> str:
        """Return the first line that an output lacks; "" if it has all. White space and `…` match any of it."""
        rest = " ".join(output.split())
        for line in self.shown:
            parts = (re.escape(" ".join(part.split())) for part in line.split(ANYTHING))
            found = re.search(".*?".join(parts), rest)
            if found is None:
                return line
            rest = rest[found.end() :]
        return ""


@dataclass(frozen=True, slots=True)
class Setting:
    """Tables and values to put into the pairing's file."""

    tables: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Act:
    """What a person does: the sentence of the page."""

    sentence: str


Step = Command | Setting | Act


@dataclass(slots=True)
class Runbook:
    """One runbook. parts: in the order of the page."""

    title: str
    parts: dict[str, list[Step]] = field(default_factory=dict)

    @property
    def steps(self) -> Iterator[Step]:
        """All steps."""
        for steps in self.parts.values():
            yield from steps


@dataclass(frozen=True, slots=True)
class Page:
    """All runbooks by their titles, and the lines of shell that come before any command."""

    preamble: str
    runbooks: Mapping[str, Runbook]


def read_page(text: str) -> Page:
    """Read the page. Raises ValueError: a step is in no part of a runbook."""
    lines, preamble, runbooks = iter(text.splitlines()), "", dict[str, Runbook]()
    runbook, steps = Runbook(""), None
    for line in lines:
        if line.startswith("## "):
            runbook, steps = Runbook(line.removeprefix("## ")), None
            runbooks[runbook.title] = runbook
        elif part := _PART.match(line):
            steps = runbook.parts.setdefault(part[1], [])
        elif fence := _FENCE.match(line):
            block = _read_block(lines, line.index("`"))
            if fence[1] == "sh" and not runbook.title:
                preamble = "\n".join(block)
            elif steps is None:
                raise ValueError(f"{runbook.title or 'the head'}: a block is in no part: {block}")
            else:
                steps += _steps_of(fence[1], block)
        elif act := _ACT.match(line):
            if steps is None:
                raise ValueError(f"{runbook.title or 'the head'}: {act[1]!r} is in no part")
            steps.append(Act(act[1]))
    return Page(preamble, runbooks)


def _read_block(lines: Iterator[str], indent: int) -> list[str]:
    block = []
    for line in lines:
        if _FENCE.match(line):
            break
        block.append(line[indent:])
    return block


def _steps_of(kind: str, block: Sequence[str]) -> list[Step]:
    if kind == "toml":
        return [Setting(tomllib.loads("\n".join(block)))]
    if kind != "console":
        raise ValueError(f"a block of a runbook is console or toml, not {kind!r}")
    commands: list[Step] = []
    for text in "\n".join(block).split("$ ")[1:]:
        line, *shown = text.splitlines()
        commands.append(Command(line, tuple(filter(None, shown))))
    return commands


def merge(document: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
    """Return a document of TOML with the values of a step in their tables."""
    tables = dict(document)
    for name, values in setting.tables.items():
        tables[name] = {**tables.get(name, {}), **values}
    return tables


def write_toml(document: Mapping[str, Mapping[str, Any]]) -> str:
    """Return tables of plain values as TOML; a float is a time in seconds."""
    lines = []
    for name, values in document.items():
        lines += [f"[{name}]", *(f"{key} = {_literal(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _literal(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_literal(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_literal, value)) + "]"
    if isinstance(value, float):
        return f'"{value:g}s"'
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int) else f'"{value}"'
