"""Operator commands for the syphon: re-drive dead letters, and move stranded messages of an unused queue.

Each ends when nothing more comes, or with the pairing, and returns one sentence. The sentence reports the moved
messages and the wait, never an empty queue. The guard decides who may run a command, and audits it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from typing import Final, Protocol

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.errors import EnvelopeError, IllegalEventError, WireError
from paired_servicebus.core.model.message_view import MAX_LETTERS_BEFORE
from paired_servicebus.core.pump.pump_progress import NOT_STARTED
from paired_servicebus.core.text.index_ranges import format_indices
from paired_servicebus.pairing.amqp_client import ReconnectingConnection, WireReceiver, WireSender, failure_of
from paired_servicebus.pairing.amqp_client.entity_management import peek
from paired_servicebus.pairing.management.backlog_queues import queue_index
from paired_servicebus.pairing.runtime.deadlines import CLOSING, bounded
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.sdk_messages import as_parked
from paired_servicebus.pairing.sending.sender_link import SdkSenderLink
from paired_servicebus.pairing.syphon.envelope_codec import broker_properties, strip_dead_letter
from paired_servicebus.pairing.syphon.pump_worker import Worker
from servicebus_amqp import ACCEPTED
from servicebus_amqp.encoding.messaging_types import RELEASED
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived

DEAD_LETTERS: Final = "/$DeadLetterQueue"
QUIET: Final = 3.0
"""Seconds without progress after which a command is done."""
PATIENCE: Final = 30.0
"""Seconds for each step of a namespace."""
PORTION: Final = 250
BATCH: Final = 100
NONE: Final[frozenset[int]] = frozenset()


class Redriver(Protocol):
    """Moves dead letters of a backlog queue back into it."""

    async def redrive(self, path: str, numbers: frozenset[int] = NONE) -> str:
        """Move dead letters of this queue back; return a sentence with their number.

        Args:
            numbers: their sequence numbers; none: every present dead letter.

        Raises:
            IllegalEventError: more than MAX_LETTERS_BEFORE others are before the last of them; nothing was moved.
            WireError, ServiceBusError, TimeoutError: the namespace failed; the messages already moved stay.
        """


class AmqpRedriver:
    """A redriver on our own AMQP: a dead letter returns unchanged, bit for bit."""

    def __init__(self, wire: ReconnectingConnection) -> None:
        self._wire = wire

    async def redrive(self, path: str, numbers: frozenset[int] = NONE) -> str:
        present = await self._numbers(path + DEAD_LETTERS, to=max(numbers, default=0))
        wanted = numbers & present if numbers else present
        gone = _gone(numbers - present)
        if not wanted:
            return f"{path} has no such dead letter{gone}" if numbers else f"{path} has no dead letters"
        to_come = sum(number <= max(wanted) for number in present)
        _check_reach(to_come - len(wanted))
        run = _RedriveRun(wanted, to_come)
        try:
            await run.open(self._wire, path)
            await run.wait()
        finally:
            await run.close()
        left = (
            f"; {len(wanted) - run.moved} stay: {run.reason or 'they did not come'}" if run.moved < len(wanted) else ""
        )
        chosen = "selected " if numbers else ""
        return f"{run.moved} of {len(wanted)} {chosen}dead letters of {path} were put back to work{left}{gone}"

    async def _numbers(self, path: str, *, to: int) -> set[int]:
        """Return the present numbers, at least up to `to` (0: all); later dead letters are not part of the command."""
        found: set[int] = set()
        number = 1
        while peeked := await peek(self._wire, path, from_number=number, count=PORTION, timeout=PATIENCE):
            found |= {broker_properties(data).sequence_number for data in peeked}
            if max(found) < number:  # without numbers the same would be peeked again
                break
            number = max(found) + 1
            if to and (number > to or len(found) > MAX_LETTERS_BEFORE + PORTION):
                break
        return found - {0}


def _gone(numbers: frozenset[int]) -> str:
    return f"; no longer there: {format_indices(numbers)}" if numbers else ""


def _check_reach(before: int) -> None:
    """Raise IllegalEventError if too many dead letters are before the selected ones."""
    if before > MAX_LETTERS_BEFORE:
        raise IllegalEventError(
            f"more than {MAX_LETTERS_BEFORE:,} dead letters are before these, and a queue is received from its start: "
            "re-drive older ones first, or all"
        )


class _RedriveRun:
    """One re-drive over two links. A dead letter is completed after the queue has accepted its copy.

    Args:
        numbers: the dead letters to move.
        to_come: the deliveries until the last of them arrives.
    """

    def __init__(self, numbers: Set[int], to_come: int) -> None:
        self.moved = 0
        self.reason = ""
        self._wanted = set(numbers)
        self._open = len(numbers)
        self._to_come = to_come
        self._under_way: dict[bytes, int] = {}
        self._others: list[int] = []
        self._completing = 0
        self._links: list[WireSender | WireReceiver] = []
        self._last = asyncio.get_running_loop().time()
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self, wire: ReconnectingConnection, path: str) -> None:
        """Attach both links. Raises WireError."""
        self._sender = await wire.sender(path, on_outcome=self._on_outcome, on_lost=self._on_lost, timeout=PATIENCE)
        self._links.append(self._sender)
        self._receiver = await wire.receiver(
            path + DEAD_LETTERS,
            on_delivery=self._on_delivery,
            on_settled=self._on_settled,
            on_lost=self._on_lost,
            timeout=PATIENCE,
        )
        self._links.append(self._receiver)
        self._receiver.grant(min(PORTION, self._to_come))

    async def wait(self) -> None:
        """Wait until every message is settled, or until a pause without progress. Raises WireError."""
        loop = asyncio.get_running_loop()
        while not self._end.done():
            await asyncio.wait((self._end,), timeout=QUIET)
            if loop.time() - self._last >= (PATIENCE if self._under_way or self._completing else QUIET):
                return
        self._end.result()

    async def close(self) -> None:
        """Release the other messages, and detach."""
        for delivery_id in (*self._others, *self._under_way.values()):
            self._receiver.settle(delivery_id, RELEASED)
        for link in reversed(self._links):
            await link.detach()

    def _on_delivery(self, event: DeliveryReceived) -> None:
        self._last = asyncio.get_running_loop().time()
        self._to_come -= 1
        if self._receiver.credit < min(PORTION, self._to_come) // 2:
            self._receiver.grant(min(PORTION, self._to_come))
        number = broker_properties(event.payload).sequence_number
        if number not in self._wanted:
            self._others.append(event.delivery_id)  # released at the end: earlier, it would come again
            return
        self._wanted.discard(number)
        try:
            payload = strip_dead_letter(event.payload)
        except EnvelopeError as error:
            self._keep(event.delivery_id, str(error))
            return
        self._under_way[event.tag] = event.delivery_id
        self._sender.send(payload, event.tag)

    def _on_outcome(self, event: DispositionReceived) -> None:
        delivery_id = self._under_way.pop(event.tag, None)
        if delivery_id is None:
            return
        failure = failure_of(event.state, self._sender.path)
        if failure is not None:
            self._keep(delivery_id, str(failure))
            return
        self.moved += 1
        self._completing += 1
        self._receiver.settle(delivery_id, ACCEPTED, settled=False)

    def _on_settled(self, event: DispositionReceived) -> None:
        self._completing -= 1
        self._one_less()

    def _keep(self, delivery_id: int, reason: str) -> None:
        self.reason = reason
        self._others.append(delivery_id)
        self._one_less()

    def _one_less(self) -> None:
        self._last = asyncio.get_running_loop().time()
        self._open -= 1
        if not self._open and not self._end.done():
            self._end.set_result(None)

    def _on_lost(self, error: WireError) -> None:
        if not self._end.done():
            self._end.set_exception(error)


class SdkRedriver:
    """A redriver on the SDK, with the SDK's usual loss of some property types."""

    def __init__(self, steering: PairingRuntime, client: ServiceBusClient) -> None:
        self._steering = steering
        self._client = client

    async def redrive(self, path: str, numbers: frozenset[int] = NONE) -> str:
        began, left = self._steering.clock(), set(numbers)
        moved = before = 0
        link = SdkSenderLink(self._client, path, self._steering.tasks)
        receiver = self._client.get_queue_receiver(path, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        try:
            await bounded(receiver.__aenter__(), PATIENCE, "opening")
            while received := await bounded(
                receiver.receive_messages(BATCH, max_wait_time=QUIET), PATIENCE, "receiving"
            ):
                ours = [
                    one for one in received if _was_there(one, began) and (not numbers or one.sequence_number in left)
                ]
                left -= {message.sequence_number for message in ours}
                before += len(received) - len(ours)
                for message in ours:
                    await link.send([as_parked(message.raw_amqp_message)], self._steering.policy.send_timeout)
                    await bounded(receiver.complete_message(message), PATIENCE, "completing a dead letter")
                    moved += 1
                if (numbers and not left) or before > MAX_LETTERS_BEFORE or not (ours or numbers):
                    break
        finally:
            await link.close()
            await bounded(receiver.close(), CLOSING, "closing a receiver")
        chosen = "selected " if numbers else ""
        missing = f"; not found: {format_indices(left)}" if left else ""
        return f"{moved} {chosen}dead letters of {path} were put back to work{missing}"


def _was_there(message: ServiceBusReceivedMessage, began: float) -> bool:
    """Return whether it was there before the command; messages that return from it are not part of the command."""
    enqueued = message.enqueued_time_utc
    return enqueued is None or enqueued.timestamp() < began


def unused_index(path: str, queues: Mapping[int, str]) -> int:
    """Return the index of a backlog queue that this pairing does not use.

    Args:
        queues: the paths of those in use by index, which may have gaps.

    Raises:
        IllegalEventError: it is in use, or is not a backlog queue of this pairing.
    """
    prefix = next(iter(queues.values())).rpartition("/")[0]
    index = queue_index(path)
    if index is None or path.rpartition("/")[0].casefold() != prefix.casefold():
        raise IllegalEventError(
            f"{path} is not a backlog queue of this pairing; their names are {prefix}/0, {prefix}/1, …"
        )
    if index in queues:
        raise IllegalEventError(f"{path} is in use: its pump moves its messages")
    return index


async def empty_queue(steering: PairingRuntime, worker: Worker) -> str:
    """Run a pump on a queue until nothing more comes; return a sentence about its work."""
    progress = worker.progress
    task = steering.tasks.start(worker.run(), name=f"move stranded messages of {worker.path}")
    if task is None:
        return "the pairing is being closed"
    try:
        seen, since = (-1, -1, -1), steering.clock()
        while steering.clock() - since < QUIET and not task.done():
            now = (progress.moved, progress.dead_lettered, progress.set_aside)
            if now != seen or progress.text == NOT_STARTED:
                seen, since = now, steering.clock()
            await asyncio.sleep(0.1)
    finally:
        task.cancel()
        await asyncio.wait((task,), timeout=CLOSING)
        await worker.close()
    parts = [f"{progress.moved} messages of {worker.path} were moved"]
    if progress.dead_lettered:
        parts.append(f"{progress.dead_lettered} dead-lettered")
    if progress.set_aside:
        parts.append(f"{progress.set_aside} wait in it: {progress.text}")
    if progress.failing_since is not None:
        parts.append(progress.text)
    return ", ".join(parts) + f"; then none came for {QUIET:g} s"
