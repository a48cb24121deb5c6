"""The command `python -m tests.conformance.go [--required] [--gateway senders|all] [TEXT ...]`: the Go SDK's checks.

Go's own client fetches the modules of go.mod, in the versions and with the hashes that are committed. The program is
built outside the tree. Exit status: 0 when every check of CHECKS passed, or when Go is missing; 1 otherwise.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from tests.conformance import listed
from tests.conformance.checking import ENDING, Skipped, Verdict, fetch, find_tool, run, sandbox_facts
from tests.conformance.gateways import gateways, trust_file

FOLDER: Final = Path(__file__).parent
MODULE: Final = "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
FETCHING_SECONDS: Final = 180.0
BUILDING_SECONDS: Final = 600.0
"""The first build takes a minute, later ones a second: Go has a cache of its own."""
CHECKS: Final = tuple(re.findall(r'^\t\{"([^"]+)", \w+\},$', (FOLDER / "main.go").read_text("utf-8"), re.MULTILINE))
"""The names in the table of main.go. One that did not run fails the run."""


UNFIT: Final = (
    *(check for check in CHECKS if check.startswith("fault ")),
    "AMQP over TLS serves the namespace's Azure name",
    "AMQP over a web socket is served",
    "a certificate that is not trusted ends the connection",
    "a scheduled message waits for its time",  # it sets the namespace's clock forward: the gateway's tokens end
)
"""Checks that do not go through a gateway, or break what is behind it."""
DIFFERENT: Final = {
    "a missing entity is not found": "a missing entity is refused on its link, which Go shows as a bare AMQP error; "
    "on $cbs, where Azure refuses it, Python and Java would show an authentication error",
}
"""Checks that fail through a gateway, with the reason."""


def main(arguments: Sequence[str] | None = None) -> int:
    clients = f"azservicebus {version()}"
    return listed.main(
        "go", cross_check, CHECKS, clients=clients, unfit=UNFIT, different=DIFFERENT, arguments=arguments
    )


def version() -> str:
    """Return the SDK's version."""
    return _find(rf"{re.escape(MODULE)} (v\S+)")


def cross_check(parts: list[str], gateway: str = "") -> list[Verdict]:
    """Build the program and run it on a sandbox of its own. Raises Skipped."""
    go = find_go()
    fetch([go, "-C", str(FOLDER), "mod", "download"], f"azservicebus {version()}", seconds=FETCHING_SECONDS)
    with tempfile.TemporaryDirectory(prefix="sandbox-go-") as folder:
        program = Path(folder) / "sandboxchecks"
        command = [go, "-C", str(FOLDER), "build", "-o", str(program), "."]
        built = subprocess.run(command, capture_output=True, text=True, timeout=BUILDING_SECONDS, check=False)
        if built.returncode:
            return [Verdict("the checks compile", False, built.stderr.strip())]
        with sandbox_facts() as facts:
            namespace = facts["namespaces"][0]
            addresses = {
                "SANDBOX_CONNECTION_STRING": namespace["connection_string"],
                "SANDBOX_NAMESPACE": namespace["name"],
                "SANDBOX_CA": facts["ca_file"],
                "SANDBOX_CONTROL": facts["control_url"],
            }
            with gateways(facts) if gateway else nullcontext({}) as strings:
                addresses |= {"SANDBOX_CA": trust_file(facts)} if gateway else {}
                addresses |= dict.fromkeys(listed.GATEWAY_SERVES[gateway], strings.get(namespace["name"], ""))
                return run([str(program), *parts], Path(folder), environment=addresses)


def find_go() -> str:
    go = find_tool("go", "Go")
    answer = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, timeout=ENDING, check=False)
    found, oldest = answer.stdout.strip().removeprefix("go"), _find(r"^go (\S+)")
    if _numbers(found) < _numbers(oldest):
        raise Skipped(f"go is {found or 'broken'}; the SDK needs {oldest} or newer")
    return go


def _find(pattern: str) -> str:
    found = re.search(pattern, (FOLDER / "go.mod").read_text("utf-8"), re.MULTILINE)
    assert found is not None, pattern
    return found[1]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


if __name__ == "__main__":
    sys.exit(main())
