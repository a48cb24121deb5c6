"""Filter and action text cut into words: names, constants, parameters, operators."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from servicebus_sandbox.broker.errors import FilterSyntaxError

MAX_LENGTH = 1024
"""Characters in one expression, as the service has it."""

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


class Sort(Enum):
    """What a word is; NAME covers every spelling of one."""

    NAME = auto()
    KEYWORD = auto()
    WHOLE = auto()
    DOUBLE = auto()
    TEXT = auto()
    PARAMETER = auto()
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Word:
    """`text` is unquoted, keywords are in capitals; `at` counts characters from 0; `plain`: a name without quotes."""

    sort: Sort
    text: str
    at: int
    plain: bool = False


def words_of(text: str) -> list[Word]:
    """The words, with one of the sort END behind them. Raises FilterSyntaxError."""
    if len(text) > MAX_LENGTH:
        raise FilterSyntaxError(f"the expression has {len(text)} characters; at most {MAX_LENGTH} are allowed")
    words: list[Word] = []
    at = 0
    while at < len(text):
        match = _WORDS.match(text, at)
        if match is None:
            raise FilterSyntaxError(f"{text[at]!r} at character {at} has no place in an expression")
        word = _word(match.lastgroup or "", match.group(), at)
        if word is not None:
            words.append(word)
        at = match.end()
        if word is not None and word.sort in (Sort.WHOLE, Sort.DOUBLE) and text[at : at + 1].isalnum():
            raise FilterSyntaxError(f"the number at character {word.at} runs into {text[at]!r}")
    return [*words, Word(Sort.END, "the end", len(text))]


def _word(group: str, text: str, at: int) -> Word | None:
    match group:
        case "SPACE":
            return None
        case "NAME":
            is_keyword = text.upper() in KEYWORDS
            return Word(Sort.KEYWORD, text.upper(), at) if is_keyword else Word(Sort.NAME, text, at, plain=True)
        case "BRACKETED":
            return Word(Sort.NAME, text[1:-1].replace("]]", "]"), at)
        case "QUOTED":
            return Word(Sort.NAME, text[1:-1].replace('""', '"'), at)
        case "TEXT":
            return Word(Sort.TEXT, text[1:-1].replace("''", "'"), at)
        case "PARAMETER":
            return Word(Sort.PARAMETER, text[1:].lower(), at)
    return Word(Sort[group], text, at)
