"""The syphon: one pump for each backlog queue in use, and their results (SPEC.md section 8).

Two kinds of pump follow the same rules. The pump on our own AMQP is many times faster and preserves every AMQP type;
the other needs only the SDK. `pump = "auto"` selects the first, and the second if the namespaces reject the first or
the clients' settings are unreadable: for all queues, once, with the reason.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final

from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.errors import IllegalEventError, WireUnavailableError
from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.core.model.snapshot import SyphonStatus, SyphonView
from paired_servicebus.core.pump.intake_limit import RateLimitedIntake
from paired_servicebus.core.pump.pump_progress import PumpProgress
from paired_servicebus.core.text.number_format import format_indices
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from paired_servicebus.pairing.management.backlog_queues import DepthSample, QueueRecreator
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.amqp_delivery import AmqpDelivery
from paired_servicebus.pairing.syphon.amqp_pump import AmqpPump
from paired_servicebus.pairing.syphon.pump_worker import RECENT, Pump, Remake, leave_gone
from paired_servicebus.pairing.syphon.redrive import AmqpRedriver, SdkRedriver, empty_queue, unused_index
from paired_servicebus.pairing.syphon.sdk_pump import SdkDelivery, SdkPump

HISTORY: Final = 60
TICK: Final = 1.0
RETRY_SECONDS: Final = 30.0
"""Seconds between tries of pumps that cannot work and may not be replaced."""


class ConnectionPair:
    """Both namespaces' connections of our own, and the delivery on them."""

    def __init__(self, steering: PairingRuntime, primary: ServiceBusClient, secondary: ServiceBusClient) -> None:
        self.primary = ReconnectingConnection(Endpoint.of(primary), name="syphon")
        self.secondary = ReconnectingConnection(Endpoint.of(secondary), name="syphon")
        self.courier = AmqpDelivery(steering, self.primary)

    async def close(self) -> None:
        """Close both connections cleanly, within seconds."""
        self.courier.close()
        await asyncio.gather(self.primary.close(), self.secondary.close())


class Syphon:
    """All pumps of one engine.

    Args:
        primary, secondary: the namespaces' clients; the destinations are in the primary.
        queues: the backlog queues' paths by index.
        remaker: makes a missing queue in use again; None: it stays missing.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        primary: ServiceBusClient,
        secondary: ServiceBusClient,
        queues: Mapping[int, str],
        remaker: QueueRecreator | None = None,
    ) -> None:
        self._remaker = remaker
        self._steering = steering
        self._primary = primary
        self._secondary = secondary
        self._queues = queues
        self._courier = SdkDelivery(steering, primary)
        self._wires: ConnectionPair | None = None
        self._unusable: WireUnavailableError | None = None
        """The reason why requested pumps on our own AMQP are unavailable, or None."""
        self.pumps = {index: self._pump(index, path, PumpProgress()) for index, path in queues.items()}
        if steering.policy.pump != "sdk":
            self._use_amqp()
        self._history: deque[float] = deque(maxlen=HISTORY)
        self._counted = 0
        self._counted_at = 0.0
        self._read_at: dict[int, float] = {}
        """Times of the readings that the pumps got, by queue."""

    def _pump(self, index: int, path: str, progress: PumpProgress, wires: ConnectionPair | None = None) -> Pump[Any]:
        """Return a queue's pump: on these connections of our own; None: on the SDK."""
        kept: dict[str, Any] = {"index": index, "path": path, "progress": progress, "remake": self._remake(index, path)}
        kept["intake"] = RateLimitedIntake(self._steering.machine.pace)
        if wires is None:
            return SdkPump(self._steering, self._secondary, self._courier, **kept)
        return AmqpPump(self._steering, wires.secondary, wires.courier, **kept)

    def _remake(self, index: int, path: str) -> Remake:
        """Return the function that makes a queue again; a missing stranded queue has nothing left to move."""
        if self._remaker is None or self._queues.get(index) != path:
            return leave_gone
        return partial(self._remaker.remake, index)

    def _use_amqp(self) -> None:
        """Replace the pumps by pumps on our own AMQP, or store the reason why not."""
        try:
            if self._wires is None:
                self._wires = ConnectionPair(self._steering, self._primary, self._secondary)
        except WireUnavailableError as error:
            self._unusable = error
            return
        self._unusable = self._wires.courier.unusable = None
        wires = self._wires
        for index, pump in self.pumps.items():
            self.pumps[index] = self._pump(index, pump.path, pump.progress, wires)

    def start(self) -> None:
        """Start the pumps as tasks of the pairing."""
        self._counted_at = self._steering.clock()
        for index, pump in self.pumps.items():
            self._steering.tasks.start(self._work(index), name=f"pump of {pump.path}")
        self._steering.tasks.start(self._watch(), name="the watch over destinations")

    async def _work(self, index: int) -> None:
        """Run one queue's pump, and one of the other kind if the first cannot work here."""
        while True:
            if self._unusable is None:
                try:
                    await self.pumps[index].run()
                except WireUnavailableError as error:
                    self._unusable = error
            elif self._steering.policy.pump == "auto":
                await self._replace(index, self._unusable)
                await self.pumps[index].run()
            else:
                self.pumps[index].report_failure(str(self._unusable), retry_in=RETRY_SECONDS)
                await asyncio.sleep(RETRY_SECONDS)
                if self._unusable is not None:
                    self._use_amqp()

    async def _replace(self, index: int, error: WireUnavailableError) -> None:
        steering, before = self._steering, self.pumps[index]
        if not any(pump.progress.note for pump in self.pumps.values()):
            text = f"the syphon moves messages through the SDK, more slowly: {error}"
            steering.announce(Warned(at=steering.clock(), about="syphon", text=text))
        before.progress.note = f"through the SDK: {error}"
        await before.close()
        self.pumps[index] = self._pump(index, before.path, before.progress)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            if self._wires is not None:
                self._wires.courier.watch(self._steering.clock())

    async def close(self) -> None:
        """Settle messages in flight, for a moment, and close all links. The pumps have ended with the tasks."""
        await asyncio.gather(*(pump.close() for pump in self.pumps.values()))
        if self._wires is not None:
            await self._wires.close()
        await self._courier.close()

    # -- commands -----------------------------------------------------------------------------------------------------

    async def redrive(self, queue: int, numbers: Collection[int] = ()) -> str:
        """Move dead letters of a backlog queue back into it; return a sentence about the result.

        Args:
            numbers: their sequence numbers; default: all that are there.

        Raises:
            IllegalEventError: there is no such backlog queue, or too many dead letters are before those.
            RedriveError: the namespace failed on the way; it has the number of those moved.
            WireError: the namespace failed before anything was moved.
        """
        if queue not in self._queues:
            raise IllegalEventError(
                f"this pairing uses no backlog queue {queue}; it uses {format_indices(self._queues)}"
            )
        redriver: AmqpRedriver | SdkRedriver = SdkRedriver(self._steering, self._secondary)
        if self._wires is not None and self._unusable is None:
            redriver = AmqpRedriver(self._wires.secondary, rest=self._steering.policy.throttle_wait)
        return await redriver.redrive(self._queues[queue], frozenset(numbers))

    async def move_stranded(self, path: str) -> str:
        """Move the messages of an unused backlog queue to their destinations; return a sentence about it.

        Raises:
            IllegalEventError: the queue is in use, or is not a backlog queue of this pairing.
        """
        wires = self._wires if self._unusable is None else None
        pump = self._pump(unused_index(path, self._queues), path, PumpProgress(), wires)
        return await empty_queue(self._steering, pump, self._secondary)

    # -- status -------------------------------------------------------------------------------------------------------

    def count(self) -> None:
        """Add the rate since the last call to the history."""
        now, moved = self._steering.clock(), self.moved
        seconds = max(now - self._counted_at, 0.001)
        self._history.append((moved - self._counted) / seconds)
        self._counted, self._counted_at = moved, now

    def know(self, found: Mapping[int, DepthSample | None]) -> None:
        """Pass each pump a new reading of its queue that was made while it moved nothing."""
        for index, pump in self.pumps.items():
            sounding = found.get(index)
            if sounding is None or sounding.read_at <= self._read_at.get(index, 0.0):
                continue
            self._read_at[index] = sounding.read_at
            if sounding.read_at - (pump.progress.last_moved_at or 0.0) > RECENT:
                pump.holds(sounding.depth.messages - sounding.depth.scheduled)

    @property
    def moved(self) -> int:
        """Messages moved since the engine started."""
        return sum(pump.progress.moved for pump in self.pumps.values())

    @property
    def aside(self) -> int:
        """Messages deferred until their destinations accept them."""
        return sum(pump.progress.set_aside for pump in self.pumps.values())

    @property
    def per_second(self) -> float:
        """Messages moved in the latest counted second."""
        return self._history[-1] if self._history else 0.0

    @property
    def moves_now(self) -> bool:
        """Whether it moved messages in the latest counted second, or since."""
        return self.per_second > 0 or self.moved != self._counted

    def view(self, status: SyphonStatus, words: str) -> SyphonView:
        """Return the syphon's view with its counts; `SyphonReport` makes the status and its sentence."""
        return SyphonView(
            status=status,
            text=words,
            per_second=self.per_second,
            history=tuple(self._history),
            moved=self.moved,
            dead_lettered=sum(pump.progress.dead_lettered for pump in self.pumps.values()),
            paused_queues=tuple(sorted(self._steering.machine.pauses.queues)),
            paused_destinations=tuple(self._steering.machine.pauses.destinations.values()),
        )
