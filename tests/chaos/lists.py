"""What each process writes down as it happens: a file of its own, one JSON line a fact, never changed again.

A line is one write to the operating system, so that a killed process leaves everything it wrote before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.accounting.ledger import SendOutcome

SUFFIX: Final = ".list"


class Attempted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A sender begins an attempt; written before anything is sent."""

    at: float
    entity: str
    ids: list[str]


class Told(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What the sender was told of the attempt that began last with these ids."""

    at: float
    ids: list[str]
    answer: SendOutcome
    error: str = ""


class Stood(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The states of a sender's entities, where they have changed."""

    at: float
    who: str
    states: dict[str, str]


class Arrived(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A receiver was given a message. `number`: the broker's own of it, the same when it is given out again.
    `changed`: what of it is not as it was sent."""

    at: float
    entity: str
    id: str
    number: int
    changed: str = ""


class Began(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The director begins an episode. `opens`: whether it can open one of the windows in which duplicates arise."""

    at: float
    episode: int
    title: str
    opens: bool


class Recovered(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All works again after an episode."""

    at: float
    episode: int


class Found(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The director saw something that must not be."""

    at: float
    text: str


class Lying(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What the director found in a queue when everything had come to rest."""

    at: float
    place: str
    dead: bool
    """Whether the place is one for dead letters."""
    ids: list[str]


Fact = Attempted | Told | Stood | Arrived | Began | Recovered | Found | Lying

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final[msgspec.json.Decoder[Fact]] = msgspec.json.Decoder(Fact)


class List:
    """A process's own list, open for writing."""

    def __init__(self, folder: Path, name: str) -> None:
        self._fd = os.open(folder / f"{name}{SUFFIX}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, fact: Fact) -> None:
        """One more line."""
        os.write(self._fd, _ENCODER.encode(fact) + b"\n")


class Tail:
    """All lists of a folder, read as they grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def news(self) -> Iterator[Fact]:
        """What was written since the last call; a line that is not complete waits for the next."""
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            yield from map(_DECODER.decode, whole.splitlines())


def now() -> float:
    """Seconds since the epoch: the clock that all processes of a machine share."""
    return time.time()
