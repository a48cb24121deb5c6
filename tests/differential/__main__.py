"""The command `python -m tests.differential [TEXT]`: run the cases whose names have TEXT, print them as a table.

Exit status 1 if the pairing raised more than the SDK, took longer than it may, or parked a message.
"""

from __future__ import annotations

import asyncio
import logging
import sys

from .cases import CASES, Case, Result, run
from .sides import Outcome

HEADS = ("fault", "phase", "kind", "SDK", "paired", "with hold", "parked")


def main(text: str = "") -> int:
    logging.disable(logging.WARNING)  # the faults are on purpose
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    worse = [case for case in CASES if text in str(case) and not show(case, asyncio.run(run(case)))]
    print(*(f"worse: {case}" for case in worse), sep="\n")
    return bool(worse)


def show(case: Case, found: Result) -> bool:
    """Print a row; return whether the pairing was no worse."""
    cells = [case.fault, case.phase, case.mode, *map(cell, (found.sdk, *found.ours.values())), str(found.parked)]
    print(f"| {' | '.join(cells)} |", flush=True)
    longest = case.longest(found.sdk)
    same = all((one.raised, one.results) == (found.sdk.raised, found.sdk.results) for one in found.ours.values())
    return same and found.parked == 0 and all(one.seconds <= longest for one in found.ours.values())


def cell(outcome: Outcome) -> str:
    return f"{outcome.raised or 'ok'}, {outcome.seconds:.2f} s"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
