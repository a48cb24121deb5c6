"""The command `python -m tests.conformance.java [--required] [--gateway senders|all] [TEXT ...]`: the Java checks.

Maven fetches azure-messaging-servicebus in the version of pom.xml, and compiles the checks in a temporary folder, which
the next run uses again. Each check is a method of a class in src. It has a namespace of its own, so several run at the
same time. Exit status: 0 when every check of CHECKS passed, or when Java or Maven is missing; 1 otherwise.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

from tests.conformance import listed
from tests.conformance.checking import (
    ENDING,
    LIBRARIES,
    MAVEN,
    Skipped,
    Unfetched,
    Verdict,
    class_path,
    find_tool,
    run,
    sandbox_facts,
)
from tests.conformance.gateways import SECONDARY, authority_file, gateways

PROJECT: Final = Path(__file__).parent
CLIENT: Final = "azure-messaging-servicebus"
OLDEST_JAVA: Final = 17
COMES_WITH: Final = f"a JDK, {OLDEST_JAVA} or newer, and Maven"
BUILDING_SECONDS: Final = 300.0
_CHECK: Final = re.compile(r"^    static void (\w+)\(Namespace at\)", re.MULTILINE)
SOURCES: Final = "\n".join(path.read_text("utf-8") for path in sorted(PROJECT.rglob("*Checks.java")))
CHECKS: Final = tuple(_CHECK.findall(SOURCES))
"""The methods of the classes of checks. One that did not run fails the run."""


class BuildError(Exception):
    """The checks do not compile; the text is the compiler's."""


UNFIT: Final = (
    *(check for check in CHECKS if check.startswith("survives") or "Survives" in check or check.endswith("IsReported")),
    "settlesOverANewConnection",
    "aLostConnectionUndoesTheTransaction",  # the one cut connection may be another of the engine's
    "keepsASecondEntityOut",  # a gateway refuses the commit, since the SDK hides that the send was refused
)
"""Checks that do not go through a gateway, or break what is behind it."""


def main(arguments: Sequence[str] | None = None) -> int:
    clients = f"{CLIENT} {version()}"
    return listed.main("java", cross_check, CHECKS, clients=clients, unfit=UNFIT, arguments=arguments)


def version() -> str:
    """Return the SDK's version."""
    pom = (PROJECT / "pom.xml").read_text("utf-8")
    found = re.search(rf"<artifactId>{CLIENT}</artifactId>\s*<version>([^<]*)", pom)
    assert found is not None
    return found[1]


def cross_check(parts: Sequence[str], gateway: str = "") -> list[Verdict]:
    """Build the program and run it on a sandbox of its own. Raises Skipped."""
    checks = [check for check in CHECKS if not parts or any(part in check for part in parts)]
    tools = {name: find_tool(name, COMES_WITH) for name in ("java", "mvn", "keytool")}
    _require_version(tools["java"])
    try:
        classes = build(tools["mvn"])
    except BuildError as error:
        return [Verdict("the checks compile", False, str(error))]
    with tempfile.TemporaryDirectory(prefix="sandbox-java-") as name:
        folder = Path(name)
        config = folder / "namespaces.toml"
        config.write_text(namespaces([*checks, SECONDARY] if gateway else checks), encoding="utf-8")
        with (
            sandbox_facts("--config", str(config)) as facts,
            gateways(facts, SECONDARY) if gateway else nullcontext({}) as strings,
        ):
            trusted = _truststore(tools["keytool"], authority_file(facts) if gateway else facts["ca_file"], folder)
            command = [tools["java"], "-cp", classes, *trusted, "conformance.Main"]
            return run(command, folder, environment=_environment(facts, strings, gateway))


def build(mvn: str) -> str:
    """Compile, or find the classes of the same sources; return the class path. Raises BuildError, Skipped."""
    files = (PROJECT / "pom.xml", *sorted(PROJECT.rglob("*.java")))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    built = Path(tempfile.gettempdir()) / f"servicebus-conformance-{os.getuid()}" / f"java-{digest}"
    if not _is_complete(built):
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as name:
            fresh = Path(name) / built.name
            shutil.copytree(PROJECT, fresh, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
            _run_maven([mvn, "-f", str(fresh / "pom.xml"), *MAVEN])
            shutil.rmtree(built, ignore_errors=True)
            fresh.rename(built)
    return class_path(built)


def _run_maven(command: Sequence[str]) -> None:
    sdk = f"{CLIENT} {version()}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILDING_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unfetched(f"mvn did not fetch {sdk} within {BUILDING_SECONDS:g} s") from error
    if done.returncode:
        errors = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")] or ["no reason given"]
        if "COMPILATION ERROR" in errors[0]:
            raise BuildError("\n".join(errors))
        raise Unfetched(f"mvn cannot fetch {sdk}: {errors[0]}")


def _is_complete(built: Path) -> bool:
    """Whether it was compiled to the end, and Maven's packages are still there."""
    libraries = built / LIBRARIES
    return libraries.is_file() and all(Path(each).is_file() for each in libraries.read_text().split(os.pathsep))


def namespaces(checks: Sequence[str]) -> str:
    """Return a configuration of the sandbox: a namespace for each check, all with the same entities."""
    entities = (PROJECT / "namespaces.toml").read_text(encoding="utf-8")
    return "\n".join(f'[[namespace]]\nname = "{check}"\n{entities}' for check in checks)


def _require_version(java: str) -> None:
    done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=ENDING, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    if found is None or int(found[1]) < OLDEST_JAVA:
        said = done.stderr.strip().partition("\n")[0]
        raise Skipped(f"java is {said or 'of an unknown version'}; the checks need {OLDEST_JAVA} or newer")


def _truststore(keytool: str, ca_file: str, folder: Path) -> list[str]:
    """Options with which Java trusts the sandbox."""
    store, password = str(folder / "trusted.p12"), "sandbox"
    command = [keytool, "-importcert", "-noprompt", "-alias", "sandbox", "-file", ca_file, "-keystore", store]
    command += ["-storetype", "PKCS12", "-storepass", password]
    subprocess.run(command, capture_output=True, timeout=ENDING * 3, check=True)
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={password}"]


def _environment(facts: Mapping[str, Any], gateways_of: Mapping[str, str], gateway: str) -> dict[str, str]:
    own = {each["name"]: each["connection_string"] for each in facts["namespaces"]}
    own = {name: string for name, string in own.items() if not gateway or name in gateways_of}
    strings = {"SANDBOX_NAMESPACES": own} | dict.fromkeys(listed.GATEWAY_SERVES[gateway], gateways_of)
    given = {variable: "\n".join(map("=".join, those.items())) for variable, those in strings.items()}
    return given | {"SANDBOX_CONTROL": facts["control_url"]}


if __name__ == "__main__":
    sys.exit(main())
