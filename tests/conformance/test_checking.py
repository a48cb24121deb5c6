"""What foreign clients say of their checks counts, even if they break off; what cannot be had is a reason to skip."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conformance import checking
from tests.conformance.checking import Skipped, Verdict, fetch, run


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
