"""Expression trees of filters: values, and predicates with three truth values.

The grammar separates two kinds of nodes. Values give a `Value`; predicates give True, False or None for unknown. A
missing property makes everything unknown but AND, OR, IS NULL and EXISTS. Operators follow C#: integer division
truncates, integers wrap around at 64 bits, `+` joins text, values of different types are unequal. Invalid operations,
such as `'a' < 1`, raise EvaluationError. Chains are evaluated in loops, so that only the parser limits depth.

Matching a LIKE pattern takes at worst time in proportion to text times pattern, unlike a regular expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from math import fmod, inf, nan
from typing import Protocol
from uuid import UUID

from servicebus_sandbox.broker.broker_errors import EvaluationError
from servicebus_sandbox.broker.subscription_rules.message_properties import MessageProperties, Value, as_text, is_number


class Wild(Enum):
    """A wildcard in a pattern."""

    RUN = "%"
    ONE = "_"


@lru_cache(maxsize=1024)
def read_pattern(pattern: str, escape: str | None) -> tuple[str | Wild, ...]:
    """Return the pattern as characters and wildcards. Raises EvaluationError for a bad escape."""
    if escape is not None and len(escape) != 1:
        raise EvaluationError(f"ESCAPE takes a single character, not {escape!r}")
    parts: list[str | Wild] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None:
                raise EvaluationError(f"the pattern {pattern!r} ends with its escape character")
            parts.append(following)
        elif character == "%":
            parts.append(Wild.RUN)
        else:
            parts.append(Wild.ONE if character == "_" else character)
    return tuple(parts)


def matches_pattern(text: str, pattern: str, *, escape: str | None = None) -> bool:
    """Return whether the whole text fits the pattern. Raises EvaluationError for a bad escape."""
    parts = read_pattern(pattern, escape)
    at, part = 0, 0
    run, run_from = -1, 0  # the last `%` and the end of its match
    while at < len(text):
        if part < len(parts) and parts[part] is Wild.RUN:
            run, run_from = part, at
            part += 1
        elif part < len(parts) and (parts[part] is Wild.ONE or parts[part] == text[at]):
            part, at = part + 1, at + 1
        elif run >= 0:
            run_from += 1
            part, at = run + 1, run_from
        else:
            return False
    return all(rest is Wild.RUN for rest in parts[part:])


Truth = bool | None
_LOWEST, _SPAN = -(2**63), 2**64


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """The input of an evaluation. Names in `parameters` are in lower case, without the `@`."""

    properties: MessageProperties
    parameters: Mapping[str, Value]
    new_id: Callable[[], UUID]


class ValueNode(Protocol):
    def value(self, scene: EvaluationContext) -> Value:
        """Return the value. Raises EvaluationError."""


class Predicate(Protocol):
    def holds(self, scene: EvaluationContext) -> Truth:
        """Return the truth value. Raises EvaluationError."""


# ---------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class Constant:
    constant: Value

    def value(self, scene: EvaluationContext) -> Value:
        return self.constant


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str

    def value(self, scene: EvaluationContext) -> Value:
        return scene.parameters[self.name]


@dataclass(frozen=True, slots=True)
class Property:
    """A property by name; `is_system` is set for the scope `sys`."""

    name: str
    is_system: bool = False

    def value(self, scene: EvaluationContext) -> Value:
        if self.is_system:
            return scene.properties.get_system(self.name)
        return scene.properties.get_user(self.name)

    def is_there(self, scene: EvaluationContext) -> bool:
        if self.is_system:
            return scene.properties.get_system(self.name) is not None
        return scene.properties.has_user(self.name)


@dataclass(frozen=True, slots=True)
class PropertyByName:
    """The function `property(name)`: a user property with a computed name."""

    name: ValueNode

    def value(self, scene: EvaluationContext) -> Value:
        name = self.name.value(scene)
        if name is None:
            return None
        if not isinstance(name, str):
            raise EvaluationError(f"property({as_text(name)}): the name has to be text")
        return scene.properties.get_user(name)


@dataclass(frozen=True, slots=True)
class NewId:
    def value(self, scene: EvaluationContext) -> Value:
        return scene.new_id()


@dataclass(frozen=True, slots=True)
class Negative:
    operand: ValueNode

    def value(self, scene: EvaluationContext) -> Value:
        value = self.operand.value(scene)
        if value is None:
            return None
        if isinstance(value, timedelta):
            return -value
        return _calculate("-", 0, value)


@dataclass(frozen=True, slots=True)
class Chain:
    """Operands with operators of one rank between them, from left to right."""

    first: ValueNode
    rest: tuple[tuple[str, ValueNode], ...]

    def value(self, scene: EvaluationContext) -> Value:
        total = self.first.value(scene)
        for operator, node in self.rest:
            operand = node.value(scene)
            total = None if total is None or operand is None else _calculate(operator, total, operand)
        return total


def _calculate(operator: str, left: Value, right: Value) -> Value:
    if is_number(left) and is_number(right):
        return _arithmetic(operator, left, right)
    if operator == "+" and (isinstance(left, str) or isinstance(right, str)):
        return as_text(left) + as_text(right)
    try:
        return _shift(operator, left, right)
    except OverflowError as error:
        raise EvaluationError(f"{as_text(left)} {operator} {as_text(right)} is beyond the calendar") from error


def _shift(operator: str, left: Value, right: Value) -> Value:
    """Add or subtract a duration."""
    match operator, left, right:
        case "+", (datetime() | timedelta()), timedelta():
            return left + right
        case "+", timedelta(), datetime():
            return right + left
        case "-", (datetime() | timedelta()), timedelta():
            return left - right
        case "-", datetime(), datetime():
            return left - right
    kinds = f"{type(left).__name__} and {type(right).__name__}"
    raise EvaluationError(f"'{operator}' does not apply to {kinds}")


def _arithmetic(operator: str, left: float, right: float) -> Value:
    if isinstance(left, int) and isinstance(right, int):
        return _whole(operator, left, right)
    left, right = float(left), float(right)
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    if right == 0.0:
        return nan if operator == "%" or left == 0.0 else inf if left > 0 else -inf
    if operator == "/":
        return left / right
    return fmod(left, right) if abs(left) != inf else nan


def _whole(operator: str, left: int, right: int) -> int:
    match operator:
        case "+":
            result = left + right
        case "-":
            result = left - right
        case "*":
            result = left * right
        case _:
            if right == 0:
                raise EvaluationError(f"{left} {operator} 0: a whole number cannot be divided by zero")
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            result = quotient if operator == "/" else left - quotient * right
    return (result - _LOWEST) % _SPAN + _LOWEST


# ---------------------------------------------------------------------- predicates


@dataclass(frozen=True, slots=True)
class Comparison:
    left: ValueNode
    operator: str
    right: ValueNode

    def holds(self, scene: EvaluationContext) -> Truth:
        left, right = self.left.value(scene), self.right.value(scene)
        if left is None or right is None:
            return None
        if self.operator == "=":
            return equal(left, right)
        if self.operator in ("<>", "!="):
            return not equal(left, right)
        return _in_order(left, self.operator, right)


def equal(left: Value, right: Value) -> bool:
    """Return whether values are equal without conversion; numbers are one type."""
    if is_number(left) and is_number(right):
        return left == right
    return type(left) is type(right) and left == right


def _in_order(left: Value, operator: str, right: Value) -> bool:
    comparable = is_number(left) and is_number(right)
    if not comparable and not any(isinstance(left, kind) and isinstance(right, kind) for kind in _ORDERED):
        kinds = f"{type(left).__name__} and {type(right).__name__}"
        raise EvaluationError(f"'{operator}' does not compare {kinds}")
    below: bool = left < right  # type: ignore[operator]  # both of one ordered kind, as was just seen
    above: bool = left > right  # type: ignore[operator]
    match operator:
        case "<":
            return below
        case ">":
            return above
        case "<=":
            return below or left == right
        case _:
            return above or left == right


_ORDERED: tuple[type, ...] = (str, datetime, timedelta)


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Property

    def holds(self, scene: EvaluationContext) -> Truth:
        return self.operand.value(scene) is None


@dataclass(frozen=True, slots=True)
class Exists:
    operand: Property

    def holds(self, scene: EvaluationContext) -> Truth:
        return self.operand.is_there(scene)


@dataclass(frozen=True, slots=True)
class In:
    operand: ValueNode
    options: tuple[ValueNode, ...]

    def holds(self, scene: EvaluationContext) -> Truth:
        value = self.operand.value(scene)
        if value is None:
            return None
        options = [option.value(scene) for option in self.options]
        if any(equal(value, option) for option in options if option is not None):
            return True
        return None if None in options else False


@dataclass(frozen=True, slots=True)
class Like:
    operand: ValueNode
    pattern: ValueNode
    escape: ValueNode | None

    def holds(self, scene: EvaluationContext) -> Truth:
        nodes = (self.operand, self.pattern) + ((self.escape,) if self.escape is not None else ())
        values = [node.value(scene) for node in nodes]
        if None in values:
            return None
        texts = [value for value in values if isinstance(value, str)]
        if len(texts) < len(values):
            raise EvaluationError("LIKE compares text with text; one of its operands is something else")
        return matches_pattern(texts[0], texts[1], escape=texts[2] if len(texts) > 2 else None)


@dataclass(frozen=True, slots=True)
class Not:
    operand: Predicate

    def holds(self, scene: EvaluationContext) -> Truth:
        truth = self.operand.holds(scene)
        return None if truth is None else not truth


@dataclass(frozen=True, slots=True)
class All:
    """AND: false if one part is false, else unknown if one part is."""

    parts: tuple[Predicate, ...]

    def holds(self, scene: EvaluationContext) -> Truth:
        truth: Truth = True
        for part in self.parts:
            found = part.holds(scene)
            if found is False:
                return False
            truth = None if found is None else truth
        return truth


@dataclass(frozen=True, slots=True)
class AnyOf:
    """OR: true if one part is true, else unknown if one part is."""

    parts: tuple[Predicate, ...]

    def holds(self, scene: EvaluationContext) -> Truth:
        truth: Truth = False
        for part in self.parts:
            found = part.holds(scene)
            if found:
                return True
            truth = None if found is None else truth
        return truth
