"""An event in an engine's history as one line of JSON: the form that spool files and control socket share.

A line holds v, engine, boot, seq, ts (int64 microseconds since the epoch, UTC) and kind, then the event's own fields by
their names; what is None is left out. Flat, so that a reader of tables needs no nested types. A reader skips kinds
that it doesn't know: an older console can follow a newer engine.

Not here: files (journal.py) and the conversation on the socket (protocol.py).
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

import msgspec

from console.core.events import KINDS, Event, Record

VERSION: Final = 1
HEADER: Final = ("v", "engine", "boot", "seq", "ts", "kind")
MICROSECONDS: Final = 1_000_000

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


class UnreadableLineError(ValueError):
    """A line that is no record: torn, or written by something else."""


def encode(record: Record) -> bytes:
    """The record as one line without its newline. JSON escapes newlines in texts, so a line is a record."""
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
            line[name] = value
    return _ENCODER.encode(line)


def decode(line: bytes) -> Record | None:
    """The record in a line; None for a kind or a version that this program doesn't know.

    Raises:
        UnreadableLineError: the line is no record.
    """
    try:
        header = _HEADER_DECODER.decode(line)
        kind = KINDS.get(header.kind)
        if kind is None or header.v > VERSION:
            return None
        values = _LINE_DECODER.decode(line)
        event = msgspec.convert({**values, "at": header.ts / MICROSECONDS}, kind)
    except msgspec.MsgspecError as error:
        raise UnreadableLineError(f"not a record: {error}") from error
    return Record(engine=header.engine, boot=header.boot, seq=header.seq, event=event)


def _field_names(kind: type[Event]) -> tuple[str, ...]:
    names = _FIELDS.get(kind)
    if names is None:
        names = _FIELDS[kind] = tuple(field.name for field in fields(kind) if field.name != "at")
    return names
