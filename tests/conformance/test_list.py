"""The committed list, how it is compared, and how reports of a pytest process are read; no test of Microsoft's runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance.expected import Expectation, ExpectationError, Outcome, Result, differences, load
from tests.conformance.running import batches, read_report

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


def test_the_committed_list_is_whole_and_good_enough() -> None:
    counts = dict.fromkeys(Outcome, 0)
    for expectation in load().values():
        counts[expectation.outcome] += 1
    applicable = counts[Outcome.PASS] + counts[Outcome.FAIL]
    assert sum(counts.values()) >= ENDPOINT_TESTS
    assert counts[Outcome.NOT_APPLICABLE] <= MOST_NOT_APPLICABLE
    assert counts[Outcome.PASS] >= LEAST_PASSING * applicable
