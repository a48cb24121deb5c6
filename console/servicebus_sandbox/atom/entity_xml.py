"""The XML of queues, topics and subscriptions, and its envelopes: tables of elements, settings and read-only values.

A table has the service's order, which counts for reading too. An element behind its place, a repeated one and an
unknown one have no effect; they are kept, and come back at the end. Names are written with default namespaces and with
the service's prefixes, because some clients compare them literally. Rules are in `rule_xml`.
"""

from __future__ import annotations

import base64
import re
import secrets
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit
from xml.etree import ElementTree

from servicebus_sandbox.broker.entity_settings import (
    FIXED,
    PARTITIONS,
    AuthorizationRule,
    EntitySettings,
    EntityStatus,
    QueueSettings,
    Right,
    SubscriptionSettings,
    Tier,
    TopicSettings,
)
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace, Entity, Queue, Subscription, Topic

# Durations and times in Service Bus XML: ISO 8601, with one duration for unlimited.
#
# `None` means TimeSpan.MaxValue, about 10,675,199 days. A client in another language may round its last digits, so
# every duration from that many days on is read as unlimited. Pure functions.

FOR_EVER = "P10675199DT2H48M5.4775807S"
_DAYS_OF_FOR_EVER = 10_675_199
_TICKS = 10_000_000
"""The ticks of a second, the unit of the service."""
_UNITS = {"years": 365 * 86_400, "months": 30 * 86_400, "days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
_PATTERN = re.compile(
    r"(?P<sign>-?)P(?:(?P<years>\d{1,5})Y)?(?:(?P<months>\d{1,6})M)?(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,12})H)?(?:(?P<minutes>\d{1,12})M)?"
    r"(?:(?P<seconds>\d{1,12})(?:\.(?P<fraction>\d{1,9}))?S)?)?",
    re.ASCII,
)


def read_ticks(text: str) -> int | None:
    """Return the ticks of a duration, None for unlimited; a year has 365 days, a month 30. Raises ValueError."""
    match = _PATTERN.fullmatch(text.strip())
    if match is None or text.strip().endswith(("P", "T")):
        raise ValueError(f"'{text}' is not an ISO 8601 duration in days, hours, minutes and seconds, such as PT1M")
    seconds = sum(int(match[unit] or 0) * size for unit, size in _UNITS.items())
    if seconds >= _DAYS_OF_FOR_EVER * 86_400 and not match["sign"]:
        if match["days"] is None and match["years"] is None:
            raise ValueError(f"the duration '{text}' is out of range")
        return None
    ticks = seconds * _TICKS + int((match["fraction"] or "").ljust(7, "0")[:7])
    return -ticks if match["sign"] else ticks


def write_ticks(ticks: int) -> str:
    """Return the shortest ISO 8601 form: PT1M, P1DT2H, PT0.5S, PT0S."""
    seconds, fraction = divmod(abs(ticks), _TICKS)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    rest = f"{second}.{fraction:07d}".rstrip("0").rstrip(".") if fraction else str(second)
    time = "".join(f"{text}{unit}" for text, unit in ((str(hour), "H"), (str(minute), "M"), (rest, "S")) if text != "0")
    date = f"{days}D" if days else ""
    if not date and not time:
        return "PT0S"
    return f"{'-' if ticks < 0 else ''}P{date}{'T' if time else ''}{time}"


def read_duration(text: str) -> timedelta | None:
    """Return the duration in `text` to the microsecond, None for unlimited. Raises ValueError."""
    ticks = read_ticks(text)
    try:
        return None if ticks is None else timedelta(microseconds=abs(ticks) // 10) * (-1 if ticks < 0 else 1)
    except OverflowError as error:
        raise ValueError(f"the duration '{text}' is out of range") from error


def write_duration(duration: timedelta | None) -> str:
    """Return the shortest form of a duration; None is unlimited."""
    if duration is None or duration.days >= _DAYS_OF_FOR_EVER:
        return FOR_EVER
    return write_ticks(duration // timedelta(microseconds=1) * 10)


def write_time(epoch_seconds: float, digits: int = 3) -> str:
    """Return a time in UTC with up to so many digits behind the second, none of them a zero at the end."""
    units = int(epoch_seconds * 10**digits)
    whole, fraction = divmod(units, 10**digits)
    text = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{fraction:0{digits}d}".rstrip("0").rstrip(".") + "Z" if digits else f"{text}Z"


# The XML of an entity's authorization rules, both ways. Missing keys are generated here.

Input = TypeVar("Input")
_KIND = "SharedAccessAuthorizationRule"


def new_key() -> str:
    """Return a new random key: 32 bytes in base64, as in the service."""
    return base64.b64encode(secrets.token_bytes(32)).decode("ascii")


def read_rules(element: ElementTree.Element) -> tuple[AuthorizationRule, ...]:
    """Return the rules in `AuthorizationRules`. Raises ValueError for an unknown right, else InvalidSettings."""
    return tuple(_read_rule(rule) for rule in element.findall("{*}AuthorizationRule"))


def write_rules(parent: ElementTree.Element, rules: Sequence[AuthorizationRule]) -> None:
    """Add `AuthorizationRules` to `parent`."""
    element = ElementTree.SubElement(parent, "AuthorizationRules")
    for rule in rules:
        described = ElementTree.SubElement(element, "AuthorizationRule", {"i:type": _KIND})
        for name, text in (("ClaimType", "SharedAccessKey"), ("ClaimValue", "None"), ("Rights", None)):
            add_child(described, name, text)
        for right in rule.listed_rights:
            add_child(described[-1], "AccessRights", right.value)
        for name, text in zip(("KeyName", "PrimaryKey", "SecondaryKey"), (rule.name, *rule.keys), strict=True):
            add_child(described, name, text)


def _read_rule(element: ElementTree.Element) -> AuthorizationRule:
    rights = [_RIGHT((right.text or "").strip()) for right in element.findall("{*}Rights/{*}AccessRights")]
    return AuthorizationRule(
        name=text_of(element.find("{*}KeyName")),
        rights=frozenset(rights),
        sent_rights=tuple(dict.fromkeys(rights)),
        primary_key=text_of(element.find("{*}PrimaryKey")) or new_key(),
        secondary_key=text_of(element.find("{*}SecondaryKey")) or new_key(),
    )


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

    `shown` is the displayed value. Clients of versions before `since` neither see the element nor may set it.
    """

    element: str
    field: str
    codec: Codec
    shown: Callable[[Any], object] | None = None
    since: str = ""


@dataclass(frozen=True, slots=True)
class ReadOnlyElement:
    """An element that only the service sets; `since` as with settings.

    made: its text in the answer to a creation at a time in epoch seconds, None if it is absent there; by default that
        of `read`.
    unsent: the text after an update without it; with it, a sent text is repeated.
    """

    element: str
    read: Callable[[Any], str | None]
    since: str = ""
    made: Callable[[float], str | None] | None = None
    unsent: str = ""


@dataclass(frozen=True, slots=True)
class Nested:
    """An element with elements of its own: the counts by state, which the answer to a creation lacks, or the keys."""

    element: str


COUNT_DETAILS, ACCESS_RULES = Nested("CountDetails"), Nested("AuthorizationRules")
Part = Setting | ReadOnlyElement | Nested
STRAYS = "strays"
"""The name of the kept elements in an `echo`; no element has it."""


def in_places(
    description: ElementTree.Element, order: Sequence[str]
) -> tuple[dict[str, ElementTree.Element], list[ElementTree.Element]]:
    """Return the elements that have effect by name, and the others in a form to write."""
    places = {f"{{{CONNECT}}}{name}": place for place, name in enumerate(order)}
    found: dict[str, ElementTree.Element] = {}
    strays, place = [], -1
    for child in description:
        here = places.get(child.tag, -1)
        if here > place:
            place = here
            found[order[here]] = child
        else:
            strays.append(copied(child))
    return found, strays


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of entity: its element, its settings and its parts in order."""

    element: str
    settings: type[QueueSettings] | type[TopicSettings] | type[SubscriptionSettings]
    parts: tuple[Part, ...]

    @property
    def order(self) -> list[str]:
        return [part.element for part in self.parts]

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
        found, strays = in_places(description, self.order)
        echo: dict[str, Any] = {STRAYS: strays}
        for part in self.parts:
            element = found.get(part.element)
            text = text_of(element)
            match part:
                case Setting(name, field):
                    if text and version < part.since:
                        raise DescriptionError(
                            f"'{name}' of '{self.element}' is not in api-version '{version}'; use {part.since}"
                        )
                    if text:
                        values[field] = _read(
                            part, part.codec.read, whole_text(element) if part.codec is TEXT else text
                        )
                        echo |= _repeated(part, text)
                    elif version < part.since and isinstance(current, self.settings):
                        values[field] = getattr(current, field)
                case Nested() if part is ACCESS_RULES and element is not None:
                    values["authorization_rules"] = _read(part, read_rules, element)
                case ReadOnlyElement(name) if part.unsent and current is not None:
                    echo[name] = text or part.unsent
        return self.settle(values | {"echo": echo}, current)

    def settle(self, values: dict[str, Any], current: EntitySettings | None) -> EntitySettings:
        """Return the settings of these values, after those that follow from others. Raises InvalidSettings."""
        if values.get("forward_to"):
            values["auto_delete_on_idle"] = None
        if values.get("enable_partitioning"):
            size = values.get("max_size_mb", 0)
            if size in (getattr(current, "total_size_mb", None), *_TOTAL_SIZES_MB):  # as management shows it
                values["max_size_mb"] = size // PARTITIONS
            if self.settings is TopicSettings:
                values.setdefault("support_ordering", False)
        return self.settings(**values)

    def write(
        self,
        entity: Entity,
        authority: str,
        version: str = NEWEST_VERSION,
        *,
        made_at: float | None = None,
        in_list: bool = False,
    ) -> ElementTree.Element:
        """Return the description of `entity`, without unset settings.

        made_at: the time of a creation that this answers, in epoch seconds.
        """
        root, echo = new_description(self.element), entity.settings.echo
        for part in self.parts:
            match part:
                case Setting(element, _, codec) if version >= part.since:
                    value = shown(part, entity)
                    if value is not None or codec is DURATION:
                        add_child(root, element, echo.get(element) or codec.write(value, authority))
                case ReadOnlyElement(element, read) if version >= part.since:
                    text = read(entity) if made_at is None or part.made is None else part.made(made_at)
                    if text is not None:
                        add_child(root, element, echo.get(element, text) or None)
                case Nested() if part is ACCESS_RULES:
                    write_rules(root, getattr(entity.settings, "authorization_rules", ()))
                case Nested() if made_at is None:
                    _write_counts(root, entity, "d3p1" if isinstance(entity, Subscription) and not in_list else "d2p1")
        root.extend(echo.get(STRAYS, ()))
        return root


_TOTAL_SIZES_MB = range(PARTITIONS * 1024, PARTITIONS * 5 * 1024 + 1, PARTITIONS * 1024)
"""The sizes of partitioned entities."""
_MAX_DEPTH = 20
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d*?(0+)(Z?)", re.ASCII)


def copied(element: ElementTree.Element, depth: int = 0) -> ElementTree.Element:
    """Return a client's element in the form that is written; times lose their zeros at the end.

    Raises DescriptionError for elements inside one another to more than 20 levels.
    """
    if depth > _MAX_DEPTH:
        raise DescriptionError(f"the description nests elements more than {_MAX_DEPTH} deep")
    tag = element.tag.removeprefix(f"{{{CONNECT}}}")
    attributes = {name.replace(f"{{{INSTANCE}}}", "i:"): value for name, value in element.attrib.items()}
    made = ElementTree.Element(tag, attributes if tag != element.tag or "}" in tag else attributes | {"xmlns": ""})
    made.text = without_zeros(element.text or "")
    made.extend([copied(child, depth + 1) for child in element])
    return made


def without_zeros(text: str) -> str:
    """Return a time without zeros at the end of its fraction, any other text as it is."""
    if not _TIME.fullmatch(text):
        return text
    zone = "Z" if text.endswith("Z") else ""
    return text.removesuffix("Z").rstrip("0").rstrip(".") + zone


def _repeated(part: Setting, text: str) -> dict[str, str]:
    """Return what management repeats of a setting because its value does not keep it."""
    if part.codec is FORWARD:
        return {part.element: text} if "://" in text else {}
    ticks = read_ticks(text) if part.codec in (DURATION, SPAN) else None
    return {part.element: write_ticks(ticks)} if ticks is not None and ticks % 10 else {}


def shown(part: Setting, entity: Entity) -> Any:
    """Return the displayed value of a setting, None if there is none."""
    return getattr(entity.settings, part.field) if part.shown is None else part.shown(entity)


def text_of(element: ElementTree.Element | None) -> str:
    """Return the text without space around it; empty for a missing or nil element."""
    return whole_text(element).strip()


def whole_text(element: ElementTree.Element | None) -> str:
    """Return the text with the space around it, which counts in comparisons of properties."""
    return "" if element is None or is_nil(element) else element.text or ""


def is_nil(element: ElementTree.Element) -> bool:
    return element.get(f"{{{INSTANCE}}}nil") == "true"


def _read(part: Part, read: Callable[[Input], object], given: Input) -> object:
    try:
        return read(given)
    except ValueError as error:
        raise DescriptionError(f"{part.element}: {error}") from error


def _write_counts(root: ElementTree.Element, entity: Entity, prefix: str) -> None:
    details = ElementTree.SubElement(root, "CountDetails", {f"xmlns:{prefix}": COUNTS})
    for name, value in count_details(entity).items():
        add_child(details, f"{prefix}:{name}", str(value))


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


def read_span(text: str) -> timedelta:
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
SPAN = Codec(read_span, lambda value, _: write_duration(value))
FORWARD = Codec(_read_path, lambda value, authority: f"sb://{authority}/{value}")

_ANONYMOUS = ReadOnlyElement("IsAnonymousAccessible", lambda _: "false")
_ORDERED = ReadOnlyElement("SupportOrdering", lambda entity: "false" if entity.settings.enable_partitioning else "true")
_AVAILABLE = ReadOnlyElement("EntityAvailabilityStatus", lambda _: "Available")
_LOCK = Setting("LockDuration", "lock_duration", SPAN)
_MAX_SIZE = Setting("MaxSizeInMegabytes", "max_size_mb", INT, shown=lambda entity: entity.settings.total_size_mb)
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
ZONELESS_NEVER: Final = "0001-01-01T00:00:00"
"""The form of NEVER in answers to changes."""


_FINEST: Final = 6
"""The digits of a time's fraction in subscriptions and rules."""


def _absent(_: float) -> None:
    return None


def write_finest(epoch_seconds: float) -> str:
    return write_time(epoch_seconds, _FINEST)


def _accessed(entity: Queue | Topic) -> str:
    """Return the time of the latest use; without any, the year 1."""
    return NEVER if entity.accessed_at <= entity.created_at else write_time(entity.accessed_at)


FIRST_RULE = "DefaultRuleDescription"
_SIZE = ReadOnlyElement("SizeInBytes", lambda entity: str(entity.size_bytes))
_COUNT = ReadOnlyElement("MessageCount", lambda entity: str(entity.counts().total))
_TIMES = (
    ReadOnlyElement("CreatedAt", lambda entity: write_time(entity.created_at)),
    ReadOnlyElement("UpdatedAt", lambda entity: write_time(entity.updated_at)),
    ReadOnlyElement("AccessedAt", lambda entity: _accessed(entity), made=_absent),
)
_SUBSCRIPTION_TIMES = (
    ReadOnlyElement("CreatedAt", lambda entity: write_finest(entity.created_at), made=write_finest),
    ReadOnlyElement("UpdatedAt", lambda entity: write_finest(entity.updated_at), made=write_finest),
    ReadOnlyElement(
        "AccessedAt", lambda entity: write_time(entity.accessed_at), made=lambda _: NEVER.removesuffix("Z")
    ),
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
        *(_SIZE, _COUNT, _ANONYMOUS, ACCESS_RULES, _STATUS, _FORWARD_TO, *_TIMES, _METADATA, _ORDERED, COUNT_DETAILS),
        *(_IDLE, _PARTITIONED, _AVAILABLE, _FORWARD_DEAD, _EXPRESS, _MESSAGE_SIZE),
    ),
)
TOPIC = Kind(
    "TopicDescription",
    TopicSettings,
    (
        *(_TTL, _MAX_SIZE, _DUPLICATES, _WINDOW, _BATCHED, _SIZE),
        Setting("FilteringMessagesBeforePublishing", "filtering_messages_before_publishing", BOOL),
        *(_ANONYMOUS, ACCESS_RULES, _STATUS, *_TIMES, _METADATA),
        Setting("SupportOrdering", "support_ordering", BOOL),
        COUNT_DETAILS,
        ReadOnlyElement("SubscriptionCount", lambda topic: str(len(topic.subscriptions)), made=_absent),
        ReadOnlyElement("SqlFilterCount", lambda topic: str(_filters(topic)[0]), since="2024-05", made=_absent),
        ReadOnlyElement("CorrelationFilterCount", lambda topic: str(_filters(topic)[1]), since="2024-05", made=_absent),
        *(_IDLE, _PARTITIONED),
        ReadOnlyElement("EntityAvailabilityStatus", lambda _: "Available", unsent="Unknown"),
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
        ReadOnlyElement(FIRST_RULE, lambda _: None),
        ReadOnlyElement("MessageCount", lambda entity: str(entity.counts().total), made=lambda _: "0"),
        *(_DELIVERIES, _BATCHED, _STATUS, _FORWARD_TO, *_SUBSCRIPTION_TIMES, _METADATA, COUNT_DETAILS),
        *(_FORWARD_DEAD, _IDLE, _AVAILABLE),
        ReadOnlyElement("IsClientAffine", lambda _: "false", since="2021-05"),
    ),
)
_KINDS = (QUEUE, TOPIC, SUBSCRIPTION)


def kind_of(described: ElementTree.Element | EntitySettings) -> Kind:
    """Return the kind of an element or of settings. Raises DescriptionError."""
    if not isinstance(described, ElementTree.Element):
        return next(kind for kind in _KINDS if isinstance(described, kind.settings))
    for kind in _KINDS:
        if described.tag == f"{{{CONNECT}}}{kind.element}":
            return kind
    raise DescriptionError(f"<{described.tag}> is none of {', '.join(kind.element for kind in _KINDS)} in {CONNECT}")


def element_of(field: str) -> str:
    """Return the element of a setting; other words are unchanged."""
    settings = (part for kind in _KINDS for part in kind.parts if isinstance(part, Setting))
    return next((part.element for part in settings if part.field == field), field)


def named_sentence(error: Exception) -> str:
    """Return the sentence of an error; a setting is called by its element."""
    field = getattr(error, "field", "")
    return str(error).replace(field, element_of(field), 1) if field else str(error)


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
        add_child(root, name, text)
    return root


def new_description(element: str) -> ElementTree.Element:
    """Return an empty description."""
    return ElementTree.Element(element, {"xmlns": CONNECT, "xmlns:i": INSTANCE})


# Atom envelopes of management answers, and the parser of clients' entries.
#
# Documents with a DOCTYPE are refused, so entities are never expanded.

ATOM = "http://www.w3.org/2005/Atom"


class AtomError(Exception):
    """A body that is not an Atom entry with XML content; the message names the flaw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomEntry:
    """One entity in its envelope; times are epoch seconds.

    address: its URL. link: the address for a client, relative to `base` in a list.
    author, published: None where the service has none.
    """

    address: str
    link: str
    title: str
    updated: float
    content: ElementTree.Element
    author: str | None = None
    published: float | None = None
    base: str | None = None


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
    content = root.find(f"{{{ATOM}}}content") if root.tag == f"{{{ATOM}}}entry" else None
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
    add_child(feed, "title", title, type="text")
    add_child(feed, "id", address)
    add_child(feed, "updated", write_time(now, 0))
    add_child(feed, "link", rel="self", href=address)
    if next_page is not None:  # clients take the second link for the next page
        add_child(feed, "link", rel="next", href=next_page)
    feed.extend(_entry(entry) for entry in entries)
    return _document(feed)


NOTHING_HERE = "Publicly Listed Services"
"""The title of the feed for a missing entity; some clients search for it."""


def missing_document(now: float) -> bytes:
    """Return the feed in place of a missing entity."""
    feed = ElementTree.Element("feed", {"xmlns": ATOM})
    add_child(feed, "title", NOTHING_HERE, type="text")
    add_child(feed, "subtitle", "no entity has this address", type="text")
    add_child(feed, "id", f"uuid:{uuid.uuid4()};id=1")
    add_child(feed, "updated", write_time(now, 0))
    add_child(feed, "generator", "Service Bus 1.1")
    return _document(feed)


def error_document(status: int, detail: str) -> bytes:
    """Return the body of a refusal: the HTTP status as code, and one sentence."""
    error = ElementTree.Element("Error")
    add_child(error, "Code", str(status))
    add_child(error, "Detail", "".join(one if one.isprintable() or one in "\r\n" else "?" for one in detail))
    return _document(error)


def _entry(entry: AtomEntry) -> ElementTree.Element:
    element = ElementTree.Element("entry", {"xmlns": ATOM} | ({"xml:base": entry.base} if entry.base else {}))
    add_child(element, "id", entry.address)
    add_child(element, "title", entry.title, type="text")
    if entry.published is not None:
        add_child(element, "published", write_time(entry.published, 0))
    add_child(element, "updated", write_time(entry.updated, 0))
    if entry.author is not None:
        add_child(add_child(element, "author"), "name", entry.author)
    add_child(element, "link", rel="self", href=entry.link)
    add_child(element, "content", type="application/xml").append(entry.content)
    return element


def add_child(parent: ElementTree.Element, tag: str, text: str | None = None, **attributes: str) -> ElementTree.Element:
    child = ElementTree.SubElement(parent, tag, attributes)
    child.text = text
    return child


def _document(root: ElementTree.Element) -> bytes:
    return ElementTree.tostring(root, encoding="unicode").encode()
