"""A journal as a sick disk, a crash or a stranger leaves it: written by the journal itself, then changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from paired_servicebus.core.model.pairing_events import Commanded, CommandEnded, Event, Record, Warned
from paired_servicebus.engine.journal import records, spool
from paired_servicebus.engine.journal.writer import Journal
from tests.bench.spark.synthetic_journal import events

START = 1_790_000_000.0
ENGINE, BOOT = "orders@here", "b0"
GOOD = records.encode(
    Record(engine=ENGINE, boot=BOOT, seq=9001, event=Warned(at=START + 9.0, about="here", text="good"))
)


def _with(old: bytes, new: bytes) -> bytes:
    assert old in GOOD
    return GOOD.replace(old, new)


_TIME = b"1790000009000000"
UNREADABLE: dict[str, bytes] = {
    "null": b"null",
    "null, and more": b"  nullify",
    "a list": b"[]",
    "a number": b"1",
    "a text": b'"text"',
    "zeros": bytes(70_000),
    "a zero in it": _with(b"good", b"go\0d"),
    "a byte that is not UTF-8": _with(b"good", b"g\xffd"),
    "a name that is not UTF-8": _with(b'"text"', b'"te\xfft"'),
    "lists in lists, never closed": b"[" * 100_000,
    "a text that is objects in objects": _with(b'"good"', b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "ten megabytes": b"x" * 10_000_000,
    "a number of 5,000 digits": _with(b"9001", b"9" * 5000),
    "the year 10^12": _with(_TIME, b"3" + b"0" * 25),
    "the year 20,000": _with(_TIME, b"568971820800000000"),
    "before 1970": _with(_TIME, b"-1"),
    "a time that is no number": _with(_TIME, b"NaN"),
    "an endless time": _with(_TIME, b"Infinity"),
    "a time beyond all numbers": _with(_TIME, b"1e999"),
    "half a surrogate": _with(b"good", b"\\ud800"),
    "the other half": _with(b"good", b"\\udc00"),
    "cut short": GOOD[: len(GOOD) // 2],
    "two in one": GOOD + GOOD,
    "another shape": b'{"v":{"v":1},"engine":[],"boot":null}',
    "a shape of somebody else": b'{"somebody":{"else":["s"]}}',
    "a field missing": GOOD[: GOOD.index(b',"text"')] + b"}",
    "a field of another type": _with(b'"good"', b"7"),
}
"""Lines that no reader takes for a record, each for a reason of its own."""


def told(count: int) -> list[Event]:
    """Two outages of three entities, and an operator's acts, the last of them without an end."""
    made = list(events(count, per_second=20, start=START))
    acts = [
        Commanded(at=START + 1, command="force", target="orders", by="ada"),
        CommandEnded(at=START + 2, command_seq=count + 1, outcome="done"),
        Commanded(at=START + 3, command="pin", target="orders", by="ada", why="drill"),
    ]
    return [*made, *acts]


async def write(folder: Path, count: int = 300) -> Path:
    """A journal in one whole file; the file."""
    async with Journal(folder, engine=ENGINE, clock=lambda: START) as journal:
        for seq, event in enumerate(told(count), start=1):
            journal.append(records.encode(Record(engine=ENGINE, boot=BOOT, seq=seq, event=event)))
    (path,) = (folder / spool.CLOSED).glob(f"*{spool.SUFFIX}")
    return path


def flipped(data: bytes, random: Random, places: int) -> tuple[bytes, set[int]]:
    """The data with bytes changed at random places, and the numbers of the lines (from 0) that are as they were."""
    changed = bytearray(data)
    for _ in range(places):
        changed[random.randrange(len(data))] ^= random.randrange(1, 256)
    now = bytes(changed)
    before, starts = data.split(b"\n"), _starts(now)
    at, sound = 0, set()
    for number, line in enumerate(before[:-1]):
        if at in starts and now[at : at + len(line) + 1] == line + b"\n":
            sound.add(number)
        at += len(line) + 1
    return now, sound


def _starts(data: bytes) -> set[int]:
    return {0, *(place + 1 for place, byte in enumerate(data) if byte == ord("\n"))}


def between(lines: Sequence[bytes], strange: bytes) -> bytes:
    """A file with a strange line in the middle."""
    half = len(lines) // 2
    return b"\n".join([*lines[:half], strange, *lines[half:], b""])
