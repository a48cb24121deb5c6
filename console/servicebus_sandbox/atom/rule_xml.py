"""The XML of subscription rules: filters, actions and typed values, both ways.

The attribute `type` has the kind of a filter or action. On a value an attribute of that name has its type, prefixed for
XML Schema's namespace. The output is in the form that the SDKs read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

from servicebus_sandbox.atom.entity_xml import (
    INSTANCE,
    DescriptionError,
    new_description,
    read_bool,
    read_duration,
    text_of,
    write_duration,
    write_time,
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

SCHEMA = "http://www.w3.org/2001/XMLSchema"
_PAIR = "KeyValueOfstringanyType"
_INT32 = range(-(2**31), 2**31)
_CORRELATED = {field.title().replace("_", ""): field for field in CORRELATION_FIELDS}


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
    ElementTree.SubElement(root, "CreatedAt").text = write_time(rule.created_at)
    ElementTree.SubElement(root, "Name").text = rule.name
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
            fields = {field: _whole_text(element.find(f"{{*}}{name}")) or None for name, field in _CORRELATED.items()}
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
            for name, field in _CORRELATED.items():
                value = getattr(found, field)
                if value is not None:
                    ElementTree.SubElement(element, name).text = value
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
    ElementTree.SubElement(element, "SqlExpression").text = expression
    ElementTree.SubElement(element, "CompatibilityLevel").text = "20"
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


def _read_span(text: str) -> timedelta:
    span = read_duration(text)
    if span is None:
        raise ValueError("a value cannot last for ever")
    return span


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
        ElementTree.SubElement(pair, "Key").text = key
        if value is None:
            ElementTree.SubElement(pair, "Value", {"i:nil": "true"})
            continue
        kind = _type_name(value)
        attributes = {"xmlns:d6p1": SCHEMA, "i:type": f"d6p1:{kind}"}
        ElementTree.SubElement(pair, "Value", attributes).text = _TYPES[kind].write(value)
