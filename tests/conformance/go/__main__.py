"""The command `python -m tests.conformance.go [--required] [TEXT ...]`: the Go SDK's checks on a sandbox.

Go's own client fetches the modules of go.mod, in the versions and with the hashes that are committed. The program is
built outside the tree. Exit status: 0 when every check of `checks.txt` passed, or when Go is missing; 1 otherwise.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.conformance import listed
from tests.conformance.checking import ENDING, Skipped, Verdict, run, sandbox_facts

FOLDER: Final = Path(__file__).parent
MODULE: Final = "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
BUILDING_SECONDS: Final = 600.0
"""The first build fetches the modules; later ones take a second."""


def main(arguments: Sequence[str] | None = None) -> int:
    return listed.main("go", cross_check, expected(), clients=f"azservicebus {version()}", arguments=arguments)


def expected() -> list[str]:
    """Return the names of all checks."""
    return (FOLDER / "checks.txt").read_text("utf-8").splitlines()


def version() -> str:
    """Return the SDK's version."""
    return _find(rf"{re.escape(MODULE)} (v\S+)")


def cross_check(parts: list[str]) -> list[Verdict]:
    """Build the program and run it on a sandbox of its own. Raises Skipped."""
    go = _go()
    with tempfile.TemporaryDirectory(prefix="sandbox-go-") as folder:
        program = Path(folder) / "sandboxchecks"
        _build(go, program)
        with sandbox_facts() as facts:
            namespace = facts["namespaces"][0]
            addresses = {
                "SANDBOX_CONNECTION_STRING": namespace["connection_string"],
                "SANDBOX_NAMESPACE": namespace["name"],
                "SANDBOX_CA": facts["ca_file"],
                "SANDBOX_CONTROL": facts["control_url"],
            }
            return run([str(program), *parts], Path(folder), environment=addresses)


def _go() -> str:
    go = shutil.which("go")
    if go is None:
        raise Skipped("go is not on the PATH; install Go")
    answer = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, timeout=ENDING, check=False)
    found, oldest = answer.stdout.strip().removeprefix("go"), _find(r"^go (\S+)")
    if _numbers(found) < _numbers(oldest):
        raise Skipped(f"go is {found or 'broken'}; the SDK needs {oldest} or newer")
    return go


def _build(go: str, program: Path) -> None:
    command = [go, "build", "-o", str(program), "."]
    settings = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"}
    try:
        done = subprocess.run(
            command, cwd=FOLDER, env=settings, capture_output=True, text=True, timeout=BUILDING_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Skipped(f"go did not fetch and build the checks within {BUILDING_SECONDS:g} s") from error
    if done.returncode:
        raise Skipped(f"go cannot fetch or build the checks: {done.stderr.strip() or 'no reason given'}")


def _find(pattern: str) -> str:
    found = re.search(pattern, (FOLDER / "go.mod").read_text("utf-8"), re.MULTILINE)
    assert found is not None, pattern
    return found[1]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


if __name__ == "__main__":
    sys.exit(main())
