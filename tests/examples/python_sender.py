"""A sender in Python that knows of no gateway, pairing or outage: azure-servicebus with all its defaults.

`python python_sender.py ENTITY PREFIX LANES PAUSE_MS`, with the connection string in SENDER_CONNECTION_STRING; the end
of standard input ends it. It prints lines of words between tabs, as the senders of the other languages do:

    begun     ID            before the SDK's call
    accepted  ID  MS        the call returned, after that many milliseconds
    failed    ID  ERROR     the call raised
    ended                   every call has its answer
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender


async def main(entity: str, prefix: str, lanes: int, pause: float) -> None:
    loop, ending = asyncio.get_running_loop(), asyncio.Event()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    client = ServiceBusClient.from_connection_string(os.environ["SENDER_CONNECTION_STRING"])
    async with client, asyncio.TaskGroup() as group:
        for lane in range(lanes):  # a sender each: the SDK's is for one call at a time
            group.create_task(_run(client.get_queue_sender(entity), f"{prefix}-{lane}", pause, ending))
        await reader.read()
        ending.set()
    say("ended")


def say(*words: str) -> None:
    sys.stdout.write("\t".join(words) + "\n")
    sys.stdout.flush()


async def _run(sender: ServiceBusSender, name: str, pause: float, ending: asyncio.Event) -> None:
    number = 0
    while not ending.is_set():
        one = f"{name}-{number}"
        await _send(sender, [f"{one}{part}" for part in "abc"] if number % 10 == 9 else [one])
        number += 1
        await asyncio.sleep(pause)


async def _send(sender: ServiceBusSender, ids: list[str]) -> None:
    for name in ids:
        say("begun", name)
    began = time.perf_counter()
    messages = [ServiceBusMessage(b"x" * 1000, message_id=name, subject=name.split("-", 1)[0]) for name in ids]
    try:
        await sender.send_messages(messages if len(messages) > 1 else messages[0])
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        for name in ids:
            say("failed", name, said)
    else:
        took = f"{(time.perf_counter() - began) * 1000:.1f}"
        for name in ids:
            say("accepted", name, took)


if __name__ == "__main__":
    _, _entity, _prefix, _lanes, _pause = sys.argv
    asyncio.run(main(_entity, _prefix, int(_lanes), float(_pause) / 1000))
