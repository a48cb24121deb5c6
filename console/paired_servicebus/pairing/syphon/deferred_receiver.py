"""Bringing back what a pump has set aside, oldest first, in portions received again by number.

One run for each destination that takes messages again; it ends when the destination fails, or nothing is left. Which
messages are set aside is `DeferredMessages`'s, what becomes of those that come is the pump's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol
from uuid import UUID

from paired_servicebus.core.errors import WireError
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon import outcomes
from paired_servicebus.pairing.syphon.amqp_delivery import AmqpDelivery
from paired_servicebus.pairing.syphon.deferred_messages import DeferredMessage, DeferredMessages
from paired_servicebus.pairing.syphon.envelope_codec import held_of
from paired_servicebus.pairing.syphon.settlement import received_again

PORTION: Final = 250
"""Messages received again by one request, at most."""
PORTION_BYTES: Final = 256 * 1024
PAUSE: Final = 1.0
"""Seconds until a destination, or a hand, that is full is looked at again."""


class Hand(Protocol):
    """The pump that takes what comes."""

    @property
    def is_open(self) -> bool:
        """Whether it takes messages at all."""

    @property
    def room(self) -> int:
        """How many more it takes now."""

    @property
    def largest(self) -> float:
        """Bytes that a message may have, by those that came."""

    def take(self, data: bytes, token: UUID, *, doom: str) -> None:
        """A message, locked; with a `doom`, only to be dead-lettered for that reason."""


class DeferredReceiver:
    """What one pump asks for again.

    asked: numbers of messages that were asked for and have not come. trouble: why none can be received, if that is so.

    Args:
        missed: told that somebody else has some of what was asked for.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        wire: ReconnectingConnection,
        courier: AmqpDelivery,
        aside: DeferredMessage,
        hand: Hand,
        *,
        path: str,
        missed: Callable[[], None],
    ) -> None:
        self.asked: set[int] = set()
        self.trouble = ""
        self._steering = steering
        self._wire = wire
        self._courier = courier
        self._aside = aside
        self._hand = hand
        self._path = path
        self._missed = missed
        self._runs: dict[str, asyncio.Task[None]] = {}

    def begin(self, now: float) -> None:
        """Set to work what is due: destinations that take messages, and have some set aside."""
        for key, aside in list(self._aside.by_key.items()):
            if self._aside.drop_empty(key):
                continue
            if key not in self._runs and aside.numbers and self._courier.may_take(aside.path, key, now):
                work = self._run(key, aside)
                task = self._steering.tasks.start(work, name=f"what {self._path} holds for {aside.path}")
                if task is not None:
                    self._runs[key] = task

    def end(self) -> None:
        """Nothing more is asked for."""
        for task in self._runs.values():
            task.cancel()
        self._runs.clear()

    async def _run(self, key: str, aside: DeferredMessages) -> None:
        """Receive again what was set aside for a destination, oldest first, as long as that takes it."""
        in_vain = 0
        try:
            while aside.numbers and self._hand.is_open:
                ruling = outcomes.waiting(self._steering, aside.path)
                doom = ruling.reason if ruling.undeliverable else ""
                if not doom and not self._courier.may_take(aside.path, key, self._steering.clock()):
                    return
                portion = min(PORTION, max(1, int(PORTION_BYTES / self._hand.largest)), self._hand.room)
                most = portion if doom else min(portion, self._courier.room(key))
                if most <= 0:
                    await self._courier.turn(key, PAUSE)
                    continue
                numbers = aside.take(most)
                aside.in_hand += len(numbers)
                in_vain = 0 if await self._receive(aside, numbers, doom) else in_vain + len(numbers)
                if in_vain >= PORTION:  # others have the rest as well, for all we know
                    aside.numbers.clear()
        except WireError as error:
            self.trouble = f"cannot receive what was set aside: {self._steering.judge(error).reason}"
        else:
            self.trouble = ""
        finally:
            if self._runs.get(key) is asyncio.current_task():
                del self._runs[key]

    async def _receive(self, aside: DeferredMessages, numbers: list[int], doom: str) -> bool:
        """Take the messages of these numbers in hand; with a `doom`, only to dead-letter them for that reason. Whether
        any came."""
        missing = set(numbers)
        self.asked |= missing
        aside.asked += len(numbers)
        self._steering.meter.receives += 1
        try:
            async for data, token in received_again(self._wire, self._path, numbers):
                missing.discard(held_of(data).sequence_number)
                self._hand.take(data, token, doom=doom)
        except BaseException:
            aside.in_hand -= len(missing)
            for number in missing:  # still there, for all we know
                aside.add(number)
            raise
        finally:
            self.asked.difference_update(numbers)
            aside.asked -= len(numbers)
        self._steering.meter.receives += max(0, len(numbers) - len(missing) - 1)
        aside.in_hand -= len(missing)
        if missing:  # another syphon has them, living or dead: the next search tells
            self._missed()
        return len(missing) < len(numbers)
