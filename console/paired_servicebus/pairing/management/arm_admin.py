"""Management through Azure Resource Manager, for roles rather than keys with Manage.

Names have slashes here and `~` in ARM's addresses, which is ARM's own notation. ARM overwrites an existing queue, so a
queue is looked up before it is created.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from azure.core.exceptions import (
    DecodeError,
    DeserializationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)

from paired_servicebus.core.model.namespace_info import NamespaceInfo, ServiceTier
from paired_servicebus.pairing.management import management_port as port

if TYPE_CHECKING:
    from azure.mgmt.servicebus.aio import ServiceBusManagementClient
    from azure.mgmt.servicebus.models import SBQueue, SBQueueProperties, SBTopic


class ArmAdmin:
    """A namespace's management through ARM, for `secondary_admin`.

        ArmAdmin(ServiceBusManagementClient(credential, subscription), resource_group="rg", namespace="contoso-backup")

    Args:
        client: the asynchronous client of azure-mgmt-servicebus; its credential needs a role that may write queues,
            such as Azure Service Bus Data Owner or Contributor.
        resource_group: the namespace's.
        namespace: its name: the first label of its host.
    """

    def __init__(self, client: ServiceBusManagementClient, *, resource_group: str, namespace: str) -> None:
        self._client = client
        self._where = (resource_group, namespace)

    async def queues(self, prefix: str) -> list[port.QueueFacts]:
        """List all queues, page by page, since ARM knows no prefix."""
        listed = self._client.queues.list_by_namespace(*self._where, **port.ONCE)
        return [_facts(one) async for one in listed if _is_under(prefix, one)]

    async def create_queue(self, path: str, wanted: port.QueueWanted) -> None:
        """Implement `Management`; a queue that its owner creates in the same instant may get our settings.

        The key of a rule is set by its regeneration, as ARM has no other way.
        """
        try:
            await self._get(path)
        except ResourceNotFoundError:
            pass
        else:
            raise ResourceExistsError(f"the queue {path} exists already")
        await self._put(path, {_lowered(name): value for name, value in port.settings_of(wanted).items()})
        if wanted.key is not None:
            name, key = wanted.key
            queues: Any = self._client.queues  # its types lack plain dictionaries, which it accepts
            where = (*self._where, _arm_name(path), name)
            rights = {"properties": {"rights": [wanted.right]}}
            await queues.create_or_update_authorization_rule(*where, rights, **port.ONCE)
            await queues.regenerate_keys(*where, {"keyType": "PrimaryKey", "key": key}, **port.ONCE)

    async def depth(self, path: str) -> port.Depth:
        try:
            return _depth(_properties(await self._get(path)))
        except _UNREADABLE as error:
            raise DecodeError(f"the description of {path} cannot be read: {error}") from error

    async def depths(self, prefix: str, *, pages: int) -> dict[str, port.Depth]:
        """Implement `Management` by listing all queues."""
        found: dict[str, port.Depth] = {}
        listed = self._client.queues.list_by_namespace(*self._where, **port.ONCE).by_page()
        async for page in port.limit_pages(listed, pages):
            async for one in page:
                with suppress(*_UNREADABLE):  # read singly, where its failure is its own
                    if _is_under(prefix, one) and _properties(one).count_details is not None:
                        found[_path(one).casefold()] = _depth(_properties(one))
        return found

    async def set_status(self, path: str, status: port.QueueStatus) -> None:
        """Implement `Management`: read the queue, and write it back with another status."""
        queue: Any = (await self._get(path)).as_dict()
        written = {key: value for key, value in queue.get("properties", {}).items() if key not in _READ_ONLY}
        await self._put(path, written | {"status": status.value})

    async def delete_queue(self, path: str) -> None:
        """Implement `Management`; ARM itself reports no missing queue."""
        await self._get(path)
        await self._client.queues.delete(*self._where, _arm_name(path), **port.ONCE)

    async def topics(self, prefix: str) -> list[port.TopicFacts]:
        """List all topics, page by page, since ARM knows no prefix."""
        listed = self._client.topics.list_by_namespace(*self._where, **port.ONCE)
        return [_topic_facts(one) async for one in listed if _is_under(prefix, one)]

    async def create_topic(self, path: str, *, metadata: str) -> None:
        """Implement `TopicManagement`; ARM overwrites an existing topic."""
        body: Any = {"properties": {"userMetadata": metadata} if metadata else {}}
        await self._client.topics.create_or_update(*self._where, _arm_name(path), body, **port.ONCE)

    async def create_subscription(self, topic: str, name: str) -> None:
        """Implement `TopicManagement`; ARM overwrites an existing subscription."""
        body: Any = {"properties": {}}
        await self._client.subscriptions.create_or_update(*self._where, _arm_name(topic), name, body, **port.ONCE)

    async def delete_topic(self, path: str) -> None:
        """Implement `TopicManagement`; ARM itself reports no missing topic."""
        await self._client.topics.get(*self._where, _arm_name(path), **port.ONCE)
        await self._client.topics.delete(*self._where, _arm_name(path), **port.ONCE)

    async def keeps_expired(self, path: str) -> str | None:
        try:
            kept = _properties(await self._get(path)).dead_lettering_on_message_expiration
        except ResourceNotFoundError:
            return await self._keeping_subscription(path)
        return None if kept is None else path if kept else ""

    async def _keeping_subscription(self, topic: str) -> str | None:
        kept: str | None = ""
        try:
            async for one in self._client.subscriptions.list_by_topic(*self._where, _arm_name(topic), **port.ONCE):
                found = None if one.properties is None else one.properties.dead_lettering_on_message_expiration
                if found:
                    return f"{topic}/Subscriptions/{one.name}"
                kept = None if found is None else kept
        except ResourceNotFoundError:
            return None
        return kept

    async def namespace(self) -> NamespaceInfo:
        """Return name, tier, region and status."""
        described = await self._client.namespaces.get(*self._where, **port.ONCE)
        properties = described.properties
        return NamespaceInfo(
            name=described.name or "",
            tier=ServiceTier.called(
                str(getattr(described.sku.name, "value", described.sku.name)) if described.sku is not None else None
            ),
            region=described.location or "",
            status=(properties.status if properties is not None else None) or "",
        )

    async def close(self) -> None:
        await self._client.close()

    async def _get(self, path: str) -> SBQueue:
        """Return a queue. Raises ResourceNotFoundError only if the queue itself is missing."""
        try:
            return await self._client.queues.get(*self._where, _arm_name(path), **port.ONCE)
        except ResourceNotFoundError as error:
            code = getattr(error.error, "code", None)
            if code not in _PARENT_IS_MISSING:
                raise
            group, namespace = self._where
            text = f"no namespace {namespace} was found in the resource group {group} ({code}); check both names"
            raise HttpResponseError(text, response=error.response) from error

    async def _put(self, path: str, properties: dict[str, Any]) -> None:
        """Create or overwrite a queue. A conflict is another operation under way: ARM knows no "exists already"."""
        body: Any = {"properties": properties}
        try:
            await self._client.queues.create_or_update(*self._where, _arm_name(path), body, **port.ONCE)
        except ResourceExistsError as error:
            text = f"another operation on {path} is under way: {error.message}"
            raise HttpResponseError(text, response=error.response) from error


_PARENT_IS_MISSING: Final = frozenset(
    {"ResourceNotFound", "ParentResourceNotFound", "ResourceGroupNotFound", "SubscriptionNotFound"}
)
"""Codes of a 404 that is about the namespace, the group or the subscription, not about the queue."""
_UNREADABLE: Final = (ValueError, TypeError, AttributeError, DeserializationError)
"""Errors of the SDK's models, which read a value when it is asked for."""
_READ_ONLY: Final = frozenset({"countDetails", "createdAt", "updatedAt", "accessedAt", "sizeInBytes", "messageCount"})


def _arm_name(path: str) -> str:
    return path.replace("/", "~")


def _lowered(name: str) -> str:
    """Return a setting's name as ARM writes it."""
    return name[0].lower() + name[1:]


def _path(queue: SBQueue | SBTopic) -> str:
    return (queue.name or "").replace("~", "/")


def _is_under(prefix: str, entity: SBQueue | SBTopic) -> bool:
    return _path(entity).casefold().startswith(prefix.casefold())


def _properties(queue: SBQueue) -> SBQueueProperties:
    from azure.mgmt.servicebus.models import SBQueueProperties  # slow to import; the caller's client has done it

    return queue.properties or SBQueueProperties()


def _depth(described: SBQueueProperties) -> port.Depth:
    counts = described.count_details
    dead = (counts.dead_letter_message_count if counts is not None else None) or 0
    accessed = described.accessed_at
    return port.Depth(
        messages=max(0, (described.message_count or 0) - dead),
        dead_lettered=dead,
        size_bytes=described.size_in_bytes or 0,
        scheduled=(counts.scheduled_message_count if counts is not None else None) or 0,
        last_active=accessed.timestamp() if accessed is not None and accessed.year > 1 else None,
        created_at=described.created_at.timestamp() if described.created_at is not None else None,
    )


def _topic_facts(topic: SBTopic) -> port.TopicFacts:
    metadata = getattr(topic.properties, "user_metadata", None)
    return port.TopicFacts(path=_path(topic), metadata=str(metadata or ""))


def _facts(queue: SBQueue) -> port.QueueFacts:
    """Return a queue's settings; what cannot be read is unknown."""

    def read(name: str) -> Any:
        try:
            return getattr(_properties(queue), name, None)
        except _UNREADABLE:
            return None

    status = read("status")
    return port.QueueFacts(
        path=_path(queue),
        max_size_mb=read("max_size_in_megabytes"),
        max_deliveries=read("max_delivery_count"),
        lock=read("lock_duration"),
        dead_letters_expired=read("dead_lettering_on_message_expiration"),
        batched=read("enable_batched_operations"),
        sessions=read("requires_session"),
        status=str(getattr(status, "value", status) or ""),
        ttl=read("default_message_time_to_live"),
        idle=read("auto_delete_on_idle"),
        duplicates=read("requires_duplicate_detection"),
        partitioned=read("enable_partitioning"),
        forwards_to=read("forward_to") or "",
        forwards_dead_letters_to=read("forward_dead_lettered_messages_to") or "",
        metadata=str(read("user_metadata") or ""),
    )
