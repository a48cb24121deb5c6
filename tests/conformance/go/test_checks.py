"""Each check of the source is in its table, and a machine without Go says so. Neither Go nor a network is needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from servicebus_sandbox.faults import FaultKind
from tests.conformance.checking import Verdict
from tests.conformance.go import __main__ as go
from tests.conformance.listed import differences

LEAST_CHECKS = 30


def _sources() -> str:
    return "\n".join(path.read_text("utf-8") for path in sorted(go.FOLDER.glob("*.go")))


def test_each_check_of_the_source_is_in_its_table() -> None:
    assert len(set(go.CHECKS)) == len(go.CHECKS) >= LEAST_CHECKS
    run = re.findall(r'^\t\{".+", (\w+)\},$', (go.FOLDER / "main.go").read_text("utf-8"), re.MULTILINE)
    assert sorted(run) == sorted(re.findall(r"^func (\w+)\(b \*bench\) \{", _sources(), re.MULTILINE))


def test_what_is_left_out_or_differs_through_a_gateway_is_a_check() -> None:
    assert set(go.UNFIT) < set(go.CHECKS)
    assert set(go.DIFFERENT) < set(go.CHECKS) - set(go.UNFIT)


@pytest.mark.parametrize("kind", FaultKind)
def test_each_fault_of_the_sandbox_has_a_check(kind: FaultKind) -> None:
    assert any(check.startswith(f"fault {kind}: ") for check in go.CHECKS)


def test_the_hashes_of_the_modules_are_committed() -> None:
    hashes = (go.FOLDER / "go.sum").read_text("utf-8")
    assert f"{go.MODULE} {go.version()} h1:" in hashes
    assert "://" not in hashes


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is the whole PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "go is not on the PATH; install Go"),
        ("echo go1.19.3", "go is 1.19.3; the SDK needs 1.25.0 or newer"),
        ("exit 1", "go is broken; the SDK needs 1.25.0 or newer"),
        ('test "$1" = env && echo go1.26.1 || { echo offline >&2; exit 1; }', "go cannot fetch azservicebus v"),
    ],
)
def test_without_its_tools_it_is_skipped_unless_it_is_required(
    path: Path, script: str | None, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if script is not None:
        program = path / "go"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    assert go.main([]) == 0
    assert capsys.readouterr().out.startswith(f"skipped: go: {reason}")
    assert go.main(["--required"]) == (2 if "cannot fetch" in reason else 1)
    out, err = capsys.readouterr()
    assert (out, err.startswith(f"skipped: go: {reason}")) == ("", True)


def test_checks_that_do_not_compile_have_failed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = path / "go"
    program.write_text(
        '#!/bin/sh\n[ "$1" = env ] && echo go1.26.1\n[ "$3" = build ] && { echo undefined: x >&2; exit 1; }\nexit 0\n'
    )
    program.chmod(0o755)
    assert go.main(["peeks lock"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "FAILED  the checks compile: undefined: x"
    assert "did not run: peeks lock nothing and continue" in lines


def test_each_difference_from_the_list_is_one_line() -> None:
    ran = [Verdict("a", True, None), Verdict("b", True, None), Verdict("b", True, None), Verdict("c", True, None)]
    assert differences(["a", "b", "d"], ran) == ["did not run: d", "not in the list: c", "ran 2 times: b"]
    assert differences(["a"], ran[:1]) == []
