"""The XML of queues, topics, subscriptions and rules: tables of elements, settings and read-only values.

The order of a table is that of the service. Read-only elements from a client (counts, times) are ignored, as in the
service. Namespaces are written as default namespaces and with the service's prefix, because some clients compare names
literally. Not here: routing.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit
from xml.etree import ElementTree

from servicebus_sandbox.broker.entity_settings import (
    FIXED,
    AuthorizationRule,
    EntitySettings,
    EntityStatus,
    QueueSettings,
    Right,
    SubscriptionSettings,
    Tier,
    TopicSettings,
)
from servicebus_sandbox.broker.subscription_rules.message_properties import Value
from servicebus_sandbox.broker.subscription_rules.rules import (
    CORRELATION_FIELDS,
    DEFAULT_RULE,
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace, Entity, Subscription, Topic

# Durations and times in Service Bus XML: ISO 8601, with one duration for unlimited.
#
# `None` means TimeSpan.MaxValue, about 10,675,199 days. A client in another language may round its last digits, so
# every duration from that many days on is read as unlimited. Pure functions.

FOR_EVER = "P10675199DT2H48M5.4775807S"
_DAYS_OF_FOR_EVER = 10_675_199
_PATTERN = re.compile(
    r"(?P<sign>-?)P(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,12})H)?(?:(?P<minutes>\d{1,12})M)?(?:(?P<seconds>\d{1,12}(?:\.\d{1,9})?)S)?)?",
    re.ASCII,
)


def read_duration(text: str) -> timedelta | None:
    """Return the duration in `text` (days and smaller units), None for unlimited. Raises ValueError."""
    match = _PATTERN.fullmatch(text.strip())
    if match is None or text.strip().endswith(("P", "T")):
        raise ValueError(f"'{text}' is not an ISO 8601 duration in days, hours, minutes and seconds, such as PT1M")
    parts = {unit: float(match[unit] or 0) for unit in ("hours", "minutes", "seconds")}
    days = int(match["days"] or 0)
    if days >= _DAYS_OF_FOR_EVER and not match["sign"]:
        return None
    try:
        duration = timedelta(days=days, **parts)
    except OverflowError as error:
        raise ValueError(f"the duration '{text}' is out of range") from error
    return -duration if match["sign"] else duration


def write_duration(duration: timedelta | None) -> str:
    """Return the shortest ISO 8601 form: PT1M, P1DT2H, PT0.5S, PT0S."""
    if duration is None or duration.days >= _DAYS_OF_FOR_EVER:
        return FOR_EVER
    sign, length = ("-", -duration) if duration < timedelta(0) else ("", duration)
    minutes, seconds = divmod(length.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{length.microseconds:06d}".rstrip("0") if length.microseconds else ""
    time = "".join(
        f"{value}{fraction if unit == 'S' else ''}{unit}"
        for value, unit in ((hours, "H"), (minutes, "M"), (seconds, "S"))
        if value or (unit == "S" and fraction)
    )
    date = f"{length.days}D" if length.days else ""
    if not date and not time:
        return "PT0S"
    return f"{sign}P{date}{'T' if time else ''}{time}"


def write_time(epoch_seconds: float) -> str:
    """Return a time in UTC, to the microsecond: 2026-01-02T03:04:05.600000Z."""
    return datetime.fromtimestamp(epoch_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# The XML of an entity's authorization rules, both ways. Missing keys are generated here.

_KIND = "SharedAccessAuthorizationRule"


def new_key() -> str:
    """Return a new random key: 32 bytes in base64, as in the service."""
    return base64.b64encode(secrets.token_bytes(32)).decode("ascii")


def read_rules(element: ElementTree.Element) -> tuple[AuthorizationRule, ...]:
    """Return the rules in `AuthorizationRules`. Raises ValueError for an unknown right, else InvalidSettings."""
    return tuple(_read_rule(rule) for rule in element.findall("{*}AuthorizationRule"))


def write_rules(
    parent: ElementTree.Element, rules: Sequence[AuthorizationRule], *, created_at: float, updated_at: float
) -> None:
    """Add `AuthorizationRules` to `parent`; the times, in epoch seconds, are the entity's."""
    element = ElementTree.SubElement(parent, "AuthorizationRules")
    for rule in rules:
        described = ElementTree.SubElement(element, "AuthorizationRule", {"i:type": _KIND})
        _add(described, "ClaimType", "SharedAccessKey")
        _add(described, "ClaimValue", "None")
        rights = ElementTree.SubElement(described, "Rights")
        for right in sorted(rule.rights):
            _add(rights, "AccessRights", right.value)
        _add(described, "CreatedTime", write_time(created_at))
        _add(described, "ModifiedTime", write_time(updated_at))
        _add(described, "KeyName", rule.name)
        _add(described, "PrimaryKey", rule.primary_key)
        _add(described, "SecondaryKey", rule.secondary_key)


def _read_rule(element: ElementTree.Element) -> AuthorizationRule:
    return AuthorizationRule(
        name=_text(element, "KeyName"),
        rights=frozenset(_RIGHT((right.text or "").strip()) for right in element.findall("{*}Rights/{*}AccessRights")),
        primary_key=_text(element, "PrimaryKey") or new_key(),
        secondary_key=_text(element, "SecondaryKey") or new_key(),
    )


def _text(element: ElementTree.Element, name: str) -> str:
    return (element.findtext(f"{{*}}{name}") or "").strip()


CONNECT = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
NEWEST_VERSION = "2024-05"
"""The newest version of the interface; versions compare as text."""


class DescriptionError(Exception):
    """An invalid description; the message names the element, the value and the valid ones."""


@dataclass(frozen=True, slots=True)
class Codec:
    """The XML form of one type. `write` also gets the namespace's authority (host and port)."""

    read: Callable[[str], object]
    write: Callable[[Any, str], str]


@dataclass(frozen=True, slots=True)
class Setting:
    """A writable element; a missing or empty one means the default.

    `shown` is the displayed value of an unset element. Clients of versions before `since` neither see the element nor
    may set it.
    """

    element: str
    field: str
    codec: Codec
    shown: Callable[[Any], object] | None = None
    since: str = ""


@dataclass(frozen=True, slots=True)
class ReadOnlyElement:
    """An element that only the service sets; `since` as with settings."""

    element: str
    read: Callable[[Any], str]
    since: str = ""


@dataclass(frozen=True, slots=True)
class CountDetails:
    """The element with the counts by state."""


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The element with the entity's authorization rules."""


Part = Setting | ReadOnlyElement | CountDetails | AccessRules


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of entity: its element, its settings and its parts in order."""

    element: str
    settings: type[QueueSettings] | type[TopicSettings] | type[SubscriptionSettings]
    parts: tuple[Part, ...]

    def read(
        self, description: ElementTree.Element, *, current: EntitySettings | None = None, version: str = NEWEST_VERSION
    ) -> EntitySettings:
        """Return the settings in `description`; missing ones are the default.

        For an update with `current` settings, missing fixed settings keep their value. Raises DescriptionError, and
        InvalidSettings for a value out of range.
        """
        values: dict[str, Any] = {}
        if isinstance(current, self.settings):
            values = {name: getattr(current, name) for name in FIXED if hasattr(current, name)}
        for part in self.parts:
            match part:
                case Setting(element, field):
                    text = text_of(description.find(f"{{*}}{element}"))
                    if text and version < part.since:
                        raise DescriptionError(f"{element}: api-version {version} does not know it; use {part.since}")
                    if text:
                        values[field] = _read(part, text)
                    elif version < part.since and isinstance(current, self.settings):
                        values[field] = getattr(current, field)
                case AccessRules():
                    rules = description.find("{*}AuthorizationRules")
                    if rules is not None:
                        values["authorization_rules"] = _read_access(rules)
        return self.settings(**values)

    def write(self, entity: Entity, authority: str, version: str = NEWEST_VERSION) -> ElementTree.Element:
        """Return the description of `entity`, without unset settings."""
        root = new_description(self.element)
        for part in self.parts:
            match part:
                case Setting(element, _, codec) if version >= part.since:
                    value = shown(part, entity)
                    if value is not None or codec is DURATION:
                        _add(root, element, codec.write(value, authority))
                case ReadOnlyElement(element, read) if version >= part.since:
                    _add(root, element, read(entity) or None)
                case CountDetails():
                    _write_counts(root, entity)
                case AccessRules():
                    rules = getattr(entity.settings, "authorization_rules", ())
                    write_rules(root, rules, created_at=entity.created_at, updated_at=entity.updated_at)
        return root


def shown(part: Setting, entity: Entity) -> Any:
    """Return the displayed value of a setting, None if there is none."""
    value = getattr(entity.settings, part.field)
    return part.shown(entity) if value is None and part.shown is not None else value


def text_of(element: ElementTree.Element | None) -> str:
    """Return the text without space around it; empty for a missing or nil element."""
    return _whole_text(element).strip()


def _read(part: Setting, text: str) -> object:
    try:
        return part.codec.read(text)
    except ValueError as error:
        raise DescriptionError(f"{part.element}: {error}") from error


def _read_access(element: ElementTree.Element) -> tuple[AuthorizationRule, ...]:
    try:
        return read_rules(element)
    except ValueError as error:
        raise DescriptionError(f"AuthorizationRules: {error}") from error


def _write_counts(root: ElementTree.Element, entity: Entity) -> None:
    details = ElementTree.SubElement(root, "CountDetails", {"xmlns:d2p1": COUNTS})
    for name, value in count_details(entity).items():
        _add(details, f"d2p1:{name}", str(value))


def count_details(entity: Entity) -> dict[str, int]:
    """Return the numbers of messages by state, under their elements' names."""
    counts = asdict(entity.counts())
    return {f"{state.title().replace('_', '')}MessageCount": number for state, number in counts.items()}


def read_bool(text: str) -> bool:
    """Return a Boolean of XML Schema, in any case. Raises ValueError."""
    try:
        return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
    except KeyError as error:
        raise ValueError(f"'{text}' is neither true nor false") from error


def _read_span(text: str) -> timedelta:
    duration = read_duration(text)
    if duration is None:
        raise ValueError("it cannot last for ever")
    return duration


def _read_path(text: str) -> str:
    """Return the entity's path in `sb://host/path`; a bare path is unchanged."""
    return urlsplit(text).path.strip("/") if "://" in text else text.strip("/")


def _reader(kind: Callable[[str], object], complaint: str) -> Callable[[str], Any]:
    """Return a function that reads a value, or raises ValueError with this complaint behind the text."""

    def read(text: str) -> object:
        try:
            return kind(text)
        except ValueError as error:
            raise ValueError(f"'{text}' {complaint}") from error

    return read


_RIGHT = _reader(Right, f"is no right; there are {', '.join(Right)}")
BOOL = Codec(read_bool, lambda value, _: "true" if value else "false")
INT = Codec(_reader(int, "is not a whole number"), lambda value, _: str(value))
TEXT = Codec(str, lambda value, _: str(value))
STATUS = Codec(_reader(EntityStatus, f"is none of {', '.join(EntityStatus)}"), lambda value, _: str(value))
DURATION = Codec(read_duration, lambda value, _: write_duration(value))  # None is written as unlimited
SPAN = Codec(_read_span, lambda value, _: write_duration(value))
FORWARD = Codec(_read_path, lambda value, authority: f"sb://{authority}/{value}")

_ANONYMOUS = ReadOnlyElement("IsAnonymousAccessible", lambda _: "false")
_KEYS = AccessRules()
_ORDERED = ReadOnlyElement("SupportOrdering", lambda _: "true")
_AVAILABLE = ReadOnlyElement("EntityAvailabilityStatus", lambda _: "Available")
_LOCK = Setting("LockDuration", "lock_duration", SPAN)
_MAX_SIZE = Setting("MaxSizeInMegabytes", "max_size_mb", INT)
_DUPLICATES = Setting("RequiresDuplicateDetection", "requires_duplicate_detection", BOOL)
_WINDOW = Setting("DuplicateDetectionHistoryTimeWindow", "duplicate_window", SPAN)
_SESSIONS = Setting("RequiresSession", "requires_session", BOOL)
_TTL = Setting("DefaultMessageTimeToLive", "default_ttl", DURATION)
_DEAD_LETTER_EXPIRED = Setting("DeadLetteringOnMessageExpiration", "dead_letter_on_expiration", BOOL)
_DELIVERIES = Setting("MaxDeliveryCount", "max_delivery_count", INT)
_BATCHED = Setting("EnableBatchedOperations", "enable_batched_operations", BOOL)
_STATUS = Setting("Status", "status", STATUS)
_FORWARD_TO = Setting("ForwardTo", "forward_to", FORWARD)
_FORWARD_DEAD = Setting("ForwardDeadLetteredMessagesTo", "forward_dead_lettered_to", FORWARD)
_METADATA = Setting("UserMetadata", "user_metadata", TEXT)
_IDLE = Setting("AutoDeleteOnIdle", "auto_delete_on_idle", DURATION)
_PARTITIONED = Setting("EnablePartitioning", "enable_partitioning", BOOL)
_EXPRESS = Setting("EnableExpress", "enable_express", BOOL)
_MESSAGE_SIZE = Setting(
    "MaxMessageSizeInKilobytes",
    "max_message_size_kb",
    INT,
    shown=lambda entity: entity.intake.max_message_bytes // 1024,
    since="2021-05",
)
NEVER: Final = "0001-01-01T00:00:00Z"


def _accessed(entity: Entity) -> str:
    """Return the time of the latest use; of a queue or topic without any, the year 1."""
    is_unused = entity.accessed_at == entity.created_at and not isinstance(entity, Subscription)
    return NEVER if is_unused else write_time(entity.accessed_at)


_SIZE = ReadOnlyElement("SizeInBytes", lambda entity: str(entity.size_bytes))
_COUNT = ReadOnlyElement("MessageCount", lambda entity: str(entity.counts().total))
_TIMES = (
    ReadOnlyElement("CreatedAt", lambda entity: write_time(entity.created_at)),
    ReadOnlyElement("UpdatedAt", lambda entity: write_time(entity.updated_at)),
    ReadOnlyElement("AccessedAt", lambda entity: _accessed(entity)),
)


def _filters(topic: Topic) -> tuple[int, int]:
    """Return the numbers of SQL and correlation filters in a topic's subscriptions."""
    counts = [subscription.rules.counts() for subscription in topic.subscriptions.values()]
    return sum(sql for sql, _ in counts), sum(correlation for _, correlation in counts)


QUEUE = Kind(
    "QueueDescription",
    QueueSettings,
    (
        *(_LOCK, _MAX_SIZE, _DUPLICATES, _SESSIONS, _TTL, _DEAD_LETTER_EXPIRED, _WINDOW, _DELIVERIES, _BATCHED),
        *(_SIZE, _COUNT, _ANONYMOUS, _KEYS, _STATUS, _FORWARD_TO, _METADATA, *_TIMES, _ORDERED, CountDetails()),
        *(_IDLE, _PARTITIONED, _AVAILABLE, _FORWARD_DEAD, _EXPRESS, _MESSAGE_SIZE),
    ),
)
TOPIC = Kind(
    "TopicDescription",
    TopicSettings,
    (
        *(_TTL, _MAX_SIZE, _DUPLICATES, _WINDOW, _BATCHED, _SIZE),
        Setting("FilteringMessagesBeforePublishing", "filtering_messages_before_publishing", BOOL),
        *(_ANONYMOUS, _KEYS, _STATUS, _METADATA, *_TIMES),
        Setting("SupportOrdering", "support_ordering", BOOL),
        CountDetails(),
        ReadOnlyElement("SubscriptionCount", lambda topic: str(len(topic.subscriptions))),
        ReadOnlyElement("SqlFilterCount", lambda topic: str(_filters(topic)[0]), since="2024-05"),
        ReadOnlyElement("CorrelationFilterCount", lambda topic: str(_filters(topic)[1]), since="2024-05"),
        *(_IDLE, _PARTITIONED, _AVAILABLE),
        ReadOnlyElement("EnableSubscriptionPartitioning", lambda _: "false"),
        *(_EXPRESS, _MESSAGE_SIZE),
    ),
)
SUBSCRIPTION = Kind(
    "SubscriptionDescription",
    SubscriptionSettings,
    (
        *(_LOCK, _SESSIONS, _TTL, _DEAD_LETTER_EXPIRED),
        Setting("DeadLetteringOnFilterEvaluationExceptions", "dead_letter_on_filter_errors", BOOL),
        *(_COUNT, _DELIVERIES, _BATCHED, _STATUS, _FORWARD_TO, *_TIMES, CountDetails(), _METADATA),
        *(_FORWARD_DEAD, _IDLE, _AVAILABLE),
    ),
)
_KINDS = (QUEUE, TOPIC, SUBSCRIPTION)


def kind_of(described: ElementTree.Element | EntitySettings) -> Kind:
    """Return the kind of an element or of settings. Raises DescriptionError."""
    if not isinstance(described, ElementTree.Element):
        return next(kind for kind in _KINDS if isinstance(described, kind.settings))
    name = described.tag.rpartition("}")[2]
    for kind in _KINDS:
        if kind.element == name:
            return kind
    raise DescriptionError(f"<{name}> is none of {', '.join(kind.element for kind in _KINDS)}")


def describe_namespace(namespace: BrokerNamespace) -> ElementTree.Element:
    """Return the description of the namespace."""
    root, made = new_description("NamespaceInfo"), write_time(namespace.created_at)
    units = [("MessagingUnits", "1")] if namespace.tier is Tier.PREMIUM else []
    for name, text in (
        ("CreatedTime", made),
        ("MessagingSKU", namespace.tier.value),
        *units,
        ("ModifiedTime", made),
        ("Name", namespace.name),
        ("NamespaceType", "Messaging"),
    ):
        _add(root, name, text)
    return root


def new_description(element: str) -> ElementTree.Element:
    """Return an empty description."""
    return ElementTree.Element(element, {"xmlns": CONNECT, "xmlns:i": INSTANCE})


# The XML of subscription rules: filters, actions and typed values, both ways.
#
# The attribute `type` has the kind of a filter or action. On a value an attribute of that name has its type, prefixed
# for XML Schema's namespace. The output is in the form that the SDKs read.

SCHEMA = "http://www.w3.org/2001/XMLSchema"
_PAIR = "KeyValueOfstringanyType"
_INT32 = range(-(2**31), 2**31)
CORRELATED = {field.title().replace("_", ""): field for field in CORRELATION_FIELDS}


def read_rule(description: ElementTree.Element, *, name: str | None = None) -> Rule:
    """Return the rule in `description`, called `name` if the URL has one.

    Raises DescriptionError, and FilterSyntaxError for the text of a filter or an action.
    """
    own = text_of(description.find("{*}Name"))
    if name is not None and own and own.lower() != name.lower():
        raise DescriptionError(f"Name: the rule is called '{own}' here and '{name}' in the address")
    return Rule(
        name=name or own or DEFAULT_RULE,
        filter=_read_filter(description.find("{*}Filter")),
        action=_read_action(description.find("{*}Action")),
    )


def first_rule(description: ElementTree.Element) -> Rule | None:
    """Return the first rule of a described subscription, None for the default. Raises like `read_rule`."""
    found = description.find("{*}DefaultRuleDescription")
    return None if found is None or _is_nil(found) else read_rule(found)


def write_rule(rule: Rule) -> ElementTree.Element:
    """Return the description of a rule."""
    root = new_description("RuleDescription")
    root.append(_write_filter(rule.filter))
    root.append(_write_action(rule.action))
    _add(root, "CreatedAt", write_time(rule.created_at))
    _add(root, "Name", rule.name)
    return root


# ---------------------------------------------------------------------- filters and actions


def _read_filter(element: ElementTree.Element | None) -> Filter:
    if element is None or _is_nil(element):
        return TrueFilter()
    match _kind(element):
        case "TrueFilter":
            return TrueFilter()
        case "FalseFilter":
            return FalseFilter()
        case "SqlFilter":
            return SqlFilter(_expression(element), _read_pairs(element.find("{*}Parameters")))
        case "CorrelationFilter":
            fields = {field: _whole_text(element.find(f"{{*}}{name}")) or None for name, field in CORRELATED.items()}
            return CorrelationFilter(**fields, properties=_read_pairs(element.find("{*}Properties")))
        case kind:
            raise DescriptionError(
                f"Filter: its type is '{kind}'; it is one of SqlFilter, CorrelationFilter, TrueFilter, FalseFilter"
            )


def _read_action(element: ElementTree.Element | None) -> SqlAction | None:
    if element is None or _is_nil(element):
        return None
    match _kind(element):
        case "EmptyRuleAction":
            return None
        case "SqlRuleAction":
            return SqlAction(_expression(element), _read_pairs(element.find("{*}Parameters")))
        case kind:
            raise DescriptionError(f"Action: its type is '{kind}'; it is one of SqlRuleAction, EmptyRuleAction")


def _expression(element: ElementTree.Element) -> str:
    text = text_of(element.find("{*}SqlExpression"))
    if not text:
        raise DescriptionError("SqlExpression: it is missing or empty")
    return text


def _write_filter(found: Filter) -> ElementTree.Element:
    kind = type(found).__name__
    element = ElementTree.Element("Filter", {"i:type": kind})
    match found:
        case CorrelationFilter():
            for name, field in CORRELATED.items():
                value = getattr(found, field)
                if value is not None:
                    _add(element, name, value)
            _write_pairs(element, "Properties", found.properties)
        case SqlFilter():
            _write_sql(element, found.expression, found.parameters)
        case TrueFilter():
            _write_sql(element, "1=1", {})
        case FalseFilter():
            _write_sql(element, "1=0", {})
    return element


def _write_action(action: SqlAction | None) -> ElementTree.Element:
    if action is None:
        return ElementTree.Element("Action", {"i:type": "EmptyRuleAction"})
    element = ElementTree.Element("Action", {"i:type": "SqlRuleAction"})
    _write_sql(element, action.expression, action.parameters)
    return element


def _write_sql(element: ElementTree.Element, expression: str, parameters: Mapping[str, Value]) -> None:
    _add(element, "SqlExpression", expression)
    _add(element, "CompatibilityLevel", "20")
    _write_pairs(element, "Parameters", parameters)


def _kind(element: ElementTree.Element) -> str:
    """Return the attribute `type` of any namespace, without a prefix."""
    found = element.get(f"{{{INSTANCE}}}type")
    if found is None:
        found = next((value for name, value in element.attrib.items() if name.rpartition("}")[2] == "type"), "")
    return found.rpartition(":")[2]


def _whole_text(element: ElementTree.Element | None) -> str:
    """Return the text with the space around it, which counts in comparisons of properties."""
    return "" if element is None or _is_nil(element) else element.text or ""


def _is_nil(element: ElementTree.Element) -> bool:
    return element.get(f"{{{INSTANCE}}}nil") == "true"


# ---------------------------------------------------------------------- typed values


@dataclass(frozen=True, slots=True)
class _Type:
    """One type of XML Schema in filters."""

    read: Callable[[str], Value]
    write: Callable[[Any], str] = str


class _ZonelessTime(datetime):
    """A time that was sent without a zone: it is in UTC, and is written as it came."""


def _read_time(text: str) -> datetime:
    """Return a time; without a zone it is in UTC."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        return moment.astimezone(UTC)
    return _ZonelessTime.fromisoformat(text).replace(tzinfo=UTC)


def _write_moment(value: datetime) -> str:
    """Return a time in UTC, with a zone unless it came without: the SDKs compare it with their own."""
    text = value.astimezone(UTC).replace(tzinfo=None).isoformat()
    return text if isinstance(value, _ZonelessTime) else f"{text}Z"


_WHOLE = _Type(int)
_TYPES: Mapping[str, _Type] = {
    "string": _Type(str),
    **dict.fromkeys(("int", "long", "short", "byte", "unsignedInt", "unsignedLong", "unsignedShort"), _WHOLE),
    **dict.fromkeys(("double", "float", "decimal"), _Type(float, repr)),
    "boolean": _Type(read_bool, lambda value: "true" if value else "false"),
    "dateTime": _Type(_read_time, _write_moment),
    "duration": _Type(_read_span, write_duration),
}


def _type_name(value: Value) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "int" if value in _INT32 else "long"
        case float():
            return "double"
        case datetime():
            return "dateTime"
        case timedelta():
            return "duration"
    return "string"


def _read_pairs(element: ElementTree.Element | None) -> dict[str, Value]:
    pairs: dict[str, Value] = {}
    for pair in [] if element is None else element.findall(f"{{*}}{_PAIR}"):
        key, value = _whole_text(pair.find("{*}Key")), pair.find("{*}Value")
        if not key:
            raise DescriptionError(f"{_PAIR}: its Key is missing or empty")
        pairs[key] = None if value is None or _is_nil(value) else _read_value(key, value)
    return pairs


def _read_value(key: str, element: ElementTree.Element) -> Value:
    name = _kind(element) or "string"
    if name not in _TYPES:
        raise DescriptionError(f"'{key}': its type is '{name}'; it is one of {', '.join(_TYPES)}")
    text = element.text or ""
    try:
        return _TYPES[name].read(text if name == "string" else text.strip())
    except ValueError as error:
        raise DescriptionError(f"'{key}': '{text}' is no {name}: {error}") from error


def _write_pairs(parent: ElementTree.Element, name: str, pairs: Mapping[str, Value]) -> None:
    element = ElementTree.SubElement(parent, name)
    for key, value in pairs.items():
        pair = ElementTree.SubElement(element, _PAIR)
        _add(pair, "Key", key)
        if value is None:
            ElementTree.SubElement(pair, "Value", {"i:nil": "true"})
            continue
        kind = _type_name(value)
        attributes = {"xmlns:d6p1": SCHEMA, "i:type": f"d6p1:{kind}"}
        ElementTree.SubElement(pair, "Value", attributes).text = _TYPES[kind].write(value)


# Atom envelopes of management answers, and the parser of clients' entries.
#
# Documents with a DOCTYPE are refused, so entities are never expanded. Contents are in `entity_xml`, answers in
# `management_api`.

ATOM = "http://www.w3.org/2005/Atom"


class AtomError(Exception):
    """A body that is not an Atom entry with XML content; the message names the flaw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomEntry:
    """One entity in its envelope. Times are epoch seconds; `address` is the entity's URL."""

    address: str
    title: str
    author: str
    published: float
    updated: float
    content: ElementTree.Element


def content_of(body: bytes) -> ElementTree.Element:
    """Return the first element inside the entry's content. Raises AtomError."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AtomError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    if "<!doctype" in text.lower():
        raise AtomError("the body has a DOCTYPE; send an Atom entry without one")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise AtomError(f"the body is not well-formed XML: {error}") from error
    content = root.find("{*}content") if root.tag.endswith("}entry") else None
    if content is None or not len(content):
        raise AtomError("the body is not an Atom entry with a description as its content")
    return content[0]


def entry_document(entry: AtomEntry) -> bytes:
    """Return one entity as a document."""
    return _document(_entry(entry))


def feed_document(
    address: str, title: str, entries: Sequence[AtomEntry], *, next_page: str | None, now: float
) -> bytes:
    """Return several entities; `next_page` is the URL of the next page, None at the end."""
    feed = ElementTree.Element("feed", {"xmlns": ATOM})
    _add(feed, "title", title, type="text")
    _add(feed, "id", address)
    _add(feed, "updated", write_time(now))
    _add(feed, "link", rel="self", href=address)
    if next_page is not None:  # clients take the second link for the next page
        _add(feed, "link", rel="next", href=next_page)
    feed.extend(_entry(entry) for entry in entries)
    return _document(feed)


def error_document(status: int, detail: str) -> bytes:
    """Return the body of a refusal: the HTTP status as code, and one sentence."""
    error = ElementTree.Element("Error")
    _add(error, "Code", str(status))
    _add(error, "Detail", "".join(character if character.isprintable() else "?" for character in detail))
    return _document(error)


def _entry(entry: AtomEntry) -> ElementTree.Element:
    element = ElementTree.Element("entry", {"xmlns": ATOM})
    _add(element, "id", entry.address)
    _add(element, "title", entry.title, type="text")
    _add(element, "published", write_time(entry.published))
    _add(element, "updated", write_time(entry.updated))
    _add(_add(element, "author"), "name", entry.author)
    _add(element, "link", rel="self", href=entry.address)
    _add(element, "content", type="application/xml").append(entry.content)
    return element


def _add(parent: ElementTree.Element, tag: str, text: str | None = None, **attributes: str) -> ElementTree.Element:
    child = ElementTree.SubElement(parent, tag, attributes)
    child.text = text
    return child


def _document(root: ElementTree.Element) -> bytes:
    text: str = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>{text}'.encode()
