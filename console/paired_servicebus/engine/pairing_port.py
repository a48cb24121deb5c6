"""What an engine asks of the pairing it hosts: to be looked at, and to be steered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Protocol

from paired_servicebus.core.backlog.queue_usage import QueueUsage
from paired_servicebus.core.model.snapshot import BilledView, EntityView, ParkedView, QueueView, SyphonView, UnusedView
from paired_servicebus.core.operator.failover_readiness import Evidence
from paired_servicebus.pairing.monitoring.poll_watchers import PollWatchers


class ControllablePairing(Protocol):
    """A pairing, as its engine sees it. The acts return a sentence saying what came of them and raise PairedError."""

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
        """Announces events that come at the same time inside of `how()`."""

    def watch(self, path: str) -> None:
        """Lists an entity that may send nothing yet."""

    def force(self, path: str, *, by: str, why: str = "") -> str:
        """Fails an entity over by hand."""

    def pin(self, path: str, *, by: str, why: str = "") -> str:
        """Keeps an entity on the primary whatever fails."""

    def release(self, path: str, *, by: str, why: str = "") -> str:
        """Gives an entity back to the rules."""

    def pause_syphon(self, *, by: str, why: str = "", queue: int | None = None, destination: str = "") -> str:
        """Moves nothing until it is resumed: out of one queue, to one destination, or at all."""

    def resume_syphon(self, *, by: str, why: str = "", queue: int | None = None, destination: str = "") -> str:
        """Moves messages again."""

    async def redrive(self, queue: int) -> str:
        """Puts a backlog queue's dead letters back to work."""

    async def move_stranded(self, path: str) -> str:
        """Moves what lies in an unused backlog queue to where it belongs."""

    async def clean_up(self, path: str, *, elsewhere: Callable[[], Awaitable[frozenset[int]]]) -> str:
        """Deletes an unused backlog queue, if it is proven to be empty. `elsewhere`: the indices in use by other known
        engines."""

    def unused_view(self) -> UnusedView:
        """The unused backlog queues."""

    def entity_views(self) -> tuple[EntityView, ...]:
        """The entities, as they are now."""

    @property
    def looks(self) -> PollWatchers:
        """Who looks at the depths of the backlog queues."""

    @property
    def reading(self) -> bool:
        """Whether somebody asked for the depths and they are being read."""

    def queue_views(self, *, looking: bool) -> tuple[QueueView, ...]:
        """The backlog queues. `looking`: as if somebody asked for their depths."""

    def parked_view(self) -> ParkedView | None:
        """How many messages are parked now; None: not known."""

    def syphon_view(self) -> SyphonView:
        """The syphon."""

    def billed(self) -> BilledView:
        """Operations so far."""

    async def inspect(self) -> Evidence:
        """What a failover would rest on, looked at now."""

    def recounted(self, evidence: Evidence) -> Evidence:
        """The evidence with the counts of now."""

    def know_usage(self, usage: QueueUsage) -> None:
        """Takes note of the backlog queues that other engines use."""

    def know_syphons(self, engines: tuple[str, ...]) -> None:
        """Takes note of the other engines that run a syphon for the same namespaces."""

    def warnings(self) -> tuple[str, ...]:
        """What a person may want to look at and no engine can judge."""

    def alarms(self) -> tuple[str, ...]:
        """What a person should look at, a sentence each."""
