"""Fetching Microsoft's tests: the source archive of the installed azure-servicebus, by pip, into a cache folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

PACKAGE = "azure-servicebus"
_ALSO_NEEDED = ("azure-common", "websocket-client")
"""What the tests import, the second through the synchronous client's WebSocket, and azure-servicebus does not bring."""


class ArchiveError(Exception):
    """The archive could not be had; the message says what pip said."""


@dataclass(frozen=True, slots=True)
class Archive:
    """`tests` is the folder of Microsoft's tests, `needed` one with packages that only they import."""

    version: str
    tests: Path
    needed: Path


def fetch() -> Archive:
    """The archive of the version that is installed; what was fetched before is used again. Raises ArchiveError."""
    wanted = version(PACKAGE)
    folder = Path(tempfile.gettempdir()) / f"servicebus-conformance-{os.getuid()}" / wanted
    source = folder / f"azure_servicebus-{wanted}"
    archive = Archive(wanted, source / "tests", folder / "+".join(_ALSO_NEEDED))
    if not archive.needed.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        _pip("download", "--no-binary", PACKAGE, "--no-deps", "--dest", str(folder), f"{PACKAGE}=={wanted}")
        with tarfile.open(source.with_suffix(source.suffix + ".tar.gz")) as packed:
            packed.extractall(folder, filter="data")
        _pip("install", "--no-deps", "--target", str(archive.needed), *_ALSO_NEEDED)
    return archive


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ArchiveError(f"'pip {' '.join(arguments)}' failed:\n{done.stderr.strip()}")
