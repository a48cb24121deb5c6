"""A process that sends to all entities through a pairing of its own, and keeps its list.

An application like others, and an engine: it hosts its pairing with a journal. Ordered by one JSON line on standard
input, then by words: `prove N` sends a message to each entity, `stop` sends nothing new; the input's end ends it. A
message that is not accepted is sent again, as the same object; some are given up after one attempt.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from paired_servicebus.core.accounting.ledger import SendOutcome
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.pairing import (
    PairedSender,
    PairedServiceBusClient,
    SendAvailabilityPairedNamespaceOptions,
    pair_namespaces,
)
from tests.chaos.letters import letter
from tests.chaos.lists import Attempted, List, Stood, Told, now
from tests.chaos.plan import ENTITIES, PRIMARY, TOPIC

LOG: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
EVERY: Final = 0.3
"""Seconds between two sends of a stream, on average."""
BATCH: Final = 3
ONCE: Final = 0.2
"""The share of messages that are given up after one attempt."""
LATER: Final = 0.1
"""The share of messages that are scheduled."""
SOON: Final = timedelta(seconds=1)
RETRY_AFTER: Final = 0.25
GIVE_UP_AFTER: Final = 40.0
"""Seconds after `stop` in which a message that is still refused is sent again."""
DEFINITE: Final = (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)
"""After these a caller may take it that nothing was sent; after every other error it is in doubt."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the director wants."""

    name: str
    folder: str
    primary: str
    secondary: str
    ca_file: str
    retry_total: int
    seed: int
    options: dict[str, Any]


def main() -> None:
    """Send until standard input ends."""
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    asyncio.run(_live(order))


async def _live(order: Order) -> None:
    async with _hosted(order) as paired:
        sender = Sending(order, paired)
        sending = asyncio.create_task(sender.run(), name="all streams")
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        async for words in _lines():
            if words[0] == "prove":
                sender.prove(words[1])
            elif words[0] == "stop":
                sender.stop()
                await sending
                sys.stdout.write("stopped\n")
                sys.stdout.flush()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _lines() -> AsyncIterator[list[str]]:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line.decode().split()


@asynccontextmanager
async def _hosted(order: Order) -> AsyncIterator[PairedServiceBusClient]:
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=ServiceBusAdministrationClient.from_connection_string(
            order.secondary, connection_verify=order.ca_file
        ),
        secondary_client=ServiceBusClient.from_connection_string(order.secondary, retry_total=order.retry_total),
        primary_name=PRIMARY,
        **order.options,
    )
    primary = ServiceBusClient.from_connection_string(order.primary, retry_total=order.retry_total)
    folder = Path(order.folder)
    identity = EngineIdentity(engine=order.name, boot=uuid.uuid4().hex[:12], pairing="chaos")
    host = EngineHost(
        identity, spool=folder / "journals" / order.name, socket=folder / f"{order.name}.sock", policy=options.policy()
    )
    async with host, await pair_namespaces(primary, options, on_event=host.record) as paired:
        await host.adopt(paired)
        yield paired


class Sending:
    """All streams of one process."""

    def __init__(self, order: Order, paired: PairedServiceBusClient) -> None:
        self._name = order.name
        self._seed = order.seed
        self._paired = paired
        self._list = List(Path(order.folder), order.name)
        self._stopped_at: float | None = None
        self._proofs: set[asyncio.Task[None]] = set()
        self._senders: dict[str, PairedSender] = {}

    async def run(self) -> None:
        """Send until stopped, and until each stream has its last answer."""
        for entity in ENTITIES:
            of = self._paired.get_topic_sender if entity == TOPIC else self._paired.get_queue_sender
            self._senders[entity] = of(entity)
        watching = asyncio.create_task(self._watch(), name="the states")
        async with asyncio.TaskGroup() as group:
            for entity in ENTITIES:
                group.create_task(self._stream(entity, 1), name=f"{entity} one by one")
                group.create_task(self._stream(entity, BATCH), name=f"{entity} in batches")
        await asyncio.gather(*self._proofs)
        watching.cancel()

    def stop(self) -> None:
        """Nothing new from here on."""
        self._stopped_at = now()

    def prove(self, number: str) -> None:
        """Send a message to each entity, again until it is accepted."""
        for entity in ENTITIES:
            message = letter(entity, f"proof-{number}.{self._name}.{entity}", 0)
            task = asyncio.create_task(self._send(entity, [message]))
            self._proofs.add(task)
            task.add_done_callback(self._proofs.discard)

    async def _stream(self, entity: str, size: int) -> None:
        rng = random.Random(f"{self._seed} {self._name} {entity} {size}")
        for number in count():
            if self._stopped_at is not None:
                return
            names = [f"{self._name}.{entity}.{size}-{number}-{index}" for index in range(size)]
            letters = [letter(entity, name, number) for name in names]
            await self._send(entity, letters, once=rng.random() < ONCE, later=rng.random() < LATER)
            await asyncio.sleep(EVERY * size * rng.uniform(0.5, 1.5))

    async def _send(
        self, entity: str, messages: list[ServiceBusMessage], *, once: bool = False, later: bool = False
    ) -> None:
        ids = [str(message.message_id) for message in messages]
        while True:
            self._list.write(Attempted(at=now(), entity=entity, ids=ids))
            answer, error = await self._attempt(entity, messages, later=later)
            self._list.write(Told(at=now(), ids=ids, answer=answer, error=error))
            if answer is SendOutcome.ACCEPTED or once:
                return
            if self._stopped_at is not None and now() > self._stopped_at + GIVE_UP_AFTER:
                return
            await asyncio.sleep(RETRY_AFTER)

    async def _attempt(self, entity: str, messages: list[ServiceBusMessage], *, later: bool) -> tuple[SendOutcome, str]:
        sender = self._senders[entity]
        try:
            if later:
                await sender.schedule_messages(messages, datetime.now(UTC) + SOON)
            else:
                await sender.send_messages(messages[0] if len(messages) == 1 else messages)
        except DEFINITE as error:
            return SendOutcome.REFUSED, f"{type(error).__name__}: {error}"
        except Exception as error:
            return SendOutcome.IN_DOUBT, f"{type(error).__name__}: {error}"
        return SendOutcome.ACCEPTED, ""

    async def _watch(self) -> None:
        written: dict[str, str] = {}
        while True:
            states = {view.path: str(view.state) for view in self._paired.entity_views()}
            if states != written:
                self._list.write(Stood(at=now(), who=self._name, states=states))
                written = states
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    main()
