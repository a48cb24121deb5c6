"""What one release of azure-servicebus sees of a sandbox, by its asynchronous and its synchronous client.

python checks.py CONNECTION_STRING ENDPOINT CA_FILE, where the release and aiohttp are installed; nothing of the project
is imported. Needs the entities that `paired sandbox` opens with, all of them empty, and leaves them so. It connects as
the connection string says, over TLS where the release takes no port or no flag for an emulator from there. Prints one
line of JSON for each check: {"check", "passed", "error"}.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue, TransportType, __version__
from azure.servicebus.aio import ServiceBusClient as AsyncClient

CONNECTION_STRING, ENDPOINT, CA_FILE = sys.argv[1:4]
QUEUE, SESSION_QUEUE = "orders", "payments"
PATIENCE = 30.0
WAIT = 5
LARGE = b"x" * 200_000
OPTIONS: dict[str, Any] = {"retry_total": 0}
if __version__.startswith(("7.11.", "7.12.", "7.13.")):
    CONNECTION_STRING = CONNECTION_STRING.replace(";UseDevelopmentEmulator=true", "")
    OPTIONS |= {
        "custom_endpoint_address": ENDPOINT,
        "connection_verify": CA_FILE,
        "transport_type": TransportType.Amqp,
    }


class InThreads:
    """A synchronous object of the SDK with the asynchronous one's methods: each call runs in a thread."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aenter__(self) -> InThreads:
        await asyncio.to_thread(self._inner.__enter__)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self._inner.__exit__, *error)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name.startswith("get_queue"):
            return lambda *args, **options: InThreads(found(*args, **options))
        if name == "session":
            return InThreads(found)
        return (lambda *args, **options: asyncio.to_thread(found, *args, **options)) if callable(found) else found


def body(message: Any) -> bytes:
    return b"".join(message.body)


async def send(client: Any, *bodies: bytes, queue: str = QUEUE, **fields: Any) -> None:
    async with client.get_queue_sender(queue) as sender:
        for one in bodies:
            await sender.send_messages(ServiceBusMessage(one, **fields))


async def receive(receiver: Any, count: int) -> list[Any]:
    got: list[Any] = []
    while len(got) < count:
        more = await receiver.receive_messages(max_message_count=count - len(got), max_wait_time=WAIT)
        assert more, f"{len(got)} of {count} messages came"
        got += more
    return got


async def complete(receiver: Any, count: int) -> list[bytes]:
    got = await receive(receiver, count)
    for message in got:
        await receiver.complete_message(message)
    return [body(message) for message in got]


async def sends_and_completes(client: Any) -> None:
    await send(client, b"one", LARGE, b"two")
    async with client.get_queue_receiver(QUEUE) as receiver:
        assert await complete(receiver, 3) == [b"one", LARGE, b"two"]
        assert await receiver.peek_messages(max_message_count=1) == []


async def sends_lists_and_batches(client: Any) -> None:
    async with client.get_queue_sender(QUEUE) as sender:
        await sender.send_messages([ServiceBusMessage(b"1"), ServiceBusMessage(b"2")])
        batch = await sender.create_message_batch()
        batch.add_message(ServiceBusMessage(b"3"))
        batch.add_message(ServiceBusMessage(b"4"))
        await sender.send_messages(batch)
    async with client.get_queue_receiver(QUEUE) as receiver:
        assert await complete(receiver, 4) == [b"1", b"2", b"3", b"4"]


async def abandons(client: Any) -> None:
    await send(client, b"again")
    async with client.get_queue_receiver(QUEUE) as receiver:
        (first,) = await receive(receiver, 1)
        await receiver.abandon_message(first)
        (second,) = await receive(receiver, 1)
        assert second.delivery_count == 1
        await receiver.complete_message(second)


async def dead_letters(client: Any) -> None:
    await send(client, b"bad")
    async with client.get_queue_receiver(QUEUE) as receiver:
        (message,) = await receive(receiver, 1)
        await receiver.dead_letter_message(message, reason="why", error_description="in detail")
    async with client.get_queue_receiver(QUEUE, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (message,) = await receive(receiver, 1)
        assert (message.dead_letter_reason, message.dead_letter_error_description) == ("why", "in detail")
        await receiver.complete_message(message)


async def defers(client: Any) -> None:
    await send(client, b"later")
    async with client.get_queue_receiver(QUEUE) as receiver:
        (message,) = await receive(receiver, 1)
        await receiver.defer_message(message)
        (deferred,) = await receiver.receive_deferred_messages([message.sequence_number])
        await receiver.complete_message(deferred)


async def renews_a_lock(client: Any) -> None:
    await send(client, b"long")
    async with client.get_queue_receiver(QUEUE) as receiver:
        (message,) = await receive(receiver, 1)
        before = message.locked_until_utc
        assert await receiver.renew_message_lock(message) >= before
        await receiver.complete_message(message)


async def uses_a_session(client: Any) -> None:
    await send(client, b"x", queue=SESSION_QUEUE, session_id="s")
    async with client.get_queue_receiver(SESSION_QUEUE, session_id="s") as receiver:
        await receiver.session.set_state(b"step 2")
        assert await receiver.session.get_state() == b"step 2"
        assert await complete(receiver, 1) == [b"x"]
        await receiver.session.set_state(None)


async def schedules_and_cancels(client: Any) -> None:
    async with client.get_queue_sender(QUEUE) as sender:
        later = datetime.now(timezone.utc) + timedelta(hours=1)  # noqa: UP017 # in all Pythons that the releases run on
        numbers = await sender.schedule_messages([ServiceBusMessage(b"a"), ServiceBusMessage(b"b")], later)
        async with client.get_queue_receiver(QUEUE) as receiver:
            assert len(await receiver.peek_messages(max_message_count=5)) == 2
            await sender.cancel_scheduled_messages(numbers)
            assert await receiver.peek_messages(max_message_count=5) == []


async def peeks(client: Any) -> None:
    await send(client, b"1", b"2")
    async with client.get_queue_receiver(QUEUE) as receiver:
        assert [body(message) for message in await receiver.peek_messages(max_message_count=5)] == [b"1", b"2"]
        assert await complete(receiver, 2) == [b"1", b"2"]


CHECKS: dict[str, Callable[[Any], Awaitable[None]]] = {
    "send, receive, complete": sends_and_completes,
    "list and batch": sends_lists_and_batches,
    "abandon": abandons,
    "dead-letter": dead_letters,
    "defer": defers,
    "renew a lock": renews_a_lock,
    "session": uses_a_session,
    "schedule and cancel": schedules_and_cancels,
    "peek": peeks,
}


def asynchronous() -> Any:
    return AsyncClient.from_connection_string(CONNECTION_STRING, **OPTIONS)


def synchronous() -> Any:
    return InThreads(ServiceBusClient.from_connection_string(CONNECTION_STRING, **OPTIONS))


async def empty(client: Any) -> None:
    """Take what a failed check left, so that the next one fails for reasons of its own."""
    for options in ({}, {"sub_queue": ServiceBusSubQueue.DEAD_LETTER}):
        async with client.get_queue_receiver(QUEUE, receive_mode="receiveanddelete", **options) as receiver:
            while await receiver.receive_messages(max_message_count=100, max_wait_time=1):
                pass


async def verdict(name: str, make: Callable[[], Any], check: Callable[[Any], Awaitable[None]]) -> dict[str, Any]:
    try:
        async with make() as client:
            await asyncio.wait_for(check(client), PATIENCE)
    except Exception as error:
        with suppress(Exception):
            async with make() as client:
                await asyncio.wait_for(empty(client), PATIENCE)
        return {"check": name, "passed": False, "error": f"{type(error).__name__}: {error}"[:300]}
    return {"check": name, "passed": True, "error": None}


async def main() -> None:
    for kind, make in (("async", asynchronous), ("sync", synchronous)):
        for name, check in CHECKS.items():
            print(json.dumps(await verdict(f"{kind}: {name}", make, check)), flush=True)


asyncio.run(main())
