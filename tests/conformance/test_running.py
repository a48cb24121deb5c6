"""How the pytest processes that run Microsoft's tests are fed, read, waited for and ended; none of their tests runs."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conformance import checking, expected, running
from tests.conformance.checking import Skipped, Verdict, fetch, run
from tests.conformance.expected import GATEWAY_FILE, Expectation, ExpectationError, Outcome, Result, differences, load
from tests.conformance.go import __main__ as go
from tests.conformance.java import __main__ as java
from tests.conformance.proton import __main__ as proton
from tests.conformance.python_versions import __main__ as python_versions
from tests.conformance.rhea import __main__ as rhea
from tests.conformance.running import batches, read_report
from tests.conformance.sdk_releases.__main__ import choose


def test_a_report_may_be_cut_off_while_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "results"
    ended = {"event": "ended", "id": "a", "outcome": "passed", "phase": "call", "seconds": 1.0, "detail": ""}
    started = {"event": "started", "id": "b"}
    file.write_text(f'{json.dumps(ended)}\n{json.dumps(started)}\n{{"event": "en')
    report = read_report(file)
    assert report.results == {"a": Result(Outcome.PASS, 1.0)}
    assert report.running == "b"


def test_a_test_that_passed_and_could_not_clean_up_has_failed(tmp_path: Path) -> None:
    file = tmp_path / "results"
    passed = {"event": "ended", "id": "a", "outcome": "passed", "phase": "call", "seconds": 1.0, "detail": ""}
    failed = passed | {"outcome": "failed", "phase": "teardown", "seconds": 0.5, "detail": "why"}
    file.write_text(f"{json.dumps(passed)}\n{json.dumps(failed)}\n")
    assert read_report(file).results == {"a": Result(Outcome.FAIL, 1.5, "why")}


def test_batches_keep_every_test_once_and_the_administration_together() -> None:
    tests = [f"test_a.py::{n}" for n in range(30)] + [f"mgmt_tests/test_{n}.py::t" for n in range(30)]
    found = batches(tests)
    assert sorted(test for batch in found for test in batch) == sorted(tests)
    assert [test for test in tests if test.startswith("mgmt_tests/")] in found


async def test_a_process_that_has_run_its_tests_and_does_not_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_ENDING_SECONDS", 0.02)
    monkeypatch.setattr(running, "_LOOK_SECONDS", 0.01)
    file = tmp_path / "results"
    ended = {"event": "ended", "id": "a", "outcome": "passed", "phase": "call", "seconds": 1.0, "detail": ""}
    file.write_text(f"{json.dumps(ended)}\n")
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    async with running.own_process(sleeping, tmp_path, tmp_path / "said") as process:
        await running.until_done(process, file, tests=1, limit=3600)
        assert process.returncode is None
    assert process.returncode == -15


async def test_a_process_that_does_not_want_to_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_ENDING_SECONDS", 0.1)
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    said = tmp_path / "said"
    async with running.own_process([sys.executable, "-c", deaf], tmp_path, said) as process:
        async with asyncio.timeout(20):
            while "deaf" not in said.read_text():
                await asyncio.sleep(0.01)
    assert process.returncode == -9


# -- What foreign clients say of their checks counts, even if they break off; what cannot be had is a reason to skip.


def _said(folder: Path, script: str) -> list[Verdict]:
    return run([sys.executable, "-c", script], folder)


def test_what_the_checks_say_is_told_one_by_one(tmp_path: Path) -> None:
    script = (
        """print('{"check": "a", "passed": true, "error": null}\\n{"check": "b", "passed": false, "error": "no"}')"""
    )
    assert _said(tmp_path, script) == [Verdict("a", True, None), Verdict("b", False, "no")]


@pytest.mark.parametrize(
    "script",
    [
        "",
        """print('{"check": "a", "passed": true, "error": null}'); raise SystemExit(3)""",
    ],
)
def test_checks_that_break_off_have_failed(tmp_path: Path, script: str) -> None:
    last = _said(tmp_path, script)[-1]
    assert not last.passed
    assert last.error == f"{Path(sys.executable).name} ended early"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import sys; sys.exit('no compiler')", "cannot fetch proton: no compiler"),
        ("import time; time.sleep(60)", "did not fetch proton within 0.2 s"),
    ],
)
def test_what_cannot_be_fetched_is_a_reason_to_skip(
    script: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def cross_check() -> list[Verdict]:
        fetch([sys.executable, "-c", script], "proton", seconds=0.2 if "sleep" in script else 60.0)
        return []

    with pytest.raises(Skipped, match=reason):
        cross_check()
    assert checking.tell("mine", cross_check, clients="none") == 2
    out, err = capsys.readouterr()
    assert (out, err.startswith("mine: skipped: ")) == ("", True)


def test_the_exit_status_tells_of_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = [Verdict("a", True, None), Verdict("b", False, "no")]
    assert checking.tell("mine", lambda: verdicts, clients="theirs 1.0") == 1
    assert checking.tell("mine", lambda: verdicts[:1], clients="theirs 1.0") == 0
    assert "FAILED  b: no\n1 of 2 checks passed, with theirs 1.0\n" in capsys.readouterr().out


# -- The committed list, and how what came out of Microsoft's tests is compared with it.


ENDPOINT_TESTS = 366
MOST_NOT_APPLICABLE = 40
LEAST_PASSING = 0.9


def written(folder: Path, text: str) -> Path:
    file = folder / "list.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_list_tells_outcome_reason_and_part(tmp_path: Path) -> None:
    file = written(tmp_path, '[pass.fast]\n"a::x" = 1.5\n[pass.slow]\n"a::y" = 300.0\n[fail]\n"a::z" = "it is so"\n')
    assert load(file) == {
        "a::x": Expectation(Outcome.PASS),
        "a::y": Expectation(Outcome.PASS, is_slow=True),
        "a::z": Expectation(Outcome.FAIL, "it is so", is_slow=True),
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[fail]\n"a::x" = " "\n', "'a::x' is expected to be fail for no reason"),
        ('[pass.fast]\n"a::x" = 1\n[fail]\n"a::x" = "why"\n', "in two sections: a::x"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ExpectationError, match=complaint):
        load(written(tmp_path, text))


@pytest.mark.parametrize(
    ("expectation", "result", "line"),
    [
        (Expectation(Outcome.PASS), Result(Outcome.PASS, 1), None),
        (Expectation(Outcome.FAIL, "why"), Result(Outcome.FAIL, 1), None),
        (Expectation(Outcome.SKIPPED, "why"), Result(Outcome.SKIPPED, 0), None),
        (Expectation(Outcome.NOT_APPLICABLE, "why"), Result(Outcome.FAIL, 1), None),
        (Expectation(Outcome.PASS), Result(Outcome.FAIL, 1, "at x\nE  boom\n"), "t: fail, expected pass. E  boom"),
        (Expectation(Outcome.PASS), Result(Outcome.SKIPPED, 0, "no way"), "t: skipped, expected pass. no way"),
        (Expectation(Outcome.FAIL, "why"), Result(Outcome.PASS, 1), "t: pass, expected fail. "),
        (Expectation(Outcome.PASS), None, "t: did not run; expected pass"),
        (None, Result(Outcome.PASS, 1), "t: not in the list; it came out as pass"),
    ],
)
def test_every_difference_is_one_line(expectation: Expectation | None, result: Result | None, line: str | None) -> None:
    expected = {} if expectation is None else {"t": expectation}
    results = {} if result is None else {"t": result}
    assert differences(expected, results, ["t"]) == ([] if line is None else [line])


def test_the_committed_list_is_whole_and_good_enough() -> None:
    counts = dict.fromkeys(Outcome, 0)
    for expectation in load().values():
        counts[expectation.outcome] += 1
    applicable = counts[Outcome.PASS] + counts[Outcome.FAIL]
    assert sum(counts.values()) >= ENDPOINT_TESTS
    assert counts[Outcome.NOT_APPLICABLE] <= MOST_NOT_APPLICABLE
    assert counts[Outcome.PASS] >= LEAST_PASSING * applicable


def test_a_gateway_changes_few_results_and_says_why() -> None:
    """≥ 95 % of what passes without it, differences listed with reasons"""
    direct, otherwise = load(), load(GATEWAY_FILE)
    passing = [name for name, each in direct.items() if each.outcome is Outcome.PASS]
    assert set(otherwise) <= set(passing)
    assert len(otherwise) <= 0.05 * len(passing)
    assert all(each.reason for each in otherwise.values())


# -- The table of clients beside the sandbox: its versions and numbers of checks are those of the sources.


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
    return go.version().removeprefix("v"), f"{_count(go.CHECKS)}, and 244 of its own 245 live tests"


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
    [("Python", _python), ("JavaScript", _javascript), ("Java, [azure", _java), ("Go", _go), ("C", _c)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_table_of_clients_is_true(language: str, facts: Callable[[], tuple[str, str]]) -> None:
    rows = re.findall(rf"^\| {re.escape(language)}.+ \| (.+) \| (.+) \|$", README.read_text("utf-8"), re.MULTILINE)
    assert rows == [facts()]


# -- The table names each failure once, and what was never run. Which releases of the SDK the contract is run with.


def test_a_row_for_each_check_and_a_column_for_each_release() -> None:
    found = {"7.1": [Verdict("send", True, None)], "7.2": [Verdict("send", False, "no"), Verdict("peek", True, None)]}
    assert python_versions.table(found).splitlines() == [
        "          7.1      7.2",
        "send   passed   FAILED",
        "peek        -   passed",
        "7.2, send: no",
    ]


RANGE = Requirement("azure-servicebus>=7.15,<8")


@pytest.mark.parametrize(
    ("newer", "chosen", "remark"),
    [
        (["8.0.0b1", "8.0.0a1", "7.17.0", "7.16.0b1"], ("7.15.0", "7.17.0", "8.0.0b1"), "newest pre-release: 8.0.0b1"),
        ([], ("7.15.0",), "no pre-release is newer than 7.15.0"),
    ],
)
def test_the_ends_of_the_range_and_a_newer_prerelease(newer: list[str], chosen: tuple[str, ...], remark: str) -> None:
    found, said = choose([*newer, "7.15.0", "7.15.0b2", "7.14.3"], RANGE)
    assert (found, said.endswith(remark)) == (chosen, True)


def test_nothing_in_the_range() -> None:
    with pytest.raises(Skipped):
        choose(["7.14.3"], RANGE)
