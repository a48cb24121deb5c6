"""The committed list: what is expected of each of Microsoft's tests that needs an endpoint, and why where it fails.

A test is in one section of `expected.toml`: `[pass.fast]` and `[pass.slow]` give the seconds it took when the list was
made, the other sections the reason. What came out is compared test by test; every difference is one line.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

FILE = Path(__file__).with_name("expected.toml")
GATEWAY_FILE = Path(__file__).with_name("gateway.toml")
"""What is expected otherwise through a gateway."""


class Outcome(StrEnum):
    """What can be expected of a test, and what can come out of one."""

    PASS = "pass"
    FAIL = "fail"
    SKIPPED = "skipped"  # by Microsoft
    NOT_APPLICABLE = "not-applicable"


@dataclass(frozen=True, slots=True)
class Expectation:
    """`reason` is empty for a test that passes."""

    outcome: Outcome
    reason: str = ""
    is_slow: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """What came out of a test; `detail` is the end of its traceback, or why it was skipped."""

    outcome: Outcome
    seconds: float
    detail: str = ""


class ExpectationError(Exception):
    """The list contradicts itself or gives no reason; the message names the test."""


def load(file: Path = FILE) -> dict[str, Expectation]:
    """The list by test id. Raises ExpectationError."""
    sections = tomllib.loads(file.read_text(encoding="utf-8"))
    passing = sections.get("pass", {})
    found = [(test, Expectation(Outcome.PASS)) for test in passing.get("fast", {})]
    found += [(test, Expectation(Outcome.PASS, is_slow=True)) for test in passing.get("slow", {})]
    for outcome in (Outcome.FAIL, Outcome.SKIPPED, Outcome.NOT_APPLICABLE):
        for test, reason in sections.get(outcome, {}).items():
            if not reason.strip():
                raise ExpectationError(f"'{test}' is expected to be {outcome} for no reason; write why")
            found.append((test, Expectation(outcome, reason, is_slow=True)))
    twice = [test for test, times in Counter(test for test, _ in found).items() if times > 1]
    if twice:
        raise ExpectationError(f"these tests are in two sections: {', '.join(twice)}")
    return dict(found)


def differences(expected: Mapping[str, Expectation], results: Mapping[str, Result], wanted: Iterable[str]) -> list[str]:
    """One line for each of the `wanted` tests that did not come out as expected, or did not come out at all."""
    lines = []
    for test in wanted:
        expectation, result = expected.get(test), results.get(test)
        if expectation is None:
            lines.append(f"{test}: not in the list; it came out as {result.outcome if result else 'nothing'}")
        elif result is None:
            lines.append(f"{test}: did not run; expected {expectation.outcome}")
        elif expectation.outcome is Outcome.NOT_APPLICABLE:
            continue
        elif result.outcome is not expectation.outcome:
            lines.append(f"{test}: {result.outcome}, expected {expectation.outcome}. {_last_line(result.detail)}")
    return lines


def _last_line(detail: str) -> str:
    lines = [line for line in detail.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
