"""Patterns of LIKE: `%` matches any run of characters, `_` any single one; case counts.

Matching takes at worst time in proportion to text times pattern, unlike a regular expression.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from servicebus_sandbox.broker.broker_errors import EvaluationError


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
