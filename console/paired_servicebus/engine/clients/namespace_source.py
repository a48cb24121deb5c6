"""The entities of one namespace for `paired browse`: counts, and messages by peek over a connection of its own.

The counts need the right to manage. A test message goes to a sandbox alone.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.errors import CommandRefusedError, PairedError
from paired_servicebus.core.model.message_view import MAX_ROWS, MessageContent, MessageKind, MessagePage
from paired_servicebus.core.model.snapshot import Meter
from paired_servicebus.core.model.verdict import judge
from paired_servicebus.core.text.masking import masked
from paired_servicebus.pairing.monitoring.message_looks import MessageLooks
from paired_servicebus.pairing.runtime.deadlines import TaskOwner, bounded

SECONDS: Final = 20.0
"""Seconds of a request for counts, and of a test message."""
MAX_ERROR_CHARS: Final = 300


class NamespaceSource:
    """The entities of one namespace, by peek. Everything is opened at the first use, in the screen's loop.

    Args:
        takes_tests: whether it is a sandbox, which accepts test messages.
    """

    def __init__(self, connection_string: str, *, takes_tests: bool) -> None:
        self._string = connection_string
        self.takes_tests = takes_tests
        self._client: ServiceBusClient | None = None
        self._looks: MessageLooks | None = None

    async def counts(self) -> dict[tuple[str, MessageKind], int]:
        """Return the counts of all queues and subscriptions. Raises CommandRefusedError: they are not shown."""
        async with self._refusing("the entities cannot be listed"):
            return await bounded(self._list(), SECONDS, "listing the entities")

    async def _list(self) -> dict[tuple[str, MessageKind], int]:
        found: dict[tuple[str, MessageKind], int] = {}
        options: dict[str, Any] = (
            {"connection_verify": False} if self.takes_tests else {}
        )  # its certificate is its own, on loopback
        async with ServiceBusAdministrationClient.from_connection_string(self._string, **options) as admin:
            async for queue in admin.list_queues_runtime_properties():
                _count(found, queue.name, queue)
            async for topic in admin.list_topics():
                async for one in admin.list_subscriptions_runtime_properties(topic.name):
                    _count(found, f"{topic.name}/Subscriptions/{one.name}", one)
        return found

    async def look_at_messages(
        self, queue: str, kind: MessageKind, *, from_number: int = 1, wanted: str = "", by: str
    ) -> MessagePage:
        """Return a page of messages. Raises CommandRefusedError: it is not shown."""
        async with self._refusing(queue):
            looks = await self._opened()
            return await looks.page(queue, kind, from_number=from_number, count=MAX_ROWS, wanted=wanted)

    async def look_at_message(
        self, queue: str, kind: MessageKind, number: int, *, from_byte: int = 0, by: str
    ) -> MessageContent:
        """Return one message, its body from a byte on. Raises CommandRefusedError: it is not shown."""
        async with self._refusing(queue):
            return await (await self._opened()).message(queue, kind, number, from_byte=from_byte)

    async def send_test(self, path: str, text: str) -> None:
        """Send one message to a sandbox. Raises CommandRefusedError: it was not accepted."""
        if not self.takes_tests:
            raise CommandRefusedError("test messages go to a sandbox of this machine alone")
        async with self._refusing(path):
            await self._opened()
            assert self._client is not None, "it is open"
            name = path.split("/Subscriptions/")[0]
            topic = "/Subscriptions/" in path
            sender = self._client.get_topic_sender(name) if topic else self._client.get_queue_sender(name)
            async with sender:
                message = ServiceBusMessage(text, subject="test", application_properties={"sent-by": "paired browse"})
                await bounded(sender.send_messages(message), SECONDS, f"sending to {name}")

    async def close(self) -> None:
        """Close what is open."""
        if self._looks is not None:
            await self._looks.close()
        if self._client is not None:
            await self._client.close()

    async def _opened(self) -> MessageLooks:
        if self._looks is None:
            tasks = TaskOwner()
            await tasks.open()
            self._client = ServiceBusClient.from_connection_string(self._string, retry_total=0)
            self._looks = MessageLooks(self._client, clock=time.time, judge=judge, meter=Meter(), tasks=tasks, own=True)
        return self._looks

    @asynccontextmanager
    async def _refusing(self, what: str) -> AsyncIterator[None]:
        """Translate every failure into a sentence without secrets."""
        try:
            yield
        except PairedError as error:
            raise CommandRefusedError(masked(str(error))[:MAX_ERROR_CHARS]) from error
        except (AzureError, OSError, TimeoutError, ValueError) as error:
            reason = judge(error).reason
            raise CommandRefusedError(masked(f"{what}: {reason}")[:MAX_ERROR_CHARS]) from error


def _count(found: dict[tuple[str, MessageKind], int], path: str, properties: object) -> None:
    """Note an entity's counts; the namespace does not count deferred ones apart."""
    for kind, name in ((MessageKind.ACTIVE, "active_message_count"), (MessageKind.DEAD, "dead_letter_message_count")):
        number = getattr(properties, name, None)
        if isinstance(number, int):
            found[path, kind] = number
