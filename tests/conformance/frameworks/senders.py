"""Programs on Python: `python senders.py PROGRAM ENTITY PREFIX LANES PAUSE_MS`.

They print lines as tests/examples/python_sender.py does. Each has the connection string in SENDER_CONNECTION_STRING,
and its framework's defaults. This runs in an environment of the frameworks alone.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

STRING = os.environ["SENDER_CONNECTION_STRING"]
Send = Callable[[str], Awaitable[Any]]


def kombu_url() -> str:
    """Return the string as kombu's URL, which has a host's name alone: ports are the standard ones."""
    parts = dict(part.split("=", 1) for part in STRING.split(";") if part)
    host = parts["Endpoint"].removeprefix("sb://").strip("/")
    return f"azureservicebus://{parts['SharedAccessKeyName']}:{parts['SharedAccessKey']}@{host}"


async def kombu(entity: str) -> Send:
    from kombu import Connection, Queue

    connection = Connection(kombu_url())
    producer, queue, one_at_a_time = connection.Producer(), Queue(entity, routing_key=entity), asyncio.Lock()

    async def send(name: str) -> None:
        async with one_at_a_time:  # a producer is for one thread
            await asyncio.to_thread(producer.publish, {}, routing_key=entity, declare=[queue], headers={"id": name})

    return send


async def celery(entity: str) -> Send:
    from celery import Celery

    app = Celery(broker=kombu_url())
    app.conf.task_default_queue = entity

    async def send(name: str) -> None:
        await asyncio.to_thread(app.send_task, "ship", args=[name], task_id=name, queue=entity)

    return send


async def taskiq(entity: str) -> Send:
    from taskiq import TaskiqMessage
    from taskiq_service_bus import ServiceBusBroker

    broker = ServiceBusBroker(STRING, entity)
    await broker.startup()

    async def send(name: str) -> None:
        task = TaskiqMessage(task_id=name, task_name="ship", labels={}, args=[], kwargs={})
        await broker.kick(broker.formatter.dumps(task))

    return send


async def faststream(entity: str) -> Send:
    from faststream_azure_servicebus import ServiceBusBroker

    broker = ServiceBusBroker(STRING)
    publisher = broker.publisher(queue=entity)
    await broker.start()

    async def send(name: str) -> None:
        await publisher.publish({"id": name})

    return send


async def administration(entity: str) -> Send:
    """Even lanes read the entity, odd ones change the queue of its own name."""
    from azure.servicebus.management import ServiceBusAdministrationClient

    admin = ServiceBusAdministrationClient.from_connection_string(STRING)

    def change(name: str) -> None:
        queue = admin.get_queue(name.rsplit("-", 2)[0])
        queue.user_metadata = name
        admin.update_queue(queue)

    async def send(name: str) -> None:
        if int(name.split("-")[-2]) % 2:
            await asyncio.to_thread(change, name)
        else:
            await asyncio.to_thread(admin.get_queue_runtime_properties, entity)

    return send


async def identity(entity: str) -> Send:
    from azure.identity.aio import DefaultAzureCredential
    from azure.servicebus import ServiceBusMessage
    from azure.servicebus.aio import ServiceBusClient

    host = STRING.removeprefix("Endpoint=sb://").partition("/")[0]
    sender = ServiceBusClient(host, DefaultAzureCredential()).get_queue_sender(entity)
    one_at_a_time = asyncio.Lock()

    async def send(name: str) -> None:
        async with one_at_a_time:
            await sender.send_messages(ServiceBusMessage(name))

    return send


PROGRAMS = {made.__name__: made for made in (kombu, celery, taskiq, faststream)} | {
    "admin-python": administration,
    "identity-python": identity,
    "secret-python": identity,
}


def say(*words: str) -> None:
    sys.stdout.write("\t".join(words) + "\n")
    sys.stdout.flush()


async def main(program: str, entity: str, prefix: str, lanes: str, pause: str) -> None:
    loop, ending = asyncio.get_running_loop(), asyncio.Event()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    send = await PROGRAMS[program](entity)

    async def run(lane: int) -> None:
        number = 0
        while not ending.is_set():
            name, began = f"{prefix}-{lane}-{number}", time.perf_counter()
            number += 1
            say("begun", name)
            try:
                await send(name)
            except Exception as error:
                say("failed", name, " ".join(f"{type(error).__name__}: {error}".split())[:300])
            else:
                say("accepted", name, f"{(time.perf_counter() - began) * 1000:.1f}")
            await asyncio.sleep(int(pause) / 1000)

    async with asyncio.TaskGroup() as group:
        for lane in range(int(lanes)):
            group.create_task(run(lane))
        await reader.read()
        ending.set()
    say("ended")
    os._exit(0)  # frameworks leave threads


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
