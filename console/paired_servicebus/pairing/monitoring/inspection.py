"""A pairing's evidence for whether a failover would work now, without a screen or an engine.

The engine's process adds its own (other engines on this machine, settings of the primary's entities).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from azure.core.exceptions import AzureError
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.core.operator.failover_readiness import Evidence, QueueEvidence, TooLarge
from paired_servicebus.pairing.management.management_port import Management
from paired_servicebus.pairing.monitoring.depth_poller import DepthPoller
from paired_servicebus.pairing.monitoring.poll_watchers import PollWatchers
from paired_servicebus.pairing.monitoring.readiness_probes import ReadinessProbes, size_limits, validity
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime

LIMITS_SECONDS: Final = 3600.0
"""Seconds between two readings of the queues' size limits, which only their owner changes."""
WAIT_SECONDS: Final = 10.0
"""Seconds that a look waits for management."""


class Inspection:
    """The collector of the evidence.

    Args:
        primary, secondary: the namespaces' clients.
        admin: the secondary's management.
        queues: the backlog queues' paths by index.
        poller: the counts, read again on request.
        looks: the watchers; without any, management is not queried.
        limit: returns the bytes that a queue may hold, as far as the pairing knows.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        primary: ServiceBusClient,
        secondary: ServiceBusClient,
        admin: Management,
        queues: Mapping[int, str],
        poller: DepthPoller,
        looks: PollWatchers,
        limit: Callable[[int], int],
    ) -> None:
        self._steering = steering
        self._clients = (primary, secondary)
        self._admin = admin
        self._poller = poller
        self._looks = looks
        self._limit = limit
        self._queues = queues
        self._proofs = ReadinessProbes(secondary, tuple(queues.values()), steering.judge, steering.clock)
        self._limits: dict[str, int] = {}
        self._limits_at = 0.0

    async def look(self, names: tuple[str, str], syphon: SyphonStatus, limit: int | None, *, ask: bool) -> Evidence:
        """Collect the evidence; opens links to backlog queues.

        Args:
            names: the primary's and the secondary's.
            limit: the bytes of the largest message that the backlog accepts.
            ask: read the counts again, even without watchers.
        """
        steering = self._steering
        if ask:
            self._looks.ask()
        waits = (self._read_limits(), self._fresh_counts()) if ask or self._looks.attended else ()
        proofs, *_ = await asyncio.gather(self._proofs.look(), *waits)
        return Evidence(
            at=steering.clock(),
            primary=names[0],
            secondary=names[1],
            queues=tuple(self._with_counts(index, proof) for index, proof in zip(self._queues, proofs, strict=True)),
            queues_wanted=steering.policy.backlog_queue_count,
            tokens=tuple([await validity(client) for client in self._clients]),
            syphon=syphon,
            too_large=self._too_large(),
            limit_bytes=limit,
            ping=steering.policy.ping,
            trouble=self._poller.trouble,
            asked=bool(waits),
        )

    def recounted(self, evidence: Evidence) -> Evidence:
        """Return the evidence with the present counts."""
        queues = zip(self._queues, evidence.queues, strict=True)
        return replace(
            evidence,
            queues=tuple(self._with_counts(index, proof) for index, proof in queues),
            trouble=self._poller.trouble,
        )

    def _too_large(self) -> tuple[TooLarge, ...] | None:
        """Return the too large messages by entity; None if no sent message could be measured."""
        tallies = [(one.path, self._steering.tally(one.path)) for one in self._steering.machine.entities()]
        if not any(sends.accepted for _, tally in tallies for sends in tally.routes.values()):
            return None
        return tuple(TooLarge(entity=path, messages=tally.too_large) for path, tally in tallies)

    def _with_counts(self, index: int, proof: QueueEvidence) -> QueueEvidence:
        sample = self._poller.found.get(index)
        limit = self._limits.get(proof.path.casefold()) if self._limits else self._limit(index)
        if sample is None:
            return replace(proof, limit_bytes=limit)
        return replace(
            proof,
            messages=sample.depth.messages,
            size_bytes=sample.depth.size_bytes,
            limit_bytes=limit,
            read_at=sample.read_at,
        )

    async def _fresh_counts(self) -> None:
        with suppress(TimeoutError):  # counts not read by then are unknown
            async with asyncio.timeout(WAIT_SECONDS):
                await self._poller.settled()

    async def _read_limits(self) -> None:
        now = self._steering.clock()
        if self._limits and now - self._limits_at < LIMITS_SECONDS:
            return
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                self._limits = await size_limits(self._admin, tuple(self._queues.values()))
        except (AzureError, OSError, TimeoutError):
            return  # the counts' own failure is reported
        self._limits_at = now
