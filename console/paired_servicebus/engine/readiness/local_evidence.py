"""Evidence about a failover from outside the pairing.

Its sources are other engines of this user on this machine, and the settings of the primary's entities.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from azure.core.exceptions import AzureError

from paired_servicebus.config import PairingConfig
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.core.operator.failover_readiness import Evidence, ExpiryEvidence
from paired_servicebus.engine.clients.client_factory import open_admin
from paired_servicebus.engine.control.discovery import local_engines, query_engines
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.readiness.local_queue_usage import MOVING_STATUSES, same_namespaces
from paired_servicebus.pairing.monitoring.readiness_probes import expiry
from paired_servicebus.pairing.runtime.deadlines import Clock

SETTINGS_INTERVAL: Final = 3600.0
"""Seconds between two readings of the entities' settings, which only their owner changes."""
SETTINGS_TIMEOUT: Final = 60.0
"""Seconds for all entities' settings together."""


class LocalEvidence:
    """Adds to the evidence of one pairing's engine, or of a check that has no engine."""

    def __init__(self, config: PairingConfig, places: EnginePaths) -> None:
        self._config = config
        self._places = places
        self._clock = Clock()
        self._expiry: tuple[ExpiryEvidence, ...] | None = None
        self._expiry_at: float | None = None

    async def add(self, evidence: Evidence) -> Evidence:
        """Add other engines' syphons if this one runs none, and the entities' settings.

        The settings are read again when management is used anyway.

        The settings are read again when management is used anyway.
        """
        if evidence.syphon in (None, SyphonStatus.OFF):
            syphons = await local_syphons(self._places, primary=evidence.primary, secondary=evidence.secondary)
            evidence = replace(evidence, syphons_elsewhere=syphons)
        if evidence.ping == "message" and evidence.asked:
            await self._read_settings()
        return replace(evidence, expiry=self._expiry, expiry_at=self._expiry_at)

    async def _read_settings(self) -> None:
        now = self._clock()
        if self._expiry_at is not None and now - self._expiry_at < SETTINGS_INTERVAL:
            return
        try:
            async with asyncio.timeout(SETTINGS_TIMEOUT), open_admin(self._config.primary) as admin:
                found = tuple([await expiry(admin, path) for path in self._config.entities])
        except (AzureError, ConfigurationError, OSError, TimeoutError, ValueError):
            return  # no management on this side, or not now: the last reading stays, with its time
        if any(one.dead_letters is not None for one in found) or self._expiry is None:
            self._expiry, self._expiry_at = found, now


async def local_syphons(places: EnginePaths, *, primary: str, secondary: str) -> tuple[str, ...]:
    """Return the other engines of this user on this machine that run a syphon for the same namespaces."""
    others = await query_engines(other for other in local_engines() if other.lock != places.lock)
    return tuple(
        one.engine
        for one in (other.snapshot for other in others)
        if one is not None
        and same_namespaces(one, primary=primary, secondary=secondary)
        and one.syphon.status in MOVING_STATUSES
    )
