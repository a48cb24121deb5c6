"""Filters and actions of subscription rules, validated when they are made.

A filter matches a message or not; an action changes the properties of a copy. `rules` combines the rules of a
subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from servicebus_sandbox.broker.broker_errors import FilterSyntaxError
from servicebus_sandbox.broker.subscription_rules.expressions import EvaluationContext, Predicate, Property, equal
from servicebus_sandbox.broker.subscription_rules.message_properties import MessageProperties, Value
from servicebus_sandbox.broker.subscription_rules.parser import Set, Statement, parse_action, parse_filter

NewId = Callable[[], UUID]
CORRELATION_FIELDS = (
    *("correlation_id", "message_id", "to", "reply_to", "label", "session_id", "reply_to_session_id"),
    "content_type",
)
"""The system properties that a correlation filter compares, in the order of the wire."""


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """A filter in SQL. Names in `parameters` are those of the text (`@limit`), with or without the `@`.

    Raises FilterSyntaxError, also for a parameter that is used and missing.
    """

    expression: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    _predicate: Predicate = field(init=False, repr=False, compare=False)
    _values: Mapping[str, Value] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        predicate, used = parse_filter(self.expression)
        object.__setattr__(self, "_predicate", predicate)
        object.__setattr__(self, "_values", _given(used, self.parameters))

    def matches(self, properties: MessageProperties, new_id: NewId) -> bool:
        """Return whether the predicate is true. Raises EvaluationError."""
        return self._predicate.holds(EvaluationContext(properties, self._values, new_id)) is True


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """A filter that matches every message."""

    def matches(self, properties: MessageProperties, new_id: NewId) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """A filter that matches no message."""

    def matches(self, properties: MessageProperties, new_id: NewId) -> bool:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelationFilter:
    """A filter that matches if all given properties are equal; None is not compared.

    Raises FilterSyntaxError if nothing is given.
    """

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.properties and not self._system():
            raise FilterSyntaxError("the correlation filter names no property; give at least one to compare")

    def _system(self) -> list[tuple[str, str]]:
        wanted = ((name.replace("_", ""), getattr(self, name)) for name in CORRELATION_FIELDS)
        return [(name, value) for name, value in wanted if value is not None]

    def matches(self, properties: MessageProperties, new_id: NewId) -> bool:
        return all(properties.get_system(name) == value for name, value in self._system()) and all(
            equal(properties.get_user(name), value) for name, value in self.properties.items()
        )


Filter = SqlFilter | TrueFilter | FalseFilter | CorrelationFilter


@dataclass(frozen=True, slots=True)
class SqlAction:
    """SET and REMOVE statements. `parameters` as with SqlFilter. Raises FilterSyntaxError."""

    expression: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    _statements: tuple[Statement, ...] = field(init=False, repr=False, compare=False)
    _values: Mapping[str, Value] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        statements, used = parse_action(self.expression)
        object.__setattr__(self, "_statements", statements)
        object.__setattr__(self, "_values", _given(used, self.parameters))

    def apply(self, properties: MessageProperties, new_id: NewId) -> None:
        """Change `properties`, one statement after the other. Raises EvaluationError."""
        scene = EvaluationContext(properties, self._values, new_id)
        for statement in self._statements:
            if isinstance(statement, Set):
                _set(properties, statement.target, statement.value.value(scene))
            elif statement.target.is_system:
                properties.set_system(statement.target.name, None)
            else:
                properties.remove_user(statement.target.name)


def _set(properties: MessageProperties, target: Property, value: Value) -> None:
    if target.is_system:
        properties.set_system(target.name, value)
    else:
        properties.set_user(target.name, value)


def _given(used: frozenset[str], parameters: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return the parameters by name in lower case. Raises FilterSyntaxError for a missing one."""
    given = {name.removeprefix("@").lower(): value for name, value in parameters.items()}
    missing = sorted(used - given.keys())
    if missing:
        raise FilterSyntaxError(f"the parameter '@{missing[0]}' is used and not given; add it to the parameters")
    return given
