"""Management over Atom: the SDK's own administration client behind the pairing's port."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import AccessRights, AuthorizationRule, QueueProperties, QueueRuntimeProperties

from paired_servicebus.core.model.namespace_info import NamespaceInfo, ServiceTier
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.management import management_port as port

TIMESPAN_MAX: Final = timedelta(days=10675199, hours=2, minutes=48, seconds=5, microseconds=477580)
"""TimeSpan.MaxValue less 0.7 µs: the nearest value below it in Python's microseconds. The SDK reduces larger values by
42 µs, to fit the service."""


class AtomAdmin:
    """The port over the SDK's client, which `close` closes."""

    def __init__(self, client: ServiceBusAdministrationClient) -> None:
        self._client = client
        sdk_internals.renew_signatures_early(client)

    async def queues(self, prefix: str) -> list[port.QueueFacts]:
        """List all queues, since Atom knows no prefix."""
        wanted = prefix.casefold()
        return [
            _facts(one) async for one in self._client.list_queues(**port.ONCE) if one.name.casefold().startswith(wanted)
        ]

    async def create_backlog_queue(self, path: str) -> None:
        await self._client.create_queue(
            path,
            max_size_in_megabytes=port.MAX_SIZE_MB,
            max_delivery_count=port.MAX_DELIVERIES,
            default_message_time_to_live=TIMESPAN_MAX,
            auto_delete_on_idle=TIMESPAN_MAX,
            lock_duration=port.LOCK,
            dead_lettering_on_message_expiration=True,
            enable_batched_operations=True,
            **port.ONCE,
        )

    async def create_queue(self, path: str, wanted: port.QueueWanted) -> None:
        rules = [_send_rule(*wanted.send_key)] if wanted.send_key is not None else None
        await self._client.create_queue(
            path,
            lock_duration=wanted.lock,
            requires_session=wanted.sessions or None,
            requires_duplicate_detection=wanted.duplicate_window is not None or None,
            duplicate_detection_history_time_window=wanted.duplicate_window,
            dead_lettering_on_message_expiration=wanted.dead_letters_expired or None,
            authorization_rules=rules,
            max_size_in_megabytes=wanted.max_size_mb,
            max_delivery_count=wanted.max_deliveries,
            user_metadata=wanted.metadata or None,
            **port.ONCE,
        )

    async def depth(self, path: str) -> port.Depth:
        return _depth(await self._client.get_queue_runtime_properties(path, **port.ONCE))

    async def depths(self, prefix: str, *, pages: int) -> dict[str, port.Depth]:
        """Implement `Management` by listing all queues."""
        found: dict[str, port.Depth] = {}
        async for page in port.limit_pages(self._client.list_queues_runtime_properties(**port.ONCE), pages):
            async for one in page:
                path = one.name.casefold()
                if path.startswith(prefix.casefold()) and sdk_internals.has_counts(one):
                    found[path] = _depth(one)
        return found

    async def set_status(self, path: str, status: port.QueueStatus) -> None:
        """Implement `Management`: read the queue, and write it back with another status."""
        queue = await self._client.get_queue(path, **port.ONCE)
        queue.status = status.value
        for span in ("default_message_time_to_live", "auto_delete_on_idle"):
            value = getattr(queue, span)
            if isinstance(value, timedelta) and value > TIMESPAN_MAX:  # read as rounded up
                setattr(queue, span, TIMESPAN_MAX)
        await self._client.update_queue(queue, **port.ONCE)

    async def delete_queue(self, path: str) -> None:
        await self._client.delete_queue(path, **port.ONCE)

    async def topics(self, prefix: str) -> list[port.TopicFacts]:
        """List all topics, since Atom knows no prefix."""
        wanted = prefix.casefold()
        return [
            port.TopicFacts(path=one.name, metadata=one.user_metadata or "")
            async for one in self._client.list_topics(**port.ONCE)
            if one.name.casefold().startswith(wanted)
        ]

    async def create_topic(self, path: str, *, metadata: str) -> None:
        await self._client.create_topic(path, user_metadata=metadata or None)  # the SDK passes no options on

    async def create_subscription(self, topic: str, name: str) -> None:
        await self._client.create_subscription(topic, name, **port.ONCE)

    async def delete_topic(self, path: str) -> None:
        await self._client.delete_topic(path, **port.ONCE)

    async def keeps_expired(self, path: str) -> str:
        try:
            queue = await self._client.get_queue(path, **port.ONCE)
        except (ResourceNotFoundError, AttributeError):  # the SDK cannot parse a topic's description
            async for one in self._client.list_subscriptions(path, **port.ONCE):
                if one.dead_lettering_on_message_expiration:
                    return f"{path}/Subscriptions/{one.name}"
            return ""
        return path if queue.dead_lettering_on_message_expiration else ""

    async def namespace(self) -> NamespaceInfo:
        """Return name and tier; Atom has neither region nor status."""
        described = await self._client.get_namespace_properties(**port.ONCE)
        return NamespaceInfo(name=described.name or "", tier=ServiceTier.called(described.messaging_sku))

    async def close(self) -> None:
        await self._client.close()


def _depth(described: QueueRuntimeProperties) -> port.Depth:
    dead = described.dead_letter_message_count or 0
    accessed = described.accessed_at_utc
    return port.Depth(
        messages=max(0, (described.total_message_count or 0) - dead),
        dead_lettered=dead,
        size_bytes=described.size_in_bytes or 0,
        scheduled=described.scheduled_message_count or 0,
        last_active=accessed.timestamp() if accessed is not None and accessed.year > 1 else None,
        created_at=described.created_at_utc.timestamp() if described.created_at_utc is not None else None,
    )


def _send_rule(name: str, key: str) -> AuthorizationRule:
    return AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND],
        key_name=name,
        primary_key=key,
        secondary_key=key,
    )


def _span(value: object) -> timedelta | None:
    return value if isinstance(value, timedelta) else None


def _facts(queue: QueueProperties) -> port.QueueFacts:
    return port.QueueFacts(
        path=queue.name,
        max_size_mb=queue.max_size_in_megabytes,
        max_deliveries=queue.max_delivery_count,
        lock=_span(queue.lock_duration),
        dead_letters_expired=bool(queue.dead_lettering_on_message_expiration),
        batched=bool(queue.enable_batched_operations),
        sessions=bool(queue.requires_session),
        status=str(getattr(queue.status, "value", queue.status) or ""),
        ttl=_span(queue.default_message_time_to_live),
        idle=_span(queue.auto_delete_on_idle),
        duplicates=bool(queue.requires_duplicate_detection),
        partitioned=bool(queue.enable_partitioning),
        metadata=queue.user_metadata or "",
    )


def management_of(admin: port.SecondaryAdmin) -> port.Management:
    """Return a port of the caller's own, or the SDK's client behind AtomAdmin."""
    return AtomAdmin(admin) if isinstance(admin, ServiceBusAdministrationClient) else admin
