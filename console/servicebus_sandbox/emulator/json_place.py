"""A value of a JSON file with its path, so that every mistake is one sentence with the place.

As in the official emulator's file, `//` and `/* */` comments and a comma before a closing bracket are allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

from servicebus_sandbox.atom.iso_durations import read_duration
from servicebus_sandbox.specs import SandboxConfigError

Value = TypeVar("Value")
Scalar = str | int | float | bool

_STRING: Final = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT: Final = r"//[^\n]*|/\*.*?\*/"
_BLANKED: Final = re.compile(rf"{_STRING}|(?P<comment>{_COMMENT})", re.DOTALL)
_LAST_COMMA: Final = re.compile(rf"{_STRING}|(?P<comma>,)(?=\s*[\]}}])", re.DOTALL)
_NOT_BLANK: Final = re.compile(r"[^\n]")
_MAX_SHOWN: Final = 60


class JsonObject(dict[str, Any]):
    """An object of the file; `repeated` has its names that occur more than once."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        listed = list(pairs)
        super().__init__(listed)
        names = [name for name, _ in listed]
        self.repeated = sorted({name for name in names if names.count(name) > 1})


class JsonPlace:
    """A value at `path` of `file`. Every method raises SandboxConfigError for a value of another kind."""

    def __init__(self, value: object, file: str, path: str = "") -> None:
        self._value = value
        self._file = file
        self.path = path

    @classmethod
    def read(cls, file: Path) -> JsonPlace:
        """Return the whole file. Raises SandboxConfigError."""
        try:
            text = file.read_text(encoding="utf-8-sig")
            return cls(json.loads(_without_comments(text), object_pairs_hook=JsonObject), str(file))
        except OSError as error:
            raise SandboxConfigError(f"{file} cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or nested too deeply
            raise SandboxConfigError(f"{file} is not JSON: {error}") from error

    def wrong(self, sentence: str) -> SandboxConfigError:
        """Return an error at this place."""
        return SandboxConfigError(f"{self._file}: {self.path or 'the whole file'}: {sentence}")

    def members(self, known: Iterable[str], *, required: Iterable[str] = ()) -> dict[str, JsonPlace]:
        """Return the members of an object by name, without those that are null."""
        values = self._of(JsonObject, "an object in braces")
        if values.repeated:
            raise self.member(values.repeated[0]).wrong("the name occurs twice in this object; remove one of the two")
        allowed = tuple(known)
        for name in values:
            if name not in allowed:
                raise self.member(name).wrong(f"there is nothing of this name; {_nearest(name, allowed)}")
        for name in required:
            if values.get(name) is None:
                raise self.member(name).wrong("it is missing")
        return {name: self.member(name) for name, value in values.items() if value is not None}

    def member(self, name: str) -> JsonPlace:
        """Return the place of a member, whether it exists or not."""
        value = self._value.get(name) if isinstance(self._value, Mapping) else None
        return JsonPlace(value, self._file, f"{self.path}.{name}" if self.path else name)

    def items(self) -> list[JsonPlace]:
        """Return the items of a list."""
        values = self._of(list, "a list in brackets")
        return [JsonPlace(value, self._file, f"{self.path}[{number}]") for number, value in enumerate(values)]

    def text(self) -> str:
        return self._of(str, 'a string, as in "orders"')

    def flag(self) -> bool:
        return self._of(bool, "true or false")

    def integer(self) -> int:
        if isinstance(self._value, bool):
            raise self._misplaced("a whole number")
        return self._of(int, "a whole number")

    def duration(self) -> timedelta | None:
        """Return an ISO 8601 duration, None for unlimited."""
        try:
            return read_duration(self._of(str, 'a duration, as in "PT1M"'))
        except ValueError as error:
            raise self._misplaced('a duration, as in "PT30S", "PT1M" or "PT1H"') from error

    def choice(self, allowed: Iterable[str]) -> str:
        """Return one of some strings, found without regard to case."""
        names = tuple(allowed)
        for name in names:
            if isinstance(self._value, str) and self._value.lower() == name.lower():
                return name
        raise self._misplaced(" or ".join(f'"{name}"' for name in names))

    def scalars(self) -> dict[str, Scalar]:
        """Return an object of strings, numbers and booleans."""
        found: dict[str, Scalar] = {}
        for name, place in self.members(self._of(JsonObject, "an object in braces")).items():
            if not isinstance(place._value, str | int | float):
                raise place._misplaced("a string, a number, true or false")
            found[name] = place._value
        return found

    def _of(self, kind: type[Value], right: str) -> Value:
        if not isinstance(self._value, kind):
            raise self._misplaced(right)
        return self._value

    def _misplaced(self, right: str) -> SandboxConfigError:
        text = json.dumps(self._value, ensure_ascii=False)
        shown = text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."
        return self.wrong(f"it is {shown}; it has to be {right}")


def _nearest(name: str, known: tuple[str, ...]) -> str:
    """Return the likely name, else all names."""
    by_case = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), by_case, 1)
    return f"did you mean {by_case[near[0]]}?" if near else f"known are {', '.join(known)}"


def _without_comments(text: str) -> str:
    """Blank the comments and the last commas, so that errors have the line and column of the file."""
    text = _BLANKED.sub(lambda found: _blank(found, "comment"), text)
    return _LAST_COMMA.sub(lambda found: _blank(found, "comma"), text)


def _blank(found: re.Match[str], group: str) -> str:
    return found[0] if found[group] is None else _NOT_BLANK.sub(" ", found[0])
