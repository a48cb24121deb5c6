"""The look at both namespaces before a drill: rights, tiers, names, and the entities of earlier drills."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from azure.core.exceptions import AzureError

from paired_servicebus.config import PairingConfig
from paired_servicebus.core.drill.drill_names import PREFIX
from paired_servicebus.core.drill.leftover_rules import FoundEntity
from paired_servicebus.core.errors import ConfigurationError, DrillError
from paired_servicebus.core.model.namespace_info import ServiceTier, first_label
from paired_servicebus.drill.drill_entities import lacks_manage
from paired_servicebus.engine.clients.client_factory import open_admin
from paired_servicebus.engine.clients.preflight import look_up_name
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.pairing.management.backlog_queues import differences, first_line, told
from paired_servicebus.pairing.management.management_port import is_refusal
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.temporary_entities.managed_namespace import MANAGING, ManagedNamespace, Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The namespaces' names and the primary's tier; found: the entities that are called like a drill's, by side."""

    primary: str
    secondary: str
    tier: ServiceTier
    found: Mapping[Side, tuple[FoundEntity, ...]]


@asynccontextmanager
async def open_namespaces(config: PairingConfig) -> AsyncIterator[dict[Side, ManagedNamespace]]:
    """Open clients for the management of both namespaces. Raises ConfigurationError."""
    try:
        async with open_admin(config.primary) as primary, open_admin(config.secondary) as secondary:
            yield {
                Side.PRIMARY: ManagedNamespace(Side.PRIMARY, config.primary.host, primary),
                Side.SECONDARY: ManagedNamespace(Side.SECONDARY, config.secondary.host, secondary),
            }
    except ValueError as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(f"{config.path}: the SDK does not accept these settings: {error}") from error


async def look_around(config: PairingConfig, places: EnginePaths) -> Surroundings:
    """Look at both namespaces. Raises ConfigurationError, DrillError."""
    async with open_namespaces(config) as namespaces:
        found = {side: await find_entities(namespace) for side, namespace in namespaces.items()}
        info = {side: await told(namespace.admin) for side, namespace in namespaces.items()}
    return Surroundings(
        primary=await look_up_name(config.primary, places),
        secondary=info[Side.SECONDARY].name or first_label(config.secondary.host),
        tier=info[Side.PRIMARY].tier,
        found=found,
    )


async def find_entities(namespace: ManagedNamespace) -> tuple[FoundEntity, ...]:
    """Return the entities of a namespace whose names begin as a drill's. Raises DrillError."""
    try:
        queues = await bounded(namespace.admin.queues(PREFIX), MANAGING, "listing queues")
        topics = []
        if namespace.side is Side.PRIMARY and (await told(namespace.admin)).has_topics:
            topics = await bounded(namespace.admin.topics(PREFIX), MANAGING, "listing topics")
    except (AzureError, OSError, TimeoutError) as error:
        if isinstance(error, AzureError) and is_refusal(error):
            raise DrillError(lacks_manage(namespace.side)) from error
        raise DrillError(
            f"the {namespace.side} namespace {namespace.host} does not answer its management: {first_line(error)}"
        ) from error
    return (
        *(FoundEntity(path=one.path, metadata=one.metadata, differences=tuple(differences(one))) for one in queues),
        *(FoundEntity(path=one.path, metadata=one.metadata, is_topic=True) for one in topics),
    )
