"""The command `python -m tests.conformance.rhea`: fetch the JavaScript clients with npm, run `checks.mjs` on a sandbox.

Nothing of theirs is kept: the packages live in a temporary folder, in the versions that are named here. Exit status: 0
when every check passed, 1 when one did not, 2 with the reason when they were skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PACKAGES: Final = ("rhea@3.0.5", "@azure/service-bus@7.9.5")
CHECKS: Final = Path(__file__).with_name("checks.mjs")
OLDEST_NODE: Final = 20
FETCHING, CHECKING, ENDING = 180.0, 300.0, 10.0
"""Seconds for each step."""


class Skipped(Exception):
    """The checks cannot be run here; the text says why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One check and what came of it; `error` is None where it passed."""

    check: str
    passed: bool
    error: str | None


def main() -> int:
    try:
        verdicts = cross_check()
    except Skipped as reason:
        print(f"rhea: skipped: {reason}", file=sys.stderr)
        return 2
    for verdict in verdicts:
        print(
            f"{'passed' if verdict.passed else 'FAILED'}  {verdict.check}{f': {verdict.error}' * (not verdict.passed)}"
        )
    failed = sum(not verdict.passed for verdict in verdicts)
    print(f"{len(verdicts) - failed} of {len(verdicts)} checks passed, with {' and '.join(PACKAGES)}")
    return 1 if failed else 0


def cross_check() -> list[Verdict]:
    """Every check, on a sandbox of its own. Raises Skipped."""
    node, npm = _node_and_npm()
    with tempfile.TemporaryDirectory(prefix="sandbox-rhea-") as folder:
        _install(npm, Path(folder))
        shutil.copy(CHECKS, folder)
        with _sandbox() as connection_string:
            return _run([node, CHECKS.name, connection_string], Path(folder))


def _node_and_npm() -> tuple[str, str]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Skipped(f"{'node' if node is None else 'npm'} is not on the PATH; install Node.js {OLDEST_NODE} or newer")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=ENDING, check=True).stdout
    if int(version.lstrip("v").partition(".")[0]) < OLDEST_NODE:
        raise Skipped(f"node is {version.strip()}; the clients need {OLDEST_NODE} or newer")
    return node, npm


def _install(npm: str, folder: Path) -> None:
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder), *PACKAGES]
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=FETCHING, check=True)
    except subprocess.TimeoutExpired as error:
        raise Skipped(f"npm did not fetch {' and '.join(PACKAGES)} within {FETCHING:g} s") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or ["nothing"]
        raise Skipped(f"npm cannot fetch {' and '.join(PACKAGES)}: {said[-1]}") from error


@contextmanager
def _sandbox() -> Iterator[str]:
    """A sandbox as anybody starts it; the connection string of its primary namespace."""
    with subprocess.Popen([sys.executable, "-m", "console.sandbox.entry", "--json"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["namespaces"][0]["connection_string"]
        finally:
            process.terminate()
            try:
                process.wait(ENDING)
            except subprocess.TimeoutExpired:
                process.kill()


def _run(command: Sequence[str], folder: Path) -> list[Verdict]:
    """What the checks said; one that took the others with it counts as failed."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=CHECKING, check=False)
        said, ended, complaint = done.stdout, done.returncode == 0, done.stderr
    except subprocess.TimeoutExpired as error:
        said, ended = (error.stdout or b"").decode(), False
        complaint = f"not done within {CHECKING:g} s"
    verdicts = [Verdict(**json.loads(line)) for line in said.splitlines()]
    if not ended or not verdicts:
        verdicts.append(Verdict("all checks are run to their end", False, complaint.strip() or "node ended early"))
    return verdicts


if __name__ == "__main__":
    sys.exit(main())
