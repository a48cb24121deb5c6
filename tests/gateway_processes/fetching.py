"""Has the registries' own clients fetch the SDKs, so that the demo's senders find them as on their owner's machine.

npm's packages lie in a folder of their own, those of Go and Maven in their caches.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from paired_servicebus.demo.languages.sender_programs import SenderProgram
from tests.conformance.checking import Unfetched, fetch
from tests.conformance.rhea.__main__ import PACKAGES
from tests.examples.sender_programs import FOREIGN, NODE_PACKAGE, SOURCES, find_programs, python_program

SECONDS: Final = 240.0


@contextmanager
def programs(folder: Path) -> Iterator[list[SenderProgram]]:
    """Yield the senders that run here, and print why others do not."""
    before = os.environ.get("NODE_PATH")
    os.environ["NODE_PATH"] = os.pathsep.join(filter(None, (str(folder / "node_modules"), before)))
    try:
        with ThreadPoolExecutor(len(FOREIGN)) as threads:
            found = [program for each in threads.map(lambda one: _programs(one, folder), FOREIGN) for program in each]
        yield [*found, python_program()]
    finally:
        os.environ.pop("NODE_PATH", None)
        if before is not None:
            os.environ["NODE_PATH"] = before


def _programs(language: str, folder: Path) -> list[SenderProgram]:
    """Return the sender in a language, fetched if need be; none if it cannot be had."""
    found, missing = find_programs(folder, [language])
    if missing:
        _fetch(language, folder)
        found, missing = find_programs(folder, [language])
    for reason in missing.values():
        print(f"no {language}: {reason}", file=sys.stderr)
    return found


def _fetch(language: str, folder: Path) -> None:
    package = next(one for one in PACKAGES if one.startswith(NODE_PACKAGE))
    tool, arguments = {
        "JavaScript": (
            "npm",
            ("install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder), package),
        ),
        "Java": ("mvn", ("-B", "-q", "-f", str(SOURCES / "pom.xml"), "dependency:build-classpath")),
        "Go": ("go", ("-C", str(SOURCES / "go"), "mod", "download")),
    }[language]
    found = shutil.which(tool)
    if found is None:
        return
    try:
        fetch([found, *arguments], f"the SDK for {language}", seconds=SECONDS)
    except Unfetched as reason:
        print(reason, file=sys.stderr)
