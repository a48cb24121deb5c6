"""The sandbox's process: queues are filled as if the messages had been sent, whatever a namespace would say of them."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any

from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox
from servicebus_sandbox.amqp_server.message_codec import read_message
from servicebus_sandbox.broker.message import Message
from tests.pairing.backlogs import parked
from tests.poison.kinds import damage, kinds

QUEUE = "primary/x-servicebus-transfer/0"
DEAD = f"{QUEUE}/$DeadLetterQueue"


class Namespaces:
    """Two namespaces, and what a pump's queue is filled with."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._known = list(kinds().values())

    def fill(self, good: int, *, damaged: int | None, seed: int) -> int:
        """Good messages for `orders`, and among them the strangers: each kind once, or so many that are damaged at
        random. Returns the number of strangers."""
        draw = random.Random(seed)
        strangers = self._known if damaged is None else [damage(draw, self._known) for _ in range(damaged)]
        every = max(1, good // (len(strangers) + 1))
        for number in range(good):
            self._put(read_message(parked("orders", f"good-{number}")))
            if number % every == 0 and number // every < len(strangers):
                sections = strangers[number // every]
                self._put(Message(sections, sections.size, message_id="poison"))
        self._sandbox["secondary"].node.wake()
        return len(strangers)

    def state(self) -> dict[str, Any]:
        """How many messages are where, and the reasons of those that are dead-lettered."""
        secondary, primary = self._sandbox["secondary"].node.namespace, self._sandbox["primary"].node.namespace
        dead = secondary.message_queue(DEAD).peek(0, 1_000_000)
        arrived = primary.message_queue("orders").peek(0, 1_000_000)
        good = {stored.message.message_id for stored in arrived if str(stored.message.message_id).startswith("good-")}
        return {
            "waiting": len(secondary.message_queue(QUEUE).peek(0, 1_000_000)),
            "good": len(good),
            "arrived": len(arrived),
            "dead": [str((stored.added or {}).get("DeadLetterErrorDescription", "")) for stored in dead],
        }

    def _put(self, message: Message) -> None:
        self._sandbox["secondary"].node.namespace.send_target(QUEUE).intake.send([message])


async def main() -> None:
    specs = [
        NamespaceSpec("primary", queues=(QueueSpec("orders"),)),
        NamespaceSpec("secondary", queues=(QueueSpec(QUEUE),)),
    ]
    async with Sandbox.start(specs) as sandbox:
        namespaces, loop = Namespaces(sandbox), asyncio.get_running_loop()
        _say(
            {name: sandbox[name].connection_string for name in ("primary", "secondary")} | {"ca": str(sandbox.ca_file)}
        )
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            name, arguments = json.loads(line)
            _say(getattr(namespaces, name)(**arguments))


def _say(what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
