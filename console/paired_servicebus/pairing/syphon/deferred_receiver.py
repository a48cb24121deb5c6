"""Receives deferred messages again, oldest first, in portions by number.

One run for each destination that accepts messages again; it ends when the destination fails, or nothing is left.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol
from uuid import UUID

from paired_servicebus.core.errors import WireError
from paired_servicebus.core.pump.pump_events import PumpEvent, Recall, RecallDue, RecallEnded
from paired_servicebus.core.pump.pump_machine import PumpMachine
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.amqp_delivery import AmqpDelivery
from paired_servicebus.pairing.syphon.backlog_message import BacklogMessage
from paired_servicebus.pairing.syphon.envelope_codec import broker_properties
from paired_servicebus.pairing.syphon.settlement import receive_again

PAUSE: Final = 1.0
"""Seconds between two checks of a destination, or a pump, without room."""


class RecallingPump(Protocol):
    """The pump whose deferred messages are received."""

    machine: PumpMachine[BacklogMessage]
    is_open: bool

    def apply(self, event: PumpEvent[BacklogMessage]) -> None:
        """Step the machine and perform its effects."""

    def take(self, data: bytes, token: UUID) -> None:
        """Take a locked message."""


class DeferredReceiver:
    """Receives one pump's deferred messages again.

    trouble: the reason why none can be received, or "".
    """

    def __init__(
        self,
        steering: PairingRuntime,
        wire: ReconnectingConnection,
        delivery: AmqpDelivery,
        pump: RecallingPump,
        *,
        path: str,
    ) -> None:
        self.trouble = ""
        self._steering = steering
        self._wire = wire
        self._delivery = delivery
        self._pump = pump
        self._path = path
        self._runs: dict[str, asyncio.Task[None]] = {}

    def begin(self, now: float) -> None:
        """Start runs for destinations that accept messages and have deferred ones."""
        for key in self._pump.machine.recallable(now):
            if key not in self._runs:
                name = f"deferred messages of {self._path} for {key}"
                task = self._steering.tasks.start(self._run(key), name=name)
                if task is not None:
                    self._runs[key] = task

    def end(self) -> None:
        """Cancel all runs."""
        for task in self._runs.values():
            task.cancel()
        self._runs.clear()

    async def _run(self, key: str) -> None:
        """Receive the deferred messages of a destination, oldest first, while it accepts them."""
        machine = self._pump.machine
        try:
            while self._pump.is_open:
                due = RecallDue(key, self._delivery.room(key), self._steering.clock())
                effects = machine.step(due)
                if not effects:
                    break
                for effect in effects:
                    if isinstance(effect, Recall):
                        await self._receive(effect)
                    else:
                        await self._delivery.wait_for_change(key, PAUSE)
        except WireError as error:
            self.trouble = f"cannot receive deferred messages: {self._steering.judge(error).reason}"
        else:
            self.trouble = ""
        finally:
            if self._runs.get(key) is asyncio.current_task():
                del self._runs[key]

    async def _receive(self, recall: Recall) -> None:
        missing, failed = set(recall.numbers), True
        self._steering.meter.receives += 1
        try:
            async for data, token in receive_again(self._wire, self._path, recall.numbers):
                missing.discard(broker_properties(data).sequence_number)
                self._pump.take(data, token)
            failed = False
        finally:
            now = self._steering.clock()
            self._pump.apply(RecallEnded(recall.key, recall.numbers, frozenset(missing), failed, now))
        self._steering.meter.receives += max(0, len(recall.numbers) - len(missing) - 1)
