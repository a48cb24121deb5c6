"""Management over Atom: the SDK's administration client behind the pairing's port.

Queues are read and written as XML, not by the SDK's models. The service reads a description's elements in one order. An
element behind its place has no effect, and returns at the end of every later answer. So an element may occur twice: the
SDK's models refuse the whole list for it, and write some elements behind their places. Here an unreadable element is
unknown, and the other entities are read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from xml.etree.ElementTree import Element, SubElement

import isodate
from azure.core.exceptions import DecodeError, ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.model.namespace_info import NamespaceInfo, ServiceTier
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.management import management_port as port
from paired_servicebus.pairing.management.management_port import Depth, QueueFacts

# -- descriptions -----------------------------------------------------------------------------------------------------


ATOM: Final = "{http://www.w3.org/2005/Atom}"
CONNECT: Final = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
INSTANCE: Final = "{http://www.w3.org/2001/XMLSchema-instance}"

QUEUE_ORDER: Final = (
    "LockDuration",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DuplicateDetectionHistoryTimeWindow",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "SizeInBytes",
    "MessageCount",
    "IsAnonymousAccessible",
    "AuthorizationRules",
    "Status",
    "ForwardTo",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "UserMetadata",
    "SupportOrdering",
    "CountDetails",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "EntityAvailabilityStatus",
    "ForwardDeadLetteredMessagesTo",
    "EnableExpress",
    "MaxMessageSizeInKilobytes",
)
"""The order of a queue's elements in the service's recorded answers."""
NOT_SETTINGS: Final = frozenset(
    {
        "SizeInBytes",
        "MessageCount",
        "IsAnonymousAccessible",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "SupportOrdering",
        "CountDetails",
    }
)
"""Elements that no update sends: the service derives them."""
_PLACES: Final = {name: place for place, name in enumerate(QUEUE_ORDER)}


@dataclass(frozen=True, slots=True)
class Description:
    """The description of one entity. Each method returns None for a missing or unreadable element."""

    name: str
    element: Element | None
    """`<QueueDescription>`, `<TopicDescription>` or `<SubscriptionDescription>`; None: the entry has none."""

    @property
    def kind(self) -> str:
        """The description's element name; empty without one."""
        return "" if self.element is None else _local(self.element)

    def find(self, name: str) -> Element | None:
        """Return the first element of this name; a second one is data that the service keeps without effect."""
        children = () if self.element is None else self.element
        return next((child for child in children if _local(child) == name), None)

    def text(self, name: str) -> str | None:
        found = self.find(name)
        return None if found is None else (found.text or "").strip()

    def whole(self, name: str) -> int | None:
        return _whole(self.text(name))

    def flag(self, name: str) -> bool | None:
        return {"true": True, "1": True, "false": False, "0": False}.get((self.text(name) or "").casefold())

    def span(self, name: str) -> timedelta | None:
        try:
            read = isodate.parse_duration(self.text(name) or "")
            return read if isinstance(read, timedelta) else read.totimedelta(start=datetime(2000, 1, 1))
        except (ValueError, TypeError, OverflowError, ArithmeticError):
            return None

    def time(self, name: str) -> float | None:
        """Return a time in epoch seconds; None for the year 1 too, by which the service says "never"."""
        try:
            read = datetime.fromisoformat(self.text(name) or "")
        except ValueError:
            return None
        return None if read.year <= 1 else (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()

    def count(self, name: str) -> int | None:
        """Return one of the counts in CountDetails."""
        details = self.find("CountDetails")
        children = () if details is None else details
        return next((_whole(child.text) for child in children if _local(child) == name), None)


def read_feed(feed: Element) -> list[Description]:
    """Return the descriptions of a list's entries, in its order."""
    return [read_entry(entry) for entry in feed.iter(f"{ATOM}entry")]


def read_entry(entry: Element) -> Description:
    """Return an entry's description. An empty feed, the answer for a missing entity, has neither name nor element."""
    content = entry.find(f"{ATOM}content")
    described = next(iter(content), None) if content is not None else None
    return Description((entry.findtext(f"{ATOM}title") or "").strip(), described)


def queue_facts(queue: Description) -> QueueFacts:
    """Return a queue's settings; what its description lacks is unknown."""
    return QueueFacts(
        path=queue.name,
        max_size_mb=queue.whole("MaxSizeInMegabytes"),
        max_deliveries=queue.whole("MaxDeliveryCount"),
        lock=queue.span("LockDuration"),
        dead_letters_expired=queue.flag("DeadLetteringOnMessageExpiration"),
        batched=queue.flag("EnableBatchedOperations"),
        sessions=queue.flag("RequiresSession"),
        status=queue.text("Status") or "",
        ttl=queue.span("DefaultMessageTimeToLive"),
        idle=queue.span("AutoDeleteOnIdle"),
        duplicates=queue.flag("RequiresDuplicateDetection"),
        partitioned=queue.flag("EnablePartitioning"),
        forwards_to=queue.text("ForwardTo") or "",
        forwards_dead_letters_to=queue.text("ForwardDeadLetteredMessagesTo") or "",
        metadata=queue.text("UserMetadata") or "",
    )


def queue_depth(queue: Description) -> Depth | None:
    """Return a queue's counts; None if its description has none."""
    total, dead = queue.whole("MessageCount"), queue.count("DeadLetterMessageCount")
    if total is None or dead is None:
        return None
    return Depth(
        messages=max(0, total - dead),
        dead_lettered=dead,
        size_bytes=queue.whole("SizeInBytes") or 0,
        scheduled=queue.count("ScheduledMessageCount") or 0,
        last_active=queue.time("AccessedAt"),
        created_at=queue.time("CreatedAt"),
    )


def settings_in_force(queue: Description) -> dict[str, Element]:
    """Return the elements of a queue's settings that have effect, by name: those at their place in the order.

    A setting that is not known here keeps its place, so that an update does not reset it.
    """
    found: dict[str, Element] = {}
    place = -1
    for child in queue.element if queue.element is not None else ():
        name = _local(child)
        here = _PLACES.get(name, -1)
        if here > place:
            place = here
            found[name] = child
        elif name not in _PLACES and child.tag.startswith(CONNECT):
            found.setdefault(name, child)
    return {name: child for name, child in found.items() if name not in NOT_SETTINGS}


def queue_body(settings: Mapping[str, str | Element]) -> Element:
    """Return the body of a queue's PUT with these settings, in the service's order.

    Args:
        settings: by element name; a text, or the whole element. An unknown element keeps its place behind the one
            before it.

    Raises:
        ValueError: the order has no place for a text.
    """
    unknown = {name for name, value in settings.items() if isinstance(value, str)} - _PLACES.keys()
    if unknown:
        raise ValueError(f"no place is known for {', '.join(sorted(unknown))} in a queue's description")
    entry = Element(f"{ATOM}entry")
    described = SubElement(
        SubElement(entry, f"{ATOM}content", {"type": "application/xml"}), f"{CONNECT}QueueDescription"
    )
    places: dict[str, int] = {}
    place = -1
    for name in settings:
        place = places[name] = _PLACES.get(name, place)
    for name in sorted(settings, key=places.__getitem__):
        value = settings[name]
        if isinstance(value, Element):
            described.append(value)
        else:
            SubElement(described, f"{CONNECT}{name}").text = value
    return entry


def one_rule(name: str, key: str, right: str) -> Element:
    """Return the AuthorizationRules of one rule that gives one right alone."""
    rules = Element(f"{CONNECT}AuthorizationRules")
    rule = SubElement(rules, f"{CONNECT}AuthorizationRule", {f"{INSTANCE}type": "SharedAccessAuthorizationRule"})
    for part, text in (("ClaimType", "SharedAccessKey"), ("ClaimValue", "None")):
        SubElement(rule, f"{CONNECT}{part}").text = text
    SubElement(SubElement(rule, f"{CONNECT}Rights"), f"{CONNECT}AccessRights").text = right
    for part, text in (("KeyName", name), ("PrimaryKey", key), ("SecondaryKey", key)):
        SubElement(rule, f"{CONNECT}{part}").text = text
    return rules


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _whole(text: str | None) -> int | None:
    try:
        return int((text or "").strip())
    except ValueError:
        return None


# -- the port ---------------------------------------------------------------------------------------------------------


PAGE: Final = 100
"""Entities in one answer: the most that the service returns."""


class AtomAdmin:
    """The port over the SDK's client, which `close` closes."""

    def __init__(self, client: ServiceBusAdministrationClient) -> None:
        self._client = client
        sdk_internals.renew_signatures_early(client)

    async def queues(self, prefix: str) -> list[port.QueueFacts]:
        """List all queues, since Atom knows no prefix."""
        return [queue_facts(one) async for one in self._listed("queues", prefix)]

    async def create_queue(self, path: str, wanted: port.QueueWanted) -> None:
        settings: dict[str, str | Element] = {
            name: "true" if value is True else str(value) for name, value in port.settings_of(wanted).items()
        }
        if wanted.key is not None:
            settings["AuthorizationRules"] = one_rule(*wanted.key, wanted.right)
        body = queue_body(settings)
        await sdk_internals.write_entity(self._client, path, body, **port.ONCE)

    async def depth(self, path: str) -> port.Depth:
        found = queue_depth(await self._queue(path))
        if found is None:
            raise DecodeError(f"the description of {path} has no readable counts")
        return found

    async def depths(self, prefix: str, *, pages: int) -> dict[str, port.Depth]:
        """Implement `Management` by listing all queues."""
        depths = {one.name.casefold(): queue_depth(one) async for one in self._listed("queues", prefix, pages)}
        return {path: found for path, found in depths.items() if found is not None}

    async def set_status(self, path: str, status: port.QueueStatus) -> None:
        """Implement `Management`: read the queue, and write back the settings in force with another status."""
        queue = await self._queue(path)
        settings: dict[str, str | Element] = {**settings_in_force(queue), "Status": status.value}
        forwards = [
            (one.text or "") if isinstance(one, Element) else ""
            for one in map(settings.get, ("ForwardTo", "ForwardDeadLetteredMessagesTo"))
        ]
        await sdk_internals.write_entity(
            self._client, path, queue_body(settings), update=True, forwards=(forwards[0], forwards[1]), **port.ONCE
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
        found = read_entry(await sdk_internals.read_entity(self._client, path, **port.ONCE))
        if found.element is None:
            return None
        if found.kind == "QueueDescription":
            return _keeping(path, found)
        keeping = [
            _keeping(f"{path}/Subscriptions/{one.name}", one) async for one in self._listed("subscriptions", topic=path)
        ]
        return next((one for one in keeping if one), None if None in keeping else "")

    async def namespace(self) -> NamespaceInfo:
        """Return name and tier; Atom has neither region nor status."""
        described = await self._client.get_namespace_properties(**port.ONCE)
        return NamespaceInfo(name=described.name or "", tier=ServiceTier.called(described.messaging_sku))

    async def close(self) -> None:
        await self._client.close()

    async def _queue(self, path: str) -> Description:
        found = read_entry(await sdk_internals.read_entity(self._client, path, **port.ONCE))
        if found.kind != "QueueDescription":
            raise ResourceNotFoundError(f"there is no queue {path}")
        return found

    async def _listed(
        self, kind: str, prefix: str = "", pages: int | None = None, *, topic: str = ""
    ) -> AsyncIterator[Description]:
        """Yield the entities of a kind under a prefix, case aside. Raises ListTooLongError after `pages` pages."""
        feeds = sdk_internals.list_entities(self._client, kind, PAGE, topic=topic, **port.ONCE)
        async for feed in port.limit_pages(feeds, pages):
            for one in read_feed(feed):
                if one.name.casefold().startswith(prefix.casefold()):
                    yield one


def _keeping(path: str, found: Description) -> str | None:
    """Return the path if the entity dead-letters expired messages; empty if not; None: unknown."""
    kept = found.flag("DeadLetteringOnMessageExpiration")
    return None if kept is None else path if kept else ""


def management_of(admin: port.SecondaryAdmin) -> port.Management:
    """Return a port of the caller's own, or the SDK's client behind AtomAdmin."""
    return AtomAdmin(admin) if isinstance(admin, ServiceBusAdministrationClient) else admin
