"""What the primary last answered to reads of its administration, for the time when it is away. In memory, bounded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import parse_qsl, unquote

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_ANSWER: Final = 512 * 1024
_PAGE: Final = ("$skip", "$top")
_RESOURCE: Final = re.compile(r"(/\$namespaceinfo|/\$resources/\w+|.*/subscriptions|.*/rules)", re.DOTALL)
"""Paths of the namespace and of lists, in lower case; what another one names is an entry."""


@dataclass(frozen=True, slots=True)
class SeenAnswer:
    """An answer of the primary. seen_at: epoch seconds; None: it is the primary's present one."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seen_at: float | None = None


class SeenAnswers:
    """Answers by path and page; the one that was seen longest ago leaves when there is no room."""

    def __init__(self) -> None:
        self._answers: dict[str, SeenAnswer] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, target: str) -> SeenAnswer | None:
        """Return what was last seen at a path with its query; None: nothing."""
        return self._answers.get(_key(target))

    def note(self, method: str, target: str, path: str, answer: SeenAnswer, now: float) -> None:
        """Keep what a read or a change has shown. path: decoded."""
        key = _key(target)
        if method == "GET":
            is_entry = _RESOURCE.fullmatch(key.partition("?")[0]) is not None or b"<entry" in answer.body
            if answer.status == 200 and is_entry and len(answer.body) <= MAX_ANSWER:
                self._put(key, replace(answer, seen_at=now))
            else:
                self._drop(key)
            return
        if answer.status >= 400 and answer.status != 404:
            return
        changed = path.lower()
        for each in [one for one in self._answers if _is_touched(one.partition("?")[0], changed)]:
            self._drop(each)  # the answer to a change has no counts, and may repeat the request alone

    def _put(self, key: str, answer: SeenAnswer) -> None:
        self._drop(key)
        self._answers[key] = answer
        self._size += len(answer.body)
        while self._size > MAX_BYTES:
            self._drop(next(iter(self._answers)))

    def _drop(self, key: str) -> None:
        dropped = self._answers.pop(key, None)
        if dropped is not None:
            self._size -= len(dropped.body)


def _key(target: str) -> str:
    """Return a path without regard to case and encoding, and the page of a list; versions do not count."""
    path, _, query = target.partition("?")
    page = [f"{name}={value}" for name, value in parse_qsl(query) if name.lower() in _PAGE]
    return "?".join(("/" + unquote(path).strip("/").lower(), *sorted(page)))


def _is_touched(known: str, changed: str) -> bool:
    """Return whether a change at a path may have changed what is known at another one: itself, below it, lists."""
    return known == changed or known.startswith((changed + "/", "/$")) or changed.startswith(known + "/")
