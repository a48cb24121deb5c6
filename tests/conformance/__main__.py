"""The command `python -m tests.conformance`: run Microsoft's tests against the sandbox, compare with the list."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from tests.conformance.archive import ArchiveError, fetch
from tests.conformance.expected import GATEWAY_FILE, Expectation, ExpectationError, Outcome, Result, differences, load
from tests.conformance.running import LONGEST_TEST_SECONDS, RunningError, collect, run


def main() -> int:
    """0: all as in the list; 1: differences; 2: it could not be run, or not to the end."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--fast", action="store_true", help="only the part of the list that takes few minutes")
    parser.add_argument("--gateway", action="store_true", help="with a gateway of a pairing before the sandbox")
    parser.add_argument("--only", metavar="TEXT", default="", help="only tests with this text in their ids")
    parser.add_argument("--workers", type=int, default=2, help="batches at once (default 2)")
    parser.add_argument("--limit", type=int, default=LONGEST_TEST_SECONDS, help="seconds for one test (default 600)")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write what came out to FILE, as JSON")
    asked = parser.parse_args()
    try:
        return asyncio.run(_check(asked))
    except (ArchiveError, ExpectationError, RunningError) as error:
        print(f"conformance: {error}", file=sys.stderr)
    except asyncio.CancelledError:
        print("conformance: told to end before all tests had run", file=sys.stderr)
    return 2


async def _check(asked: argparse.Namespace) -> int:
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    text, only_fast, file = asked.only, asked.fast, asked.results
    expected, began = load(), time.monotonic()
    if asked.gateway:
        expected |= load(GATEWAY_FILE)
    archive = fetch()
    tests = [test for test in await collect(archive) if text in test and not (only_fast and _is_slow(expected, test))]
    results = await run(archive, tests, workers=asked.workers, limit=asked.limit, told=_tell, gateway=asked.gateway)
    if file is not None:
        lines = {test: asdict(result) for test, result in sorted(results.items())}
        file.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
    gone = [test for test in expected if not (text or only_fast or asked.gateway) and test not in tests]
    found = differences(expected, results, [*tests, *gone])
    print(*found, sep="\n")
    print(f"azure-servicebus {archive.version}: {_summary(expected, results)}, in {time.monotonic() - began:.0f} s")
    print(f"{len(found)} different from the list" if found else "all as in the list")
    return 1 if found else 0


def _is_slow(expected: dict[str, Expectation], test: str) -> bool:
    return test in expected and expected[test].is_slow


def _tell(test: str, result: Result) -> None:
    print(f"{result.outcome:8} {result.seconds:6.1f} s  {test}", flush=True)


def _summary(expected: dict[str, Expectation], results: dict[str, Result]) -> str:
    def counted(test: str, result: Result) -> Outcome:
        is_foreign = test in expected and expected[test].outcome is Outcome.NOT_APPLICABLE
        return Outcome.NOT_APPLICABLE if is_foreign else result.outcome

    counts = Counter(counted(test, result) for test, result in results.items())
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome)


if __name__ == "__main__":
    sys.exit(main())
