"""The command `python -m tests.conformance.sdk_samples [TEXT] [--limit SECONDS]`: run the samples of Microsoft's SDK.

Each runs twice against namespaces of its own in a sandbox: as it is, and with `ServiceBusClient(…)` replaced by a
pairing. Prints a table. Tokens for DefaultAzureCredential are served as App Service does. Exit status: 1 when a sample
runs with the SDK and not with the pairing, or prints something else.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox, SubscriptionSpec, TopicSpec
from servicebus_sandbox.broker.entity_settings import QueueSettings, SubscriptionSettings
from tests.conformance.archive import fetch

STAND_IN: Final = Path(__file__).with_name("standin")
CLIENT: Final = re.compile(r"(?P<made>= )?(?<![\w`])ServiceBusClient(\.from_connection_string)?\(")
DEFINITION: Final = re.compile(r"^ *(async )?def ", re.MULTILINE)
VARYING: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|0x[0-9a-f]+|\d+(\.\d+)?")
UNCLOSED: Final = ("Unclosed client session", "client_session: ")
"""What aiohttp prints at the end of a sample that never closes its client: a pairing has one for management."""
AT_ONCE: Final = 3
QUEUE, SESSIONS, TOPIC, SUBSCRIPTION, GROUPS = "orders", "carts", "news", "readers", "groups"
QUEUES: Final = [QueueSpec(QUEUE), QueueSpec(SESSIONS, QueueSettings(requires_session=True))]
TOPICS: Final = [
    TopicSpec(
        TOPIC,
        [SubscriptionSpec(SUBSCRIPTION), SubscriptionSpec(GROUPS, SubscriptionSettings(requires_session=True))],
    )
]
CLOSED: Final = "uses a client or its sender again after it was closed, which a pairing refuses"
REASONS: Final = {
    "mgmt_": "administration only: it makes no ServiceBusClient",
    "proxy": "needs an HTTP proxy at port 8899, by its text",
    "client_identity": "needs a service principal of Microsoft Entra ID",
    "custom_endpoint": "has placeholders instead of an address",
    "receive_iterator": "receives for ever",
    "topic_subscription_with_rule": CLOSED,
    "sample_code": CLOSED,
}
"""Parts of names, and why the sample is not run."""


@dataclass(frozen=True)
class Run:
    """How a sample ended. status: None when it ran on after the limit. printed: its lines without what varies.

    `letters` are in order of the alphabet: samples with threads break the lines of each other.
    """

    status: int | None
    printed: tuple[str, ...]
    last: str

    @property
    def letters(self) -> str:
        return "".join(sorted("".join(self.printed)))

    def __str__(self) -> str:
        return "runs" if self.status == 0 else "runs for ever" if self.status is None else f"fails: {self.last[:80]}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.sdk_samples", description=__doc__)
    parser.add_argument("text", nargs="?", default="", help="only samples with this text in their names")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one run (default 60)")
    asked = parser.parse_args()
    samples = sorted((fetch().tests.parent / "samples").glob("*/*.py"))
    return asyncio.run(check([one for one in samples if asked.text in one.name], asked.limit))


async def check(samples: list[Path], limit: float) -> int:
    """Run the samples and print a row for each. Return the exit status."""
    print("| sample | SDK | paired | output |\n|---|---|---|---|")
    turns = asyncio.Semaphore(AT_ONCE)

    async def row(sample: Path) -> bool:
        reason = next((why for part, why in REASONS.items() if part in sample.name), "")
        if reason:
            print(f"| {sample.name} | | | {reason} |", flush=True)
            return True
        async with turns:
            plain, paired = [await run(sample, limit, paired=paired) for paired in (False, True)]
        same = plain.letters == paired.letters
        print(f"| {sample.name} | {plain} | {paired} | {'the same' if same else 'differs'} |", flush=True)
        return plain.status != 0 or (paired.status == 0 and same)

    return 0 if all(await asyncio.gather(*map(row, samples))) else 1


async def run(sample: Path, limit: float, *, paired: bool) -> Run:
    """Run a sample in a sandbox of its own."""
    specs = [NamespaceSpec("primary", QUEUES, TOPICS), NamespaceSpec("secondary")]
    async with Sandbox.start(specs) as sandbox:
        await fill(sandbox)
        with tempfile.TemporaryDirectory(prefix="sdk-sample-") as folder:
            program = Path(folder) / sample.name
            text = sample.read_text("utf-8")
            program.write_text(with_a_pairing(text) if paired else text, "utf-8")
            return await end_of(program, limit, environment(sandbox, sample))


def with_a_pairing(text: str) -> str:
    """Return a sample with a pairing where it makes a client; a coroutine awaits the one that it makes."""

    def replaced(found: re.Match[str]) -> str:
        definitions = list(DEFINITION.finditer(text, 0, found.start()))
        is_awaited = found["made"] and definitions and definitions[-1][1]
        return f"{found['made'] or ''}{'await ' if is_awaited else ''}paired_client("

    return CLIENT.sub(replaced, text)


async def end_of(program: Path, limit: float, environment: dict[str, str]) -> Run:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), cwd=program.parent, env=environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = await asyncio.wait_for(process.communicate(), limit)
    except TimeoutError:
        process.kill()
        await process.wait()
        return Run(None, (), "")
    lines = [line for line in output.decode(errors="replace").splitlines() if not line.startswith(UNCLOSED)]
    return Run(process.returncode, tuple(VARYING.sub("#", line) for line in lines), lines[-1] if lines else "")


def environment(sandbox: Sandbox, sample: Path) -> dict[str, str]:
    primary = sandbox["primary"]
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(STAND_IN), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONUNBUFFERED": "1",
        "SSL_CERT_FILE": str(sandbox.ca_file),
        "REQUESTS_CA_BUNDLE": str(sandbox.ca_file),
        "SANDBOX_CA": str(sandbox.ca_file),
        "SANDBOX_SECONDARY": sandbox["secondary"].connection_string,
        "SAMPLE_KIND": "async" if sample.stem.endswith("_async") else "sync",
        **sandbox.tokens.managed_identity(sandbox.tokens.identities[0]),
        "SERVICEBUS_CONNECTION_STR": primary.connection_string,
        "SERVICEBUS_FULLY_QUALIFIED_NAMESPACE": f"127.0.0.1:{primary.amqp_port}",
        "SERVICEBUS_QUEUE_NAME": QUEUE,
        "SERVICEBUS_SESSION_QUEUE_NAME": SESSIONS,
        "SERVICEBUS_SESSION_ID": "cart",
        "SERVICEBUS_TOPIC_NAME": TOPIC,
        "SERVICEBUS_SUBSCRIPTION_NAME": GROUPS if "list_sessions" in sample.name else SUBSCRIPTION,
        "SERVICEBUS_SAS_POLICY": primary.key_name,
        "SERVICEBUS_SAS_KEY": primary.key,
    }


async def fill(sandbox: Sandbox) -> None:
    """Put three messages into each entity."""
    async with ServiceBusClient.from_connection_string(sandbox["primary"].connection_string) as client:
        for path, session in ((QUEUE, None), (SESSIONS, "cart"), (TOPIC, "cart")):
            async with client.get_queue_sender(path) as sender:
                await sender.send_messages([ServiceBusMessage(f"m{number}", session_id=session) for number in range(3)])


if __name__ == "__main__":
    sys.exit(main())
