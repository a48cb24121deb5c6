"""Cross-checks that are run where their tools exist and compared with a committed list of checks.

A machine without the tools prints `skipped: NAME` and passes; with `--required` it fails. So a change is checked
wherever it can be, and a machine that has the tools cannot skip them unnoticed. Without the package registry the
status is 2, as for every cross-check.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from tests.conformance.checking import Skipped, Unfetched, Verdict

GATEWAY_SERVES: Final = {"": (), "senders": ("SANDBOX_SENDERS",), "all": ("SANDBOX_SENDERS", "SANDBOX_CLIENTS")}
"""By whom the gateway serves: the variables that its connection strings are given in."""


def main(
    name: str,
    cross_check: Callable[[list[str], str], list[Verdict]],
    checks: Sequence[str],
    *,
    clients: str,
    unfit: Collection[str] = (),
    different: Mapping[str, str] | None = None,
    arguments: Sequence[str] | None = None,
) -> int:
    """Run the command of one cross-check.

    Args:
        unfit: checks that say nothing about a gateway: faults of the namespace, and what does not go through it.
        different: checks that fail through a gateway, each with the reason; one that passes is a problem.

    Returns 0: every check of the list passed; 1: not all; 2: wrong usage, or no package registry.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tests.conformance.{name}")
    parser.add_argument("--required", action="store_true", help="fail if the checks have to be skipped")
    parser.add_argument(
        "--gateway",
        choices=tuple(GATEWAY_SERVES),
        default="",
        help="checks with a healthy primary go through a gateway: senders alone, or all clients",
    )
    parser.add_argument("parts", nargs="*", metavar="TEXT", help="only checks with one of these texts in their names")
    given = parser.parse_args(arguments)
    wanted = [check for check in checks if not given.parts or any(part in check for part in given.parts)]
    if given.gateway:
        wanted = [check for check in wanted if check not in unfit]
    try:
        verdicts = cross_check(wanted if given.gateway else given.parts, given.gateway)
    except Skipped as reason:
        print(f"skipped: {name}: {reason}", file=sys.stderr if given.required else sys.stdout)
        if not given.required:
            return 0
        return 2 if isinstance(reason, Unfetched) else 1
    if given.gateway:
        verdicts = [_differing(verdict, different or {}) for verdict in verdicts]
    for verdict in verdicts:
        print(f"passed  {verdict.check}" if verdict.passed else f"FAILED  {verdict.check}: {verdict.error}")
    problems = differences(wanted, verdicts)
    print(*problems, sep="\n", end="\n" * bool(problems))
    passed = sum(verdict.passed for verdict in verdicts)
    print(f"{passed} of {len(wanted)} checks passed, with {clients}")
    return int(bool(problems) or passed < len(verdicts))


def _differing(verdict: Verdict, different: Mapping[str, str]) -> Verdict:
    """Return the verdict on a check that goes through a gateway; a known difference is printed and passes."""
    reason = different.get(verdict.check)
    if reason is None:
        return verdict
    if verdict.passed:
        return Verdict(verdict.check, False, "it passes through the gateway: take it off the list of differences")
    print(f"differs {verdict.check}: {reason}")
    return Verdict(verdict.check, True, None)


def differences(checks: Sequence[str], verdicts: Sequence[Verdict]) -> list[str]:
    """Return one line for each check that the list and the run do not share."""
    ran = Counter(verdict.check for verdict in verdicts)
    lines = [f"did not run: {check}" for check in checks if check not in ran]
    lines += [f"not in the list: {check}" for check in ran if check not in checks]
    return lines + [f"ran {times} times: {check}" for check, times in ran.items() if times > 1]
