"""The command `python -m tests.conformance.python_versions`: run older releases of azure-servicebus on a sandbox.

Each release is installed with pip in a temporary environment, where the same program, `checks.py`, is run with it.
Prints a table of checks and releases. Exit status: 0 when every check passed, 1 when one did not, 2 with the reason
when they were skipped.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.conformance.checking import Skipped, Verdict, install_python, run, sandbox_facts

RELEASES: Final = ("7.11.4", "7.12.3", "7.13.0", "7.14.3", "7.15.0")
TRANSPORTS: Final = ("aiohttp", "websocket-client")
"""The asynchronous clients need the first; below 7.14 synchronous ones go to an endpoint of their own by the second."""
CHECKS: Final = Path(__file__).with_name("checks.py")
FETCHING_SECONDS: Final = 180.0


def main() -> int:
    try:
        found = {release: cross_check(release) for release in RELEASES}
    except Skipped as reason:
        print(f"python_versions: skipped: {reason}", file=sys.stderr)
        return 2
    print(table(found))
    verdicts = [verdict for verdicts in found.values() for verdict in verdicts]
    failed = sum(not verdict.passed for verdict in verdicts)
    print(f"{len(verdicts) - failed} passed, {failed} failed")
    return 1 if failed else 0


def cross_check(release: str) -> list[Verdict]:
    """Run every check with one release, on a sandbox of its own. Raises Skipped."""
    package = f"azure-servicebus=={release}"
    with tempfile.TemporaryDirectory(prefix="sandbox-versions-") as folder:
        python = install_python(Path(folder), package, *TRANSPORTS, seconds=FETCHING_SECONDS)
        with sandbox_facts() as facts:
            namespace = facts["namespaces"][0]
            where = [namespace["connection_string"], f"sb://127.0.0.1:{namespace['amqp_port']}", facts["ca_file"]]
            return run([python, str(CHECKS), *where], Path(folder))


def table(found: dict[str, list[Verdict]]) -> str:
    """Show a row for each check and a column for each release; what failed is told below."""
    checks = list(dict.fromkeys(verdict.check for verdicts in found.values() for verdict in verdicts))
    width = max(map(len, checks))
    lines = [" " * width + "".join(f"  {release:>7}" for release in found)]
    passed = {(release, one.check): one.passed for release, verdicts in found.items() for one in verdicts}
    words = {True: "passed", False: "FAILED", None: "-"}
    for check in checks:
        lines.append(f"{check:{width}}" + "".join(f"  {words[passed.get((release, check))]:>7}" for release in found))
    for release, verdicts in found.items():
        lines += [f"{release}, {one.check}: {one.error}" for one in verdicts if not one.passed]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
