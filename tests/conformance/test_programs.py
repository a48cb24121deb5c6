"""The programs in other languages: each check of a source is run, and what is missing on a machine is said.

Neither their languages nor a network is needed here.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from servicebus_sandbox.faults import FaultKind
from servicebus_sandbox.spec_file import load_sandbox
from tests.conformance import expected
from tests.conformance.checking import Verdict
from tests.conformance.expected import Expectation, Outcome
from tests.conformance.frameworks.__main__ import Run
from tests.conformance.frameworks.programs import PROGRAMS
from tests.conformance.go import __main__ as go
from tests.conformance.go import live
from tests.conformance.java import __main__ as java
from tests.conformance.listed import differences
from tests.conformance.rhea import __main__ as rhea
from tests.conformance.samples import __main__ as samples
from tests.examples.any_language import SenderProcess
from tests.examples.sender_programs import SenderProgram

LEAST_CHECKS = 30
JAVA_17 = "echo 'openjdk version \"17.0.15\" 2026-04-15' >&2"
TOOLS = {"java": JAVA_17, "mvn": "", "keytool": ""}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts programs into a folder that is the whole PATH, and the one of temporary files."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java.tempfile, "tempdir", str(tmp_path))

    def write(**programs: str) -> None:
        for name, script in programs.items():
            program = tmp_path / name
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)

    return write


# -- each check of a source is run


def test_each_check_in_go_is_in_its_table() -> None:
    assert len(set(go.CHECKS)) == len(go.CHECKS) >= LEAST_CHECKS
    run = re.findall(r'^\t\{".+", (\w+)\},$', (go.FOLDER / "main.go").read_text("utf-8"), re.MULTILINE)
    sources = "\n".join(path.read_text("utf-8") for path in sorted(go.FOLDER.glob("*.go")))
    assert sorted(run) == sorted(re.findall(r"^func (\w+)\(b \*bench\) \{", sources, re.MULTILINE))


def test_each_class_of_checks_in_java_is_run() -> None:
    main = next(java.PROJECT.rglob("Main.java")).read_text("utf-8")
    classes = [path.stem for path in sorted(java.PROJECT.rglob("*Checks.java"))]
    assert sorted(re.findall(r"(\w+Checks)\.class", main)) == classes
    assert len(set(java.CHECKS)) == len(java.CHECKS) >= LEAST_CHECKS


def test_what_is_left_out_or_differs_through_a_gateway_is_a_check() -> None:
    assert set(go.UNFIT) < set(go.CHECKS)
    assert set(go.DIFFERENT) < set(go.CHECKS) - set(go.UNFIT)
    assert set(java.UNFIT) < set(java.CHECKS)


@pytest.mark.parametrize("kind", FaultKind)
def test_each_fault_of_the_sandbox_has_a_check(kind: FaultKind) -> None:
    assert any(check.startswith(f"fault {kind}: ") for check in go.CHECKS)
    assert f'"{kind}"' in java.SOURCES


def test_the_hashes_of_gos_modules_are_committed() -> None:
    hashes = (go.FOLDER / "go.sum").read_text("utf-8")
    assert f"{go.MODULE} {go.version()} h1:" in hashes
    assert "://" not in hashes


def test_each_check_in_java_has_a_namespace_with_the_same_entities(tmp_path: Path) -> None:
    config = tmp_path / "namespaces.toml"
    config.write_text(java.namespaces(java.CHECKS), encoding="utf-8")
    specs = load_sandbox(config).namespaces
    assert [spec.name for spec in specs] == list(java.CHECKS)
    assert all(len(spec.queues) == 4 and len(spec.topics) == 1 for spec in specs)


def test_each_difference_from_the_list_is_one_line() -> None:
    ran = [Verdict("a", True, None), Verdict("b", True, None), Verdict("b", True, None), Verdict("c", True, None)]
    assert differences(["a", "b", "d"], ran) == ["did not run: d", "not in the list: c", "ran 2 times: b"]
    assert differences(["a"], ran[:1]) == []


def test_gos_own_tests_come_out_as_the_list_has_them() -> None:
    events = [
        "the sandbox says something",
        '{"Action":"run","Test":"TestA"}',
        '{"Action":"output","Test":"TestA/part","Output":"    Error: Not equal"}',
        '{"Action":"fail","Test":"TestA/part","Elapsed":1.0}',
        '{"Action":"fail","Test":"TestA","Elapsed":2.5}',
        '{"Action":"pass","Test":"TestB","Elapsed":0.5}',
        '{"Action":"fail","Elapsed":3}',
    ]
    results = live.read_events(events)
    found = {name: (one.outcome, one.seconds) for name, one in results.items()}
    assert found == {"TestA": (Outcome.FAIL, 2.5), "TestB": (Outcome.PASS, 0.5)}
    listed = {"TestA": Expectation(Outcome.FAIL, "why"), "TestC": Expectation(Outcome.SKIPPED, "why")}
    wanted = live.expected_of(listed, results)
    assert expected.differences(wanted, results, ["TestA", "TestB"]) == []
    assert expected.differences(wanted, results, ["TestC"]) == ["TestC: did not run; expected skipped"]
    wanted = live.expected_of({}, results)
    assert expected.differences(wanted, results, ["TestA"]) == ["TestA: fail, expected pass. Error: Not equal"]


def test_few_of_gos_own_tests_fail_each_with_a_reason() -> None:
    assert 0 < len(expected.load(live.LIST)) <= 5
    specs = load_sandbox(live.NAMESPACES).namespaces
    assert {spec.host_name: spec.address for spec in specs} == live.HOSTS
    assert all(spec.standard_ports for spec in specs)


# -- what is missing on a machine


@pytest.mark.parametrize(
    ("language", "programs", "reason"),
    [
        ("go", {}, "go is not on the PATH; install Go"),
        ("go", {"go": "echo go1.19.3"}, "go is 1.19.3; the SDK needs 1.25.0 or newer"),
        ("go", {"go": "exit 1"}, "go is broken; the SDK needs 1.25.0 or newer"),
        (
            "go",
            {"go": 'test "$1" = env && echo go1.26.1 || { echo offline >&2; exit 1; }'},
            "go cannot fetch azservicebus v",
        ),
        ("java", {}, "java is not on the PATH; install a JDK"),
        ("java", {"java": JAVA_17}, "mvn is not on the PATH; install a JDK"),
        ("java", {"java": JAVA_17, "mvn": ""}, "keytool is not on the PATH; install a JDK"),
        (
            "java",
            TOOLS | {"java": "echo 'openjdk version \"1.8.0_402\"' >&2"},
            'java is openjdk version "1.8.0_402"; the checks need 17 or newer',
        ),
        ("java", TOOLS | {"java": "exit 1"}, "java is of an unknown version; the checks need 17 or newer"),
        (
            "java",
            TOOLS | {"mvn": "echo '[ERROR] offline'; exit 1"},
            f"mvn cannot fetch azure-messaging-servicebus {java.version()}: [ERROR] offline",
        ),
    ],
)
def test_without_its_tools_a_program_is_skipped_unless_it_is_required(
    install: Callable[..., None],
    language: str,
    programs: dict[str, str],
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install(**programs)
    main = {"go": go.main, "java": java.main}[language]
    assert main([]) == 0
    assert capsys.readouterr().out.startswith(f"skipped: {language}: {reason}")
    assert main(["--required"]) == (2 if "cannot fetch" in reason else 1)
    out, err = capsys.readouterr()
    assert (out, err.startswith(f"skipped: {language}: {reason}")) == ("", True)


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        ({}, "node is not on the PATH"),
        ({"node": "echo v22.1.0"}, "npm is not on the PATH"),
        ({"node": "echo v18.20.1", "npm": "exit 0"}, "node is v18.20.1; the clients need 20"),
        ({"node": "echo v22.1.0", "npm": "echo offline >&2; exit 1"}, "npm cannot fetch rhea@3.0.5 and"),
    ],
)
def test_without_node_rhea_is_skipped(
    install: Callable[..., None], programs: dict[str, str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    install(**programs)
    assert rhea.main([]) == 2
    out, err = capsys.readouterr()
    assert (out, err.startswith(f"rhea: skipped: {reason}")) == ("", True)


def test_checks_that_do_not_compile_have_failed(
    install: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    compiler = "echo '[ERROR] COMPILATION ERROR :'; echo '[ERROR] Main.java:[3,1] no such symbol'; exit 1"
    builder = '[ "$1" = env ] && echo go1.26.1\n[ "$3" = build ] && { echo undefined: x >&2; exit 1; }\nexit 0'
    install(**TOOLS | {"mvn": compiler}, go=builder)
    assert java.main(["sendsAList"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("FAILED  the checks compile: [ERROR] COMPILATION ERROR")
    assert "no such symbol" in out
    assert "did not run: sendsAList" in out
    assert go.main(["peeks lock"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "FAILED  the checks compile: undefined: x"
    assert "did not run: peeks lock nothing and continue" in lines


# -- the programs that people use


@pytest.mark.parametrize(
    ("name", "lines", "parked", "arrived", "words"),
    [
        ("kombu", ["accepted kombu-0-1 1"], [1, 2], {"kombu-0-1"}, ""),
        ("kombu", ["accepted kombu-0-1 1"], [1, 0], {"kombu-0-1"}, "parked 1 and 0"),
        ("kombu", ["accepted kombu-0-1 1"], [1, 2], set(), "1 lost ['kombu-0-1']"),
        ("kombu", ["failed kombu-0-1 no"], [1, 2], set(), "1 errors, the first: no"),
        ("keda", ["accepted keda-1-1 1", "failed keda-1-2 503 does not answer"], [0, 0], set(), "1 errors"),
        ("admin-go", ["accepted admin-go-0-1 1", "failed admin-go-1-1 does not answer"], [0, 0], set(), ""),
        ("admin-go", ["accepted admin-go-0-1 1", "failed admin-go-0-2 does not answer"], [0, 0], set(), "1 errors"),
        ("admin-go", ["accepted admin-go-0-1 1", "failed admin-go-1-1 no"], [0, 0], set(), "1 errors"),
    ],
)
def test_a_programs_row_says_what_is_wrong(
    name: str, lines: list[str], parked: list[int], arrived: set[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = PROGRAMS[name]
    process = SenderProcess(SenderProgram(language="", sdk="", command=()), name, Path())
    for line in lines:
        word, call, rest = line.split(" ", 2)
        process.take(f"begun\t{call}", 0.0)
        process.take(f"{word}\t{call}\t{rest}", 1.0)
    process.take("ended", 2.0)
    assert Run(program, process, parked).report(arrived) is bool(words)
    assert words in capsys.readouterr().out


# -- Microsoft's samples


@pytest.fixture
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples.tempfile, "gettempdir", lambda: str(tmp_path / "cache"))


@pytest.mark.usefixtures("no_cache")
def test_a_repository_that_cannot_be_reached_is_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert samples.main(str(tmp_path / "missing")) == 2
    assert capsys.readouterr().err.startswith("samples: skipped: git cannot fetch commit 40fb40f of ")


@pytest.mark.usefixtures("no_cache")
def test_git_that_is_missing_is_the_reason(install: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    assert samples.main() == 2
    assert capsys.readouterr().err == "samples: skipped: git is not on the PATH\n"


def test_a_sample_passes_by_its_steps_and_its_exit_status(tmp_path: Path) -> None:
    sample = samples.Sample("Python", "", lambda _: [], ("created", "deleted"))
    command = [sys.executable, "-c", "print('queue created'); raise SystemExit('no such queue')"]
    verdicts = samples.run_sample(sample, command, tmp_path, dict(os.environ))
    assert [(verdict.check, verdict.passed, verdict.error) for verdict in verdicts] == [
        ("Python: created", True, None),
        ("Python: deleted", False, "no such queue"),
        ("Python: exit status 0", False, "no such queue"),
    ]
