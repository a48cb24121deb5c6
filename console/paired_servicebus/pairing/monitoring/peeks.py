"""What peeks find in the backlog queues: why their dead letters are dead, and since when their oldest message waits.

Counts tell neither, and what this engine dead-lettered itself is not all that lies there. A peek changes nothing, but
it is billed (as a receive) and carries whole messages; so it goes only where the counts say that there is something and
somebody looks, at most once a minute for each queue, and a look at dead letters ends after MOST of them or CALLS calls.
It reads through
the SDK: a message that the SDK cannot read (one with a char or a decimal among its properties) fails the look,
which is said beside what was found before. Nothing here ever raises: no send, pump or state depends on it.
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
from paired_servicebus.pairing.monitoring.depth_poller import DepthPoller
from paired_servicebus.pairing.monitoring.poll_watchers import PollWatchers
from paired_servicebus.pairing.runtime.deadlines import CLOSING, bounded
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime

EVERY: Final = 60.0
"""Least seconds between two looks at the same thing of a queue, failed ones included."""
UNCHANGED: Final = 900.0
"""Seconds between two looks at dead letters whose number stays what it was: they may lie there for weeks."""
MOST: Final = 200
"""Dead letters that one look reads, the first ones of their queue."""
CALLS: Final = 4
"""Peeks that one look makes: a reply has a size, and large messages come in several."""
PEEK: Final = 30.0
"""Seconds one look may take."""
REASONS: Final = 5
OTHER_REASONS: Final = "other reasons"
NO_REASON: Final = "no reason given"
LONGEST: Final = 200
"""Characters of a reason; its writer may be anybody."""
OURS: Final = "Undeliverable"
"""The reason that pumps give; what was wrong stands in its description."""

T = TypeVar("T")


class Peeks:
    """Looks into the backlog queues until cancelled; `dead` and `oldest` hold what was found last, by index.

    Args:
        client: the secondary namespace's; needs Listen.
        queues: the backlog queues' paths by index.
        soundings: their counts, which say where there is something.
        looks: says whether anybody looks.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        client: ServiceBusClient,
        queues: Mapping[int, str],
        soundings: DepthPoller,
        looks: PollWatchers,
    ) -> None:
        self.dead: dict[int, DeadLettersView] = dict.fromkeys(queues, DeadLettersView())
        self.oldest: dict[int, OldestView] = dict.fromkeys(queues, OldestView())
        self._dead_tried: dict[int, tuple[float, int | None]] = {}
        """When a queue's dead letters were looked at, by the loop's clock, which is never set back; and how many they
        were, or None: that look failed."""
        self._oldest_tried: dict[int, float] = {}
        self._steering = steering
        self._client = client
        self._queues = queues
        self._soundings = soundings
        self._looks = looks

    async def run(self) -> None:
        """Look into all queues, one after the other, after their counts were read for somebody."""
        while True:
            await self._soundings.ended.wait()
            if self._looks.attended:
                for index in self._queues:
                    await self.look(index)
            self._looks.answered()

    async def look(self, index: int) -> None:
        """Look into one queue where that is due. A queue whose counts are not known is left alone."""
        sounding = self._soundings.found[index]
        if sounding is not None:
            await self._look_at_dead(index, sounding.depth.dead_lettered)
            await self._look_at_oldest(index, sounding.depth.messages)

    async def _look_at_dead(self, index: int, count: int) -> None:
        if not count:
            self.dead[index] = DeadLettersView()
            return
        now = asyncio.get_running_loop().time()
        tried, before = self._dead_tried.get(index, (now - EVERY, None))
        if now < tried + (UNCHANGED if before == count else EVERY):
            return
        self._dead_tried[index] = now, None
        try:
            reasons = await self._peeked(index, ServiceBusSubQueue.DEAD_LETTER, min(count, MOST), reason_of)
        except Exception as error:  # noqa: BLE001 - what others put there may break the SDK in any way; it is said
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
        if now < self._oldest_tried.get(index, now - EVERY) + EVERY:
            return
        self._oldest_tried[index] = now
        try:
            found = await self._peeked(index, None, 1, enqueued_at)
        except Exception as error:  # noqa: BLE001 - as above
            self.oldest[index] = replace(self.oldest[index], trouble=self._steering.judge(error).reason)
        else:
            self.oldest[index] = OldestView(read_at=self._steering.clock(), enqueued_at=found[0] if found else None)

    async def _peeked(
        self,
        index: int,
        sub_queue: ServiceBusSubQueue | None,
        most: int,
        take: Callable[[ServiceBusReceivedMessage], T],
    ) -> list[T]:
        """What `take` takes of each of the first messages. Raises whatever the SDK does, and TimeoutError."""
        path = self._queues[index]
        receiver = self._client.get_queue_receiver(path, sub_queue=sub_queue)
        try:
            return await bounded(self._read(receiver, most, take), PEEK, f"peeking into {path}")
        finally:
            await bounded(receiver.close(), CLOSING, "closing a receiver")

    async def _read(
        self, receiver: ServiceBusReceiver, most: int, take: Callable[[ServiceBusReceivedMessage], T]
    ) -> list[T]:
        taken: list[T] = []
        number = 1
        for _ in range(CALLS):
            peeked = await receiver.peek_messages(most - len(taken), sequence_number=number)
            self._steering.meter.receives += 1
            taken += map(take, peeked)
            if not peeked or len(taken) >= most:
                break
            number = (peeked[-1].sequence_number or 0) + 1
        return taken


def reason_of(message: ServiceBusReceivedMessage) -> str:
    """Why a dead letter is one, as its writer said: the description of ours, the reason of others'."""
    reason, description = message.dead_letter_reason or "", message.dead_letter_error_description or ""
    said = (description or reason) if reason == OURS else (reason or description)
    return str(said)[:LONGEST] or NO_REASON


def enqueued_at(message: ServiceBusReceivedMessage) -> float | None:
    """When a message came into its queue, in seconds since the epoch; None where it does not say."""
    at = message.enqueued_time_utc
    return at.timestamp() if at is not None else None


def most_frequent(reasons: list[str]) -> tuple[tuple[str, int], ...]:
    """The most frequent reasons and how many messages have each; the rest of the messages under OTHER_REASONS."""
    most = Counter(reasons).most_common(REASONS)
    rest = len(reasons) - sum(number for _, number in most)
    return (*most, (OTHER_REASONS, rest)) if rest else tuple(most)
