"""Splits filter and action text into tokens: names, constants, parameters, operators."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from servicebus_sandbox.broker.broker_errors import FilterSyntaxError

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


def _word(group: str, text: str, at: int) -> FilterToken | None:
    match group:
        case "SPACE":
            return None
        case "NAME":
            is_keyword = text.upper() in KEYWORDS
            return (
                FilterToken(FilterTokenKind.KEYWORD, text.upper(), at)
                if is_keyword
                else FilterToken(FilterTokenKind.NAME, text, at, plain=True)
            )
        case "BRACKETED":
            return FilterToken(FilterTokenKind.NAME, text[1:-1].replace("]]", "]"), at)
        case "QUOTED":
            return FilterToken(FilterTokenKind.NAME, text[1:-1].replace('""', '"'), at)
        case "TEXT":
            return FilterToken(FilterTokenKind.TEXT, text[1:-1].replace("''", "'"), at)
        case "PARAMETER":
            return FilterToken(FilterTokenKind.PARAMETER, text[1:].lower(), at)
    return FilterToken(FilterTokenKind[group], text, at)
