"""The official emulator's `config.json`: one namespace with its queues, topics, subscriptions and rules.

Names, nesting and defaults are the official ones; ranges are the service's, which are wider. A trial broker finds
contradictions, so that each is reported with the path inside the file.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from servicebus_sandbox.atom import entity_xml as xml
from servicebus_sandbox.atom.entity_xml import Kind
from servicebus_sandbox.atom.rule_xml import CORRELATED
from servicebus_sandbox.broker.broker_errors import BrokerError, EntityExists, EntityNotFound
from servicebus_sandbox.broker.entity_settings import QueueSettings, SubscriptionSettings, TopicSettings
from servicebus_sandbox.broker.subscription_rules.rules import (
    DEFAULT_RULE,
    CorrelationFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
)
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace, Subscription
from servicebus_sandbox.spec_file import FileValue, nearest
from servicebus_sandbox.specs import NamespaceSpec, QueueSpec, SandboxConfigError, SubscriptionSpec, TopicSpec

# A value of a JSON file with its path, so that every mistake is one sentence with the place.
#
# As in the official emulator's file, `//` and `/* */` comments and a comma before a closing bracket are allowed.

Made = TypeVar("Made", SqlFilter, SqlAction)

_STRING: Final = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT: Final = r"//[^\n]*|/\*.*?\*/"
_BLANKED: Final = re.compile(rf"{_STRING}|(?P<comment>{_COMMENT})", re.DOTALL)
_LAST_COMMA: Final = re.compile(rf"{_STRING}|(?P<comma>,)(?=\s*[\]}}])", re.DOTALL)
_NOT_BLANK: Final = re.compile(r"[^\n]")


class JsonObject(dict[str, Any]):
    """An object of the file; `repeated` has its names that occur more than once."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        listed = list(pairs)
        super().__init__(listed)
        names = [name for name, _ in listed]
        self.repeated = sorted({name for name in names if names.count(name) > 1})


class JsonPlace(FileValue):
    """A value at `path` of `file`. Every method raises SandboxConfigError for a value of another kind."""

    def __init__(self, value: object, file: str, path: str = "") -> None:
        super().__init__(value, f"{file}: {path or 'the whole file'}")
        self._file = file
        self.path = path

    @classmethod
    def read(cls, file: Path) -> JsonPlace:
        """Return the whole file. Raises SandboxConfigError."""
        try:
            text = file.read_text(encoding="utf-8-sig")
            return cls(json.loads(_without_comments(text), object_pairs_hook=JsonObject), str(file))
        except OSError as error:
            raise SandboxConfigError(f"{file} cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or nested too deeply
            raise SandboxConfigError(f"{file} is not JSON: {error}") from error

    def members(self, known: Iterable[str], *, required: Iterable[str] = ()) -> dict[str, JsonPlace]:
        """Return the members of an object by name, without those that are null."""
        values = self.of(JsonObject, "an object in braces")
        if values.repeated:
            raise self.member(values.repeated[0]).wrong("the name occurs twice in this object; remove one of the two")
        allowed = tuple(known)
        for name in values:
            if name not in allowed:
                raise self.member(name).wrong(f"there is nothing of this name; {nearest(name, allowed)}")
        for name in required:
            if values.get(name) is None:
                raise self.member(name).wrong("it is missing")
        return {name: self.member(name) for name, value in values.items() if value is not None}

    def member(self, name: str) -> JsonPlace:
        """Return the place of a member, whether it exists or not."""
        return self.below(name, self._value.get(name) if isinstance(self._value, Mapping) else None)

    def below(self, name: str, value: object) -> JsonPlace:
        return JsonPlace(value, self._file, f"{self.path}.{name}" if self.path else name)

    def entries(self) -> list[JsonPlace]:
        """Return the items of a list."""
        values = self.of(list, "a list in brackets")
        return [JsonPlace(value, self._file, f"{self.path}[{number}]") for number, value in enumerate(values)]


def _without_comments(text: str) -> str:
    """Blank the comments and the last commas, so that errors have the line and column of the file."""
    text = _BLANKED.sub(lambda found: _blank(found, "comment"), text)
    return _LAST_COMMA.sub(lambda found: _blank(found, "comma"), text)


def _blank(found: re.Match[str], group: str) -> str:
    return found[0] if found[group] is None else _NOT_BLANK.sub(" ", found[0])


log = logging.getLogger(__name__)

NAMESPACE: Final = "sbemulatorns"
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,48}[A-Za-z0-9])?")
_ENTITY: Final = ("Name", "Properties")
_SQL, _CORRELATION = "Sql", "Correlation"
_TARGETS: Final = ("ForwardTo", "ForwardDeadLetteredMessagesTo")

Property = tuple[str, Callable[[JsonPlace], Any]]


def _target(place: JsonPlace) -> str | None:
    return place.text() or None


_READERS: Final = {xml.BOOL: JsonPlace.flag, xml.INT: JsonPlace.integer, xml.FORWARD: _target}
_KNOWN: Final = (
    *("DefaultMessageTimeToLive", "DuplicateDetectionHistoryTimeWindow", "RequiresDuplicateDetection"),
    *("DeadLetteringOnMessageExpiration", *reversed(_TARGETS), "LockDuration", "MaxDeliveryCount", "RequiresSession"),
)


def _properties(kind: Kind) -> dict[str, Property]:
    """Return the settings that the official emulator knows, by their names, which are the XML's."""
    parts = {part.element: part for part in kind.parts if isinstance(part, xml.Setting)}
    known = [parts[name] for name in _KNOWN if name in parts]
    return {part.element: (part.field, _READERS.get(part.codec, JsonPlace.duration)) for part in known}


_DEFAULTS: Final[Mapping[str, Any]] = {
    "default_ttl": timedelta(hours=1),
    "duplicate_window": timedelta(seconds=20),
    "lock_duration": timedelta(minutes=1),
    "max_delivery_count": 3,
}
"""The official emulator's defaults; the service's differ."""


def default_namespace() -> NamespaceSpec:
    """Return the entities that the official emulator has without a file of one's own."""
    sql = SqlFilter("sys.MessageId = '123456' AND userProp1 = 'value1'")
    rules = (
        (Rule(name="app-prop-filter-1", filter=CorrelationFilter(content_type="application/json")),),
        (Rule(name="user-prop-filter-1", filter=CorrelationFilter(properties={"prop1": "value1"})),),
        (Rule(),),
        (Rule(name="sql-filter-1", filter=sql, action=SqlAction("SET sys.To = 'Entity'")),),
    )
    settings = SubscriptionSettings(**_defaults(xml.SUBSCRIPTION))
    subscriptions = [SubscriptionSpec(f"subscription.{n}", settings, each) for n, each in enumerate(rules, 1)]
    return NamespaceSpec(
        NAMESPACE,
        queues=(QueueSpec("queue.1", QueueSettings(**_defaults(xml.QUEUE))),),
        topics=(TopicSpec("topic.1", subscriptions, TopicSettings(**_defaults(xml.TOPIC))),),
    )


def load_config(path: Path) -> NamespaceSpec:
    """Return the namespace in the file. Raises SandboxConfigError."""
    config = JsonPlace.read(path).members(["UserConfig"], required=["UserConfig"])["UserConfig"]
    given = config.members(["Namespaces", "Logging"], required=["Namespaces"])
    namespaces = given["Namespaces"].entries()
    if len(namespaces) != 1:
        raise given["Namespaces"].wrong(
            f"it holds {len(namespaces)} namespaces, and exactly one is served; "
            "several take a TOML file, without --emulator"
        )
    spec = _ConfiguredNamespace(namespaces[0]).read()
    if "Logging" in given:
        log.warning("%s: %s is ignored: the log goes to standard error", path, given["Logging"].path)
    return spec


class _ConfiguredNamespace:
    """One namespace of the file, with a trial broker that gets its entities one by one."""

    def __init__(self, place: JsonPlace) -> None:
        self._given = place.members(["Name", "Queues", "Topics"], required=["Name"])
        self._name = self._given["Name"].text()
        if not _NAME.fullmatch(self._name):
            raise self._given["Name"].wrong(
                "it may have up to 50 letters, digits, dots, hyphens and underscores, between letters or digits"
            )
        self._trial = BrokerNamespace(self._name, clock=lambda: 0.0)
        self._targets: list[tuple[JsonPlace, str, str]] = []

    def read(self) -> NamespaceSpec:
        queues = tuple(self._queue(each) for each in self._items(self._given, "Queues"))
        topics = tuple(self._topic(each) for each in self._items(self._given, "Topics"))
        for place, owner, target in self._targets:
            self._check_target(place, owner, target)
        return NamespaceSpec(self._name, queues=queues, topics=topics)

    @staticmethod
    def _items(given: Mapping[str, JsonPlace], name: str) -> list[JsonPlace]:
        return given[name].entries() if name in given else []

    def _queue(self, place: JsonPlace) -> QueueSpec:
        given = place.members(_ENTITY, required=["Name"])
        path = given["Name"].text()
        settings = self._settings(place, xml.QUEUE, path)
        with _complaining(given["Name"]):
            self._trial.create_queue(path, settings)
        return QueueSpec(path, settings)

    def _topic(self, place: JsonPlace) -> TopicSpec:
        given = place.members([*_ENTITY, "Subscriptions"], required=["Name"])
        path = given["Name"].text()
        settings = self._settings(place, xml.TOPIC, path)
        with _complaining(given["Name"]):
            self._trial.create_topic(path, settings)
        subscriptions = tuple(self._subscription(path, each) for each in self._items(given, "Subscriptions"))
        return TopicSpec(path, subscriptions, settings)

    def _subscription(self, topic: str, place: JsonPlace) -> SubscriptionSpec:
        given = place.members([*_ENTITY, "Rules"], required=["Name"])
        name = given["Name"].text()
        settings = self._settings(place, xml.SUBSCRIPTION, f"{topic}/subscriptions/{name}")
        with _complaining(given["Name"]):
            self._trial.create_subscription(topic, name, settings)
            self._trial.delete_rule(topic, name, DEFAULT_RULE)
        rules = tuple(self._rule(topic, name, each) for each in self._items(given, "Rules"))
        return SubscriptionSpec(name, settings, rules or (Rule(),))

    def _rule(self, topic: str, subscription: str, place: JsonPlace) -> Rule:
        given = place.members(_ENTITY, required=["Name", "Properties"])
        rule = _read_rule(given["Name"].text(), given["Properties"])
        with _complaining(given["Name"]):
            self._trial.create_rule(topic, subscription, rule)
        return rule

    def _settings(self, entity: JsonPlace, kind: Kind, owner: str) -> Any:
        """Return the settings in `Properties`, completed by the official defaults."""
        whole, properties = entity.member("Properties"), _properties(kind)
        given = entity.members([*_ENTITY, "Subscriptions", "Rules"])
        places = whole.members(properties) if "Properties" in given else {}
        values = {field: read(places[name]) for name, (field, read) in properties.items() if name in places}
        names = {field: name for name, (field, _) in properties.items()}
        for name in _TARGETS:
            if name in places and values[properties[name][0]]:
                self._targets.append((places[name], owner, values[properties[name][0]]))
        if values.get("requires_session") and values.get("forward_to"):
            raise places["ForwardTo"].wrong(
                "an entity with RequiresSession cannot forward its messages; choose one of the two"
            )
        if "lock_duration" in values and values["lock_duration"] is None:
            raise places["LockDuration"].wrong("it is unlimited; allowed is more than 0, at most PT5M")
        if "duplicate_window" in values and values["duplicate_window"] is None:
            raise places["DuplicateDetectionHistoryTimeWindow"].wrong("it is unlimited; allowed is at most P7D")
        try:
            return kind.settings(**_defaults(kind) | values)
        except BrokerError as error:
            field, _, rest = str(error).partition(" ")
            raise (whole.member(names[field]) if field in names else whole).wrong(f"it {rest}") from error

    def _check_target(self, place: JsonPlace, owner: str, target: str) -> None:
        try:
            entity = self._trial.entity(target)
        except EntityNotFound as error:
            raise place.wrong(f"'{target}' is no queue or topic of this file; add it, or leave this out") from error
        if isinstance(entity, Subscription):
            raise place.wrong(f"'{target}' is a subscription; messages can be forwarded to queues and topics")
        if target.lower() == owner.lower():
            raise place.wrong(f"'{target}' would forward to itself; name another entity, or leave this out")


def _defaults(kind: Kind) -> dict[str, Any]:
    return {field: _DEFAULTS[field] for field, _ in _properties(kind).values() if field in _DEFAULTS}


def _read_rule(name: str, place: JsonPlace) -> Rule:
    known = ("FilterType", "SqlFilter", "CorrelationFilter", "Action")
    given = place.members(known, required=["FilterType"])
    kind = given["FilterType"].choice([_CORRELATION, _SQL])
    wanted, other = ("SqlFilter", "CorrelationFilter") if kind == _SQL else ("CorrelationFilter", "SqlFilter")
    if other in given:
        raise given[other].wrong(f'FilterType is "{kind}"; leave this out, or change FilterType')
    if wanted not in given:
        raise place.member(wanted).wrong(f'it is missing, and FilterType is "{kind}"')
    chosen: Filter = _expression(given[wanted], SqlFilter) if kind == _SQL else _correlation_filter(given[wanted])
    return Rule(name=name, filter=chosen, action=_expression(given["Action"], SqlAction) if "Action" in given else None)


def _expression(place: JsonPlace, make: Callable[[str], Made]) -> Made:
    """Return what `make` makes of an object's SqlExpression."""
    text = place.members(["SqlExpression"], required=["SqlExpression"])["SqlExpression"]
    with _complaining(text):
        return make(text.text())


def _correlation_filter(place: JsonPlace) -> Filter:
    given = place.members([*CORRELATED, "Properties"])
    values = {field: given[name].text() for name, field in CORRELATED.items() if name in given}
    properties = given["Properties"].scalars() if "Properties" in given else {}
    with _complaining(place):
        return CorrelationFilter(**values, properties=properties)


@contextmanager
def _complaining(place: JsonPlace) -> Iterator[None]:
    """Raise the broker's refusals as errors of this place."""
    try:
        yield
    except EntityExists as error:
        raise place.wrong(f"{error}; names need to differ by more than case") from error
    except BrokerError as error:
        raise place.wrong(str(error)) from error
