"""The command `python -m tests.conformance.sdk_releases [RELEASE ...]`: run the hooks' contract with SDK releases.

Without arguments: the oldest and the newest release that pyproject.toml admits, and a pre-release if PyPI has a newer
one. Each is installed with pip in a temporary environment, where tests/pairing/test_sdk_internals.py runs. Exit status:
0 when every release passed, 1 when one did not, 2 with the reason when they were skipped.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.version import Version

from tests.conformance.checking import Skipped, install_python

ROOT: Final = Path(__file__).parents[3]
CONTRACT: Final = ROOT / "tests" / "pairing" / "test_sdk_internals.py"
SDK: Final = "azure-servicebus"
TOOLS: Final = ("pytest>=8.3,<9", "pytest-asyncio>=1.0")
FETCHING_SECONDS: Final = 180.0
RUNNING_SECONDS: Final = 120.0


def main(*releases: str) -> int:
    """Run the contract with each release and print one line for each."""
    try:
        chosen = releases or default_releases()
        passed = [cross_check(release) for release in chosen]
    except Skipped as reason:
        print(f"sdk_releases: skipped: {reason}", file=sys.stderr)
        return 2
    return 0 if all(passed) else 1


def default_releases() -> tuple[str, ...]:
    """Return the ends of the admitted range and a newer pre-release. Raises Skipped."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", SDK, "--pre"], capture_output=True, text=True, check=False
    )
    versions = re.search(r"^Available versions: (.+)$", listed.stdout, re.MULTILINE)
    if versions is None:
        raise Skipped(f"pip cannot list the releases of {SDK}")
    chosen, remark = choose(versions[1].split(", "), library_requirement(SDK))
    print(remark)
    return chosen


def choose(releases: list[str], admitted: Requirement) -> tuple[tuple[str, ...], str]:
    """Return the releases to run, oldest first, and a remark about pre-releases."""
    versions = sorted(map(Version, releases))
    inside = [one for one in versions if not one.is_prerelease and one in admitted.specifier]
    if not inside:
        raise Skipped(f"PyPI has no release of {admitted}")
    newer = [one for one in versions if one.is_prerelease and one > inside[-1]][-1:]
    chosen = tuple(dict.fromkeys(str(one) for one in (inside[0], inside[-1], *newer)))
    remark = f"newest pre-release: {newer[0]}" if newer else f"no pre-release is newer than {inside[-1]}"
    return chosen, f"{admitted} admits {inside[0]} to {inside[-1]}; {remark}"


def library_requirement(name: str) -> Requirement:
    """Return one requirement of the extra `library`."""
    return next(one for one in library_requirements() if one.name == name)


def library_requirements() -> list[Requirement]:
    """Return the requirements of the extra `library`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [Requirement(one) for one in project["optional-dependencies"]["library"]]


def cross_check(release: str) -> bool:
    """Run the contract with one release; print its failures. Raises Skipped."""
    package = f"{SDK}=={release}"
    others = [str(one) for one in library_requirements() if one.name != SDK]
    with tempfile.TemporaryDirectory(prefix="sdk-releases-") as folder:
        python = install_python(Path(folder), package, *others, *TOOLS, seconds=FETCHING_SECONDS)
        options = ["--noconftest", "-c", os.devnull, "--rootdir", folder, "-p", "no:cacheprovider"]
        options += ["-o", "asyncio_mode=auto", "--import-mode=importlib", "-q", "--tb=line"]
        done = subprocess.run(
            [python, "-m", "pytest", *options, str(CONTRACT)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT / "console"), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=RUNNING_SECONDS,
            check=False,
        )
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines()
    print(f"{release}: {lines[-1] if lines else 'no output'}")
    if done.returncode:
        print("\n".join(f"  {line}" for line in lines[:-1] if not line.startswith(".")))
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
