"""The table of clients beside the sandbox: its versions and numbers of checks are those of the sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.conformance import expected
from tests.conformance.expected import Outcome
from tests.conformance.go import __main__ as go
from tests.conformance.java import __main__ as java
from tests.conformance.proton import __main__ as proton
from tests.conformance.python_versions import __main__ as python_versions
from tests.conformance.rhea import __main__ as rhea

README = Path(__file__).parents[2] / "console" / "servicebus_sandbox" / "README.md"


def _python() -> tuple[str, str]:
    passing = sum(one.outcome is Outcome.PASS for one in expected.load().values())
    return python_versions.RELEASES[-1], f"{passing}, Microsoft's own"


def _javascript() -> tuple[str, str]:
    """The checks are the methods of one object, the steps the entries of another."""
    found = "\n".join(re.findall(r"^const (?:checks|steps) = \{\n(.*?)^\};", _text(*rhea.PROGRAMS), re.M | re.S))
    versions = {name: version for name, _, version in (package.rpartition("@") for package in rhea.PACKAGES)}
    return f"{versions['@azure/service-bus']}, {versions['rhea']}", _count(re.findall(r'^  (?:async )?"', found, re.M))


def _java() -> tuple[str, str]:
    return java.version(), _count(java.CHECKS)


def _go() -> tuple[str, str]:
    return go.version().removeprefix("v"), _count(go.CHECKS)


def _c() -> tuple[str, str]:
    return proton.PACKAGE.partition("==")[2], _count(_listed(proton.CHECKS))


def _text(*files: Path) -> str:
    return "\n".join(file.read_text("utf-8") for file in files)


def _count(checks: Sequence[object]) -> str:
    return str(len(checks))


def _listed(module: Path) -> list[ast.expr]:
    """Return the elements of the tuple CHECKS, without an import of what the module needs."""
    for statement in ast.parse(module.read_text("utf-8")).body:
        match statement:
            case ast.AnnAssign(target=ast.Name("CHECKS"), value=ast.Tuple(elements)):
                return elements
    raise AssertionError(f"{module} has no tuple CHECKS")


@pytest.mark.parametrize(
    ("language", "facts"),
    [("Python", _python), ("JavaScript", _javascript), ("Java", _java), ("Go", _go), ("C", _c)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_table_of_clients_is_true(language: str, facts: Callable[[], tuple[str, str]]) -> None:
    rows = re.findall(rf"^\| {language}, .+ \| (.+) \| (.+) \|$", README.read_text("utf-8"), re.MULTILINE)
    assert rows == [facts()]
