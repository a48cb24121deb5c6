"""Management over Atom: the SDK's administration client behind the pairing's port.

Queues are read and written as XML, not by the SDK's models: these refuse a whole list for one entity with a doubled
element, and write some elements behind their places, where the service ignores them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final
from xml.etree.ElementTree import Element

from azure.core.exceptions import DecodeError, ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.model.namespace_info import NamespaceInfo, ServiceTier
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.management import atom_descriptions as atom
from paired_servicebus.pairing.management import management_port as port

PAGE: Final = 100
"""Entities in one answer: the most that the service returns."""


class AtomAdmin:
    """The port over the SDK's client, which `close` closes."""

    def __init__(self, client: ServiceBusAdministrationClient) -> None:
        self._client = client
        sdk_internals.renew_signatures_early(client)

    async def queues(self, prefix: str) -> list[port.QueueFacts]:
        """List all queues, since Atom knows no prefix."""
        return [atom.queue_facts(one) async for one in self._listed("queues", prefix)]

    async def create_backlog_queue(self, path: str) -> None:
        await self._create(
            path,
            {
                "MaxSizeInMegabytes": str(port.MAX_SIZE_MB),
                "MaxDeliveryCount": str(port.MAX_DELIVERIES),
                "DefaultMessageTimeToLive": atom.TIMESPAN_MAX,
                "AutoDeleteOnIdle": atom.TIMESPAN_MAX,
                "LockDuration": atom.format_span(port.LOCK),
                "DeadLetteringOnMessageExpiration": "true",
                "EnableBatchedOperations": "true",
            },
        )

    async def create_queue(self, path: str, wanted: port.QueueWanted) -> None:
        window = wanted.duplicate_window
        settings: dict[str, str | Element | None] = {
            "LockDuration": None if wanted.lock is None else atom.format_span(wanted.lock),
            "RequiresSession": "true" if wanted.sessions else None,
            "RequiresDuplicateDetection": None if window is None else "true",
            "DuplicateDetectionHistoryTimeWindow": None if window is None else atom.format_span(window),
            "DeadLetteringOnMessageExpiration": "true" if wanted.dead_letters_expired else None,
            "AuthorizationRules": None if wanted.key is None else atom.one_rule(*wanted.key, wanted.right),
            "MaxSizeInMegabytes": None if wanted.max_size_mb is None else str(wanted.max_size_mb),
            "MaxDeliveryCount": None if wanted.max_deliveries is None else str(wanted.max_deliveries),
            "UserMetadata": wanted.metadata or None,
        }
        await self._create(path, {name: value for name, value in settings.items() if value is not None})

    async def depth(self, path: str) -> port.Depth:
        found = atom.queue_depth(await self._queue(path))
        if found is None:
            raise DecodeError(f"the description of {path} has no readable counts")
        return found

    async def depths(self, prefix: str, *, pages: int) -> dict[str, port.Depth]:
        """Implement `Management` by listing all queues."""
        depths = {one.name.casefold(): atom.queue_depth(one) async for one in self._listed("queues", prefix, pages)}
        return {path: found for path, found in depths.items() if found is not None}

    async def set_status(self, path: str, status: port.QueueStatus) -> None:
        """Implement `Management`: read the queue, and write back the settings in force with another status."""
        queue = await self._queue(path)
        settings: dict[str, str | Element] = {**atom.settings_in_force(queue), "Status": status.value}
        forwards = [
            (one.text or "") if isinstance(one, Element) else ""
            for one in map(settings.get, ("ForwardTo", "ForwardDeadLetteredMessagesTo"))
        ]
        await sdk_internals.write_entity(
            self._client, path, atom.queue_body(settings), update=True, forwards=(forwards[0], forwards[1]), **port.ONCE
        )

    async def delete_queue(self, path: str) -> None:
        await self._client.delete_queue(path, **port.ONCE)

    async def topics(self, prefix: str) -> list[port.TopicFacts]:
        """List all topics, since Atom knows no prefix."""
        return [
            port.TopicFacts(path=one.name, metadata=one.text("UserMetadata") or "")
            async for one in self._listed("topics", prefix)
        ]

    async def create_topic(self, path: str, *, metadata: str) -> None:
        await self._client.create_topic(path, user_metadata=metadata or None)  # the SDK passes no options on

    async def create_subscription(self, topic: str, name: str) -> None:
        await self._client.create_subscription(topic, name, **port.ONCE)

    async def delete_topic(self, path: str) -> None:
        await self._client.delete_topic(path, **port.ONCE)

    async def keeps_expired(self, path: str) -> str | None:
        found = atom.read_entry(await sdk_internals.read_entity(self._client, path, **port.ONCE))
        if found.element is None:
            return None
        if found.kind == "QueueDescription":
            return _keeping(path, found)
        keeping = [_keeping(f"{path}/Subscriptions/{one.name}", one) async for one in self._subscriptions(path)]
        return next((one for one in keeping if one), None if None in keeping else "")

    async def namespace(self) -> NamespaceInfo:
        """Return name and tier; Atom has neither region nor status."""
        described = await self._client.get_namespace_properties(**port.ONCE)
        return NamespaceInfo(name=described.name or "", tier=ServiceTier.called(described.messaging_sku))

    async def close(self) -> None:
        await self._client.close()

    async def _queue(self, path: str) -> atom.Description:
        found = atom.read_entry(await sdk_internals.read_entity(self._client, path, **port.ONCE))
        if found.kind != "QueueDescription":
            raise ResourceNotFoundError(f"there is no queue {path}")
        return found

    async def _create(self, path: str, settings: Mapping[str, str | Element]) -> None:
        await sdk_internals.write_entity(self._client, path, atom.queue_body(settings), **port.ONCE)

    async def _listed(self, kind: str, prefix: str, pages: int | None = None) -> AsyncIterator[atom.Description]:
        """Yield the entities of a kind under a prefix, case aside. Raises ListTooLongError after `pages` pages."""
        async for feed in port.limit_pages(sdk_internals.list_entities(self._client, kind, PAGE, **port.ONCE), pages):
            for one in atom.read_feed(feed):
                if one.name.casefold().startswith(prefix.casefold()):
                    yield one

    async def _subscriptions(self, topic: str) -> AsyncIterator[atom.Description]:
        async for feed in sdk_internals.list_subscriptions(self._client, topic, PAGE, **port.ONCE):
            for one in atom.read_feed(feed):
                yield one


def _keeping(path: str, found: atom.Description) -> str | None:
    """Return the path if the entity dead-letters expired messages; empty if not; None: unknown."""
    kept = found.flag("DeadLetteringOnMessageExpiration")
    return None if kept is None else path if kept else ""


def management_of(admin: port.SecondaryAdmin) -> port.Management:
    """Return a port of the caller's own, or the SDK's client behind AtomAdmin."""
    return AtomAdmin(admin) if isinstance(admin, ServiceBusAdministrationClient) else admin
