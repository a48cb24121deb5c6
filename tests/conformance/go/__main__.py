"""The command `python -m tests.conformance.go [--required] [--gateway senders|all] [TEXT ...]`: the Go SDK's checks.

Go's own client fetches the modules of go.mod, in the versions and with the hashes that are committed. The program is
built outside the tree. Exit status: 0 when every check of CHECKS passed, or when Go is missing; 1 otherwise.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from tests.conformance import listed
from tests.conformance.checking import ENDING, Skipped, Verdict, fetch, run, sandbox_facts
from tests.conformance.gateways import gateways

FOLDER: Final = Path(__file__).parent
MODULE: Final = "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
FETCHING_SECONDS: Final = 180.0
BUILDING_SECONDS: Final = 600.0
"""The first build takes a minute, later ones a second: Go has a cache of its own."""


CHECKS: Final = (
    "a message is sent, received and completed",
    "a message without an id is sent, received and completed",
    "messages arrive in the order they were sent",
    "a batch arrives whole",
    "a full batch refuses a message, and is sent",
    "a message above the size limit is refused, and the sender lives",
    "a message of several frames arrives whole",
    "receive and delete leaves nothing",
    "a closed receive-and-delete receiver returns its cached messages",
    "system properties come back as sent",
    "application properties keep their types",
    "an annotated message keeps a value body",
    "an annotated message keeps a sequence body",
    "an annotated message keeps several data sections",
    "an annotated message keeps header, annotations and footer",
    "a message expires after its time to live",
    "an expired message is dead-lettered with its reason",
    "duplicates are discarded",
    "a receiver waits until its deadline",
    "an abandoned message returns with a higher delivery count",
    "a message abandoned too often is dead-lettered",
    "a deferred message is received by its number",
    "an unknown number of a deferred message is not found",
    "a dead-lettered message has its reason",
    "peeks lock nothing and continue",
    "a lock is renewed",
    "an expired lock is reported as lost",
    "a lock token alone settles a message",
    "a message is completed after its receiver has gone",
    "released messages are delivered again",
    "a scheduled message waits for its time",
    "a scheduled message is cancelled",
    "an annotated message is scheduled",
    "a named session is accepted and read in order",
    "the next session is accepted",
    "no session until the deadline is a time-out",
    "a locked session is refused",
    "session state is set, read and cleared",
    "a session lock is renewed",
    "a receiver without a session is refused",
    "messages of a session are deferred, dead-lettered and peeked",
    "sessions are listed",
    "a queue is created, read, updated, listed and deleted",
    "runtime properties count messages",
    "a topic delivers to each subscription",
    "rules are created, read, updated, listed and deleted",
    "a rule filters and its action changes the message",
    "a queue forwards to another",
    "a missing entity is not found",
    "a wrong key is unauthorized",
    "the namespace describes itself",
    "AMQP over TLS serves the namespace's Azure name",
    "AMQP over a web socket is served",
    "a certificate that is not trusted ends the connection",
    "fault refused: a send outlasts it",
    "fault reset: a send outlasts it",
    "fault reset: a receiver outlasts it",
    "fault black-holed: a send meets its deadline, the next succeeds",
    "fault half-open: a new client is served",
    "fault unanswered: the message arrives, the send does not know",
    "fault acknowledgement-lost: duplicate detection keeps one message",
    "fault busy: a send retries",
    "fault busy: a management request retries",
    "fault late: a message becomes visible later",
    "fault latency: a send takes longer",
    "fault detached: a sender and a receiver attach again",
    "fault detached: a locked message is completed",
    "fault disconnected: a sender and a receiver connect again",
    "fault disconnected: a session is accepted again",
    "fault disabled: the entity refuses, then serves",
    "fault not-found: the entity is missing, then serves",
    "fault unauthorized: the send is refused, then served",
    "fault full: the quota is reported, then there is space",
    "fault node-restart: a send outlasts it",
)
"""The names in the table of main.go. One that did not run, or is not here, fails the run."""


UNFIT: Final = (
    *(check for check in CHECKS if check.startswith("fault ")),
    "a queue is created, read, updated, listed and deleted",
    "runtime properties count messages",
    "rules are created, read, updated, listed and deleted",
    "the namespace describes itself",
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
    go = _go()
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
                addresses |= dict.fromkeys(listed.GATEWAY_SERVES[gateway], strings.get(namespace["name"], ""))
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


def _find(pattern: str) -> str:
    found = re.search(pattern, (FOLDER / "go.mod").read_text("utf-8"), re.MULTILINE)
    assert found is not None, pattern
    return found[1]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


if __name__ == "__main__":
    sys.exit(main())
