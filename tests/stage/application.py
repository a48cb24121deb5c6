"""A process that sends through a pairing with an engine of its own, or through a gateway: `… FOLDER < task`.

The first line of its input is its task; then it obeys words until the input ends: `prove N` sends a message to each
entity until it is accepted, `park` sends batches until `rest`, `beat NAME` measures the loop from now on, `stop` sends
nothing new and marks "stopped" when each stream has its last answer, `renew SIDE STRING` replaces a namespace's key.
All results are in its list; it writes nothing else.

Behind a gateway it is a client of the SDK with the SDK's retries, and an error after those leaves its messages in
doubt: an earlier try may have landed. A message that is not accepted is sent again, as the same object; some are given
up after one attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from paired_servicebus import Fleet, Namespace, pair_namespaces
from paired_servicebus.core.accounting.ledger import SendOutcome
from paired_servicebus.engine.fleet.fleet_part import FleetPart
from tests.stage.course import PRIMARY, SECONDARY, TOPIC
from tests.stage.ledger import Answered, Attempted, FactFile, Mark, Stood, now
from tests.stage.letters import letter

ONCE: Final = 0.2
"""The share of messages that are given up after one attempt."""
SOON: Final = timedelta(seconds=1)
RETRY_AFTER: Final = 0.25
GIVE_UP_AFTER: Final = 40.0
"""Seconds after `stop` in which a message that is still refused is sent again."""
BATCH: Final = 50
"""Messages that are sent together while it parks: many credits, and little work for this machine."""
POLL: Final = 0.03
"""Seconds between two readings of the own states."""
BEAT: Final = 0.005
DEFINITE: Final = (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)
"""After these a caller may assume that nothing was sent; after every other error it is in doubt."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is. name: of its engine; life: of its list and messages. secondary: "": behind a gateway.

    sizes: of each entity's streams, in messages a call. every: seconds between two sends of a stream, on average.
    later: the share of calls that schedule. retries: whether a refused message is sent again. operators: the file of a
    fleet's operators, "": no fleet. greets: the entity of the first send after pairing. pace: seconds between two
    batches while it parks.
    """

    name: str
    life: str
    folder: str
    primary: str
    secondary: str = ""
    ca_file: str = ""
    entities: tuple[str, ...] = ()
    sizes: tuple[int, ...] = (1, 3)
    every: float = 0.3
    later: float = 0.1
    retries: bool = True
    retry_total: int = 0
    seed: int = 0
    options: dict[str, Any] = {}
    operators: str = ""
    greets: str = ""
    pace: float = 1.0
    metrics: int | None = None
    on_change: str = ""


class Turns:
    """A sender of the SDK, whose calls run one at a time: it is not made for several."""

    def __init__(self, sender: Any) -> None:
        self._sender = sender
        self._turn = asyncio.Lock()

    async def send_messages(self, message: Any) -> None:
        async with self._turn:
            await self._sender.send_messages(message)

    async def schedule_messages(self, messages: Any, when: Any) -> Any:
        async with self._turn:
            return await self._sender.schedule_messages(messages, when)


class Application:
    """All streams of one process. client: a pairing, or the SDK's client of a gateway. namespaces: the pairing's."""

    def __init__(self, task: Task, client: Any, namespaces: Mapping[str, Namespace], facts: FactFile) -> None:
        self._task = task
        self._client = client
        self._namespaces = namespaces
        self._facts = facts
        self._is_paired = bool(task.secondary)
        self._senders: dict[str, Any] = {}
        self._proofs: set[asyncio.Task[None]] = set()
        self._stopped_at: float | None = None

    def mark(self, text: str, value: float = 0.0) -> None:
        self._facts.write(Mark(at=now(), who=self._task.life, text=text, value=value))

    async def run(self) -> None:
        """Send until stopped, and until each stream has its last answer."""
        if self._task.greets:
            message = letter(self._task.greets, greeting(self._task.life), 0)
            await self._send(self._task.greets, [message], once=True)
        async with asyncio.TaskGroup() as group:
            for entity in self._task.entities:
                for lane, size in enumerate(self._task.sizes):
                    group.create_task(self._stream(entity, lane, size), name=f"{entity}, lane {lane}")
        await asyncio.gather(*self._proofs)

    async def obey(self, words: AsyncIterator[list[str]]) -> None:
        """Do what the words say until they end."""
        working = [asyncio.create_task(self.run(), name="all streams")]
        parking: asyncio.Task[None] | None = None
        beating: asyncio.Task[None] | None = None
        if self._is_paired:
            working.append(asyncio.create_task(self._watch(), name="the states"))
        self.mark("ready")
        async for word, *rest in words:
            match word:
                case "prove":
                    self._prove(rest[0])
                case "stop":
                    self._stopped_at = now()
                    await working[0]
                    self.mark("stopped")
                case "beat":
                    beating.cancel() if beating else None
                    beating = asyncio.create_task(self._beat(rest[0]))
                case "park":
                    parking = asyncio.create_task(self._park())
                case "rest" if parking is not None:
                    parking.cancel()
                case "renew":
                    self._namespaces[rest[0]].renew(rest[1])
        for one in (*working, parking, beating):
            one.cancel() if one else None
        await asyncio.gather(*working, return_exceptions=True)

    def _sender(self, entity: str) -> Any:
        if entity not in self._senders:
            of = self._client.get_topic_sender if entity == TOPIC else self._client.get_queue_sender
            self._senders[entity] = of(entity) if self._is_paired else Turns(of(entity))
        return self._senders[entity]

    def _prove(self, number: str) -> None:
        for entity in self._task.entities:
            message = letter(entity, f"proof-{number}.{self._task.life}.{entity}", 0)
            task = asyncio.create_task(self._send(entity, [message]))
            self._proofs.add(task)
            task.add_done_callback(self._proofs.discard)

    async def _stream(self, entity: str, lane: int, size: int) -> None:
        rng = random.Random(f"{self._task.seed} {self._task.life} {entity} {lane}")
        for number in count():
            if self._stopped_at is not None:
                return
            names = [f"{self._task.life}.{entity}.{lane}-{number}-{index}" for index in range(size)]
            letters = [letter(entity, name, number) for name in names]
            once = not self._task.retries or rng.random() < ONCE
            await self._send(entity, letters, once=once, later=rng.random() < self._task.later)
            await asyncio.sleep(self._task.every * size * rng.uniform(0.5, 1.5))

    async def _send(
        self, entity: str, messages: list[ServiceBusMessage], *, once: bool = False, later: bool = False
    ) -> None:
        ids = [str(message.message_id) for message in messages]
        while True:
            self._facts.write(Attempted(at=now(), entity=entity, ids=ids))
            answer, error = await self._attempt(entity, messages, later=later)
            self._facts.write(Answered(at=now(), ids=ids, answer=answer, error=error))
            if answer is SendOutcome.ACCEPTED or once:
                return
            if self._stopped_at is not None and now() > self._stopped_at + GIVE_UP_AFTER:
                return
            await asyncio.sleep(RETRY_AFTER)

    async def _attempt(self, entity: str, messages: list[ServiceBusMessage], *, later: bool) -> tuple[SendOutcome, str]:
        sender = self._sender(entity)
        try:
            if later:
                await sender.schedule_messages(messages, datetime.now(UTC) + SOON)
            else:
                await sender.send_messages(messages[0] if len(messages) == 1 else messages)
        except Exception as error:
            is_certain = self._is_paired and isinstance(error, DEFINITE)
            return SendOutcome.REFUSED if is_certain else SendOutcome.IN_DOUBT, f"{type(error).__name__}: {error}"
        return SendOutcome.ACCEPTED, ""

    async def _park(self) -> None:
        """Send one batch after the other to the greeted entity; refused ones are given up. No list: credits count."""
        loop, batch = asyncio.get_running_loop(), [ServiceBusMessage(b"x") for _ in range(BATCH)]
        async with self._client.get_queue_sender(self._task.greets) as sender:
            while True:
                end = loop.time() + self._task.pace
                with contextlib.suppress(Exception):
                    await sender.send_messages(batch)
                await asyncio.sleep(max(0.0, end - loop.time()))

    async def _watch(self) -> None:
        written: object = None
        while True:
            views = self._client.entity_views()
            states = {view.path: str(view.state) for view in views}
            refused = {view.path: view.refused for view in views if view.refused}
            if (states, refused) != written:
                written = states, refused
                self._facts.write(Stood(at=now(), who=self._task.life, states=states, refused=refused))
            await asyncio.sleep(POLL)

    async def _beat(self, name: str) -> None:
        """Mark the longest step of the loop: "busy NAME" in seconds of the processor, "late NAME" by the clock."""
        cpu, at, worst = time.thread_time(), time.monotonic(), {"busy": 0.0, "late": 0.0}
        while True:
            await asyncio.sleep(BEAT)
            before, began, cpu, at = cpu, at, time.thread_time(), time.monotonic()
            for text, value in (("busy", cpu - before), ("late", at - began - BEAT)):
                if value > worst[text]:
                    worst[text] = value
                    self.mark(f"{text} {name}", value)


def greeting(life: str) -> str:
    """Return the message id of a life's first send."""
    return f"<{life}>"  # the end keeps life 1 apart from life 10


def mark_take_up(mark: Callable[[str], None]) -> None:
    """Mark "takes up" when the engine begins to apply the orders in force."""
    take_up: Callable[[FleetPart], Awaitable[None]] = FleetPart.take_up

    async def marked(self: FleetPart) -> None:
        mark("takes up")
        await take_up(self)

    FleetPart.take_up = marked  # type: ignore[method-assign]


def namespaces_of(task: Task) -> dict[str, Namespace]:
    """Return the namespaces that are paired, by their sides; none behind a gateway."""
    shared: dict[str, Any] = {
        "options": {"connection_verify": task.ca_file}, "messaging": {"retry_total": task.retry_total},
    }  # fmt: skip
    strings = {PRIMARY: task.primary, SECONDARY: task.secondary} if task.secondary else {}
    return {side: Namespace.from_connection_string(string, **shared) for side, string in strings.items()}


@contextlib.asynccontextmanager
async def client_of(task: Task, namespaces: Mapping[str, Namespace]) -> AsyncIterator[Any]:
    """Yield the pairing with its engine, or the SDK's client of a gateway."""
    if not namespaces:
        async with ServiceBusClient.from_connection_string(task.primary) as client:
            yield client
            return
    fleet = Fleet(name=task.name, operators=Path(task.operators)) if task.operators else None
    opening = pair_namespaces(
        namespaces[PRIMARY], namespaces[SECONDARY], control=task.name, fleet=fleet, metrics=task.metrics,
        on_change=task.on_change, **{"primary_name": PRIMARY} | task.options,
    )  # fmt: skip
    async with opening as paired:
        yield paired


async def live(task: Task, words: AsyncIterator[list[str]]) -> None:
    facts = FactFile(Path(task.folder), task.life)
    mark_take_up(lambda text: facts.write(Mark(at=now(), who=task.life, text=text)))
    namespaces = namespaces_of(task)
    async with client_of(task, namespaces) as client:
        await Application(task, client, namespaces, facts).obey(words)


async def main() -> None:
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    task = msgspec.json.decode(await reader.readline(), type=Task)

    async def words() -> AsyncIterator[list[str]]:
        while line := await reader.readline():
            yield line.decode().split()

    await live(task, words())


if __name__ == "__main__":
    asyncio.run(main())
