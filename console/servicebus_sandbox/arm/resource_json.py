"""The JSON of entities, rules and authorization rules in Azure Resource Manager, both ways.

Entities follow the tables of `atom.entity_xml`: a property has the XML element's name with a small first letter.
Addresses and answers are in the handlers.
"""

from __future__ import annotations

from typing import Any

from servicebus_sandbox.atom.entity_xml import (
    BOOL,
    FORWARD,
    INT,
    CountDetails,
    DescriptionError,
    Kind,
    ReadOnlyElement,
    Setting,
    count_details,
    new_key,
    shown,
    write_time,
)
from servicebus_sandbox.broker.entity_settings import FIXED, AuthorizationRule, EntitySettings, Right
from servicebus_sandbox.broker.subscription_rules import filters
from servicebus_sandbox.broker.subscription_rules.rules import Rule
from servicebus_sandbox.broker.topology.messaging_entities import Entity

Json = dict[str, Any]

_NUMBERS = ("SizeInBytes", "MessageCount", "SubscriptionCount")
_TIMES = ("CreatedAt", "UpdatedAt", "AccessedAt")
_CORRELATED = {field[0] + field.title().replace("_", "")[1:]: field for field in filters.CORRELATION_FIELDS}
_LEVEL = 20


def read_settings(kind: Kind, properties: Json, *, present: Entity | None) -> EntitySettings:
    """Return the settings in `properties`; missing ones are the default, or the present value if it is fixed.

    Authorization rules have their own addresses and stay. Raises DescriptionError and InvalidSettings.
    """
    values: Json = {}
    if present is not None:
        kept = (*FIXED, "authorization_rules")
        values = {name: getattr(present.settings, name) for name in kept if hasattr(present.settings, name)}
    for part in kind.parts:
        if isinstance(part, Setting):
            given = properties.get(_name(part.element))
            if given is not None:
                values[part.field] = _read_setting(part, given)
    return kind.settings(**values)


def write_entity(kind: Kind, entity: Entity) -> Json:
    """Return the properties of an entity."""
    found: Json = {}
    for part in kind.parts:
        match part:
            case Setting(element):
                value = shown(part, entity)
                written = None if value is None and part.codec is FORWARD else _write_setting(part, value)
                if written is not None:
                    found[_name(element)] = written
            case ReadOnlyElement(element, read) if element in _NUMBERS:
                found[_name(element)] = int(read(entity))
            case ReadOnlyElement(element, read) if element in _TIMES:
                found[_name(element)] = read(entity)
            case CountDetails():
                found["countDetails"] = {_name(name): number for name, number in count_details(entity).items()}
    return found


def _name(element: str) -> str:
    return element[0].lower() + element[1:]


def _read_setting(part: Setting, given: object) -> object:
    name = _name(part.element)
    wanted: type = bool if part.codec is BOOL else int if part.codec is INT else str
    if not isinstance(given, wanted) or (wanted is int and isinstance(given, bool)):
        raise DescriptionError(f"{name}: {given!r} is no {wanted.__name__}")
    if isinstance(given, str):
        check_text(name, given)
        try:
            return part.codec.read(given) if given else None
        except ValueError as error:
            raise DescriptionError(f"{name}: {error}") from error
    return given


def _write_setting(part: Setting, value: Any) -> object:
    if part.codec is FORWARD or isinstance(value, bool | int):
        return value
    if value is None and part.field in ("user_metadata", "max_message_size_kb"):
        return None
    return part.codec.write(value, "")


def check_text(name: str, text: str) -> None:
    """Raise DescriptionError for text that XML cannot carry to the other management interface."""
    if not all(character.isprintable() or character in "\t\n" for character in text):
        raise DescriptionError(f"{name}: {text!r} has characters that cannot be written")


# ---------------------------------------------------------------------- rules


def read_rule(name: str, properties: Json) -> Rule:
    """Return the rule in `properties`. Raises DescriptionError and FilterSyntaxError."""
    return Rule(name=name, filter=_read_filter(properties), action=_read_action(properties))


def write_rule(rule: Rule) -> Json:
    """Return the properties of a rule. True and false filters are written as SQL."""
    action = {} if rule.action is None else _sql(rule.action.expression)
    match rule.filter:
        case filters.CorrelationFilter():
            wanted: Json = {name: getattr(rule.filter, field) for name, field in _CORRELATED.items()}
            wanted = {name: value for name, value in wanted.items() if value is not None}
            wanted["properties"] = {key: str(value) for key, value in rule.filter.properties.items()}
            return {"action": action, "filterType": "CorrelationFilter", "correlationFilter": wanted}
        case filters.SqlFilter(expression):
            text = expression
        case filters.TrueFilter():
            text = "1=1"
        case filters.FalseFilter():
            text = "1=0"
    return {"action": action, "filterType": "SqlFilter", "sqlFilter": _sql(text)}


def _sql(text: str) -> Json:
    return {"sqlExpression": text, "compatibilityLevel": _LEVEL}


def _read_filter(properties: Json) -> filters.Filter:
    sql, correlation = _part(properties, "sqlFilter"), _part(properties, "correlationFilter")
    kind = properties.get("filterType") or ("CorrelationFilter" if correlation else "SqlFilter")
    if kind == "SqlFilter":
        return filters.SqlFilter(_text(sql, "sqlExpression")) if sql else filters.TrueFilter()
    if kind != "CorrelationFilter":
        raise DescriptionError(f"filterType: {kind!r} is neither SqlFilter nor CorrelationFilter")
    fields = {field: _text(correlation, name) for name, field in _CORRELATED.items() if correlation.get(name)}
    others = _part(correlation, "properties")
    return filters.CorrelationFilter(**fields, properties={key: _text(others, key) for key in others})


def _read_action(properties: Json) -> filters.SqlAction | None:
    action = _part(properties, "action")
    return filters.SqlAction(_text(action, "sqlExpression")) if action.get("sqlExpression") else None


def _part(properties: Json, name: str) -> Json:
    part = properties.get(name)
    if part is not None and not isinstance(part, dict):
        raise DescriptionError(f"{name}: it has to be an object")
    return part or {}


def _text(properties: Json, name: str) -> str:
    text = properties.get(name)
    if not isinstance(text, str):
        raise DescriptionError(f"{name}: {text!r} is no text")
    check_text(name, text)
    return text


# ---------------------------------------------------------------------- authorization rules


def read_access(name: str, properties: Json, present: AuthorizationRule | None) -> AuthorizationRule:
    """Return the rule in `properties`; its keys stay, or are new. Raises DescriptionError, InvalidSettings."""
    check_text("name", name)
    rights = properties.get("rights")
    if not isinstance(rights, list) or not all(right in list(Right) for right in rights):
        raise DescriptionError(f"rights: {rights!r} is no list of {', '.join(Right)}")
    return AuthorizationRule(
        name=name,
        rights=frozenset(Right(right) for right in rights),
        primary_key=present.primary_key if present else new_key(),
        secondary_key=present.secondary_key if present else new_key(),
    )


def write_access(rule: AuthorizationRule) -> Json:
    """Return the properties of an authorization rule, without keys."""
    return {"rights": sorted(rule.rights)}


def write_keys(rule: AuthorizationRule, authority: str, entity: str | None) -> Json:
    """Return keys and connection strings; `entity` is the path of the rule's owner, None for the namespace."""
    path = f";EntityPath={entity}" if entity else ""
    primary, secondary = (
        f"Endpoint=sb://{authority}/;SharedAccessKeyName={rule.name};SharedAccessKey={key}{path}"
        ";UseDevelopmentEmulator=true"
        for key in rule.keys
    )
    return {
        "keyName": rule.name,
        "primaryKey": rule.primary_key,
        "secondaryKey": rule.secondary_key,
        "primaryConnectionString": primary,
        "secondaryConnectionString": secondary,
    }


def write_namespace(name: str, *, created_at: float, authority: str, subscription: str, zone_redundant: bool) -> Json:
    """Return the properties of a namespace; `created_at` is in epoch seconds."""
    made = write_time(created_at)
    return {
        "provisioningState": "Succeeded",
        "status": "Active",
        "createdAt": made,
        "updatedAt": made,
        "serviceBusEndpoint": f"https://{authority}/",
        "metricId": f"{subscription}:{name}",
        "minimumTlsVersion": "1.2",
        "publicNetworkAccess": "Enabled",
        "disableLocalAuth": False,
        "zoneRedundant": zone_redundant,
    }


def write_network_rules() -> Json:
    """Return the properties of the only set of network rules: access for everyone."""
    return {
        "defaultAction": "Allow",
        "publicNetworkAccess": "Enabled",
        "trustedServiceAccessEnabled": False,
        "ipRules": [],
        "virtualNetworkRules": [],
    }
