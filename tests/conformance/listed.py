"""Cross-checks that are run where their tools exist and compared with a committed list of checks.

A machine without the tools prints `skipped: NAME` and passes; with `--required` it fails. So a change is checked
wherever it can be, and a machine that has the tools cannot skip them unnoticed. Without the package registry the
status is 2, as for every cross-check.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from tests.conformance.checking import Skipped, Unfetched, Verdict


def main(
    name: str,
    cross_check: Callable[[list[str]], list[Verdict]],
    checks: Sequence[str],
    *,
    clients: str,
    arguments: Sequence[str] | None = None,
) -> int:
    """Run the command of one cross-check.

    Returns 0: every check of the list passed; 1: not all; 2: wrong usage, or no package registry.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tests.conformance.{name}")
    parser.add_argument("--required", action="store_true", help="fail if the checks have to be skipped")
    parser.add_argument("parts", nargs="*", metavar="TEXT", help="only checks with one of these texts in their names")
    given = parser.parse_args(arguments)
    wanted = [check for check in checks if not given.parts or any(part in check for part in given.parts)]
    try:
        verdicts = cross_check(given.parts)
    except Skipped as reason:
        print(f"skipped: {name}: {reason}", file=sys.stderr if given.required else sys.stdout)
        if not given.required:
            return 0
        return 2 if isinstance(reason, Unfetched) else 1
    for verdict in verdicts:
        print(f"passed  {verdict.check}" if verdict.passed else f"FAILED  {verdict.check}: {verdict.error}")
    problems = differences(wanted, verdicts)
    print(*problems, sep="\n", end="\n" * bool(problems))
    passed = sum(verdict.passed for verdict in verdicts)
    print(f"{passed} of {len(wanted)} checks passed, with {clients}")
    return int(bool(problems) or passed < len(verdicts))


def differences(checks: Sequence[str], verdicts: Sequence[Verdict]) -> list[str]:
    """Return one line for each check that the list and the run do not share."""
    ran = Counter(verdict.check for verdict in verdicts)
    lines = [f"did not run: {check}" for check in checks if check not in ran]
    lines += [f"not in the list: {check}" for check in ran if check not in checks]
    return lines + [f"ran {times} times: {check}" for check, times in ran.items() if times > 1]
