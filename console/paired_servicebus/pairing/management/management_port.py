"""The port to a namespace's management, and its two implementations: Atom and Azure Resource Manager.

Both raise azure-core's errors and try once; the pairing decides on retries (SPEC.md section 4.4). backlog_queues.py
selects the queues and interprets refusals.

Atom is the SDK's administration client. Queues are read and written as XML, not by the SDK's models. The service reads
a description's elements in one order. An element behind its place has no effect, and returns at the end of every later
answer. So an element may occur twice: the SDK's models refuse the whole list for it, and write some elements behind
their places. Here an unreadable element is unknown, and the other entities are read.

ARM is for roles rather than keys with Manage. Names have slashes here and `~` in ARM's addresses, which is ARM's own
notation. ARM overwrites an existing queue, so a queue is looked up before it is created.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from xml.etree.ElementTree import Element, SubElement

import isodate
from azure.core.exceptions import (
    ClientAuthenticationError,
    DecodeError,
    DeserializationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.backlog.queue_settings import (
    AccessRule,
    Depth,
    QueueFacts,
    QueueStatus,
    QueueWanted,
    TopicFacts,
)
from paired_servicebus.core.model.namespace_info import NamespaceInfo, ServiceTier
from paired_servicebus.pairing import sdk_internals

TIMESPAN_MAX: Final = "P10675199DT2H48M5.4775807S"
"""TimeSpan.MaxValue; text, since Python's timedelta ends at microseconds."""

ONCE: Final[dict[str, Any]] = {"retry_total": 0}
"""Options of each request: azure-core would retry ten times, and the pairing counts the tries."""

T = TypeVar("T")

PROXY_REFUSED: Final = 407
"""A proxy's answer to a missing or wrong password."""


_FACTS: Final[tuple[tuple[str, str, type], ...]] = (
    ("max_size_mb", "MaxSizeInMegabytes", int),
    ("max_deliveries", "MaxDeliveryCount", int),
    ("lock", "LockDuration", timedelta),
    ("dead_letters_expired", "DeadLetteringOnMessageExpiration", bool),
    ("batched", "EnableBatchedOperations", bool),
    ("sessions", "RequiresSession", bool),
    ("status", "Status", str),
    ("ttl", "DefaultMessageTimeToLive", timedelta),
    ("idle", "AutoDeleteOnIdle", timedelta),
    ("duplicates", "RequiresDuplicateDetection", bool),
    ("partitioned", "EnablePartitioning", bool),
    ("forwards_to", "ForwardTo", str),
    ("forwards_dead_letters_to", "ForwardDeadLetteredMessagesTo", str),
    ("metadata", "UserMetadata", str),
)
"""The fields of QueueFacts, the service's names for them, and their types; ARM writes the names in its own way."""


class ListTooLongError(Exception):
    """The list of a namespace's queues costs more than reading a few queues singly."""


class Management(Protocol):
    """A namespace's management. Each call raises azure-core's errors, and ends within the caller's deadline."""

    async def queues(self, prefix: str) -> list[QueueFacts]:
        """List the queues whose path begins with `prefix`, case aside."""

    async def create_queue(self, path: str, wanted: QueueWanted) -> None:
        """Create a queue with exactly these settings.

        Raises:
            ResourceExistsError: it exists already, and is unchanged.
        """

    async def depth(self, path: str) -> Depth:
        """Read a queue's counts."""

    async def depths(self, prefix: str, *, pages: int) -> dict[str, Depth]:
        """Read the counts of the queues whose path begins with `prefix`, by path in lower case, from one list.

        A queue whose counts the list lacks is missing from the result.

        Raises:
            ListTooLongError: the list has more than `pages` pages.
        """

    async def set_status(self, path: str, status: QueueStatus) -> None:
        """Set a queue's status; every other setting stays."""

    async def delete_queue(self, path: str) -> None:
        """Delete a queue and its messages. A missing queue raises ResourceNotFoundError."""

    async def keeps_expired(self, path: str) -> str | None:
        """Return the queue or subscription at `path` that dead-letters expired messages.

        Empty: none does. None: unknown, since no such entity is described.
        """

    async def namespace(self) -> NamespaceInfo:
        """Return the namespace's description."""

    async def close(self) -> None:
        """Close the client behind it."""


class RuleManagement(Management, Protocol):
    """Management of access rules too. Each call raises azure-core's errors, and ends within the caller's deadline."""

    async def rules(self, path: str) -> tuple[AccessRule, ...]:
        """Read the rules of a queue, with their keys."""

    async def put_rule(self, path: str, rule: AccessRule) -> None:
        """Create a rule of a queue, or give the one of this name its rights; other rules, and its keys, stay."""

    async def namespace_rules(self) -> tuple[AccessRule, ...] | None:
        """Read the rules of the namespace, without keys; None: this management does not list them."""


class TopicManagement(RuleManagement, Protocol):
    """Management of topics too. Each call raises azure-core's errors, and ends within the caller's deadline."""

    async def topics(self, prefix: str) -> list[TopicFacts]:
        """List the topics whose path begins with `prefix`, case aside."""

    async def create_topic(self, path: str, *, metadata: str) -> None:
        """Create a topic with this UserMetadata. Raises ResourceExistsError."""

    async def create_subscription(self, topic: str, name: str) -> None:
        """Create a subscription that gets all messages of its topic. Raises ResourceExistsError."""

    async def delete_topic(self, path: str) -> None:
        """Delete a topic with its subscriptions. A missing topic raises ResourceNotFoundError."""


SecondaryAdmin = ServiceBusAdministrationClient | Management
"""The management clients that callers may pass."""


async def limit_pages(pages: AsyncIterator[T], most: int | None) -> AsyncIterator[T]:
    """Yield the pages of a list, each of which is a request. Raises ListTooLongError after `most` pages; None: all."""
    read = 0
    async for page in pages:
        read += 1
        if most is not None and read > most:
            raise ListTooLongError
        yield page


def settings_of(wanted: QueueWanted) -> dict[str, Any]:
    """Return the settings to be written, by the service's names; the others are the namespace's choice."""
    span = TIMESPAN_MAX if wanted.endless else None
    settings = {setting: getattr(wanted, name, None) for name, setting, _ in _FACTS} | {
        "LockDuration": format_span(wanted.lock),
        "RequiresDuplicateDetection": wanted.duplicate_window is not None,
        "DefaultMessageTimeToLive": span,
        "DuplicateDetectionHistoryTimeWindow": format_span(wanted.duplicate_window),
        "AutoDeleteOnIdle": span,
    }
    return {name: value for name, value in settings.items() if value}


def format_span(span: timedelta | None) -> str | None:
    """Format a duration as the service reads it."""
    return None if span is None else str(isodate.duration_isoformat(span))


def is_refusal(error: Exception) -> bool:
    """Return whether a management request failed for lack of rights.

    The credential is wrong or missing, or its role too small.

    403 is also how Atom reports a full namespace (SubCode 40300) and operations it does not allow (40301).
    """
    if isinstance(error, ClientAuthenticationError):  # azure-identity raises it too, without a response
        return True
    return _status(error) == 401 or (_status(error) == 403 and "SubCode=403" not in str(error))


def is_transient(error: Exception) -> bool:
    """Return whether the same request may succeed later: no answer, a failure of the server, or throttling."""
    if getattr(getattr(error, "inner_exception", None), "status", None) == PROXY_REFUSED:
        return False
    status = _status(error)
    return status is None or status >= 500 or status in (408, 429) or (status == 409 and not is_there_already(error))


def is_there_already(error: Exception) -> bool:
    """Return whether creation failed because the queue exists; SubCode 40901 is another operation under way."""
    return isinstance(error, ResourceExistsError) and "SubCode=40901" not in str(error)


def _status(error: Exception) -> int | None:
    return error.status_code if isinstance(error, HttpResponseError) else None


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
    readers: dict[type, Callable[[str], Any]] = {
        int: queue.whole,
        timedelta: queue.span,
        bool: queue.flag,
        str: lambda name: queue.text(name) or "",
    }
    return QueueFacts(path=queue.name, **{name: readers[kind](setting) for name, setting, kind in _FACTS})


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


def write_rules(rules: Iterable[AccessRule]) -> Element:
    """Return the AuthorizationRules of a queue; each rule's second key is its first one."""
    found = Element(f"{CONNECT}AuthorizationRules")
    for rule in rules:
        one = SubElement(found, f"{CONNECT}AuthorizationRule", {f"{INSTANCE}type": "SharedAccessAuthorizationRule"})
        for part, text in (("ClaimType", "SharedAccessKey"), ("ClaimValue", "None")):
            SubElement(one, f"{CONNECT}{part}").text = text
        _write_rights(SubElement(one, f"{CONNECT}Rights"), rule.rights)
        for part, text in (("KeyName", rule.name), ("PrimaryKey", rule.key), ("SecondaryKey", rule.key)):
            SubElement(one, f"{CONNECT}{part}").text = text
    return found


def _write_rights(element: Element, rights: Iterable[str]) -> None:
    for right in sorted(rights):
        SubElement(element, f"{CONNECT}AccessRights").text = right


def read_rules(rules: Element | None) -> tuple[AccessRule, ...]:
    """Return the rules of AuthorizationRules; None: the description has none."""
    return tuple(
        AccessRule(
            name=_rule_name(one),
            rights=frozenset((right.text or "").strip() for right in one.iter(f"{CONNECT}AccessRights")),
            key=(one.findtext(f"{CONNECT}PrimaryKey") or "").strip(),
        )
        for one in (() if rules is None else rules)
    )


def _rule_name(rule: Element) -> str:
    return (rule.findtext(f"{CONNECT}KeyName") or "").strip()


def change_rules(rules: Element | None, wanted: AccessRule) -> Element:
    """Return AuthorizationRules with a rule, whose present keys and other parts stay as they are."""
    found = Element(f"{CONNECT}AuthorizationRules") if rules is None else rules
    for one in found:
        rights = one.find(f"{CONNECT}Rights")
        if _rule_name(one) == wanted.name and rights is not None:
            rights.clear()
            _write_rights(rights, wanted.rights)
            return found
    found.extend(write_rules([wanted]))
    return found


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
        self.client = client
        sdk_internals.renew_signatures_early(client)

    async def queues(self, prefix: str) -> list[QueueFacts]:
        """List all queues, since Atom knows no prefix."""
        return [queue_facts(one) async for one in self._listed("queues", prefix)]

    async def create_queue(self, path: str, wanted: QueueWanted) -> None:
        settings: dict[str, str | Element] = {
            name: "true" if value is True else str(value) for name, value in settings_of(wanted).items()
        }
        if wanted.rules:
            settings["AuthorizationRules"] = write_rules(wanted.rules)
        body = queue_body(settings)
        await sdk_internals.write_entity(self.client, path, body, **ONCE)

    async def depth(self, path: str) -> Depth:
        found = queue_depth(await self._queue(path))
        if found is None:
            raise DecodeError(f"the description of {path} has no readable counts")
        return found

    async def depths(self, prefix: str, *, pages: int) -> dict[str, Depth]:
        """Implement `Management` by listing all queues."""
        depths = {one.name.casefold(): queue_depth(one) async for one in self._listed("queues", prefix, pages)}
        return {path: found for path, found in depths.items() if found is not None}

    async def set_status(self, path: str, status: QueueStatus) -> None:
        """Implement `Management`: read the queue, and write back the settings in force with another status."""
        await self._update(path, {**settings_in_force(await self._queue(path)), "Status": status.value})

    async def rules(self, path: str) -> tuple[AccessRule, ...]:
        return read_rules((await self._queue(path)).find("AuthorizationRules"))

    async def put_rule(self, path: str, rule: AccessRule) -> None:
        settings = settings_in_force(await self._queue(path))
        rules = change_rules(settings.get("AuthorizationRules"), rule)
        await self._update(path, {**settings, "AuthorizationRules": rules})

    async def namespace_rules(self) -> None:
        """Return None: Atom does not list the rules of a namespace."""

    async def _update(self, path: str, settings: dict[str, str | Element]) -> None:
        forwards = [
            (one.text or "") if isinstance(one, Element) else ""
            for one in map(settings.get, ("ForwardTo", "ForwardDeadLetteredMessagesTo"))
        ]
        await sdk_internals.write_entity(
            self.client, path, queue_body(settings), update=True, forwards=(forwards[0], forwards[1]), **ONCE
        )

    async def delete_queue(self, path: str) -> None:
        await self.client.delete_queue(path, **ONCE)

    async def topics(self, prefix: str) -> list[TopicFacts]:
        """List all topics, since Atom knows no prefix."""
        return [
            TopicFacts(path=one.name, metadata=one.text("UserMetadata") or "")
            async for one in self._listed("topics", prefix)
        ]

    async def create_topic(self, path: str, *, metadata: str) -> None:
        await self.client.create_topic(path, user_metadata=metadata or None)  # the SDK passes no options on

    async def create_subscription(self, topic: str, name: str) -> None:
        await self.client.create_subscription(topic, name, **ONCE)

    async def delete_topic(self, path: str) -> None:
        await self.client.delete_topic(path, **ONCE)

    async def keeps_expired(self, path: str) -> str | None:
        found = read_entry(await sdk_internals.read_entity(self.client, path, **ONCE))
        if found.element is None:
            return None
        if found.kind == "QueueDescription":
            return _keeping([(path, found.flag(_KEEPS))])
        listed = self._listed("subscriptions", topic=path)
        return _keeping([(f"{path}/Subscriptions/{one.name}", one.flag(_KEEPS)) async for one in listed])

    async def namespace(self) -> NamespaceInfo:
        """Return name and tier; Atom has neither region nor status."""
        described = await self.client.get_namespace_properties(**ONCE)
        return NamespaceInfo(name=described.name or "", tier=ServiceTier.called(described.messaging_sku))

    async def close(self) -> None:
        await self.client.close()

    async def _queue(self, path: str) -> Description:
        found = read_entry(await sdk_internals.read_entity(self.client, path, **ONCE))
        if found.kind != "QueueDescription":
            raise ResourceNotFoundError(f"there is no queue {path}")
        return found

    async def _listed(
        self, kind: str, prefix: str = "", pages: int | None = None, *, topic: str = ""
    ) -> AsyncIterator[Description]:
        """Yield the entities of a kind under a prefix, case aside. Raises ListTooLongError after `pages` pages."""
        feeds = sdk_internals.list_entities(self.client, kind, PAGE, topic=topic, **ONCE)
        async for feed in limit_pages(feeds, pages):
            for one in read_feed(feed):
                if one.name.casefold().startswith(prefix.casefold()):
                    yield one


_KEEPS: Final = "DeadLetteringOnMessageExpiration"


def _keeping(found: Iterable[tuple[str, bool | None]]) -> str | None:
    """Return the first path whose entity dead-letters expired messages; empty: none does; None: unknown for one."""
    flags = dict(found)
    return next((path for path, keeps in flags.items() if keeps), None if None in flags.values() else "")


def management_of(admin: SecondaryAdmin) -> Management:
    """Return a port of the caller's own, or the SDK's client behind AtomAdmin."""
    return AtomAdmin(admin) if isinstance(admin, ServiceBusAdministrationClient) else admin


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

    def beside(self, namespace: str) -> ArmAdmin:
        """Return the management of another namespace of the resource group."""
        return ArmAdmin(self._client, resource_group=self._where[0], namespace=namespace)

    async def queues(self, prefix: str) -> list[QueueFacts]:
        """List all queues, page by page, since ARM knows no prefix."""
        listed = self._client.queues.list_by_namespace(*self._where, **ONCE)
        return [_facts(one) async for one in listed if _is_under(prefix, one)]

    async def create_queue(self, path: str, wanted: QueueWanted) -> None:
        """Implement `Management`; a queue that its owner creates in the same instant may get our settings."""
        try:
            await self._get(path)
        except ResourceNotFoundError:
            pass
        else:
            raise ResourceExistsError(f"the queue {path} exists already")
        # ARM writes a setting's name with a small first letter
        await self._put(path, {name[0].lower() + name[1:]: value for name, value in settings_of(wanted).items()})
        for rule in wanted.rules:
            await self.put_rule(path, rule)

    async def rules(self, path: str) -> tuple[AccessRule, ...]:
        queues, where = self._client.queues, (*self._where, _arm_name(path))
        found = []
        async for one in queues.list_authorization_rules(*where, **ONCE):
            keys = await queues.list_keys(*where, one.name or "", **ONCE)
            found.append(AccessRule(name=one.name or "", rights=_rights(one), key=keys.primary_key or ""))
        return tuple(found)

    async def put_rule(self, path: str, rule: AccessRule) -> None:
        """Implement `RuleManagement`; a new rule's key is set by its regeneration, as ARM has no other way."""
        queues: Any = self._client.queues  # its types lack plain dictionaries, which it accepts
        where = (*self._where, _arm_name(path), rule.name)
        listed = queues.list_authorization_rules(*where[:-1], **ONCE)
        is_new = rule.name not in [one.name async for one in listed]
        rights = {"properties": {"rights": sorted(rule.rights)}}
        await queues.create_or_update_authorization_rule(*where, rights, **ONCE)
        if is_new and rule.key:
            await queues.regenerate_keys(*where, {"keyType": "PrimaryKey", "key": rule.key}, **ONCE)

    async def namespace_rules(self) -> tuple[AccessRule, ...]:
        listed = self._client.namespaces.list_authorization_rules(*self._where, **ONCE)
        return tuple([AccessRule(name=one.name or "", rights=_rights(one)) async for one in listed])

    async def depth(self, path: str) -> Depth:
        try:
            return _depth(_properties(await self._get(path)))
        except _UNREADABLE as error:
            raise DecodeError(f"the description of {path} cannot be read: {error}") from error

    async def depths(self, prefix: str, *, pages: int) -> dict[str, Depth]:
        """Implement `Management` by listing all queues."""
        found: dict[str, Depth] = {}
        listed = self._client.queues.list_by_namespace(*self._where, **ONCE).by_page()
        async for page in limit_pages(listed, pages):
            async for one in page:
                with suppress(*_UNREADABLE):  # read singly, where its failure is its own
                    if _is_under(prefix, one) and _properties(one).count_details is not None:
                        found[_path(one).casefold()] = _depth(_properties(one))
        return found

    async def set_status(self, path: str, status: QueueStatus) -> None:
        """Implement `Management`: read the queue, and write it back with another status."""
        queue: Any = (await self._get(path)).as_dict()
        written = {key: value for key, value in queue.get("properties", {}).items() if key not in _READ_ONLY}
        await self._put(path, written | {"status": status.value})

    async def delete_queue(self, path: str) -> None:
        """Implement `Management`; ARM itself reports no missing queue."""
        await self._get(path)
        await self._client.queues.delete(*self._where, _arm_name(path), **ONCE)

    async def topics(self, prefix: str) -> list[TopicFacts]:
        """List all topics, page by page, since ARM knows no prefix."""
        listed = self._client.topics.list_by_namespace(*self._where, **ONCE)
        return [
            TopicFacts(path=_path(one), metadata=str(getattr(one.properties, "user_metadata", None) or ""))
            async for one in listed
            if _is_under(prefix, one)
        ]

    async def create_topic(self, path: str, *, metadata: str) -> None:
        """Implement `TopicManagement`; ARM overwrites an existing topic."""
        body: Any = {"properties": {"userMetadata": metadata} if metadata else {}}
        await self._client.topics.create_or_update(*self._where, _arm_name(path), body, **ONCE)

    async def create_subscription(self, topic: str, name: str) -> None:
        """Implement `TopicManagement`; ARM overwrites an existing subscription."""
        body: Any = {"properties": {}}
        await self._client.subscriptions.create_or_update(*self._where, _arm_name(topic), name, body, **ONCE)

    async def delete_topic(self, path: str) -> None:
        """Implement `TopicManagement`; ARM itself reports no missing topic."""
        await self._client.topics.get(*self._where, _arm_name(path), **ONCE)
        await self._client.topics.delete(*self._where, _arm_name(path), **ONCE)

    async def keeps_expired(self, path: str) -> str | None:
        try:
            return _keeping([(path, _properties(await self._get(path)).dead_lettering_on_message_expiration)])
        except ResourceNotFoundError:
            pass  # a topic
        listed = self._client.subscriptions.list_by_topic(*self._where, _arm_name(path), **ONCE)
        try:
            found = [(f"{path}/Subscriptions/{one.name}", one.properties) async for one in listed]
        except ResourceNotFoundError:
            return None
        return _keeping((name, getattr(one, "dead_lettering_on_message_expiration", None)) for name, one in found)

    async def namespace(self) -> NamespaceInfo:
        """Return name, tier, region and status."""
        described = await self._client.namespaces.get(*self._where, **ONCE)
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
            return await self._client.queues.get(*self._where, _arm_name(path), **ONCE)
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
            await self._client.queues.create_or_update(*self._where, _arm_name(path), body, **ONCE)
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


def _path(queue: SBQueue | SBTopic) -> str:
    return (queue.name or "").replace("~", "/")


def _rights(rule: Any) -> frozenset[str]:
    return frozenset(str(getattr(one, "value", one)) for one in getattr(rule.properties, "rights", None) or ())


def _is_under(prefix: str, entity: SBQueue | SBTopic) -> bool:
    return _path(entity).casefold().startswith(prefix.casefold())


def _properties(queue: SBQueue) -> SBQueueProperties:
    from azure.mgmt.servicebus.models import SBQueueProperties  # slow to import; the caller's client has done it

    return queue.properties or SBQueueProperties()


def _depth(described: SBQueueProperties) -> Depth:
    counts = described.count_details
    dead = (counts.dead_letter_message_count if counts is not None else None) or 0
    accessed = described.accessed_at
    return Depth(
        messages=max(0, (described.message_count or 0) - dead),
        dead_lettered=dead,
        size_bytes=described.size_in_bytes or 0,
        scheduled=(counts.scheduled_message_count if counts is not None else None) or 0,
        last_active=accessed.timestamp() if accessed is not None and accessed.year > 1 else None,
        created_at=described.created_at.timestamp() if described.created_at is not None else None,
    )


def _facts(queue: SBQueue) -> QueueFacts:
    """Return a queue's settings; what cannot be read is unknown."""

    def read(setting: str, kind: type) -> Any:
        try:
            found = getattr(_properties(queue), re.sub(r"(?<!^)(?=[A-Z])", "_", setting).lower(), None)
        except _UNREADABLE:
            found = None
        return str(getattr(found, "value", found) or "") if kind is str else found

    return QueueFacts(path=_path(queue), **{name: read(setting, kind) for name, setting, kind in _FACTS})
