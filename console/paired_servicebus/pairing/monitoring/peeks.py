"""Peeks into the backlog queues: the reasons of their dead letters, and the age of their oldest message.

Counts have neither, and other programs dead-letter too. A peek changes nothing, but it is billed as a receive and
carries whole messages. So queues are peeked only while they are watched and their counts are above zero, at most once a
minute each. A look at dead letters ends after MAX_PEEKED messages.

Only what is shown of a message is decoded. A failure is shown beside the earlier result. Nothing here raises: no send,
pump or state depends on it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from paired_servicebus.core.errors import MessagesUnknownError, WireUnavailableError
from paired_servicebus.core.model.message_view import MessageKind
from paired_servicebus.core.model.snapshot import DeadLettersView, OldestView
from paired_servicebus.pairing.monitoring.depth_poller import DepthPoller, PollWatchers
from paired_servicebus.pairing.monitoring.message_looks import MessageLooks
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime

MIN_LOOK_SECONDS: Final = 60.0
"""Minimum seconds between two looks at the same part of a queue, failed ones included."""
UNCHANGED_SECONDS: Final = 900.0
"""Seconds between two looks at dead letters of unchanged number, which may stay for weeks."""
MAX_PEEKED: Final = 200
"""Dead letters that one look reads, from the first."""
MAX_REASONS: Final = 5
OTHER_REASONS: Final = "other reasons"
NO_REASON: Final = "no reason given"


class Peeks:
    """The periodic peeks into the backlog queues; `dead` and `oldest` have the latest results, by index.

    Args:
        messages: the looks at messages in the secondary namespace.
        queues: the backlog queues' paths by index.
        poller: their counts; empty queues are not peeked.
        looks: the watchers; without any, nothing is peeked.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        messages: MessageLooks,
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
        self._messages = messages
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
            page = await self._messages.page(self._queues[index], MessageKind.DEAD, count=min(count, MAX_PEEKED))
        except (MessagesUnknownError, WireUnavailableError) as error:
            self.dead[index] = replace(self.dead[index], trouble=str(error))
            return
        reasons = [row.reason or NO_REASON for row in page.rows]
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
            at = await self._messages.oldest(self._queues[index])
        except (MessagesUnknownError, WireUnavailableError) as error:
            self.oldest[index] = replace(self.oldest[index], trouble=str(error))
        else:
            self.oldest[index] = OldestView(read_at=self._steering.clock(), enqueued_at=at)


def most_frequent(reasons: list[str]) -> tuple[tuple[str, int], ...]:
    """Return the most frequent reasons and their numbers of messages; the rest is OTHER_REASONS."""
    most = Counter(reasons).most_common(MAX_REASONS)
    rest = len(reasons) - sum(number for _, number in most)
    return (*most, (OTHER_REASONS, rest)) if rest else tuple(most)
