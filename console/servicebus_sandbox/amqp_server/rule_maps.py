"""Subscription rules in `$management`: read from the maps of a request, written as described lists.

Source: "AMQP 1.0 in Azure Service Bus: request-response-based operations", rule operations. As in the service, maps by
name come in, lists by position and descriptor code go out. Rules over Atom and ARM are in `atom.rule_xml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from servicebus_amqp.encoding.amqp_types import Described, Int, Timestamp, ULong
from servicebus_sandbox.amqp_server.property_codec import raw_of, value_of
from servicebus_sandbox.broker.subscription_rules.filters import (
    CORRELATION_FIELDS,
    CorrelationFilter,
    FalseFilter,
    Filter,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from servicebus_sandbox.broker.subscription_rules.message_properties import Value
from servicebus_sandbox.broker.subscription_rules.rules import Rule
from servicebus_sandbox.serving.amqp_conditions import bad_argument

_RULE, _NO_ACTION, _SQL_ACTION = ULong(0x137_0000_0004), ULong(0x137_0000_0005), ULong(0x137_0000_0006)
_SQL, _TRUE, _FALSE, _CORRELATION = (
    ULong(0x13_7000_0006),
    ULong(0x13_7000_0007),
    ULong(0x13_7000_0008),
    ULong(0x13_7000_0009),
)
"""Filters have one zero less than the rest: so they are documented, and so the SDKs read them."""
_COMPATIBILITY: Final = Int(20)
_EVERYTHING, _NOTHING = "1=1", "1=0"
_CORRELATED: Final = {field.replace("_", "-"): field for field in CORRELATION_FIELDS}


def read_rule(name: str, description: object) -> Rule:
    """Return the rule of a request. Raises AmqpRefusal, FilterSyntaxError."""
    parts = _map("rule-description", description)
    sql, correlation, action = (parts.get(part) for part in ("sql-filter", "correlation-filter", "sql-rule-action"))
    if (sql is None) is (correlation is None):
        raise bad_argument("'rule-description' has to hold either 'sql-filter' or 'correlation-filter'")
    return Rule(
        name=name,
        filter=_read_correlation(correlation) if sql is None else _read_sql(_expression("sql-filter", sql)),
        action=None if action is None else SqlAction(_expression("sql-rule-action", action)),
    )


def write_rule(rule: Rule) -> dict[str, Described]:
    """Return the rule for an enumeration: filter, action, name, time of creation."""
    created = Timestamp(round(rule.created_at * 1000))
    return {
        "rule-description": Described(
            _RULE, [_write_filter(rule.filter), _write_action(rule.action), rule.name, created]
        )
    }


def _map(name: str, value: object) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise bad_argument(f"'{name}' is {value!r}; it has to be a map")
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise bad_argument(f"'{name}' is {value!r}; it has to be a string")
    return value


def _expression(name: str, value: object) -> str:
    return _text(f"expression of {name}", _map(name, value).get("expression"))


def _read_sql(expression: str) -> Filter:
    """Return the filter of an expression; the SDKs write true and false filters as SQL."""
    return (
        TrueFilter()
        if expression == _EVERYTHING
        else FalseFilter()
        if expression == _NOTHING
        else SqlFilter(expression)
    )


def _read_correlation(value: object) -> CorrelationFilter:
    parts = _map("correlation-filter", value)
    wanted = {field: _text(name, parts[name]) for name, field in _CORRELATED.items() if parts.get(name) is not None}
    properties = parts.get("properties")
    given = {} if properties is None else _map("properties", properties)
    return CorrelationFilter(
        **wanted, properties={_text("properties", key): _property(key, raw) for key, raw in given.items()}
    )


def _property(name: str, raw: object) -> Value:
    value = value_of(raw)
    if value is None and raw is not None:
        raise bad_argument(f"the property '{name}' is {raw!r}; nothing can be compared with that")
    return value


def _write_filter(found: Filter) -> Described:
    match found:
        case TrueFilter():
            return Described(_TRUE, [])
        case FalseFilter():
            return Described(_FALSE, [])
        case SqlFilter():
            return Described(_SQL, [found.expression, _COMPATIBILITY])
        case CorrelationFilter():
            wanted = [getattr(found, field) for field in _CORRELATED.values()]
            properties = {name: raw_of(value) for name, value in found.properties.items()}
            return Described(_CORRELATION, [*wanted, properties or None])


def _write_action(action: SqlAction | None) -> Described:
    return Described(_NO_ACTION, []) if action is None else Described(_SQL_ACTION, [action.expression, _COMPATIBILITY])
