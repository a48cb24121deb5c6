"""Peeks into the backlog queues: the reasons of their dead letters, and the age of their oldest message.

Counts have neither, and other programs dead-letter too. A peek changes nothing, but it is billed as a receive and
carries whole messages. So queues are peeked only while they are watched and their counts are above zero, at most once a
minute each. A look at dead letters ends after MAX_PEEKED messages or MAX_CALLS calls.

Peeks use the SDK: a message that it cannot decode (one with a char or a decimal property) fails the look. The failure
is shown beside the earlier result. Nothing here raises: no send, pump or state depends on it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from paired_servicebus.core.model.snapshot import DeadLettersView, OldestView
from paired_servicebus.pairing.monitoring.depth_poller import DepthPoller, PollWatchers
from paired_servicebus.pairing.runtime.deadlines import CLOSING, bounded
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime

MIN_LOOK_SECONDS: Final = 60.0
"""Minimum seconds between two looks at the same part of a queue, failed ones included."""
UNCHANGED_SECONDS: Final = 900.0
"""Seconds between two looks at dead letters of unchanged number, which may stay for weeks."""
MAX_PEEKED: Final = 200
"""Dead letters that one look reads, from the first."""
MAX_CALLS: Final = 4
"""Peeks in one look: a reply has a size limit, and large messages need several."""
PEEK_SECONDS: Final = 30.0
"""Seconds for one look."""
MAX_REASONS: Final = 5
OTHER_REASONS: Final = "other reasons"
NO_REASON: Final = "no reason given"
MAX_REASON_CHARACTERS: Final = 200
"""Characters of a reason, which any program may have written."""
OURS: Final = "Undeliverable"
"""The reason of the pumps' dead letters; their description has the cause."""

T = TypeVar("T")


class Peeks:
    """The periodic peeks into the backlog queues; `dead` and `oldest` have the latest results, by index.

    Args:
        client: the secondary namespace's; needs Listen.
        queues: the backlog queues' paths by index.
        poller: their counts; empty queues are not peeked.
        looks: the watchers; without any, nothing is peeked.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        client: ServiceBusClient,
        queues: Mapping[int, str],
        poller: DepthPoller,
        looks: PollWatchers,
    ) -> None:
        self.dead: dict[int, DeadLettersView] = dict.fromkeys(queues, DeadLettersView())
        self.oldest: dict[int, OldestView] = dict.fromkeys(queues, OldestView())
        self._dead_tried: dict[int, tuple[float, int | None]] = {}
        """The loop's time of the last look at a queue's dead letters, and their number; None: it failed."""
        self._oldest_tried: dict[int, float] = {}
        self._steering = steering
        self._client = client
        self._queues = queues
        self._poller = poller
        self._looks = looks

    async def run(self) -> None:
        """Look into all queues, one after the other, after each reading of counts for watchers."""
        while True:
            await self._poller.ended.wait()
            if self._looks.attended:
                for index in self._queues:
                    await self.look(index)
            self._looks.answered()

    async def look(self, index: int) -> None:
        """Look into one queue if that is due. A queue with unknown counts is skipped."""
        sample = self._poller.found[index]
        if sample is not None:
            await self._look_at_dead(index, sample.depth.dead_lettered)
            await self._look_at_oldest(index, sample.depth.messages)

    async def _look_at_dead(self, index: int, count: int) -> None:
        if not count:
            self.dead[index] = DeadLettersView()
            return
        now = asyncio.get_running_loop().time()
        tried, before = self._dead_tried.get(index, (now - MIN_LOOK_SECONDS, None))
        if now < tried + (UNCHANGED_SECONDS if before == count else MIN_LOOK_SECONDS):
            return
        self._dead_tried[index] = now, None
        try:
            reasons = await self._peek(index, ServiceBusSubQueue.DEAD_LETTER, min(count, MAX_PEEKED), reason_of)
        except Exception as error:  # noqa: BLE001 - other programs' messages may break the SDK in any way; the view shows it
            self.dead[index] = replace(self.dead[index], trouble=self._steering.judge(error).reason)
            return
        self._dead_tried[index] = now, count
        self.dead[index] = DeadLettersView(
            read_at=self._steering.clock(), looked_at=len(reasons), reasons=most_frequent(reasons)
        )

    async def _look_at_oldest(self, index: int, count: int) -> None:
        if not count:
            self.oldest[index] = OldestView()
            return
        now = asyncio.get_running_loop().time()
        if now < self._oldest_tried.get(index, now - MIN_LOOK_SECONDS) + MIN_LOOK_SECONDS:
            return
        self._oldest_tried[index] = now
        try:
            found = await self._peek(index, None, 1, enqueued_at)
        except Exception as error:  # noqa: BLE001 - as above
            self.oldest[index] = replace(self.oldest[index], trouble=self._steering.judge(error).reason)
        else:
            self.oldest[index] = OldestView(read_at=self._steering.clock(), enqueued_at=found[0] if found else None)

    async def _peek(
        self,
        index: int,
        sub_queue: ServiceBusSubQueue | None,
        most: int,
        take: Callable[[ServiceBusReceivedMessage], T],
    ) -> list[T]:
        """Apply `take` to each of the first `most` messages. Raises the SDK's errors, and TimeoutError."""
        path = self._queues[index]
        receiver = self._client.get_queue_receiver(path, sub_queue=sub_queue)
        try:
            return await bounded(self._read(receiver, most, take), PEEK_SECONDS, f"peeking into {path}")
        finally:
            await bounded(receiver.close(), CLOSING, "closing a receiver")

    async def _read(
        self, receiver: ServiceBusReceiver, most: int, take: Callable[[ServiceBusReceivedMessage], T]
    ) -> list[T]:
        taken: list[T] = []
        number = 1
        for _ in range(MAX_CALLS):
            peeked = await receiver.peek_messages(most - len(taken), sequence_number=number)
            self._steering.meter.receives += 1
            taken += map(take, peeked)
            if not peeked or len(taken) >= most:
                break
            number = (peeked[-1].sequence_number or 0) + 1
        return taken


def reason_of(message: ServiceBusReceivedMessage) -> str:
    """Return a dead letter's reason: the description of ours, the reason of others'."""
    reason, description = message.dead_letter_reason or "", message.dead_letter_error_description or ""
    said = (description or reason) if reason == OURS else (reason or description)
    return str(said)[:MAX_REASON_CHARACTERS] or NO_REASON


def enqueued_at(message: ServiceBusReceivedMessage) -> float | None:
    """Return a message's time of arrival in its queue, in seconds since the epoch; None: unknown."""
    at = message.enqueued_time_utc
    return at.timestamp() if at is not None else None


def most_frequent(reasons: list[str]) -> tuple[tuple[str, int], ...]:
    """Return the most frequent reasons and their numbers of messages; the rest is OTHER_REASONS."""
    most = Counter(reasons).most_common(MAX_REASONS)
    rest = len(reasons) - sum(number for _, number in most)
    return (*most, (OTHER_REASONS, rest)) if rest else tuple(most)
