"""The XML of subscription rules: filters, actions and typed values, both ways.

The attribute `type` has the kind of a filter or action. On a value an attribute of that name has its type, prefixed for
the type's namespace. The answer to a PUT repeats the parts of filter and action that were sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

from servicebus_sandbox.atom import entity_xml as xml
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
CORRELATED = {field.title().replace("_", ""): field for field in CORRELATION_FIELDS}


_RULE_ORDER = ("Filter", "Action", "CreatedAt", "Name")


@dataclass(frozen=True, slots=True)
class SentPart:
    """A filter or an action as sent: the forms that its values do not keep.

    texts: type and text of each value. has_pairs: its parameters or properties were sent, maybe empty.
    preprocessing: RequiresPreprocessing, empty if it was not sent.
    """

    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    has_pairs: bool = False
    preprocessing: str = ""


def read_rule(description: ElementTree.Element, *, name: str | None = None) -> Rule:
    """Return the rule in `description`, called `name` if the URL has one.

    Raises DescriptionError, and FilterSyntaxError for the text of a filter or an action.
    """
    found, strays = xml.in_places(description, _RULE_ORDER)
    own = xml.text_of(found.get("Name"))
    if name is not None and own and own.lower() != name.lower():
        raise xml.DescriptionError(f"Name: the rule is called '{own}' here and '{name}' in the address")
    filter_, action = found.get("Filter"), found.get("Action")
    return Rule(
        name=name or own or DEFAULT_RULE,
        filter=_read_filter(filter_),
        action=_read_action(action),
        echo={"Filter": _sent(filter_), "Action": _sent(action), xml.STRAYS: strays},
    )


def first_rule(description: ElementTree.Element) -> Rule | None:
    """Return the first rule of a described subscription, None for the default. Raises like `read_rule`."""
    found = xml.in_places(description, xml.SUBSCRIPTION.order)[0].get(xml.FIRST_RULE)
    return None if found is None or xml.is_nil(found) else read_rule(found)


def write_rule(rule: Rule, *, made_at: float | None = None, in_list: bool = False) -> ElementTree.Element:
    """Return the description of a rule. `made_at`: the time of a PUT that this answers, in epoch seconds."""
    root = xml.new_description("RuleDescription")
    as_sent, prefix = made_at is not None, "d5p1" if in_list else "d6p1"
    root.append(_write_filter(rule.filter, _Form(rule.echo.get("Filter", SentPart()), as_sent, prefix)))
    root.append(_write_action(rule.action, _Form(rule.echo.get("Action", SentPart()), as_sent, prefix)))
    xml.add_child(root, "CreatedAt", xml.write_finest(rule.created_at if made_at is None else made_at))
    xml.add_child(root, "Name", rule.name)
    root.extend(rule.echo.get(xml.STRAYS, ()))
    return root


@dataclass(frozen=True, slots=True)
class _Form:
    """The form in which a filter or an action is written: as sent, or as read; `prefix` is that of types."""

    sent: SentPart
    as_sent: bool
    prefix: str


def _sent(element: ElementTree.Element | None) -> SentPart:
    if element is None or xml.is_nil(element):
        return SentPart()
    pairs = next((child for child in element if child.tag.endswith(("}Parameters", "}Properties"))), None)
    preprocessing = xml.text_of(element.find("{*}RequiresPreprocessing"))
    texts = {
        xml.whole_text(pair.find("{*}Key")): (_kind(value) or "string", _canonical(value))
        for pair in ([] if pairs is None else pairs.findall(f"{{*}}{_PAIR}"))
        if (value := pair.find("{*}Value")) is not None and not xml.is_nil(value)
    }
    return SentPart(texts, pairs is not None, xml.BOOL.write(_read_flag(preprocessing), "") if preprocessing else "")


def _read_flag(text: str) -> bool:
    try:
        return xml.read_bool(text)
    except ValueError as error:
        raise xml.DescriptionError(f"RequiresPreprocessing: {error}") from error


# ---------------------------------------------------------------------- filters and actions


def _read_filter(element: ElementTree.Element | None) -> Filter:
    if element is None or xml.is_nil(element):
        return TrueFilter()
    match _kind(element):
        case "TrueFilter":
            return TrueFilter()
        case "FalseFilter":
            return FalseFilter()
        case "SqlFilter":
            return SqlFilter(_expression(element), _read_pairs(element.find("{*}Parameters")))
        case "CorrelationFilter":
            fields = {field: xml.whole_text(element.find(f"{{*}}{name}")) or None for name, field in CORRELATED.items()}
            return CorrelationFilter(**fields, properties=_read_pairs(element.find("{*}Properties")))
        case kind:
            raise xml.DescriptionError(
                f"Filter: its type is '{kind}'; it is one of SqlFilter, CorrelationFilter, TrueFilter, FalseFilter"
            )


def _read_action(element: ElementTree.Element | None) -> SqlAction | None:
    if element is None or xml.is_nil(element):
        return None
    match _kind(element):
        case "EmptyRuleAction":
            return None
        case "SqlRuleAction":
            return SqlAction(_expression(element), _read_pairs(element.find("{*}Parameters")))
        case kind:
            raise xml.DescriptionError(f"Action: its type is '{kind}'; it is one of SqlRuleAction, EmptyRuleAction")


def _expression(element: ElementTree.Element) -> str:
    text = xml.whole_text(element.find("{*}SqlExpression"))
    if not text.strip():
        raise xml.DescriptionError("SqlExpression: it is missing or empty")
    return text


def _write_filter(found: Filter, form: _Form) -> ElementTree.Element:
    kind = type(found).__name__
    element = ElementTree.Element("Filter", {"i:type": kind})
    match found:
        case CorrelationFilter():
            for name, field in CORRELATED.items():
                value = getattr(found, field)
                if value is not None:
                    xml.add_child(element, name, value)
            if found.properties or (form.as_sent and form.sent.has_pairs):
                _write_pairs(element, "Properties", found.properties, form)
        case SqlFilter():
            _write_sql(element, found.expression, found.parameters, form)
        case TrueFilter() | FalseFilter():
            _write_text(element, found.expression)
    return element


def _write_action(action: SqlAction | None, form: _Form) -> ElementTree.Element:
    if action is None:
        return ElementTree.Element("Action", {"i:type": "EmptyRuleAction"})
    element = ElementTree.Element("Action", {"i:type": "SqlRuleAction"})
    _write_sql(element, action.expression, action.parameters, form)
    return element


def _write_text(element: ElementTree.Element, expression: str) -> None:
    xml.add_child(element, "SqlExpression", expression)
    xml.add_child(element, "CompatibilityLevel", "20")


def _write_sql(element: ElementTree.Element, expression: str, parameters: Mapping[str, Value], form: _Form) -> None:
    _write_text(element, expression)
    if form.sent.preprocessing:
        xml.add_child(element, "RequiresPreprocessing", form.sent.preprocessing)
    if form.sent.has_pairs or not form.as_sent:
        _write_pairs(element, "Parameters", parameters, form)


def _kind(element: ElementTree.Element) -> str:
    """Return the attribute `type` of any namespace, without a prefix."""
    found = element.get(f"{{{xml.INSTANCE}}}type")
    if found is None:
        found = next((value for name, value in element.attrib.items() if name.rpartition("}")[2] == "type"), "")
    return found.rpartition(":")[2]


# ---------------------------------------------------------------------- typed values


@dataclass(frozen=True, slots=True)
class _Type:
    """One type of XML Schema in filters. `canonical` keeps what the value does not: ticks, a missing zone."""

    read: Callable[[str], Value]
    write: Callable[[Any], str] = str
    canonical: Callable[[str], str] | None = None


def _read_time(text: str) -> datetime:
    """Return a time in UTC; without a zone it is in UTC."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _write_moment(value: datetime) -> str:
    """Return a time in UTC with a zone."""
    return xml.without_zeros(f"{value.astimezone(UTC).replace(tzinfo=None).isoformat()}Z")


def _canonical_time(text: str) -> str:
    """Return a time as sent; one of another zone in UTC."""
    moment = datetime.fromisoformat(text)
    return (
        xml.without_zeros(text) if moment.tzinfo in (None, UTC) and text[-6:-5] not in "+-" else _write_moment(moment)
    )


def _canonical_duration(text: str) -> str:
    ticks = xml.read_ticks(text)
    return xml.FOR_EVER if ticks is None else xml.write_ticks(ticks)


def _write_double(value: float) -> str:
    """Return a number as XML Schema writes it: 3, 1.5, INF."""
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    return "NaN" if math.isnan(value) else repr(value).removesuffix(".0").replace("e", "E")


_WHOLE = _Type(int)
_TYPES: Mapping[str, _Type] = {
    "string": _Type(str),
    **dict.fromkeys(("int", "long", "short", "byte", "unsignedInt", "unsignedLong", "unsignedShort"), _WHOLE),
    **dict.fromkeys(("double", "float", "decimal"), _Type(float, _write_double)),
    "boolean": _Type(xml.read_bool, lambda value: "true" if value else "false"),
    "dateTime": _Type(_read_time, _write_moment, _canonical_time),
    "duration": _Type(xml.read_span, xml.write_duration, _canonical_duration),
}
_TYPE_SPACES = {"duration": "http://schemas.microsoft.com/2003/10/Serialization/"}
"""The namespaces of types that are not XML Schema's."""


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
        key, value = xml.whole_text(pair.find("{*}Key")), pair.find("{*}Value")
        if not key:
            raise xml.DescriptionError(f"{_PAIR}: its Key is missing or empty")
        pairs[key] = None if value is None or xml.is_nil(value) else _read_value(key, value)
    return pairs


def _read_value(key: str, element: ElementTree.Element) -> Value:
    name = _kind(element) or "string"
    if name not in _TYPES:
        raise xml.DescriptionError(f"'{key}': its type is '{name}'; it is one of {', '.join(_TYPES)}")
    text = element.text or ""
    try:
        return _TYPES[name].read(text if name == "string" else text.strip())
    except ValueError as error:
        raise xml.DescriptionError(f"'{key}': '{text}' is no {name}: {error}") from error


def _canonical(element: ElementTree.Element) -> str:
    """Return the text of a value in the service's form; it was read before."""
    name = _kind(element) or "string"
    text, kind = element.text or "", _TYPES[name]
    return kind.canonical(text.strip()) if kind.canonical else kind.write(kind.read(text))


def _write_pairs(parent: ElementTree.Element, name: str, pairs: Mapping[str, Value], form: _Form) -> None:
    element = ElementTree.SubElement(parent, name)
    for key, value in pairs.items():
        pair = ElementTree.SubElement(element, _PAIR)
        xml.add_child(pair, "Key", key)
        if value is None:
            ElementTree.SubElement(pair, "Value", {"i:nil": "true"})
            continue
        kind = _type_name(value)
        kind, text = form.sent.texts.get(key) or (kind, _TYPES[kind].write(value))
        # the type's attribute first, as the service writes it
        attributes = {"i:type": f"{form.prefix}:{kind}", f"xmlns:{form.prefix}": _TYPE_SPACES.get(kind, SCHEMA)}
        ElementTree.SubElement(pair, "Value", attributes).text = text
