"""The encoding of an event as one line of JSON, used in spool files and on the control socket.

A line has v, engine, boot, seq, ts (int64 microseconds since the epoch, UTC) and kind, then the event's own fields by
name, without those that are None. It is flat, so table readers need no nested types. A reader skips lines of
another format or of an unknown kind.

Not here: files (writer.py) and the control protocol (protocol.py).

An unreadable line is identified by its file and offset, so each is reported once by all readers of one journal.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import msgspec

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.pairing_events import KINDS, Event, Record
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.time_format import END
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.foreign_json import read_json

VERSION: Final = 1
MICROSECONDS: Final = 1_000_000
LATEST: Final = int(END) * MICROSECONDS
"""The time that no record reaches: see paired_servicebus.core.text.time_format."""

JOURNAL_ONLY: Final = (
    e.Delivered,
    e.Diverted,
    e.FailuresCounted,
    e.InDoubt,
    e.Moved,
    e.OperationsCounted,
    e.QueueRead,
    e.MessageReceived,
    e.Refused,
    e.SendsCounted,
)
"""Events that stay in the journal: thousands a second in an outage."""

_SENTENCES: Final = frozenset({"reason", "why", "text", "outcome"})
"""Fields that may repeat a library's text, with a secret in it."""
_ENCODER: Final = msgspec.json.Encoder()
_FIELDS: dict[type[Event], tuple[str, ...]] = {}


class _Header(msgspec.Struct):
    v: int
    engine: str
    boot: str
    seq: int
    ts: int
    kind: str


_HEADER_DECODER: Final = msgspec.json.Decoder(_Header)
_LINE_DECODER: Final = msgspec.json.Decoder(dict[str, object])


class UnreadableLineError(UnreadableError):
    """A line that is no record: torn, changed on disk, or written by something else."""


def encode(record: Record) -> bytes:
    """Encode the record as one line without its newline. JSON escapes newlines in texts."""
    event = record.event
    line: dict[str, object] = {
        "v": VERSION,
        "engine": record.engine,
        "boot": record.boot,
        "seq": record.seq,
        "ts": round(event.at * MICROSECONDS),
        "kind": event.kind,
    }
    for name in _field_names(type(event)):
        value = getattr(event, name)
        if value is not None:
            line[name] = masked(value) if name in _SENTENCES else value
    return _ENCODER.encode(line)


def decode(line: bytes) -> Record | None:
    """Decode the record in a line; None for an unknown kind or another format.

    Raises:
        UnreadableLineError: the line is not a record.
    """
    try:
        header = read_json(_HEADER_DECODER, line)
        kind = KINDS.get(header.kind)
        if kind is None or header.v != VERSION:
            return None
        if not 0 <= header.ts < LATEST:
            raise UnreadableError("its time is not between the years 1970 and 9999")
        values = read_json(_LINE_DECODER, line)
        event = msgspec.convert({**values, "at": header.ts / MICROSECONDS}, kind)
    except UnreadableError as error:
        raise UnreadableLineError(f"not a record: {error}") from error
    except (msgspec.ValidationError, RecursionError) as error:
        raise UnreadableLineError(f"not a record: {repeated(str(error))}") from error
    return Record(engine=header.engine, boot=header.boot, seq=header.seq, event=event)


def are_valid(lines: bytes) -> bool:
    """Return whether each of these lines is a record of a known kind, checked in one pass.

    If False, `decode` each line for its error. Every line ends with a newline.
    """
    try:
        lines.decode()
        return len(_ANY_KIND.decode_lines(lines)) == lines.count(b"\n")
    except (ValueError, OverflowError, RecursionError):
        return False


def _shape(name: str, kind: type[Event]) -> type[msgspec.Struct]:
    """Return the type of a kind's line."""
    hints = get_type_hints(kind)
    header: list[tuple[Any, ...]] = [
        ("v", int),
        ("engine", str),
        ("boot", str),
        ("seq", int),
        ("ts", Annotated[int, _POSSIBLE]),
    ]
    own = [
        (field.name, hints[field.name], *(() if field.default is MISSING else (field.default,)))
        for field in fields(kind)
        if field.name != "at"
    ]
    return msgspec.defstruct(kind.__name__, [*header, *own], tag_field="kind", tag=name, kw_only=True)


_POSSIBLE: Final = msgspec.Meta(ge=0, lt=LATEST)
_ANY_KIND: Final[msgspec.json.Decoder[object]] = msgspec.json.Decoder(
    reduce(or_, (_shape(name, kind) for name, kind in KINDS.items()))
)


def _field_names(kind: type[Event]) -> tuple[str, ...]:
    names = _FIELDS.get(kind)
    if names is None:
        names = _FIELDS[kind] = tuple(field.name for field in fields(kind) if field.name != "at")
    return names


MAX_NAMED_FILES: Final = 5
"""Files that get their own sentence; the rest is counted."""
_BLOCK: Final = 1024 * 1024


class UnreadableLines:
    """Collects lines that could not be read. `count` is how many in all."""

    def __init__(self) -> None:
        self.count = 0
        self._known: set[tuple[str, int]] = set()
        self._new: dict[Path, list[tuple[int, str]]] = {}

    def note(self, path: Path, at: int, why: object) -> None:
        """Note the line that begins at byte `at` of a file, unless it is known."""
        if (path.name, at) in self._known:
            return
        self._known.add((path.name, at))
        self._new.setdefault(path, []).append((at, str(why)))
        self.count += 1

    def decode(self, path: Path, at: int, line: bytes) -> Record | None:
        """Decode the line at byte `at` of a file, or note that it is unreadable. None: so, or an unknown kind."""
        try:
            return decode(line)
        except UnreadableLineError as error:
            self.note(path, at, error)
            return None

    def tell(self) -> tuple[str, ...]:
        """Return a sentence for each file with lines that were noted since the last call."""
        new, self._new = self._new, {}
        told = [_sentence(path, lines) for path, lines in sorted(new.items())[:MAX_NAMED_FILES]]
        rest = [len(lines) for _, lines in sorted(new.items())[MAX_NAMED_FILES:]]
        if rest:
            told.append(f"{sum(rest)} lines of {len(rest)} more files cannot be read")
        return tuple(told)


def _sentence(path: Path, lines: list[tuple[int, str]]) -> str:
    at, why = min(lines)
    name, place = repeated(path.name), _place(path, at)
    if len(lines) == 1:
        return f"{place} of {name} cannot be read ({why}); it is passed over"
    return f"{len(lines)} lines of {name} cannot be read, the first is {place} ({why}); they are passed over"


def _place(path: Path, at: int) -> str:
    """Return the number of the line at an offset; the offset if the file has gone meanwhile."""
    number, left = 1, at
    try:
        with path.open("rb") as file:
            while left and (block := file.read(min(left, _BLOCK))):
                number += block.count(b"\n")
                left -= len(block)
    except OSError:
        return f"the line at byte {at}"
    return f"line {number}"
