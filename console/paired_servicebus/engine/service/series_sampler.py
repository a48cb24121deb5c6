"""The engine's curves over time: one value each five seconds, from its snapshots and its senders' call times.

Consoles that show graphs get them by the control socket. Nothing is written to disk: a new engine begins anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from paired_servicebus.core.accounting.send_times import Buckets
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.series.graphs import STEP_SECONDS, Mark
from paired_servicebus.core.series.series_ring import SeriesRing
from paired_servicebus.engine.control.control_server import ControlServer

TakeTimes = Callable[[], Mapping[str, Buckets]]
"""Returns the calls since it was called last, by entity."""

log = logging.getLogger(__name__)


class SeriesSampler:
    """Keeps the curves, and sends them to the consoles of `control`."""

    def __init__(self, control: ControlServer) -> None:
        self._control = control
        self._ring = SeriesRing()
        control.all_graphs = self._ring.whole

    def note(self, event: e.Event) -> None:
        """Mark a change of state, or an order."""
        if isinstance(event, e.StateChanged):
            self._ring.mark(Mark(at=event.at, what=event.now, subject=event.entity))
        elif isinstance(event, e.Commanded):
            self._ring.mark(Mark(at=event.at, what=event.command, subject=event.target, order=True))

    async def run(self, take_times: TakeTimes) -> None:
        """Add a value each STEP_SECONDS, until cancelled."""
        while True:
            try:
                self.sample(take_times())
            except Exception:  # graphs show it as unknown; sends and syphon continue
                log.exception("the curves over time have no new value")
            await asyncio.sleep(STEP_SECONDS)

    def sample(self, times: Mapping[str, Buckets]) -> None:
        """Add the newest snapshot's values, and send them."""
        snapshot = self._control.snapshot
        step = self._ring.add(snapshot, times) if snapshot is not None else None
        if step is not None:
            self._control.publish_graphs(step)
