"""Each class of checks is run, and a machine without Java or Maven says so. Neither is needed here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from servicebus_sandbox.faults import FaultKind
from servicebus_sandbox.spec_file import load_specs
from tests.conformance.java import __main__ as java

LEAST_CHECKS = 30
JAVA_17 = "echo 'openjdk version \"17.0.15\" 2026-04-15' >&2"


def test_each_class_of_checks_is_run() -> None:
    main = next(java.PROJECT.rglob("Main.java")).read_text("utf-8")
    classes = [path.stem for path in sorted(java.PROJECT.rglob("*Checks.java"))]
    assert sorted(re.findall(r"(\w+Checks)\.class", main)) == classes
    assert len(set(java.CHECKS)) == len(java.CHECKS) >= LEAST_CHECKS


def test_what_is_left_out_through_a_gateway_is_a_check() -> None:
    assert set(java.UNFIT) < set(java.CHECKS)


@pytest.mark.parametrize("kind", FaultKind)
def test_each_fault_of_the_sandbox_has_a_check(kind: FaultKind) -> None:
    assert f'"{kind}"' in java.SOURCES


def test_each_check_has_a_namespace_with_the_same_entities(tmp_path: Path) -> None:
    config = tmp_path / "namespaces.toml"
    config.write_text(java.namespaces(java.CHECKS), encoding="utf-8")
    specs = load_specs(config)
    assert [spec.name for spec in specs] == list(java.CHECKS)
    assert all(len(spec.queues) == 4 and len(spec.topics) == 1 for spec in specs)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is the whole PATH, and the one of temporary files."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java.tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        ({}, "java is not on the PATH; install a JDK"),
        ({"java": JAVA_17}, "mvn is not on the PATH; install a JDK"),
        ({"java": JAVA_17, "mvn": ""}, "keytool is not on the PATH; install a JDK"),
        (
            {"java": "echo 'openjdk version \"1.8.0_402\"' >&2", "mvn": "", "keytool": ""},
            'java is openjdk version "1.8.0_402"; the checks need 17 or newer',
        ),
        ({"java": "exit 1", "mvn": "", "keytool": ""}, "java is of an unknown version; the checks need 17 or newer"),
        (
            {"java": JAVA_17, "mvn": "echo '[ERROR] offline'; exit 1", "keytool": ""},
            f"mvn cannot fetch azure-messaging-servicebus {java.version()}: [ERROR] offline",
        ),
    ],
)
def test_without_its_tools_it_is_skipped_unless_it_is_required(
    path: Path, programs: dict[str, str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(path, programs)
    assert java.main([]) == 0
    assert capsys.readouterr().out.startswith(f"skipped: java: {reason}")
    assert java.main(["--required"]) == (2 if "cannot fetch" in reason else 1)
    out, err = capsys.readouterr()
    assert (out, err.startswith(f"skipped: java: {reason}")) == ("", True)


def test_checks_that_do_not_compile_have_failed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiler = "echo '[ERROR] COMPILATION ERROR :'; echo '[ERROR] Main.java:[3,1] no such symbol'; exit 1"
    _install(path, {"java": JAVA_17, "mvn": compiler, "keytool": ""})
    assert java.main(["sendsAList"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("FAILED  the checks compile: [ERROR] COMPILATION ERROR")
    assert "no such symbol" in out
    assert "did not run: sendsAList" in out


def _install(folder: Path, programs: dict[str, str]) -> None:
    for name, script in programs.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
