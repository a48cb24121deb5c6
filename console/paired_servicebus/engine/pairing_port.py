"""The engine's interface to the pairing that it hosts.

Not here: the operator's orders to it (paired_servicebus.engine.commands.handlers.ControllablePairing).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from paired_servicebus.core.backlog.queue_usage import QueueUsage
from paired_servicebus.core.model.snapshot import BilledView, EntityView, ParkedView, QueueView, SyphonView, UnusedView
from paired_servicebus.core.operator.failover_readiness import Evidence
from paired_servicebus.pairing.monitoring.poll_watchers import PollWatchers


class HostedPairing(Protocol):
    """A pairing, as its engine sees it."""

    @property
    def backlog_queue_count(self) -> int:
        """Backlog queues found or created."""

    @property
    def primary_name(self) -> str:
        """The primary namespace's name."""

    @property
    def secondary_name(self) -> str:
        """The secondary namespace's name."""

    def write_together(self, how: Callable[[], AbstractContextManager[None]]) -> None:
        """Write events that come at the same time inside of `how()`."""

    def watch(self, path: str) -> None:
        """List an entity that may have no senders yet."""

    def unused_view(self) -> UnusedView:
        """Return the unused backlog queues."""

    def entity_views(self) -> tuple[EntityView, ...]:
        """Return the entities' current state."""

    @property
    def looks(self) -> PollWatchers:
        """The clients that watch the depths of the backlog queues."""

    @property
    def reading(self) -> bool:
        """Whether requested depths are being read."""

    def queue_views(self, *, looking: bool) -> tuple[QueueView, ...]:
        """Return the backlog queues. `looking`: as if a client watched their depths."""

    def parked_view(self) -> ParkedView | None:
        """Return the number of parked messages; None: unknown."""

    def syphon_view(self) -> SyphonView:
        """Return the syphon's status."""

    def billed(self) -> BilledView:
        """Return the operations so far."""

    async def inspect(self) -> Evidence:
        """Collect the current evidence about a failover."""

    def recounted(self, evidence: Evidence) -> Evidence:
        """Return the evidence with current counts."""

    def know_usage(self, usage: QueueUsage) -> None:
        """Note the backlog queues that other engines use."""

    def know_syphons(self, engines: tuple[str, ...]) -> None:
        """Note the other engines that run a syphon for the same namespaces."""

    def warnings(self) -> tuple[str, ...]:
        """Return conditions that no engine can judge, for the operator."""

    def alarms(self) -> tuple[str, ...]:
        """Return the alarms, a sentence each."""
