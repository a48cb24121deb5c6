"""Receives deferred messages again, oldest first, in portions by number.

One run for each destination that accepts messages again; it ends when the destination fails, or nothing is left.
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
from paired_servicebus.pairing.syphon.deferred_messages import DeferredByDestination, DeferredMessages
from paired_servicebus.pairing.syphon.envelope_codec import broker_properties
from paired_servicebus.pairing.syphon.settlement import receive_again

PORTION: Final = 250
"""Messages received again by one request, at most."""
PORTION_BYTES: Final = 256 * 1024
PAUSE: Final = 1.0
"""Seconds between two checks of a destination, or a pump, without room."""


class PumpIntake(Protocol):
    """The pump that takes the received messages."""

    @property
    def is_open(self) -> bool:
        """Whether it takes messages."""

    @property
    def room(self) -> int:
        """How many more it takes now."""

    @property
    def largest(self) -> float:
        """Bytes of its largest recent message."""

    def take(self, data: bytes, token: UUID, *, dead_reason: str) -> None:
        """Take a locked message; with a `dead_reason`, only dead-letter it for that reason."""


class DeferredReceiver:
    """Receives one pump's deferred messages again.

    asked: numbers of requested messages that have not arrived. trouble: the reason why none can be received, or "".

    Args:
        missed: called if another engine has some of the requested messages.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        wire: ReconnectingConnection,
        delivery: AmqpDelivery,
        aside: DeferredByDestination,
        pump: PumpIntake,
        *,
        path: str,
        missed: Callable[[], None],
    ) -> None:
        self.asked: set[int] = set()
        self.trouble = ""
        self._steering = steering
        self._wire = wire
        self._delivery = delivery
        self._aside = aside
        self._pump = pump
        self._path = path
        self._missed = missed
        self._runs: dict[str, asyncio.Task[None]] = {}

    def begin(self, now: float) -> None:
        """Start runs for destinations that accept messages and have deferred ones."""
        for key, aside in list(self._aside.by_key.items()):
            if self._aside.drop_empty(key):
                continue
            if key not in self._runs and aside.numbers and self._delivery.may_take(aside.path, key, now):
                work = self._run(key, aside)
                task = self._steering.tasks.start(work, name=f"deferred messages of {self._path} for {aside.path}")
                if task is not None:
                    self._runs[key] = task

    def end(self) -> None:
        """Cancel all runs."""
        for task in self._runs.values():
            task.cancel()
        self._runs.clear()

    async def _run(self, key: str, aside: DeferredMessages) -> None:
        """Receive the deferred messages of a destination, oldest first, while it accepts them."""
        in_vain = 0
        try:
            while aside.numbers and self._pump.is_open:
                ruling = outcomes.pending_ruling(self._steering, aside.path)
                dead_reason = ruling.reason if ruling.undeliverable else ""
                if not dead_reason and not self._delivery.may_take(aside.path, key, self._steering.clock()):
                    return
                portion = min(PORTION, max(1, int(PORTION_BYTES / self._pump.largest)), self._pump.room)
                most = portion if dead_reason else min(portion, self._delivery.room(key))
                if most <= 0:
                    await self._delivery.wait_for_change(key, PAUSE)
                    continue
                numbers = aside.take(most)
                aside.in_hand += len(numbers)
                in_vain = 0 if await self._receive(aside, numbers, dead_reason) else in_vain + len(numbers)
                if in_vain >= PORTION:  # other engines probably have the rest as well
                    aside.numbers.clear()
        except WireError as error:
            self.trouble = f"cannot receive deferred messages: {self._steering.judge(error).reason}"
        else:
            self.trouble = ""
        finally:
            if self._runs.get(key) is asyncio.current_task():
                del self._runs[key]

    async def _receive(self, aside: DeferredMessages, numbers: list[int], dead_reason: str) -> bool:
        """Receive the messages of these numbers, and return whether any came. dead_reason: as in `PumpIntake.take`."""
        missing = set(numbers)
        self.asked |= missing
        aside.asked += len(numbers)
        self._steering.meter.receives += 1
        try:
            async for data, token in receive_again(self._wire, self._path, numbers):
                missing.discard(broker_properties(data).sequence_number)
                self._pump.take(data, token, dead_reason=dead_reason)
        except BaseException:
            aside.in_hand -= len(missing)
            for number in missing:  # probably still there
                aside.add(number)
            raise
        finally:
            self.asked.difference_update(numbers)
            aside.asked -= len(numbers)
        self._steering.meter.receives += max(0, len(numbers) - len(missing) - 1)
        aside.in_hand -= len(missing)
        if missing:  # another syphon has them, alive or dead: the next search finds out
            self._missed()
        return len(missing) < len(numbers)
