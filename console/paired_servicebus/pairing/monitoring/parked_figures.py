"""The figure of parked messages, from the latest depths and this engine's work on each queue since.

It is updated once a second from existing counters, so all screens show the same figure.
"""

from __future__ import annotations

from collections.abc import Mapping

from paired_servicebus.core.backlog.parked_count import (
    DepthRead,
    DrainRate,
    QueueCounters,
    QueueDepthEstimate,
    parked_view,
)
from paired_servicebus.core.model.snapshot import ParkedView
from paired_servicebus.pairing.monitoring.depth_poller import DepthPoller
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.outcomes import Worker


class ParkedFigures:
    """The number of parked messages, by backlog queue and in total."""

    def __init__(self, steering: PairingRuntime, poller: DepthPoller) -> None:
        self.queues = {index: QueueDepthEstimate() for index in poller.found}
        self.view: ParkedView | None = None
        """The total; None: unknown."""
        self._drained = DrainRate()
        self._steering = steering
        self._poller = poller
        self.pumps: Mapping[int, Worker] = {}
        """By queue; empty if this engine runs no syphon."""
        poller.counts = self.counts

    def counts(self, index: int) -> QueueCounters:
        """Return this engine's work on a queue since it started."""
        return self._counts(index, self._added().get(index, 0))

    def look(self, *, held_up: bool) -> None:
        """Update the figures. `held_up`: messages wait for an unavailable destination."""
        now, added, removed = self._steering.clock(), self._added(), 0
        for index, figure in self.queues.items():
            counts = self._counts(index, added.get(index, 0))
            figure.look(self._read(index), counts)
            removed += counts.removed
        messages = sum(figure.messages for figure in self.queues.values())
        read_at = min((one.read.at for one in self.queues.values() if one.read is not None), default=0.0)
        every = self._poller.every
        self._drained.look(now, messages, removed=removed, read_at=read_at, every=every, held_up=held_up)
        self.view = parked_view(self.queues.values(), self._drained, at=now, oldest=2 * every)

    def parked(self, index: int) -> int | None:
        """Return the messages parked in one queue now; None: unknown."""
        figure = self.queues[index]
        return figure.messages if figure.is_known else None

    def _counts(self, index: int, added: int) -> QueueCounters:
        pump = self.pumps.get(index)
        if pump is None:
            return QueueCounters(added=added)
        progress = pump.progress
        removed = progress.moved + progress.dead_lettered
        return QueueCounters(added=added, removed=removed, leaving=progress.unconfirmed(), aside=progress.set_aside)

    def _added(self) -> dict[int, int]:
        added: dict[int, int] = {}
        for tally in self._steering.tallies.values():
            for route, sends in tally.routes.items():
                if route.queue is not None:
                    added[route.queue] = added.get(route.queue, 0) + sends.accepted
        return added

    def _read(self, index: int) -> DepthRead | None:
        found = self._poller.found[index]
        return DepthRead(found.read_at, found.depth.messages, found.before, found.after) if found is not None else None
