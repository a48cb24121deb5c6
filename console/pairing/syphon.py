"""The syphon: one pump per backlog queue in use, and how it stands (SPEC.md section 8)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from azure.servicebus.aio import ServiceBusClient

from console.core.snapshot import SyphonStatus, SyphonView
from console.core.why import clock
from console.pairing.courier import Courier
from console.pairing.moving import Progress
from console.pairing.pump import Pump
from console.pairing.steering import Steering

RECENT: Final = 5.0
"""Seconds after a move in which the syphon is running."""
STUCK_AFTER: Final = 30.0
"""Seconds a pump may fail before the syphon is called stuck."""
HISTORY: Final = 60


class Syphon:
    """All pumps of one engine.

    Args:
        primary, secondary: the namespaces' clients; the destinations lie in the primary.
        queues: the backlog queues' paths by index.
    """

    def __init__(
        self, steering: Steering, primary: ServiceBusClient, secondary: ServiceBusClient, queues: tuple[str, ...]
    ) -> None:
        self._steering = steering
        self._courier = Courier(steering, primary)
        self.pumps = [
            Pump(steering, secondary, self._courier, index=index, path=path) for index, path in enumerate(queues)
        ]
        self._history: deque[float] = deque(maxlen=HISTORY)
        self._counted = 0
        self._counted_at = 0.0

    def start(self) -> None:
        """Set the pumps to work; the pairing's tasks own them."""
        self._counted_at = self._steering.clock()
        for pump in self.pumps:
            self._steering.tasks.start(pump.run(), name=f"pump of {pump.path}")

    async def close(self) -> None:
        """Close the links to the destinations; the pumps have ended with the pairing's tasks."""
        await self._courier.close()

    def count(self) -> None:
        """Add what was moved since the last call to the history of rates."""
        now, moved = self._steering.clock(), self.moved
        seconds = max(now - self._counted_at, 0.001)
        self._history.append((moved - self._counted) / seconds)
        self._counted, self._counted_at = moved, now

    @property
    def moved(self) -> int:
        """Messages moved since the engine started."""
        return sum(pump.progress.moved for pump in self.pumps)

    def view(self, depths: Mapping[int, int | None]) -> SyphonView:
        """How the syphon stands, by what it moved; `depths` are the backlog queues' by index, where known."""
        status, words = self._status(depths)
        return SyphonView(
            status=status,
            text=words,
            per_second=self._history[-1] if self._history else 0.0,
            history=tuple(self._history),
            moved=self.moved,
            dead_lettered=sum(pump.progress.dead_lettered for pump in self.pumps),
        )

    def _status(self, depths: Mapping[int, int | None]) -> tuple[SyphonStatus, str]:
        now = self._steering.clock()
        if self._steering.machine.syphon_paused:
            return SyphonStatus.PAUSED, "paused by an operator: parked messages stay"
        failing = [pump for pump in self.pumps if _failing(pump.progress, now)]
        if failing:
            return SyphonStatus.STUCK, f"backlog queue {failing[0].index}: {failing[0].progress.text}"
        last = max((pump.progress.last_moved_at or 0.0 for pump in self.pumps), default=0.0)
        if now - last <= RECENT:
            return SyphonStatus.RUNNING, "moving messages to their destinations"
        aside = sum(pump.progress.set_aside for pump in self.pumps)
        if aside:
            return SyphonStatus.IDLE, f"holds {aside} messages until their destinations take them"
        if any(depth is None for depth in depths.values()):
            return SyphonStatus.IDLE, "nothing received; the depth of some queues is not known"
        since = f"; last moved {clock(last)}" if last else ""
        return SyphonStatus.IDLE, f"nothing to move{since}"


def _failing(progress: Progress, now: float) -> bool:
    return progress.failing_since is not None and now - progress.failing_since >= STUCK_AFTER
