"""The committed list, and how what came out of Microsoft's tests is compared with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.expected import GATEWAY_FILE, Expectation, ExpectationError, Outcome, Result, differences, load

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
    passing = [name for name, each in direct.items() if each.outcome is Outcome.PASS and "mgmt_tests/" not in name]
    assert set(otherwise) <= set(passing)
    assert len(otherwise) <= 0.05 * len(passing)
    assert all(each.reason for each in otherwise.values())
