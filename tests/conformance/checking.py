"""What cross-checks with foreign clients have in common: a sandbox, checks in a process of theirs, a verdict on each.

The checks print one line of JSON each: {"check", "passed", "error"}. Where the clients come from is said by whoever
fetches them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

CHECKING, ENDING = 300.0, 10.0
"""Seconds for each step."""
LIBRARIES: Final = "libraries"
"""The file with the packages of the class path; Maven writes it last."""
MAVEN: Final = (
    "-B",
    "-q",
    "-Dstyle.color=never",
    "compile",
    "dependency:build-classpath",
    f"-Dmdep.outputFile={LIBRARIES}",
)
_ALL: Final = "all checks are run to their end"


class Skipped(Exception):
    """The checks cannot be run here; the text says why."""


class Unfetched(Skipped):
    """A package registry did not deliver what the checks need."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One check and what came of it; `error` is None where it passed."""

    check: str
    passed: bool
    error: str | None


def tell(name: str, cross_check: Callable[[], list[Verdict]], *, clients: str) -> int:
    """Print what came of it; the exit status: 0 all passed, 1 one did not, 2 they were skipped, with the reason."""
    try:
        verdicts = cross_check()
    except Skipped as reason:
        print(f"{name}: skipped: {reason}", file=sys.stderr)
        return 2
    for verdict in verdicts:
        print(
            f"{'passed' if verdict.passed else 'FAILED'}  {verdict.check}{f': {verdict.error}' * (not verdict.passed)}"
        )
    failed = sum(not verdict.passed for verdict in verdicts)
    print(f"{len(verdicts) - failed} of {len(verdicts)} checks passed, with {clients}")
    return 1 if failed else 0


def fetch(command: Sequence[str], what: str, *, seconds: float) -> None:
    """Have a package registry's own client fetch `what`. Raises Unfetched."""
    client = Path(command[0]).name
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True)
    except subprocess.TimeoutExpired as error:
        raise Unfetched(f"{client} did not fetch {what} within {seconds:g} s") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or ["nothing"]
        raise Unfetched(f"{client} cannot fetch {what}: {said[-1]}") from error


def find_tool(name: str, comes_with: str = "") -> str:
    """Return the path of a program. Raises Skipped."""
    found = shutil.which(name)
    if found is None:
        raise Skipped(f"{name} is not on the PATH{comes_with and f'; install {comes_with}'}")
    return found


def install_python(folder: Path, *packages: str, seconds: float) -> str:
    """Have pip install packages into an environment in a folder; return its python. Raises Unfetched."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    fetch([str(python), "-m", "pip", "install", "--quiet", *packages], packages[0], seconds=seconds)
    return str(python)


def class_path(project: Path) -> str:
    """Return the class path of a project that MAVEN compiled."""
    return os.pathsep.join((str(project / "target" / "classes"), (project / LIBRARIES).read_text().strip()))


@contextmanager
def sandbox_facts(*options: str) -> Iterator[dict[str, Any]]:
    """A sandbox as anybody starts it, with these options; all that it tells programs about itself."""
    command = [sys.executable, "-m", "servicebus_sandbox", "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()
            try:
                process.wait(ENDING)
            except subprocess.TimeoutExpired:
                process.kill()


def run(command: Sequence[str], folder: Path, *, environment: Mapping[str, str] | None = None) -> list[Verdict]:
    """What the checks said; one that took the others with it counts as failed. `environment` is added to ours."""
    settings = {**os.environ, **(environment or {})}
    try:
        done = subprocess.run(
            command, cwd=folder, env=settings, capture_output=True, text=True, timeout=CHECKING, check=False
        )
        said, ended, complaint = done.stdout, done.returncode == 0, done.stderr
    except subprocess.TimeoutExpired as error:
        said, ended = (error.stdout or b"").decode(), False
        complaint = f"not done within {CHECKING:g} s"
    verdicts = [Verdict(**json.loads(line)) for line in said.splitlines()]
    if not ended or not verdicts:
        verdicts.append(Verdict(_ALL, False, complaint.strip() or f"{Path(command[0]).name} ended early"))
    return verdicts
