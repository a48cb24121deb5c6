"""Finds the senders that this machine can run: a language's tools, and the official SDK among the packages it has.

Nothing is downloaded: a demo that reached for a registry would surprise its owner, and would fail where there is none.
What is missing is told with the command that installs it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent
NODE_PACKAGE: Final = "@azure/service-bus"
JAVA_PACKAGE: Final = "azure-messaging-servicebus"
GO_PACKAGE: Final = "azservicebus"
PYTHON: Final = "Python"
FIND_SECONDS: Final = 20.0
BUILD_SECONDS: Final = 240.0
"""A first build in Go takes a minute: the standard library and the SDK are compiled."""
JAVA_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderProgram:
    """A sender in one language. `command` lacks the four arguments; `environment` comes on top of ours."""

    language: str
    sdk: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


class NotFound(Exception):
    """A language's tools or its SDK are missing; the text says which, and what installs it."""


def python_program() -> SenderProgram:
    """Return the sender in Python, which is always there."""
    sdk = f"azure-servicebus {version('azure-servicebus')}"
    return SenderProgram(language=PYTHON, sdk=sdk, command=(sys.executable, "-P", str(SOURCES / "python_sender.py")))


def find_programs(folder: Path, languages: Iterable[str] = ()) -> tuple[list[SenderProgram], dict[str, str]]:
    """Return the senders that can run here, and for each other language the reason. May take a minute.

    Args:
        folder: for what is built; it must exist, and outlive the programs.
        languages: of FOREIGN; none: all of them.
    """
    asked = tuple(languages) or FOREIGN
    missing: dict[str, str] = {}

    def find(language: str) -> SenderProgram | None:
        try:
            return _FINDERS[language](folder)
        except NotFound as reason:
            missing[language] = str(reason)
            return None

    with ThreadPoolExecutor(len(asked)) as threads:
        found = [program for program in threads.map(find, asked) if program is not None]
    return found, missing


def javascript_program(folder: Path) -> SenderProgram:
    """Find node and its package, in the working directory, where NODE_PATH says, or installed globally."""
    del folder
    node = _tool("node", "Node.js 20")
    paths = [str(Path.cwd() / "node_modules"), *filter(None, [os.environ.get("NODE_PATH"), _global_modules()])]
    environment = {"NODE_PATH": os.pathsep.join(paths)}
    asking = f"require(require.resolve('{NODE_PACKAGE}').split('dist')[0] + 'package.json').version"
    found = _ask([node, "-p", asking], f"npm install {NODE_PACKAGE}", environment)
    command = (node, str(SOURCES / "sender.cjs"))
    return SenderProgram(language="JavaScript", sdk=f"{NODE_PACKAGE} {found}", command=command, environment=environment)


def java_program(folder: Path) -> SenderProgram:
    """Find a JDK, Maven, and the packages of the pom in Maven's local repository; compile the sender."""
    javac, mvn, java = (_tool(name, "a JDK 17 and Maven") for name in ("javac", "mvn", "java"))
    pom, listed = SOURCES / "pom.xml", folder / "libraries"
    asking = [mvn, "-o", "-B", "-q", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={listed}"]
    _ask(asking, f"mvn -f {pom} dependency:build-classpath")
    libraries = listed.read_text(encoding="utf-8").strip()
    classes = folder / "classes"
    _ask([javac, "-cp", libraries, "-d", str(classes), str(SOURCES / "Sender.java")], "install a JDK 17")
    path = os.pathsep.join((str(classes), libraries))
    named = re.search(rf"{JAVA_PACKAGE}-([\d.]+[\w.-]*)\.jar", libraries)
    return SenderProgram(
        language="Java",
        sdk=f"{JAVA_PACKAGE} {named[1] if named else ''}".strip(),
        command=(java, *JAVA_OPTIONS, "-cp", path, "Sender"),
    )


def go_program(folder: Path) -> SenderProgram:
    """Find Go and the modules of go.mod in its cache; build the sender."""
    go, built, copied = _tool("go", "Go"), folder / "go-sender", folder / "go"
    shutil.copytree(SOURCES / "go", copied, dirs_exist_ok=True)
    offline = {"GOPROXY": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    _ask([go, "-C", str(copied), "build", "-o", str(built), "."], f"go -C {SOURCES / 'go'} mod download", offline)
    named = re.search(rf"{GO_PACKAGE} v(\S+)", (SOURCES / "go" / "go.mod").read_text(encoding="utf-8"))
    return SenderProgram(language="Go", sdk=f"{GO_PACKAGE} {named[1] if named else ''}".strip(), command=(str(built),))


_FINDERS: Final[dict[str, Callable[[Path], SenderProgram]]] = {
    "JavaScript": javascript_program,
    "Java": java_program,
    "Go": go_program,
}
FOREIGN: Final = tuple(_FINDERS)
"""The languages other than Python."""


def _tool(name: str, comes_with: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NotFound(f"{name} is not on the PATH; install {comes_with} or newer")
    return found


def _ask(command: list[str], installs: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a tool and return its output. Raises NotFound."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotFound(f"{Path(command[0]).name} does not run ({type(error).__name__})") from error
    if done.returncode:
        raise NotFound(f"the SDK is not among its packages; to have it: {installs}")
    return done.stdout.strip()


def _global_modules() -> str | None:
    npm = shutil.which("npm")
    if npm is None:
        return None
    try:
        asked = subprocess.run([npm, "root", "-g"], capture_output=True, text=True, timeout=FIND_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip() or None
