"""The resource of a management URL: namespace, list, entity, subscription or rule.

Slashes in an entity's path may be encoded (`contoso%2Fx-servicebus-transfer%2F0`) or plain. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote, unquote


class Listed(StrEnum):
    """The lists of a namespace."""

    QUEUES = "queues"
    TOPICS = "topics"


@dataclass(frozen=True, slots=True)
class NamespaceInfoResource:
    """`/$namespaceinfo`"""


@dataclass(frozen=True, slots=True)
class EntityList:
    """`/$Resources/queues` or `/$Resources/topics`"""

    listed: Listed


@dataclass(frozen=True, slots=True)
class EntityAt:
    """`/path`, a queue or a topic"""

    path: str


@dataclass(frozen=True, slots=True)
class SubscriptionList:
    """`/topic/subscriptions`"""

    topic: str


@dataclass(frozen=True, slots=True)
class SubscriptionAt:
    """`/topic/subscriptions/name`"""

    topic: str
    name: str


@dataclass(frozen=True, slots=True)
class RuleList:
    """`/topic/subscriptions/name/rules`"""

    topic: str
    subscription: str


@dataclass(frozen=True, slots=True)
class RuleAt:
    """`/topic/subscriptions/name/rules/rule`"""

    topic: str
    subscription: str
    name: str


Resource = NamespaceInfoResource | EntityList | EntityAt | SubscriptionList | SubscriptionAt | RuleList | RuleAt


def resource_at(raw_path: str) -> Resource | None:
    """Return the resource at `raw_path`, an encoded URL path; None if there is none."""
    parts = [unquote(part) for part in raw_path.split("/") if part]
    lower = [part.lower() for part in parts]
    if lower == ["$namespaceinfo"]:
        return NamespaceInfoResource()
    if len(parts) == 2 and lower[0] == "$resources":
        return EntityList(Listed(lower[1])) if lower[1] in set(Listed) else None
    if not parts or parts[0].startswith("$"):
        return None
    if len(parts) > 4 and lower[-4] == "subscriptions" and lower[-2] == "rules":
        return RuleAt("/".join(parts[:-4]), parts[-3], parts[-1])
    if len(parts) > 3 and lower[-3] == "subscriptions" and lower[-1] == "rules":
        return RuleList("/".join(parts[:-3]), parts[-2])
    if len(parts) > 2 and lower[-2] == "subscriptions":
        return SubscriptionAt("/".join(parts[:-2]), parts[-1])
    if len(parts) > 1 and lower[-1] == "subscriptions":
        return SubscriptionList("/".join(parts[:-1]))
    return EntityAt("/".join(parts))


def url_path(resource: Resource) -> str:
    """Return the encoded path of `resource`, without the leading slash."""
    match resource:
        case NamespaceInfoResource():
            parts: tuple[str, ...] = ("$namespaceinfo",)
        case EntityList(listed):
            parts = ("$Resources", listed)
        case EntityAt(path):
            parts = (path,)
        case SubscriptionList(topic):
            parts = (topic, "subscriptions")
        case SubscriptionAt(topic, name):
            parts = (topic, "subscriptions", name)
        case RuleList(topic, subscription):
            parts = (topic, "subscriptions", subscription, "rules")
        case RuleAt(topic, subscription, name):
            parts = (topic, "subscriptions", subscription, "rules", name)
    return "/".join(quote(part, safe="/$") for part in parts)
