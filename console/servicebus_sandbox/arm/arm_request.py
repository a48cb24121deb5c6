"""The common part of ARM's handlers: namespaces, parsed requests, answers, pages.

Slashes in names are `%2F` or, by ARM's convention, `~`; ids are written with `~`. Words compare without regard to case.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, unquote, urlencode

from servicebus_sandbox.amqp_server.namespace_server import NamespaceServer
from servicebus_sandbox.atom import entity_xml as xml
from servicebus_sandbox.atom.management_api import AtomRequest
from servicebus_sandbox.broker.entity_settings import FIXED, AuthorizationRule, EntitySettings, Right
from servicebus_sandbox.broker.subscription_rules.rules import (
    CORRELATION_FIELDS,
    CorrelationFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from servicebus_sandbox.broker.topology.namespace import Entity
from servicebus_sandbox.serving.http_server import FaultGate, HttpRefusal
from servicebus_sandbox.specs import NamespaceSpec

# The JSON of entities, rules and authorization rules in Azure Resource Manager, both ways.
#
# Entities follow the tables of `atom.entity_xml`: a property has the XML element's name with a small first letter.
# Addresses and answers are in the handlers.

Json = dict[str, Any]
Clock = Callable[[], float]

_NUMBERS = ("SizeInBytes", "MessageCount", "SubscriptionCount")
_FLAGS = ("IsClientAffine",)
_TIMES = ("CreatedAt", "UpdatedAt", "AccessedAt")
_ORDER = (
    *("IsClientAffine", "MaxMessageSizeInKilobytes", "LockDuration", "MaxSizeInMegabytes"),
    *("RequiresDuplicateDetection", "RequiresSession", "DefaultMessageTimeToLive", "DeadLetteringOnMessageExpiration"),
    *("DeadLetteringOnFilterEvaluationExceptions", "EnableBatchedOperations", "DuplicateDetectionHistoryTimeWindow"),
    *("MaxDeliveryCount", "SizeInBytes", "MessageCount", "Status", "SupportOrdering", "SubscriptionCount"),
    *("AutoDeleteOnIdle", "EnablePartitioning", "EnableExpress", "UserMetadata", "CountDetails", *_TIMES, "ForwardTo"),
    "ForwardDeadLetteredMessagesTo",
)
"""The order of an entity's properties; an element that is not here is not among them."""
_CORRELATED = {field[0] + field.title().replace("_", "")[1:]: field for field in CORRELATION_FIELDS}
_LEVEL = 20


def read_settings(kind: xml.Kind, properties: Json, *, present: Entity | None) -> EntitySettings:
    """Return the settings in `properties`; missing ones are the default, or the present value if it is fixed.

    Authorization rules have their own addresses and stay. Raises DescriptionError and InvalidSettings.
    """
    values: Json = {}
    if present is not None:
        kept = (*FIXED, "authorization_rules")
        values = {name: getattr(present.settings, name) for name in kept if hasattr(present.settings, name)}
    for part in kind.parts:
        if isinstance(part, xml.Setting):
            given = properties.get(_entity_name(part.element))
            if given is not None:
                values[part.field] = _read_setting(part, given)
    return kind.settle(values, present.settings if present else None)


class Answer(Enum):
    """The request that a description answers; changes show no time of use, an update no time at all."""

    READ = ()
    CREATION = ("AccessedAt",)
    UPDATE = _TIMES


def write_entity(kind: xml.Kind, entity: Entity, answer: Answer = Answer.READ) -> Json:
    """Return the properties of an entity."""
    found: Json = {}
    parts = {part.element: part for part in kind.parts}
    for part in [parts[element] for element in _ORDER if element in parts]:
        name = _entity_name(part.element)
        match part:
            case xml.Setting():
                value = xml.shown(part, entity)
                written = None if value is None and part.codec is xml.FORWARD else _write_setting(part, value)
                if written is not None:
                    found[name] = written
            case xml.ReadOnlyElement(element) if element in answer.value:
                found[name] = xml.ZONELESS_NEVER
            case xml.ReadOnlyElement(element, read):
                text = read(entity) or ""
                found[name] = int(text) if element in _NUMBERS else text == "true" if element in _FLAGS else text
            case _ if part is xml.COUNT_DETAILS:
                found[name] = {_entity_name(state): number for state, number in xml.count_details(entity).items()}
    return found


def _entity_name(element: str) -> str:
    return element[0].lower() + element[1:]


def _read_setting(part: xml.Setting, given: object) -> object:
    name = _entity_name(part.element)
    wanted: type = bool if part.codec is xml.BOOL else int if part.codec is xml.INT else str
    if not isinstance(given, wanted) or (wanted is int and isinstance(given, bool)):
        raise xml.DescriptionError(f"{name}: {given!r} is no {wanted.__name__}")
    if isinstance(given, str):
        check_text(name, given)
        try:
            return part.codec.read(given) if given else None
        except ValueError as error:
            raise xml.DescriptionError(f"{name}: {error}") from error
    return given


def _write_setting(part: xml.Setting, value: Any) -> object:
    if part.codec is xml.FORWARD or isinstance(value, bool | int):
        return value
    if value is None and part.field in ("user_metadata", "max_message_size_kb"):
        return None
    return part.codec.write(value, "")


def check_text(name: str, text: str) -> None:
    """Raise DescriptionError for text that XML cannot carry to the other management interface."""
    if not all(character.isprintable() or character in "\t\n" for character in text):
        raise xml.DescriptionError(f"{name}: {text!r} has characters that cannot be written")


# ---------------------------------------------------------------------- rules


def read_rule(name: str, properties: Json) -> Rule:
    """Return the rule in `properties`. Raises DescriptionError and FilterSyntaxError."""
    return Rule(name=name, filter=_read_filter(properties), action=_read_action(properties))


def write_rule(rule: Rule) -> Json:
    """Return the properties of a rule. True and false filters are written as SQL."""
    action = {} if rule.action is None else _sql(rule.action.expression)
    if isinstance(rule.filter, CorrelationFilter):
        wanted: Json = {name: getattr(rule.filter, field) for name, field in _CORRELATED.items()}
        wanted = {name: value for name, value in wanted.items() if value is not None}
        wanted["properties"] = {key: str(value) for key, value in rule.filter.properties.items()}
        return {"action": action, "filterType": "CorrelationFilter", "correlationFilter": wanted}
    return {"action": action, "filterType": "SqlFilter", "sqlFilter": _sql(rule.filter.expression)}


def _sql(text: str) -> Json:
    return {"sqlExpression": text, "compatibilityLevel": _LEVEL}


def _read_filter(properties: Json) -> Filter:
    sql, correlation = _part(properties, "sqlFilter"), _part(properties, "correlationFilter")
    kind = properties.get("filterType") or ("CorrelationFilter" if correlation else "SqlFilter")
    if kind == "SqlFilter":
        return SqlFilter(_text(sql, "sqlExpression")) if sql else TrueFilter()
    if kind != "CorrelationFilter":
        raise xml.DescriptionError(f"filterType: {kind!r} is neither SqlFilter nor CorrelationFilter")
    fields = {field: _text(correlation, name) for name, field in _CORRELATED.items() if correlation.get(name)}
    others = _part(correlation, "properties")
    return CorrelationFilter(**fields, properties={key: _text(others, key) for key in others})


def _read_action(properties: Json) -> SqlAction | None:
    action = _part(properties, "action")
    return SqlAction(_text(action, "sqlExpression")) if action.get("sqlExpression") else None


def _part(properties: Json, name: str) -> Json:
    part = properties.get(name)
    if part is not None and not isinstance(part, dict):
        raise xml.DescriptionError(f"{name}: it has to be an object")
    return part or {}


def _text(properties: Json, name: str) -> str:
    text = properties.get(name)
    if not isinstance(text, str):
        raise xml.DescriptionError(f"{name}: {text!r} is no text")
    check_text(name, text)
    return text


# ---------------------------------------------------------------------- authorization rules


def read_access(name: str, properties: Json, present: AuthorizationRule | None) -> AuthorizationRule:
    """Return the rule in `properties`; its keys stay, or are new. Raises DescriptionError, InvalidSettings."""
    check_text("name", name)
    rights = properties.get("rights")
    if not isinstance(rights, list) or not all(right in list(Right) for right in rights):
        raise xml.DescriptionError(f"rights: {rights!r} is no list of {', '.join(Right)}")
    return AuthorizationRule(
        name=name,
        rights=frozenset(Right(right) for right in rights),
        sent_rights=tuple(Right(right) for right in dict.fromkeys(rights)),
        primary_key=present.primary_key if present else xml.new_key(),
        secondary_key=present.secondary_key if present else xml.new_key(),
    )


def write_access(rule: AuthorizationRule) -> Json:
    """Return the properties of an authorization rule, without keys."""
    return {"rights": list(rule.listed_rights)}


def write_keys(rule: AuthorizationRule, authority: str, entity: str | None) -> Json:
    """Return keys and connection strings; `entity` is the path of the rule's owner, None for the namespace."""
    path = f";EntityPath={entity}" if entity else ""
    primary, secondary = (
        f"Endpoint=sb://{authority}/;SharedAccessKeyName={rule.name};SharedAccessKey={key}{path}"
        ";UseDevelopmentEmulator=true"
        for key in rule.keys
    )
    return {
        "primaryConnectionString": primary,
        "secondaryConnectionString": secondary,
        "primaryKey": rule.primary_key,
        "secondaryKey": rule.secondary_key,
        "keyName": rule.name,
    }


def write_network_rules(access: str = "Enabled") -> Json:
    """Return the properties of the only set of network rules: access for everyone."""
    return {
        "defaultAction": "Allow",
        "publicNetworkAccess": access,
        "trustedServiceAccessEnabled": False,
        "ipRules": [],
        "virtualNetworkRules": [],
    }


PROVIDER = "Microsoft.ServiceBus"
_WITH_SLASHES = ("queues", "topics")


@dataclass(frozen=True, slots=True)
class ArmAddress:
    """The part of an address behind the provider: `words` are collections and operations in lower case.

    `.../namespaces/n/queues/a~b` has the words (namespaces, queues) and the names (n, a/b). `group` is None if the
    address has none.
    """

    subscription: str
    group: str | None
    words: tuple[str, ...]
    names: tuple[str, ...]


def read_address(raw_path: str) -> ArmAddress | None:
    """Return the address in an encoded URL path; None if it is not of this provider."""
    parts = [part for part in raw_path.split("/") if part]
    lower = [part.lower() for part in parts]
    group = None
    if lower[:1] != ["subscriptions"] or len(parts) < 2:
        return None
    at = 2
    if lower[2:3] == ["resourcegroups"] and len(parts) > 3:
        group, at = unquote(parts[3]), 4
    if lower[at : at + 2] != ["providers", PROVIDER.lower()]:
        return None
    words, names = lower[at + 2 :: 2], parts[at + 3 :: 2]
    named = [_name(word, name) for word, name in zip(words, names, strict=False)]
    return ArmAddress(unquote(parts[1]), group, tuple(words), tuple(named))


def entity_path(address: ArmAddress) -> str:
    """Return the path of the queue, topic or subscription at or above the address; empty for a namespace."""
    if address.words[1:2] not in (("queues",), ("topics",)):
        return ""
    below = address.names[1:3] if address.words[2:3] == ("subscriptions",) else address.names[1:2]
    return "/subscriptions/".join(below)


def _name(word: str, raw: str) -> str:
    name = unquote(raw)
    return name.replace("~", "/") if word in _WITH_SLASHES else name


def resource_id(subscription: str, group: str, *path: str) -> str:
    """Return the id of a resource; `path` alternates collections and names as written."""
    parts = "/".join(quote(part.replace("/", "~"), safe="$~") for part in path)
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{PROVIDER}/{parts}"


Item = TypeVar("Item")

MAX_PAGE = 100
DEFAULT_GROUP = "sandbox"
_LAST_OLD_VERSION = "2022-10-01"
_WORDS = {
    "authorizationrules": ("AuthorizationRules", "AuthorizationRules"),
    "networkrulesets": ("networkRuleSets", "networkrulesets"),
    "disasterrecoveryconfigs": ("disasterRecoveryConfigs", "disasterrecoveryconfigs"),
}
"""Words of addresses as they are written in ids and in types."""


@dataclass(slots=True, kw_only=True)
class ArmNamespace:
    """A namespace in ARM: its server, its address (`127.0.0.1:5671`), and properties that only ARM has.

    group: the resource group of its creator, any group without one. ready_at: the end of its activation, in epoch
    seconds. kept: properties as they were set, by name.
    """

    node: NamespaceServer
    authority: str
    group: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    capacity: int = 1
    kept: Json = field(default_factory=dict)
    ready_at: float = 0.0
    updated_at: float = 0.0
    gate: FaultGate = field(init=False)

    def __post_init__(self) -> None:
        self.gate = FaultGate(self.node.faults)
        self.updated_at = self.node.namespace.created_at

    def is_in(self, group: str | None) -> bool:
        """Return whether the namespace is found in a resource group."""
        return group is None or self.group is None or self.group.lower() == group.lower()


@dataclass(slots=True)
class Alias:
    """A disaster-recovery pairing: names of namespaces; without `partner` it replicates nothing.

    changed_at: the time of the latest change, in epoch seconds.
    """

    name: str
    primary: str
    partner: str
    changed_at: float


class NamespaceOwner(Protocol):
    """The creator and remover of namespaces."""

    async def open(self, spec: NamespaceSpec) -> ArmNamespace:
        """Create a namespace that does not exist; it is reachable immediately."""

    async def end(self, name: str) -> None:
        """End a namespace with its connections and contents."""


class ArmNamespaces:
    """All namespaces by name without regard to case. Without an owner none can be created or deleted."""

    def __init__(
        self, places: Sequence[ArmNamespace], owner: NamespaceOwner | None, *, clock: Clock, activation_s: float
    ) -> None:
        self.owner = owner
        self.clock = clock
        self.activation_s = activation_s
        self.aliases: dict[str, Alias] = {}
        self.changing = asyncio.Lock()
        self._places: dict[str, ArmNamespace] = {}
        for place in places:
            self.add(place)

    def add(self, place: ArmNamespace) -> None:
        self._places[place.node.name.lower()] = place

    def remove(self, place: ArmNamespace) -> None:
        del self._places[place.node.name.lower()]
        place.gate.close()

    def get(self, name: str) -> ArmNamespace | None:
        return self._places.get(name.lower())

    def has_passed(self, changed_at: float) -> bool:
        """Return whether a change at this time, in epoch seconds, has come to its end."""
        return self.clock() >= changed_at + self.activation_s

    def all(self) -> list[ArmNamespace]:
        return list(self._places.values())


@dataclass(frozen=True, slots=True)
class ArmResponse:
    """An answer; `body` is an object, None if it is empty."""

    status: int
    body: Json | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ArmRequest:
    """A request with a valid address."""

    request: AtomRequest
    address: ArmAddress
    places: ArmNamespaces

    @property
    def names(self) -> tuple[str, ...]:
        return self.address.names

    @property
    def words(self) -> tuple[str, ...]:
        return self.address.words

    @property
    def is_recent(self) -> bool:
        """Return whether the version has the bodies and addresses of recent ones."""
        return self.request.query["api-version"][:10] > _LAST_OLD_VERSION

    @property
    def place(self) -> ArmNamespace:
        """Return the namespace of the address. Raises HttpRefusal (404)."""
        place, group = self.places.get(self.names[0]), self.address.group
        if place is None or not place.is_in(group):
            code = "ParentResourceNotFound" if len(self.words) > 1 else "ResourceNotFound"
            where = "" if group is None else f" in the resource group '{group}'"
            raise HttpRefusal(404, code, f"there is no namespace '{self.names[0]}'{where}")
        if len(self.words) > 1 and not self.is_ready(place):
            sentence = f"SubCode=40901. The creation of '{place.node.name}' is under way; try again"
            raise HttpRefusal(429, "TooManyRequests", sentence)
        return place

    def is_ready(self, place: ArmNamespace) -> bool:
        """Return whether the activation of a namespace has ended."""
        return self.places.clock() >= place.ready_at

    def body(self) -> Json:
        """Return the body. Raises HttpRefusal (400) if it is not a JSON object."""
        try:
            found = json.loads(self.request.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise HttpRefusal(400, "InvalidRequestContent", f"the body is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise HttpRefusal(400, "InvalidRequestContent", "the body has to be an object")
        return found

    def part_of_body(self, name: str) -> Json:
        """Return an object in the body, empty if it is missing. Raises HttpRefusal (400)."""
        found = self.body().get(name)
        if found is not None and not isinstance(found, dict):
            raise HttpRefusal(400, "InvalidRequestContent", f"'{name}' has to be an object")
        return found or {}

    def resource(self, names: Sequence[str], properties: Json) -> Json:
        """Return a resource below the namespace, with the words of this address; `names` exclude the namespace."""
        place = self.place
        words = [_WORDS.get(word, (word, word)) for word in self.words[: len(names) + 1]]
        path = [part for (word, _), name in zip(words, (place.node.name, *names), strict=True) for part in (word, name)]
        kind = "/".join(word for _, word in words)
        if kind.endswith(("AuthorizationRules", "disasterrecoveryconfigs")):
            kind = kind.replace("namespaces", "Namespaces", 1)
        return {
            "id": resource_id(self.address.subscription, self.address.group or place.group or DEFAULT_GROUP, *path),
            "name": names[-1],
            "type": f"{PROVIDER}/{kind}",
            "location": short_region(place.node.region),
            "properties": properties,
        }

    def page(self, items: Sequence[Item], describe: Callable[[Item], Json]) -> ArmResponse:
        """Return a page of a list, with the address of the next one if there is more."""
        skip, top = self._number("$skip", 0), min(self._number("$top", MAX_PAGE), MAX_PAGE)
        found: Json = {"value": [describe(item) for item in items[skip : skip + top]]}
        if top and skip + top < len(items):
            query = urlencode({**self.request.query, "$skip": skip + top, "$top": top}, safe="$")
            found["nextLink"] = f"{self.request.origin}{self.request.path}?{query}"
        return ArmResponse(200, found)

    def _number(self, name: str, default: int) -> int:
        text = self.request.query.get(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise HttpRefusal(400, "BadRequest", f"{name} is '{text}'; it has to be a whole number, 0 or more")
        return int(text)


def short_region(region: str) -> str:
    """Return a region as in `westeurope`."""
    return region.replace(" ", "").lower()


Action = Callable[[ArmRequest], ArmResponse | Awaitable[ArmResponse]]
Actions = Mapping[tuple[str, tuple[str, ...], int], Action]
"""The handler for a method, the words of an address, and the number of its names."""


def reads(
    words: tuple[str, ...],
    items: Callable[[ArmRequest], Sequence[Item]],
    find: Callable[[ArmRequest], Item],
    describe: Callable[[ArmRequest, Item], Json],
) -> Actions:
    """Return the handlers that list the resources with these words in their address, and show one of them."""
    return {
        ("GET", words, len(words) - 1): lambda call: call.page(items(call), partial(describe, call)),
        ("GET", words, len(words)): lambda call: ArmResponse(200, describe(call, find(call))),
    }
