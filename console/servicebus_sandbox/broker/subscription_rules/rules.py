"""Subscription rules: their filters and actions, and the copies of a message that a subscription stores.

A filter matches a message or not; an action changes the properties of a copy. Both are validated when they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import UUID

from servicebus_sandbox.broker.broker_errors import EntityExists, EntityNotFound, EvaluationError, FilterSyntaxError
from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.broker.subscription_rules.message_properties import MessageProperties, PropertyCodec, Value
from servicebus_sandbox.broker.subscription_rules.parser import (
    EvaluationContext,
    Predicate,
    Set,
    Statement,
    equal,
    parse_action,
    parse_filter,
)

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
    """A filter that matches every message. `expression`: the same in SQL."""

    expression: ClassVar[str] = "1=1"

    def matches(self, properties: MessageProperties, new_id: NewId) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """A filter that matches no message. `expression`: the same in SQL."""

    expression: ClassVar[str] = "1=0"

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
            name, is_system = statement.target.name, statement.target.is_system
            if isinstance(statement, Set):
                (properties.set_system if is_system else properties.set_user)(name, statement.value.value(scene))
            elif is_system:
                properties.set_system(name, None)
            else:
                properties.remove_user(name)


def _given(used: frozenset[str], parameters: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return the parameters by name in lower case. Raises FilterSyntaxError for a missing one."""
    given = {name.removeprefix("@").lower(): value for name, value in parameters.items()}
    missing = sorted(used - given.keys())
    if missing:
        raise FilterSyntaxError(f"the parameter '@{missing[0]}' is used and not given; add it to the parameters")
    return given


# The rules of a subscription: the copies of a message that it stores.
#
# All matching rules without an action give one copy together. Each matching rule with an action gives its own copy,
# changed by the action and with the rule's name in the property `RuleName`. A subscription begins with the rule
# `$Default`, which matches everything; without rules it stores nothing.

DEFAULT_RULE = "$Default"
RULE_NAME = "RuleName"
"""The user property with the name of the rule that made a changed copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A named filter with an optional action. `created_at` is in epoch seconds.

    `echo` is for management: the parts of the description that filter and action do not keep.
    """

    name: str = DEFAULT_RULE
    filter: Filter = field(default_factory=TrueFilter)
    action: SqlAction | None = None
    created_at: float = 0.0
    echo: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


class ArrivingMessage:
    """A message on its way through a topic; its properties are read once, for the first rule that needs them."""

    __slots__ = ("_codec", "_properties", "message", "new_id")

    def __init__(self, message: Message, codec: PropertyCodec, new_id: NewId) -> None:
        self.message = message
        self.new_id = new_id
        self._codec = codec
        self._properties: MessageProperties | None = None

    @property
    def properties(self) -> MessageProperties:
        """Return the properties that all rules share; do not change them. Raises EvaluationError."""
        if self._properties is None:
            self._properties = self._codec.read(self.message)
        return self._properties

    def changed_by(self, rule: Rule, action: SqlAction) -> Message:
        """Return a copy that the action changed. Raises EvaluationError."""
        properties = self.properties.copy()
        action.apply(properties, self.new_id)
        properties.set_user(RULE_NAME, rule.name)
        return self._codec.write(self.message, properties)


class RuleSet:
    """Rules by name without regard to case; `owner` is the path of the subscription for error messages."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._rules: dict[str, Rule] = {}
        self._takes_all = False

    def __iter__(self) -> Iterator[Rule]:
        """Yield the rules by name."""
        return iter([self._rules[key] for key in sorted(self._rules)])

    def __len__(self) -> int:
        return len(self._rules)

    def __getitem__(self, name: str) -> Rule:
        """Return the rule of this name. Raises EntityNotFound."""
        rule = self._rules.get(name.lower())
        if rule is None:
            raise EntityNotFound(self._path(name))
        return rule

    def add(self, rule: Rule) -> None:
        """Add a rule. Raises EntityExists."""
        if rule.name.lower() in self._rules:
            raise EntityExists(self._path(rule.name))
        self._rules[rule.name.lower()] = rule
        self._look_for_short_cut()

    def replace(self, rule: Rule) -> None:
        """Replace the rule of this name. Raises EntityNotFound."""
        self._rules[self[rule.name].name.lower()] = rule
        self._look_for_short_cut()

    def remove(self, name: str) -> None:
        """Remove the rule of this name. Raises EntityNotFound."""
        del self._rules[self[name].name.lower()]
        self._look_for_short_cut()

    def counts(self) -> tuple[int, int]:
        """Return the numbers of SQL filters (including true and false) and correlation filters."""
        correlation = sum(isinstance(rule.filter, CorrelationFilter) for rule in self._rules.values())
        return len(self._rules) - correlation, correlation

    def judge(self, arriving: ArrivingMessage) -> tuple[Sequence[Message], EvaluationError | None]:
        """Return the copies to store. A rule that fails matches nothing; the first error is returned beside them."""
        if self._takes_all:
            return (arriving.message,), None
        plain, changed, error = False, [], None
        for rule in self:
            try:
                if not rule.filter.matches(arriving.properties, arriving.new_id):
                    continue
                if rule.action is None:
                    plain = True
                else:
                    changed.append(arriving.changed_by(rule, rule.action))
            except EvaluationError as failure:
                error = error or EvaluationError(f"rule '{rule.name}': {failure}")
        return (arriving.message, *changed) if plain else changed, error

    def _look_for_short_cut(self) -> None:
        """Note whether every message is stored unchanged, so that none has to be read."""
        rules = self._rules.values()
        self._takes_all = any(isinstance(rule.filter, TrueFilter) for rule in rules) and all(
            rule.action is None for rule in rules
        )

    def _path(self, name: str) -> str:
        return f"{self._owner}/rules/{name}"
