"""The grammar of filters and rule actions, by recursive descent (the SQL-92 subset that the service documents).

    predicate  = conjunction { OR conjunction }
    conjunction = negation { AND negation }
    negation   = NOT negation | comparison
    comparison = sum [ operator sum | IS [NOT] NULL | [NOT] IN (sum, ...) | [NOT] LIKE sum [ESCAPE sum] ]
               | EXISTS (property)
    sum        = product { + | - product },  product = sign { * | / | % sign },  sign = { + | - } primary
    primary    = constant | @parameter | property | function | ( predicate or sum )
    property   = [sys. | user.] name
    actions    = { SET property = sum | REMOVE property  [;] }

Values and predicates are distinct: a bare `color` is refused, as is `(a = 1) + 2`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import lru_cache
from math import fmod, inf, nan
from operator import add, ge, gt, le, lt, mul, sub
from typing import Any, Protocol, TypeVar
from uuid import UUID

from servicebus_sandbox.broker.broker_errors import EvaluationError, FilterSyntaxError
from servicebus_sandbox.broker.subscription_rules.message_properties import MessageProperties, Value, as_text, is_number

# Expression trees of filters: values, and predicates with three truth values.
#
# The grammar separates two kinds of nodes. Values give a `Value`; predicates give True, False or None for unknown. A
# missing property makes everything unknown but AND, OR, IS NULL and EXISTS. Operators follow C#: integer division
# truncates, integers wrap around at 64 bits, `+` joins text, values of different types are unequal. Invalid operations,
# such as `'a' < 1`, raise EvaluationError. Chains are evaluated in loops, so that only the parser limits depth.
#
# Matching a LIKE pattern takes at worst time in proportion to text times pattern, unlike a regular expression.


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
        properties = scene.properties
        return properties.get_system(self.name) if self.is_system else properties.get_user(self.name)

    def is_there(self, scene: EvaluationContext) -> bool:
        return self.value(scene) is not None if self.is_system else scene.properties.has_user(self.name)


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


_EXACT: Mapping[str, Callable[[Any, Any], Any]] = {"+": add, "-": sub, "*": mul}


def _arithmetic(operator: str, left: float, right: float) -> Value:
    if isinstance(left, int) and isinstance(right, int):
        return _whole(operator, left, right)
    left, right = float(left), float(right)
    if operator in _EXACT:
        return float(_EXACT[operator](left, right))
    if right == 0.0:
        return nan if operator == "%" or left == 0.0 else inf if left > 0 else -inf
    if operator == "/":
        return left / right
    return fmod(left, right) if abs(left) != inf else nan


def _whole(operator: str, left: int, right: int) -> int:
    if operator in _EXACT:
        result = int(_EXACT[operator](left, right))
    elif right == 0:
        raise EvaluationError(f"{left} {operator} 0: a whole number cannot be divided by zero")
    else:
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


_ORDERED: tuple[type, ...] = (str, datetime, timedelta)
_IN_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {"<": lt, ">": gt, "<=": le, ">=": ge}


def _in_order(left: Value, operator: str, right: Value) -> bool:
    comparable = is_number(left) and is_number(right)
    if not comparable and not any(isinstance(left, kind) and isinstance(right, kind) for kind in _ORDERED):
        kinds = f"{type(left).__name__} and {type(right).__name__}"
        raise EvaluationError(f"'{operator}' does not compare {kinds}")
    return _IN_ORDER[operator](left, right)


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
class Junction:
    """AND or OR: `decisive` (False for AND) if one part is, else unknown if one part is."""

    decisive: bool
    parts: tuple[Predicate, ...]

    def holds(self, scene: EvaluationContext) -> Truth:
        truth: Truth = not self.decisive
        for part in self.parts:
            found = part.holds(scene)
            if found is self.decisive:
                return found
            truth = None if found is None else truth
        return truth


MAX_LENGTH = 1024
"""Characters in one expression; the service's limit."""

KEYWORDS = frozenset(
    ("AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "IS", "NULL", "EXISTS", "TRUE", "FALSE", "SET", "REMOVE")
)

_WORDS = re.compile(
    r"""(?P<SPACE>\s+)
      | (?P<DOUBLE>\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
      | (?P<WHOLE>\d+)
      | (?P<TEXT>'(?:[^']|'')*')
      | (?P<BRACKETED>\[(?:[^\]]|\]\])+\])
      | (?P<QUOTED>"(?:[^"]|"")+")
      | (?P<PARAMETER>@\w+)
      | (?P<NAME>[^\W\d_]\w*)
      | (?P<SYMBOL><>|!=|>=|<=|[=<>+\-*/%(),.;])""",
    re.VERBOSE,
)


class FilterTokenKind(Enum):
    """The kind of a token; NAME includes every spelling of one."""

    NAME = auto()
    KEYWORD = auto()
    WHOLE = auto()
    DOUBLE = auto()
    TEXT = auto()
    PARAMETER = auto()
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class FilterToken:
    """One token. `text` is unquoted, keywords in capitals; `at` is its offset; `plain` is an unquoted name."""

    sort: FilterTokenKind
    text: str
    at: int
    plain: bool = False


def tokenize(text: str) -> list[FilterToken]:
    """Return the tokens and a final END. Raises FilterSyntaxError."""
    if len(text) > MAX_LENGTH:
        raise FilterSyntaxError(f"the expression has {len(text)} characters; at most {MAX_LENGTH} are allowed")
    words: list[FilterToken] = []
    at = 0
    while at < len(text):
        match = _WORDS.match(text, at)
        if match is None:
            raise FilterSyntaxError(f"{text[at]!r} at character {at} has no place in an expression")
        word = _word(match.lastgroup or "", match.group(), at)
        if word is not None:
            words.append(word)
        at = match.end()
        if (
            word is not None
            and word.sort in (FilterTokenKind.WHOLE, FilterTokenKind.DOUBLE)
            and text[at : at + 1].isalnum()
        ):
            raise FilterSyntaxError(f"the number at character {word.at} runs into {text[at]!r}")
    return [*words, FilterToken(FilterTokenKind.END, "the end", len(text))]


_QUOTES = {
    "BRACKETED": (FilterTokenKind.NAME, "]"),
    "QUOTED": (FilterTokenKind.NAME, '"'),
    "TEXT": (FilterTokenKind.TEXT, "'"),
}
"""The kinds of quoted tokens, with the character that is doubled inside."""


def _word(group: str, text: str, at: int) -> FilterToken | None:
    if group == "SPACE":
        return None
    if group in _QUOTES:
        kind, quote = _QUOTES[group]
        return FilterToken(kind, text[1:-1].replace(quote * 2, quote), at)
    if group == "PARAMETER":
        return FilterToken(FilterTokenKind.PARAMETER, text[1:].lower(), at)
    if group == "NAME" and text.upper() in KEYWORDS:
        return FilterToken(FilterTokenKind.KEYWORD, text.upper(), at)
    return FilterToken(FilterTokenKind[group], text, at, plain=group == "NAME")


MAX_DEPTH = 32
MAX_STATEMENTS = 32

_PREDICATES = (Comparison, Exists, In, IsNull, Junction, Like, Not)
_COMPARISONS = ("=", "<>", "!=", ">", ">=", "<", "<=")
_CONSTANTS = {"NULL": None, "TRUE": True, "FALSE": False}
_MOST_WHOLE = 2**63 - 1

Node = Predicate | ValueNode
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Set:
    """SET target = value"""

    target: Property
    value: ValueNode


@dataclass(frozen=True, slots=True)
class Remove:
    """REMOVE target"""

    target: Property


Statement = Set | Remove


def parse_filter(text: str) -> tuple[Predicate, frozenset[str]]:
    """Return the predicate and the names of its parameters. Raises FilterSyntaxError."""
    parser = _Parser(text)
    predicate = parser.predicate()
    parser.end()
    return predicate, frozenset(parser.parameters)


def parse_action(text: str) -> tuple[tuple[Statement, ...], frozenset[str]]:
    """Return the statements and the names of their parameters. Raises FilterSyntaxError."""
    parser = _Parser(text)
    statements = parser.statements()
    parser.end()
    return statements, frozenset(parser.parameters)


class _Parser:
    def __init__(self, text: str) -> None:
        self._words = tokenize(text)
        self._next = 0
        self._depth = 0
        self.parameters: set[str] = set()

    # ------------------------------------------------------------------ words

    @property
    def _word(self) -> FilterToken:
        return self._words[self._next]

    def _take(self) -> FilterToken:
        word = self._word
        if word.sort is not FilterTokenKind.END:
            self._next += 1
        return word

    def _skip(self, *texts: str) -> str | None:
        """Consume the next word if it is one of these keywords or symbols."""
        if self._word.sort in (FilterTokenKind.KEYWORD, FilterTokenKind.SYMBOL) and self._word.text in texts:
            return self._take().text
        return None

    def _expect(self, text: str) -> None:
        if self._skip(text) is None:
            raise self._unexpected(f"'{text}'")

    def _unexpected(self, wanted: str, word: FilterToken | None = None) -> FilterSyntaxError:
        word = word or self._word
        found = word.text if word.sort is FilterTokenKind.END else f"'{word.text}'"
        return FilterSyntaxError(f"{wanted} was expected at character {word.at}, not {found}")

    def end(self) -> None:
        if self._word.sort is not FilterTokenKind.END:
            raise self._unexpected("the end of the expression")

    # ------------------------------------------------------------------ predicates

    def predicate(self) -> Predicate:
        return self._as_predicate(self._either)

    def _either(self) -> Node:
        return self._joined(self._conjunction, "OR", decisive=True)

    def _conjunction(self) -> Node:
        return self._joined(self._negation, "AND", decisive=False)

    def _joined(self, part: Callable[[], Node], word: str, *, decisive: bool) -> Node:
        at = self._next
        first = part()
        if self._word.sort is not FilterTokenKind.KEYWORD or self._word.text != word:
            return first
        parts = [self._checked_predicate(first, self._words[at])]
        while self._skip(word):
            parts.append(self._as_predicate(part))
        return Junction(decisive, tuple(parts))

    def _negation(self) -> Node:
        if not self._skip("NOT"):
            return self._comparison()
        return Not(self._as_predicate(self._deeper(self._negation)))

    def _comparison(self) -> Node:
        if self._skip("EXISTS"):
            return Exists(self._in_parentheses(self._property))
        at = self._next
        left = self._sum()
        if operator := self._skip(*_COMPARISONS):
            return Comparison(self._checked_value(left, self._words[at]), operator, self._value())
        if self._skip("IS"):
            return self._is_null(left, self._words[at])
        negated = self._skip("NOT") is not None
        if self._skip("IN"):
            found: Predicate = In(self._checked_value(left, self._words[at]), self._in_parentheses(self._list))
        elif self._skip("LIKE"):
            pattern = self._value()
            escape = self._value() if self._skip("ESCAPE") else None
            found = Like(self._checked_value(left, self._words[at]), pattern, escape)
        elif negated:
            raise self._unexpected("IN or LIKE")
        else:
            return left
        return Not(found) if negated else found

    def _is_null(self, left: Node, at: FilterToken) -> Predicate:
        negated = self._skip("NOT") is not None
        self._expect("NULL")
        if not isinstance(left, Property):
            raise self._unexpected("a property before IS", at)
        return Not(IsNull(left)) if negated else IsNull(left)

    def _list(self) -> tuple[ValueNode, ...]:
        values = [self._value()]
        while self._skip(","):
            values.append(self._value())
        return tuple(values)

    def _in_parentheses(self, inside: Callable[[], T]) -> T:
        self._expect("(")
        found = inside()
        self._expect(")")
        return found

    def _as_predicate(self, read: Callable[[], Node]) -> Predicate:
        at = self._word
        return self._checked_predicate(read(), at)

    def _checked_predicate(self, node: Node, at: FilterToken) -> Predicate:
        if isinstance(node, _PREDICATES):
            return node
        raise self._unexpected("a condition such as color = 'red'", at)

    # ------------------------------------------------------------------ values

    def _value(self) -> ValueNode:
        at = self._word
        return self._checked_value(self._sum(), at)

    def _checked_value(self, node: Node, at: FilterToken) -> ValueNode:
        if isinstance(node, _PREDICATES):
            raise self._unexpected("a value", at)
        return node  # type: ignore[return-value]  # a node that is not a predicate is a value

    def _sum(self) -> Node:
        return self._chain(self._product, "+", "-")

    def _product(self) -> Node:
        return self._chain(self._sign, "*", "/", "%")

    def _chain(self, operand: Callable[[], Node], *operators: str) -> Node:
        at = self._word
        first = operand()
        rest: list[tuple[str, ValueNode]] = []
        while operator := self._skip(*operators):
            behind = self._word
            rest.append((operator, self._checked_value(operand(), behind)))
        return Chain(self._checked_value(first, at), tuple(rest)) if rest else first

    def _sign(self) -> Node:
        sign = self._skip("+", "-")
        if sign is None:
            return self._primary()
        at = self._word
        operand = self._checked_value(self._deeper(self._sign)(), at)
        if sign == "+":
            return operand
        if isinstance(operand, Constant) and isinstance(operand.constant, int | float):
            return Constant(-operand.constant)
        return Negative(operand)

    def _primary(self) -> Node:
        word = self._take()
        match word.sort:
            case FilterTokenKind.TEXT:
                return Constant(word.text)
            case FilterTokenKind.DOUBLE:
                return Constant(float(word.text))
            case FilterTokenKind.WHOLE:
                if int(word.text) > _MOST_WHOLE:
                    raise FilterSyntaxError(f"{word.text} at character {word.at} is beyond a 64-bit whole number")
                return Constant(int(word.text))
            case FilterTokenKind.PARAMETER:
                self.parameters.add(word.text)
                return Parameter(word.text)
            case FilterTokenKind.NAME:
                return self._named(word)
            case FilterTokenKind.KEYWORD if word.text in _CONSTANTS:
                return Constant(_CONSTANTS[word.text])
        if word == FilterToken(FilterTokenKind.SYMBOL, "(", word.at):
            inside = self._deeper(self._either)()
            self._expect(")")
            return inside
        raise self._unexpected("a value or a condition", word)

    def _named(self, word: FilterToken) -> Node:
        """Return a property, or a function if a parenthesis follows."""
        if not (word.plain and self._skip("(")):
            return self._property_from(word)
        function = word.text.lower()
        if function == "newid":
            self._expect(")")
            return NewId()
        if function not in ("p", "property"):
            raise self._unexpected("newid, property or p before a parenthesis", word)
        node = PropertyByName(self._deeper(self._value)())
        self._expect(")")
        return node

    def _property(self) -> Property:
        word = self._take()
        if word.sort is not FilterTokenKind.NAME:
            raise self._unexpected("the name of a property", word)
        return self._property_from(word)

    def _property_from(self, word: FilterToken) -> Property:
        if not self._skip("."):
            return Property(word.text)
        scope = word.text.lower()
        if scope not in ("sys", "user"):
            raise self._unexpected("sys or user before the dot", word)
        name = self._take()
        if name.sort not in (FilterTokenKind.NAME, FilterTokenKind.KEYWORD):
            raise self._unexpected("the name of a property", name)
        return Property(name.text, is_system=scope == "sys")

    def _deeper(self, read: Callable[[], T]) -> Callable[[], T]:
        """Return `read` for one level deeper; raises at a depth that endangers Python's stack."""

        def descend() -> T:
            if self._depth >= MAX_DEPTH:
                raise FilterSyntaxError(f"the expression is nested more than {MAX_DEPTH} levels deep")
            self._depth += 1
            try:
                return read()
            finally:
                self._depth -= 1

        return descend

    # ------------------------------------------------------------------ actions

    def statements(self) -> tuple[Statement, ...]:
        found: list[Statement] = []
        while verb := self._skip("SET", "REMOVE"):
            target = self._property()
            if verb == "SET":
                self._expect("=")
                found.append(Set(target, self._value()))
            else:
                found.append(Remove(target))
            self._skip(";")
        if not found:
            raise self._unexpected("SET or REMOVE")
        if len(found) > MAX_STATEMENTS:
            raise FilterSyntaxError(f"the action has {len(found)} statements; at most {MAX_STATEMENTS} are allowed")
        return tuple(found)
