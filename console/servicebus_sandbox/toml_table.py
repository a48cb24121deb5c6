"""TOML tables with a sentence for each mistake: values are consumed by name, and none may be left.

It knows types and places; `spec_file` knows namespaces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final, TypeVar

from servicebus_sandbox.atom.iso_durations import read_duration
from servicebus_sandbox.broker.broker_errors import BrokerError

Choice = TypeVar("Choice", bound=StrEnum)
Value = TypeVar("Value")
Scalar = str | int | float | bool

_SHORT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d)")
_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_MISSING: Final = object()


class SandboxConfigError(Exception):
    """A mistake in one sentence: the file, the place, the flaw and the remedy."""


class TomlTable:
    """A table at `place`. A getter without a default requires the value; all raise SandboxConfigError."""

    def __init__(self, values: Mapping[str, Any], place: str) -> None:
        self._values = values
        self._place = place
        self._asked: dict[str, None] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def called(self, name: str) -> TomlTable:
        """Return the same table under the name of its content."""
        renamed = TomlTable(self._values, f"{self._place.rpartition(', ')[0]}, {name}")
        renamed._asked = self._asked
        return renamed

    def wrong(self, sentence: str) -> SandboxConfigError:
        return SandboxConfigError(f"{self._place}: {sentence}")

    @contextmanager
    def complaining(self, names: Mapping[str, str] | None = None) -> Iterator[None]:
        """Raise the broker's refusals as errors of this place; `names` maps its fields to the names here."""
        try:
            yield
        except BrokerError as error:
            field, space, rest = str(error).partition(" ")
            raise self.wrong(f"{(names or {}).get(field, field)}{space}{rest}") from error

    # ------------------------------------------------------------------ taking values out

    def text(self, name: str, default: str | None = None) -> str:
        return self._take(name, str, 'a string in quotes, as in "orders"', default)

    def integer(self, name: str, default: int | None = None) -> int:
        return self._take(name, int, "a whole number", default)

    def flag(self, name: str) -> bool:
        return self._take(name, bool, "true or false", None)

    def duration(self, name: str) -> timedelta | None:
        """Return a duration: `30s`, `5m`, `2h`, `7d` or ISO 8601; None for unlimited."""
        text = self._take(name, str, 'a duration, as in "30s", "5m", "7d" or "PT30S"', None)
        short = _SHORT.fullmatch(text.strip())
        try:
            return timedelta(**{_UNITS[short[2]]: float(short[1])}) if short else read_duration(text)
        except (ValueError, OverflowError) as error:
            raise self.wrong(
                f'{name} is "{text}"; it has to be a duration, as in "30s", "5m", "7d" or "PT30S"'
            ) from error

    def choice(self, name: str, kind: type[Choice], default: Choice | None = None) -> Choice:
        text = self._take(name, str, f"one of {', '.join(kind)}", None if default is None else default.value)
        return self._chosen(name, text, kind)

    def choices(self, name: str, kind: type[Choice]) -> list[Choice]:
        texts = self._take(name, list, f"a list out of {', '.join(kind)}", None)
        return [self._chosen(name, text, kind) for text in texts]

    def scalars(self, name: str) -> dict[str, Scalar]:
        """Return a table of strings, numbers and booleans; empty if there is none."""
        values = self._take(name, dict, "a table of names and values", {})
        for key, value in values.items():
            if not isinstance(value, Scalar):
                raise self.wrong(f"{name}.{key} is {_shown(value)}; it has to be a string, a number, true or false")
        return values

    def tables(self, name: str) -> list[TomlTable]:
        """Return a list of tables (`[[name]]`), also for a single one; empty if there are none."""
        given = self._take(name, object, "a table, or a list of tables", [])
        items = given if isinstance(given, list) else [given]
        for item in items:
            if not isinstance(item, dict):
                raise self.wrong(f"{name} is or holds {_shown(item)}; it has to be a table, or a list of tables")
        places = [name if len(items) == 1 else f"{name} {number}" for number in range(1, len(items) + 1)]
        return [TomlTable(item, f"{self._place}, {place}") for item, place in zip(items, places, strict=True)]

    def named(self, name: str, kind: str) -> list[TomlTable]:
        """Return the items of a list, each a name or a table with one."""
        found = []
        for number, item in enumerate(self._take(name, list, f"a list of names and tables, each a {kind}", []), 1):
            if not isinstance(item, str | dict):
                raise self.wrong(f"{name} holds {_shown(item)}; each {kind} has to be a name or a table with a name")
            values = {"name": item} if isinstance(item, str) else item
            place = f"{kind} '{values['name']}'" if isinstance(values.get("name"), str) else f"{kind} {number}"
            found.append(TomlTable(values, f"{self._place}, {place}"))
        return found

    def end(self, also: Iterable[str] = ()) -> None:
        """Raise for unconsumed values; `also` are allowed."""
        known = dict.fromkeys((*self._asked, *also))
        for name in self._values:
            if name not in known:
                near = get_close_matches(name, known, 1)
                right = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
                raise self.wrong(f"there is nothing called {name} here; {right}")

    # ------------------------------------------------------------------ inside

    def _take(self, name: str, kind: type[Value], right: str, default: Value | None) -> Value:
        self._asked[name] = None
        value = self._values.get(name, _MISSING)
        if value is _MISSING:
            if default is None:
                raise self.wrong(f"{name} is missing; it has to be {right}")
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise self.wrong(f"{name} is {_shown(value)}; it has to be {right}")
        return value

    def _chosen(self, name: str, text: object, kind: type[Choice]) -> Choice:
        for choice in kind:
            if isinstance(text, str) and text.lower() == choice.lower():
                return choice
        raise self.wrong(f"{name} is {_shown(text)}; it has to be one of {', '.join(kind)}")


def _shown(value: object) -> str:
    """Return the value as written in the file."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
