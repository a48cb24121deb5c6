"""The command `python -m tests.conformance.rhea [--gateway]`: fetch JavaScript clients, run our programs on sandboxes.

`checks.mjs` looks at what the clients see, `quickstart.mjs` follows the steps of @azure/service-bus's README, and
`administration.mjs` makes every call of its administration client.

Nothing of theirs is kept: the packages live in a temporary folder, in the versions that are named here. Exit status: 0
when every check passed, 1 when one did not, 2 with the reason when they were skipped.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from tests.conformance.checking import ENDING, Skipped, Verdict, fetch, find_tool, run, sandbox_facts, tell
from tests.conformance.gateways import gateways, trust_file

PACKAGES: Final = ("rhea@3.0.5", "@azure/service-bus@7.9.5")
PROGRAMS: Final = tuple(
    Path(__file__).with_name(name) for name in ("checks.mjs", "quickstart.mjs", "administration.mjs")
)
OLDEST_NODE: Final = 20
FETCHING_SECONDS: Final = 180.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.rhea")
    parser.add_argument("--gateway", action="store_true", help="all clients go through a gateway")
    through = parser.parse_args(arguments).gateway
    return tell("rhea", lambda: cross_check(gateway=through), clients=" and ".join(PACKAGES))


def cross_check(*, gateway: bool = False) -> list[Verdict]:
    """Run every program on a sandbox of its own. Raises Skipped."""
    node, npm = _node_and_npm()
    with tempfile.TemporaryDirectory(prefix="sandbox-rhea-") as folder:
        command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", folder, *PACKAGES]
        fetch(command, " and ".join(PACKAGES), seconds=FETCHING_SECONDS)
        verdicts = []
        for program in PROGRAMS:
            shutil.copy(program, folder)
            with sandbox_facts() as facts, gateways(facts) if gateway else nullcontext({}) as strings:
                primary = facts["namespaces"][0]
                connection_string = strings.get(primary["name"], primary["connection_string"])
                trusted = {"NODE_EXTRA_CA_CERTS": trust_file(facts) if gateway else facts["ca_file"]}
                verdicts += run([node, program.name, connection_string], Path(folder), environment=trusted)
        return verdicts


def _node_and_npm() -> tuple[str, str]:
    node, npm = (find_tool(name, f"Node.js {OLDEST_NODE} or newer") for name in ("node", "npm"))
    version = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=ENDING, check=True).stdout
    if int(version.lstrip("v").partition(".")[0]) < OLDEST_NODE:
        raise Skipped(f"node is {version.strip()}; the clients need {OLDEST_NODE} or newer")
    return node, npm


if __name__ == "__main__":
    sys.exit(main())
