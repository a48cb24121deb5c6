"""An application that does not know of the outage: it sends, retries the same object, receives, and keeps its lists.

Demo and drill are judged by its lists: every id that it attempted with its final answer, and every delivery. It uses
the paired client as any application would, through the names of the SDK.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from paired_servicebus.core.accounting.ledger import Arrival, SendOutcome
from paired_servicebus.core.accounting.send_times import SendAttempt
from paired_servicebus.core.errors import SendError
from paired_servicebus.core.model.pairing_events import Event, MessageReceived
from paired_servicebus.pairing import PairedReceiver, PairedSender, PairedServiceBusClient
from paired_servicebus.pairing.runtime.deadlines import Clock

# The messages that remain in backlog queues at the end of a run, read without the pairing.

PEEK_TIMEOUT: Final = 10.0


async def peek_ids(client: ServiceBusClient, queues: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the ids of the messages in queues, and in their dead-letter queues. Raises the SDK's errors."""
    dead_letters = ServiceBusSubQueue.DEAD_LETTER
    found = await asyncio.gather(
        *(_peeked(client.get_queue_receiver(path)) for path in queues),
        *(_peeked(client.get_queue_receiver(path, sub_queue=dead_letters)) for path in queues),
    )
    return set().union(*found[: len(queues)]), set().union(*found[len(queues) :])


async def _peeked(receiver: ServiceBusReceiver) -> set[str]:
    """Return the ids of every message in a queue, in any state."""
    ids: set[str] = set()
    number = 1
    async with asyncio.timeout(PEEK_TIMEOUT), receiver:
        while True:
            messages = await receiver.peek_messages(250, sequence_number=number)
            for message in messages:
                ids.add(str(message.message_id))
                number = max(number, (message.sequence_number or 0) + 1)
            if not messages:
                return ids


RETRY_AFTER: Final = 0.25
GIVE_UP_AFTER: Final = 40.0
"""Seconds after the end of sending in which a message that is still refused is tried again."""
SETTLE: Final = 5.0
RENEW_BEFORE: Final = timedelta(seconds=5)

Source = tuple[str, str | None, str | None]
"""A receiver's entity, subscription and session."""


@dataclass(frozen=True, slots=True)
class MessageStream:
    """Messages with a fixed order: a producer of an entity, or one of its sessions.

    subscription: receives from the topic `entity`; None: the entity is a queue.
    """

    entity: str
    name: str
    every: float
    """Seconds between two sends, on average."""
    session_id: str | None = None
    batch: int = 1
    subscription: str | None = None


@dataclass(slots=True)
class WorkloadLists:
    """The application's own account of the run."""

    answers: dict[str, SendOutcome] = field(default_factory=dict)
    arrivals: list[Arrival] = field(default_factory=list)
    arrived: set[str] = field(default_factory=set)
    leads_nowhere: set[str] = field(default_factory=set)
    """Ids that were accepted by a backlog queue and have no destination."""
    empty_receives: int = 0
    """Calls of receivers that ended without a message."""
    last_error: Exception | None = None
    """The latest failure of a sender or receiver."""

    @property
    def missing(self) -> int:
        """Accepted messages that have not arrived yet and could."""
        here = self.arrived | self.leads_nowhere
        return sum(1 for key, told in self.answers.items() if told is SendOutcome.ACCEPTED and key not in here)


class Workload:
    """Senders and receivers over a paired client.

    Args:
        seed: makes sizes and pauses; the order of events is the world's.
        pace: how many times as long every pause is; for many applications in one process.
        record: takes a receipt for each delivery, so that the journal can be audited to the end.
        streams: what it sends; it receives from their entities.
        observe: called with each attempt to send.
        retry_after: seconds until a failed send or receive is repeated.
    """

    def __init__(
        self,
        paired: PairedServiceBusClient,
        *,
        seed: int,
        pace: float = 1.0,
        record: Callable[[Event], object] = lambda _: None,
        streams: tuple[MessageStream, ...],
        observe: Callable[[SendAttempt], object] = lambda _: None,
        retry_after: float = RETRY_AFTER,
    ) -> None:
        self.lists = WorkloadLists()
        self._paired = paired
        self._seed = seed
        self._pace = pace
        self._record = record
        self._streams = {stream.name: stream for stream in streams}
        self._observe = observe
        self._retry_after = retry_after
        self._clock = Clock()
        self._open = {stream.entity: asyncio.Event() for stream in streams}
        for gate in self._open.values():
            gate.set()
        self._sending = True
        self._receiving = True

    async def send_until_stopped(self) -> None:
        """Run every stream; ends some time after `stop_sending`, when each has an answer for its last message."""
        async with asyncio.TaskGroup() as group:
            for entity in self._entities:
                group.create_task(self._send_to(entity), name=f"the senders of {entity}")

    @property
    def _entities(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(stream.entity for stream in self._streams.values()))

    def stop_sending(self) -> None:
        """No new messages."""
        self._sending = False
        for gate in self._open.values():
            gate.set()

    def hold(self, entity: str) -> None:
        """Send no new messages to an entity until `release`; the present ones go on."""
        self._open[entity].clear()

    def release(self, entity: str) -> None:
        """Send to the entity again."""
        self._open[entity].set()

    def unsettled(self, entity: str) -> int:
        """Return the number of the entity's messages that are not accepted yet, or have not arrived."""
        names = {stream.name for stream in self._streams.values() if stream.entity == entity}
        return sum(
            1
            for name, answer in self.lists.answers.items()
            if name.rpartition("-")[0] in names and not (answer is SendOutcome.ACCEPTED and name in self.lists.arrived)
        )

    async def receive_until_stopped(self) -> None:
        """Receive everything until `stop_receiving`."""
        sources = {(one.entity, one.subscription, one.session_id) for one in self._streams.values()}
        async with asyncio.TaskGroup() as group:
            for source in sources:
                group.create_task(self._receive(source), name=f"a receiver of {source[0]}")

    def stop_receiving(self) -> None:
        """Stop the receivers after their current messages."""
        self._receiving = False

    # -- sending ----------------------------------------------------------------------------------------------

    async def _send_to(self, entity: str) -> None:
        streams = [stream for stream in self._streams.values() if stream.entity == entity]
        is_queue = streams[0].subscription is None
        sender = self._paired.get_queue_sender(entity) if is_queue else self._paired.get_topic_sender(entity)
        async with sender, asyncio.TaskGroup() as group:
            for stream in streams:
                group.create_task(self._run(stream, sender), name=stream.name)

    async def _run(self, stream: MessageStream, sender: PairedSender) -> None:
        rng = random.Random(f"{self._seed} {stream.name}")
        number = 0
        while self._sending:
            messages = [self._message(stream, number + index, rng) for index in range(stream.batch)]
            number += stream.batch
            await self._send(stream.entity, sender, messages)
            await asyncio.sleep(stream.every * self._pace * rng.uniform(0.5, 1.5))
            await self._open[stream.entity].wait()

    def _message(self, stream: MessageStream, number: int, rng: random.Random) -> ServiceBusMessage:
        return ServiceBusMessage(
            rng.randbytes(rng.randint(100, 2000)),
            message_id=f"{stream.name}-{number}",
            session_id=stream.session_id,
            subject=stream.name,
            application_properties={"number": number},
        )

    async def _send(self, entity: str, sender: PairedSender, messages: list[ServiceBusMessage]) -> None:
        """Send the same objects until they are accepted, or the time after the end is over."""
        clock = asyncio.get_running_loop().time
        ids = [str(message.message_id) for message in messages]
        for name in ids:
            self.lists.answers[name] = SendOutcome.REFUSED
        end: float | None = None
        while True:
            began = self._clock()
            try:
                await sender.send_messages(messages[0] if len(messages) == 1 else messages)
            except (ServiceBusError, SendError, OSError, TimeoutError) as error:
                if not isinstance(error, ServiceBusServerBusyError):
                    self._told(ids, SendOutcome.IN_DOUBT)
                self.lists.last_error = error
                self._observe(SendAttempt(entity, began, self._clock(), is_accepted=False))
            else:
                self._told(ids, SendOutcome.ACCEPTED)
                self._observe(SendAttempt(entity, began, self._clock(), is_accepted=True))
                return
            end = clock() + GIVE_UP_AFTER if end is None and not self._sending else end
            if end is not None and clock() > end:
                return
            await asyncio.sleep(self._retry_after)

    def _told(self, ids: list[str], answer: SendOutcome) -> None:
        for name in ids:
            self.lists.answers[name] = answer

    # -- receiving --------------------------------------------------------------------------------------------

    def _receiver(self, entity: str, subscription: str | None, session_id: str | None) -> PairedReceiver:
        options = {} if session_id is None else {"session_id": session_id}
        if subscription is None:
            return self._paired.get_queue_receiver(entity, **options)
        return self._paired.get_subscription_receiver(entity, subscription, **options)

    async def _receive(self, source: Source) -> None:
        """Receive and complete messages; open a new receiver after an error."""
        while self._receiving:
            try:
                async with asyncio.timeout(SETTLE):
                    receiver = await self._receiver(*source).__aenter__()
            except (ServiceBusError, OSError, TimeoutError) as error:
                self.lists.last_error = error
                await asyncio.sleep(self._retry_after)
                continue
            async with _closing(receiver):
                await self._receive_with(source, receiver)

    async def _receive_with(self, source: Source, receiver: PairedReceiver) -> None:
        quiet = 0
        while self._receiving:
            try:
                async with asyncio.timeout(SETTLE):
                    await _keep_session(receiver)
                    received = await receiver.receive_messages(50, max_wait_time=0.5)
                for message in received:
                    self._arrived(source, message)
                    async with asyncio.timeout(SETTLE):
                        await receiver.complete_message(message)
            except (ServiceBusError, OSError, TimeoutError, ValueError):
                await asyncio.sleep(self._retry_after)
                return
            self.lists.empty_receives += not received
            quiet = 0 if received else quiet + 1
            if quiet >= 6:
                return  # a connection that went silent looks like an empty queue: take a new one

    def _arrived(self, source: Source, message: ServiceBusReceivedMessage) -> None:
        name = _text(message.message_id)
        properties: dict[Any, Any] = message.application_properties or {}
        arrival = Arrival(name, _text(message.subject), int(properties.get(b"number", -1)))
        self.lists.arrivals.append(arrival)
        self.lists.arrived.add(name)
        entity, subscription, _ = source
        self._record(
            MessageReceived(
                at=time.time(),
                entity=entity,
                message_id=name,
                stream=arrival.stream,
                number=arrival.number,
                subscription=subscription,
                session=message.session_id,
            )
        )


@asynccontextmanager
async def _closing(receiver: PairedReceiver) -> AsyncIterator[None]:
    """Close a receiver at the end; do not wait for one that cannot be closed."""
    try:
        yield
    finally:
        with suppress(ServiceBusError, OSError, TimeoutError, ValueError):
            async with asyncio.timeout(SETTLE):
                await receiver.close()


async def _keep_session(receiver: PairedReceiver) -> None:
    """Renew a session's lock before it ends, as every receiver that stays in a session has to."""
    session = receiver.session
    until = session.locked_until_utc if session is not None else None
    if until is not None and until - datetime.now(UTC) < RENEW_BEFORE:
        await session.renew_lock()


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
