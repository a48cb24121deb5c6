"""`paired sandbox --config FILE`: namespaces and their contents, declared in TOML.

Each `[[namespace]]` has a name, and may have tier, region, port, keys, pings, queues and topics. A queue, topic or
subscription is a name or a table of properties with the SDK's names. Every mistake is one sentence: file, place, flaw
and remedy. The broker validates the values.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from servicebus_sandbox.atom.key_xml import new_key
from servicebus_sandbox.broker.authorization_rules import AuthorizationRule, Right
from servicebus_sandbox.broker.entity_settings import (
    EntityStatus,
    Pings,
    QueueSettings,
    SubscriptionSettings,
    Tier,
    TopicSettings,
)
from servicebus_sandbox.broker.subscription_rules.filters import (
    CORRELATION_FIELDS,
    CorrelationFilter,
    Filter,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from servicebus_sandbox.broker.subscription_rules.rules import Rule
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace
from servicebus_sandbox.specs import NamespaceSpec, QueueSpec, SubscriptionSpec, TopicSpec
from servicebus_sandbox.toml_table import SandboxConfigError, TomlTable

Settings = TypeVar("Settings", QueueSettings, TopicSettings, SubscriptionSettings)
Property = tuple[str, Callable[[TomlTable, str], Any]]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,49}")
_LAST_PORT: Final = 65535


def load_specs(path: Path) -> tuple[NamespaceSpec, ...]:
    """Return the namespaces in the file. Raises SandboxConfigError."""
    whole = TomlTable(_parse(path), str(path))
    specs = tuple(_namespace(table) for table in whole.tables("namespace"))
    whole.end()
    if not specs:
        raise whole.wrong("there is no [[namespace]]; declare at least one, with a name")
    ports = [str(spec.port) for spec in specs if spec.port]
    for field, values in (("name", [spec.name.lower() for spec in specs]), ("port", ports)):
        twice = [value for value in values if values.count(value) > 1]
        if twice:
            raise whole.wrong(f"two namespaces have the {field} {twice[0]}; give each one of its own")
    return specs


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SandboxConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or nested too deeply
        raise SandboxConfigError(f"{path} is not TOML: {error}") from error


def _namespace(table: TomlTable) -> NamespaceSpec:
    name = table.text("name")
    table = table.called(f"namespace '{name}'")
    if not _NAME.fullmatch(name):
        raise table.wrong("the name may have up to 50 letters, digits and hyphens, and begins with a letter")
    spec = NamespaceSpec(
        name,
        queues=tuple(_queue(each) for each in table.named("queues", "queue")),
        topics=tuple(_topic(each) for each in table.named("topics", "topic")),
        tier=table.choice("tier", Tier, Tier.STANDARD),
        port=table.integer("port", 0),
        region=table.text("region", NamespaceSpec(name).region),
        rules=_keys(table),
        pings=table.choice("pings", Pings, Pings.DROPPED),
    )
    table.end()
    if not 0 <= spec.port <= _LAST_PORT:
        raise table.wrong(f"port is {spec.port}; allowed is 0, for any that is free, to {_LAST_PORT}")
    with table.complaining():
        spec.fill(BrokerNamespace(name, clock=lambda: 0.0, tier=spec.tier))
    return spec


def _queue(table: TomlTable) -> QueueSpec:
    path, keys = table.text("name"), _keys(table)
    return QueueSpec(path, _settings(table, QueueSettings, _QUEUE, authorization_rules=keys))


def _topic(table: TomlTable) -> TopicSpec:
    path, keys = table.text("name"), _keys(table)
    subscriptions = tuple(_subscription(each) for each in table.named("subscriptions", "subscription"))
    return TopicSpec(path, subscriptions, _settings(table, TopicSettings, _TOPIC, authorization_rules=keys))


def _subscription(table: TomlTable) -> SubscriptionSpec:
    name, has_rules = table.text("name"), "rules" in table
    rules = tuple(_rule(each) for each in table.named("rules", "rule"))
    settings = _settings(table, SubscriptionSettings, _SUBSCRIPTION)
    return SubscriptionSpec(name, settings, rules) if has_rules else SubscriptionSpec(name, settings)


def _settings(table: TomlTable, kind: type[Settings], properties: Mapping[str, Property], **more: Any) -> Settings:
    """Return the remaining values of the table as settings of this kind."""
    values = {field: read(table, name) for name, (field, read) in properties.items() if name in table}
    table.end(properties)
    with table.complaining({field: name for name, (field, _) in properties.items()}):
        return kind(**values, **more)


def _keys(table: TomlTable) -> tuple[AuthorizationRule, ...]:
    return tuple(_key(each) for each in table.named("keys", "key"))


def _key(table: TomlTable) -> AuthorizationRule:
    name, rights = table.text("name"), table.choices("rights", Right)
    primary, secondary = table.text("primary_key"), table.text("secondary_key", new_key())
    table.end()
    with table.complaining():
        return AuthorizationRule(name=name, rights=frozenset(rights), primary_key=primary, secondary_key=secondary)


def _rule(table: TomlTable) -> Rule:
    name, parameters = table.text("name"), table.scalars("parameters")
    sql, action = table.text("sql", ""), table.text("action", "")
    correlation = [_correlation(each) for each in table.tables("correlation")]
    table.end()
    if sql and correlation:
        raise table.wrong("it filters by sql and by correlation; leave one of them out")
    with table.complaining():
        chosen: Filter = SqlFilter(sql, parameters) if sql else correlation[0] if correlation else TrueFilter()
        return Rule(name=name, filter=chosen, action=SqlAction(action, parameters) if action else None)


def _correlation(table: TomlTable) -> CorrelationFilter:
    wanted = {name: table.text(name) for name in CORRELATION_FIELDS if name in table}
    properties = table.scalars("properties")
    table.end(CORRELATION_FIELDS)
    with table.complaining():
        return CorrelationFilter(**wanted, properties=properties)


_SENDING: Final[Mapping[str, Property]] = {
    "max_size_in_megabytes": ("max_size_mb", TomlTable.integer),
    "requires_duplicate_detection": ("requires_duplicate_detection", TomlTable.flag),
    "duplicate_detection_history_time_window": ("duplicate_window", TomlTable.duration),
    "enable_partitioning": ("enable_partitioning", TomlTable.flag),
    "enable_express": ("enable_express", TomlTable.flag),
    "max_message_size_in_kilobytes": ("max_message_size_kb", TomlTable.integer),
}
_RECEIVING: Final[Mapping[str, Property]] = {
    "lock_duration": ("lock_duration", TomlTable.duration),
    "requires_session": ("requires_session", TomlTable.flag),
    "dead_lettering_on_message_expiration": ("dead_letter_on_expiration", TomlTable.flag),
    "max_delivery_count": ("max_delivery_count", TomlTable.integer),
    "forward_to": ("forward_to", TomlTable.text),
    "forward_dead_lettered_messages_to": ("forward_dead_lettered_to", TomlTable.text),
}
_ANY: Final[Mapping[str, Property]] = {
    "default_message_time_to_live": ("default_ttl", TomlTable.duration),
    "auto_delete_on_idle": ("auto_delete_on_idle", TomlTable.duration),
    "enable_batched_operations": ("enable_batched_operations", TomlTable.flag),
    "status": ("status", lambda table, name: table.choice(name, EntityStatus)),
    "user_metadata": ("user_metadata", TomlTable.text),
}
_QUEUE: Final = {**_SENDING, **_RECEIVING, **_ANY}
_TOPIC: Final = {**_SENDING, **_ANY, "support_ordering": ("support_ordering", TomlTable.flag)}
_SUBSCRIPTION: Final = {
    **_RECEIVING,
    **_ANY,
    "dead_lettering_on_filter_evaluation_exceptions": ("dead_letter_on_filter_errors", TomlTable.flag),
}
