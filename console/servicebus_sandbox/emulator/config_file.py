"""The official emulator's `config.json`: one namespace with its queues, topics, subscriptions and rules.

Names, nesting and defaults are the official ones; ranges are the service's, which are wider. A trial broker finds
contradictions, so that each is reported with the path inside the file.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from servicebus_sandbox.broker.broker_errors import BrokerError, EntityExists, EntityNotFound
from servicebus_sandbox.broker.entity_settings import QueueSettings, SubscriptionSettings, TopicSettings
from servicebus_sandbox.broker.subscription_rules.filters import CorrelationFilter, Filter, SqlAction, SqlFilter
from servicebus_sandbox.broker.subscription_rules.rules import DEFAULT_RULE, Rule
from servicebus_sandbox.broker.topology.messaging_entities import Subscription
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace
from servicebus_sandbox.emulator.json_place import JsonPlace
from servicebus_sandbox.specs import NamespaceSpec, QueueSpec, SubscriptionSpec, TopicSpec

log = logging.getLogger(__name__)

NAMESPACE: Final = "sbemulatorns"
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,48}[A-Za-z0-9])?")
_ENTITY: Final = ("Name", "Properties")
_SQL, _CORRELATION = "Sql", "Correlation"
_TARGETS: Final = ("ForwardTo", "ForwardDeadLetteredMessagesTo")

Property = tuple[str, Callable[[JsonPlace], Any]]


def _target(place: JsonPlace) -> str | None:
    return place.text() or None


_ANY: Final[Mapping[str, Property]] = {"DefaultMessageTimeToLive": ("default_ttl", JsonPlace.duration)}
_SENDING: Final[Mapping[str, Property]] = {
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_window", JsonPlace.duration),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", JsonPlace.flag),
}
_RECEIVING: Final[Mapping[str, Property]] = {
    "DeadLetteringOnMessageExpiration": ("dead_letter_on_expiration", JsonPlace.flag),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_lettered_to", _target),
    "ForwardTo": ("forward_to", _target),
    "LockDuration": ("lock_duration", JsonPlace.duration),
    "MaxDeliveryCount": ("max_delivery_count", JsonPlace.integer),
    "RequiresSession": ("requires_session", JsonPlace.flag),
}
_QUEUE: Final = {**_ANY, **_SENDING, **_RECEIVING}
_TOPIC: Final = {**_ANY, **_SENDING}
_SUBSCRIPTION: Final = {**_ANY, **_RECEIVING}
_DEFAULTS: Final[Mapping[str, Any]] = {
    "default_ttl": timedelta(hours=1),
    "duplicate_window": timedelta(seconds=20),
    "lock_duration": timedelta(minutes=1),
    "max_delivery_count": 3,
}
"""The official emulator's defaults; the service's differ."""
_CORRELATED: Final = {
    "ContentType": "content_type",
    "CorrelationId": "correlation_id",
    "Label": "label",
    "MessageId": "message_id",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "SessionId": "session_id",
    "To": "to",
}


def default_namespace() -> NamespaceSpec:
    """Return the entities that the official emulator has without a file of one's own."""
    sql = SqlFilter("sys.MessageId = '123456' AND userProp1 = 'value1'")
    rules = (
        (Rule(name="app-prop-filter-1", filter=CorrelationFilter(content_type="application/json")),),
        (Rule(name="user-prop-filter-1", filter=CorrelationFilter(properties={"prop1": "value1"})),),
        (Rule(),),
        (Rule(name="sql-filter-1", filter=sql, action=SqlAction("SET sys.To = 'Entity'")),),
    )
    settings = SubscriptionSettings(**_defaults(_SUBSCRIPTION))
    subscriptions = [SubscriptionSpec(f"subscription.{n}", settings, each) for n, each in enumerate(rules, 1)]
    return NamespaceSpec(
        NAMESPACE,
        queues=(QueueSpec("queue.1", QueueSettings(**_defaults(_QUEUE))),),
        topics=(TopicSpec("topic.1", subscriptions, TopicSettings(**_defaults(_TOPIC))),),
    )


def load_config(path: Path) -> NamespaceSpec:
    """Return the namespace in the file. Raises SandboxConfigError."""
    config = JsonPlace.read(path).members(["UserConfig"], required=["UserConfig"])["UserConfig"]
    given = config.members(["Namespaces", "Logging"], required=["Namespaces"])
    namespaces = given["Namespaces"].items()
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
        return given[name].items() if name in given else []

    def _queue(self, place: JsonPlace) -> QueueSpec:
        given = place.members(_ENTITY, required=["Name"])
        path = given["Name"].text()
        settings = self._settings(place, QueueSettings, _QUEUE, path)
        with _complaining(given["Name"]):
            self._trial.create_queue(path, settings)
        return QueueSpec(path, settings)

    def _topic(self, place: JsonPlace) -> TopicSpec:
        given = place.members([*_ENTITY, "Subscriptions"], required=["Name"])
        path = given["Name"].text()
        settings = self._settings(place, TopicSettings, _TOPIC, path)
        with _complaining(given["Name"]):
            self._trial.create_topic(path, settings)
        subscriptions = tuple(self._subscription(path, each) for each in self._items(given, "Subscriptions"))
        return TopicSpec(path, subscriptions, settings)

    def _subscription(self, topic: str, place: JsonPlace) -> SubscriptionSpec:
        given = place.members([*_ENTITY, "Rules"], required=["Name"])
        name = given["Name"].text()
        settings = self._settings(place, SubscriptionSettings, _SUBSCRIPTION, f"{topic}/subscriptions/{name}")
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

    def _settings(self, entity: JsonPlace, kind: type, properties: Mapping[str, Property], owner: str) -> Any:
        """Return the settings in `Properties`, completed by the official defaults."""
        whole = entity.member("Properties")
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
            return kind(**_defaults(properties) | values)
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


def _defaults(properties: Mapping[str, Property]) -> dict[str, Any]:
    return {field: _DEFAULTS[field] for field, _ in properties.values() if field in _DEFAULTS}


def _read_rule(name: str, place: JsonPlace) -> Rule:
    known = ("FilterType", "SqlFilter", "CorrelationFilter", "Action")
    given = place.members(known, required=["FilterType"])
    kind = given["FilterType"].choice([_CORRELATION, _SQL])
    wanted, other = ("SqlFilter", "CorrelationFilter") if kind == _SQL else ("CorrelationFilter", "SqlFilter")
    if other in given:
        raise given[other].wrong(f'FilterType is "{kind}"; leave this out, or change FilterType')
    if wanted not in given:
        raise place.member(wanted).wrong(f'it is missing, and FilterType is "{kind}"')
    chosen = _sql_filter(given[wanted]) if kind == _SQL else _correlation_filter(given[wanted])
    return Rule(name=name, filter=chosen, action=_action(given["Action"]) if "Action" in given else None)


def _sql_filter(place: JsonPlace) -> Filter:
    text = place.members(["SqlExpression"], required=["SqlExpression"])["SqlExpression"]
    with _complaining(text):
        return SqlFilter(text.text())


def _action(place: JsonPlace) -> SqlAction:
    text = place.members(["SqlExpression"], required=["SqlExpression"])["SqlExpression"]
    with _complaining(text):
        return SqlAction(text.text())


def _correlation_filter(place: JsonPlace) -> Filter:
    given = place.members([*_CORRELATED, "Properties"])
    values = {field: given[name].text() for name, field in _CORRELATED.items() if name in given}
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
