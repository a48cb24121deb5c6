"""Traces one message: the receipts with its id in a pairing's journal, step by step (SPEC.md section 11).

The search covers complete files and those that an engine still writes. It searches bytes before it decodes records, so
a big journal costs one reading. Unreadable lines are reported, because one may be the receipt. The journal lacks some
messages: with journal = "diverted" those on the direct path, and always those of engines on other machines.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.pairing_events import DeadLettered, Delivered, Diverted, InDoubt, Moved, Record
from paired_servicebus.core.text.time_format import day_and_clock
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.engine.journal import records
from paired_servicebus.engine.journal.reader import files_of
from paired_servicebus.engine.journal.records import UnreadableLines
from paired_servicebus.engine.journal.spool import CLOSED

BLOCK_BYTES: Final = 1024 * 1024
"""Bytes of lines checked in one step."""

Receipt = Diverted | InDoubt | Moved | DeadLettered | Delivered


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One receipt: its time, engine and text."""

    at: float
    engine: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTrace:
    """A message's way through the pairing, as far as this journal knows it."""

    message_id: str
    steps: tuple[TraceStep, ...]
    """Oldest first; empty: the journal has no receipt of it."""
    outcome: str
    """Where the message is, as a sentence."""
    files: int
    first_at: float | None
    """Seconds since the epoch: the journal's oldest and newest record; None for an empty journal."""
    last_at: float | None
    torn: int
    """Lines that could not be read: half written, by an engine that writes now or by a crash, or changed on disk."""
    unread: tuple[str, ...] = ()
    """Which ones, a sentence for each file."""


def find(spool: Path, message_id: str) -> MessageTrace:
    """Search a journal's folder. Raises ConfigurationError: no id, or a journal that has no files or cannot be read."""
    if not message_id:
        raise ConfigurationError("the message_id is empty: name the message as its sender did")
    search = _Search(message_id)
    try:
        files = files_of(spool)
        for path in files:
            search.look_into(path)
    except OSError as error:
        raise ConfigurationError(f"the journal in {spool} cannot be read: {error.strerror or error}") from error
    if not files:
        raise ConfigurationError(
            f"there are no journal files in {spool}: no engine of this pairing has run here, or --config names another"
        )
    return search.found()


def as_lines(found: MessageTrace, journal: str) -> list[str]:
    """Format as lines: one for each step, the message's place, the journal's coverage.

    `journal` is the option's value.
    """
    steps = [f"{day_and_clock(step.at)}  {step.text}  ({step.engine})" for step in found.steps]
    return [*steps, f"{found.message_id}: {found.outcome}", covered(found, journal), *found.unread]


def as_json(found: MessageTrace, journal: str) -> str:
    """Format as one JSON object; times are seconds since the epoch."""
    told = {"found": bool(found.steps), **msgspec.to_builtins(found), "covers": covered(found, journal)}
    return msgspec.json.encode(told).decode()


def covered(found: MessageTrace, journal: str) -> str:
    """Return the journal's coverage as a sentence; `journal` is the option's value."""
    torn = f"{found.torn} torn line{'' if found.torn == 1 else 's'} skipped" if found.torn else ""
    skipped = f"; {torn}" if torn else ""
    if found.first_at is None or found.last_at is None:
        return f"no record in the journal's {plural_files(found.files)} can be read{skipped}"
    kept = "every message" if journal == "all" else "only messages that left the direct path or were in doubt"
    first, last = day_and_clock(found.first_at), day_and_clock(found.last_at)
    span = f"{first} to {last} UTC in {plural_files(found.files)}"
    return f'the journal covers {span}; with journal = "{journal}" it holds {kept}{skipped}'


def plural_files(count: int) -> str:
    """Return "1 file", "2 files"."""
    return f"{count} file{'' if count == 1 else 's'}"


class _Search:
    def __init__(self, message_id: str) -> None:
        self._id = message_id
        self._needle: Final = b'"message_id":' + _as_json(message_id)
        self._records: list[tuple[float, int, Record]] = []
        self._files = 0
        self._unread = UnreadableLines()
        self._span: list[float] = []

    def look_into(self, path: Path) -> None:
        try:
            file = path.open("rb")
        except FileNotFoundError:  # it has become whole since it was listed
            path = path.parents[1] / CLOSED / path.name
            if not path.exists():  # it was the oldest, and gave way to newer ones
                return
            file = path.open("rb")
        with file:
            if not file.seek(0, 2):
                return
            self._files += 1
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                self._search_bytes(path, data)

    def _search_bytes(self, path: Path, data: mmap.mmap) -> None:
        end = data.rfind(b"\n") + 1
        if end < len(data):
            self._unread.note(path, end, "it has no end")
        self._note_span(data, end)
        self._note_unread(path, data, end)
        for at, line in _lines_with(self._needle, data, end):
            record = self._unread.decode(path, at, line)
            if record is not None and getattr(record.event, "message_id", None) == self._id:
                self._records.append((record.event.at, record.seq, record))

    def _note_span(self, data: mmap.mmap, end: int) -> None:
        """Note the times of a file's first and last record; skip unreadable ones."""
        if not end:
            return
        first, last = data[: data.find(b"\n")], data[data.rfind(b"\n", 0, end - 1) + 1 : end - 1]
        for line in (first, last):
            record = _decode_or_none(line)
            if record is not None:
                self._span.append(record.event.at)

    def _note_unread(self, path: Path, data: mmap.mmap, end: int) -> None:
        """Note lines that are no records, in blocks: line by line only where one of them is not."""
        begin = 0
        while begin < end:
            stop = data.rfind(b"\n", begin, begin + BLOCK_BYTES) + 1 or data.find(b"\n", begin) + 1
            block = data[begin:stop]
            if not records.are_valid(block):
                for at, line in _lines(block):
                    if line.strip():
                        self._unread.decode(path, begin + at, line)
            begin = stop

    def found(self) -> MessageTrace:
        steps = sorted(self._records, key=lambda one: one[:2])
        receipts = [one.event for *_, one in steps if isinstance(one.event, Receipt)]
        return MessageTrace(
            message_id=self._id,
            steps=tuple(
                TraceStep(at=at, engine=one.engine, kind=one.event.kind, text=_TEXTS[type(one.event)](one.event))
                for at, _, one in steps
                if isinstance(one.event, Receipt)
            ),
            outcome=_outcome(receipts, unread=self._unread.count),
            files=self._files,
            first_at=min(self._span, default=None),
            last_at=max(self._span, default=None),
            torn=self._unread.count,
            unread=self._unread.tell(),
        )


def _as_json(message_id: str) -> bytes:
    try:
        return msgspec.json.encode(message_id)
    except UnicodeEncodeError as error:
        raise ConfigurationError("the message_id is not UTF-8, and so is no message's") from error


def _lines(block: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a block, which ends with a newline, with their offsets."""
    at = 0
    for line in block[:-1].split(b"\n"):
        yield at, line
        at += len(line) + 1


def _lines_with(needle: bytes, data: mmap.mmap, end: int) -> Iterator[tuple[int, bytes]]:
    place = data.find(needle, 0, end)
    while place >= 0:
        start, stop = data.rfind(b"\n", 0, place) + 1, data.find(b"\n", place)
        yield start, data[start:stop]
        place = data.find(needle, stop, end)


def _decode_or_none(line: bytes) -> Record | None:
    try:
        return records.decode(line)
    except records.UnreadableLineError:
        return None


_TEXTS: Final[dict[type, Any]] = {
    Diverted: lambda it: f"diverted: backlog/{it.queue} accepted it, for {it.entity}{_client(it)}",
    InDoubt: lambda it: (
        f"in doubt: {it.entity} by {it.route}: {it.reason}; it may have arrived all the same{_client(it)}"
    ),
    Moved: lambda it: f"moved: {it.entity} accepted it from backlog/{it.queue}",
    DeadLettered: lambda it: f"dead-lettered in backlog/{it.queue}: {it.reason}",
    Delivered: lambda it: f"delivered: {it.entity} accepted it directly{_client(it)}",
}


def _client(receipt: Diverted | InDoubt | Delivered) -> str:
    return "" if receipt.key is None else f" (from a client of the gateway, key {repeated(receipt.key)})"


def _outcome(receipts: list[Receipt], *, unread: int) -> str:
    """Return the message's place. Each backlog queue's copies are counted in and out."""
    if not receipts:
        return "not in the journal" + (", unless in a line that cannot be read" if unread else "")
    copies: Counter[int] = Counter()
    arrived: list[str] = []
    dead: list[int] = []
    for receipt in receipts:
        match receipt:
            case Diverted():
                copies[receipt.queue] += 1
            case Moved():
                copies[receipt.queue] -= 1
                arrived.append(receipt.entity)
            case DeadLettered():
                copies[receipt.queue] -= 1
                dead.append(receipt.queue)
            case Delivered():
                arrived.append(receipt.entity)
    said = [*_arrivals(arrived), *(f"in the dead-letter queue of backlog/{queue}" for queue in dead)]
    parked = sorted(queue for queue, number in copies.items() if number > 0)
    if parked:
        queues = ", ".join(f"backlog/{queue}" for queue in parked)
        said.append(f"parked in {queues}, unless a syphon on another machine has moved it")
    return "; ".join(said) or "in doubt: whether it arrived is not known here; ask the receivers for its message_id"


def _arrivals(entities: list[str]) -> list[str]:
    times = Counter(entities)
    return [f"arrived at {entity}" + (f" {count} times" if count > 1 else "") for entity, count in times.items()]
