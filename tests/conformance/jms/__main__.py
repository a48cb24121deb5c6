"""The command `python -m tests.conformance.jms [--gateway]`: Qpid JMS, which logs in by the name of a key and the key.

Maven fetches the client in the version of pom.xml into a temporary folder. Exit status: 0 when every check passed, 1
when one did not, 2 with the reason when they were skipped.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from tests.conformance.checking import MAVEN, Verdict, class_path, fetch, find_tool, run, sandbox_facts, tell
from tests.conformance.gateways import gateways

PROJECT: Final = Path(__file__).parent
CLIENT: Final = "qpid-jms-client"
BUILDING_SECONDS: Final = 300.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.jms")
    parser.add_argument("--gateway", action="store_true", help="all clients go through a gateway")
    through = parser.parse_args(arguments).gateway
    return tell("jms", lambda: cross_check(gateway=through), clients=CLIENT)


def cross_check(*, gateway: bool = False) -> list[Verdict]:
    """Build the program and run it on a sandbox of its own. Raises Skipped."""
    java, mvn = find_tool("java"), find_tool("mvn")
    with tempfile.TemporaryDirectory(prefix="sandbox-jms-") as name:
        folder = Path(name) / "jms"
        shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        fetch([mvn, "-f", str(folder / "pom.xml"), *MAVEN], CLIENT, seconds=BUILDING_SECONDS)
        with sandbox_facts() as facts, gateways(facts) if gateway else nullcontext({}) as strings:
            primary = facts["namespaces"][0]
            string = strings.get(primary["name"], primary["connection_string"])
            return run([java, "-cp", class_path(folder), "JmsChecks", *_login(string)], folder)


def _login(connection_string: str) -> list[str]:
    """Return the address, the user and the password of a connection string."""
    found = dict(re.findall(r"(\w+)=([^;]*)", connection_string))
    address = found["Endpoint"].replace("sb://", "amqp://").rstrip("/")
    return [address, found["SharedAccessKeyName"], found["SharedAccessKey"]]


if __name__ == "__main__":
    sys.exit(main())
