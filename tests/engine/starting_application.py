"""A program that pairs two namespaces and sends until a word comes, then syphons until its input ends: `… KIND`.

Its first line of input is its options as JSON. Each line of output is a JSON object: "paired", "raised", "accepted",
"refused", "alarms" or "rests". KIND: "application", "degraded" or "sync".
"""

from __future__ import annotations

import asyncio
import json
import select
import sys
import threading
import time
from typing import Any

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage

from paired_servicebus import Namespace, PairedError, pair_namespaces, sync
from paired_servicebus.engine.instance.logs import log_to
from paired_servicebus.pairing.management import backlog_queues

PERIOD = 0.2
"""Seconds between two sends."""
LIST_SECONDS = 2.0
"""Instead of the two minutes in which listing the backlog queues is retried."""


def say(what: str, value: object) -> None:
    sys.stdout.write(json.dumps({what: value}) + "\n")
    sys.stdout.flush()


def word_came() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def messages(options: dict[str, Any]) -> Any:
    """Yield path and message, to each entity in turn, until a word comes."""
    number = 0
    while not word_came():
        path = options["entities"][number % len(options["entities"])]
        yield path, ServiceBusMessage(b"x", message_id=f"{options['run']}-{number}", session_id="one")
        number += 1


def refused(path: str, error: Exception) -> None:
    say("refused", f"{path}: {type(error).__name__} {error}"[:300])


async def run(first: Namespace, second: Namespace, options: dict[str, Any], chosen: dict[str, Any]) -> None:
    async with pair_namespaces(first, second, **chosen) as paired:
        say("paired", True)
        for path, message in messages(options):
            try:
                async with paired.get_queue_sender(path) as sender:
                    await sender.send_messages(message)
            except (AzureError, PairedError) as error:
                refused(path, error)
            else:
                say("accepted", [path, message.message_id])
            say("alarms", list(paired.alarms()))
            await asyncio.sleep(PERIOD)
        say("rests", True)
        await asyncio.to_thread(sys.stdin.read)


def run_blocking(first: Namespace, second: Namespace, options: dict[str, Any], chosen: dict[str, Any]) -> None:
    with sync.pair_namespaces(first, second, **chosen) as paired:
        say("paired", True)
        for path, message in messages(options):
            try:
                with paired.get_queue_sender(path) as sender:
                    sender.send_messages(message)
            except (AzureError, PairedError) as error:
                refused(path, error)
            else:
                say("accepted", [path, message.message_id])
            say("alarms", list(paired.alarms()))
            time.sleep(PERIOD)
        say("rests", True)
        sys.stdin.read()


def main(kind: str) -> int:
    log_to(sys.stderr)
    options = json.loads(sys.stdin.buffer.raw.readline())  # type: ignore[attr-defined] # nothing is read ahead
    backlog_queues.LIST_SECONDS = LIST_SECONDS  # type: ignore[misc]
    backlog_queues.ensure.__kwdefaults__["patience"] = LIST_SECONDS
    trust = {"connection_verify": options["ca_file"]}
    first, second = (
        Namespace.from_connection_string(options[side], options=trust) for side in ("primary", "secondary")
    )
    chosen = {
        "control": options["run"], "primary_name": options["run"], "backlog_queue_count": 1, "failover_interval": 1.0,
        "send_timeout": 5.0, "ping_primary_interval": 2.0, "ping_timeout": 5.0, "enable_syphon": True,
        "metrics": options.get("metrics"), "start_degraded": kind == "degraded",
    }  # fmt: skip
    try:
        if kind == "sync":
            run_blocking(first, second, options, chosen)
        else:
            asyncio.run(run(first, second, options, chosen))
    except PairedError as error:
        say("raised", f"{type(error).__name__}: {error}")
        return 3
    assert threading.active_count() < 20
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
